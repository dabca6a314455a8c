//! What can go wrong between here and a broker.
//!
//! Invariant: an error names the broker and the request, says what to do, and has no password in it.

use std::io;
use std::time::Duration;

use kafka_protocol::ResponseError;

use super::Address;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A setting of librdkafka that these connections can't follow. `advice` says what to do.
    #[error("{key} {problem}")]
    Setting { key: String, problem: String, advice: String },
    #[error("cannot reach {broker}: {source}")]
    Unreachable { broker: Address, source: io::Error },
    /// Not one of several answers.
    #[error("no broker can be reached: {}", said(tried))]
    NoBroker { tried: Vec<WireError> },
    #[error("{broker} gives no answer to {request} within {} s", limit.as_secs())]
    TooSlow { broker: Address, request: &'static str, limit: Duration },
    #[error("{broker} breaks the connection off at {request}: {source}")]
    Broken { broker: Address, request: &'static str, source: io::Error },
    #[error("cannot make a TLS connection to {broker}: {problem}")]
    Tls { broker: Address, problem: String },
    #[error("{broker} doesn't let the user '{user}' in by {mechanism}: {problem}")]
    Login { broker: Address, user: String, mechanism: &'static str, problem: String },
    #[error("{broker} answers {request} with something unreadable: {problem}")]
    Garbled { broker: Address, request: &'static str, problem: String },
    #[error("{broker} doesn't know {request} in a version that is spoken here")]
    TooOld { broker: Address, request: &'static str, since: &'static str },
    #[error("{broker} refuses {request} for {what}: {error}")]
    Refused { broker: Address, request: &'static str, what: String, error: ResponseError },
    /// It is named as a coordinator or leader, and nobody knows its address.
    #[error("the cluster names broker {node}, but not where it is")]
    Nowhere { node: i32 },
}

fn said(tried: &[WireError]) -> String {
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl WireError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            WireError::Setting { advice, .. } => advice.clone(),
            WireError::Unreachable { .. } | WireError::NoBroker { .. } | WireError::Nowhere { .. } => {
                "check 'brokers', that they run, and that their advertised.listeners can be reached from here"
                    .to_owned()
            }
            WireError::TooSlow { .. } | WireError::Broken { .. } => "check the broker and its log, and that \
                'security.protocol' is the one of this listener: a listener of another one hangs or breaks off"
                .to_owned(),
            WireError::Tls { .. } => {
                "check that this listener speaks TLS, that ssl.ca.location has the certificate of who \
                signed the broker's, and that the broker's certificate is for this host name"
                    .to_owned()
            }
            WireError::Login { .. } => {
                "check sasl.mechanism, sasl.username and sasl.password against the users of the cluster".to_owned()
            }
            WireError::Garbled { .. } => {
                "check that this address is a Kafka broker, and that 'security.protocol' is the one of this listener"
                    .to_owned()
            }
            WireError::TooOld { since, .. } => format!("it needs brokers of Kafka {since} or newer"),
            WireError::Refused { error, .. } => refused_help(*error).to_owned(),
        }
    }

    /// Whether a broker has said that it may be otherwise in a moment.
    pub(super) fn is_busy(&self) -> bool {
        self.refusal().is_some_and(|error| error.is_retriable())
    }

    /// Whether it may be otherwise in a moment: no settings and no versions keep us out.
    pub fn may_pass(&self) -> bool {
        let is_away = matches!(
            self,
            WireError::Unreachable { .. }
                | WireError::NoBroker { .. }
                | WireError::TooSlow { .. }
                | WireError::Broken { .. }
        );
        is_away || self.is_busy()
    }

    /// What a broker has said, if that is what it is.
    pub fn refusal(&self) -> Option<ResponseError> {
        match self {
            WireError::Refused { error, .. } => Some(*error),
            _ => None,
        }
    }
}

fn refused_help(error: ResponseError) -> &'static str {
    match error {
        ResponseError::ClusterAuthorizationFailed
        | ResponseError::TopicAuthorizationFailed
        | ResponseError::GroupAuthorizationFailed
        | ResponseError::TransactionalIdAuthorizationFailed => "give this user the right by kafka-acls.sh",
        error if error.is_retriable() => "the cluster is busy with itself; try again in a moment",
        _ => "look at the broker's log",
    }
}
