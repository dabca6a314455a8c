//! Where a job's capsules are kept: `<state_dir>/capsules/<operator>-<subtask>-<epoch>-<n>.capsule`.
//!
//! The oldest are kept, since the first failure tells most and what follows is mostly more of it. Whoever has looked at them
//! removes them, and makes room for others.
//!
//! Invariant: a file that has the name of a capsule is a whole one; no file is ever replaced; and neither their number nor
//! their size grows past the limits.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::capsule::{Capsule, Identity};
use super::codec::{HEAD_BYTES, read_head};
use super::error::ReplayError;
use super::suspicion::Suspicion;
use crate::id::{Epoch, Name, SubtaskId};

/// All capsules of a job together.
const FOLDER_BYTES_MAX: u64 = 1 << 30;
const ENDING: &str = ".capsule";
/// What is being written, or never was to its end.
const UNFINISHED: &str = ".capsule.tmp";

/// The capsules of a job. Shared by its subtasks.
pub struct Capsules {
    folder: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: u64,
    files: Vec<KeptFile>,
    /// Operators that have been told of as having as many as they may.
    full: BTreeSet<Name>,
}

struct KeptFile {
    operator: Name,
    identity: Identity,
    path: PathBuf,
}

/// What there is of a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A capsule is wanted.
    Yes,
    /// There is one.
    Kept(PathBuf),
    /// There is no room for another one.
    Full,
}

impl Capsules {
    /// Looks at what is there, and removes what was never finished. A folder that can't be read holds none; that it can't be
    /// written is told when there is something to write.
    pub fn open(folder: PathBuf) -> Capsules {
        let kept = look(&folder).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(folder = %folder.display(), %error, "cannot look for capsules that are there already");
            }
            Kept::default()
        });
        Capsules { folder, kept: Mutex::new(kept) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a failure is to be kept, of an operator that may have `files_max`.
    pub fn wants(&self, operator: &Name, identity: Identity, files_max: u32) -> Wanted {
        let mut kept = self.kept();
        if let Some(file) = kept.files.iter().find(|file| file.operator == *operator && file.identity == identity) {
            return Wanted::Kept(file.path.clone());
        }
        let own = kept.files.iter().filter(|file| file.operator == *operator).count();
        if own < files_max as usize && kept.bytes < FOLDER_BYTES_MAX {
            return Wanted::Yes;
        }
        if own > 0 && kept.full.insert(operator.clone()) {
            let folder = self.folder.display();
            tracing::info!(%operator, capsules = own, "no more capsules are written; to have others, remove some from {folder}");
        }
        Wanted::Full
    }

    /// Keeps a capsule.
    ///
    /// # Errors
    /// If it can't be written. Then there is none.
    pub fn keep(&self, capsule: &Capsule) -> Result<Option<PathBuf>, ReplayError> {
        let bytes = capsule.encode();
        let mut kept = self.kept();
        if kept.bytes + bytes.len() as u64 > FOLDER_BYTES_MAX {
            return Ok(None);
        }
        let failed = |action, path: &Path, source| ReplayError::File { action, path: path.to_owned(), source };
        fs::create_dir_all(&self.folder).map_err(|error| failed("create the folder", &self.folder, error))?;
        let subtask = &capsule.place.subtask;
        let mut paths = (1u32..).map(|number| self.folder.join(file_name(subtask, capsule.epoch, number)));
        let path = paths.find(|path| !path.exists()).expect("numbers enough");
        let unfinished = path.with_extension("capsule.tmp");
        let written = write(&unfinished, &path, &bytes).inspect_err(|_| {
            // What is left of it is removed now or by the next run.
            let _ = fs::remove_file(&unfinished);
        });
        written.map_err(|error| failed("write the capsule", &path, error))?;
        kept.bytes += bytes.len() as u64;
        let (operator, identity) = (subtask.operator.clone(), capsule.identity());
        kept.files.push(KeptFile { operator, identity, path: path.clone() });
        Ok(Some(path))
    }
}

/// More isn't read of what was to be looked out for.
const SUSPICION_BYTES_MAX: u64 = 64 << 10;

impl Capsules {
    fn suspicion_path(&self, subtask: &SubtaskId) -> PathBuf {
        self.folder.join(format!("{}-{}.suspect", subtask.operator, subtask.index))
    }

    /// What the attempt before has left to be looked out for. What can't be read is nothing.
    pub fn suspicion(&self, subtask: &SubtaskId) -> Option<Suspicion> {
        let file = File::open(self.suspicion_path(subtask)).ok()?;
        serde_json::from_reader(file.take(SUSPICION_BYTES_MAX)).ok()
    }

    /// Leaves something to be looked out for by the next attempt, or nothing.
    ///
    /// # Errors
    /// If the file can't be written or removed.
    pub fn suspect(&self, subtask: &SubtaskId, suspicion: Option<&Suspicion>) -> io::Result<()> {
        let path = self.suspicion_path(subtask);
        let Some(suspicion) = suspicion else {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            };
        };
        fs::create_dir_all(&self.folder)?;
        // Half of one is none; the attempt after the next one finds out anew.
        fs::write(&path, serde_json::to_vec(suspicion)?)
    }
}

fn file_name(subtask: &SubtaskId, epoch: Epoch, number: u32) -> String {
    format!("{}-{}-{epoch}-{number}{ENDING}", subtask.operator, subtask.index)
}

/// The operator in the name of a capsule.
fn operator_in(name: &str) -> Option<Name> {
    let mut parts = name.strip_suffix(ENDING)?.rsplitn(4, '-');
    let mut is_number = || parts.next().is_some_and(|part| part.parse::<u64>().is_ok());
    let are_numbers = is_number() && is_number() && is_number();
    Name::new(parts.next().filter(|_| are_numbers)?).ok()
}

fn look(folder: &Path) -> io::Result<Kept> {
    let mut kept = Kept::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.ends_with(UNFINISHED) {
            fs::remove_file(entry.path())?;
            continue;
        }
        let Some(operator) = operator_in(name) else { continue };
        kept.bytes += entry.metadata()?.len();
        // One that can't be read takes its place all the same, and is like no other.
        let identity = identity_of(&entry.path()).unwrap_or(Identity(0));
        kept.files.push(KeptFile { operator, identity, path: entry.path() });
    }
    Ok(kept)
}

fn identity_of(path: &Path) -> Option<Identity> {
    let mut head = [0; HEAD_BYTES];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).ok()?;
    read_head(&head).ok().map(|(_, identity)| identity)
}

/// Under another name, synced, renamed, and the folder synced: a crash leaves a whole file or none.
fn write(unfinished: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capsule_is_known_by_its_name() {
        let subtask = SubtaskId { operator: Name::new("a-b-1").expect("a name"), index: 3 };
        assert_eq!(file_name(&subtask, Epoch(7), 2), "a-b-1-3-7-2.capsule");
        assert_eq!(operator_in("a-b-1-3-7-2.capsule"), Some(subtask.operator));
        for name in ["a-1-2.capsule", "a-1-2-x.capsule", "a-1-2-3", ".-1-2-3.capsule", "a-1-2-3.capsule.tmp"] {
            assert_eq!(operator_in(name), None, "{name}");
        }
    }
}
