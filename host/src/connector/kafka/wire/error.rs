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
    /// A listener that answers without TLS.
    #[error("{broker} doesn't speak TLS, which security.protocol asks for")]
    NoTls { broker: Address },
    #[error("{broker} speaks TLS only, and security.protocol doesn't ask for it")]
    TlsOnly { broker: Address },
    /// A listener that knows nobody.
    #[error("{broker} takes no login, which security.protocol asks for")]
    NoLogin { broker: Address },
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

/// What is asked first on a connection: a listener of another protocol lets nothing get further.
const OF_A_GREETING: [&str; 4] = ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster"];

impl WireError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            WireError::Setting { advice, .. } => advice.clone(),
            WireError::Unreachable { .. } | WireError::NoBroker { .. } | WireError::Nowhere { .. } => {
                "check 'brokers', that they run, and that their advertised.listeners can be reached from here"
                    .to_owned()
            }
            WireError::TooSlow { request, .. } | WireError::Broken { request, .. } if OF_A_GREETING.contains(request) => {
                "check the broker and its log, and that 'security.protocol' is the one of this listener: a listener of another one \
                 hangs or breaks off"
                    .to_owned()
            }
            WireError::TooSlow { .. } | WireError::Broken { .. } => {
                "check that the broker runs, and its log, and do the same again: what is done already isn't done twice".to_owned()
            }
            WireError::Tls { .. } => {
                "check that this listener speaks TLS, that ssl.ca.location has the certificate of who \
                signed the broker's, and that the broker's certificate is for this host name"
                    .to_owned()
            }
            WireError::NoTls { .. } => "set \"security.protocol\" in properties or properties_file to \"plaintext\", or with a login to \
                \"sasl_plaintext\"; or let brokers name a listener that speaks TLS"
                .to_owned(),
            WireError::TlsOnly { .. } => "set \"security.protocol\" in properties or properties_file to \"ssl\", or with a login to \
                \"sasl_ssl\" (and ssl.ca.location to the certificate of who signed the broker's); or let brokers name a listener \
                without TLS"
                .to_owned(),
            WireError::NoLogin { .. } => "set \"security.protocol\" in properties or properties_file to \"plaintext\", or with TLS to \"ssl\"; \
                or let brokers name a listener that users log in to"
                .to_owned(),
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
                | WireError::Nowhere { .. }
                | WireError::TooSlow { .. }
                | WireError::Broken { .. }
        );
        is_away || self.is_busy()
    }

    /// Whether the listener speaks another protocol than the settings say.
    pub fn is_of_protocol(&self) -> bool {
        matches!(self, WireError::NoTls { .. } | WireError::TlsOnly { .. } | WireError::NoLogin { .. })
    }

    /// Whether one of the two sides doesn't trust the other.
    pub fn is_of_trust(&self) -> bool {
        matches!(self, WireError::Tls { .. } | WireError::Login { .. })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_suspected_only_where_nothing_has_got_through_yet() {
        let broken = |request| {
            let broker = Address { host: "a".to_owned(), port: 1 };
            WireError::Broken { broker, request, source: io::ErrorKind::ConnectionReset.into() }.help()
        };
        assert!(broken("ApiVersions").contains("security.protocol") && broken("DescribeCluster").contains("listener"));
        for request in ["InitProducerId", "DescribeTransactions"] {
            let help = broken(request);
            assert!(!help.contains("security.protocol") && help.contains("do the same again"), "{help}");
        }
    }
}
