//! The watermark of a task: the smallest of those of its inputs.
//!
//! Invariant: the watermark never goes back. It reaches [`WATERMARK_END`] only when every input has.

use super::aligner::Input;
use crate::element::WATERMARK_END;

/// What an event on an input means for the task and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to tell.
    Unchanged,
    /// The watermark is now this.
    Advanced(i64),
    /// No input says anything for now: pass on that this task is idle.
    Idle,
    /// As before, but first pass on this watermark: one that has ended had come to it, and nothing holds it back any more.
    AdvancedThenIdle(i64),
    /// An input is back after all were idle: pass on that this task is active, then this watermark.
    Active(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// Holds the watermark back.
    Active,
    /// Doesn't, but may come back.
    Idle,
    /// Has promised that nothing comes. Its watermark is the last one before that.
    Ended,
}

/// Combines the watermarks of a task's inputs. An event costs time in the number of inputs.
#[derive(Clone, Debug)]
pub struct Watermarks {
    inputs: Vec<(InputState, i64)>,
    current: i64,
    idle: bool,
}

impl Watermarks {
    /// All inputs are active and have said nothing yet: the watermark is the smallest i64.
    ///
    /// # Panics
    /// If there are no inputs.
    pub fn new(inputs: usize) -> Watermarks {
        assert!(inputs > 0, "a task that combines watermarks has at least one input");
        Watermarks { inputs: vec![(InputState::Active, i64::MIN); inputs], current: i64::MIN, idle: false }
    }

    /// The watermark of the task, in milliseconds since the Unix epoch.
    #[inline]
    pub fn current(&self) -> i64 {
        self.current
    }

    /// An input has sent a watermark; one that is behind its last is ignored. An idle input that sends one is back.
    pub fn advance(&mut self, input: Input, watermark: i64) -> Progress {
        let (state, old) = self.inputs[input.0];
        self.inputs[input.0] = match state {
            InputState::Ended => return Progress::Unchanged,
            InputState::Active | InputState::Idle if watermark == WATERMARK_END => (InputState::Ended, old),
            InputState::Active | InputState::Idle => (InputState::Active, watermark.max(old)),
        };
        self.decide()
    }

    /// An input says nothing for a while.
    pub fn idle(&mut self, input: Input) -> Progress {
        self.change(input, InputState::Idle)
    }

    /// An input is back. The watermark waits for it again, but doesn't go back to it.
    pub fn active(&mut self, input: Input) -> Progress {
        self.change(input, InputState::Active)
    }

    /// An input has ended, which is as good as [`WATERMARK_END`].
    pub fn end(&mut self, input: Input) -> Progress {
        self.advance(input, WATERMARK_END)
    }

    fn change(&mut self, input: Input, to: InputState) -> Progress {
        let (state, _) = &mut self.inputs[input.0];
        match state {
            InputState::Ended => return Progress::Unchanged,
            InputState::Active | InputState::Idle => *state = to,
        }
        self.decide()
    }

