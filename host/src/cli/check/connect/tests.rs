//! What is said of each thing that may be wrong on a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::facts::{Facts, MarkerFacts, TopicFacts, Unread};
use super::finding::{Answered, Connected, Finding, Level};
use super::judge;
use super::wanted::{WantedSink, WantedSource, WantedTopics, WantedTransaction};
use crate::connector::kafka::wire::{Configs, Group, Operation, Operations, Partition, ResponseError, Topic};
use crate::connector::kafka::{Cluster, Properties};
use crate::id::Name;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn cluster() -> Cluster {
    Cluster { brokers: "k:9092".to_owned(), properties: Properties::default(), properties_file: None }
}

fn source() -> WantedSource {
    let topics = WantedTopics::Named(vec!["orders".to_owned()]);
    let (read_before, starts) = (BTreeSet::new(), BTreeMap::new());
    WantedSource { name: name("orders"), cluster: cluster(), topics, group: "g".to_owned(), read_before, starts }
}

fn sink() -> WantedSink {
    let transaction = WantedTransaction {
        timeout: Duration::from_secs(300),
        marker_topic: "marker".to_owned(),
        ids: vec!["copy/0/A".to_owned()],
    };
    WantedSink {
        name: name("out"),
        cluster: cluster(),
        topic: "out".to_owned(),
        partition: None,
        transaction: Some(transaction),
    }
}

fn every_right() -> Option<Operations> {
    use Operation::{Create, Describe, DescribeConfigs, Read, Write};
    Some(Operations::of(&[Create, Describe, DescribeConfigs, Read, Write]))
}

fn topic(name: &str, policy: &str) -> (String, TopicFacts) {
    let partition = |index| Partition { index, leader: Some(1), replicas: 3, in_sync: 3 };
    let partitions = if name == "marker" { vec![partition(0)] } else { vec![partition(0), partition(1)] };
    let topic = Topic { name: name.to_owned(), error: None, internal: false, partitions, operations: every_right() };
    let configs =
        Configs::of([("cleanup.policy", policy), ("min.insync.replicas", "2"), ("max.message.bytes", "1048588")]);
    (name.to_owned(), TopicFacts { topic, configs: Some(configs) })
}

/// A cluster on which nothing is wrong.
fn facts() -> Facts {
    let limits = Configs::of([("transaction.max.timeout.ms", "900000"), ("offsets.retention.minutes", "10080")]);
    let group = Group { name: "g".to_owned(), members: Vec::new(), operations: every_right() };
    Facts {
        cluster: "C1".to_owned(),
        operations: every_right(),
        brokers: BTreeMap::from([(1, Ok(limits))]),
        topics: BTreeMap::from([topic("orders", "delete"), topic("out", "delete"), topic("marker", "compact")]),
        matching: BTreeMap::new(),
        groups: BTreeMap::from([("g".to_owned(), Ok(group))]),
        ids: BTreeMap::from([("copy/0/A".to_owned(), Ok(()))]),
        message_bytes_max: 1_000_000,
        marker: Some(MarkerFacts { job_uid: Some("u1".to_owned()), own_uid: Some("u1".to_owned()) }),
        is_marker_missed: false,
    }
}

fn judged(facts: &Facts) -> Vec<Finding> {
    let sink = sink();
    let transaction = sink.transaction.as_ref().expect("exactly-once");
    let mut found = judge::brokers(facts);
    found.extend(judge::source(&source(), facts));
    found.extend(judge::sink(&sink, facts));
    found.extend(judge::transaction(&sink, transaction, facts));
    found.extend(judge::marker(&sink, "marker", facts));
    found
}

/// Changes one thing on a good cluster, and expects one finding for it.
#[track_caller]
fn expect(level: Level, change: impl FnOnce(&mut Facts), says: &[&str]) {
    let mut facts = facts();
    change(&mut facts);
    let found = judged(&facts);
    let found = found.iter().filter(|finding| finding.level != Level::Note).collect::<Vec<_>>();
    let [finding] = found[..] else { panic!("{found:#?}") };
    let said = format!("{}: {}; {}", finding.about, finding.text, finding.help.as_deref().expect("advice"));
    assert_eq!(finding.level, level, "{said}");
    says.iter().for_each(|says| assert!(said.contains(says), "'{says}' in: {said}"));
}

