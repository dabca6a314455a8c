//! The few durable steps that a sink is made of.
//!
//! Invariant: when one of these returns without an error, what it did survives a power cut; and none ever overwrites a file
//! but [`replace`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

/// Makes the entries of a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Creates a folder and those above it, as far as they are missing.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    let mut missing: Vec<&Path> =
        folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).collect();
    while let Some(path) = missing.pop() {
        match fs::create_dir(path) {
            // Another subtask was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Renames a file unless there already is one of the new name: then `AlreadyExists`, and nothing has changed. The caller
/// syncs the folder.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // The filesystem can't; a link doesn't overwrite either. A crash in between leaves both names.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link_new(from, to),
        Err(error) => Err(error.into()),
    }
}

fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Writes a file that isn't there yet, whole or not at all; `false` if there already is one.
pub fn create(path: &Path, content: &[u8], temp_suffix: &str) -> io::Result<bool> {
    let temp = write_temp(path, content, temp_suffix)?;
    match rename_new(&temp, path) {
        Ok(()) => sync_folder(folder_of(path)).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(&temp).map(|()| false),
        Err(error) => Err(error),
    }
}

/// Writes a file or replaces the one that is there, whole or not at all.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temp = write_temp(path, content, "new")?;
    fs::rename(&temp, path)?;
    sync_folder(folder_of(path))
}

/// The first half of both: a synced file with another name. A crash here leaves a file that the next try writes anew.
fn write_temp(path: &Path, content: &[u8], suffix: &str) -> io::Result<PathBuf> {
    let temp = path.with_extension(format!("{suffix}.tmp"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    Ok(temp)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().expect("a file in the output folder")
}

/// XXH3-64 of a file's content, 16 hexadecimal digits.
pub fn checksum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(format!("{:016x}", hash.digest())),
            n => hash.update(&chunk[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_way_of_renaming_overwrites() {
        for rename in [rename_new, link_new] {
            let folder = tempfile::tempdir().expect("a folder");
            let (a, b) = (folder.path().join("a"), folder.path().join("b"));
            fs::write(&a, "new").expect("written");
            fs::write(&b, "old").expect("written");
            assert_eq!(rename(&a, &b).expect_err("b exists").kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((fs::read(&a).expect("a"), fs::read(&b).expect("b")), (b"new".to_vec(), b"old".to_vec()));
            fs::remove_file(&b).expect("removed");
            rename(&a, &b).expect("b is free");
            assert!(!a.exists() && b.exists());
        }
    }

    #[test]
    fn folders_are_created_once_and_a_file_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("a/b/c");
        create_folders(&deep).expect("created");
        create_folders(&deep).expect("there already");
        fs::write(folder.path().join("file"), "").expect("written");
        assert!(create_folders(&folder.path().join("file")).is_err());
        assert!(create_folders(&folder.path().join("file/x")).is_err());
    }
}
