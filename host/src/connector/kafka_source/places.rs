//! Where `start` means in each partition.
//!
//! Invariant: a partition for which there is no offset begins at its first record, or at its end if that is what is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::bounds::Bounds;
use super::client::Consumer;
use super::position::Partition;
use super::start::Start;

/// The places that were looked up, and what counts for other partitions.
#[derive(Debug, Default)]
pub struct Places {
    offsets: BTreeMap<Partition, u64>,
    others: Others,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Others {
    #[default]
    First,
    End,
}

impl Places {
    pub fn of(&self, partition: &Partition, bounds: Bounds) -> u64 {
        let others = match self.others {
            Others::First => bounds.low,
            Others::End => bounds.high,
        };
        self.offsets.get(partition).copied().unwrap_or(others)
    }
}

/// # Errors
/// If the cluster doesn't say.
pub fn offsets_of(
    start: &Start,
    partitions: &[Partition],
    consumer: &Consumer,
    timeout: Duration,
) -> Result<Places, KafkaError> {
    let places = |offsets, others| Places { offsets, others };
    if partitions.is_empty() {
        return Ok(Places::default());
    }
    match start {
        Start::Earliest => Ok(places(BTreeMap::new(), Others::First)),
        Start::Latest => Ok(places(BTreeMap::new(), Others::End)),
        Start::Committed => {
            let committed = consumer.committed_offsets(list(partitions, Offset::Invalid)?, timeout)?;
            Ok(places(found(&committed)?, Others::First))
        }
        Start::Timestamp { ms } => {
            let times = consumer.offsets_for_times(list(partitions, Offset::Offset(*ms))?, timeout)?;
            // All records of the others are older.
            Ok(places(found(&times)?, Others::End))
        }
        Start::Offsets(offsets) => {
            let offset = |partition: &Partition| offsets.get(&partition.topic)?.get(&partition.index).copied();
            let found = partitions.iter().filter_map(|partition| Some((partition.clone(), offset(partition)?)));
            Ok(places(found.collect(), Others::First))
        }
    }
}

fn list(partitions: &[Partition], offset: Offset) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for Partition { topic, index } in partitions {
        list.add_partition_offset(topic, *index, offset)?;
    }
    Ok(list)
}

fn found(list: &TopicPartitionList) -> Result<BTreeMap<Partition, u64>, KafkaError> {
    let mut found = BTreeMap::new();
    for element in list.elements() {
        element.error()?;
        if let Offset::Offset(offset) = element.offset()
            && let Ok(offset) = u64::try_from(offset)
        {
            found.insert(Partition { topic: element.topic().to_owned(), index: element.partition() }, offset);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_found_is_at_the_first_record_or_the_end() {
        let partition = |index| Partition { topic: "orders".to_owned(), index };
        let (bounds, offsets) = (Bounds { low: 3, high: 9 }, BTreeMap::from([(partition(0), 5)]));
        let first = Places { offsets: offsets.clone(), others: Others::First };
        let end = Places { offsets, others: Others::End };
        assert_eq!([first.of(&partition(0), bounds), first.of(&partition(1), bounds)], [5, 3]);
        assert_eq!([end.of(&partition(0), bounds), end.of(&partition(1), bounds)], [5, 9]);
    }
}