fn of<'a>(facts: &'a mut Facts, name: &str) -> &'a mut TopicFacts {
    facts.topics.get_mut(name).expect("a topic")
}

#[test]
fn on_a_good_cluster_there_is_nothing_to_complain_about() {
    let connected = Connected {
        clusters: vec![Answered { cluster: "C1".to_owned(), broker: "k:9092".to_owned(), brokers: 3 }],
        findings: judged(&facts()),
    };
    let expected = "
kafka
  cluster C1: 3 brokers; k:9092 answered
  source orders: topic orders: 2 partitions, 3 replicas
  source orders: group g: Kafka keeps its offsets for 7d without a commit; the job goes on from its checkpoint
  sink out: topic out: 2 partitions, 3 replicas
  sink out: transactions of at most 5m; the brokers allow 15m
  sink out: marker topic marker: 1 partition, 3 replicas
  sink out: marker topic marker: it has the marker of this job
";
    assert_eq!(connected.to_string(), expected);
}

#[test]
fn findings_are_told_as_other_warnings_and_errors_are() {
    let findings =
        vec![Finding::error("sink out", "no topic", "make it"), Finding::warning("sink out", "old", "renew it")];
    let connected = Connected { clusters: Vec::new(), findings };
    let expected = "
kafka

warning: sink out: old
help: renew it

error: sink out: no topic
help: make it
";
    assert_eq!(connected.to_string(), expected);
}

#[test]
fn topics_that_cannot_be_used_are_errors() {
    let missing = |name: &'static str| {
        move |facts: &mut Facts| of(facts, name).topic.error = Some(ResponseError::UnknownTopicOrPartition)
    };
    expect(Level::Error, missing("orders"), &["source orders", "no topic 'orders'", "kafka-topics.sh --create"]);
    expect(Level::Error, missing("out"), &["sink out", "no topic 'out'", "makes none for its output"]);
    let hidden = |facts: &mut Facts| of(facts, "out").topic.error = Some(ResponseError::TopicAuthorizationFailed);
    expect(Level::Error, hidden, &["may not see topic 'out'", "kafka-acls.sh"]);
    let leaderless = |facts: &mut Facts| of(facts, "orders").topic.partitions[1].leader = None;
    expect(Level::Error, leaderless, &["partition 1 of topic 'orders' has no leader"]);
    let behind = |facts: &mut Facts| of(facts, "out").topic.partitions[0].in_sync = 1;
    expect(Level::Error, behind, &["partition 0 of topic 'out'", "min.insync.replicas of 2"]);
}

#[test]
fn a_topic_that_the_job_has_read_and_that_is_gone_is_not_to_be_created_again() {
    let mut facts = facts();
    of(&mut facts, "orders").topic.error = Some(ResponseError::UnknownTopicOrPartition);
    let source = WantedSource { read_before: BTreeSet::from(["orders".to_owned()]), ..source() };
    let finding = judge::source(&source, &facts).remove(0);
    let help = finding.help.expect("advice");
    assert!(finding.level == Level::Error && finding.text.contains("no topic 'orders' any more"), "{}", finding.text);
    assert!(help.contains("another topic") && help.contains("new name") && !help.contains("--create"), "{help}");
}

#[test]
fn too_few_replicas_are_a_warning() {
    let one = |facts: &mut Facts| {
        of(facts, "orders")
            .topic
            .partitions
            .iter_mut()
            .for_each(|partition| (partition.replicas, partition.in_sync) = (1, 1));
    };
    expect(Level::Warning, one, &["topic 'orders' has one replica"]);
    let few = |facts: &mut Facts| {
        of(facts, "out").configs = Some(Configs::of([("min.insync.replicas", "4")]));
    };
    expect(Level::Warning, few, &["3 replicas, fewer than its min.insync.replicas of 4"]);
}

