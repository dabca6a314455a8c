//! Reads the newest marker.
//!
//! Invariant: what is asked after all other writers are shut out is the newest marker that is committed, or an error. It was read
//! up to an end that was taken after that, past everything that was open.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::marker;
use super::marker_topic::PARTITION;
use crate::connector::ConnectorError;
use crate::connector::kafka::{Client, Cluster, Doing, ELECTION_MAX, Listener, is_silence, offline, through_elections};
use crate::id::{Epoch, Name};
use crate::protocol::decision::Marker;

/// For one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// For so long transactions of others may keep the end of the topic from being read.
const STABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// For reading the topic.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The newest marker is nearly always among so many records at the end.
const TAIL_RECORDS: i64 = 1_000;
/// What may be fetched ahead, in KiB: markers are small.
const FETCH_KIB: &str = "1024";

/// Reads the markers of one job.
pub struct MarkerReader {
    name: Name,
    job: Name,
    brokers: String,
    topic: String,
    key: String,
    /// Sees what is committed.
    committed: BaseConsumer<Listener>,
    /// Sees how much there is.
    all: BaseConsumer<Listener>,
}

fn config(cluster: &Cluster, name: &Name, job: &Name, isolation: &str) -> Result<ClientConfig, ConnectorError> {
    let group = format!("lockgate-{job}");
    let own = [
        // librdkafka lets nobody without a group read; it is never joined.
        ("group.id", group.as_str()),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("enable.partition.eof", "true"),
        ("isolation.level", isolation),
        ("queued.max.messages.kbytes", FETCH_KIB),
        ("fetch.message.max.bytes", "262144"),
    ];
    cluster.config(name, Client::Consumer, &own)
}

fn consumer(config: &ClientConfig, name: &Name) -> Result<BaseConsumer<Listener>, ConnectorError> {
    config.create_with_context(Listener::new(name)).map_err(|error| ConnectorError::Refused {
        name: name.clone(),
        problem: format!("cannot make a consumer: {error}"),
        advice: format!("correct properties of '{name}' in the job file"),
    })
}

impl MarkerReader {
    /// # Errors
    /// If the settings can't be used.
    pub fn open(cluster: &Cluster, name: &Name, job: &Name, topic: &str) -> Result<MarkerReader, ConnectorError> {
        let open = |isolation| consumer(&config(cluster, name, job, isolation)?, name);
        Ok(MarkerReader {
            name: name.clone(),
            job: job.clone(),
            brokers: cluster.brokers.clone(),
            topic: topic.to_owned(),
            key: marker::key(job),
            committed: open("read_committed")?,
            all: open("read_uncommitted")?,
        })
    }

    /// Finds out whether the settings can be used, without the network.
    ///
    /// # Errors
    /// If they can't.
    pub fn preview(cluster: &Cluster, name: &Name, job: &Name) -> Result<(), ConnectorError> {
        consumer(&offline(config(cluster, name, job, "read_committed")?), name).map(drop)
    }

