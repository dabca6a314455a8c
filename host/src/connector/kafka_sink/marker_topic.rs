//! The topic of the marker: made if it isn't there, checked if it is.
//!
//! Invariant: a marker that is written here stays until a newer one with its key is there.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::client::{partitions, partitions_for_certain};
use crate::connector::ConnectorError;
use crate::connector::kafka::{Client, Cluster, Doing};
use crate::id::Name;

/// The one partition of it that is used.
pub const PARTITION: i32 = 0;
/// For each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A topic that was just made is known to all brokers after this time.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(30);

/// What a topic is made with: markers replace each other, and are cleaned up soon, so that a start reads few of them.
const SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "1048576"),
    ("segment.ms", "3600000"),
    ("min.cleanable.dirty.ratio", "0.1"),
];

/// Makes sure that the topic is there and keeps what is written to it.
///
/// # Errors
/// If it can't be made, or keeps nothing for long.
pub fn ensure(cluster: &Cluster, name: &Name, topic: &str) -> Result<(), ConnectorError> {
    let what = format!("marker topic '{topic}'");
    let doing = Doing { name, brokers: &cluster.brokers, action: "look up", what: &what, listener: None };
    let admin = admin(cluster, &doing)?;
    match partitions(admin.inner(), &doing, topic) {
        Ok(Some(_)) => check(&admin, &doing, topic),
        Ok(None) => create(&admin, &doing, topic),
        Err(error) => Err(error),
    }
}

/// Whether the topic is there. It is asked for twice before it counts as missing.
///
/// # Errors
/// If nobody says.
pub fn is_there(cluster: &Cluster, name: &Name, topic: &str) -> Result<bool, ConnectorError> {
    let what = format!("marker topic '{topic}'");
    let doing = Doing { name, brokers: &cluster.brokers, action: "look up", what: &what, listener: None };
    Ok(partitions_for_certain(admin(cluster, &doing)?.inner(), &doing, topic)?.is_some())
}

/// As [`is_there`], asked for once: a topic that is too new for a broker counts as missing.
///
/// # Errors
/// If nobody says.
pub fn is_seen(cluster: &Cluster, name: &Name, topic: &str) -> Result<bool, ConnectorError> {
    let what = format!("marker topic '{topic}'");
    let doing = Doing { name, brokers: &cluster.brokers, action: "look up", what: &what, listener: None };
    Ok(partitions(admin(cluster, &doing)?.inner(), &doing, topic)?.is_some())
}

fn admin(cluster: &Cluster, doing: &Doing<'_>) -> Result<AdminClient<DefaultClientContext>, ConnectorError> {
    let config = cluster.config(doing.name, Client::Producer, &[("allow.auto.create.topics", "false")])?;
    config.create().map_err(|error| doing.failed(&error))
}

fn create(admin: &AdminClient<DefaultClientContext>, doing: &Doing<'_>, topic: &str) -> Result<(), ConnectorError> {
    let doing = Doing { action: "make", ..*doing };
    // As many replicas as the brokers give a topic by default.
    let mut new = NewTopic::new(topic, 1, TopicReplication::Fixed(-1));
    for (key, value) in SETTINGS {
        new = new.set(key, value);
    }
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT)).operation_timeout(Some(REQUEST_TIMEOUT));
    let made = wait(admin.create_topics([&new], &options)).map_err(|error| doing.failed(&error))?;
    match made.into_iter().next() {
        Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => {}
        Some(Err((_, code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)))) => {
            let why = code.to_string();
            let advice = format!(
                "allow '{}' to create it, or create it with one partition and cleanup.policy=compact",
                doing.name
            );
            return Err(doing.unfit(why, advice));
        }
        Some(Err((_, code))) => return Err(doing.failed_with(code, None)),
        None => return Err(doing.failed_with(Code::Unknown, None)),
    }
    let end = Instant::now() + APPEAR_TIMEOUT;
    while partitions(admin.inner(), &doing, topic)?.is_none() {
        if Instant::now() >= end {
            return Err(doing.failed_with(Code::OperationTimedOut, Some("it was made and doesn't appear")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    tracing::info!(name = %doing.name, topic, "made the topic of the marker");
    Ok(())
}

/// An existing one must not lose the marker.
fn check(admin: &AdminClient<DefaultClientContext>, doing: &Doing<'_>, topic: &str) -> Result<(), ConnectorError> {
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
    let described = wait(admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options));
    let described = described.map_err(|error| doing.failed(&error))?;
    match described.into_iter().next() {
        Some(Ok(settings)) => {
            let policy = policy(&settings);
            if keeps(policy) {
                return Ok(());
            }
            let why = format!("its cleanup.policy is {policy}, so that the marker would be deleted by time");
            let advice = format!(
                "set cleanup.policy=compact for topic '{topic}' (kafka-configs.sh --alter), or name another marker_topic"
            );
            Err(doing.unfit(why, advice))
        }
        Some(Err(code)) => {
            tracing::warn!(name = %doing.name, topic, "cannot check that the marker's topic is compacted: {code}");
            Ok(())
        }
        None => Ok(()),
    }
}

fn policy(settings: &ConfigResource) -> &str {
    settings.get("cleanup.policy").and_then(|entry| entry.value.as_deref()).unwrap_or_default()
}

/// Compacted, and nothing else.
fn keeps(policy: &str) -> bool {
    policy.trim() == "compact"
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for an answer that comes by itself or times out.
fn wait<T>(answer: impl Future<Output = Result<T, KafkaError>>) -> Result<T, KafkaError> {
    let mut answer = pin!(answer);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Makes a topic.
#[cfg(test)]
pub fn tests_make(brokers: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut config = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        config.set("bootstrap.servers", brokers).create().expect("an admin client");
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    for (key, value) in settings {
        new = new.set(key, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
    let made = wait(admin.create_topics([&new], &options)).expect("asked");
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let has_leaders = || {
        let metadata = admin.inner().fetch_metadata(Some(topic), REQUEST_TIMEOUT).expect("metadata");
        let partitions_of = metadata.topics()[0].partitions();
        partitions_of.len() == partitions as usize && partitions_of.iter().all(|partition| partition.leader() >= 0)
    };
    let end = Instant::now() + APPEAR_TIMEOUT;
    while !has_leaders() {
        assert!(Instant::now() < end, "the topic appears");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_topic_that_is_compacted_and_never_deleted_keeps_the_marker() {
        for (policy, is_kept) in [
            ("compact", true),
            (" compact ", true),
            ("delete", false),
            ("compact,delete", false),
            ("delete,compact", false),
            ("", false),
        ] {
            assert_eq!(keeps(policy), is_kept, "{policy}");
        }
    }

    #[test]
    fn an_answer_from_another_thread_is_waited_for() {
        let (to, from) = tokio::sync::oneshot::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || to.send(7));
            assert_eq!(wait(async { from.await.map_err(|_| KafkaError::Canceled) }), Ok(7));
        });
    }
}
