//! By what the records of a sink leave: the transactions that all sinks share, or a producer of its own.
//!
//! Invariant: a subtask has no two epochs open that use the same ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::producer::Producer as _;

use super::backlog::NotTaken;
use super::client::Producer;
use super::delivery::{Ledgers, ledger_of};
use super::failure::{self, Age};
use super::pair::Pair;
use super::same_topics::SameTopics;
use super::vigil::Vigil;
use crate::connector::ConnectorError;
use crate::connector::kafka::Doing;
use crate::id::{Epoch, Name};
use crate::protocol::transactions::Turn;

/// One of the two.
pub enum Line {
    Transactions(Arc<Pair>),
    Direct(Box<Direct>),
}

/// A producer without transactions.
pub struct Direct {
    pub name: Name,
    pub brokers: String,
    pub producer: Producer,
    pub ledgers: Arc<Ledgers>,
    /// None where records may be lost.
    pub same_topics: Option<SameTopics>,
}

impl Direct {
    fn doing(&self) -> Doing<'_> {
        let listener = Some(&self.producer.context().listener);
        Doing { name: &self.name, brokers: &self.brokers, action: "write to", what: "", listener }
    }

    fn check(&self) -> Result<(), ConnectorError> {
        match self.ledgers.failure() {
            None => Ok(()),
            Some(undelivered) => Err(failure::not_delivered(self.doing(), undelivered, Age::Young, Duration::ZERO)),
        }
    }
}

impl Line {
    pub fn ledgers(&self) -> &Arc<Ledgers> {
        match self {
            Line::Transactions(pair) => pair.ledgers(),
            Line::Direct(direct) => &direct.ledgers,
        }
    }

    /// # Errors
    /// If a record wasn't delivered, or a transaction is too old.
    pub fn check(&self, name: &Name) -> Result<(), ConnectorError> {
        match self {
            Line::Transactions(pair) => pair.check(name),
            Line::Direct(direct) => direct.check(),
        }
    }

    /// The producer for records of a turn, if they may be sent now. `is_first`: the subtask has sent none of this turn.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn allow(
        &self,
        name: &Name,
        subtask: usize,
        turn: Turn,
        is_first: bool,
    ) -> Result<Option<&Producer>, ConnectorError> {
        match self {
            Line::Transactions(pair) => pair.allow(name, subtask, turn),
            Line::Direct(direct) => {
                direct.check()?;
                let is_free = !is_first || direct.ledgers.is_even(ledger_of(subtask, turn));
                Ok(is_free.then_some(&direct.producer))
            }
        }
    }

    /// Whether [`allow`](Self::allow) would allow it.
    pub fn would_allow(&self, subtask: usize, turn: Turn, is_first: bool) -> bool {
        match self {
            Line::Transactions(pair) => pair.would_allow(subtask, turn),
            Line::Direct(direct) => !is_first || direct.ledgers.is_even(ledger_of(subtask, turn)),
        }
    }

    /// A subtask has come to a barrier.
    pub fn cut(&self, subtask: usize, epoch: Epoch, turn: Turn, owes: bool) {
        match self {
            Line::Transactions(pair) => {
                let over = pair.cut(subtask, epoch, owes);
                assert_eq!(over, turn, "the writer counts as the transactions do");
            }
            Line::Direct(_) => {}
        }
    }

    /// Looks, where the brokers have acknowledged nothing for a while, for what the client doesn't tell by itself: a topic that was
    /// deleted, a transaction that has failed. `has_begun`: the subtask has sent something of this turn.
    ///
    /// # Errors
    /// What it was.
    pub fn look(
        &self,
        name: &Name,
        topic: &str,
        (subtask, turn): (usize, Turn),
        has_begun: bool,
        vigil: &mut Vigil,
    ) -> Result<(), ConnectorError> {
        if !vigil.is_due(self.ledgers().done_count(ledger_of(subtask, turn)), Instant::now()) {
            return Ok(());
        }
        let what = format!("topic '{topic}'");
        let advice = || {
            format!(
                "create it again (kafka-topics.sh --create --topic {topic}), or correct topic of [sink.{name}], and run the job again: it \
                 goes on from its last checkpoint. What was committed to the topic before went with it"
            )
        };
        match self {
            Line::Transactions(pair) => {
                let transaction = turn.transaction();
                let doing = Doing { name, ..pair.doing("write to", &what, transaction) };
                vigil.ask(pair.producer(transaction), &doing, topic, advice)?;
                // One that wasn't begun can't have failed, and would be begun by the question.
                if has_begun { pair.look(transaction) } else { Ok(()) }
            }
            Line::Direct(direct) => {
                let doing = Doing { what: &what, ..direct.doing() };
                vigil.ask(&direct.producer, &doing, topic, advice)
            }
        }
    }

    /// All that a subtask was given in a turn is acknowledged.
    ///
    /// # Errors
    /// If it went to another topic than what was sent before, or those of `go_on`. Of transactions whoever commits them sees to it.
    pub fn acknowledged(
        &self,
        subtask: usize,
        turn: Turn,
        go_on: impl Fn() -> Result<(), ConnectorError>,
    ) -> Result<(), ConnectorError> {
        match self {
            Line::Transactions(pair) => {
                pair.acknowledged(subtask, turn);
                Ok(())
            }
            Line::Direct(direct) => direct.same_topics.as_ref().map_or(Ok(()), |same_topics| same_topics.check(go_on)),
        }
    }

    /// Says why a record can't be sent.
    pub fn not_taken(&self, name: &Name, topic: &str, record: &NotTaken, turn: Turn) -> ConnectorError {
        match self {
            Line::Transactions(pair) => pair.not_taken(name, topic, record, turn),
            Line::Direct(direct) => failure::not_taken(direct.doing(), topic, record, Age::Young, Duration::ZERO),
        }
    }
}
