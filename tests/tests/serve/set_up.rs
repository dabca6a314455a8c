//! How a daemon starts and ends: address, token, data folder, signals.

use std::net::TcpListener;
use std::process::Command;

use lockgate_tests::{DaemonSetUp, JobFolder, Running, Sent, exchange, lockgate};
use serde_json::json;

use crate::support::endless_job;

const UNUSABLE: i32 = 2;
const TOKEN: &str = "a-secret-of-the-tests-0123456789";

fn serve(folder: &JobFolder, arguments: &[&str]) -> Command {
    let mut command = Command::new(lockgate());
    command.arg("serve").arg("--data").arg(folder.path("data")).args(arguments).env_remove("LOCKGATE_TOKEN");
    command
}

#[test]
fn two_daemons_never_share_a_data_folder() {
    let folder = JobFolder::new();
    let set_up = DaemonSetUp::new(folder.path("data"));
    let daemon = set_up.start();
    let second = set_up.try_start().err().expect("it is refused");
    second.assert_refused(UNUSABLE, &[folder.path("data").to_str().expect("UTF-8"), "in use"]);
    daemon.get("/v1/jobs");
    daemon.kill();
    // The lock of a dead one holds nobody up.
    set_up.start().stop();
}

#[test]
fn a_port_that_is_taken_a_bad_address_and_a_folder_that_is_a_file_are_refused() {
    let folder = JobFolder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    Running::start(serve(&folder, &["--listen", &address])).wait().assert_refused(UNUSABLE, &[&address, "port 0"]);
    assert!(!folder.path("data").exists(), "nothing was done");
    let bad = Running::start(serve(&folder, &["--listen", "nowhere"])).wait();
    assert_eq!(bad.status.code(), Some(UNUSABLE));
    assert!(bad.stderr.contains("HOST:PORT"), "{}", bad.stderr);
    folder.write("data", "a file");
    let refused = Running::start(serve(&folder, &["--listen", "127.0.0.1:0"])).wait();
    refused.assert_refused(UNUSABLE, &[folder.path("data").to_str().expect("UTF-8")]);
}

#[test]
fn where_others_can_reach_it_a_daemon_wants_a_token() {
    let folder = JobFolder::new();
    let open = serve(&folder, &["--listen", "0.0.0.0:0"]);
    Running::start(open).wait().assert_refused(UNUSABLE, &["0.0.0.0", "--token-file"]);
    let mut short = serve(&folder, &["--listen", "0.0.0.0:0"]);
    short.env("LOCKGATE_TOKEN", "short");
    Running::start(short).wait().assert_refused(UNUSABLE, &["LOCKGATE_TOKEN", "16"]);
    assert!(!folder.path("data").exists(), "nothing was done");
}

#[test]
fn a_daemon_with_a_token_answers_only_who_knows_it() {
    let folder = JobFolder::new();
    let daemon = DaemonSetUp::new(folder.path("data")).token(TOKEN).start();
    let without = |path: &str, authorization: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{authorization}\r\n", daemon.address());
        let answer = exchange(daemon.address(), request.as_bytes()).expect("an answer");
        daemon.conforms("GET", path, &answer);
        answer
    };
    for path in ["/", "/v1/jobs", "/v1/plugins", "/metrics", "/openapi.json", "/no-such-thing"] {
        let wrong = format!("Authorization: Bearer {TOKEN}0\r\n");
        for authorization in ["", "Authorization: Bearer\r\n", "Authorization: Basic YTpi\r\n", &wrong] {
            let answer = without(path, authorization);
            assert_eq!(answer.status, 401, "{path} {authorization}");
            assert!(answer.headers["www-authenticate"].starts_with("Bearer"), "{answer:?}");
            assert!(!answer.body.contains(TOKEN));
        }
    }
    assert_eq!(without("/healthz", "").status, 200);
    assert_eq!(daemon.get("/v1/jobs"), json!({ "jobs": [] }));
    let finished = daemon.stop();
    assert!(!finished.stderr.contains(TOKEN) && !finished.stdout.contains(TOKEN), "a secret is in no log");
}

#[test]
fn a_daemon_that_others_can_reach_answers_by_any_name_to_who_knows_its_token() {
    let folder = JobFolder::new();
    let daemon = DaemonSetUp::new(folder.path("data")).listen("0.0.0.0:0").token(TOKEN).start();
    assert_eq!(daemon.get("/v1/jobs"), json!({ "jobs": [] }));
    let request = |token: &str| {
        let head = "GET /v1/jobs HTTP/1.1\r\nHost: lockgate.example\r\nConnection: close\r\nAuthorization: Bearer ";
        exchange(daemon.address(), format!("{head}{token}\r\n\r\n").as_bytes()).expect("an answer").status
    };
    assert_eq!((request(TOKEN), request("another-secret-0123456789")), (200, 401));
    daemon.stop();
}

#[test]
fn sigterm_takes_a_last_checkpoint_of_each_job_and_ends_with_success() {
    let folder = JobFolder::new();
    let daemon = DaemonSetUp::new(folder.path("data")).start();
    for name in ["a", "b"] {
        daemon.submit(&endless_job(name), &folder.path(""));
        daemon.wait_for_status(name, "running");
    }
    let address = daemon.address().to_owned();
    let finished = daemon.stop();
    assert!(finished.stderr.contains("stopped; the jobs go on"), "{}", finished.stderr);
    assert!(
        exchange(&address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err(),
        "nobody answers any more"
    );
    let daemon = DaemonSetUp::new(folder.path("data")).start();
    for name in ["a", "b"] {
        daemon.wait_for_status(name, "running");
        let checkpoints = daemon.get(&format!("/v1/jobs/{name}/checkpoints"));
        assert!(!checkpoints["checkpoints"].as_array().expect("a list").is_empty(), "{checkpoints}");
    }
    assert_eq!(daemon.ask("GET", "/healthz", Sent::Nothing), (200, json!({ "status": "ok" })));
    daemon.stop();
}

#[test]
fn it_says_where_it_listens_in_text_and_in_json() {
    let folder = JobFolder::new();
    let mut running = Running::start(serve(&folder, &["--listen", ":0"]));
    let mut said = String::new();
    lockgate_tests::wait_until("the address", || {
        said = running.stdout();
        said.ends_with('\n') || !running.is_alive()
    });
    let address = said.trim_end().strip_prefix("lockgate serves at http://").expect("an address").to_owned();
    assert!(exchange(&address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").is_ok());
    running.interrupt();
    running.wait().assert_success();
}
