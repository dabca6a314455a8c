//! ListTransactions and DescribeTransactions: what the coordinators know.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, ListTransactionsRequest, MetadataRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};

/// A transactional id in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub transactional_id: String,
    /// In Kafka's words, as `Ongoing`.
    pub state: String,
    pub producer_id: i64,
    /// The broker that looks after it.
    pub coordinator: i32,
}

/// A transactional id, described by its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub transactional_id: String,
    pub coordinator: i32,
    pub state: String,
    pub timeout_ms: i32,
    /// Since the Unix epoch; `None` if none is open.
    pub started_ms: Option<i64>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Topics and their partitions.
    pub partitions: Vec<(String, Vec<i32>)>,
}

impl Transaction {
    /// Whether one is open, or being completed: then readers wait for it.
    pub fn is_open(&self) -> bool {
        is_open(&self.state)
    }
}

impl Listed {
    /// As [`Transaction::is_open`].
    pub fn is_open(&self) -> bool {
        is_open(&self.state)
    }
}

/// In which the coordinators keep what they know, an id in the partition of its hash.
const STATE_TOPIC: &str = "__transaction_state";

/// For each partition of the coordinators' topic an id that belongs into it: by `String.hashCode` of Java, modulo their number.
fn ids_by_partition(partitions: usize) -> Vec<String> {
    let mut ids = vec![None; partitions];
    let mut missing = partitions;
    for number in 0.. {
        if missing == 0 {
            break;
        }
        let id = format!("lockgate-probe-{number}");
        // How the sign is taken off has changed between versions; these have none.
        let Ok(hash) = usize::try_from(java_hash(&id)) else { continue };
        let place = &mut ids[hash % partitions];
        if place.is_none() {
            *place = Some(id);
            missing -= 1;
        }
    }
    ids.into_iter().flatten().collect()
}

/// Of ASCII.
fn java_hash(text: &str) -> i32 {
    text.bytes().fold(0, |hash: i32, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)))
}

fn is_open(state: &str) -> bool {
    matches!(state, "Ongoing" | "PrepareCommit" | "PrepareAbort")
}

impl Client {
    /// Every transactional id that this user may see, in any state, by name. Asks all brokers.
    ///
    /// # Errors
    /// If one of them can't be asked, or isn't ready to look after its ids: they would be missing.
    pub fn list_transactions(&mut self) -> Result<Vec<Listed>, WireError> {
        self.patiently(|client| {
            client.coordinators_are_ready()?;
            client.list_once()
        })
    }

    /// Whether each partition of the coordinators' topic is looked after. A broker that has just come up lists what it has loaded by
    /// then, without a word of what it hasn't; of an id it says which.
    fn coordinators_are_ready(&mut self) -> Result<(), WireError> {
        let Some(told) = self.topics(&[STATE_TOPIC])?.pop() else { return Ok(()) };
        match told.error {
            // Nobody has used a transactional id yet; or only others may see the topic, and what is listed is all that there is to go by.
            Some(ResponseError::UnknownTopicOrPartition | ResponseError::TopicAuthorizationFailed) => return Ok(()),
            Some(error) => self.any().refuse::<MetadataRequest>(STATE_TOPIC, error.code())?,
            None => {}
        }
        let mut by_leader = BTreeMap::<i32, Vec<String>>::new();
        for (partition, id) in told.partitions.iter().zip(ids_by_partition(told.partitions.len())) {
            match partition.leader {
                Some(leader) => by_leader.entry(leader).or_default().push(id),
                None => {
                    let nobody = ResponseError::LeaderNotAvailable.code();
                    self.any().refuse::<MetadataRequest>(&format!("{STATE_TOPIC}/{}", partition.index), nobody)?;
                }
            }
        }
        for (leader, ids) in by_leader {
            let ids = ids.iter().map(String::as_str).collect::<Vec<_>>();
            match self.describe_transactions(leader, &ids) {
                Err(error) if error.refusal() == Some(ResponseError::TransactionalIdAuthorizationFailed) => {}
                asked => drop(asked?),
            }
        }
        Ok(())
    }

