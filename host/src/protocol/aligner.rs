//! Aligned barriers over the inputs of one task.
//!
//! Invariant: between an epoch's first barrier and [`Alignment::Aligned`] no element is taken from an input that has
//! delivered that barrier. So what a snapshot holds is exactly what came before the barrier on every input.

use crate::element::Barrier;
use crate::id::Epoch;

/// One of a task's inputs: 0 .. inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Input(pub usize);

/// What an event on an input means for the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Other live inputs still owe the barrier of this epoch. Those for which [`Aligner::is_held`] says so must wait.
    Waiting(Epoch),
    /// Every live input has delivered this barrier: take the snapshot and pass the barrier on. No input is held any more.
    Aligned(Barrier),
    /// A newer epoch has begun, so `abandoned` will never be complete here: its inputs are released, and `waiting_for` is
    /// the epoch that is now awaited.
    Superseded { abandoned: Epoch, waiting_for: Epoch },
    /// The barrier of an epoch that is aligned or abandoned already. To be ignored; its input isn't held.
    Stale(Epoch),
    /// The input has ended and no barrier is awaited; other inputs live on.
    Ended,
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

/// Finds out when a barrier has arrived on all live inputs. A barrier costs constant time, an alignment time in the number
/// of inputs.
#[derive(Clone, Debug)]
pub struct Aligner {
    inputs: Vec<InputState>,
    live: usize,
    held: usize,
    /// The barrier that some live inputs have delivered and others owe.
    awaited: Option<Barrier>,
    /// The newest epoch that was aligned or abandoned.
    newest_over: Option<Epoch>,
}

