//! What to tell a user when Kafka fails: what was being done, what is wrong, what to do, and whether it may pass.
//!
//! Invariant: a failure that another attempt can't get past says so, and so does one that the job file is to blame for.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::Listener;
use super::reachable::anybody_listens;
use crate::connector::ConnectorError;
use crate::id::Name;

/// What was being done when something failed.
#[derive(Clone, Copy)]
pub struct Doing<'a> {
    /// The source or sink.
    pub name: &'a Name,
    pub brokers: &'a str,
    /// "read", "write to", "look up the offsets of": goes before `what`.
    pub action: &'a str,
    /// "topic 'orders'", "group 'lockgate-copy'", "transactional id 'copy/0/A'": what a permission is missing for.
    pub what: &'a str,
    /// Where the client has told more than the error does.
    pub listener: Option<&'a Listener>,
}

/// What there is to say about a failure.
struct Told {
    why: String,
    advice: String,
    nature: Nature,
}

/// What another attempt could make of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// The cluster doesn't have or allow what the job file names.
    Unfit,
    Lasting,
    Passing,
    /// There was no answer.
    Silence,
}

impl Doing<'_> {
    pub fn failed(&self, error: &KafkaError) -> ConnectorError {
        match (error, error.rdkafka_error_code()) {
            // The client library doesn't count its code as one.
            (KafkaError::AdminOp(code), _) => self.failed_with(*code, None),
            (KafkaError::Transaction(error), Some(code)) => self.failed_with(code, Some(&error.string())),
            (_, Some(code)) => self.failed_with(code, None),
            (other, None) => {
                let advice = "run the job again; if it comes again, see what LOCKGATE_LOG=debug says".to_owned();
                self.error(Told { why: other.to_string(), advice, nature: Nature::Passing })
            }
        }
    }

    /// As [`failed`](Self::failed), for a code alone; `words` are those of the broker or of librdkafka.
    pub fn failed_with(&self, code: Code, words: Option<&str>) -> ConnectorError {
        // A request that was not answered in time says nothing; what kept the client from connecting does.
        let said = self.listener.and_then(Listener::last_error).filter(|_| is_silence(code));
        let (code, words) = match &said {
            Some((code, words)) => (*code, Some(words.as_str())),
            None => (code, words),
        };
        self.error(self.told(code, words))
    }

    /// A failure that has words of its own.
    pub fn because(&self, why: String, advice: String, may_pass: bool) -> ConnectorError {
        self.error(Told { why, advice, nature: if may_pass { Nature::Passing } else { Nature::Lasting } })
    }

    /// As [`because`](Self::because), for an answer that didn't come in time.
    pub fn silent(&self, why: String, advice: String) -> ConnectorError {
        self.error(Told { why, advice, nature: Nature::Silence })
    }

    /// What an error is if it is of the first that is asked of a cluster: where nobody even listens, that is no cluster that is only slow.
    pub fn at_first(&self, error: ConnectorError) -> ConnectorError {
        match error {
            ConnectorError::Silent { name, problem, advice } if !anybody_listens(self.brokers) => {
                ConnectorError::Kafka { name, problem, advice, may_pass: true }
            }
            other => other,
        }
    }

    /// As [`because`](Self::because), for what the cluster doesn't have or allow of that which the job file names.
    pub fn unfit(&self, why: String, advice: String) -> ConnectorError {
        self.error(Told { why, advice, nature: Nature::Unfit })
    }

    fn error(&self, Told { why, advice, nature }: Told) -> ConnectorError {
        let (name, problem) = (self.name.clone(), format!("cannot {} {}: {why}", self.action, self.what));
        match nature {
            Nature::Unfit => ConnectorError::Unfit { name, problem, advice },
            Nature::Silence => ConnectorError::Silent { name, problem, advice },
            Nature::Lasting => ConnectorError::Kafka { name, problem, advice, may_pass: false },
            Nature::Passing => ConnectorError::Kafka { name, problem, advice, may_pass: true },
        }
    }

    fn told(&self, code: Code, words: Option<&str>) -> Told {
        let (name, brokers, what) = (self.name, self.brokers, self.what);
        let details = words.map(|words| format!(" ({words})")).unwrap_or_default();
        let told = |why: &str, advice: String, nature| Told { why: format!("{why}{details}"), advice, nature };
        let unfit = |why: &str, advice: String| told(why, advice, Nature::Unfit);
        let lasting = |why: &str, advice: String| told(why, advice, Nature::Lasting);
        let passing = |why: &str, advice: String| told(why, advice, Nature::Passing);
        match code {
            Code::Authentication | Code::SaslAuthenticationFailed => unfit(
                &format!("{brokers} doesn't accept the client's credentials"),
                "check sasl.username, sasl.password and sasl.mechanism in properties or properties_file".to_owned(),
            ),
            Code::UnsupportedSASLMechanism | Code::IllegalSASLState => unfit(
                "the brokers don't offer this way to authenticate",
                "set security.protocol and sasl.mechanism in properties to what the brokers' listener expects".to_owned(),
            ),
            Code::SSL => unfit(
                &format!("no TLS connection to {brokers} can be made"),
                "check ssl.ca.location and the other ssl settings in properties, and that the port is one with TLS".to_owned(),
            ),
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::ClusterAuthorizationFailed => unfit(
                &format!("the brokers don't allow it to this client (no permission for {what})"),
                format!("add an ACL for {what} (kafka-acls.sh --add), or correct the credentials of '{name}'"),
            ),
            Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId => unfit(
                &format!("there is no such topic or partition at {brokers}"),
                format!("create it (kafka-topics.sh --create), or correct its name in '{name}'"),
            ),
            Code::InvalidTopic => unfit("that can't be the name of a topic", format!("correct it in '{name}'")),
            _ if is_silence(code) => told(
                &format!("no answer from {brokers}"),
                "check that Kafka runs there, and that brokers is an address by which this machine reaches it; nothing is lost".to_owned(),
                Nature::Silence,
            ),
            Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => lasting(
                "a record is larger than allowed",
                "raise max.message.bytes of the topic, and message.max.bytes in properties to the same".to_owned(),
            ),
            Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend | Code::ISRInsufficient => passing(
                "too few replicas are in sync",
                "see that all brokers run, or lower min.insync.replicas of the topic; nothing is lost".to_owned(),
            ),
            Code::InvalidTransactionTimeout => unfit(
                "transaction_timeout is longer than the brokers allow",
                "lower it, or raise transaction.max.timeout.ms of the brokers (15 minutes by default)".to_owned(),
            ),
            Code::ProducerFenced | Code::InvalidProducerEpoch | Code::Fenced => lasting(
                "another process has taken over its transactional id",
                "see that this job runs once only, and that no other program uses its transactional ids".to_owned(),
            ),
            Code::UnsupportedVersion | Code::UnsupportedFeature | Code::UnsupportedForMessageFormat => unfit(
                "the brokers are too old for it, or don't offer it",
                "use brokers of Kafka 2.5 or newer".to_owned(),
            ),
            Code::PolicyViolation | Code::InvalidRecord | Code::SecurityDisabled | Code::InvalidConfig => lasting(
                &code.to_string(),
                "correct the settings of the topic or of the brokers, or those of this connector".to_owned(),
            ),
            _ => passing(
                &code.to_string(),
                "run the job again: it continues from its last checkpoint and nothing is lost; if it comes again, see what the \
                 brokers' log says".to_owned(),
            ),
        }
    }
}

/// Whether a code says no more than that there was no answer; the client goes on asking by itself.
pub fn is_silence(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
            | Code::MessageTimedOut
            | Code::NetworkException
            | Code::BrokerNotAvailable
            | Code::WaitingForCoordinator
    )
}
