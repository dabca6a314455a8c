//! What to tell a user when output could not be written or committed.
//!
//! A producer is shut out (*fenced*) by the brokers when its transaction has taken too long, and when another process has taken
//! over its transactional id. The two look the same to it; the host's own clock tells them apart.
//!
//! Invariant: an outcome that isn't certain is told as such, and never as done or undone.

use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaError};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::backlog::NotTaken;
use super::delivery::Undelivered;
use crate::connector::ConnectorError;
use crate::connector::kafka::Doing;
use crate::id::Name;
use crate::protocol::transactions::Overdue;
use crate::units::duration;

/// What was found out of the transaction in which something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// There is no transaction, or it is young: whoever is fenced was fenced by another process.
    Young,
    /// The brokers may have aborted it.
    Overdue(Overdue),
}

impl From<Option<Overdue>> for Age {
    fn from(overdue: Option<Overdue>) -> Age {
        overdue.map_or(Age::Young, Age::Overdue)
    }
}

/// Whether a code says that the producer was shut out.
pub fn is_fenced(code: Code) -> bool {
    matches!(code, Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch)
}

/// A record that the brokers didn't take, or that wasn't acknowledged in time.
pub fn not_delivered(doing: Doing<'_>, undelivered: &Undelivered, age: Age, timeout: Duration) -> ConnectorError {
    let Undelivered { code, topic, partition, bytes, .. } = undelivered;
    let what = format!("topic '{topic}'");
    let doing = Doing { action: "write to", what: &what, ..doing };
    match code {
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => too_large(&doing, topic, *bytes),
        Code::InvalidTimestamp => doing.because(
            format!("a record for partition {partition} has an event time that the topic refuses"),
            format!(
                "correct the event times, or raise message.timestamp.after.max.ms and message.timestamp.before.max.ms of topic '{topic}'"
            ),
            false,
        ),
        code if is_fenced(*code) => fenced(&doing, age, timeout),
        code => doing.failed_with(*code, None),
    }
}

/// A record that librdkafka doesn't take.
pub fn not_taken(doing: Doing<'_>, topic: &str, not_taken: &NotTaken, age: Age, timeout: Duration) -> ConnectorError {
    let undelivered =
        Undelivered { ledger: 0, code: not_taken.code, topic: topic.to_owned(), partition: -1, bytes: not_taken.bytes };
    not_delivered(doing, &undelivered, age, timeout)
}

fn too_large(doing: &Doing<'_>, topic: &str, bytes: usize) -> ConnectorError {
    doing.because(
        format!("a record of {bytes} bytes is larger than is allowed there"),
        format!(
            "raise max.message.bytes of topic '{topic}' and \"message.max.bytes\" in properties of '{}' (1000000 by default), or make \
             its records smaller",
            doing.name
        ),
        false,
    )
}

/// A call of the transactional API that failed for good.
pub fn transaction(doing: Doing<'_>, error: &KafkaError, age: Age, timeout: Duration) -> ConnectorError {
    let code = error.rdkafka_error_code();
    match code {
        Some(code) if is_fenced(code) => fenced(&doing, age, timeout),
        Some(Code::InvalidTransactionTimeout) => doing.unfit(
            format!("transaction_timeout = {} is longer than the brokers allow", duration::format(timeout)),
            "lower transaction_timeout, or raise transaction.max.timeout.ms of the brokers (15 minutes by default)"
                .to_owned(),
        ),
        // The broker has aborted it by itself; the next operation finds another state than it expects.
        Some(Code::InvalidTransactionalState | Code::InvalidProducerIdMapping | Code::UnknownProducerId) => match age {
            Age::Overdue(overdue) => too_long(doing.name, overdue, timeout),
            Age::Young => again(&doing, error),
        },
        Some(_) | None => doing.failed(error),
    }
}

/// A failure that another attempt gets past: it begins with new producers.
fn again(doing: &Doing<'_>, error: &KafkaError) -> ConnectorError {
    doing.because(
        error.to_string(),
        "run the job again: it continues from its last checkpoint and nothing is lost".to_owned(),
        true,
    )
}

fn fenced(doing: &Doing<'_>, age: Age, timeout: Duration) -> ConnectorError {
    match age {
        Age::Overdue(overdue) => too_long(doing.name, overdue, timeout),
        Age::Young => doing.because(
            "another process has taken over its transactional id".to_owned(),
            "see that this job runs once only, and that no other program uses its transactional ids; 'lockgate txn abort' takes them \
             over, too"
                .to_owned(),
            false,
        ),
    }
}

