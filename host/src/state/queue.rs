//! The sealed segments that are in memory, and what is to be done with them next.
//!
//! Invariant: they are in the order in which they were sealed, oldest first; they leave from the front.

use std::collections::VecDeque;
use std::sync::Arc;

use super::base::{Base, Sequence};
use super::segment::Segment;

/// So many more segments make merging worth a try: each of them is looked into for every key that isn't found before.
const SEGMENTS_MERGED: usize = 6;
/// With so many segments they go to the database.
const SEGMENTS_MAX: usize = 16;

/// The deltas `first ..= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covers {
    pub first: Sequence,
    pub last: Sequence,
}

/// A segment that waits.
pub struct Sealed {
    pub segment: Arc<Segment>,
    /// The deltas that hold exactly what this segment holds; `None` if none do.
    pub covers: Option<Covers>,
    /// To be captured when the database holds this segment and those before.
    pub capture: Option<Arc<Base>>,
}

impl Sealed {
    /// A base that only the queue holds is one that no snapshot asks for any more.
    fn is_capture_wanted(&self) -> bool {
        self.capture.as_ref().is_some_and(|base| Arc::strong_count(base) > 1)
    }
}

/// What is to be done with the oldest segments.
pub enum Work {
    /// Nothing until something changes.
    Wait,
    /// Merge them in memory, if that makes them much smaller.
    Merge(Vec<Arc<Segment>>, Option<Covers>),
    /// Move them to the database, and capture a base then.
    Flush(Vec<Arc<Segment>>, Option<Arc<Base>>),
    Stop,
}

#[derive(Default)]
pub struct Queue {
    sealed: VecDeque<Sealed>,
    sealed_bytes: usize,
    /// So many of the oldest were found not to get smaller by merging.
    unmergeable: usize,
    /// Somebody waits for memory.
    pub urgent: bool,
    pub stop: bool,
}

impl Queue {
    pub fn push(&mut self, sealed: Sealed) {
        self.sealed_bytes += sealed.segment.bytes();
        self.sealed.push_back(sealed);
    }

