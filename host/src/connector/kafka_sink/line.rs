//! By what the records of a sink leave: the transactions that all sinks share, or a producer of its own.
//!
//! Invariant: a subtask has no two epochs open that use the same ledger.

use std::sync::Arc;

use rdkafka::producer::Producer as _;

use super::backlog::NotTaken;
use super::client::Producer;
use super::delivery::{Ledgers, ledger_of};
use super::failure::{self, Age};
use super::pair::Pair;
use crate::connector::ConnectorError;
use crate::connector::kafka::Doing;
use crate::id::{Epoch, Name};
use crate::protocol::transactions::Turn;

/// One of the two.
pub enum Line {
    Transactions(Arc<Pair>),
    Direct(Direct),
}

/// A producer without transactions.
pub struct Direct {
    pub name: Name,
    pub brokers: String,
    pub producer: Producer,
    pub ledgers: Arc<Ledgers>,
}

impl Direct {
    fn doing(&self) -> Doing<'_> {
        let listener = Some(&self.producer.context().listener);
        Doing { name: &self.name, brokers: &self.brokers, action: "write to", what: "", listener }
    }

    fn check(&self) -> Result<(), ConnectorError> {
        match self.ledgers.failure() {
            None => Ok(()),
            Some(undelivered) => {
                Err(failure::not_delivered(self.doing(), undelivered, Age::Young, std::time::Duration::ZERO))
            }
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

    /// All that a subtask was given in a turn is acknowledged.
    pub fn acknowledged(&self, subtask: usize, turn: Turn) {
        match self {
            Line::Transactions(pair) => pair.acknowledged(subtask, turn),
            Line::Direct(_) => {}
        }
    }

    /// Says why a record can't be sent.
    pub fn not_taken(&self, name: &Name, topic: &str, record: &NotTaken, turn: Turn) -> ConnectorError {
        match self {
            Line::Transactions(pair) => pair.not_taken(name, topic, record, turn),
            Line::Direct(direct) => {
                failure::not_taken(direct.doing(), topic, record, Age::Young, std::time::Duration::ZERO)
            }
        }
    }
}
