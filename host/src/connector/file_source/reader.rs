//! One subtask of the file source: which of its files is read next, and how far each is.
//!
//! Invariant: at most one file is open, and every file with unread bytes that is known of is open, waiting, or has a last line
//! that may still grow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use super::lines::{LineBatch, LineBuffer};
use super::listing::{Listed, Root};
use super::open_file::{Filled, OpenFile, ReadError, verify_path};
use super::position::{CHANGED_ADVICE, Changed, Position};
use super::{FileMode, FileSourceOptions, names};
use crate::connector::{ConnectorContext, ConnectorError, Polled, SourceReader, SplitChange, SplitState};
use crate::id::{SplitId, SubtaskId};
use crate::telemetry::InputPassedOver;
use crate::units;

/// Read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Files opened in one `poll` at most, so that it doesn't block for long.
const OPENS_MAX: usize = 128;
/// After this much of a file another one gets its turn (continuous).
const TURN_BYTES: u64 = 64 << 20;

/// One subtask of a file source.
pub struct FileReader {
    ctx: ConnectorContext,
    subtask: u32,
    options: FileSourceOptions,
    chunk_bytes: usize,
    root: Root,
    /// This subtask's files, by split: all that were begun, and those that wait.
    files: BTreeMap<String, Known>,
    waiting: VecDeque<String>,
    /// What was found and can't be read, so that it is said once.
    passed_over: BTreeSet<String>,
    current: Option<OpenFile>,
    lines: LineBuffer,
    discovered: Option<Instant>,
    changes: Vec<(SplitId, SplitChange)>,
}

/// Lines of one file.
struct Lines {
    split: SplitId,
    first_offset: u64,
    batch: LineBatch,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug)]
struct Known {
    position: Position,
    state: FileState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// Nothing to read that is known of.
    Rest,
    /// Open or in the queue.
    Active,
    /// Its last line has no end; it had this size at that time.
    Tail { size: u64, since: Instant },
    /// Its last line hasn't grown beyond this size for long enough.
    Settled { size: u64 },
}

impl FileReader {
    /// # Errors
    /// If `path` is something that can't be a source. Whether there is a file is seen at the first `poll`.
    pub fn open(
        options: &FileSourceOptions,
        ctx: &ConnectorContext,
        subtask: u32,
    ) -> Result<FileReader, ConnectorError> {
        let root = Root::new(&options.path).map_err(|problem| ConnectorError::Refused {
            name: ctx.name.clone(),
            problem: format!("cannot read from {}: {problem}", options.path.display()),
            advice: "set path to a file, a folder or a glob".to_owned(),
        })?;
        Ok(FileReader {
            ctx: ctx.clone(),
            subtask,
            options: options.clone(),
            chunk_bytes: CHUNK_BYTES,
            root,
            files: BTreeMap::new(),
            waiting: VecDeque::new(),
            passed_over: BTreeSet::new(),
            current: None,
            lines: LineBuffer::new(),
            discovered: None,
            changes: Vec::new(),
        })
    }

    /// Reads in chunks of another size.
    #[cfg(test)]
    pub fn with_chunk_bytes(mut self, chunk_bytes: usize) -> FileReader {
        self.chunk_bytes = chunk_bytes;
        self
    }

    fn owns(&self, split: &str) -> bool {
        xxh3_64(split.as_bytes()) % u64::from(self.ctx.parallelism) == u64::from(self.subtask)
    }

    fn path_of(&self, split: &str) -> Option<PathBuf> {
        names::decode(split).map(|below| self.root.base().join(below))
    }

    fn is_due(&self) -> bool {
        match (self.options.mode, self.discovered) {
            (_, None) => true,
            (FileMode::Bounded, Some(_)) => false,
            (FileMode::Continuous, Some(last)) => last.elapsed() >= self.options.discover_interval,
        }
    }

    /// Looks for files that are new or have grown.
    fn discover(&mut self) -> Result<(), ConnectorError> {
        let listed = self.root.list(|split| self.owns(split));
        let listed =
            listed.map_err(|error| ConnectorError::file(&self.ctx.name, "look at", &error.path, error.source))?;
        self.refuse_missing(&listed.files)?;
        for split in listed.passed_over {
            let path = self.path_of(&split).expect("a name that was made here");
            if self.passed_over.insert(split) {
                InputPassedOver { source: &self.ctx.name, path: &path }.emit();
            }
        }
        for file in listed.files {
            self.consider(file)?;
        }
        self.discovered = Some(Instant::now());
        Ok(())
    }

