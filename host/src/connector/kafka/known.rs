//! The settings of librdkafka by name: which kind of client each is for, which hold secrets, which was meant by a misspelt one.
//!
//! Invariant: librdkafka decides whether there is a setting; what isn't here is passed on to it for both kinds of client.

use super::Client;
use crate::graph::nearest;

/// Those that a user may want and that only consumers know.
const OF_CONSUMERS: [&str; 4] =
    ["fetch.wait.max.ms", "fetch.min.bytes", "fetch.error.backoff.ms", "coordinator.query.interval.ms"];

/// Those that only producers know.
const OF_PRODUCERS: [&str; 13] = [
    "linger.ms",
    "queue.buffering.max.ms",
    "queue.buffering.backpressure.threshold",
    "compression.codec",
    "compression.type",
    "compression.level",
    "batch.num.messages",
    "batch.size",
    "sticky.partitioning.linger.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "produce.offset.report",
];

const OF_BOTH: [&str; 53] = [
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "enable.metrics.push",
    "message.max.bytes",
    "message.copy.max.bytes",
    "receive.message.max.bytes",
    "metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.sparse",
    "topic.metadata.propagation.max.ms",
    "metadata.max.age.ms",
    "debug",
    "socket.timeout.ms",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.max.fails",
    "socket.connection.setup.timeout.ms",
    "broker.address.ttl",
    "broker.address.family",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "security.protocol",
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.crl.location",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
];

/// Parts of names whose values are secrets.
const SECRET: [&str; 7] = ["password", "secret", "passphrase", ".pem", "oauthbearer.config", "jaas", "extensions"];

/// Whether a setting means something to this kind of client; source and sink may share a file.
pub fn is_for(name: &str, client: Client) -> bool {
    match client {
        Client::Consumer => !OF_PRODUCERS.contains(&name),
        Client::Producer => !OF_CONSUMERS.contains(&name),
    }
}

/// Whether the value of a setting is never to be shown.
pub fn is_secret(name: &str) -> bool {
    SECRET.iter().any(|part| name.contains(part))
}

/// What to say of a setting that librdkafka doesn't know.
pub fn unknown(name: &str) -> String {
    let known = OF_CONSUMERS.into_iter().chain(OF_PRODUCERS).chain(OF_BOTH);
    match nearest(name, known) {
        Some(near) => format!("librdkafka has no setting '{name}'; did you mean '{near}'?"),
        None => format!("librdkafka has no setting '{name}'; its CONFIGURATION.md lists those it has"),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;

    use super::super::refused;
    use super::*;

    #[test]
    fn librdkafka_knows_each_of_them_and_none_is_refused() {
        for name in OF_CONSUMERS.into_iter().chain(OF_PRODUCERS).chain(OF_BOTH) {
            assert_eq!(refused::reason(name, "1"), None, "{name}");
            // The value is nothing that most of them can have, which is another error.
            let refused = ClientConfig::new().set(name, "?").create_native_config().err();
            assert!(
                refused.is_none_or(|error| !error.to_string().contains("No such configuration property")),
                "{name}"
            );
        }
    }

    #[test]
    fn a_misspelt_one_is_told_with_what_was_meant() {
        assert!(unknown("security.protocl").contains("did you mean 'security.protocol'?"));
        assert!(unknown("sasl.pasword").contains("'sasl.password'"));
        assert!(unknown("xyzzy").contains("CONFIGURATION.md"));
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in ["sasl.password", "ssl.key.pem", "ssl.keystore.password", "sasl.oauthbearer.client.secret"] {
            assert!(is_secret(name), "{name}");
        }
        assert!(!is_secret("sasl.username") && !is_secret("security.protocol"));
    }
}
