//! Which files a source has.
//!
//! Invariant: a listing is in order of the split names, and every file in it was a regular one a moment ago.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use super::names;

/// What `path` stands for.
#[derive(Debug)]
pub enum Root {
    /// One file, or nothing yet.
    File(PathBuf),
    Folder(PathBuf),
    Glob {
        /// The longest part of the path without pattern.
        base: PathBuf,
        pattern: GlobMatcher,
        /// How many folders deep a match can be.
        depth_max: usize,
    },
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub split: String,
    pub size: u64,
}

/// What was found at a moment.
#[derive(Debug, Default)]
pub struct Listing {
    pub files: Vec<Listed>,
    /// The split names of what can't be a split: pipes, sockets, devices, links to folders.
    pub passed_over: Vec<String>,
}

/// A path that can't be looked at.
#[derive(Debug)]
pub struct ListError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl Root {
    /// # Errors
    /// Says why if the path is a pattern that can't be read, or neither a file nor a folder.
    pub fn new(path: &Path) -> Result<Root, String> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Ok(Root::Folder(path.to_owned())),
            Ok(found) if found.is_file() => return Ok(Root::File(path.to_owned())),
            Ok(_) => return Err("it is neither a file nor a folder (a pipe, a socket or a device?)".to_owned()),
            Err(_) => {}
        }
        let is_pattern = |part: &Path| part.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?[{".contains(byte));
        if !is_pattern(path) {
            return Ok(Root::File(path.to_owned()));
        }
        let base = path.ancestors().find(|part| !is_pattern(part)).unwrap_or(Path::new(""));
        let rest = path.strip_prefix(base).unwrap_or(path);
        let rest = rest.to_str().ok_or("a pattern must be UTF-8")?;
        let glob = GlobBuilder::new(rest).literal_separator(true).build().map_err(|error| error.to_string())?;
        let depth_max = if rest.contains("**") { usize::MAX } else { rest.matches('/').count() };
        let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
        Ok(Root::Glob { base: base.to_owned(), pattern: glob.compile_matcher(), depth_max })
    }

    /// The folder that split names are below.
    pub fn base(&self) -> &Path {
        match self {
            Root::File(path) => path.parent().unwrap_or(Path::new("")),
            Root::Folder(base) | Root::Glob { base, .. } => base,
        }
    }

    /// The files whose split is wanted. A single file that isn't there is no file.
    pub fn list(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Listing, ListError> {
        let (base, depth_max) = match self {
            Root::File(path) => return list_file(path, is_wanted),
            Root::Folder(base) => (base, usize::MAX),
            Root::Glob { base, depth_max, .. } => (base, *depth_max),
        };
        let mut found = Listing::default();
        let mut folders = vec![(base.clone(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            let failed = |source| ListError { path: folder.clone(), source };
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if names::is_hidden(&entry.file_name()) {
                    continue;
                }
                let path = entry.path();
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    if depth < depth_max {
                        folders.push((path, depth + 1));
                    }
                    continue;
                }
                let below = path.strip_prefix(base).expect("found below it");
                if self.matches(below) {
                    found.look_at(&path, names::encode(below), &is_wanted)?;
                }
            }
        }
        found.files.sort_unstable_by(|a, b| a.split.cmp(&b.split));
        Ok(found)
    }

    /// Whether this file, whose path has no links, would be read if it were there.
    pub fn reads(&self, file: &Path) -> bool {
        let Ok(base) = self.base().canonicalize() else { return false };
        match self {
            Root::File(path) => path.canonicalize().is_ok_and(|path| path == file),
            Root::Folder(_) | Root::Glob { .. } => file.strip_prefix(base).is_ok_and(|below| self.matches(below)),
        }
    }

    fn matches(&self, below: &Path) -> bool {
        match self {
            Root::Glob { pattern, .. } => pattern.is_match(below),
            Root::File(_) | Root::Folder(_) => true,
        }
    }
}

fn list_file(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Listing, ListError> {
    let split = names::encode(Path::new(path.file_name().unwrap_or(path.as_os_str())));
    let mut found = Listing::default();
    found.look_at(path, split, &is_wanted)?;
    Ok(found)
}

impl Listing {
    /// Adds a regular file, also one behind a link; nothing if it is unwanted or gone.
    fn look_at(&mut self, path: &Path, split: String, is_wanted: &impl Fn(&str) -> bool) -> Result<(), ListError> {
        if !is_wanted(&split) {
            return Ok(());
        }
        match fs::metadata(path) {
            Ok(found) if found.is_file() => self.files.push(Listed { split, size: found.len() }),
            Ok(_) => self.passed_over.push(split),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ListError { path: path.to_owned(), source }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in [
            "b.txt",
            "a.txt",
            "c.log",
            ".hidden.txt",
            "d.txt~",
            "e.txt.tmp",
            "sub/f.txt",
            "sub/deep/g.txt",
            ".secret/h.txt",
            "odd[1].txt",
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "x\n").expect("written");
        }
        std::os::unix::fs::symlink(root.join("a.txt"), root.join("link.txt")).expect("linked");
        std::os::unix::fs::symlink(root.join("gone"), root.join("broken.txt")).expect("linked");
        std::os::unix::fs::symlink(root.join("sub"), root.join("loop")).expect("linked");
        folder
    }

    fn names(path: &Path) -> Vec<String> {
        let root = Root::new(path).expect("a path");
        root.list(|_| true).expect("listed").files.into_iter().map(|file| file.split).collect()
    }

    #[test]
    fn a_folder_is_all_below_it_but_what_is_hidden_or_unfinished() {
        let folder = folder();
        let wanted = ["a.txt", "b.txt", "c.log", "link.txt", "odd[1].txt", "sub/deep/g.txt", "sub/f.txt"];
        assert_eq!(names(folder.path()), wanted);
    }

    #[test]
    fn a_glob_is_what_it_matches_and_a_file_is_itself() {
        let folder = folder();
        let at = |rest: &str| names(&folder.path().join(rest));
        assert_eq!(at("*.txt"), ["a.txt", "b.txt", "link.txt", "odd[1].txt"]);
        assert_eq!(at("**/*.txt"), ["a.txt", "b.txt", "link.txt", "odd[1].txt", "sub/deep/g.txt", "sub/f.txt"]);
        assert_eq!(at("sub/*/?.txt"), ["deep/g.txt"]);
        assert_eq!(at("{a,c}.*"), ["a.txt", "c.log"]);
        assert_eq!(at("*.nothing"), Vec::<String>::new());
        assert_eq!(at("odd[1].txt"), ["odd[1].txt"]);
        assert_eq!(at(".hidden.txt"), [".hidden.txt"]);
        assert_eq!(at("not-there.txt"), Vec::<String>::new());
    }

    #[test]
    fn a_pipe_or_a_bad_pattern_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(Root::new(&socket).expect_err("no file").contains("neither a file nor a folder"));
        assert!(Root::new(&folder.path().join("a[")).is_err());
        assert!(Root::new(&folder.path().join("nowhere/*.txt")).expect("a pattern").list(|_| true).is_err());
        assert_eq!(names(folder.path()), Vec::<String>::new());
        let listing = Root::new(folder.path()).expect("a folder").list(|_| true).expect("listed");
        assert_eq!(listing.passed_over, ["socket"]);
    }
}
