//! The commit side: staged files become output.
//!
//! A commit looks at every file first and decides, then renames, then syncs the folder, then records the epoch. A crash
//! anywhere leaves a prefix of that, from which the same commit finishes:
//!
//! | staged | final | recorded | then |
//! |---|---|---|---|
//! | there | – | no | rename |
//! | there | same content | | a crash between link and unlink: remove the staged name |
//! | there | other content | | error: someone else's file |
//! | there | – | yes | error: the epoch was committed with other output |
//! | – | same size | | done before |
//! | – | other size | | error: output was changed |
//! | – | – | yes | done before, and the reader has moved it away |
//! | – | – | no | error: output is lost, or is in the folder that `path` named before |
//!
//! Invariant: if any file of a commit gives an error, no file of it has been touched.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::committable::{Committable, StagedFile};
use super::layout::Layout;
use super::{FileSinkOptions, claim, durable};
use crate::connector::{ConnectorContext, ConnectorError, SinkCommitter};
use crate::crash;
use crate::id::{Attempt, Epoch, JobUid};
use crate::protocol::CommitPermit;

/// The commit side of a file sink.
pub struct FileCommitter {
    ctx: ConnectorContext,
    layout: Layout,
    /// The newest epoch that `committed.json` holds.
    recorded: Mutex<Option<Epoch>>,
}

/// `committed.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    job_uid: JobUid,
    epoch: Epoch,
}

/// What is to be done with one file.
#[derive(Debug)]
enum Step {
    Rename { staged: PathBuf, part: PathBuf },
    RemoveStaged { staged: PathBuf },
    Done,
}

impl FileCommitter {
    /// Claims the output folder.
    ///
    /// # Errors
    /// If it belongs to another job or sink, or can't be created or read.
    pub fn open(options: &FileSinkOptions, ctx: &ConnectorContext) -> Result<FileCommitter, ConnectorError> {
        let layout = Layout::new(&options.path);
        claim::claim(&layout, ctx)?;
        let recorded = read_record(&layout, ctx)?;
        Ok(FileCommitter { ctx: ctx.clone(), layout, recorded: Mutex::new(recorded) })
    }

    /// Looks at the output folder without claiming it.
    ///
    /// # Errors
    /// If it belongs to another job or sink, or can't be read.
    pub(super) fn look(options: &FileSinkOptions, ctx: &ConnectorContext) -> Result<FileCommitter, ConnectorError> {
        let layout = Layout::new(&options.path);
        let mut recorded = None;
        if claim::is_claimed(&layout, ctx)? {
            claim::check(&layout, ctx)?;
            recorded = read_record(&layout, ctx)?;
        }
        Ok(FileCommitter { ctx: ctx.clone(), layout, recorded: Mutex::new(recorded) })
    }

    /// Whether the output of an epoch can be committed, or is.
    ///
    /// # Errors
    /// What a commit would give.
    pub(super) fn can_commit(&self, epoch: Epoch, committables: &[Vec<u8>]) -> Result<(), ConnectorError> {
        self.plan(epoch, committables).map(drop)
    }

    fn plan(&self, epoch: Epoch, committables: &[Vec<u8>]) -> Result<Vec<Step>, ConnectorError> {
        let is_recorded = self.recorded.lock().expect("never poisoned").is_some_and(|newest| newest >= epoch);
        let (mut steps, mut named) = (Vec::new(), BTreeSet::new());
        for bytes in committables.iter().filter(|bytes| !bytes.is_empty()) {
            let committable = Committable::read(bytes, epoch).map_err(|problem| {
                let problem = format!("its committable can't be used: {problem}");
                self.refused(epoch, problem, "restore the checkpoint store from a backup".to_owned())
            })?;
            for (roll, file) in committable.files.iter().enumerate() {
                if !named.insert((committable.attempt, committable.subtask, file.number)) {
                    let problem =
                        format!("a committable names file {} of subtask {} twice", file.number, committable.subtask);
                    return Err(self.refused(epoch, problem, "restore the checkpoint store from a backup".to_owned()));
                }
                let part = self.layout.part(epoch, committable.subtask, roll, &committable.extension);
                steps.push(self.plan_file(&committable, file, part, is_recorded)?);
            }
        }
        Ok(steps)
    }

