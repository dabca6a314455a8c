//! FindCoordinator: which broker looks after a transactional id.

use kafka_protocol::messages::FindCoordinatorRequest;
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};

/// The number of transactional ids among the kinds of keys.
const TRANSACTIONAL_ID: i8 = 1;

impl Client {
    /// The number of the broker that looks after a transactional id. Kafka makes the topic in which it keeps them
    /// (`__transaction_state`) when the first is asked for.
    ///
    /// # Errors
    /// [`WireError::Refused`] if there is none for this user.
    pub(in super::super) fn coordinator(&mut self, id: &str) -> Result<i32, WireError> {
        self.patiently(|client| client.coordinator_once(id))
    }

    fn coordinator_once(&mut self, key: &str) -> Result<i32, WireError> {
        let keys = vec![StrBytes::from_string(key.to_owned())];
        let request = FindCoordinatorRequest::default().with_key_type(TRANSACTIONAL_ID).with_coordinator_keys(keys);
        let connection = self.any();
        let answer = connection.call(&request)?;
        connection.refuse::<FindCoordinatorRequest>(&format!("'{key}'"), answer.error_code)?;
        let found = answer.coordinators.iter().find(|found| found.key.as_str() == key);
        let found = found.ok_or_else(|| connection.says_nothing::<FindCoordinatorRequest>(key))?;
        connection.refuse::<FindCoordinatorRequest>(&format!("'{key}'"), found.error_code)?;
        Ok(*found.node_id)
    }
}