/// An epoch that took longer than its transaction may.
pub fn too_long(name: &Name, overdue: Overdue, timeout: Duration) -> ConnectorError {
    let age = duration::format(Duration::from_secs(overdue.age.as_secs()));
    let timeout = duration::format(timeout);
    ConnectorError::Kafka {
        name: name.clone(),
        problem: format!(
            "transaction {} is open for {age}, and the brokers abort it after {timeout} (transaction_timeout): its checkpoint took too \
             long",
            overdue.transaction
        ),
        advice: format!(
            "raise transaction_timeout of '{name}', or take checkpoints that are done sooner (checkpoint.interval, \
             checkpoint.alignment); nothing is lost, the epoch is done again"
        ),
        may_pass: true,
    }
}

/// What an epoch ends by that wasn't done when its attempt was over.
pub fn over(name: &Name) -> ConnectorError {
    ConnectorError::Kafka {
        name: name.clone(),
        problem: "the attempt is over, and not all of its records are acknowledged".to_owned(),
        advice: "see why it is over; nothing is lost".to_owned(),
        may_pass: true,
    }
}

/// A commit of which it isn't known whether it took place.
pub fn unknown_outcome(doing: &Doing<'_>, waited: Duration, why: &str) -> ConnectorError {
    let waited = duration::format(waited);
    doing.silent(
        format!("whether it took place isn't known after {waited} ({why})"),
        "run the job again: it asks the marker, and nothing is lost or doubled".to_owned(),
    )
}

/// Whether calling again is what the error asks for.
pub fn is_retriable(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_retriable() && !requires_abort(error) && !error.is_fatal(),
        KafkaError::Flush(_) => true,
        _ => false,
    }
}

fn requires_abort(error: &RDKafkaError) -> bool {
    error.txn_requires_abort()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::said;
    use crate::protocol::transactions::Transaction;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn undelivered(code: Code) -> Undelivered {
        Undelivered { ledger: 0, code, topic: "out".to_owned(), partition: 2, bytes: 2_000_000 }
    }

    fn told(code: Code, age: Age) -> (String, bool) {
        let name = Name::new("sink").expect("a name");
        let doing = Doing { name: &name, brokers: "localhost:9092", action: "write to", what: "", listener: None };
        let error = not_delivered(doing, &undelivered(code), age, TIMEOUT);
        let may_pass = match error {
            ConnectorError::Kafka { may_pass, .. } => may_pass,
            ConnectorError::Silent { .. } => true,
            ConnectorError::Unfit { .. } => false,
            _ => panic!("{error}"),
        };
        (said(&error), may_pass)
    }

    fn overdue() -> Age {
        Age::Overdue(Overdue { transaction: Transaction::B, age: Duration::from_millis(57_300) })
    }

    #[test]
    fn a_record_that_is_too_large_is_told_with_its_size_and_both_settings() {
        let (text, may_pass) = told(Code::MessageSizeTooLarge, Age::Young);
        for part in ["'out'", "2000000 bytes", "max.message.bytes", "message.max.bytes"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!may_pass);
    }

    #[test]
    fn being_fenced_is_another_process_unless_the_transaction_is_too_old() {
        for code in [Code::Fenced, Code::ProducerFenced, Code::InvalidProducerEpoch] {
            let (text, may_pass) = told(code, Age::Young);
            assert!(text.contains("another process") && !may_pass, "{text}");
            let (text, may_pass) = told(code, overdue());
            assert!(text.contains("transaction_timeout") && text.contains("57s") && may_pass, "{text}");
        }
    }

    #[test]
    fn what_may_pass_is_told_as_such() {
        assert!(told(Code::MessageTimedOut, Age::Young).1);
        assert!(told(Code::NotEnoughReplicas, Age::Young).1);
        let (text, may_pass) = told(Code::UnknownTopicOrPartition, Age::Young);
        assert!(text.contains("'out'") && !may_pass, "{text}");
        let (text, may_pass) = told(Code::InvalidTimestamp, Age::Young);
        assert!(text.contains("message.timestamp.after.max.ms") && !may_pass, "{text}");
    }
}
