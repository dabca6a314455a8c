//! Records that a sink was given and librdkafka hasn't taken yet.
//!
//! Invariant: records are sent in the order in which they were given, each once. None is dropped.

use std::collections::VecDeque;

use rdkafka::error::KafkaError;
use rdkafka::producer::BaseRecord;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::client::Producer;
use super::delivery::{LedgerId, Ledgers};
use super::options::Partition;
use crate::connector::kafka::rdkafka_headers;
use crate::element::{Batch, NO_TIMESTAMP};

/// Where the records of one subtask go.
#[derive(Clone, Debug)]
pub struct Destination {
    pub topic: String,
    pub partition: Partition,
    /// How many partitions the topic has.
    pub partitions: i32,
    /// The one that is next, round-robin.
    pub next: i32,
}

/// How far sending has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    All,
    /// librdkafka's queue is full.
    Full,
}

/// A record that librdkafka refuses to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    pub code: Code,
    /// Of its key and value.
    pub bytes: usize,
}

/// The batches that are left, the first of them from a row on.
#[derive(Debug, Default)]
pub struct Backlog {
    batches: VecDeque<Batch>,
    row: usize,
}

impl Destination {
    /// The partition of the next record, if it isn't for librdkafka to choose.
    fn choose(&mut self) -> Option<i32> {
        match self.partition {
            Partition::Key => None,
            Partition::Number(number) => Some(number),
            Partition::RoundRobin => {
                let chosen = self.next;
                self.next = (chosen + 1) % self.partitions;
                Some(chosen)
            }
        }
    }

    /// Gives librdkafka the rows of a batch from `row` on. Says how far it got: the first row that wasn't taken.
    fn send(&mut self, to: &Producer, ledgers: &Ledgers, ledger: LedgerId, batch: &Batch, row: usize) -> Outcome {
        let rows = batch.rows as usize;
        let mut at = row;
        let mut refused = None;
        while at < rows {
            let before = self.next;
            match to.send(self.record(batch, at, ledger)).map_err(|(error, _)| error) {
                Ok(()) => at += 1,
                Err(error) => {
                    self.next = before;
                    refused = Some(error);
                    break;
                }
            }
        }
        ledgers.sent(ledger, (at - row) as u64);
        let bytes = || batch.key(at).map_or(0, <[u8]>::len) + batch.value(at).map_or(0, <[u8]>::len);
        match refused {
            None => Outcome { at, result: Ok(Sent::All) },
            Some(KafkaError::MessageProduction(Code::QueueFull)) => Outcome { at, result: Ok(Sent::Full) },
            Some(error) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                Outcome { at, result: Err(NotTaken { code, bytes: bytes() }) }
            }
        }
    }

    /// A row as librdkafka takes it. Without an event time it gets the time at which it is sent. Kafka has no time before 1970, and
    /// to librdkafka 0 is none: one that isn't later becomes the millisecond after, however often the record is sent.
    fn record<'a>(
        &'a mut self,
        batch: &'a Batch,
        row: usize,
        ledger: LedgerId,
    ) -> BaseRecord<'a, [u8], [u8], LedgerId> {
        let partition = self.choose();
        BaseRecord {
            topic: &self.topic,
            partition,
            payload: batch.value(row),
            key: batch.key(row),
            timestamp: Some(batch.timestamp(row))
                .filter(|time_ms| *time_ms != NO_TIMESTAMP)
                .map(|time_ms| time_ms.max(1)),
            headers: rdkafka_headers(batch, row),
            delivery_opaque: ledger,
        }
    }
}

struct Outcome {
    at: usize,
    result: Result<Sent, NotTaken>,
}

impl Backlog {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a batch to what is left.
    pub fn push(&mut self, batch: &Batch) {
        if !batch.is_empty() {
            self.batches.push_back(batch.clone());
        }
    }

    /// Sends a batch at once, and keeps what isn't taken. There is nothing left of others.
    ///
    /// # Errors
    /// If a record can't be sent at all.
    pub fn send(
        &mut self,
        to: &Producer,
        ledgers: &Ledgers,
        ledger: LedgerId,
        destination: &mut Destination,
        batch: &Batch,
    ) -> Result<Sent, NotTaken> {
        assert!(self.is_empty(), "what came before is sent before");
        let Outcome { at, result } = destination.send(to, ledgers, ledger, batch, 0);
        if at < batch.rows as usize {
            self.push(batch);
            self.row = at;
        }
        result
    }

    /// Sends what is left.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn drain(
        &mut self,
        to: &Producer,
        ledgers: &Ledgers,
        ledger: LedgerId,
        destination: &mut Destination,
    ) -> Result<Sent, NotTaken> {
        while let Some(batch) = self.batches.front() {
            let Outcome { at, result } = destination.send(to, ledgers, ledger, batch, self.row);
            self.row = at;
            if result? == Sent::Full {
                return Ok(Sent::Full);
            }
            self.batches.pop_front();
            self.row = 0;
        }
        Ok(Sent::All)
    }
}