    fn list_once(&mut self) -> Result<Vec<Listed>, WireError> {
        let mut all = Vec::new();
        for node in self.cluster().brokers.keys().copied().collect::<Vec<_>>() {
            let connection = self.at(node)?;
            let answer = connection.call(&ListTransactionsRequest::default())?;
            connection.refuse::<ListTransactionsRequest>("its list", answer.error_code)?;
            all.extend(answer.transaction_states.iter().map(|told| Listed {
                transactional_id: told.transactional_id.to_string(),
                state: told.transaction_state.to_string(),
                producer_id: *told.producer_id,
                coordinator: node,
            }));
        }
        all.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        Ok(all)
    }

    /// Asks a coordinator for details of its ids. Those that are gone meanwhile are left out.
    ///
    /// # Errors
    /// If it can't be asked, or says no for another reason.
    pub fn describe_transactions(&mut self, node: i32, ids: &[&str]) -> Result<Vec<Transaction>, WireError> {
        let wanted = ids.iter().map(|id| TransactionalId(StrBytes::from_string((*id).to_owned()))).collect();
        let connection = self.at(node)?;
        let answer = connection.call(&DescribeTransactionsRequest::default().with_transactional_ids(wanted))?;
        let mut described = Vec::new();
        for told in &answer.transaction_states {
            match told.error_code.err() {
                Some(ResponseError::TransactionalIdNotFound) => {}
                _ => {
                    let what = format!("'{}'", told.transactional_id.as_str());
                    connection.refuse::<DescribeTransactionsRequest>(&what, told.error_code)?;
                    described.push(transaction(node, told));
                }
            }
        }
        Ok(described)
    }

    /// Whether this user may see a transactional id, which may be one that nobody has used. Asks without a coordinator.
    ///
    /// # Errors
    /// [`WireError::Refused`] if not.
    pub fn may_see_id(&mut self, id: &str) -> Result<(), WireError> {
        let wanted = vec![TransactionalId(StrBytes::from_string(id.to_owned()))];
        let connection = self.any();
        let answer = connection.call(&DescribeTransactionsRequest::default().with_transactional_ids(wanted))?;
        // Any other answer is one to a user who may ask.
        let refused = ResponseError::TransactionalIdAuthorizationFailed.code();
        match answer.transaction_states.iter().any(|told| told.error_code == refused) {
            true => connection.refuse::<DescribeTransactionsRequest>(&format!("'{id}'"), refused),
            false => Ok(()),
        }
    }

    /// One transactional id; `None` if the cluster doesn't know it.
    ///
    /// # Errors
    /// If its coordinator can't be asked.
    pub fn describe_transaction(&mut self, id: &str) -> Result<Option<Transaction>, WireError> {
        self.patiently(|client| {
            let node = client.coordinator(id)?;
            Ok(client.describe_transactions(node, &[id])?.pop())
        })
    }
}

fn transaction(coordinator: i32, told: &TransactionState) -> Transaction {
    let partitions = told.topics.iter().map(|topic| {
        let mut partitions = topic.partitions.clone();
        partitions.sort_unstable();
        (topic.topic.to_string(), partitions)
    });
    let mut partitions = partitions.collect::<Vec<_>>();
    partitions.sort();
    Transaction {
        transactional_id: told.transactional_id.to_string(),
        coordinator,
        state: told.transaction_state.to_string(),
        timeout_ms: told.transaction_timeout_ms,
        started_ms: Some(told.transaction_start_time_ms).filter(|started| *started >= 0),
        producer_id: *told.producer_id,
        producer_epoch: told.producer_epoch,
        partitions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_an_id_of_its_hash() {
        // As Java says.
        assert_eq!([java_hash(""), java_hash("abc"), java_hash("lockgate")], [0, 96_354, 1_909_884_022]);
        for partitions in [0, 1, 3, 50] {
            let ids = ids_by_partition(partitions);
            assert_eq!(ids.len(), partitions);
            for (partition, id) in ids.iter().enumerate() {
                assert_eq!(usize::try_from(java_hash(id)).expect("not below zero") % partitions, partition, "{id}");
            }
        }
    }
}
