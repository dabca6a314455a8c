//! The settings of librdkafka that a job file can't set, each with its reason. Pure.
//!
//! Invariant: whatever exactly-once, order, memory or the host's own view of its clients depends on is here.

const BROKERS: &str = "say it with the key brokers";
const GROUP: &str =
    "say it with the key group of the source; the host reads the partitions it deals out itself, without joining it";
const NO_MEMBER: &str =
    "it is for members of a consumer group; the host deals out the partitions itself, and joins none";
const OFFSETS: &str = "the host keeps the offsets in its checkpoints, and commits them when these are";
const START: &str =
    "say it with the key start of the source; an offset that isn't there any more is an error, never a leap";
const ISOLATION: &str = "say it with the key isolation of the source";
const GUARANTEE: &str = "the host sets it by the job's guarantee";
const TRANSACTIONS: &str = "the host makes the transactional ids of a job, by which a second process is shut out";
const TRANSACTION_TIMEOUT: &str = "say it with the key transaction_timeout of the sink; the host watches it";
const DELIVERY: &str = "the host decides how long a record is tried: one that is given up would be lost";
const ORDER: &str = "with more than 5 the order of records is not kept when one has to be sent again";
const QUEUE_ORDER: &str = "the order of records would no longer be kept";
const PARTITION: &str = "say it with the key partition of the sink";
const BUFFER: &str = "say it with the key buffer, which bounds the memory of all queues together";
const REPORTS: &str = "the host needs every report to know what was written";
const NATIVE: &str = "it loads native code into the host";
const COMMAND: &str = "it runs a command";
const STATISTICS: &str = "the host takes its metrics from it";
const LOGS: &str =
    "the host's own log has its lines: LOCKGATE_LOG=debug shows more, and \"debug\" in properties the most";
const CALLBACK: &str = "it can't be given as text";
const TOPICS: &str = "a topic that is missing is an error; create it, so that it has the partitions that you mean";
const IGNORED: &str = "the client would take these topics for topics that aren't there, and never read or write them; topics, topic_pattern and topic say \
     which are meant";
const OLD_BROKERS: &str =
    "the client would take the brokers for ones that know no headers and no transactions; it asks them what they know";
const SIGNALS: &str = "the host handles its signals itself";
const CHECKED: &str = "the host sets it, so that damaged records are found";

/// Of the Java client, and what librdkafka has for it.
const PEM: &str = "it is a setting of the Java client; here certificates are PEM files: ssl.ca.location, or ssl.keystore.location for a \
                   PKCS#12 file";
const JAAS: &str = "it is a setting of the Java client; here it is sasl.username and sasl.password";
const SERIALIZER: &str = "it is a setting of the Java client; records are bytes here, which operators make sense of";