impl Aligner {
    /// # Panics
    /// If there are no inputs: a task without inputs is a source and aligns nothing.
    pub fn new(inputs: usize) -> Aligner {
        assert!(inputs > 0, "a task that aligns has at least one input");
        Aligner { inputs: vec![InputState::Open; inputs], live: inputs, held: 0, awaited: None, newest_over: None }
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

    /// A barrier has arrived on an input.
    ///
    /// # Panics
    /// If the input is held or has ended, since then nothing may be taken from it, or if inputs disagree about what
    /// follows one epoch's barrier.
    pub fn barrier(&mut self, input: Input, barrier: Barrier) -> Alignment {
        self.check_open(input);
        if self.newest_over.is_some_and(|over| barrier.epoch <= over) {
            return Alignment::Stale(barrier.epoch);
        }
        let Some(awaited) = self.awaited else {
            self.awaited = Some(barrier);
            return self.hold(input, barrier);
        };
        if barrier.epoch < awaited.epoch {
            return Alignment::Stale(barrier.epoch);
        }
        if barrier.epoch == awaited.epoch {
            assert_eq!(barrier, awaited, "the inputs agree about what follows the barrier of epoch {}", barrier.epoch);
            return self.hold(input, barrier);
        }
        self.release();
        self.newest_over = Some(awaited.epoch);
        self.awaited = Some(barrier);
        // It can't be aligned by this one barrier: the inputs that were held until now are live and owe it.
        let waiting = self.hold(input, barrier);
        assert_eq!(waiting, Alignment::Waiting(barrier.epoch), "a released input owes the newer barrier");
        Alignment::Superseded { abandoned: awaited.epoch, waiting_for: barrier.epoch }
    }

    /// An input has ended. It can owe no barrier, so its end may complete an alignment.
    ///
    /// # Panics
    /// If the input is held or has ended.
    pub fn end(&mut self, input: Input) -> Alignment {
        self.check_open(input);
        self.inputs[input.0] = InputState::Ended;
        self.live -= 1;
        match self.awaited {
            Some(barrier) => self.decide(barrier),
            None if self.live == 0 => Alignment::Finished,
            None => Alignment::Ended,
        }
    }

    fn check_open(&self, input: Input) {
        let state = self.inputs[input.0];
        assert_eq!(state, InputState::Open, "nothing is taken from input {} unless it is open", input.0);
    }

    fn hold(&mut self, input: Input, barrier: Barrier) -> Alignment {
        self.inputs[input.0] = InputState::Held;
        self.held += 1;
        self.decide(barrier)
    }

    fn decide(&mut self, barrier: Barrier) -> Alignment {
        if self.held < self.live {
            return Alignment::Waiting(barrier.epoch);
        }
        self.release();
        self.awaited = None;
        self.newest_over = Some(barrier.epoch);
        Alignment::Aligned(barrier)
    }

    fn release(&mut self) {
        for state in &mut self.inputs {
            if *state == InputState::Held {
                *state = InputState::Open;
            }
        }
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Purpose;

    fn barrier(epoch: u64) -> Barrier {
        Barrier { epoch: Epoch(epoch), purpose: Purpose::Continue }
    }

    #[test]
    fn an_input_is_held_from_its_barrier_until_all_have_delivered_it() {
        let mut aligner = Aligner::new(2);
        assert_eq!(aligner.barrier(Input(1), barrier(4)), Alignment::Waiting(Epoch(4)));
        assert!(aligner.is_held(Input(1)) && !aligner.is_held(Input(0)));
        assert_eq!(aligner.barrier(Input(0), barrier(4)), Alignment::Aligned(barrier(4)));
        assert!(!aligner.is_held(Input(1)) && !aligner.is_held(Input(0)));
    }

    #[test]
    fn the_end_of_an_input_completes_what_only_it_owed() {
        let mut aligner = Aligner::new(3);
        assert_eq!(aligner.end(Input(0)), Alignment::Ended);
        assert_eq!(aligner.barrier(Input(1), barrier(1)), Alignment::Waiting(Epoch(1)));
        assert_eq!(aligner.end(Input(2)), Alignment::Aligned(barrier(1)));
        assert_eq!(aligner.barrier(Input(1), barrier(2)), Alignment::Aligned(barrier(2)));
        assert_eq!(aligner.end(Input(1)), Alignment::Finished);
        assert!(aligner.is_finished());
    }

    #[test]
    fn a_newer_epoch_supersedes_an_unfinished_one_whose_late_barriers_are_stale() {
        let mut aligner = Aligner::new(3);
        assert_eq!(aligner.barrier(Input(0), barrier(1)), Alignment::Waiting(Epoch(1)));
        let superseded = Alignment::Superseded { abandoned: Epoch(1), waiting_for: Epoch(3) };
        assert_eq!(aligner.barrier(Input(1), barrier(3)), superseded);
        assert!(!aligner.is_held(Input(0)) && aligner.is_held(Input(1)));
        assert_eq!(aligner.barrier(Input(2), barrier(1)), Alignment::Stale(Epoch(1)));
        assert_eq!(aligner.barrier(Input(2), barrier(2)), Alignment::Stale(Epoch(2)));
        assert_eq!(aligner.barrier(Input(2), barrier(3)), Alignment::Waiting(Epoch(3)));
        assert_eq!(aligner.barrier(Input(0), barrier(3)), Alignment::Aligned(barrier(3)));
        assert_eq!(aligner.barrier(Input(0), barrier(3)), Alignment::Stale(Epoch(3)));
    }

    #[test]
    #[should_panic(expected = "nothing is taken from input 0")]
    fn taking_from_a_held_input_is_a_bug() {
        let mut aligner = Aligner::new(2);
        aligner.barrier(Input(0), barrier(1));
        aligner.end(Input(0));
    }

    /// What an input brings, in order: the barriers of some epochs, then its end.
    type Script = Vec<Option<u64>>;

    /// Runs every interleaving of the scripts, and at each step compares with what the definition says.
    fn explore(aligner: &Aligner, scripts: &[Script], taken: &[usize], paths: &mut u64) {
        let ready = |i: usize| taken[i] < scripts[i].len() && !aligner.is_held(Input(i));
        let mut stuck = true;
        for i in (0..scripts.len()).filter(|&i| ready(i)) {
            stuck = false;
            let (mut aligner, mut taken) = (aligner.clone(), taken.to_vec());
            let before = aligner.newest_over;
            let alignment = match scripts[i][taken[i]] {
                Some(epoch) => aligner.barrier(Input(i), barrier(epoch)),
                None => aligner.end(Input(i)),
            };
            taken[i] += 1;
            check(&aligner, alignment, before, scripts, &taken);
            explore(&aligner, scripts, &taken, paths);
        }
        if stuck {
            *paths += 1;
            assert!((0..scripts.len()).all(|i| taken[i] == scripts[i].len()), "held for ever: {scripts:?} {taken:?}");
        }
    }

    fn check(aligner: &Aligner, alignment: Alignment, before: Option<Epoch>, scripts: &[Script], taken: &[usize]) {
        let delivered = |i: usize, epoch: Epoch| scripts[i][..taken[i]].contains(&Some(epoch.0));
        let ended = |i: usize| scripts[i][..taken[i]].contains(&None);
        let inputs = 0..scripts.len();
        let context = format!("{alignment:?} {scripts:?} {taken:?}");
        let held = inputs.clone().filter(|&i| aligner.is_held(Input(i))).collect::<Vec<_>>();
        match alignment {
            Alignment::Aligned(barrier) => {
                assert!(inputs.clone().all(|i| ended(i) || delivered(i, barrier.epoch)), "{context}");
                assert!(held.is_empty() && before < Some(barrier.epoch), "{context}");
            }
            Alignment::Waiting(epoch) | Alignment::Superseded { waiting_for: epoch, .. } => {
                let owing = |&i: &usize| !ended(i) && !delivered(i, epoch);
                assert!(inputs.clone().any(|i| owing(&i)), "{context}");
                let live_delivered = inputs.filter(|&i| !ended(i) && delivered(i, epoch)).collect::<Vec<_>>();
                assert_eq!(held, live_delivered, "{context}");
            }
            Alignment::Stale(epoch) => {
                let newer = aligner.awaited.is_some_and(|awaited| awaited.epoch > epoch);
                assert!(newer || before >= Some(epoch), "{context}");
            }
            Alignment::Ended => assert!(held.is_empty() && !inputs.clone().all(ended), "{context}"),
            Alignment::Finished => assert!(inputs.clone().all(ended), "{context}"),
        }
    }

    #[test]
    fn every_interleaving_of_barriers_and_ends_is_aligned_soundly() {
        // An input may miss an epoch (its source began late) and may end at any point.
        let mut scripts: Vec<Script> = Vec::new();
        for epochs in [&[][..], &[1], &[2], &[1, 2], &[1, 2, 3]] {
            scripts.push(epochs.iter().copied().map(Some).chain([None]).collect());
        }
        let mut paths = 0;
        for a in &scripts {
            for b in &scripts {
                let two = [a.clone(), b.clone()];
                explore(&Aligner::new(2), &two, &[0; 2], &mut paths);
                for c in &scripts {
                    let three = [a.clone(), b.clone(), c.clone()];
                    explore(&Aligner::new(3), &three, &[0; 3], &mut paths);
                }
            }
        }
        assert!(paths > 5_000, "{paths} interleavings");
    }
}
