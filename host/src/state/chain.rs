//! What the next snapshot consists of: a base and the deltas since; and when to ask for another base.
//!
//! Invariant: base and deltas together hold every accepted write up to the last barrier, unless `uncovered` says that some lie
//! only in the database or in segments without a delta. Then the next snapshot takes a base that is captured at its barrier.

use std::sync::Arc;

use super::base::{Base, Sequence};
use super::flusher::Consolidated;
use super::queue::{Covers, Sealed};
use super::segment::Segment;
use super::snapshot::Delta;
use crate::id::Epoch;

/// After so many deltas the next base is asked for: restoring reads them all.
const DELTAS_MAX: usize = 32;

#[derive(Debug)]
pub struct Chain {
    base: Option<Arc<Base>>,
    /// Asked for; takes the place of `base` when it is captured, or when there are too many deltas to go on without it.
    next: Option<Arc<Base>>,
    deltas: Vec<Arc<Delta>>,
    uncovered: bool,
    next_sequence: u64,
}

/// What is known at a barrier.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Whether anything was written since the last barrier.
    pub wrote: bool,
    pub uncovered: bool,
    pub next_is_pending: bool,
    pub deltas: usize,
    pub deltas_bytes: u64,
    pub unsent_bytes: u64,
    pub base_bytes: u64,
    pub memory_bytes_max: u64,
}

/// What follows a segment that was sealed at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is new.
    Keep,
    /// The segment becomes a delta.
    Delta,
    /// The segment becomes a delta, and a base is captured behind it for later snapshots.
    DeltaThenBase,
    /// A base is captured behind the segment, and this snapshot waits for it.
    Base,
}

/// Decides what follows a segment that was sealed at a barrier.
pub fn decide(facts: Facts) -> Step {
    // Deltas that can't be brought to the store would fill the memory; in a base they lie on disk.
    if facts.uncovered || facts.unsent_bytes > facts.memory_bytes_max / 2 {
        return Step::Base;
    }
    if !facts.wrote {
        return Step::Keep;
    }
    // With as many bytes of deltas as of base, a base costs at most as much again as the deltas did.
    let long = facts.deltas >= DELTAS_MAX || facts.deltas_bytes > facts.base_bytes.max(facts.memory_bytes_max / 4);
    if long && !facts.next_is_pending { Step::DeltaThenBase } else { Step::Delta }
}

impl Chain {
    pub fn new(base: Option<Arc<Base>>, uncovered: bool) -> Chain {
        // A restored base has the number 0.
        Chain { base, next: None, deltas: Vec::new(), uncovered, next_sequence: 1 }
    }

    /// Takes over a delta that the restored checkpoint has over its base.
    pub fn add_restored(&mut self, delta: impl FnOnce(Sequence) -> Arc<Delta>) {
        let sequence = self.take_sequence();
        self.deltas.push(delta(sequence));
    }

    /// All deltas.
    pub fn covers(&self) -> Option<Covers> {
        let (first, last) = (self.deltas.first()?.sequence, self.deltas.last()?.sequence);
        Some(Covers { first, last })
    }

    /// Takes one delta in the place of those that were merged. If a base took their place already, it isn't needed.
    pub fn consolidate(&mut self, Consolidated { covers, segment }: Consolidated) {
        let is_covered = |delta: &Arc<Delta>| covers.first <= delta.sequence && delta.sequence <= covers.last;
        let Some(last) = self.deltas.iter().rposition(is_covered) else { return };
        self.deltas[last] = Delta::consolidated(covers, self.deltas[last].epoch, segment);
        self.deltas.retain(|delta| !(covers.first <= delta.sequence && delta.sequence < covers.last));
    }

    /// Some writes will be in no delta.
    pub fn set_uncovered(&mut self) {
        self.uncovered = true;
    }

    /// Takes up what was written since the last barrier. Gives what is to be moved to disk, if anything.
    pub fn seal(&mut self, epoch: Epoch, segment: Arc<Segment>, memory_bytes_max: u64) -> Option<Sealed> {
        self.adopt();
        let step = decide(self.facts(&segment, memory_bytes_max));
        if step == Step::Keep {
            return None;
        }
        let sequence = self.take_sequence();
        let capture = match step {
            Step::Keep | Step::Delta => None,
            Step::DeltaThenBase => Some(self.next.insert(Base::requested(sequence))),
            Step::Base => {
                self.deltas.clear();
                self.next = None;
                self.uncovered = false;
                Some(self.base.insert(Base::requested(sequence)))
            }
        };
        let capture = capture.map(|base| Arc::clone(base));
        let mut covers = None;
        if step != Step::Base {
            self.deltas.push(Delta::new(sequence, epoch, Arc::clone(&segment)));
            covers = Some(Covers { first: sequence, last: sequence });
        }
        Some(Sealed { segment, covers, capture })
    }