    fn decide(&mut self) -> Progress {
        let of = |wanted| self.inputs.iter().filter(move |(state, _)| *state == wanted);
        let smallest = match of(InputState::Active).map(|&(_, watermark)| watermark).min() {
            Some(smallest) => smallest,
            None if of(InputState::Idle).next().is_none() => WATERMARK_END,
            // Those that have ended must not carry the watermark to the end past the idle ones, which may still have records,
            // but to where they had come: as if the others had fallen idle before.
            None => {
                let reached = of(InputState::Ended).map(|&(_, watermark)| watermark).max().unwrap_or(i64::MIN);
                return match (std::mem::replace(&mut self.idle, true), reached > self.current) {
                    (true, _) => Progress::Unchanged,
                    (false, false) => Progress::Idle,
                    (false, true) => {
                        self.current = reached;
                        Progress::AdvancedThenIdle(reached)
                    }
                };
            }
        };
        let advanced = smallest > self.current;
        self.current = self.current.max(smallest);
        match (std::mem::replace(&mut self.idle, false), advanced) {
            (true, _) => Progress::Active(self.current),
            (false, true) => Progress::Advanced(self.current),
            (false, false) => Progress::Unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_active_input_decides() {
        let mut watermarks = Watermarks::new(2);
        assert_eq!(watermarks.advance(Input(0), 10), Progress::Unchanged);
        assert_eq!(watermarks.advance(Input(1), 4), Progress::Advanced(4));
        assert_eq!(watermarks.advance(Input(1), 20), Progress::Advanced(10));
        assert_eq!(watermarks.advance(Input(0), 7), Progress::Unchanged);
        assert_eq!(watermarks.current(), 10);
    }

    #[test]
    fn an_idle_input_holds_nothing_back_and_takes_nothing_back() {
        let mut watermarks = Watermarks::new(2);
        watermarks.advance(Input(0), 5);
        watermarks.advance(Input(1), 20);
        assert_eq!(watermarks.idle(Input(0)), Progress::Advanced(20));
        assert_eq!(watermarks.active(Input(0)), Progress::Unchanged);
        assert_eq!(watermarks.advance(Input(1), 30), Progress::Unchanged);
        assert_eq!(watermarks.advance(Input(0), 25), Progress::Advanced(25));
    }

    #[test]
    fn a_task_is_idle_while_all_its_live_inputs_are() {
        let mut watermarks = Watermarks::new(2);
        assert_eq!(watermarks.idle(Input(0)), Progress::Unchanged);
        assert_eq!(watermarks.idle(Input(1)), Progress::Idle);
        assert_eq!(watermarks.idle(Input(1)), Progress::Unchanged);
        assert_eq!(watermarks.advance(Input(1), 3), Progress::Active(3));
        assert_eq!(watermarks.idle(Input(1)), Progress::Idle);
        assert_eq!(watermarks.active(Input(0)), Progress::Active(3));
    }

    #[test]
    fn the_end_comes_only_when_no_idle_input_may_come_back() {
        let mut watermarks = Watermarks::new(2);
        watermarks.idle(Input(0));
        assert_eq!(watermarks.end(Input(1)), Progress::Idle);
        assert_eq!(watermarks.current(), i64::MIN);
        assert_eq!(watermarks.end(Input(0)), Progress::Active(WATERMARK_END));
        assert_eq!(watermarks.active(Input(0)), Progress::Unchanged);
        assert_eq!(watermarks.idle(Input(0)), Progress::Unchanged);
    }

    #[test]
    fn what_an_input_had_come_to_before_its_end_counts_when_the_others_fall_idle() {
        let mut watermarks = Watermarks::new(3);
        watermarks.advance(Input(0), 100);
        watermarks.advance(Input(1), 70);
        watermarks.advance(Input(2), 50);
        assert_eq!(watermarks.end(Input(0)), Progress::Unchanged);
        assert_eq!(watermarks.idle(Input(2)), Progress::Advanced(70));
        assert_eq!(watermarks.idle(Input(1)), Progress::AdvancedThenIdle(100));
        assert_eq!(watermarks.advance(Input(1), 80), Progress::Active(100));
        assert_eq!(watermarks.idle(Input(1)), Progress::Idle);
    }

    #[test]
    fn the_last_watermark_is_as_good_as_the_end() {
        let mut watermarks = Watermarks::new(2);
        assert_eq!(watermarks.advance(Input(0), WATERMARK_END), Progress::Unchanged);
        assert_eq!(watermarks.advance(Input(1), 8), Progress::Advanced(8));
        assert_eq!(watermarks.end(Input(0)), Progress::Unchanged);
        assert_eq!(watermarks.end(Input(1)), Progress::Advanced(WATERMARK_END));
    }

    /// Every sequence of six events on two inputs, told on to a second task, which must come to the same watermark.
    #[test]
    fn every_sequence_is_monotone_and_can_be_followed_from_what_it_tells() {
        type Change = fn(&mut Watermarks, Input) -> Progress;
        let changes: [Change; 5] =
            [|w, i| w.advance(i, 1), |w, i| w.advance(i, 2), Watermarks::idle, Watermarks::active, Watermarks::end];
        fn follow(first: &Watermarks, second: &Watermarks, changes: &[Change], depth: u32) {
            for (change, input) in changes.iter().flat_map(|change| [(change, Input(0)), (change, Input(1))]) {
                let (mut first, mut second, before) = (first.clone(), second.clone(), first.current());
                match change(&mut first, input) {
                    Progress::Unchanged => assert_eq!(first.current(), before),
                    Progress::Advanced(watermark) => {
                        assert_eq!(second.advance(Input(0), watermark), Progress::Advanced(watermark));
                    }
                    Progress::Idle => assert_eq!(second.idle(Input(0)), Progress::Idle),
                    Progress::AdvancedThenIdle(watermark) => {
                        assert_eq!(second.advance(Input(0), watermark), Progress::Advanced(watermark));
                        assert_eq!(second.idle(Input(0)), Progress::Idle);
                    }
                    Progress::Active(watermark) => {
                        let back = second.active(Input(0));
                        assert!(matches!(back, Progress::Active(_)), "{back:?}");
                        second.advance(Input(0), watermark);
                    }
                }
                assert!(first.current() >= before);
                assert_eq!(second.current(), first.current());
                if depth > 0 {
                    follow(&first, &second, changes, depth - 1);
                }
            }
        }
        follow(&Watermarks::new(2), &Watermarks::new(1), &changes, 5);
    }
}