    pub fn bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// Newest first.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.sealed.iter().rev().map(|sealed| &sealed.segment)
    }

    /// The bases that are asked for.
    pub fn captures(&self) -> impl Iterator<Item = &Arc<Base>> {
        self.sealed.iter().filter_map(|sealed| sealed.capture.as_ref())
    }

    /// `flush_bytes`: with so many bytes, segments go to the database.
    pub fn next_work(&self, flush_bytes: usize) -> Work {
        if let Some(index) = self.sealed.iter().position(Sealed::is_capture_wanted) {
            return Work::Flush(self.oldest(index + 1), self.sealed[index].capture.clone());
        }
        if self.stop {
            return Work::Stop;
        }
        let count = self.sealed.len();
        let is_full = self.sealed_bytes >= flush_bytes || self.urgent && count > 0;
        let is_long = count >= self.unmergeable + SEGMENTS_MERGED;
        if (is_full || is_long) && count > self.unmergeable.max(1) {
            return Work::Merge(self.oldest(count), self.covers());
        }
        if is_full || count >= SEGMENTS_MAX { Work::Flush(self.oldest(count), None) } else { Work::Wait }
    }

    fn oldest(&self, count: usize) -> Vec<Arc<Segment>> {
        self.sealed.iter().take(count).map(|sealed| Arc::clone(&sealed.segment)).collect()
    }

    fn covers(&self) -> Option<Covers> {
        let all = self.sealed.iter().map(|sealed| sealed.covers);
        all.reduce(|older, newer| Some(Covers { first: older?.first, last: newer?.last })).flatten()
    }

    /// Takes out the oldest segments, which are in the database or in another segment now.
    pub fn remove(&mut self, count: usize) -> Vec<Sealed> {
        let removed: Vec<_> = self.sealed.drain(..count).collect();
        self.sealed_bytes -= removed.iter().map(|sealed| sealed.segment.bytes()).sum::<usize>();
        self.unmergeable = self.unmergeable.saturating_sub(count);
        removed
    }

    /// Puts a segment in the place of the oldest ones.
    pub fn replace(&mut self, count: usize, merged: Sealed) -> Vec<Sealed> {
        let removed = self.remove(count);
        self.sealed_bytes += merged.segment.bytes();
        self.sealed.push_front(merged);
        removed
    }

    /// Merging the oldest segments isn't worth it.
    pub fn set_unmergeable(&mut self, count: usize) {
        self.unmergeable = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::KeyGroup;
    use crate::state::entry::KeyRef;
    use crate::state::staging::Staging;

    /// About 1,000 bytes.
    fn sealed(number: u64) -> Sealed {
        let mut staging = Staging::default();
        staging.put(&KeyRef::new(KeyGroup(0), 0, b"k", b"", 1), Some(&[0; 963]));
        staging.accept();
        let covers = Some(Covers { first: Sequence(number), last: Sequence(number) });
        Sealed { segment: Arc::new(staging.seal()), covers, capture: None }
    }

    fn describe(work: &Work) -> String {
        match work {
            Work::Wait => "wait".to_owned(),
            Work::Merge(segments, covers) => {
                let covers = covers.map(|covers| (covers.first.0, covers.last.0));
                format!("merge {} {covers:?}", segments.len())
            }
            Work::Flush(segments, base) => format!("flush {} {}", segments.len(), base.is_some()),
            Work::Stop => "stop".to_owned(),
        }
    }

    fn next(queue: &Queue, flush_bytes: usize) -> String {
        describe(&queue.next_work(flush_bytes))
    }

    #[test]
    fn segments_are_merged_now_and_then_and_go_to_disk_when_that_is_no_use() {
        let mut queue = Queue::default();
        assert_eq!(next(&queue, 0), "flush 0 false");
        for number in 1..=5 {
            queue.push(sealed(number));
            assert_eq!(next(&queue, 1 << 20), "wait");
        }
        queue.push(sealed(6));
        assert_eq!(next(&queue, 1 << 20), "merge 6 Some((1, 6))");
        queue.set_unmergeable(6);
        assert_eq!(next(&queue, 1 << 20), "wait");
        assert_eq!(next(&queue, 6000), "flush 6 false");
        (7..=12).for_each(|number| queue.push(sealed(number)));
        assert_eq!(next(&queue, 1 << 20), "merge 12 Some((1, 12))");
        assert_eq!(next(&queue, 12_000), "merge 12 Some((1, 12))");
        queue.set_unmergeable(12);
        (13..=16).for_each(|number| queue.push(sealed(number)));
        assert_eq!(next(&queue, 1 << 20), "flush 16 false");
        assert_eq!(queue.remove(16).len(), 16);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn who_waits_for_memory_gets_it() {
        let mut queue = Queue { urgent: true, ..Queue::default() };
        assert_eq!(next(&queue, 1 << 20), "wait");
        queue.push(Sealed { covers: None, ..sealed(1) });
        assert_eq!(next(&queue, 1 << 20), "flush 1 false");
        queue.push(sealed(2));
        assert_eq!(next(&queue, 1 << 20), "merge 2 None");
        queue.replace(2, sealed(1));
        assert_eq!(next(&queue, 1 << 20), "flush 1 false");
    }

    #[test]
    fn a_base_is_captured_exactly_behind_its_segment_if_somebody_still_wants_it() {
        let mut queue = Queue::default();
        let base = Base::requested(Sequence(2));
        queue.push(sealed(1));
        queue.push(Sealed { capture: Some(Arc::clone(&base)), ..sealed(2) });
        queue.push(sealed(3));
        queue.stop = true;
        assert_eq!(next(&queue, 1 << 20), "flush 2 true");
        drop(base);
        assert_eq!(next(&queue, 1 << 20), "stop");
    }
}
