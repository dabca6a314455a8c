//! A cluster with TLS, passwords and permissions: librdkafka's settings get a job in, and what they lack is told.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use lockgate_tests::kafka::{Broker, kafka_missing};
use lockgate_tests::{JobFolder, KafkaJob, assert_exactly_once, numbered};

use crate::FAILED;

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
        refused.assert_refused(FAILED, &[told]);
        assert!(!refused.stderr.contains(password), "a secret is repeated: {}", refused.stderr);
    }
    let job = prepared("job", "open-sesame", Some(&authority));
    job.catch_up(&client);
    assert_exactly_once(500, &client.read(&job.output(), true));
}