    /// Queues a listed file if it has something to read.
    fn consider(&mut self, file: Listed) -> Result<(), ConnectorError> {
        let Some(known) = self.files.get_mut(&file.split) else {
            if file.size > 0 {
                self.files.insert(file.split.clone(), Known { position: Position::START, state: FileState::Active });
                self.queue(file.split);
            }
            return Ok(());
        };
        let offset = known.position.offset;
        if file.size < offset {
            return Err(self.changed(&file.split, Changed::Truncated { size: file.size, offset }));
        }
        let state = match known.state {
            FileState::Active | FileState::Settled { .. } => return Ok(()),
            FileState::Rest if file.size == offset => {
                if !std::mem::replace(&mut known.position.done, true) {
                    self.at_end(&file.split);
                }
                return Ok(());
            }
            FileState::Tail { size, since } if size == file.size => {
                if since.elapsed() < self.options.settle {
                    return Ok(());
                }
                FileState::Settled { size }
            }
            FileState::Rest | FileState::Tail { .. } => FileState::Active,
        };
        known.state = state;
        known.position.done = false;
        self.queue(file.split);
        Ok(())
    }

    /// A file has something to read, when it is its turn.
    fn queue(&mut self, split: String) {
        if !self.options.ordered {
            self.changes.push((SplitId::new(&split), SplitChange::Begins));
        }
        self.waiting.push_back(split);
    }

    /// A file that is gone must have been read to its end, and a single file must be there.
    fn refuse_missing(&self, listed: &[Listed]) -> Result<(), ConnectorError> {
        let is_listed = |split: &str| listed.binary_search_by(|file| file.split.as_str().cmp(split)).is_ok();
        for (split, known) in self.files.iter().filter(|(_, known)| known.position.offset > 0) {
            if !known.position.done && !is_listed(split) {
                self.verify(split, known.position).map_err(|error| self.read_error(split, error))?;
            }
        }
        if let Root::File(path) = &self.root
            && listed.is_empty()
            && let Some(split) = path.file_name().map(|name| names::encode(name.as_ref()))
            && self.owns(&split)
            && !self.files.contains_key(&split)
        {
            return Err(ConnectorError::Missing { name: self.ctx.name.clone(), path: path.clone() });
        }
        Ok(())
    }

    fn verify(&self, split: &str, position: Position) -> Result<(), ReadError> {
        let path = self.path_of(split).expect("a name that was made or checked here");
        verify_path(&path, position)
    }

    /// Makes the next waiting file the current one; `false` if there is none.
    fn open_next(&mut self) -> Result<bool, ConnectorError> {
        let Some(split) = self.waiting.pop_front() else { return Ok(false) };
        let path = self.path_of(&split).expect("a name that was made or checked here");
        let known = self.files[&split];
        let is_bounded = self.options.is_bounded();
        let last_line_counts = |now| is_bounded || known.state == FileState::Settled { size: now };
        match OpenFile::open(split.clone(), &path, known.position, &mut self.lines, last_line_counts) {
            Ok(file) => self.current = Some(file),
            // Nothing of it was given: as if it had never been there.
            Err(ReadError::Io { source, .. }) if self.is_forgotten(&source, known.position) => {
                self.files.remove(&split);
                self.changes.push((SplitId::new(&split), SplitChange::Ended));
            }
            Err(error) => return Err(self.read_error(&split, error)),
        }
        Ok(true)
    }

    fn is_forgotten(&self, error: &std::io::Error, position: Position) -> bool {
        !self.options.is_bounded() && error.kind() == std::io::ErrorKind::NotFound && position.offset == 0
    }

    /// Reads on in the current file.
    fn fill_from_current(&mut self) -> Result<Option<Lines>, ConnectorError> {
        let Some(mut file) = self.current.take() else { return Ok(None) };
        let (split, first_offset) = (SplitId::new(&file.split), file.offset(&self.lines));
        let mut batch = LineBatch::new();
        let max_line = self.options.max_line as usize;
        let filled = match file.fill(&mut self.lines, &mut batch, max_line, self.chunk_bytes) {
            Ok(filled) => filled,
            Err(error) => return Err(self.read_error(&file.split, error)),
        };
        let (state, done) = match filled {
            Filled::BatchFull => (FileState::Active, false),
            Filled::AtEnd { unread: 0, .. } => (FileState::Rest, true),
            Filled::AtEnd { size, .. } => (FileState::Tail { size, since: Instant::now() }, false),
        };
        let known = self.files.get_mut(&file.split).expect("the current file is known");
        *known = Known { position: file.position(&self.lines, done), state };
        if filled != Filled::BatchFull {
            self.at_end(&file.split);
        } else if file.turn_bytes() >= TURN_BYTES && !self.options.is_bounded() && !self.waiting.is_empty() {
            self.waiting.push_back(file.split);
        } else {
            self.current = Some(file);
        }
        Ok((!batch.is_empty()).then_some(Lines { split, first_offset, batch }))
    }

