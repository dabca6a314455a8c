//! Which failures of a consumer it gets past by itself, and which are to be seen to. Pure.
//!
//! Invariant: what isn't known to pass is an error.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::connector::kafka::{is_election, is_silence};

/// The offset that was to be read isn't there.
pub fn is_out_of_bounds(code: Code) -> bool {
    matches!(code, Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation | Code::NoOffset)
}

/// What the client can't get past by trying again, as it does by itself.
pub fn is_final(error: &KafkaError) -> bool {
    match error {
        KafkaError::MessageConsumptionFatal(_) => true,
        other => matches!(
            other.rdkafka_error_code(),
            Some(
                Code::Authentication
                    | Code::SaslAuthenticationFailed
                    | Code::UnsupportedSASLMechanism
                    | Code::TopicAuthorizationFailed
                    | Code::GroupAuthorizationFailed
                    | Code::ClusterAuthorizationFailed
            )
        ),
    }
}

/// Whether a topic is gone or its brokers are only busy, the scout finds out.
pub fn is_about_a_topic(code: Code) -> bool {
    matches!(code, Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition | Code::UnknownTopicId)
}

/// What the client tries again by itself.
pub fn is_passing(code: Code) -> bool {
    is_silence(code)
        || is_election(code)
        || matches!(
            code,
            Code::KafkaStorageError
                | Code::FetchSessionIdNotFound
                | Code::InvalidFetchSessionEpoch
                | Code::ThrottlingQuotaExceeded
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_away_passes_and_a_missing_permission_does_not() {
        let passes = |code| is_passing(code) && !is_final(&KafkaError::MessageConsumption(code));
        assert!([Code::BrokerTransportFailure, Code::AllBrokersDown, Code::LeaderNotAvailable].into_iter().all(passes));
        for code in [Code::TopicAuthorizationFailed, Code::SaslAuthenticationFailed] {
            assert!(is_final(&KafkaError::MessageConsumption(code)) && !is_passing(code), "{code}");
        }
        // Damaged records, among others, are neither: they are an error where they are read.
        assert!(!is_passing(Code::BadMessage) && !is_final(&KafkaError::MessageConsumption(Code::BadMessage)));
        assert!(is_final(&KafkaError::MessageConsumptionFatal(Code::Fatal)));
    }
}