const REFUSED: [(&str, &str); 81] = [
    ("bootstrap.servers", BROKERS),
    ("metadata.broker.list", BROKERS),
    ("group.id", GROUP),
    ("group.instance.id", NO_MEMBER),
    ("group.protocol", NO_MEMBER),
    ("group.protocol.type", NO_MEMBER),
    ("group.remote.assignor", NO_MEMBER),
    ("partition.assignment.strategy", NO_MEMBER),
    ("session.timeout.ms", NO_MEMBER),
    ("heartbeat.interval.ms", NO_MEMBER),
    ("max.poll.interval.ms", NO_MEMBER),
    ("max.poll.records", NO_MEMBER),
    ("enable.auto.commit", OFFSETS),
    ("auto.commit.enable", OFFSETS),
    ("auto.commit.interval.ms", OFFSETS),
    ("enable.auto.offset.store", OFFSETS),
    ("offset.store.method", OFFSETS),
    ("offset.store.path", OFFSETS),
    ("offset.store.sync.interval.ms", OFFSETS),
    ("auto.offset.reset", START),
    ("enable.partition.eof", "the host needs it to know when a partition is read"),
    ("isolation.level", ISOLATION),
    ("check.crcs", CHECKED),
    ("allow.auto.create.topics", TOPICS),
    ("topic.blacklist", IGNORED),
    ("api.version.request", OLD_BROKERS),
    ("api.version.fallback.ms", OLD_BROKERS),
    ("broker.version.fallback", OLD_BROKERS),
    ("builtin.features", "it tells what the client can do, and a shorter list would take that away"),
    ("transactional.id", TRANSACTIONS),
    ("transaction.timeout.ms", TRANSACTION_TIMEOUT),
    ("enable.idempotence", GUARANTEE),
    ("enable.gapless.guarantee", GUARANTEE),
    ("acks", GUARANTEE),
    ("request.required.acks", GUARANTEE),
    ("retries", DELIVERY),
    ("message.send.max.retries", DELIVERY),
    ("message.timeout.ms", DELIVERY),
    ("delivery.timeout.ms", DELIVERY),
    ("max.in.flight", ORDER),
    ("max.in.flight.requests.per.connection", ORDER),
    ("queuing.strategy", QUEUE_ORDER),
    ("msg_order_cmp", CALLBACK),
    ("partitioner", PARTITION),
    ("partitioner_cb", PARTITION),
    ("partitioner.class", PARTITION),
    ("queue.buffering.max.messages", BUFFER),
    ("queue.buffering.max.kbytes", BUFFER),
    ("buffer.memory", BUFFER),
    ("queued.min.messages", BUFFER),
    ("queued.max.messages.kbytes", BUFFER),
    ("fetch.queue.backoff.ms", BUFFER),
    ("fetch.message.max.bytes", BUFFER),
    ("max.partition.fetch.bytes", BUFFER),
    ("fetch.max.bytes", BUFFER),
    ("delivery.report.only.error", REPORTS),
    ("consume.callback.max.messages", CALLBACK),
    ("plugin.library.paths", NATIVE),
    ("ssl.engine.location", NATIVE),
    ("ssl.engine.id", NATIVE),
    ("ssl.providers", NATIVE),
    ("sasl.kerberos.kinit.cmd", COMMAND),
    ("statistics.interval.ms", STATISTICS),
    ("enabled_events", CALLBACK),
    ("log_level", LOGS),
    ("log.queue", LOGS),
    ("log.connection.close", LOGS),
    ("internal.termination.signal", SIGNALS),
    ("interceptors", NATIVE),
    ("opaque", CALLBACK),
    ("default_topic_conf", CALLBACK),
    ("sasl.jaas.config", JAAS),
    ("sasl.login.callback.handler.class", JAAS),
    ("ssl.truststore.location", PEM),
    ("ssl.truststore.password", PEM),
    ("ssl.truststore.type", PEM),
    ("ssl.keystore.type", PEM),
    ("key.serializer", SERIALIZER),
    ("value.serializer", SERIALIZER),
    ("key.deserializer", SERIALIZER),
    ("value.deserializer", SERIALIZER),
];

/// So many requests may be under way on a connection while the order of records is kept.
const IN_FLIGHT_MAX: u32 = 5;

/// Why a setting is refused, if it is.
pub fn reason(name: &str, value: &str) -> Option<&'static str> {
    let few_in_flight = || value.trim().parse::<u32>().is_ok_and(|requests| requests <= IN_FLIGHT_MAX);
    if name.starts_with("max.in.flight") && few_in_flight() {
        return None;
    }
    let name = name.strip_prefix("topic.").filter(|rest| known_topic_setting(rest)).unwrap_or(name);
    let refused = REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, reason)| *reason);
    // Those that take a function or a handle.
    refused.or_else(|| (name.ends_with("_cb") || name.starts_with("test.mock.")).then_some(CALLBACK))
}

/// librdkafka once took the settings of topics with this prefix.
fn known_topic_setting(rest: &str) -> bool {
    REFUSED.iter().any(|(refused, _)| *refused == rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_refused_once_with_a_reason_and_what_nothing_depends_on_is_not() {
        for (name, reason) in REFUSED {
            assert_eq!(REFUSED.iter().filter(|(other, _)| *other == name).count(), 1, "{name}");
            assert_eq!(super::reason(name, "6"), Some(reason));
            assert!(reason.len() > 10 && !reason.ends_with('.'), "{name}: {reason}");
        }
        assert_eq!(reason("dr_msg_cb", ""), Some(CALLBACK));
        assert_eq!(reason("topic.acks", "all"), Some(GUARANTEE));
        for name in [
            "linger.ms",
            "security.protocol",
            "sasl.password",
            "topic.metadata.refresh.interval.ms",
            "debug",
            "max.in.flight",
        ] {
            assert_eq!(reason(name, "1"), None);
        }
    }
}
