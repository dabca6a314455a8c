//! What the barriers that come in on the inputs of one task mean for it, in every mode of alignment.
//!
//! - **Aligned**: an input that has delivered a barrier is held until all live ones have.
//! - **Unaligned**: a barrier overtakes what is queued before it. The snapshot is taken at once, and what comes before the barrier
//!   on each input is *captured*: it becomes part of the snapshot, and is processed as ever. With a time to wait, inputs are
//!   aligned first and the barrier overtakes when that time is over. The last barrier of a job never overtakes: behind it nothing
//!   is processed any more.
//! - **At-least-once**: the snapshot is taken when the last input delivers the barrier, and no input is held. What came
//!   behind the barrier on the others is in the snapshot already, and is replayed after a failure. Only the last barrier of a job
//!   holds its input here too: behind it comes nothing but `End`, which after a stop isn't the end of the stream, and which must
//!   not carry the watermark past what that stream still has.
//!
//! Invariant: aligned, what a snapshot holds is exactly what came before the barrier on every input. Overtaken, that and what was
//! captured are together exactly what came before it. At least once, it holds all of that, and perhaps more.

use std::collections::VecDeque;
use std::time::Duration;

use crate::element::{Barrier, Purpose};
use crate::id::Epoch;

/// One of a task's inputs: 0 .. inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Input(pub usize);

/// How a job's barriers are aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    #[default]
    Aligned,
    /// A barrier overtakes when it has waited so long in a task; zero: at once.
    Unaligned {
        after: Duration,
    },
    AtLeastOnce,
}

impl Alignment {
    /// Whether tasks must hear of a barrier while elements are queued before it.
    pub fn overtakes(self) -> bool {
        matches!(self, Alignment::Unaligned { .. })
    }
}

/// What the task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Other live inputs still owe the barrier of this epoch. Those for which [`Aligner::is_held`] says so must wait.
    Waiting(Epoch),
    /// Take the snapshot and pass the barrier on: every live input has delivered it.
    Aligned(Barrier),
    /// Take the snapshot and pass the barrier on, ahead of what is queued; and begin to capture what comes before it on every
    /// input that hasn't delivered it. No input is held.
    Overtaken(Barrier),
    /// All that this overtaken epoch has to capture has come: its snapshot is complete.
    Captured(Epoch),
    /// A newer epoch has begun, so this one will never be complete here; what was captured for it is to be dropped.
    Abandoned(Epoch),
    /// The barrier of an epoch that is aligned, overtaken or abandoned already. To be ignored; its input isn't held.
    Stale(Epoch),
    /// The last input has ended. Nothing comes any more.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    Open,
    /// Has delivered the awaited barrier.
    Held,
    Ended,
}

/// A barrier that some live inputs owe.
#[derive(Clone, Debug)]
struct Awaited {
    barrier: Barrier,
    /// By input: the barrier has come, at least into its queue.
    arrived: Vec<bool>,
    /// By input: the barrier was taken out of its queue.
    delivered: Vec<bool>,
    overtakes_at: Option<Duration>,
}

/// Finds out when a barrier has come on all live inputs. Anything costs at most time in the number of inputs.
#[derive(Clone, Debug)]
pub struct Aligner {
    alignment: Alignment,
    inputs: Vec<InputState>,
    live: usize,
    /// Oldest first. Where inputs are held there is never more than one.
    awaited: VecDeque<Awaited>,
    awaited_max: usize,
    /// An overtaken epoch whose barrier some live inputs still owe.
    capturing: Option<Awaited>,
    /// The newest epoch that was aligned, overtaken or abandoned.
    newest_over: Option<Epoch>,
}

impl Aligner {
    /// `concurrent_max`: how many epochs may be under way at once.
    ///
    /// # Panics
    /// If there are no inputs: a task without inputs is a source and aligns nothing. If several unaligned epochs could be under
    /// way: an epoch that overtakes ends the capture of the one before.
    pub fn new(alignment: Alignment, inputs: usize, concurrent_max: usize) -> Aligner {
        assert!(inputs > 0, "a task that aligns has at least one input");
        assert!(concurrent_max > 0 && (concurrent_max == 1 || !alignment.overtakes()), "one unaligned epoch at a time");
        Aligner {
            alignment,
            inputs: vec![InputState::Open; inputs],
            live: inputs,
            awaited: VecDeque::new(),
            // An input that is held can't bring a newer epoch, so where inputs are held no second one can be awaited.
            awaited_max: if alignment == Alignment::AtLeastOnce { concurrent_max } else { 1 },
            capturing: None,
            newest_over: None,
        }
    }

