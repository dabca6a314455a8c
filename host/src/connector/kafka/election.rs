//! Waits while brokers elect a leader, as they do when a cluster has just come up or has lost a broker.
//!
//! Invariant: nothing but an election is waited for, and none for longer than it is told.

use std::thread;
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::Doing;

/// So long one may take before it counts as a failure. A cluster that is well needs a second or two.
pub const ELECTION_MAX: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Whether a code says that there is no leader or coordinator yet, or that the one that was asked isn't it any more.
pub fn is_election(code: Code) -> bool {
    matches!(
        code,
        Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::ReplicaNotAvailable
            | Code::OffsetNotAvailable
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress
            | Code::NotCoordinator
    )
}

/// Asks again, until `end`, while the answer is that there is no leader.
///
/// # Errors
/// The last one.
pub fn through_elections<T>(
    doing: &Doing<'_>,
    end: Instant,
    mut ask: impl FnMut() -> Result<T, KafkaError>,
) -> Result<T, KafkaError> {
    let mut is_told = false;
    loop {
        match ask() {
            Err(error) if error.rdkafka_error_code().is_some_and(is_election) && Instant::now() < end => {
                if !is_told {
                    let waits_s = end.saturating_duration_since(Instant::now()).as_secs();
                    let (name, what) = (doing.name, doing.what);
                    tracing::warn!(%name, "no broker leads {what} at the moment; waiting for one for up to {waits_s} s");
                    is_told = true;
                }
                thread::sleep(AGAIN_AFTER);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Name;

    fn ask(end: Instant, answers: Vec<Result<u8, Code>>) -> (Result<u8, KafkaError>, usize) {
        let name = Name::new("orders").expect("a name");
        let doing = Doing { name: &name, brokers: "a:1", action: "read", what: "partition orders/0", listener: None };
        let mut answers = answers.into_iter();
        let outcome = through_elections(&doing, end, || {
            answers.next().expect("it isn't asked again").map_err(KafkaError::OffsetFetch)
        });
        (outcome, answers.len())
    }

    #[test]
    fn an_election_is_waited_for_and_nothing_else_is() {
        let soon = Instant::now() + ELECTION_MAX;
        let elected = vec![Err(Code::LeaderNotAvailable), Err(Code::NotLeaderForPartition), Ok(7)];
        assert_eq!(ask(soon, elected), (Ok(7), 0));
        for code in [Code::UnknownTopicOrPartition, Code::OperationTimedOut, Code::TopicAuthorizationFailed] {
            assert_eq!(ask(soon, vec![Err(code), Ok(7)]), (Err(KafkaError::OffsetFetch(code)), 1));
        }
    }

    #[test]
    fn an_election_that_takes_too_long_is_a_failure() {
        let code = Code::LeaderNotAvailable;
        assert_eq!(ask(Instant::now(), vec![Err(code), Ok(7)]), (Err(KafkaError::OffsetFetch(code)), 1));
    }
}