    fn failing<T>(&self, action: &str, say: impl FnOnce(&Doing<'_>) -> T) -> T {
        let what = format!("marker topic '{}'", self.topic);
        let listener = Some(&**self.committed.context());
        say(&Doing { name: &self.name, brokers: &self.brokers, action, what: &what, listener })
    }

    fn failed(&self, error: &KafkaError) -> ConnectorError {
        self.failing("read", |doing| doing.failed(error))
    }

    /// The newest marker that can be read at the moment. It may not be the newest that there is.
    ///
    /// # Errors
    /// If the topic can't be read, or its newest record with the key isn't a marker.
    pub fn peek(&self) -> Result<Option<Marker>, ConnectorError> {
        let (low, stable) = self.ends(&self.committed)?;
        self.newest(low, stable)
    }

    /// The newest marker. Nobody but transactions that are open now can write another one.
    ///
    /// # Errors
    /// If the topic can't be read to its end, or its newest record with the key isn't a marker.
    pub fn ask(&self) -> Result<Option<Marker>, ConnectorError> {
        let (_, high) = self.ends(&self.all)?;
        let end = Instant::now() + STABLE_TIMEOUT;
        loop {
            let (low, stable) = self.ends(&self.committed)?;
            if stable >= high {
                return self.newest(low, stable);
            }
            if Instant::now() >= end {
                return Err(self.held_back(stable, high));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn held_back(&self, stable: i64, high: i64) -> ConnectorError {
        self.failing("read", |doing| {
            doing.because(
                format!("its end (offset {high}) is held back at offset {stable} by an open transaction"),
                format!(
                    "see 'lockgate txn list' for transactions that are stuck in topic '{}', and end them with 'lockgate txn abort'",
                    self.topic
                ),
                true,
            )
        })
    }

    /// First and last offset as a consumer sees them.
    fn ends(&self, consumer: &BaseConsumer<Listener>) -> Result<(i64, i64), ConnectorError> {
        self.failing("read", |doing| {
            let ask = || consumer.fetch_watermarks(&self.topic, PARTITION, REQUEST_TIMEOUT);
            through_elections(doing, Instant::now() + ELECTION_MAX, ask).map_err(|error| doing.failed(&error))
        })
    }

    fn newest(&self, low: i64, end: i64) -> Result<Option<Marker>, ConnectorError> {
        if low >= end {
            self.assign(end)?;
            return Ok(None);
        }
        let tail = (end - TAIL_RECORDS).max(low);
        match self.read(tail)? {
            None if tail > low => self.read(low),
            found => Ok(found),
        }
    }

    fn assign(&self, from: i64) -> Result<(), ConnectorError> {
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(&self.topic, PARTITION, Offset::Offset(from));
        let assigned = added.and_then(|()| self.committed.assign(&list));
        assigned.map_err(|error| self.failed(&error))
    }

    /// The last marker from an offset on to the end.
    fn read(&self, from: i64) -> Result<Option<Marker>, ConnectorError> {
        self.assign(from)?;
        let end = Instant::now() + READ_TIMEOUT;
        let mut newest = Ok(None);
        loop {
            match self.next(end)? {
                Next::Marker(marker) => newest = Ok(Some(marker)),
                Next::Gone => newest = Ok(None),
                // A marker behind it says what was decided since.
                Next::Unreadable(error) => newest = Err(error),
                Next::End => return newest,
            }
        }
    }

    /// Reads on until the marker of an epoch is there.
    ///
    /// # Errors
    /// If it doesn't come, or a newer one does.
    pub fn read_back(&self, written: &Marker) -> Result<(), ConnectorError> {
        let end = Instant::now() + READ_TIMEOUT;
        loop {
            match self.next(end)? {
                Next::Marker(marker) if marker == *written => return Ok(()),
                Next::Marker(marker) if marker.attempt > written.attempt || epoch(&marker) > epoch(written) => {
                    return Err(self.failing("read back from", |doing| {
                        doing.because(
                            format!("attempt {} has written a newer marker than this one", marker.attempt),
                            "see that this job runs once only".to_owned(),
                            false,
                        )
                    }));
                }
                Next::Marker(_) | Next::Gone | Next::Unreadable(_) | Next::End => {}
            }
        }
    }

    /// What comes next, until a time.
    fn next(&self, end: Instant) -> Result<Next, ConnectorError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.failing("read", |doing| doing.failed_with(Code::OperationTimedOut, None)));
            }
            match self.committed.poll(left) {
                Some(Ok(message)) if message.key() == Some(self.key.as_bytes()) => {
                    let Some(value) = message.payload() else { return Ok(Next::Gone) };
                    return match marker::decode(&self.job, value) {
                        Ok(marker) => Ok(Next::Marker(marker)),
                        Err(bad) => Ok(Next::Unreadable(self.not_a_marker(message.offset(), &bad))),
                    };
                }
                // Of other jobs.
                Some(Ok(_)) | None => {}
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(Next::End),
                Some(Err(error)) if error.rdkafka_error_code().is_some_and(is_silence) => {}
                Some(Err(error)) => return Err(self.failed(&error)),
            }
        }
    }

    fn not_a_marker(&self, offset: i64, bad: &marker::BadMarker) -> ConnectorError {
        let key = &self.key;
        self.failing("read", |doing| {
            doing.unfit(
                format!("the record with key '{key}' at offset {offset} can't be believed: {bad}"),
                format!(
                    "no other program may write to topic '{}': find out what wrote it. The job goes on if its last marker is written \
                     once more, behind that record; if that one isn't known any more, start the job under a new name",
                    self.topic
                ),
            )
        })
    }
}

enum Next {
    Marker(Marker),
    /// The marker was deleted.
    Gone,
    /// Something else under the marker's key, which counts for as long as it is the newest.
    Unreadable(ConnectorError),
    End,
}

fn epoch(marker: &Marker) -> Option<Epoch> {
    marker.decided.map(|(epoch, _)| epoch)
}
