//! The watermark of one subtask of a source, from the event times of its splits.
//!
//! Each split has a watermark of its own: the largest event time that it has given, less what it may be out of order, less one
//! millisecond, since records of the same event time may follow. The subtask's is the smallest of those of its splits. A split
//! that has had nothing to give for the idle timeout doesn't hold it back, and neither does one that has ended. When all others
//! are idle, it comes to where the farthest of those that have ended had been.
//!
//! Invariant: the watermark never goes back, and never reaches [`WATERMARK_END`](crate::element::WATERMARK_END): that is for
//! the end of the whole source to say.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::element::{Batch, NO_TIMESTAMP, WATERMARK_END};
use crate::id::SplitId;

/// How a watermark is made from event times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WatermarkStrategy {
    /// None is made before the source ends.
    #[default]
    None,
    /// Within a split, event times don't go back.
    Monotonous,
    /// Within a split, event times go back by no more than this.
    Bounded { max_out_of_orderness: Duration },
}

/// What a job says of a source's watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WatermarkOptions {
    pub strategy: WatermarkStrategy,
    /// How long a split may have nothing to give before it no longer holds the watermark back. `None`: for ever.
    pub idle_timeout: Option<Duration>,
}

/// What is to be told to those who read the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// No record with an event time at or before this one is to come.
    Watermark(i64),
    /// No split has anything to say for now.
    Idle,
    /// One has again.
    Active,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// It gives records, or may at any moment.
    Giving,
    /// It has nothing to give since then (time since the task began).
    Resting { since: Duration },
    /// As before, for longer than the timeout.
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Split {
    activity: Activity,
    /// The largest event time that it has given.
    newest_ms: i64,
}

/// The watermarks of one subtask. Times (`now`) count from any fixed moment, and don't go back.
#[derive(Clone, Debug)]
pub struct SourceWatermarks {
    options: WatermarkOptions,
    /// Those that have given something and haven't ended.
    splits: BTreeMap<SplitId, Split>,
    /// Of the subtask itself while it has no split that has given anything.
    empty: Activity,
    /// What the farthest of the splits that have ended had come to.
    ended_ms: i64,
    /// What was told last.
    told_ms: i64,
    told_idle: bool,
}

impl SourceWatermarks {
    /// A subtask that has given nothing yet.
    pub fn new(options: WatermarkOptions) -> SourceWatermarks {
        SourceWatermarks {
            options,
            splits: BTreeMap::new(),
            empty: Activity::Giving,
            ended_ms: i64::MIN,
            told_ms: i64::MIN,
            told_idle: false,
        }
    }

    /// The last watermark that was told, in milliseconds since the Unix epoch.
    pub fn current(&self) -> i64 {
        self.told_ms
    }

    /// A split gives a batch. What this says is to be told before the batch; what [`tick`](Self::tick) says, after it.
    pub fn batch(&mut self, split: &SplitId, batch: &Batch) -> Option<Change> {
        let newest = match self.options.strategy {
            WatermarkStrategy::None => NO_TIMESTAMP,
            WatermarkStrategy::Monotonous | WatermarkStrategy::Bounded { .. } => newest(batch),
        };
        match self.splits.get_mut(split) {
            Some(known) => *known = Split { activity: Activity::Giving, newest_ms: known.newest_ms.max(newest) },
            None => {
                self.splits.insert(split.clone(), Split { activity: Activity::Giving, newest_ms: newest });
            }
        }
        std::mem::replace(&mut self.told_idle, false).then_some(Change::Active)
    }

    /// A split will give something: it holds the watermark back before it does.
    pub fn begun(&mut self, split: &SplitId) {
        let known = self.splits.entry(split.clone());
        let new = Split { activity: Activity::Giving, newest_ms: NO_TIMESTAMP };
        known.and_modify(|split| split.activity = Activity::Giving).or_insert(new);
    }

