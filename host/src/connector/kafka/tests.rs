//! What is refused of a cluster before anything is connected to, what its clients are configured with, how failures are told.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::*;
use crate::connector::{ConnectorError, said};
use crate::id::Name;

fn cluster<const N: usize>(brokers: &str, properties: [(&str, &str); N]) -> Cluster {
    Cluster { brokers: brokers.to_owned(), properties: Properties::from_iter(properties), properties_file: None }
}

fn name() -> Name {
    Name::new("orders").expect("a name")
}

#[test]
fn brokers_are_addresses() {
    for brokers in ["localhost:9092", "a:1,b:2, c", "[::1]:9092", "10.0.0.1"] {
        assert_eq!(cluster(brokers, []).validate(), Ok(()), "{brokers}");
    }
    for brokers in
        ["", "a,,b", "a:", ":9092", "a:x", "a:0", "a:70000", "::1:9092", "http://a:1", "a:1,ssl://b:2", "ssl://a"]
    {
        let bad = cluster(brokers, []).validate().expect_err(brokers);
        assert!(bad.key == "brokers" && bad.to_string().contains("host:port"), "{bad}");
    }
}

#[test]
fn settings_are_refused_by_name_and_their_values_stay_unsaid() {
    for (setting, value, says) in [
        ("group.id", "hunter2", "the key group"),
        ("enable.auto.commit", "hunter2", "checkpoints"),
        ("plugin.library.paths", "hunter2", "native code"),
        ("sasl.jaas.config", "hunter2", "sasl.username and sasl.password"),
        ("sasl.pasword", "hunter2", "did you mean 'sasl.password'"),
        ("socket.timeout.ms", "soon", "socket.timeout.ms"),
        ("security.protocol", "TLS", "security.protocol"),
        ("client.id", "a\0b", "byte 0"),
    ] {
        let bad = cluster("a:1", [(setting, value)]).validate().expect_err(setting);
        let text = bad.to_string();
        assert!(bad.key == "properties" && text.contains(says) && !text.contains("hunter2"), "{text}");
    }
    let good = [("security.protocol", "SASL_SSL"), ("sasl.mechanism", "PLAIN"), ("sasl.password", "hunter2")];
    assert_eq!(cluster("a:1", good).validate(), Ok(()));
    assert!(!format!("{:?}", cluster("a:1", good)).contains("hunter2"));
}

#[test]
fn a_file_gives_settings_that_the_job_file_overrules_and_the_host_has_the_last_word() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("kafka.properties"), "client.id=file\nlinger.ms=7\nsasl.password=p=w\n")
        .expect("written");
    let mut cluster = cluster("a:1", [("client.id", "job")]);
    cluster.properties_file = Some("kafka.properties".into());
    cluster.resolve(folder.path());
    assert_eq!(cluster.validate(), Ok(()));
    let config = |client| cluster.config(&name(), client, &[("group.id", "g")]).expect("a configuration");
    let (consumer, producer) = (config(Client::Consumer), config(Client::Producer));
    assert_eq!([consumer.get("client.id"), consumer.get("sasl.password")], [Some("job"), Some("p=w")]);
    assert_eq!([consumer.get("linger.ms"), producer.get("linger.ms")], [None, Some("7")]);
    assert_eq!([consumer.get("bootstrap.servers"), consumer.get("group.id")], [Some("a:1"), Some("g")]);
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_name_and_without_its_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kafka.properties");
    for (text, says) in [
        ("acks=all\n", "guarantee"),
        ("hunter2\n", "line 1 isn't name=value"),
        ("ssl.keystore.passwrd=hunter2\n", "did you mean 'ssl.keystore.password'"),
    ] {
        std::fs::write(&path, text).expect("written");
        let cluster = Cluster { properties_file: Some(path.clone()), ..cluster("a:1", []) };
        let error = said(&cluster.config(&name(), Client::Consumer, &[]).expect_err(text));
        let names_it = error.contains("kafka.properties") && error.contains("'orders'");
        assert!(names_it && error.contains(says) && !error.contains("hunter2"), "{error}");
    }
    let missing = Cluster { properties_file: Some(folder.path().join("missing")), ..cluster("a:1", []) };
    let error = said(&missing.config(&name(), Client::Consumer, &[]).expect_err("no such file"));
    assert!(error.contains("cannot read its properties_file") && error.contains("No such file"), "{error}");
    assert!(error.contains("correct properties_file") && !error.contains("checkpoint"), "{error}");
}

#[test]
fn a_failure_says_what_where_and_whether_it_may_pass() {
    let name = name();
    let listener = Listener::new(&name);
    let doing =
        Doing { name: &name, brokers: "a:1", action: "read", what: "topic 'orders'", listener: Some(&listener) };
    let nature = |error: &ConnectorError| match error {
        ConnectorError::Unfit { .. } => "unfit",
        ConnectorError::Silent { .. } => "silent",
        ConnectorError::Kafka { may_pass: true, .. } => "passing",
        ConnectorError::Kafka { may_pass: false, .. } => "lasting",
        other => panic!("{other:?}"),
    };
    for (code, expected, says) in [
        (Code::OperationTimedOut, "silent", "no answer from a:1"),
        (Code::AllBrokersDown, "silent", "no answer from a:1"),
        (Code::TopicAuthorizationFailed, "unfit", "no permission for topic 'orders'"),
        (Code::UnknownTopicOrPartition, "unfit", "no such topic"),
        (Code::SaslAuthenticationFailed, "unfit", "credentials"),
        (Code::SSL, "unfit", "TLS"),
        (Code::InvalidTransactionTimeout, "unfit", "transaction.max.timeout.ms"),
        (Code::LeaderNotAvailable, "passing", "LeaderNotAvailable"),
        (Code::ProducerFenced, "lasting", "another process"),
        (Code::MessageSizeTooLarge, "lasting", "larger"),
    ] {
        let error = doing.failed_with(code, None);
        assert_eq!(nature(&error), expected, "{error:?}");
        let text = said(&error);
        assert!(text.starts_with("orders: cannot read topic 'orders': ") && text.contains(says), "{text}");
    }
}

#[test]
fn an_administrator_who_gets_no_answer_is_not_told_of_another_failure() {
    let name = name();
    let doing = Doing { name: &name, brokers: "a:1", action: "make", what: "topic 'x'", listener: None };
    let error = doing.failed(&KafkaError::AdminOp(Code::OperationTimedOut));
    assert!(matches!(error, ConnectorError::Silent { .. }) && said(&error).contains("no answer from a:1"), "{error:?}");
}

#[test]
fn a_silence_is_told_with_its_cause() {
    use rdkafka::ClientContext;
    let name = name();
    let listener = Listener::new(&name);
    listener.error(KafkaError::Global(Code::Authentication), "SASL authentication error: wrong password");
    let doing = Doing { name: &name, brokers: "a:1", action: "read", what: "topic 'x'", listener: Some(&listener) };
    let error = doing.failed(&KafkaError::MetadataFetch(Code::OperationTimedOut));
    let text = said(&error);
    assert!(text.contains("credentials") && text.contains("wrong password"), "{text}");
    assert!(matches!(error, ConnectorError::Unfit { .. }));
    // What is no silence has its own cause.
    assert!(!said(&doing.failed_with(Code::UnknownTopic, None)).contains("password"));
}
