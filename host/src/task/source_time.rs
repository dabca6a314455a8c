//! The event time of a source's task: what it has to tell its readers of the splits it reads.
//!
//! Invariant: that a source is back is told before its next batch, a watermark after the batch that it comes from. A split is told
//! idle only when the source has just said that it has nothing, however long the task was kept from asking.

use std::time::{Duration, Instant};

use crate::connector::{SourceReader, SplitChange};
use crate::element::Batch;
use crate::id::SplitId;
use crate::protocol::{Change, SourceWatermarks, WatermarkOptions};

pub struct SourceTime {
    watermarks: SourceWatermarks,
    started: Instant,
    /// When the source last said anything.
    heard: Duration,
    /// Stands for all splits of a source that gives their records in one order.
    merged: Option<SplitId>,
}

impl SourceTime {
    /// For a source that has taken up its positions and was not polled yet.
    pub fn new(options: WatermarkOptions, reader: &dyn SourceReader) -> SourceTime {
        let mut watermarks = SourceWatermarks::new(options);
        let merged = reader.merges_splits().then(|| SplitId::new("all"));
        if merged.is_none() {
            reader.begun_splits().iter().for_each(|split| watermarks.begun(split));
        }
        SourceTime { watermarks, started: Instant::now(), heard: Duration::ZERO, merged }
    }

    /// What is to be told before this batch.
    pub fn batch(&mut self, split: &SplitId, batch: &Batch) -> Option<Change> {
        self.watermarks.batch(self.merged.as_ref().unwrap_or(split), batch)
    }

    /// Takes in what has happened to splits; to be told after each poll, even if that is nothing.
    pub fn changed(&mut self, changes: &[(SplitId, SplitChange)]) {
        self.heard = self.started.elapsed();
        for (split, change) in changes {
            match change {
                SplitChange::Begins => self.watermarks.begun(split),
                SplitChange::Rests => self.watermarks.rests(split, self.heard),
                SplitChange::Ended => self.watermarks.ended(split),
            }
        }
    }

    /// The source has nothing to give for now.
    pub fn rests(&mut self) {
        self.heard = self.started.elapsed();
        self.watermarks.all_rest(self.heard);
    }

    /// The next thing to tell; to be asked until there is none.
    pub fn next_change(&mut self) -> Option<Change> {
        self.watermarks.tick(self.heard)
    }

    /// After which time the source should be asked again, since there may be something to tell if it has nothing to give.
    pub fn due_in(&self) -> Option<Duration> {
        let deadline = self.watermarks.next_deadline()?;
        Some(deadline.saturating_sub(self.started.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::{ConnectorError, Polled, SplitState};
    use crate::element::Row;
    use crate::protocol::WatermarkStrategy;

    struct Nothing;

    impl SourceReader for Nothing {
        fn restore(&mut self, _: &[SplitState]) -> Result<(), ConnectorError> {
            Ok(())
        }

        fn poll(&mut self) -> Result<Polled, ConnectorError> {
            Ok(Polled::Ended)
        }

        fn snapshot(&self) -> Vec<SplitState> {
            Vec::new()
        }

        fn begun_splits(&self) -> Vec<SplitId> {
            vec![SplitId::new("a")]
        }
    }

    fn time(idle_timeout: Duration) -> SourceTime {
        let (strategy, idle_timeout) = (WatermarkStrategy::Monotonous, Some(idle_timeout));
        SourceTime::new(WatermarkOptions { strategy, idle_timeout }, &Nothing)
    }

    fn batch(timestamp: i64) -> Batch {
        let mut batch = Batch::with_capacity(0, 0);
        batch.push(Row { key: None, value: None, timestamp });
        batch
    }

    #[test]
    fn a_split_that_was_begun_holds_event_time_until_it_ends() {
        let mut time = time(Duration::from_secs(3600));
        assert_eq!(time.batch(&SplitId::new("b"), &batch(8)), None);
        time.changed(&[]);
        assert_eq!(time.next_change(), None);
        time.changed(&[(SplitId::new("a"), SplitChange::Ended)]);
        assert_eq!(time.next_change(), Some(Change::Watermark(7)));
    }

    #[test]
    fn time_in_which_nobody_asked_makes_no_split_idle() {
        let mut time = time(Duration::from_nanos(1));
        time.batch(&SplitId::new("a"), &batch(8));
        time.changed(&[(SplitId::new("a"), SplitChange::Rests)]);
        assert_eq!(time.next_change(), Some(Change::Watermark(7)));
        while time.due_in() != Some(Duration::ZERO) {}
        assert_eq!(time.next_change(), None, "it may have had something to give since");
        time.rests();
        assert_eq!(time.next_change(), Some(Change::Idle));
        assert_eq!(time.batch(&SplitId::new("a"), &batch(9)), Some(Change::Active));
    }
}