#[test]
fn missing_rights_are_errors_with_the_command_that_gives_them() {
    let only = |operation| Some(Operations::of(&[operation, Operation::Describe]));
    let read = |facts: &mut Facts| of(facts, "orders").topic.operations = only(Operation::Write);
    expect(Level::Error, read, &["no right to Read topic 'orders'", "--topic orders --operation Read"]);
    let write = |facts: &mut Facts| of(facts, "out").topic.operations = only(Operation::Read);
    expect(Level::Error, write, &["no right to Write topic 'out'", "--topic out --operation Write"]);
    let marker = |facts: &mut Facts| of(facts, "marker").topic.operations = only(Operation::Write);
    expect(Level::Error, marker, &["no right to Read topic 'marker'"]);
    let id = |facts: &mut Facts| {
        facts.ids.insert("copy/0/A".to_owned(), Err(ResponseError::TransactionalIdAuthorizationFailed));
    };
    expect(Level::Error, id, &["'copy/0/A'", "--transactional-id copy/ --resource-pattern-type prefixed"]);
    let group = |facts: &mut Facts| {
        facts.groups.insert("g".to_owned(), Err(ResponseError::GroupAuthorizationFailed));
    };
    expect(Level::Error, group, &["can't use the group 'g'", "--group g --operation Read"]);
}

#[test]
fn rights_that_the_broker_does_not_tell_are_not_missing() {
    let mut facts = facts();
    facts.topics.values_mut().for_each(|found| found.topic.operations = None);
    assert!(judged(&facts).iter().all(|finding| finding.level == Level::Note));
}

#[test]
fn a_group_with_members_is_an_error_that_names_them() {
    let members = |facts: &mut Facts| {
        let members = vec!["b".to_owned(), "a".to_owned(), "a".to_owned()];
        facts.groups.insert("g".to_owned(), Ok(Group { name: "g".to_owned(), members, operations: None }));
    };
    expect(Level::Error, members, &["group 'g' has 3 members (a, b)", "group of [source.orders]"]);
}

#[test]
fn limits_of_brokers_are_compared_and_an_unknown_one_is_told() {
    let low = |facts: &mut Facts| {
        facts.brokers.insert(2, Ok(Configs::of([("transaction.max.timeout.ms", "60000")])));
    };
    expect(
        Level::Error,
        low,
        &["transaction_timeout is 5m, and broker 2 allows at most 1m", "[sink.out] to 1m or less"],
    );
    let denied = |facts: &mut Facts| {
        facts.brokers.insert(2, Err(Unread::Denied));
    };
    expect(Level::Warning, denied, &["settings of broker 2", "DescribeConfigs"]);
    let gone = |facts: &mut Facts| {
        facts.brokers.insert(2, Err(Unread::Unreachable("cannot reach x:1".to_owned(), "check x".to_owned())));
    };
    expect(Level::Error, gone, &["broker 2", "cannot reach x:1", "check x"]);
    let small = |facts: &mut Facts| {
        of(facts, "out").configs = Some(Configs::of([("max.message.bytes", "5000")]));
    };
    expect(Level::Warning, small, &["takes 5000 bytes at once", "up to 1000000", "\"message.max.bytes\" = \"5000\""]);
}

#[test]
fn a_partition_that_the_topic_does_not_have_is_an_error() {
    let at = |partition| judge::sink(&WantedSink { partition: Some(partition), ..sink() }, &facts());
    assert!(at(1).iter().all(|finding| finding.level == Level::Note));
    let text = &at(2).pop().expect("an error").text;
    assert_eq!(text, "it writes to partition 2, and topic 'out' has 2, numbered from 0");
}

