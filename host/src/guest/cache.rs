//! Compiled code on disk, so that a plugin compiles once.
//!
//! A file is the compiled code, then the four bytes `LGC1`, then the XXH3-64 (little-endian) of its name and the code. Its
//! name holds the SHA-256 of the component and a hash of the engine's version and settings. Files are written under another
//! name and renamed; they aren't synced, because a torn one fails its checksum and is compiled again.
//!
//! Whoever can write these files as this user can run code as this user anyway: replace the binary, or the shell's start-up file. So
//! there is no secret key; one that lies beside the files would stop nobody. What the checks do stop is another user, a copied
//! folder with open permissions, a link to elsewhere, and damage.
//!
//! Invariant: [`VerifiedCode`] comes from this process's compiler, from a process of this program that it has started and that has
//! ended well, or from a folder and file that only this user can write, with a matching checksum.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::OFlags;
use wasmtime::component::Component;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 4] = b"LGC1";
const TRAILER_BYTES: usize = 12;
/// Older files are removed when one more is written.
const FILES_MAX: usize = 64;

/// Where compiled code is kept unless the user says otherwise: `$XDG_CACHE_HOME/lockgate/compiled`, else
/// `~/.cache/lockgate/compiled`; `None` without a home folder.
pub fn default_cache_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("lockgate").join("compiled"))
}

/// Code that this user's process has written and that is as it was written.
pub(super) struct VerifiedCode(Vec<u8>);

impl VerifiedCode {
    /// Compiles a component, without limits.
    ///
    /// # Errors
    /// If it isn't valid, or too much for the engine.
    pub fn compiled(engine: &wasmtime::Engine, wasm: &[u8]) -> wasmtime::Result<VerifiedCode> {
        engine.precompile_component(wasm).map(VerifiedCode)
    }

    /// All that a process has given which has been started to compile, and which has ended well. Nobody else could write to where it
    /// was.
    pub fn from_compiler(code: Vec<u8>) -> VerifiedCode {
        VerifiedCode(code)
    }

    /// The code of a component that this process runs already.
    ///
    /// # Errors
    /// If the engine can't give it.
    pub fn of(component: &Component) -> wasmtime::Result<VerifiedCode> {
        component.serialize().map(VerifiedCode)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A folder of compiled code for one engine.
pub(super) struct CodeCache {
    dir: PathBuf,
    engine_key: String,
}

impl CodeCache {
    /// `None`, with a warning in the log, if the folder can't be used.
    pub fn open(dir: PathBuf, engine_key: String) -> Option<CodeCache> {
        match prepare_dir(&dir) {
            Ok(()) => Some(CodeCache { dir, engine_key }),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "compiled operators are not cached");
                None
            }
        }
    }

    fn name(&self, content_hash: &str) -> String {
        format!("{content_hash}-{}.code", self.engine_key)
    }

    /// `None` if it isn't there or isn't as it was written.
    pub fn read(&self, content_hash: &str) -> Option<VerifiedCode> {
        let name = self.name(content_hash);
        let path = self.dir.join(&name);
        match read_verified(&path, &name) {
            Ok(code) => Some(code),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cached code is unusable and will be compiled again");
                None
            }
        }
    }

    /// Keeps code for the next time. A failure costs only time and is logged.
    pub fn write(&self, content_hash: &str, code: &[u8]) {
        let name = self.name(content_hash);
        let written = write_renamed(&self.dir, &name, code).and_then(|()| remove_oldest(&self.dir));
        if let Err(error) = written {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot cache compiled code");
        }
    }
}

/// Creates the folder for this user alone, or checks that it is such a one.
fn prepare_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() {
        return Err(io::Error::other("it is not a folder"));
    }
    private(&found, 0o077)
}

/// Refuses what belongs to somebody else or is open to others by `forbidden_mode`.
fn private(found: &fs::Metadata, forbidden_mode: u32) -> io::Result<()> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if found.mode() & forbidden_mode != 0 {
        return Err(io::Error::other(format!("others can use it (mode {:o}); chmod it to 700", found.mode() & 0o777)));
    }
    Ok(())
}

fn checksum(name: &str, code: &[u8]) -> [u8; 8] {
    let mut hasher = Xxh3::new();
    hasher.update(name.as_bytes());
    hasher.update(code);
    hasher.digest().to_le_bytes()
}

