//! How far a subtask has sent its turns, one after the other, each by work of its own.
//!
//! Invariant: who waits for a turn before its own is let on when that is sent, or told that it never will be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::connector::ConnectorError;
use crate::id::Name;
use crate::protocol::transactions::Turn;

/// Of one subtask.
#[derive(Debug, Default)]
pub struct SentTurns {
    count: AtomicU64,
    /// Why one of them never will be.
    given_up: OnceLock<GivenUp>,
}

#[derive(Debug)]
struct GivenUp {
    problem: String,
    advice: String,
    may_pass: bool,
}

impl SentTurns {
    /// Whether all before a turn are sent.
    pub fn is_next(&self, turn: Turn) -> bool {
        self.count.load(Ordering::Acquire) >= turn.0
    }

    /// A turn is sent, if not acknowledged, and so are all before it.
    pub fn sent(&self, turn: Turn) {
        self.count.fetch_max(turn.0 + 1, Ordering::AcqRel);
    }

    /// # Errors
    /// If a turn was given up: as what it failed by.
    pub fn check(&self, name: &Name) -> Result<(), ConnectorError> {
        let Some(GivenUp { problem, advice, may_pass }) = self.given_up.get() else { return Ok(()) };
        let (name, problem, advice) = (name.clone(), problem.clone(), advice.clone());
        Err(ConnectorError::Kafka { name, problem, advice, may_pass: *may_pass })
    }

    fn give_up(&self, why: GivenUp) {
        // The first is the cause of all others.
        let _ = self.given_up.set(why);
    }
}

/// The duty to send a turn, which whoever prepares the epoch has.
pub struct Owed {
    turns: Arc<SentTurns>,
    turn: Turn,
}

impl Owed {
    pub fn new(turns: &Arc<SentTurns>, turn: Turn) -> Owed {
        Owed { turns: Arc::clone(turns), turn }
    }

    /// Does the work that sends it.
    ///
    /// # Errors
    /// Those of the work, which others that wait for it then have, too.
    pub fn done_by(self, work: impl FnOnce() -> Result<(), ConnectorError>) -> Result<(), ConnectorError> {
        let outcome = work();
        if let Err(error) = &outcome {
            self.turns.give_up(match error {
                ConnectorError::Kafka { problem, advice, may_pass, .. } => {
                    GivenUp { problem: problem.clone(), advice: advice.clone(), may_pass: *may_pass }
                }
                ConnectorError::Silent { problem, advice, .. } => {
                    GivenUp { problem: problem.clone(), advice: advice.clone(), may_pass: true }
                }
                ConnectorError::Unfit { problem, advice, .. } => {
                    GivenUp { problem: problem.clone(), advice: advice.clone(), may_pass: false }
                }
                other => GivenUp { problem: other.to_string(), advice: other.help(), may_pass: false },
            });
        }
        outcome
    }
}

impl Drop for Owed {
    /// Nobody else sends it.
    fn drop(&mut self) {
        if !self.turns.is_next(self.turn.next()) {
            self.turns.give_up(GivenUp {
                problem: "an epoch before this one was given up, and not all of its records are sent".to_owned(),
                advice: "see why it was given up; nothing is lost".to_owned(),
                may_pass: true,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new("out").expect("a name")
    }

    #[test]
    fn a_turn_is_next_when_those_before_it_are_sent() {
        let turns = Arc::new(SentTurns::default());
        assert!(turns.is_next(Turn(0)) && !turns.is_next(Turn(1)));
        let sends = || {
            turns.sent(Turn(0));
            Ok(())
        };
        Owed::new(&turns, Turn(0)).done_by(sends).expect("sent");
        assert!(turns.is_next(Turn(1)) && !turns.is_next(Turn(2)));
        turns.check(&name()).expect("nothing was given up");
    }

    #[test]
    fn those_behind_a_turn_that_fails_fail_as_it_does() {
        let turns = Arc::new(SentTurns::default());
        let (problem, advice) = ("the record is too large".to_owned(), "make it smaller".to_owned());
        let failed = ConnectorError::Kafka { name: name(), problem, advice, may_pass: false };
        let said = failed.to_string();
        Owed::new(&turns, Turn(0)).done_by(|| Err(failed)).expect_err("it failed");
        let told = turns.check(&name()).expect_err("given up");
        assert!(matches!(&told, ConnectorError::Kafka { may_pass: false, .. }) && told.to_string() == said, "{told}");
    }

    #[test]
    fn a_turn_that_nobody_sends_any_more_is_given_up() {
        let turns = Arc::new(SentTurns::default());
        drop(Owed::new(&turns, Turn(0)));
        let told = turns.check(&name()).expect_err("given up");
        assert!(matches!(told, ConnectorError::Kafka { may_pass: true, .. }), "{told}");
    }
}
