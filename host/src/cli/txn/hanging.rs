//! Transactions that are open on a partition while no coordinator knows of them, so that nothing would ever end them.
//!
//! Invariant: one that begins or ends while the cluster is asked is never taken for one that hangs: what hangs was there before the
//! coordinators were asked, and is there afterwards.

use std::collections::BTreeSet;

use super::report::Hanging;
use crate::connector::kafka::wire::{Client, OpenOnPartition, WireError};

pub(super) fn find_hanging(client: &mut Client) -> Result<Vec<Hanging>, WireError> {
    let topics = client.all_topics()?;
    let led = topics.iter().filter(|topic| topic.error.is_none()).flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.filter_map(|partition| Some((partition.leader?, topic.name.as_str(), partition.index)))
    });
    let before = client.open_on(&led.collect::<Vec<_>>())?;
    if before.is_empty() {
        return Ok(Vec::new());
    }
    let known = client.list_transactions()?;
    let known = known.iter().filter(|listed| listed.is_open()).map(|listed| listed.producer_id).collect();
    let suspects = unknown(before, &known);
    let partitions = suspects.iter().filter_map(|open| {
        let topic = topics.iter().find(|topic| topic.name == open.topic)?;
        let partition = topic.partitions.iter().find(|partition| partition.index == open.partition)?;
        Some((partition.leader?, topic.name.as_str(), partition.index))
    });
    let partitions = partitions.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    let after = client.open_on(&partitions)?;
    Ok(still_there(suspects, &after).into_iter().map(Hanging::from).collect())
}

fn unknown(open: Vec<OpenOnPartition>, known: &BTreeSet<i64>) -> Vec<OpenOnPartition> {
    open.into_iter().filter(|open| !known.contains(&open.producer_id)).collect()
}

fn still_there(suspects: Vec<OpenOnPartition>, after: &[OpenOnPartition]) -> Vec<OpenOnPartition> {
    let same = |a: &OpenOnPartition, b: &OpenOnPartition| {
        (&a.topic, a.partition, a.producer_id, a.start_offset) == (&b.topic, b.partition, b.producer_id, b.start_offset)
    };
    suspects.into_iter().filter(|suspect| after.iter().any(|open| same(open, suspect))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(partition: i32, producer_id: i64, start_offset: i64) -> OpenOnPartition {
        let topic = "t".to_owned();
        OpenOnPartition {
            topic,
            partition,
            leader: 1,
            producer_id,
            producer_epoch: 0,
            coordinator_epoch: 0,
            start_offset,
            last_ms: 1,
        }
    }

    #[test]
    fn what_a_coordinator_knows_or_what_ends_meanwhile_does_not_hang() {
        let before = vec![open(0, 1, 5), open(0, 2, 6), open(1, 3, 7), open(1, 4, 8)];
        let suspects = unknown(before, &BTreeSet::from([1]));
        // Producer 3 has ended it, and 4 has begun another one.
        let after = [open(0, 2, 6), open(1, 4, 9)];
        assert_eq!(still_there(suspects, &after), [open(0, 2, 6)]);
    }
}