    fn plan_file(
        &self,
        committable: &Committable,
        file: &StagedFile,
        part: PathBuf,
        is_recorded: bool,
    ) -> Result<Step, ConnectorError> {
        let epoch = committable.epoch;
        let staged = self.layout.staged(committable.attempt, committable.subtask, file.number);
        let (shown_staged, shown_part) = (staged.display(), part.display());
        let move_away = || format!("move {} away and run the job again", part.display());
        match (self.size(&staged)?, self.size(&part)?) {
            (Some(size), None) if !is_recorded => {
                if size != file.size_bytes || !self.is_intact(committable.attempt, &staged, file)? {
                    let problem = format!("{shown_staged} is not what was prepared");
                    return Err(self.refused(
                        epoch,
                        problem,
                        "restore it, or start from an older savepoint".to_owned(),
                    ));
                }
                Ok(Step::Rename { staged, part })
            }
            (Some(_), None) => {
                let problem = format!("this epoch was committed before with other output than {shown_staged}");
                let advice =
                    "checkpoints newer than the restored one were removed: put them back, or write to another path";
                Err(self.refused(epoch, problem, advice.to_owned()))
            }
            (Some(_), Some(size)) if size == file.size_bytes && self.checksum(&part)? == file.xxh3 => {
                Ok(Step::RemoveStaged { staged })
            }
            (Some(_), Some(_)) => {
                Err(self.refused(epoch, format!("{shown_part} is there already and is another file"), move_away()))
            }
            (None, Some(size)) if size == file.size_bytes => Ok(Step::Done),
            (None, Some(size)) => {
                let problem = format!("{shown_part} has {size} bytes and was committed with {}", file.size_bytes);
                Err(self.refused(epoch, problem, "restore it, then run the job again".to_owned()))
            }
            (None, None) if is_recorded => Ok(Step::Done),
            (None, None) if self.is_new() && committable.folder != self.layout.shown() => {
                let (old, new) = (&committable.folder, self.layout.shown());
                let problem = format!("its output is in {old}, and path of this sink is now {new}, where nothing is");
                let advice = format!(
                    "set path back to {old}; or, to go on in {new}, move all that is in {old} there first, also the hidden \
                     folder .lockgate"
                );
                Err(self.refused(epoch, problem, advice))
            }
            (None, None) => {
                let problem = format!("neither {shown_staged} nor {shown_part} is there, so output is lost");
                Err(self.refused(epoch, problem, "restore one of them, then run the job again".to_owned()))
            }
        }
    }

    /// Whether nothing was ever committed to this folder.
    fn is_new(&self) -> bool {
        self.recorded.lock().expect("never poisoned").is_none()
    }

    /// Whether a staged file has the content it was prepared with. This attempt's own files are believed.
    fn is_intact(&self, attempt: Attempt, staged: &Path, file: &StagedFile) -> Result<bool, ConnectorError> {
        Ok(attempt == self.ctx.attempt || self.checksum(staged)? == file.xxh3)
    }

    fn checksum(&self, path: &Path) -> Result<String, ConnectorError> {
        durable::checksum(path).map_err(|error| self.failed("read", path, error))
    }

