//! Plain loops over librdkafka: fill a topic, copy one to another exactly once, count what can be seen.
//!
//! The copy is what one writes without an engine: consume, produce to the same partition, and each second commit a transaction with
//! the offsets of what was consumed. Settings that aren't said are librdkafka's, as they are the host's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// How many records are sent between two looks at acknowledgements.
const SENT_PER_LOOK: u64 = 1000;

/// What to copy.
pub struct PlainCopy<'a> {
    pub address: &'a str,
    pub input: &'a str,
    pub output: &'a str,
}

fn config(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address);
    config
}

/// Sends a record; a full queue is waited for.
fn send(producer: &BaseProducer, mut record: BaseRecord<'_, [u8], [u8]>) -> anyhow::Result<()> {
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(10));
                record = back;
            }
            Err((error, _)) => bail!("cannot send a record: {error}"),
        }
    }
}

/// Fills a topic with records of random looking text, dealt evenly to its partitions.
pub fn fill(address: &str, topic: &str, partitions: i32, records: u64, bytes: usize) -> anyhow::Result<()> {
    let producer: BaseProducer = config(address).set("enable.idempotence", "true").create()?;
    let mut value = vec![b' '; bytes];
    let mut state = 1u64;
    for id in 0..records {
        for byte in &mut value {
            // The generator of Knuth's MMIX.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = b'a' + (state >> 33) as u8 % 26;
        }
        let partition = (id % u64::from(partitions.unsigned_abs())) as i32;
        send(&producer, BaseRecord::<[u8], [u8]>::to(topic).partition(partition).payload(&value))?;
        if id % SENT_PER_LOOK == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(PATIENCE).context("the input isn't acknowledged")
}

/// A consumer of all partitions of a topic from their beginnings, and the offsets at which they end now.
fn consumer(address: &str, topic: &str, group: &str) -> anyhow::Result<(BaseConsumer, BTreeMap<i32, i64>)> {
    let consumer: BaseConsumer = config(address)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let topics = metadata.topics().iter().filter(|found| found.name() == topic);
    let partitions = topics.flat_map(|found| found.partitions()).map(|partition| partition.id()).collect::<Vec<_>>();
    let (mut assigned, mut ends) = (TopicPartitionList::new(), BTreeMap::new());
    for partition in partitions {
        assigned.add_partition_offset(topic, partition, Offset::Beginning)?;
        let (begin, end) = consumer.fetch_watermarks(topic, partition, PATIENCE)?;
        if begin < end {
            ends.insert(partition, end);
        }
    }
    consumer.assign(&assigned)?;
    Ok((consumer, ends))
}

/// How many records a `read_committed` consumer sees in a topic.
pub fn count(address: &str, topic: &str) -> anyhow::Result<u64> {
    let (consumer, mut open) = consumer(address, topic, "bench-count")?;
    let mut seen = 0;
    while !open.is_empty() {
        match consumer.poll(PATIENCE) {
            Some(Ok(_)) => seen += 1,
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(open.remove(&partition)),
            Some(Err(error)) => return Err(error).context("cannot read the output"),
            None => bail!("the topic {topic} doesn't come to its end"),
        }
    }
    Ok(seen)
}

impl PlainCopy<'_> {
    /// Copies all that is in the input when this is called.
    pub fn run(&self) -> anyhow::Result<()> {
        let group = format!("{}-group", self.output);
        let (consumer, mut open) = consumer(self.address, self.input, &group)?;
        let producer: BaseProducer =
            config(self.address).set("transactional.id", format!("{}-id", self.output)).create()?;
        producer.init_transactions(PATIENCE)?;
        producer.begin_transaction()?;
        let (mut next, mut begun, mut sent) = (BTreeMap::new(), Instant::now(), 0u64);
        while !open.is_empty() {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    let mut record = BaseRecord::to(self.output).partition(message.partition());
                    record.key = message.key();
                    record.payload = message.payload();
                    record.timestamp = message.timestamp().to_millis();
                    send(&producer, record)?;
                    next.insert(message.partition(), message.offset() + 1);
                    sent += 1;
                    if sent.is_multiple_of(SENT_PER_LOOK) {
                        producer.poll(Duration::ZERO);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(open.remove(&partition)),
                Some(Err(error)) => return Err(error).context("cannot read the input"),
                None => {}
            }
            if begun.elapsed() >= COMMIT_EVERY {
                self.commit(&consumer, &producer, &next)?;
                producer.begin_transaction()?;
                begun = Instant::now();
            }
        }
        self.commit(&consumer, &producer, &next)
    }

    fn commit(
        &self,
        consumer: &BaseConsumer,
        producer: &BaseProducer,
        next: &BTreeMap<i32, i64>,
    ) -> anyhow::Result<()> {
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in next {
            offsets.add_partition_offset(self.input, *partition, Offset::Offset(*offset))?;
        }
        let group = consumer.group_metadata().context("the consumer's group")?;
        producer.flush(PATIENCE)?;
        producer.send_offsets_to_transaction(&offsets, &group, PATIENCE)?;
        producer.commit_transaction(PATIENCE).context("cannot commit")
    }
}
