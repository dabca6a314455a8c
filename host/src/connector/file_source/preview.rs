//! Whether a source will be able to read, found out without reading a record.
//!
//! Invariant: nothing is changed, and nothing is refused that a run would read.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use super::listing::Root;
use super::{FileSourceOptions, names};
use crate::connector::ConnectorError;
use crate::id::Name;

/// More files than this are listed but not opened.
const OPENED_MAX: usize = 1_000;

/// Lists the files and opens them.
///
/// # Errors
/// As the reader would give: a path that isn't there, or a file that can't be opened.
pub fn preview(options: &FileSourceOptions, name: &Name) -> Result<(), ConnectorError> {
    let root = Root::new(&options.path).map_err(|problem| ConnectorError::Refused {
        name: name.clone(),
        problem: format!("cannot read from {}: {problem}", options.path.display()),
        advice: "set path to a file, a folder or a glob".to_owned(),
    })?;
    let listed = root.list(|_| true);
    let listed = listed.map_err(|error| ConnectorError::file(name, "look at", &error.path, error.source))?.files;
    if let (Root::File(path), true) = (&root, listed.is_empty()) {
        return Err(ConnectorError::Missing { name: name.clone(), path: path.clone() });
    }
    for file in listed.iter().take(OPENED_MAX) {
        let path = root.base().join(names::decode(&file.split).expect("a name that was made here"));
        match File::open(&path) {
            Ok(_) => {}
            // It was removed since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(ConnectorError::file(name, "open", &path, error)),
        }
    }
    Ok(())
}

/// Whether a source with this path would read a file, whose path has no links, if it were there.
pub fn would_read(path: &Path, file: &Path) -> bool {
    Root::new(path).is_ok_and(|root| root.reads(file))
}
