//! Requests that mean no good: each is refused in the one form of all errors, and the daemon answers the next one.

use std::io::{Read, Write};
use std::net::TcpStream;

use lockgate_tests::{Daemon, DaemonSetUp, JobFolder, Sent, exchange, operator};
use serde_json::{Value, json};

use crate::support::endless_job;

const MIB: usize = 1 << 20;

fn daemon(folder: &JobFolder) -> Daemon {
    DaemonSetUp::new(folder.path("data"))
        .with(&["--plugin-max", "8MiB", "--jobs-max", "2", "--plugins-max", "2"])
        .start()
}

/// Sends a head and a body as they are; gives the status, and has the form of the answer checked.
#[track_caller]
fn status(daemon: &Daemon, method: &str, path: &str, headers: &str, body: &[u8]) -> u16 {
    let head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    let answer = exchange(daemon.address(), &[head.as_bytes(), body].concat());
    let answer = answer.unwrap_or_else(|error| panic!("no answer to {method} {path}: {error}"));
    daemon.conforms(method, path, &answer);
    answer.status
}

const LOCAL: &str = "Host: localhost\r\n";
const LOCAL_JSON: &str = "Host: localhost\r\nContent-Type: application/json\r\n";

#[test]
fn requests_of_the_wrong_form_are_refused_each_with_its_status() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    let post = |headers: &str, body: &[u8]| status(&daemon, "POST", "/v1/jobs", headers, body);
    assert_eq!(post(LOCAL, b"{}"), 415);
    assert_eq!(post("Host: localhost\r\nContent-Type: text/plain\r\n", b"{}"), 415);
    for not_json in [b"".as_slice(), b"{", b"\xff\xfe", b"{\"job_toml\":\"\"} {}"] {
        assert_eq!(post(LOCAL_JSON, not_json), 400, "{not_json:?}");
    }
    assert_eq!(post(LOCAL_JSON, "[".repeat(MIB - 1).as_bytes()), 400);
    assert_eq!(post(LOCAL_JSON, &vec![b' '; MIB + 1]), 413);
    for other in [
        "[]",
        r#"["text",null]"#,
        "null",
        "1",
        "{}",
        r#"{"job_toml":1}"#,
        r#"{"job_toml":"\ud800"}"#,
        r#"{"job_toml":"","extra":1}"#,
        r#"{"job_toml":"","base_dir":[]}"#,
    ] {
        assert_eq!(post(LOCAL_JSON, other.as_bytes()), 422, "{other}");
    }
    let long = format!("[job]\nname = \"{}\"", "a".repeat(65));
    for job_toml in ["", "\u{0}", "[job]", "[job]\nname = \"a b\"", "[job]\nname = \"../../x\"", "🙂", long.as_str()]
    {
        let submission = json!({ "job_toml": job_toml, "base_dir": "/" });
        daemon.refused(422, "POST", "/v1/jobs", Sent::Json(&submission), &[]);
    }
    for base_dir in ["relative", "", "/a\u{0}b", "../.."] {
        let relative = endless_job("a").replace("[job]\n", "[job]\nstate_dir = \"state\"\n");
        let submission = json!({ "job_toml": relative, "base_dir": base_dir });
        daemon.refused(422, "POST", "/v1/jobs", Sent::Json(&submission), &[]);
    }
    let stop = |body: &str| status(&daemon, "POST", "/v1/jobs/x/stop", LOCAL_JSON, body.as_bytes());
    assert_eq!((stop(r#"{"mode":"gently"}"#), stop(r#"{"mode":null}"#), stop("{}")), (422, 422, 404));
    let upgrade = |body: &str| status(&daemon, "POST", "/v1/jobs/x/operators/y/upgrade", LOCAL_JSON, body.as_bytes());
    let hash = "0".repeat(64);
    let too_long = json!({ "plugin": hash, "probation_ms": u64::MAX }).to_string();
    let negative = json!({ "plugin": hash, "probation_ms": -1 }).to_string();
    assert_eq!((upgrade("{}"), upgrade(&negative)), (422, 422));
    assert!(matches!(upgrade(&too_long), 404 | 422));
    daemon.stop();
}

#[test]
fn names_that_lead_out_of_the_data_folder_or_are_no_names_find_nothing() {
    let folder = JobFolder::new();
    folder.write("data/jobs/.keep", "");
    folder.write("secret/spec.json", "secret");
    let daemon = daemon(&folder);
    let (long, longer) = ("a".repeat(65), "a".repeat(3_000));
    let names = [
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fsecret",
        "%2e%2e%2fsecret",
        "..%5csecret",
        "a%00b",
        "%00",
        "%ff%fe",
        "%F0%9F%99%82",
        "%e2%80%ae",
        "a%0d%0aSet-Cookie:x",
        "a%20b",
        "%",
        "%zz",
        "con",
        "-rf",
        long.as_str(),
        longer.as_str(),
    ];
    for name in names {
        for path in ["/v1/jobs/NAME", "/v1/plugins/NAME", "/v1/jobs/NAME/checkpoints", "/v1/jobs/NAME/savepoints/1"] {
            let path = path.replace("NAME", name);
            for method in ["GET", "DELETE"] {
                let found = status(&daemon, method, &path, LOCAL, b"");
                assert!(matches!(found, 400 | 404 | 405 | 422), "{method} {path}: {found}");
            }
        }
        for verb in ["stop", "restart", "savepoints", "operators/count/upgrade"] {
            let found = status(&daemon, "POST", &format!("/v1/jobs/{name}/{verb}"), LOCAL, b"");
            assert!(matches!(found, 400 | 404 | 415 | 422), "{verb} {name}: {found}");
        }
    }
    for epoch in ["0", "-1", "+1", "1.5", "abc", "99999999999999999999999", "%31"] {
        let found = status(&daemon, "DELETE", &format!("/v1/jobs/x/savepoints/{epoch}"), LOCAL, b"");
        assert_eq!(found, 404, "{epoch}");
    }
    assert_eq!(std::fs::read_to_string(folder.path("secret/spec.json")).expect("it is still there"), "secret");
    daemon.stop();
}

#[test]
fn pages_and_names_of_others_are_not_answered() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    let get = |headers: &str| status(&daemon, "GET", "/v1/jobs", headers, b"");
    assert_eq!(get(LOCAL), 200);
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8420", "0.0.0.0"] {
        assert_eq!(get(&format!("Host: {host}\r\n")), 403, "{host}");
    }
    assert_eq!(get("Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
    assert_eq!(get("Host: localhost\r\nOrigin: null\r\n"), 403);
    assert_eq!(get("Host: localhost\r\nOrigin: http://localhost\r\n"), 200);
    let simple = "Host: localhost\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\n";
    let job = json!({ "job_toml": endless_job("planted") }).to_string();
    assert_eq!(status(&daemon, "POST", "/v1/jobs", simple, job.as_bytes()), 403);
    assert_eq!(daemon.get("/v1/jobs"), json!({ "jobs": [] }));
    daemon.stop();
}

#[test]
fn methods_and_paths_that_there_are_not_are_refused_in_the_same_form() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    for (method, path, wanted) in [
        ("PUT", "/v1/jobs", 405),
        ("PATCH", "/v1/jobs/x", 405),
        ("DELETE", "/", 405),
        ("POST", "/metrics", 405),
        ("OPTIONS", "/v1/plugins", 405),
        ("TRACE", "/v1/plugins", 405),
        ("BREW", "/v1/plugins", 405),
        ("GET", "/v1/jobs/x/stop", 405),
        ("GET", "/v1", 404),
        ("GET", "/v1/jobs/", 404),
        ("GET", "//", 404),
        ("GET", "/favicon.ico", 404),
        ("GET", "/v1/jobs/x/y/z", 404),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{LOCAL}\r\n");
        let answer = exchange(daemon.address(), head.as_bytes()).expect("an answer");
        assert_eq!(answer.status, wanted, "{method} {path}");
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert!(body["error"].is_string() && body["help"].is_string(), "{method} {path}: {body}");
        assert_eq!(wanted == 405, answer.headers.contains_key("allow"), "{method} {path}: {answer:?}");
    }
    daemon.stop();
}

#[test]
fn too_much_is_refused_and_the_daemon_goes_on() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    assert_eq!(status(&daemon, "GET", "/v1/jobs", &format!("{LOCAL}X-Long: {}\r\n", "x".repeat(20_000)), b""), 431);
    assert_eq!(status(&daemon, "GET", "/v1/jobs", &format!("{LOCAL}{}", "X-Many: 1\r\n".repeat(80)), b""), 431);
    assert_eq!(status(&daemon, "GET", &format!("/v1/jobs?{}", "x".repeat(6_000)), LOCAL, b""), 414);
    let upload = |bytes: &[u8]| {
        status(&daemon, "POST", "/v1/plugins", "Host: localhost\r\nContent-Type: application/wasm\r\n", bytes)
    };
    assert_eq!(upload(&vec![0; 9 * MIB]), 413);
    // Without its length, it is known to be too large only when so much has come.
    let mut request =
        b"POST /v1/plugins HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/wasm\r\n"
            .to_vec();
    request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for _ in 0..9 {
        request.extend_from_slice(format!("{MIB:x}\r\n").as_bytes());
        request.extend_from_slice(&vec![0; MIB]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = exchange(daemon.address(), &request).expect("an answer");
    assert_eq!(answer.status, 413, "{answer:?}");
    // No number of headers, nor a head without an end, takes more than a bounded part of memory.
    let endless = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 4 * MIB]].concat();
    let answer = exchange(daemon.address(), &endless);
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status == 431));

    for name in ["a", "b"] {
        daemon.submit(&endless_job(name), &folder.path(""));
    }
    let third = json!({ "job_toml": endless_job("c") });
    daemon.refused(429, "POST", "/v1/jobs", Sent::Json(&third), &["2 jobs"]);
    daemon.upload(&operator("split"));
    daemon.upload(&operator("count"));
    let component = std::fs::read(operator("identity")).expect("a component");
    let sent = Sent::Bytes { kind: "application/wasm", bytes: &component };
    daemon.refused(429, "POST", "/v1/plugins", sent, &["2 plugins"]);
    daemon.stop();
}