fn read_verified(path: &Path, name: &str) -> io::Result<VerifiedCode> {
    // Neither a link is followed nor a pipe waited for. What is checked is the file that is read, whatever the path names by then.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    private(&found, 0o022)?;
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    let code_bytes = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(|| io::Error::other("it is cut short"))?;
    let (code, trailer) = bytes.split_at(code_bytes);
    if !trailer.starts_with(MAGIC) || trailer[MAGIC.len()..] != checksum(name, code) {
        return Err(io::Error::other("its checksum doesn't match"));
    }
    bytes.truncate(code_bytes);
    Ok(VerifiedCode(bytes))
}

fn write_renamed(dir: &Path, name: &str, code: &[u8]) -> io::Result<()> {
    // The same component may be compiled at the same time by two processes or threads; each renames its own file.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let write_number = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = dir.join(format!("{name}.{}-{write_number}.tmp", std::process::id()));
    let write = || {
        // A file of that name is a leftover of a process that had the same id, or a trap; neither is written to.
        let _ = fs::remove_file(&temporary);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(code)?;
        file.write_all(MAGIC)?;
        file.write_all(&checksum(name, code))?;
        fs::rename(&temporary, dir.join(name))
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Removes all but the newest files, leftovers of killed processes among them.
fn remove_oldest(dir: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // One that another process has just removed needs no removing.
        let Ok(found) = entry.metadata() else { continue };
        files.push((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.path()));
    }
    files.sort();
    let surplus = files.len().saturating_sub(FILES_MAX);
    for (_, path) in &files[..surplus] {
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open(dir: &Path) -> Option<CodeCache> {
        CodeCache::open(dir.to_owned(), "engine".to_owned())
    }

    #[test]
    fn code_comes_back_as_it_was_written_and_not_under_another_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(&folder.path().join("a/b")).expect("usable");
        assert!(cache.read("one").is_none());
        cache.write("one", b"code");
        assert_eq!(cache.read("one").expect("cached").bytes(), b"code");
        let file = |hash| cache.dir.join(cache.name(hash));
        fs::copy(file("one"), file("two")).expect("copied");
        assert!(cache.read("two").is_none(), "another component's code");
    }

    #[test]
    fn a_file_that_is_cut_or_flipped_anywhere_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(&folder.path().join("cache")).expect("usable");
        cache.write("one", b"some compiled code");
        let path = cache.dir.join(cache.name("one"));
        let whole = fs::read(&path).expect("written");
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).expect("cut");
            assert!(cache.read("one").is_none(), "cut at {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, &flipped).expect("flipped");
            assert!(cache.read("one").is_none(), "flipped at {at}");
        }
    }

    #[test]
    fn a_folder_or_file_that_others_can_write_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("cache");
        let cache = open(&dir).expect("usable");
        cache.write("one", b"code");
        let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        chmod(&dir.join(cache.name("one")), 0o622);
        assert!(cache.read("one").is_none());
        chmod(&dir, 0o777);
        assert!(open(&dir).is_none());
    }

    #[test]
    fn a_link_or_pipe_in_the_place_of_a_file_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(&folder.path().join("cache")).expect("usable");
        cache.write("one", b"code");
        let (path, elsewhere) = (cache.dir.join(cache.name("one")), folder.path().join("elsewhere"));
        fs::rename(&path, &elsewhere).expect("moved");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
        assert!(cache.read("one").is_none(), "a link, even to good code");
        fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        assert!(cache.read("one").is_none(), "a pipe");
    }

    #[test]
    fn hosts_that_write_and_read_the_same_code_at_once_see_all_of_it_or_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("cache");
        open(&dir).expect("usable");
        let code = vec![7; 100_000];
        let host = || {
            let cache = open(&dir).expect("usable");
            for _ in 0..50 {
                cache.write("one", &code);
                assert!(cache.read("one").is_some_and(|read| read.bytes() == code), "as it was written, by whomever");
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| {
                scope.spawn(host);
            });
        });
        assert_eq!(fs::read_dir(&dir).expect("listed").count(), 1, "and no leftovers");
    }

    #[test]
    fn only_the_newest_files_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(&folder.path().join("cache")).expect("usable");
        for index in 0..FILES_MAX + 10 {
            cache.write(&index.to_string(), b"code");
        }
        assert_eq!(fs::read_dir(&cache.dir).expect("listed").count(), FILES_MAX);
        assert!(cache.read(&(FILES_MAX + 9).to_string()).is_some(), "the last one");
    }
}
