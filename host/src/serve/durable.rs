//! The durable steps in a data folder.
//!
//! Invariant: when one of these returns without an error, what it did survives a power cut; a file is there whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ServeError;
use crate::store::{seal, unseal};

/// Job files may hold passwords of brokers: what is here is for the daemon's user alone.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// No file of ours that is read whole is larger.
const SEALED_BYTES_MAX: u64 = 16 << 20;

/// Runs file work, or other work that takes long, where it may block.
///
/// # Panics
/// If the work does.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ServeError::ShuttingDown),
    }
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Creates a folder, and those above it, as far as they are missing.
pub fn create_folder(path: &Path) -> Result<(), ServeError> {
    let mut missing =
        path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).collect::<Vec<_>>();
    while let Some(path) = missing.pop() {
        match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            created => created.map_err(ServeError::folder("create the folder", path))?,
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Makes the entries of a folder durable.
pub fn sync_folder(path: &Path) -> Result<(), ServeError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(ServeError::folder("sync", path))
}

/// A file that only this user can read and that isn't there yet.
pub fn create_new(path: &Path) -> Result<File, ServeError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    created.map_err(ServeError::folder("create", path))
}

/// Writes a file or replaces the one that is there. A crash in between leaves the old one, and perhaps a file with another name, which
/// the next write replaces.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), ServeError> {
    let temp = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().and_then(|()| fs::rename(&temp, path)).map_err(ServeError::folder("write", path))?;
    sync_folder(folder_of(path))
}

/// Gives a file or folder another name in the same folder, or replaces a file there.
pub fn rename(from: &Path, to: &Path) -> Result<(), ServeError> {
    fs::rename(from, to).map_err(ServeError::folder("write", to))?;
    sync_folder(folder_of(to))
}

/// Removes a file; one that is gone already is no error.
pub fn remove_file(path: &Path) -> Result<(), ServeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(ServeError::folder("delete", path)),
    }?;
    sync_folder(folder_of(path))
}

/// The names in a folder that are UTF-8, in order. Others are never ours.
pub fn names_in(path: &Path) -> Result<Vec<String>, ServeError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(ServeError::folder("list", path))? {
        let entry = entry.map_err(ServeError::folder("list", path))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Writes a value so that damage is noticed when it is read.
pub fn replace_sealed<T: Serialize>(path: &Path, value: &T) -> Result<(), ServeError> {
    replace(path, &seal(value))
}

/// Reads what [`replace_sealed`] wrote; `None` if there is no such file.
pub fn read_sealed<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ServeError> {
    let damaged = |problem: String| ServeError::Damaged { path: path.to_owned(), problem };
    let Some(bytes) = read(path, SEALED_BYTES_MAX)? else { return Ok(None) };
    let json = unseal(&bytes).map_err(|damage| damaged(damage.to_string()))?;
    serde_json::from_slice(json).map(Some).map_err(|error| damaged(error.to_string()))
}

fn read(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, ServeError> {
    let damaged = |problem: &str| ServeError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
    // Asked before it is opened: to open a pipe is to wait for its writer.
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(damaged("it is not a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ServeError::folder("read", path)(error)),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ServeError::folder("read", path))?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(ServeError::folder("read", path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(damaged("it is far too large"));
    }
    Ok(Some(bytes))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().expect("a file in the data folder")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_any_damage_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b/value.json");
        create_folder(folder_of(&path)).expect("created");
        assert_eq!(read_sealed::<u32>(&path).expect("read"), None);
        replace_sealed(&path, &7u32).expect("written");
        replace_sealed(&path, &8u32).expect("replaced");
        assert_eq!(read_sealed::<u32>(&path).expect("read"), Some(8));
        assert_eq!(names_in(folder_of(&path)).expect("listed"), ["value.json"], "nothing else is left");
        let whole = fs::read(&path).expect("bytes");
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("cut");
            let error = read_sealed::<u32>(&path).expect_err("cut");
            assert!(error.to_string().contains("value.json is damaged"), "{length}: {error}");
        }
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a folder in its place");
        assert!(read_sealed::<u32>(&path).is_err());
    }

    #[test]
    fn others_can_not_look_into_what_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data/secret");
        create_folder(folder_of(&path)).expect("created");
        replace(&path, b"x").expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(folder_of(&path)), mode(&path)), (0o700, 0o600));
    }
}