#[test]
fn an_offset_to_start_at_in_a_partition_that_the_topic_does_not_have_is_an_error() {
    let at = |index| {
        let starts = BTreeMap::from([("orders".to_owned(), vec![0, index])]);
        judge::source(&WantedSource { starts, ..source() }, &facts())
    };
    assert!(at(1).iter().all(|finding| finding.level == Level::Note));
    let error = at(9).into_iter().find(|finding| finding.level == Level::Error).expect("an error");
    assert_eq!(
        error.text,
        "start gives an offset for partition 9 of topic 'orders', which has 2 partitions, numbered from 0"
    );
}

#[test]
fn a_marker_that_would_be_lost_or_is_of_another_job_is_an_error() {
    let cleaned = |facts: &mut Facts| {
        of(facts, "marker").configs = Some(Configs::of([("cleanup.policy", "compact,delete")]));
    };
    expect(Level::Error, cleaned, &["cleanup.policy=compact,delete", "add-config cleanup.policy=compact"]);
    let of_uids = |found: Option<&'static str>, own: Option<&'static str>| {
        move |facts: &mut Facts| {
            let text = |uid: Option<&str>| uid.map(str::to_owned);
            facts.marker = Some(MarkerFacts { job_uid: text(found), own_uid: text(own) });
        }
    };
    expect(Level::Error, of_uids(Some("u2"), Some("u1")), &["another job of this name (u2), and this one is u1"]);
    expect(Level::Error, of_uids(Some("u2"), None), &["another job of this name (u2)", "never run"]);
    let mut none = facts();
    of_uids(None, Some("u1"))(&mut none);
    assert!(judged(&none).iter().all(|finding| finding.level == Level::Note));
}

#[test]
fn a_marker_topic_that_is_not_there_is_made_if_that_is_allowed() {
    let missing = |facts: &mut Facts| of(facts, "marker").topic.error = Some(ResponseError::UnknownTopicOrPartition);
    let mut facts = facts();
    missing(&mut facts);
    facts.marker = None;
    let found = judged(&facts);
    assert!(
        found.iter().any(|finding| finding.text == "marker topic marker: not there yet; the job makes it"),
        "{found:?}"
    );
    let forbidden = |facts: &mut Facts| {
        missing(facts);
        facts.operations = Some(Operations::of(&[Operation::Describe]));
    };
    expect(Level::Warning, forbidden, &["no right to Create topics", "--partitions 1 --config cleanup.policy=compact"]);
}

#[test]
fn sinks_of_one_transaction_on_two_clusters_are_refused() {
    let (a, b) = (sink(), WantedSink { name: name("other"), ..sink() });
    assert_eq!(judge::one_cluster(&[]), None);
    assert_eq!(judge::one_cluster(&[(&a, "C1"), (&b, "C1")]), None);
    let found = judge::one_cluster(&[(&a, "C1"), (&b, "C2")]).expect("two clusters");
    assert_eq!((found.level, found.about.as_str()), (Level::Error, "sink other"));
    assert!(found.text.contains("cluster C2, and sink out to cluster C1"), "{}", found.text);
}

#[test]
fn a_pattern_without_a_topic_is_a_warning() {
    let topics = WantedTopics::Pattern { pattern: "x-.*".to_owned(), takes: Box::new(|_| true) };
    let source = WantedSource { topics, ..source() };
    let found = judge::source(&source, &facts());
    assert_eq!((found[0].level, found[0].text.as_str()), (Level::Warning, "no topic of cluster C1 matches 'x-.*'"));
    let mut facts = facts();
    facts.matching.insert("x-.*".to_owned(), vec!["orders".to_owned()]);
    assert_eq!(judge::source(&source, &facts)[0].text, "topic orders: 2 partitions, 3 replicas");
    let starts = BTreeMap::from([("others".to_owned(), vec![0])]);
    let found = judge::source(&WantedSource { starts, ..source }, &facts);
    let error = found.iter().find(|finding| finding.level == Level::Error).expect("an error");
    assert_eq!(error.text, "start gives an offset for topic 'others', which isn't among those that 'x-.*' matches");
}