#[test]
fn what_is_no_operator_is_refused_and_leaves_nothing() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    let component = std::fs::read(operator("count")).expect("a component");
    let mut damaged = component.clone();
    damaged.truncate(component.len() / 2);
    let module = b"\0asm\x01\0\0\0".to_vec();
    let empty_component = b"\0asm\x0d\0\x01\0".to_vec();
    for garbage in [Vec::new(), b"not wasm".to_vec(), vec![0xff; 100_000], damaged, module, empty_component] {
        let sent = Sent::Bytes { kind: "application/wasm", bytes: &garbage };
        daemon.refused(422, "POST", "/v1/plugins", sent, &[]);
    }
    let sent = Sent::Bytes { kind: "application/json", bytes: &component };
    daemon.refused(415, "POST", "/v1/plugins", sent, &["application/json"]);
    assert_eq!(daemon.get("/v1/plugins"), json!({ "plugins": [] }));
    let left = std::fs::read_dir(folder.path("data/plugins")).expect("the folder of plugins").count();
    assert_eq!(left, 0, "nothing is left of what was refused");
    daemon.stop();
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_an_upload_leaves_nothing() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    let plugins = folder.path("data/plugins");
    for bytes in [0, 1, 100_000, 3 * MIB] {
        let mut stream = TcpStream::connect(daemon.address()).expect("a connection");
        let head = format!(
            "POST /v1/plugins HTTP/1.1\r\n{LOCAL}Content-Type: application/wasm\r\nContent-Length: {}\r\n\r\n",
            4 * MIB
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream.write_all(&vec![0; bytes]).expect("sent");
        drop(stream);
    }
    lockgate_tests::wait_until("the leftovers to be removed", || {
        std::fs::read_dir(&plugins).is_ok_and(|entries| entries.count() == 0)
    });
    daemon.get("/v1/plugins");
    daemon.stop();
}

#[test]
fn clients_that_are_slow_or_silent_hold_up_nobody() {
    let folder = JobFolder::new();
    let daemon = daemon(&folder);
    let open = |bytes: &str| {
        let mut stream = TcpStream::connect(daemon.address()).expect("a connection");
        stream.write_all(bytes.as_bytes()).expect("sent");
        stream
    };
    let head = format!("POST /v1/jobs HTTP/1.1\r\n{LOCAL_JSON}Content-Length: 1000\r\n\r\n{{");
    let mut slow = (0..100).map(|_| open("GET / HT")).collect::<Vec<_>>();
    slow.extend((0..100).map(|_| open(&head)));
    // There is room left for others, who are answered at once.
    for _ in 0..20 {
        daemon.get("/v1/jobs");
    }
    // Those are told, or closed, when their time is over.
    let mut answer = String::new();
    let mut last = slow.pop().expect("one of them");
    last.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    drop(slow);
    daemon.stop();
}