    /// Whether nothing may be taken from this input for now.
    #[inline]
    pub fn is_held(&self, input: Input) -> bool {
        self.inputs[input.0] == InputState::Held
    }

    /// Whether every input has ended.
    pub fn is_finished(&self) -> bool {
        self.live == 0
    }

    /// When a barrier will overtake unless it is aligned before: [`tick`](Self::tick) is due then.
    pub fn deadline(&self) -> Option<Duration> {
        self.awaited.front().and_then(|awaited| awaited.overtakes_at)
    }

    /// The oldest epoch that isn't complete here, and the inputs that owe its barrier.
    pub fn owing(&self) -> Option<(Epoch, Vec<Input>)> {
        let owed = self.capturing.as_ref().map(|awaited| (awaited, &awaited.arrived));
        let (awaited, came) = owed.or_else(|| self.awaited.front().map(|awaited| (awaited, &awaited.delivered)))?;
        let owes = |&input: &usize| self.inputs[input] != InputState::Ended && !came[input];
        Some((awaited.barrier.epoch, (0..self.inputs.len()).filter(owes).map(Input).collect()))
    }

    /// A barrier has come into the queue of an input. Matters only where barriers overtake.
    ///
    /// # Panics
    /// If inputs disagree about what follows one epoch's barrier.
    pub fn announced(&mut self, input: Input, barrier: Barrier, now: Duration) -> Vec<Verdict> {
        match barrier.purpose {
            // It is aligned, so only its delivery counts.
            Purpose::Last => Vec::new(),
            Purpose::Continue => self.arrive(input, barrier, now, false),
        }
    }