    /// The size of a regular file; nothing if there is none.
    fn size(&self, path: &Path) -> Result<Option<u64>, ConnectorError> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => Ok(Some(found.len())),
            Ok(_) => Err(self.failed("use", path, io::Error::other("it is no regular file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("look at", path, error)),
        }
    }

    fn perform(&self, step: Step) -> Result<(), ConnectorError> {
        match step {
            Step::Rename { staged, part } => {
                crash::point("connector.rename.before");
                durable::rename_new(&staged, &part).map_err(|error| self.failed("rename a part to", &part, error))?;
                crash::point("connector.rename.after");
                Ok(())
            }
            Step::RemoveStaged { staged } => {
                fs::remove_file(&staged).map_err(|error| self.failed("remove", &staged, error))
            }
            Step::Done => Ok(()),
        }
    }

    /// Remembers that the output of an epoch was complete, so that a reader may take it away.
    fn record(&self, epoch: Epoch) -> Result<(), ConnectorError> {
        let mut recorded = self.recorded.lock().expect("never poisoned");
        if recorded.is_some_and(|newest| newest >= epoch) {
            return Ok(());
        }
        let record = Record { version: 1, job_uid: self.ctx.job_uid.clone(), epoch };
        let record = serde_json::to_vec(&record).expect("numbers and names are JSON");
        crash::point("connector.record.before");
        let path = self.layout.committed();
        durable::replace(&path, &record).map_err(|error| self.failed("write", &path, error))?;
        crash::point("connector.record.after");
        *recorded = Some(epoch);
        Ok(())
    }

    fn failed(&self, action: &'static str, path: &Path, error: io::Error) -> ConnectorError {
        ConnectorError::file(&self.ctx.name, action, path, error)
    }

    fn refused(&self, epoch: Epoch, problem: String, advice: String) -> ConnectorError {
        ConnectorError::Commit { name: self.ctx.name.clone(), epoch, problem, advice }
    }

    /// The staging folders of other attempts and what is in them.
    fn list_leftovers(&self) -> io::Result<Vec<(PathBuf, Vec<PathBuf>)>> {
        let own = self.ctx.attempt.to_string();
        let mut leftovers = Vec::new();
        for folder in fs::read_dir(self.layout.staging())? {
            let folder = folder?;
            let name = folder.file_name();
            let is_attempt = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
            if is_attempt && name != *own && folder.file_type()?.is_dir() {
                let files = fs::read_dir(folder.path())?.map(|file| Ok(file?.path()));
                leftovers.push((folder.path(), files.collect::<io::Result<Vec<_>>>()?));
            }
        }
        Ok(leftovers)
    }
}

impl SinkCommitter for FileCommitter {
    fn committed(&self) -> Option<Epoch> {
        *self.recorded.lock().expect("never poisoned")
    }

    fn commit(&self, permit: &CommitPermit, committables: &[Vec<u8>]) -> Result<(), ConnectorError> {
        let epoch = permit.epoch();
        let steps = self.plan(epoch, committables)?;
        if steps.is_empty() {
            return Ok(());
        }
        for step in steps {
            self.perform(step)?;
        }
        crash::point("connector.sync.before");
        durable::sync_folder(self.layout.out()).map_err(|error| self.failed("sync", self.layout.out(), error))?;
        crash::point("connector.sync.after");
        self.record(epoch)
    }

    fn discard_leftovers(&self) -> Result<(), ConnectorError> {
        let staging = self.layout.staging();
        let leftovers = self.list_leftovers().map_err(|error| self.failed("list", &staging, error))?;
        for (folder, files) in leftovers {
            for file in files {
                crash::point("connector.discard.before");
                fs::remove_file(&file).map_err(|error| self.failed("remove", &file, error))?;
                crash::point("connector.discard.after");
            }
            fs::remove_dir(&folder).map_err(|error| self.failed("remove", &folder, error))?;
        }
        Ok(())
    }
}

fn read_record(layout: &Layout, ctx: &ConnectorContext) -> Result<Option<Epoch>, ConnectorError> {
    let path = layout.committed();
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ConnectorError::file(&ctx.name, "read", &path, error)),
    };
    match serde_json::from_slice::<Record>(&bytes) {
        Ok(record) if record.job_uid == ctx.job_uid => Ok(Some(record.epoch)),
        Ok(_) | Err(_) => Err(ConnectorError::Refused {
            name: ctx.name.clone(),
            problem: format!("{} is damaged or of another job", path.display()),
            advice: "restore it; or remove it if no output of the last epoch was moved out of the folder".to_owned(),
        }),
    }
}
