//! A source that never gives a record twice: positions are made durable before the records in front of them go on.
//!
//! Records are gathered for a window, their positions are recorded, and only then are they given. A crash loses what was given
//! and isn't committed, which is what at-most-once asks for; what was gathered and not recorded is read again.
//!
//! Invariant: a record is given only when the positions recorded are behind it, and the positions of
//! [`snapshot`](SourceReader::snapshot) are those that were recorded last.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::connector::{ConnectorError, Polled, Queued, SourceReader, SplitChange, SplitState};
use crate::element::Batch;
use crate::id::{Name, SplitId};
use crate::store::{ProgressLog, StoreError};

/// A window ends with this many bytes,
const WINDOW_BYTES: usize = 1 << 20;
/// or this long after its first record.
const WINDOW: Duration = Duration::from_millis(100);

/// A batch on its way, and what has happened to splits behind it.
struct Gathered {
    split: SplitId,
    first_offset: u64,
    batch: Batch,
    changes: Vec<(SplitId, SplitChange)>,
}

/// Makes durable how far a source has got.
pub trait RecordProgress: Send {
    /// # Errors
    /// If it isn't certain that the positions are durable.
    fn record(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError>;
}

/// A log, and the source whose errors it makes.
pub struct Log {
    pub source: Name,
    pub log: ProgressLog,
}

impl RecordProgress for Log {
    fn record(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        self.log.record(splits).map_err(|error| of_source(&self.source, error))
    }
}

/// What failed, as an error of the source.
fn of_source(name: &Name, error: StoreError) -> ConnectorError {
    let name = name.clone();
    match error {
        StoreError::Full { action, path, source } => ConnectorError::Full { name, action, path, source },
        StoreError::ReadOnly { action, path, source } | StoreError::Denied { action, path, source } => {
            ConnectorError::File { name, action, path, source }
        }
        StoreError::Io { action, path, source } => {
            ConnectorError::File { name, action, path, source: std::io::Error::other(source) }
        }
        other => ConnectorError::Refused {
            name,
            problem: other.to_string(),
            advice: other.help().unwrap_or_else(|| "check the folder of the job's state".to_owned()),
        },
    }
}

/// A source whose progress is recorded.
pub struct Recorded<R> {
    inner: Box<dyn SourceReader>,
    log: R,
    /// Not recorded yet.
    window: Vec<Gathered>,
    window_bytes: usize,
    window_began: Option<Instant>,
    /// Recorded and not given yet.
    recorded: VecDeque<Gathered>,
    positions: Vec<SplitState>,
    /// Of batches that were given.
    changes: Vec<(SplitId, SplitChange)>,
    /// Whether it isn't certain yet where the source begins.
    is_beginning: bool,
}

impl<R: RecordProgress> Recorded<R> {
    /// `inner` has taken up its positions.
    pub fn new(inner: Box<dyn SourceReader>, log: R) -> Recorded<R> {
        let (positions, is_beginning) = (inner.snapshot(), inner.is_ahead());
        Recorded {
            inner,
            log,
            window: Vec::new(),
            window_bytes: 0,
            window_began: None,
            recorded: VecDeque::new(),
            positions,
            changes: Vec::new(),
            is_beginning,
        }
    }

    /// How long the window may still wait for more; `None` while it is empty.
    fn window_left(&self) -> Option<Duration> {
        self.window_began.map(|began| WINDOW.saturating_sub(began.elapsed()))
    }

    fn is_due(&self) -> bool {
        self.window_bytes >= WINDOW_BYTES || self.window_left().is_some_and(|left| left.is_zero())
    }

    /// Lets go of the window.
    fn record(&mut self) -> Result<(), ConnectorError> {
        let positions = self.inner.snapshot();
        self.log.record(&positions)?;
        self.positions = positions;
        self.recorded.extend(self.window.drain(..));
        (self.window_bytes, self.window_began) = (0, None);
        Ok(())
    }

    fn gather(&mut self, split: SplitId, first_offset: u64, batch: Batch) {
        self.window_bytes += batch.bytes();
        self.window_began.get_or_insert_with(Instant::now);
        self.window.push(Gathered { split, first_offset, batch, changes: self.inner.split_changes() });
    }

    /// Takes in what has happened to splits without a batch: it is told behind all batches before it.
    fn take_changes(&mut self) {
        let changes = self.inner.split_changes();
        match self.window.last_mut() {
            Some(last) => last.changes.extend(changes),
            None => self.changes.extend(changes),
        }
    }

    fn give(&mut self) -> Option<Polled> {
        let Gathered { split, first_offset, batch, changes } = self.recorded.pop_front()?;
        self.changes.extend(changes);
        Some(Polled::Batch { split, first_offset, batch })
    }
}

impl<R: RecordProgress> SourceReader for Recorded<R> {
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        self.inner.restore(splits)?;
        self.positions = self.inner.snapshot();
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        loop {
            if let Some(batch) = self.give() {
                return Ok(batch);
            }
            if self.is_due() {
                self.record()?;
                continue;
            }
            match self.inner.poll()? {
                Polled::Batch { split, first_offset, batch } => self.gather(split, first_offset, batch),
                Polled::Idle(wait) => {
                    self.take_changes();
                    if self.is_beginning && !self.inner.is_ahead() {
                        self.is_beginning = false;
                        self.record()?;
                    }
                    return Ok(Polled::Idle(self.window_left().map_or(wait, |left| left.min(wait))));
                }
                Polled::Ended => {
                    self.take_changes();
                    if self.window.is_empty() {
                        return Ok(Polled::Ended);
                    }
                    self.record()?;
                }
            }
        }
    }

