//! A cluster with TLS, passwords and permissions: librdkafka's settings get a job in, and what they lack is told.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use lockgate_tests::kafka::{Broker, kafka_missing};
use lockgate_tests::{Finished, JobFolder, KafkaJob, assert_exactly_once, numbered, wait_long_until};

use crate::UNUSABLE;
use crate::brokers::assert_nothing_left;

/// A broker with a port for users with a password over TLS, and its certificate. The verifier uses the other port.
struct Secure {
    broker: Broker,
    address: String,
    folder: JobFolder,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A key and a certificate that is its own authority, in `key.pem` and `certificate.pem`; both together in `both.pem`.
fn make_certificate(folder: &JobFolder) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(folder.path(""))
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).expect("openssl has written it");
    folder.write("both.pem", read("key.pem") + &read("certificate.pem"));
}

impl Secure {
    fn start() -> Secure {
        let folder = JobFolder::new();
        make_certificate(&folder);
        let (secure, controller) = (free_port(), free_port());
        let listeners = format!("PLAINTEXT://127.0.0.1:{{port}},SECURE://127.0.0.1:{secure}");
        let all = format!("{listeners},CONTROLLER://127.0.0.1:{controller}");
        let voters = format!("1@127.0.0.1:{controller}");
        let keystore = folder.path("both.pem").display().to_string();
        let users = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                     user_job=\"open-sesame\" user_stranger=\"let-me-in\";";
        let broker = Broker::start_with(&[
            ("listeners", &all),
            ("advertised.listeners", &listeners),
            ("controller.quorum.voters", &voters),
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL"),
            ("inter.broker.listener.name", "PLAINTEXT"),
            ("listener.name.secure.sasl.enabled.mechanisms", "PLAIN"),
            ("listener.name.secure.plain.sasl.jaas.config", users),
            ("listener.name.secure.ssl.keystore.type", "PEM"),
            ("listener.name.secure.ssl.keystore.location", &keystore),
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            ("super.users", "User:ANONYMOUS;User:job"),
        ]);
        Secure { broker, address: format!("127.0.0.1:{secure}"), folder }
    }

    /// A copy whose settings are in files.
    fn job(&self, user: &str, password: &str, authority: Option<&Path>) -> KafkaJob {
        let job = ["source.in", "sink.out"].iter().fold(KafkaJob::copy("secure", &self.address), |job, table| {
            job.with(table, "properties_file", "'kafka.properties'")
        });
        let authority = authority.map(|path| format!("ssl.ca.location={}\n", path.display())).unwrap_or_default();
        job.folder.write(
            "kafka.properties",
            format!(
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username={user}\nsasl.password={password}\n{authority}"
            ),
        );
        job
    }
}

#[test]
fn settings_for_tls_and_passwords_get_a_job_in_and_what_they_lack_is_told() {
    if kafka_missing("a cluster with TLS and passwords") {
        return;
    }
    let secure = Secure::start();
    let (client, authority) = (secure.broker.client(), secure.folder.path("certificate.pem"));
    let prepared = |user: &str, password: &str, authority: Option<&Path>| {
        let job = secure.job(user, password, authority);
        job.create_topics(&client, 2);
        client.produce(&job.input(), &numbered(0..500));
        job
    };
    let refusals = [
        ("job", "wrong-password", Some(authority.as_path()), "sasl.password"),
        ("job", "open-sesame", None, "ssl.ca.location"),
        ("stranger", "let-me-in", Some(authority.as_path()), "ACL"),
    ];
    for (user, password, authority, told) in refusals {
        let refused = prepared(user, password, authority).folder.run();
        refused.assert_refused(UNUSABLE, &[told]);
        assert!(!refused.stderr.contains(password), "a secret is repeated: {}", refused.stderr);
    }
    let job = prepared("job", "open-sesame", Some(&authority));
    job.catch_up(&client);
    assert_exactly_once(500, &client.read(&job.output(), true));
}

