//! How one split goes on: which records are given, when it has nothing more, how much it is behind. Pure.
//!
//! Offsets have gaps where Kafka keeps the ends of transactions and what was aborted, and where records were compacted. So an end is
//! known by a record behind it, or by being told that the partition has nothing more.
//!
//! Invariant: the position never goes back, and never passes a record that was not given.

use super::figures::Figures;
use super::position::Position;
use crate::connector::kafka::TopicId;

#[derive(Clone, Debug)]
pub struct Progress {
    position: Position,
    /// The partition had nothing more when it was read last.
    at_end: bool,
    /// Where the partition ends, as far as is known.
    high: u64,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Given,
    /// It was given before.
    Known,
    /// A bounded source has ended before it.
    Behind,
}

impl Progress {
    pub fn new(position: Position, high: u64) -> Progress {
        Progress { position, at_end: false, high }
    }

    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Takes note of which topic it is, unless that is known.
    pub fn is_of(&mut self, id: TopicId) {
        self.position.topic_id.get_or_insert(id);
    }

    pub fn has_ended(&self) -> bool {
        self.position.has_ended()
    }

    /// A record was read.
    pub fn record(&mut self, offset: u64) -> Record {
        self.at_end = false;
        if let Some(end) = self.position.end.filter(|end| offset >= *end) {
            self.position.next = self.position.next.max(end);
            return Record::Behind;
        }
        if offset < self.position.next {
            return Record::Known;
        }
        self.position.next = offset + 1;
        self.high = self.high.max(self.position.next);
        Record::Given
    }

    /// The partition has nothing more. A bounded source ends where the partition ended earlier or ends now.
    pub fn reached_end(&mut self) {
        self.at_end = true;
        if let Some(end) = self.position.end {
            self.position.next = self.position.next.max(end);
        }
    }

    /// Takes in what the client says of the partition.
    pub fn told(&mut self, figures: &Figures) {
        self.high = self.high.max(figures.high);
        // All records before that end were handed over, since none is waiting.
        if let Some(end) = figures.end.filter(|_| figures.queued_records == 0) {
            self.position.next = self.position.next.max(end);
        }
    }

    /// How many records there may be between what was given and where it ends.
    pub fn lag(&self) -> u64 {
        let end = self.position.end.map_or(self.high, |end| end.min(self.high));
        if self.at_end { 0 } else { end.saturating_sub(self.position.next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(next: u64, end: Option<u64>) -> Progress {
        Progress::new(Position { next, end, topic_id: None }, 50)
    }

    #[test]
    fn gaps_are_passed_and_nothing_is_given_twice() {
        let mut progress = progress(10, None);
        let given = [10, 11, 15, 15, 12, 16].map(|offset| progress.record(offset));
        assert_eq!(given, [Record::Given, Record::Given, Record::Given, Record::Known, Record::Known, Record::Given]);
        assert_eq!((progress.position().next, progress.lag()), (17, 33));
    }

    #[test]
    fn a_bounded_split_ends_at_its_end_behind_it_or_when_there_is_no_more() {
        let mut by_record = progress(10, Some(12));
        assert_eq!([by_record.record(10), by_record.record(11)], [Record::Given; 2]);
        assert!(by_record.has_ended());
        let mut by_gap = progress(10, Some(12));
        assert_eq!([by_gap.record(10), by_gap.record(14)], [Record::Given, Record::Behind]);
        assert!(by_gap.has_ended() && by_gap.position().next == 12);
        let mut by_silence = progress(10, Some(12));
        assert!(!by_silence.has_ended());
        by_silence.reached_end();
        assert!(by_silence.has_ended() && by_silence.lag() == 0);
        assert!(progress(12, Some(12)).has_ended());
    }

    #[test]
    fn an_end_in_control_records_is_passed_only_when_no_record_waits() {
        let told = |queued_records, end| {
            let mut progress = progress(10, None);
            progress.record(10);
            progress.told(&Figures { queued_records, queued_bytes: 0, end, high: 60 });
            (progress.position().next, progress.lag())
        };
        assert_eq!(told(0, Some(14)), (14, 46));
        assert_eq!(told(1, Some(14)), (11, 49));
        assert_eq!(told(0, Some(5)), (11, 49));
        assert_eq!(told(0, None), (11, 49));
    }

    #[test]
    fn an_id_is_learnt_once_and_kept() {
        let mut progress = progress(10, None);
        let ids = [1, 2].map(|id| TopicId::told(id).expect("an id"));
        ids.into_iter().for_each(|id| progress.is_of(id));
        progress.record(10);
        assert_eq!((progress.position().topic_id, progress.position().next), (Some(ids[0]), 11));
    }

    #[test]
    fn there_is_no_lag_at_the_end_until_a_record_comes() {
        let mut progress = progress(10, None);
        progress.reached_end();
        assert_eq!(progress.lag(), 0);
        progress.record(10);
        assert_eq!(progress.lag(), 39);
    }
}