    /// A split has nothing more to give for now.
    pub fn rests(&mut self, split: &SplitId, now: Duration) {
        if let Some(split) = self.splits.get_mut(split) {
            split.activity = rested(split.activity, now);
        }
    }

    /// No split has anything to give for now.
    pub fn all_rest(&mut self, now: Duration) {
        self.empty = rested(self.empty, now);
        self.splits.values_mut().for_each(|split| split.activity = rested(split.activity, now));
    }

    /// A split will never give anything again.
    pub fn ended(&mut self, split: &SplitId) {
        if let Some(ended) = self.splits.remove(split) {
            self.ended_ms = self.ended_ms.max(self.watermark_of(&ended));
        }
        if self.splits.is_empty() {
            self.empty = Activity::Giving;
        }
    }

    /// What has changed by now; to be asked until it says that nothing has.
    pub fn tick(&mut self, now: Duration) -> Option<Change> {
        self.fall_idle(now);
        let smallest = self.holding().map(|split| self.watermark_of(split)).min();
        let falls_idle = smallest.is_none() && !self.told_idle && self.is_idle();
        let reached = smallest.or(falls_idle.then_some(self.ended_ms));
        if let Some(watermark) = reached.filter(|&watermark| watermark > self.told_ms) {
            self.told_ms = watermark;
            return Some(Change::Watermark(watermark));
        }
        self.told_idle |= falls_idle;
        falls_idle.then_some(Change::Idle)
    }

    /// When [`tick`](Self::tick) may have something to say without anything else having happened.
    pub fn next_deadline(&self) -> Option<Duration> {
        let timeout = self.options.idle_timeout?;
        let resting = |activity| match activity {
            Activity::Resting { since } => Some(since.saturating_add(timeout)),
            Activity::Giving | Activity::Idle => None,
        };
        if self.splits.is_empty() {
            return resting(self.empty);
        }
        self.splits.values().filter_map(|split| resting(split.activity)).min()
    }

    fn fall_idle(&mut self, now: Duration) {
        let Some(timeout) = self.options.idle_timeout else { return };
        let fall = |activity: &mut Activity| match *activity {
            Activity::Resting { since } if now >= since.saturating_add(timeout) => *activity = Activity::Idle,
            Activity::Resting { .. } | Activity::Giving | Activity::Idle => {}
        };
        fall(&mut self.empty);
        self.splits.values_mut().for_each(|split| fall(&mut split.activity));
    }

    /// The splits that hold the watermark back.
    fn holding(&self) -> impl Iterator<Item = &Split> {
        self.splits.values().filter(|split| split.activity != Activity::Idle)
    }

    /// Whether nothing holds the watermark back because all that could is idle.
    fn is_idle(&self) -> bool {
        !self.splits.is_empty() || self.empty == Activity::Idle
    }

    fn watermark_of(&self, split: &Split) -> i64 {
        let late_ms = match self.options.strategy {
            WatermarkStrategy::None => return i64::MIN,
            WatermarkStrategy::Monotonous => 0,
            WatermarkStrategy::Bounded { max_out_of_orderness } => {
                i64::try_from(max_out_of_orderness.as_millis()).unwrap_or(i64::MAX)
            }
        };
        // An event time at the far end must not be taken for the end of the stream.
        split.newest_ms.min(WATERMARK_END - 1).saturating_sub(late_ms).saturating_sub(1)
    }
}

fn rested(activity: Activity, now: Duration) -> Activity {
    match activity {
        Activity::Giving => Activity::Resting { since: now },
        Activity::Resting { .. } | Activity::Idle => activity,
    }
}

/// The largest event time of a batch; [`NO_TIMESTAMP`], which is the smallest i64, if there is none.
fn newest(batch: &Batch) -> i64 {
    let times = batch.timestamps.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
    times.max().unwrap_or(NO_TIMESTAMP)
}

#[cfg(test)]
mod tests;