    fn snapshot(&self) -> Vec<SplitState> {
        debug_assert!(self.recorded.is_empty(), "what was recorded is given before a barrier");
        self.positions.clone()
    }

    fn is_ahead(&self) -> bool {
        !self.recorded.is_empty() || self.inner.is_ahead()
    }

    fn begun_splits(&self) -> Vec<SplitId> {
        self.inner.begun_splits()
    }

    fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
        std::mem::take(&mut self.changes)
    }

    fn merges_splits(&self) -> bool {
        self.inner.merges_splits()
    }

    fn lag(&self) -> Option<u64> {
        self.inner.lag()
    }

    fn queued(&self) -> Option<Queued> {
        self.inner.queued()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::element::{NO_TIMESTAMP, Row};

    /// Numbers in one split, in batches of two; it rests once in the middle.
    struct Numbers {
        next: u64,
        end: u64,
        rest_at: Option<u64>,
        row_bytes: usize,
    }

    impl SourceReader for Numbers {
        fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
            self.next = splits.first().and_then(|state| state.position.as_u64()).unwrap_or_default();
            Ok(())
        }

        fn poll(&mut self) -> Result<Polled, ConnectorError> {
            if self.rest_at.take_if(|at| *at == self.next).is_some() {
                return Ok(Polled::Idle(Duration::from_secs(1)));
            }
            if self.next == self.end {
                return Ok(Polled::Ended);
            }
            let mut batch = Batch::default();
            let first_offset = self.next;
            for number in first_offset..first_offset + 2 {
                let mut value = vec![0; self.row_bytes];
                value[0] = number as u8;
                batch.push(Row { key: None, value: Some(&value), timestamp: NO_TIMESTAMP });
            }
            self.next += 2;
            Ok(Polled::Batch { split: SplitId::new("s"), first_offset, batch })
        }

        fn snapshot(&self) -> Vec<SplitState> {
            vec![SplitState { split: "s".to_owned(), position: self.next.into() }]
        }

        fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
            if self.next == self.end { vec![(SplitId::new("s"), SplitChange::Ended)] } else { Vec::new() }
        }
    }

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u64>>>);

    impl RecordProgress for Memory {
        fn record(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
            self.0.lock().expect("no panic").push(position(splits));
            Ok(())
        }
    }

    impl Memory {
        fn last(&self) -> u64 {
            self.0.lock().expect("no panic").last().copied().unwrap_or_default()
        }
    }

    fn position(splits: &[SplitState]) -> u64 {
        splits[0].position.as_u64().expect("a number")
    }

    fn numbers(row_bytes: usize, rest_at: Option<u64>) -> (Recorded<Memory>, Memory) {
        let memory = Memory::default();
        (Recorded::new(Box::new(Numbers { next: 0, end: 20, rest_at, row_bytes }), memory.clone()), memory)
    }

    #[test]
    fn nothing_is_given_that_is_not_recorded_and_everything_is_given_once() {
        for (row_bytes, records) in [(1, 1), (WINDOW_BYTES / 6, 4), (WINDOW_BYTES, 10)] {
            let (mut reader, memory) = numbers(row_bytes, None);
            let mut given = Vec::new();
            loop {
                match reader.poll().expect("never fails") {
                    Polled::Batch { first_offset, batch, .. } => {
                        assert!(memory.last() >= first_offset + 2, "recorded before it is given");
                        given.extend(batch.iter().map(|row| row.value.expect("a value")[0]));
                        if !reader.is_ahead() {
                            assert_eq!(
                                position(&reader.snapshot()),
                                first_offset + 2,
                                "a snapshot is of what was given"
                            );
                        }
                    }
                    Polled::Idle(_) => {}
                    Polled::Ended => break,
                }
            }
            assert_eq!(given, (0..20).collect::<Vec<_>>());
            assert_eq!(memory.0.lock().expect("no panic").len(), records, "windows of {row_bytes} bytes a row");
        }
    }

    #[test]
    fn what_is_gathered_and_not_recorded_is_not_in_a_snapshot() {
        let (mut reader, memory) = numbers(1, Some(6));
        let Polled::Idle(wait) = reader.poll().expect("never fails") else { panic!("the window isn't full") };
        assert!(wait <= WINDOW, "a window doesn't wait for longer than its time");
        assert_eq!((position(&reader.snapshot()), memory.last(), reader.is_ahead()), (0, 0, false));
    }

    #[test]
    fn a_split_ends_behind_its_last_record() {
        let (mut reader, _) = numbers(1, None);
        let mut given = 0;
        while let Polled::Batch { batch, .. } = reader.poll().expect("never fails") {
            given += batch.rows;
            assert_eq!(!reader.split_changes().is_empty(), given == 20, "after {given}");
        }
    }
}
