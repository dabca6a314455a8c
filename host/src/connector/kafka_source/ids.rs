//! The ids of topics: by them a topic that was deleted and created again is told from the one before, whose name and offsets it has.
//!
//! Where ids can't be had, whether an offset is there is all that is looked at.
//!
//! Invariant: a position that has an id keeps it.

use super::afresh::BEGIN_AFRESH;
use super::position::{Partition, Position};
use crate::connector::ConnectorError;
use crate::connector::kafka::{TopicId, TopicIds};
use crate::id::Name;

/// A position in a topic that was deleted and created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfAnother<'a> {
    partition: &'a Partition,
    next: u64,
    was: TopicId,
    is: TopicId,
}

/// The first of the positions that belongs to another topic of the same name.
pub fn of_another<'a>(
    positions: impl IntoIterator<Item = (&'a Partition, &'a Position)>,
    ids: &TopicIds,
) -> Option<OfAnother<'a>> {
    positions.into_iter().find_map(|(partition, position)| {
        let (was, is) = (position.topic_id?, *ids.get(&partition.topic)?);
        (was != is).then_some(OfAnother { partition, next: position.next, was, is })
    })
}

impl OfAnother<'_> {
    pub fn refused(&self, name: &Name) -> ConnectorError {
        let OfAnother { partition, next, was, is } = *self;
        let topic = &partition.topic;
        ConnectorError::Unfit {
            name: name.clone(),
            problem: format!(
                "cannot read partition {partition}: topic '{topic}' was deleted and created again. This job has read up to offset \
                 {next} of the one with the id {was}; the one that is there now has the id {is}"
            ),
            advice: format!(
                "what the old topic held and this job hadn't read is gone, and the new one has other records at the same offsets, so \
                 to go on at {next} could pass some over. If what was lost isn't wanted any more, {BEGIN_AFRESH} of the new topic. \
                 kafka-topics.sh --describe shows a topic's id"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> TopicId {
        TopicId::told(number).expect("an id")
    }

    fn position(topic: &str, index: i32, number: Option<u128>) -> (Partition, Position) {
        let partition = Partition { topic: topic.to_owned(), index };
        (partition, Position { next: 17, end: None, topic_id: number.map(id) })
    }

    #[test]
    fn another_id_is_refused_whichever_partition_has_it_and_an_unknown_one_is_not() {
        let ids = TopicIds::from([("orders".to_owned(), id(1)), ("others".to_owned(), id(2))]);
        let first = |positions: &[(Partition, Position)]| {
            let positions = positions.iter().map(|(partition, position)| (partition, position));
            of_another(positions, &ids).map(|found| found.partition.clone())
        };
        let same = [position("others", 0, Some(2)), position("orders", 1, Some(1)), position("orders", 0, Some(1))];
        assert_eq!(first(&same), None);
        let unknown = [position("orders", 0, None), position("unheard", 0, Some(9))];
        assert_eq!(first(&unknown), None);
        let mixed = [position("orders", 0, None), position("orders", 1, Some(1)), position("orders", 2, Some(2))];
        assert_eq!(first(&mixed), Some(mixed[2].0.clone()));
    }

    #[test]
    fn a_refusal_names_the_topic_and_both_ids_and_the_choices() {
        let (partition, position) = position("orders", 3, Some(1));
        let ids = TopicIds::from([("orders".to_owned(), id(2))]);
        let found = of_another([(&partition, &position)], &ids).expect("another topic");
        let error = found.refused(&Name::new("in").expect("a name"));
        let said = format!("{error}; {}", error.help());
        for part in ["topic 'orders'", &id(1).to_string(), &id(2).to_string(), "orders/3", "17", "new name", "start"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(matches!(error, ConnectorError::Unfit { .. }));
    }
}
