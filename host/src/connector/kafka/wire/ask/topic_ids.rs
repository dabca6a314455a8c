//! Metadata, for no more than the ids of topics. Asks without making a topic.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::super::super::TopicId;
use super::super::{Client, WireError};

impl Client {
    /// Those of these topics that the broker has told. It has none to tell before Kafka 2.8.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn topic_ids(&mut self, names: &BTreeSet<&str>) -> Result<BTreeMap<String, TopicId>, WireError> {
        let of_name = |name: &&str| {
            MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string((*name).to_owned()))))
        };
        let request = MetadataRequest::default()
            .with_topics(Some(names.iter().map(of_name).collect()))
            .with_allow_auto_topic_creation(false);
        Ok(told(&self.any().call(&request)?))
    }
}

fn told(answer: &MetadataResponse) -> BTreeMap<String, TopicId> {
    let without_error = answer.topics.iter().filter(|topic| topic.error_code == 0);
    let with_id = without_error.filter_map(|topic| {
        let id = TopicId::told(topic.topic_id.as_u128())?;
        Some((topic.name.as_ref()?.to_string(), id))
    });
    with_id.collect()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;
    use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
    use kafka_protocol::protocol::Decodable as _;

    use super::*;

    #[test]
    fn only_topics_that_are_there_and_have_an_id_have_one() {
        let topic = |name: &'static str, id: &[u8; 16], error: i16| {
            let named = TopicName(StrBytes::from_static_str(name));
            // A topic of version 12 as far as its id: an error, an empty name, the id, and nothing in it.
            let bytes = [&[0, 0, 0][..], id, &[0, 1, 0, 0, 0, 0, 0]].concat();
            let told = MetadataResponseTopic::decode(&mut bytes.as_slice(), 12).expect("a topic");
            told.with_name(Some(named)).with_error_code(error)
        };
        let missing = ResponseError::UnknownTopicOrPartition.code();
        let answer = MetadataResponse::default().with_topics(vec![
            topic("orders", &7_u128.to_be_bytes(), 0),
            topic("old", &[0; 16], 0),
            topic("missing", &8_u128.to_be_bytes(), missing),
        ]);
        let id = TopicId::told(7).expect("an id");
        assert_eq!(told(&answer), BTreeMap::from([("orders".to_owned(), id)]));
    }
}