    /// Nothing more of a file is known of. In bounded mode that is all of it.
    fn at_end(&mut self, split: &str) {
        let change = match self.options.mode {
            FileMode::Bounded => SplitChange::Ended,
            FileMode::Continuous => SplitChange::Rests,
        };
        self.changes.push((SplitId::new(split), change));
    }

    fn fill(&mut self) -> Result<Option<Lines>, ConnectorError> {
        for _ in 0..OPENS_MAX {
            if self.current.is_none() && !self.open_next()? {
                break;
            }
            if let Some(lines) = self.fill_from_current()? {
                return Ok(Some(lines));
            }
        }
        Ok(None)
    }

    fn read_error(&self, split: &str, error: ReadError) -> ConnectorError {
        let path = self.path_of(split).unwrap_or_else(|| PathBuf::from(split));
        match error {
            ReadError::Io { action, source } => ConnectorError::file(&self.ctx.name, action, &path, source),
            ReadError::Changed(changed) => self.changed(split, changed),
            ReadError::TooLong { offset } => {
                let max_line = units::size::format(self.options.max_line);
                ConnectorError::Refused {
                    name: self.ctx.name.clone(),
                    problem: format!(
                        "the line at byte {offset} of {} is longer than max_line = {max_line}",
                        path.display()
                    ),
                    advice: "raise max_line of this source, or correct the file; nothing from that line on was taken"
                        .to_owned(),
                }
            }
        }
    }

    fn changed(&self, split: &str, changed: Changed) -> ConnectorError {
        let path = self.path_of(split).unwrap_or_else(|| PathBuf::from(split));
        ConnectorError::Refused {
            name: self.ctx.name.clone(),
            problem: format!("cannot go on with {}: {changed}", path.display()),
            advice: CHANGED_ADVICE.to_owned(),
        }
    }

    fn restore_split(&mut self, state: &SplitState) -> Result<(), ConnectorError> {
        let refused = |what: String, problem: String| ConnectorError::Snapshot {
            subtask: SubtaskId { operator: self.ctx.name.clone(), index: self.subtask },
            what,
            problem,
        };
        let Some(path) = self.path_of(&state.split) else {
            return Err(refused(state.split.clone(), "it is no file of this source".to_owned()));
        };
        let text = state.position.as_str().unwrap_or_default();
        let position: Position =
            text.parse().map_err(|_| refused(state.split.clone(), format!("{} is no position", state.position)))?;
        match verify_path(&path, position) {
            Ok(()) => {}
            Err(ReadError::Changed(changed)) => {
                return Err(refused(path.display().to_string(), format!("{changed}; {CHANGED_ADVICE}")));
            }
            Err(error) => return Err(self.read_error(&state.split, error)),
        }
        self.files.insert(state.split.clone(), Known { position, state: FileState::Rest });
        Ok(())
    }

    /// When it makes sense to ask again.
    fn next_look(&self) -> Duration {
        let since = self.discovered.map_or(Duration::ZERO, |last| last.elapsed());
        self.options.discover_interval.saturating_sub(since).max(Duration::from_millis(1))
    }
}

impl SourceReader for FileReader {
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        for state in splits.iter().filter(|state| self.owns(&state.split)).collect::<Vec<_>>() {
            self.restore_split(state)?;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        if self.is_due() {
            self.discover()?;
        }
        if let Some(Lines { split, first_offset, batch }) = self.fill()? {
            return Ok(Polled::Batch { split, first_offset, batch: batch.finish() });
        }
        let has_more = self.current.is_some() || !self.waiting.is_empty();
        Ok(match self.options.mode {
            _ if has_more => Polled::Idle(Duration::ZERO),
            FileMode::Bounded => Polled::Ended,
            FileMode::Continuous => Polled::Idle(self.next_look()),
        })
    }

    fn snapshot(&self) -> Vec<SplitState> {
        let begun = self.files.iter().filter(|(_, known)| known.position.offset > 0);
        begun
            .map(|(split, known)| SplitState { split: split.clone(), position: known.position.to_string().into() })
            .collect()
    }

    fn begun_splits(&self) -> Vec<SplitId> {
        let begun = self.files.iter().filter(|(_, known)| known.position.offset > 0 && !known.position.done);
        begun.map(|(split, _)| SplitId::new(split)).collect()
    }

    fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
        std::mem::take(&mut self.changes)
    }
}
