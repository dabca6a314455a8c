//! One split: the queue of its partition, made into batches.
//!
//! Invariant: a record is in the batch exactly if the position has passed it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::Message;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _};

use super::client::Consumer;
use super::position::Partition;
use super::progress::{Progress, Record};
use super::scout::Found;
use crate::connector::kafka::{Listener, push_rdkafka_headers};
use crate::element::{Batch, NO_TIMESTAMP, Row};
use crate::id::SplitId;

/// Rows of a batch at most.
const BATCH_ROWS: u32 = 4096;
/// A batch ends with the record that brings it to this size.
const BATCH_BYTES: usize = 256 << 10;

pub struct Split {
    pub id: SplitId,
    pub partition: Partition,
    pub progress: Progress,
    queue: Option<PartitionQueue<Listener>>,
    /// What was found behind the last batch.
    failed: Option<SplitFailure>,
    /// The size of the last batch, as a guess at the next one.
    last_rows: usize,
    last_bytes: usize,
    /// In the client's queue when it last said so.
    pub queued_records: u64,
    pub queued_bytes: u64,
}

/// What was read at once.
pub struct Read {
    pub first_offset: u64,
    /// May be empty.
    pub batch: Batch,
    /// The partition had nothing more.
    pub rests: bool,
}

#[derive(Debug)]
pub enum SplitFailure {
    Kafka(KafkaError),
    /// The header of a record isn't text, which the client can't give.
    Header {
        offset: u64,
    },
}

impl Split {
    pub fn new(partition: Partition, found: Found) -> Split {
        Split {
            id: SplitId::new(&partition.to_string()),
            partition,
            progress: Progress::new(found.position, found.high),
            queue: None,
            failed: None,
            last_rows: 0,
            last_bytes: 0,
            queued_records: 0,
            queued_bytes: 0,
        }
    }

    /// Takes the partition's queue of a consumer that isn't assigned yet. What a queue before it held is read again.
    ///
    /// # Panics
    /// If the partition's name can't be one.
    pub fn attach(&mut self, consumer: &Arc<Consumer>) {
        let queue = consumer.split_partition_queue(&self.partition.topic, self.partition.index);
        self.queue = Some(queue.expect("a topic's name without a byte 0"));
        self.failed = None;
    }

    /// Gives back the queue, and with it its hold of the consumer.
    pub fn detach(&mut self) -> Option<PartitionQueue<Listener>> {
        (self.queued_records, self.queued_bytes) = (0, 0);
        self.queue.take()
    }

    /// Takes what there is, up to the size of a batch. Doesn't wait.
    ///
    /// # Errors
    /// Whatever comes behind the batch that was given before.
    pub fn read(&mut self) -> Result<Read, SplitFailure> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let mut filling = Filling::new(self.last_rows, self.last_bytes);
        let mut rests = false;
        let queue = self.queue.as_ref().expect("a split is read that was attached");
        while !filling.is_full() && !self.progress.has_ended() {
            match queue.poll(Duration::ZERO) {
                None => break,
                Some(Ok(message)) => {
                    let offset = message.offset() as u64;
                    let mut progress = self.progress.clone();
                    match progress.record(offset) {
                        Record::Given if filling.push(&message).is_err() => {
                            self.failed = Some(SplitFailure::Header { offset });
                            break;
                        }
                        Record::Given => filling.first_offset = filling.first_offset.or(Some(offset)),
                        Record::Known | Record::Behind => {}
                    }
                    self.progress = progress;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    self.progress.reached_end();
                    rests = true;
                    break;
                }
                Some(Err(error)) => {
                    self.failed = Some(SplitFailure::Kafka(error));
                    break;
                }
            }
        }
        match self.failed.take() {
            Some(failed) if filling.is_empty() => return Err(failed),
            failed => self.failed = failed,
        }
        let first_offset = filling.first_offset.unwrap_or(self.progress.position().next);
        let batch = filling.finish();
        if !batch.is_empty() {
            (self.last_rows, self.last_bytes) = (batch.rows as usize, batch.bytes());
        }
        Ok(Read { first_offset, batch, rests })
    }
}

/// A batch that is being filled.
struct Filling {
    batch: Batch,
    first_offset: Option<u64>,
}

/// The client panics at a header whose name isn't UTF-8.
struct BadHeader;

impl Filling {
    fn new(rows: usize, bytes: usize) -> Filling {
        Filling { batch: Batch::with_capacity(rows, bytes), first_offset: None }
    }

    fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    fn is_full(&self) -> bool {
        let bytes = self.batch.keys.data.len() + self.batch.values.data.len() + self.batch.headers.data.len();
        self.batch.rows >= BATCH_ROWS || bytes >= BATCH_BYTES
    }

    fn push(&mut self, message: &BorrowedMessage<'_>) -> Result<(), BadHeader> {
        if let Some(headers) = message.headers() {
            // Before the record is in the batch.
            catch_unwind(AssertUnwindSafe(|| headers.iter().for_each(drop))).map_err(|_| BadHeader)?;
        }
        let timestamp = message.timestamp().to_millis().unwrap_or(NO_TIMESTAMP);
        self.batch.push(Row { key: message.key(), value: message.payload(), timestamp });
        push_rdkafka_headers(&mut self.batch, message.headers());
        Ok(())
    }

    fn finish(self) -> Batch {
        self.batch
    }
}