    /// What a snapshot consists of at this moment.
    pub fn parts(&self) -> (Option<Arc<Base>>, Vec<Arc<Delta>>) {
        (self.base.clone(), self.deltas.clone())
    }

    pub fn deltas(&self) -> usize {
        self.deltas.len()
    }

    /// Goes over to the next base if it has been captured, or must be waited for. Deltas that it contains aren't needed any more.
    fn adopt(&mut self) {
        let must_wait = self.deltas.len() >= DELTAS_MAX * 2;
        if let Some(next) = self.next.take_if(|next| must_wait || next.bytes().is_some()) {
            self.deltas.retain(|delta| delta.sequence > next.last);
            self.base = Some(next);
        }
    }

    fn facts(&self, segment: &Segment, memory_bytes_max: u64) -> Facts {
        Facts {
            wrote: !segment.is_empty(),
            uncovered: self.uncovered,
            next_is_pending: self.next.is_some(),
            deltas: self.deltas.len(),
            deltas_bytes: self.deltas.iter().map(|delta| delta.bytes).sum(),
            unsent_bytes: self.deltas.iter().map(|delta| delta.unsent_bytes()).sum(),
            base_bytes: self.base.as_ref().and_then(|base| base.bytes()).unwrap_or(0),
            memory_bytes_max,
        }
    }

    fn take_sequence(&mut self) -> Sequence {
        let sequence = Sequence(self.next_sequence);
        self.next_sequence += 1;
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Facts = Facts {
        wrote: true,
        uncovered: false,
        next_is_pending: false,
        deltas: 3,
        deltas_bytes: 100,
        unsent_bytes: 50,
        base_bytes: 1000,
        memory_bytes_max: 1 << 20,
    };

    #[test]
    fn a_base_is_asked_for_when_the_deltas_get_long_and_awaited_only_if_it_must_be() {
        assert_eq!(decide(QUIET), Step::Delta);
        assert_eq!(decide(Facts { wrote: false, ..QUIET }), Step::Keep);
        assert_eq!(decide(Facts { deltas: DELTAS_MAX, ..QUIET }), Step::DeltaThenBase);
        assert_eq!(decide(Facts { deltas: DELTAS_MAX, next_is_pending: true, ..QUIET }), Step::Delta);
        assert_eq!(decide(Facts { deltas: DELTAS_MAX, wrote: false, ..QUIET }), Step::Keep);
        assert_eq!(decide(Facts { deltas_bytes: 1 << 19, ..QUIET }), Step::DeltaThenBase);
        assert_eq!(decide(Facts { deltas_bytes: 1 << 19, base_bytes: 1 << 20, ..QUIET }), Step::Delta);
        assert_eq!(decide(Facts { uncovered: true, wrote: false, ..QUIET }), Step::Base);
        assert_eq!(decide(Facts { unsent_bytes: 1 << 20, next_is_pending: true, ..QUIET }), Step::Base);
    }

    #[test]
    fn deltas_that_a_captured_base_contains_are_dropped_and_later_ones_stay() {
        let segment = || {
            let mut staging = crate::state::staging::Staging::default();
            staging.put(&crate::state::entry::KeyRef::new(crate::id::KeyGroup(0), 0, b"k", b"", 1), None);
            staging.accept();
            Arc::new(staging.seal())
        };
        let mut chain = Chain::new(None, false);
        let mut asked = None;
        for epoch in 1..=DELTAS_MAX as u64 + 3 {
            let sealed = chain.seal(Epoch(epoch), segment(), 1 << 20).expect("something new");
            if let Some(base) = sealed.capture {
                assert!(asked.replace((epoch, base)).is_none(), "one base at a time");
            }
        }
        let (epoch, base) = asked.expect("a base was asked for");
        assert_eq!((epoch, chain.deltas()), (DELTAS_MAX as u64 + 1, DELTAS_MAX + 3));
        let dir = tempfile::tempdir().expect("a folder");
        let subtask = crate::id::SubtaskId { operator: crate::id::Name::new("o").expect("a name"), index: 0 };
        let captured = super::super::base::Captured::list(&subtask, dir.path().join(".")).expect("an empty folder");
        base.captured(captured);
        assert!(chain.seal(Epoch(99), Arc::default(), 1 << 20).is_none());
        assert_eq!(chain.deltas(), 2, "those after the base");
        assert!(Arc::ptr_eq(&chain.parts().0.expect("a base"), &base));
    }
}