    /// A barrier was taken from an input.
    ///
    /// # Panics
    /// If the input is held or has ended, since then nothing may be taken from it, or if inputs disagree about what
    /// follows one epoch's barrier.
    pub fn barrier(&mut self, input: Input, barrier: Barrier, now: Duration) -> Vec<Verdict> {
        self.check_open(input);
        self.arrive(input, barrier, now, true)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.overtake(&mut verdicts);
        }
        verdicts
    }

    /// An input has ended. It can owe no barrier, so its end may complete epochs.
    ///
    /// # Panics
    /// If the input is held or has ended.
    pub fn end(&mut self, input: Input) -> Vec<Verdict> {
        self.check_open(input);
        self.inputs[input.0] = InputState::Ended;
        self.live -= 1;
        let mut verdicts = Vec::new();
        self.end_capture(&mut verdicts);
        while let Some(place) = self.awaited.iter().position(|awaited| self.is_complete(&awaited.delivered)) {
            self.align(place, &mut verdicts);
        }
        if self.live == 0 {
            verdicts.push(Verdict::Finished);
        }
        verdicts
    }

    fn check_open(&self, input: Input) {
        let state = self.inputs[input.0];
        assert_eq!(state, InputState::Open, "nothing is taken from input {} unless it is open", input.0);
    }

    fn arrive(&mut self, input: Input, barrier: Barrier, now: Duration, delivered: bool) -> Vec<Verdict> {
        let epoch = barrier.epoch;
        let mut verdicts = Vec::new();
        if self.newest_over.is_some_and(|over| epoch <= over) {
            let capturing = self.capturing.as_mut().filter(|capturing| capturing.barrier.epoch == epoch);
            let is_news = capturing.is_some_and(|capturing| !std::mem::replace(&mut capturing.arrived[input.0], true));
            if is_news {
                self.end_capture(&mut verdicts);
            }
            match &self.capturing {
                Some(_) if is_news => verdicts.push(Verdict::Waiting(epoch)),
                None if is_news => {}
                Some(_) | None => verdicts.push(Verdict::Stale(epoch)),
            }
            return verdicts;
        }
        let place = match self.awaited.iter().position(|awaited| awaited.barrier.epoch >= epoch) {
            Some(place) if self.awaited[place].barrier.epoch == epoch => {
                let awaited = self.awaited[place].barrier;
                assert_eq!(barrier, awaited, "the inputs agree about what follows the barrier of epoch {epoch}");
                place
            }
            Some(_) if self.awaited.len() == self.awaited_max => return vec![Verdict::Stale(epoch)],
            Some(place) => self.await_at(place, barrier, now),
            None => {
                if self.awaited.len() == self.awaited_max {
                    self.abandon(&mut verdicts);
                }
                self.await_at(self.awaited.len(), barrier, now)
            }
        };
        let awaited = &mut self.awaited[place];
        awaited.arrived[input.0] = true;
        awaited.delivered[input.0] |= delivered;
        if delivered && (self.alignment != Alignment::AtLeastOnce || barrier.purpose == Purpose::Last) {
            self.inputs[input.0] = InputState::Held;
        }
        self.decide(place, now, &mut verdicts);
        verdicts
    }

    fn await_at(&mut self, place: usize, barrier: Barrier, now: Duration) -> usize {
        let none = vec![false; self.inputs.len()];
        let overtakes_at = match (self.alignment, barrier.purpose) {
            (Alignment::Unaligned { after }, Purpose::Continue) => Some(now + after),
            (Alignment::Unaligned { .. }, Purpose::Last) | (Alignment::Aligned | Alignment::AtLeastOnce, _) => None,
        };
        self.awaited.insert(place, Awaited { barrier, arrived: none.clone(), delivered: none, overtakes_at });
        place
    }

    fn decide(&mut self, place: usize, now: Duration, verdicts: &mut Vec<Verdict>) {
        let awaited = &self.awaited[place];
        if self.is_complete(&awaited.delivered) {
            self.align(place, verdicts);
        } else if awaited.overtakes_at.is_some_and(|at| now >= at) {
            self.overtake(verdicts);
        } else {
            verdicts.push(Verdict::Waiting(awaited.barrier.epoch));
        }
    }

    fn is_complete(&self, came: &[bool]) -> bool {
        self.inputs.iter().zip(came).all(|(state, came)| *came || *state == InputState::Ended)
    }

    /// The awaited epoch at `place` is complete. An older one can't be any more: some input has brought this one without it.
    fn align(&mut self, place: usize, verdicts: &mut Vec<Verdict>) {
        for _ in 0..place {
            self.abandon(verdicts);
        }
        let awaited = self.take_oldest();
        verdicts.push(Verdict::Aligned(awaited.barrier));
    }

    fn abandon(&mut self, verdicts: &mut Vec<Verdict>) {
        let awaited = self.take_oldest();
        verdicts.push(Verdict::Abandoned(awaited.barrier.epoch));
    }

    fn overtake(&mut self, verdicts: &mut Vec<Verdict>) {
        if let Some(capturing) = self.capturing.take() {
            verdicts.push(Verdict::Abandoned(capturing.barrier.epoch));
        }
        let awaited = self.take_oldest();
        let epoch = awaited.barrier.epoch;
        verdicts.push(Verdict::Overtaken(awaited.barrier));
        self.capturing = Some(awaited);
        self.end_capture(verdicts);
        if self.capturing.is_some() {
            verdicts.push(Verdict::Waiting(epoch));
        }
    }

    fn end_capture(&mut self, verdicts: &mut Vec<Verdict>) {
        if let Some(capturing) = &self.capturing
            && self.is_complete(&capturing.arrived)
        {
            verdicts.push(Verdict::Captured(capturing.barrier.epoch));
            self.capturing = None;
        }
    }

    /// The oldest awaited epoch is over, whatever becomes of it; its inputs are released, unless the last barrier holds them.
    fn take_oldest(&mut self) -> Awaited {
        let awaited = self.awaited.pop_front().expect("an epoch is awaited");
        self.newest_over = self.newest_over.max(Some(awaited.barrier.epoch));
        let last = self.awaited.back().filter(|newest| newest.barrier.purpose == Purpose::Last);
        for (input, state) in self.inputs.iter_mut().enumerate() {
            let stays = last.is_some_and(|last| last.delivered[input]);
            if *state == InputState::Held && !stays {
                *state = InputState::Open;
            }
        }
        awaited
    }
}

#[cfg(test)]
mod tests;