#[test]
fn a_listener_of_another_protocol_is_told_by_the_check_and_the_run_with_the_setting() {
    if kafka_missing("listeners of another protocol") {
        return;
    }
    let secure = Secure::start();
    let (client, authority) = (secure.broker.client(), secure.folder.path("certificate.pem"));
    let with_tls = secure.job("job", "open-sesame", Some(&authority));
    with_tls.create_topics(&client, 1);
    let plain = format!("'{}'", secure.broker.address());
    let with_tls = with_tls.with("source.in", "brokers", &plain).with("sink.out", "brokers", &plain);
    let without = KafkaJob::copy("secure", &secure.address);
    let of_a_source = KafkaJob::new("secure")
        .with_kafka_source(&secure.address)
        .with_operator("op", "identity", "in")
        .with_file_sink("out", "op");
    let no_tls = format!("{} doesn't speak TLS", secure.broker.address());
    let tls_only = format!("{} speaks TLS only", secure.address);
    for (job, says) in [(with_tls, no_tls), (without, tls_only.clone()), (of_a_source, tls_only)] {
        let checked = job.check_connected();
        assert_eq!(checked.status.code(), Some(UNUSABLE), "{checked:?}");
        assert!(checked.stdout.contains(&says) && checked.stdout.contains("security.protocol"), "{checked:?}");
        job.folder.run().assert_refused(UNUSABLE, &[&says, "set \"security.protocol\" in properties"]);
        assert_nothing_left(&job, &client);
    }
}

/// Checks until the brokers have heard of all that was allowed before: until each of these is said.
#[track_caller]
fn assert_checked(job: &KafkaJob, code: i32, says: &[&str]) {
    let mut checked = job.check_connected();
    let is_said = |checked: &Finished| {
        checked.status.code() == Some(code) && says.iter().all(|said| checked.stdout.contains(said))
    };
    wait_long_until(&format!("a check that says {says:?}; the first was {checked:?}"), || {
        is_said(&checked) || {
            checked = job.check_connected();
            is_said(&checked)
        }
    });
    assert_eq!(checked.stdout.contains("ok: this job can run"), code == 0, "{checked:?}");
}

#[test]
fn rights_that_a_user_lacks_are_found_before_and_the_commands_that_are_told_give_them() {
    if kafka_missing("rights on a cluster") {
        return;
    }
    let secure = Secure::start();
    let (client, authority) = (secure.broker.client(), secure.folder.path("certificate.pem"));
    let job = secure.job("stranger", "let-me-in", Some(&authority));
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..500));
    let (input, output, marker, group) = (job.input(), job.output(), job.marker_topic(), job.group());
    let unseen = |topic: &str| format!("this user may not see topic '{topic}'");
    let id = format!("this user can't use the transactional id '{}/0/A'", job.name());
    let no_group = format!("this user can't use the group '{group}'");
    assert_checked(&job, UNUSABLE, &[&unseen(&input), &unseen(&output), &unseen(&marker), &id, &no_group]);

    for topic in [&input, &output, &marker] {
        client.allow("stranger", "topic", topic, &["describe"]);
    }
    let no_right = |right: &str, topic: &str| format!("this user has no right to {right} topic '{topic}'");
    let commands = [
        format!("--topic {input} --operation Read"),
        format!("--topic {output} --operation Write"),
        format!("--group {group} --operation Read"),
        format!("--transactional-id {}/ --resource-pattern-type prefixed --operation Write", job.name()),
        format!("--topic {marker} --operation Create"),
    ];
    let missing = [
        no_right("Read", &input),
        no_right("Write", &output),
        no_group.clone(),
        id,
        format!("the marker topic '{marker}' isn't there yet, and this user has no right to Create"),
    ];
    let all = missing.iter().chain(&commands).map(String::as_str).collect::<Vec<_>>();
    assert_checked(&job, UNUSABLE, &all);
    let id = format!("transactional id '{}/0/A'", job.name());
    job.folder.run().assert_refused(UNUSABLE, &[&id, "kafka-acls.sh"]);
    assert_nothing_left(&job, &client);

    client.allow("stranger", "topic", &input, &["read"]);
    client.allow("stranger", "topic", &output, &["write"]);
    client.allow("stranger", "group", &group, &["read"]);
    client.allow("stranger", "transactional_id", &format!("{}/*", job.name()), &["write", "describe"]);
    assert_checked(&job, 0, &[&missing[4]]);
    job.folder.run().assert_refused(UNUSABLE, &["TopicAuthorizationFailed", "allow 'out' to create it"]);
    assert_nothing_left(&job, &client);

    client.allow("stranger", "topic", &marker, &["create"]);
    // A right to make this one topic isn't told by anybody, so that it stays a warning.
    assert_checked(&job, 0, &[&missing[4]]);
    client.allow("stranger", "topic", &marker, &["read", "write"]);
    job.catch_up(&client);
    assert_exactly_once(500, &client.read(&job.output(), true));
    assert_checked(&job, 0, &["it has the marker of this job"]);
}
