//! `lockgate txn` and `lockgate check --connect` against a real broker.

use std::fs::File;
use std::process::Command;

use lockgate_tests::kafka::{Broker, Client, NewRecord, kafka_missing, unique};
use lockgate_tests::{Finished, JobFolder, KafkaJob, Running, assert_exactly_once, lockgate, numbered, wait_until};
use serde_json::Value;

/// The exit code for work that failed.
const FAILED: i32 = 1;
/// The exit code for what can't be used; nothing was done.
const UNUSABLE: i32 = 2;
/// Longer than any test.
const TIMEOUT_MS: i32 = 600_000;

fn tool(words: &[&str]) -> Finished {
    let mut command = Command::new(lockgate());
    command.args(words);
    Running::start(command).wait()
}

#[track_caller]
fn json_of(finished: &Finished) -> Value {
    assert!(finished.status.success(), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

#[track_caller]
fn assert_ends(finished: &Finished, code: i32, says: &[&str]) {
    assert_eq!(finished.status.code(), Some(code), "{finished:?}");
    let said = format!("{}{}", finished.stdout, finished.stderr);
    says.iter().for_each(|says| assert!(said.contains(says), "'{says}' in:\n{said}"));
}

/// The transactional ids of a list.
fn ids(list: &Value) -> Vec<&str> {
    let transactions = list["transactions"].as_array().expect("transactions");
    transactions.iter().map(|open| open["transactional_id"].as_str().expect("an id")).collect()
}

/// A program that has left a transaction open in a topic of its own, and a record behind it that readers wait for.
struct Stuck {
    client: Client,
    topic: String,
    id: String,
}

impl Stuck {
    fn new(broker: &Broker, id: &str) -> Stuck {
        let (client, topic) = (broker.client(), unique("stuck"));
        client.create_topic(&topic, 1);
        client.begin_transaction(id, TIMEOUT_MS, &topic, &[NewRecord::value("in doubt")]);
        client.produce(&topic, &[NewRecord::value("behind it")]);
        Stuck { client, topic, id: id.to_owned() }
    }

    fn is_open(&self) -> bool {
        self.client.transactions(&self.id).iter().any(|known| known.id == self.id && known.state == "Ongoing")
    }

    fn read(&self) -> Vec<String> {
        self.client.read(&self.topic, true).iter().map(|record| record.text().to_owned()).collect()
    }

    #[track_caller]
    fn assert_stuck(&self) {
        assert!(self.is_open());
        assert_eq!(self.read(), [""; 0], "read_committed waits for the transaction");
    }

    /// Readers go on, the transaction's records are gone, and its program can't bring them back.
    #[track_caller]
    fn assert_ended(&self) {
        assert!(!self.is_open());
        assert_eq!(self.read(), ["behind it"]);
        self.client.commit_transaction(&self.id).expect_err("its producer is shut out");
    }
}

#[test]
fn an_open_transaction_of_a_foreign_program_is_shown_and_ended() {
    if kafka_missing("listing and aborting transactions") {
        return;
    }
    let broker = Broker::shared();
    let stuck = Stuck::new(broker, &unique("foreign"));
    stuck.assert_stuck();
    let address = broker.address();

    let list = json_of(&tool(&["txn", "list", "--brokers", address, "--prefix", &stuck.id, "--json"]));
    assert_eq!(list["cluster"], stuck.client.cluster_id());
    let open = &list["transactions"][0];
    assert_eq!(
        (ids(&list), &open["state"], &open["timeout_ms"]),
        (vec![stuck.id.as_str()], &"Ongoing".into(), &TIMEOUT_MS.into())
    );
    assert_eq!(open["partitions"], serde_json::json!([format!("{}/0", stuck.topic)]));
    let known = stuck.client.transactions(&stuck.id).remove(0);
    assert_eq!(open["producer_id"], known.producer_id);
    assert!(open["open_ms"].as_u64().is_some_and(|ms| ms < TIMEOUT_MS as u64), "{open}");
    let said = tool(&["txn", "list", "--brokers", address, "--hanging"]);
    assert_ends(&said, 0, &[&stuck.id, "timeout 10 min", &format!("on {}/0", stuck.topic), "none hangs"]);

    let unsure = tool(&["txn", "abort", "--brokers", address, &stuck.id]);
    assert_ends(&unsure, UNUSABLE, &["nothing was done", "--yes"]);
    stuck.assert_stuck();

    let aborted = tool(&["txn", "abort", "--brokers", address, &stuck.id, "--yes", "--json"]);
    let outcome = &json_of(&aborted)["ids"][0];
    assert_eq!((&outcome["transactional_id"], &outcome["outcome"]), (&stuck.id.as_str().into(), &"aborted".into()));
    stuck.assert_ended();

    let list = json_of(&tool(&["txn", "list", "--brokers", address, "--prefix", &stuck.id, "--json"]));
    assert_eq!((ids(&list), &list["known"]), (Vec::new(), &1.into()));
    let again = tool(&["txn", "abort", "--brokers", address, &stuck.id, "--yes"]);
    assert_ends(&again, 0, &["nothing is open; it was left alone"]);
}

#[test]
fn what_a_cluster_does_not_know_or_cannot_be_asked_is_an_error() {
    if kafka_missing("asking for unknown transactions") {
        return;
    }
    let broker = Broker::shared();
    let id = unique("nobody");
    let unknown = tool(&["txn", "abort", "--brokers", broker.address(), &id, "--yes"]);
    assert_ends(&unknown, UNUSABLE, &["knows no such id", &id]);
    assert_eq!(broker.client().transactions(&id), [], "asking for an id doesn't make it");
    let unreachable = tool(&["txn", "list", "--brokers", "127.0.0.1:1"]);
    assert_ends(&unreachable, FAILED, &["cannot reach 127.0.0.1:1", "help: "]);
    assert_ends(&tool(&["txn", "list"]), UNUSABLE, &["no cluster is named"]);
    assert_ends(
        &tool(&["txn", "abort", "--brokers", broker.address(), "--yes"]),
        UNUSABLE,
        &["no transactional id is named"],
    );
}

#[test]
fn what_a_killed_job_has_left_open_is_ended_and_the_job_then_goes_on_from_its_checkpoint() {
    if kafka_missing("aborting what a killed job has left open") {
        return;
    }
    let broker = Broker::shared();
    let client = broker.client();
    // Nobody else ends it while the test runs.
    let job = KafkaJob::copy("abandoned", broker.address()).with("sink.out", "transaction_timeout", "'15m'");
    job.create_topics(&client, 1);
    client.produce(&job.input(), &numbered(0..1_000));
    job.catch_up(&client);
    client.produce(&job.input(), &numbered(1_000..2_000));
    assert!(job.folder.run_to_crash_point("kafka.commit.before").was_killed());
    const BEHIND: &str = "behind it";
    client.produce(&job.output(), &[NewRecord::value(BEHIND)]);
    assert_exactly_once(1_000, &client.read(&job.output(), true));

    let job_file = job.folder.path("job.toml").display().to_string();
    let list = json_of(&tool(&["txn", "list", &job_file, "--json"]));
    let own = format!("{}/0/", job.name());
    assert!(!ids(&list).is_empty() && ids(&list).iter().all(|id| id.starts_with(&own)), "{list}");
    assert_ends(&tool(&["txn", "abort", &job_file, "--all-of-job", "--yes"]), 0, &[&own, "aborted after"]);
    let (others, output) =
        client.read(&job.output(), true).into_iter().partition::<Vec<_>, _>(|record| record.text() == BEHIND);
    assert_eq!(others.len(), 1, "readers go on");
    assert_exactly_once(1_000, &output);

    job.catch_up(&client);
    let mut output = client.read(&job.output(), true);
    output.retain(|record| record.text() != BEHIND);
    assert_exactly_once(2_000, &output);
}

/// A job from topic to topic.
struct Copy {
    folder: JobFolder,
    client: Client,
    name: String,
    /// Lines for `[job]`, `[source.in]` and `[sink.out]`.
    more: [String; 3],
}

impl Copy {
    fn new(broker: &Broker) -> Copy {
        let name = unique("copy");
        let copy = Copy { folder: JobFolder::new(), client: broker.client(), more: Default::default(), name };
        copy.client.create_topic(&copy.topic("in"), 2);
        copy.client.create_topic(&copy.topic("out"), 2);
        copy.write(broker.address());
        copy
    }

    fn topic(&self, which: &str) -> String {
        format!("{}-{which}", self.name)
    }

    fn marker_topic(&self) -> String {
        format!("lockgate-{}-marker", self.name)
    }

    fn write(&self, address: &str) {
        let Copy { name, more: [job, source, sink], .. } = self;
        let text = format!(
            "[job]\nname = '{name}'\n{job}\n[source.in]\ntype = 'kafka'\nbrokers = '{address}'\n{}\n\
             [sink.out]\ntype = 'kafka'\ninput = 'in'\nbrokers = '{address}'\n{}\n",
            if source.contains("topic") {
                source.clone()
            } else {
                format!("topics = ['{}']\n{source}", self.topic("in"))
            },
            if sink.contains("topic = ") { sink.clone() } else { format!("topic = '{}'\n{sink}", self.topic("out")) },
        );
        self.folder.write("job.toml", text);
    }

    fn with(mut self, broker: &Broker, job: &str, source: &str, sink: &str) -> Copy {
        self.more = [job, source, sink].map(str::to_owned);
        self.write(broker.address());
        self
    }

    fn tool(&self, words: &[&str]) -> Finished {
        let path = self.folder.path("job.toml");
        let mut all = vec![words[0], words[1], path.to_str().expect("UTF-8")];
        all.extend(&words[2..]);
        tool(&all)
    }

    fn check(&self) -> Finished {
        let mut command = self.folder.command("check");
        command.arg("--connect");
        Running::start(command).wait()
    }
}

#[test]
fn the_transactions_of_a_job_are_those_of_its_ids_and_are_kept_while_it_runs() {
    if kafka_missing("aborting the transactions of a job") {
        return;
    }
    let broker = Broker::shared();
    let copy = Copy::new(broker);
    let own = Stuck::new(broker, &format!("{}/0/A", copy.name));
    let other = Stuck::new(broker, &format!("{}-other/0/A", copy.name));
    let list = json_of(&copy.tool(&["txn", "list", "--json"]));
    assert_eq!(ids(&list), [own.id.as_str()]);

    // As a running job holds it.
    copy.folder.write("state/lock", "17 1700000000000\n");
    let text = std::fs::read_to_string(copy.folder.path("job.toml")).expect("a job file");
    copy.folder.write("job.toml", text.replacen("[job]", "[job]\nstate_dir = 'state'", 1));
    let lock = File::open(copy.folder.path("state/lock")).expect("a lock");
    lock.lock().expect("locked");
    let running = copy.tool(&["txn", "abort", "--all-of-job", "--yes"]);
    assert_ends(&running, UNUSABLE, &["is already running as process 17", "--force"]);
    own.assert_stuck();
    let running = copy.tool(&["txn", "abort", &own.id, "--yes"]);
    assert_ends(&running, UNUSABLE, &["is already running"]);
    own.assert_stuck();
    let forced = copy.tool(&["txn", "abort", &own.id, "--yes", "--force"]);
    assert_ends(&forced, 0, &[&own.id, "aborted after"]);
    own.assert_ended();

    let again = Stuck::new(broker, &own.id);
    again.assert_stuck();
    drop(lock);
    assert_ends(&copy.tool(&["txn", "abort", "--all-of-job", "--yes"]), 0, &[&own.id, "aborted after"]);
    again.assert_ended();
    other.assert_stuck();
    assert_ends(&copy.tool(&["txn", "abort", "--all-of-job", "--yes"]), 0, &["nothing is open", "nothing was done"]);
    assert_ends(&tool(&["txn", "abort", "--brokers", broker.address(), &other.id, "--yes"]), 0, &["aborted"]);
}

#[test]
fn a_job_that_can_run_on_its_brokers_is_told_so_and_nothing_is_made() {
    if kafka_missing("checking a job against its brokers") {
        return;
    }
    let broker = Broker::shared();
    let copy = Copy::new(broker);
    // Others use the broker too.
    let own = || copy.client.topics().into_iter().filter(|topic| topic.contains(&copy.name)).collect::<Vec<_>>();
    let before = own();
    let checked = copy.check();
    let cluster = copy.client.cluster_id();
    let (input, output) = (copy.topic("in"), copy.topic("out"));
    let says = [
        format!("cluster {cluster}: 1 broker; {} answered", broker.address()),
        format!("source in: topic {input}: 2 partitions, 1 replica"),
        format!("sink out: topic {output}: 2 partitions, 1 replica"),
        format!("warning: source in: topic '{input}' has one replica"),
        "sink out: transactions of at most 5m; the brokers allow 15m".to_owned(),
        format!("marker topic {}: not there yet; the job makes it", copy.marker_topic()),
        "ok: this job can run".to_owned(),
    ];
    assert_ends(&checked, 0, &says.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(own(), before);
    assert_eq!(copy.client.transactions(&copy.name), []);

    let mut command = copy.folder.command("check");
    command.args(["--connect", "--json"]);
    let report = json_of(&Running::start(command).wait());
    assert_eq!(report["kafka"]["clusters"][0]["cluster"], cluster);
    let levels = report["kafka"]["findings"].as_array().expect("findings").iter().map(|finding| &finding["level"]);
    assert!(levels.clone().all(|level| level != "error") && levels.clone().any(|level| level == "warning"), "{report}");
}

#[test]
fn brokers_that_do_not_answer_are_an_error_and_only_of_a_check_that_asks_them() {
    let folder = JobFolder::new();
    let brokers = "brokers = '127.0.0.1:1'";
    folder.write(
        "job.toml",
        format!("[job]\nname = 'a'\n[source.in]\ntype = 'kafka'\n{brokers}\ntopics = ['t']\n[sink.out]\ntype = 'kafka'\ninput = 'in'\n{brokers}\ntopic = 'u'\n"),
    );
    let mut command = folder.command("check");
    command.arg("--connect");
    let checked = Running::start(command).wait();
    assert_ends(
        &checked,
        UNUSABLE,
        &["error: cluster 127.0.0.1:1: cannot reach 127.0.0.1:1", "can't run on its brokers: a problem"],
    );
    assert!(!checked.stdout.contains("ok: this job can run"), "{checked:?}");
    assert_ends(&Running::start(folder.command("check")).wait(), 0, &["ok: this job can run"]);
}

#[test]
fn each_thing_for_which_the_job_would_fail_is_found_before() {
    if kafka_missing("finding what is wrong on a cluster") {
        return;
    }
    let broker = Broker::shared();
    let case = |job: &str, source: &str, sink: &str, says: &[&str]| {
        let copy = Copy::new(broker).with(broker, job, source, sink);
        assert_ends(&copy.check(), UNUSABLE, &[says, &["can't run on its brokers: a problem"]].concat());
        copy
    };
    let found = [
        case("", "topics = ['nothing-here']", "", &["error: source in: ", "has no topic 'nothing-here'"]),
        case("", "", "topic = 'nothing-here'", &["error: sink out: ", "has no topic 'nothing-here'"]),
        case("", "", "partition = 2", &["it writes to partition 2, and topic", "has 2, numbered from 0"]),
        case("", "", "transaction_timeout = '16m'", &["transaction_timeout is 16m, and broker", "at most 15m"]),
    ];
    // A run that is tried all the same says that it is of no use, too.
    for (copy, said) in found.iter().zip(["nothing-here", "nothing-here", "partition = 2", "transaction_timeout = 16m"])
    {
        Running::start(copy.folder.command("run")).wait().assert_refused(UNUSABLE, &[said]);
    }
}

#[test]
fn what_only_may_go_wrong_is_a_warning() {
    if kafka_missing("warning of what may go wrong on a cluster") {
        return;
    }
    let broker = Broker::shared();
    let copy = Copy::new(broker).with(broker, "", "topic_pattern = 'no-such-topic-.*'", "");
    assert_ends(
        &copy.check(),
        0,
        &["warning: source in: no topic", "matches 'no-such-topic-.*'", "ok: this job can run"],
    );
    let copy = Copy::new(broker);
    let (output, marker) = (copy.topic("out"), copy.marker_topic());
    let copy = copy.with(broker, "", &format!("topics = ['{output}']"), "");
    let looped = format!("warning: [source.in] reads '{output}', the topic of [sink.out], which its records reach");
    assert_ends(&copy.check(), 0, &[&looped, "ok: this job can run"]);
    copy.client.create_topic_with(&marker, 1, &[("cleanup.policy", "compact")]);
    let copy = copy.with(broker, "", &format!("topics = ['{marker}']"), "");
    assert_ends(&copy.check(), 0, &[&format!("warning: [source.in] reads '{marker}', the marker topic of [sink.out]")]);
    let copy = Copy::new(broker);
    copy.client.delete_topic(&copy.topic("out"));
    copy.client.create_topic_with(&copy.topic("out"), 1, &[("max.message.bytes", "5000")]);
    assert_ends(&copy.check(), 0, &["takes 5000 bytes at once (max.message.bytes)", "ok: this job can run"]);
    let copy = copy.with(broker, "", "", "properties = { 'message.max.bytes' = 5000 }");
    let checked = copy.check();
    assert_ends(&checked, 0, &["ok: this job can run"]);
    assert!(!checked.stdout.contains("max.message.bytes"), "{checked:?}");
}

#[test]
fn a_marker_that_would_be_lost_or_is_of_another_job_is_found_before() {
    if kafka_missing("checking the marker") {
        return;
    }
    let broker = Broker::shared();
    let copy = Copy::new(broker);
    copy.client.create_topic_with(&copy.marker_topic(), 1, &[("cleanup.policy", "delete")]);
    assert_ends(&copy.check(), UNUSABLE, &["has cleanup.policy=delete: in time Kafka would delete the marker"]);

    let copy = Copy::new(broker);
    copy.client.create_topic_with(&copy.marker_topic(), 1, &[("cleanup.policy", "compact")]);
    assert_ends(&copy.check(), 0, &["ok: this job can run"]);
    let name = &copy.name;
    let marker = format!(
        r#"{{"version":1,"job":"{name}","job_uid":"of-another","slot":0,"epoch":7,"digest":"0123456789abcdef","attempt":3}}"#
    );
    copy.client.produce(&copy.marker_topic(), &[NewRecord::keyed(format!("{name}/0"), marker)]);
    assert_ends(&copy.check(), UNUSABLE, &["is of another job of this name (of-another)", "never run"]);
}

#[test]
fn a_group_that_others_use_is_found_before() {
    if kafka_missing("finding members of a group") {
        return;
    }
    let broker = Broker::shared();
    let copy = Copy::new(broker);
    let group = unique("shared");
    let copy = copy.with(broker, "", &format!("group = '{group}'"), "");
    assert_ends(&copy.check(), 0, &["ok: this job can run"]);
    let mut kcat = Command::new("kcat");
    kcat.args(["-q", "-b", broker.address(), "-X", "client.id=the-other", "-G", &group, &copy.topic("in")]);
    let mut member = Running::start(kcat);
    let mut checked = copy.check();
    wait_until("the group to have a member", || {
        assert!(member.is_alive(), "kcat has ended: {}", member.stderr());
        checked = copy.check();
        !checked.status.success()
    });
    member.kill();
    assert_ends(
        &checked,
        UNUSABLE,
        &[&format!("the group '{group}' has a member (the-other)"), "group of [source.in]"],
    );
}
