//! InitProducerId: takes a transactional id away from whoever has it, which aborts what it has open.
//!
//! Invariant: it answers only when the abort is done, so that readers can go on.

use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::{InitProducerIdRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;

use super::super::client::RETRY;
use super::super::{Client, WireError};

/// For how long the cluster may be about the abort.
const ABORT_MAX: Duration = Duration::from_secs(60);

/// The id belongs to this producer from now on, and to nobody who would use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    pub producer_id: i64,
    pub producer_epoch: i16,
}

impl Client {
    /// # Errors
    /// If the coordinator refuses, or isn't done in a minute.
    pub fn fence(&mut self, id: &str) -> Result<Fenced, WireError> {
        let until = Instant::now() + ABORT_MAX;
        loop {
            match self.fence_once(id) {
                Err(error) if error.refusal().is_some_and(may_pass) && Instant::now() < until => thread::sleep(RETRY),
                asked => return asked,
            }
        }
    }

    /// Asks once. A transaction that is open is aborted from now on; until that is done, the answer is the refusal
    /// `ConcurrentTransactions`.
    ///
    /// # Errors
    /// If the coordinator refuses.
    pub fn fence_once(&mut self, id: &str) -> Result<Fenced, WireError> {
        let node = self.coordinator(id)?;
        let connection = self.at(node)?;
        // Nothing is ever put into a transaction of this producer, so its timeout doesn't matter. As Kafka's `fenceProducers`.
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(id.to_owned()))))
            .with_transaction_timeout_ms(1)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let answer = connection.call(&request)?;
        let refused = connection.refuse::<InitProducerIdRequest>(&format!("'{id}'"), answer.error_code);
        if answer.error_code.err() == Some(ResponseError::NotCoordinator) {
            self.forget(node);
        }
        refused.map(|()| Fenced { producer_id: *answer.producer_id, producer_epoch: answer.producer_epoch })
    }
}

/// "Concurrent transactions" is how a coordinator says that the abort is under way.
fn may_pass(error: ResponseError) -> bool {
    error == ResponseError::ConcurrentTransactions || error.is_retriable()
}
