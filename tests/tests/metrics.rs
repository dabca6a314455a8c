//! `lockgate run --metrics`: what a Prometheus would get from the real binary is right to the record.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use lockgate_tests::{JobFolder, Metrics, PATIENCE, Running, WordCount, ask, faulty};

/// The exit code for what can't be used.
const UNUSABLE: i32 = 2;

fn start(folder: &JobFolder, address: &str) -> Running {
    let mut command = folder.command("run");
    command.args(["--metrics", address]);
    Running::start(command)
}

#[track_caller]
fn scrape(address: &str) -> Metrics {
    let answer = ask(address, "GET", "/metrics").expect("somebody answers");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        answer.headers.get("content-type").map(String::as_str),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    Metrics::parse(&answer.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body))
}

#[test]
fn counters_equal_what_was_read_processed_and_written() {
    let job = WordCount::new().continuous();
    job.folder.write("input/a.txt", "one two two\nthree\n");
    job.folder.write("input/b.txt", "two three\n\n");
    let mut running = start(&job.folder, "127.0.0.1:0");
    let address = running.metrics_address();
    running.wait_until("exact output", || job.totals().check(&job.output()).is_ok());
    let mut metrics = scrape(&address);
    running.wait_until("the checkpoint that committed it", || {
        metrics = scrape(&address);
        metrics.get("lockgate_checkpoints_total", &[("job", "word-count")]).is_some_and(|count| count > 0.0)
    });
    let records =
        |direction: &str, operator| metrics.sum(&format!("lockgate_records_{direction}_total"), ("operator", operator));
    let lines = 4.0;
    let words = 6.0;
    assert_eq!((records("in", "text"), records("out", "text")), (0.0, lines));
    assert_eq!((records("in", "split"), records("out", "split")), (lines, words));
    assert_eq!((records("in", "count"), records("out", "count")), (words, words));
    assert_eq!((records("in", "out"), records("out", "out")), (words, 0.0));
    // What the lines hold, and what a batch needs for each of them.
    let bytes = metrics.sum("lockgate_bytes_out_total", ("operator", "text"));
    let line_bytes = ("one two two".len() + "three".len() + "two three".len()) as f64;
    assert!((line_bytes..line_bytes + 32.0 * lines).contains(&bytes), "{bytes}");
    assert_eq!(metrics.sum("lockgate_bytes_in_total", ("operator", "split")), bytes);

    for (operator, subtask) in [("text", "0"), ("split", "1"), ("count", "0"), ("out", "0")] {
        let labels = [("operator", operator), ("subtask", subtask)];
        let of = |name: &str| metrics.get(name, &labels).unwrap_or_else(|| panic!("{name} of {operator}"));
        assert!(of("lockgate_idle_seconds_total") > 0.0, "{operator} has waited for input, if for nothing else");
        assert!(of("lockgate_busy_seconds_total") >= 0.0 && of("lockgate_backpressured_seconds_total") >= 0.0);
        assert_eq!(of("lockgate_records_rejected_total"), 0.0);
    }
    assert_eq!(metrics.get("lockgate_restarts_total", &[("job", "word-count")]), Some(0.0));

    let of_job = |name: &str| metrics.get(name, &[("job", "word-count")]);
    let count = of_job("lockgate_checkpoints_total");
    assert_eq!(of_job("lockgate_checkpoint_duration_seconds_count"), count);
    assert!(of_job("lockgate_checkpoint_epoch") >= count && of_job("lockgate_checkpoint_failures_total") == Some(0.0));
    assert!(of_job("lockgate_checkpoint_age_seconds").is_some_and(|age| (0.0..300.0).contains(&age)));
    assert!(of_job("lockgate_checkpoint_size_bytes").is_some_and(|bytes| bytes > 0.0));
    assert!(metrics.sum("lockgate_state_size_bytes", ("operator", "count")) > 0.0);
    for subtask in ["0", "1"] {
        let labels = [("job", "word-count"), ("operator", "count"), ("subtask", subtask)];
        assert!(metrics.get("lockgate_records_in_total", &labels).is_some(), "subtask {subtask}");
    }
    running.terminate();
    let finished = running.wait();
    finished.assert_success();
    assert!(!finished.stdout.contains("metrics:"), "standard output is for results");
    assert!(ask(&address, "GET", "/metrics").is_err(), "nobody answers any more");
}

#[test]
fn rejected_records_event_time_and_the_memory_of_guests_are_told() {
    let folder = JobFolder::new();
    let job = format!(
        r#"[job]
name = "copy"
state_dir = "state"
[checkpoint]
interval = "20ms"
[source.text]
type = "file"
path = "input"
mode = "continuous"
[source.text.event_time]
from = "csv"
column = 0
on_missing = "none"
[source.text.watermark]
strategy = "monotonous"
[operator.picky]
wasm = "{wasm}"
input = "text"
on_error = "skip"
[operator.picky.limits]
memory = "32MiB"
[sink.out]
type = "file"
path = "output"
input = "picky"
"#,
        wasm = faulty().display()
    );
    folder.write("job.toml", job);
    folder.write("input/a.txt", "1000,a\nrefuse\n2000,b\nrefuse\nrefuse\n9000,c\n");
    let mut running = start(&folder, "127.0.0.1:0");
    let address = running.metrics_address();
    let picky = [("job", "copy"), ("operator", "picky"), ("subtask", "0")];
    let mut metrics = scrape(&address);
    running.wait_until("the records and the watermark behind them", || {
        metrics = scrape(&address);
        let reached = metrics.get("lockgate_watermark_timestamp_seconds", &picky);
        metrics.sum("lockgate_records_in_total", ("operator", "out")) == 3.0
            && reached.is_some_and(|reached| reached > 2.0)
    });
    let of = |name: &str| metrics.get(name, &picky);
    assert_eq!(of("lockgate_records_in_total"), Some(6.0));
    assert_eq!((of("lockgate_records_out_total"), of("lockgate_records_rejected_total")), (Some(3.0), Some(3.0)));
    assert!(of("lockgate_watermark_timestamp_seconds").is_some_and(|reached| (8.9..=9.0).contains(&reached)));
    assert!(of("lockgate_watermark_lag_seconds").is_some_and(|lag| lag > 1.7e9), "it is long since 1970");
    let memory = of("lockgate_guest_memory_bytes");
    assert!(memory.is_some_and(|bytes| (65_536.0..=33_554_432.0).contains(&bytes)), "{memory:?}");
    assert_eq!(metrics.get("lockgate_guest_memory_bytes", &[("operator", "out")]), None, "a sink is no guest");
    running.terminate();
    running.wait().assert_success();
}

#[test]
fn there_is_nothing_but_the_metrics_and_nothing_to_change() {
    let job = WordCount::new().continuous();
    let mut running = start(&job.folder, "127.0.0.1:0");
    let address = running.metrics_address();
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/", 405),
        ("HEAD", "/metrics", 200),
    ] {
        let answer = ask(&address, method, path).expect("an answer");
        assert_eq!(answer.status, status, "{method} {path}");
        let allowed = (status == 405).then_some("GET, HEAD");
        assert_eq!(answer.headers.get("allow").map(String::as_str), allowed, "{method} {path}");
        assert!(method != "HEAD" || answer.body.is_empty(), "{}", answer.body);
    }
    running.terminate();
    running.wait().assert_success();
}

/// Opens a connection, sends that much of a request, and leaves the rest out.
fn begin(address: &str, part: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(part.as_bytes()).expect("sent");
    stream
}

#[test]
fn a_client_that_sends_nothing_more_holds_up_neither_another_one_nor_the_end() {
    let job = WordCount::new().continuous();
    let mut running = start(&job.folder, "127.0.0.1:0");
    let address = running.metrics_address();
    let mut silent = Vec::new();
    for (method, length, status) in [("POST", 99_999_999_999_999_u64, "405"), ("GET", 2_000_000_000, "200")] {
        let head = format!("{method} /metrics HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n");
        let stream = begin(&address, &head);
        stream.set_read_timeout(Some(PATIENCE)).expect("a time to wait");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("an answer that waits for no body");
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{method}: {line}");
        scrape(&address);
        silent.push(stream);
    }
    for part in
        ["", "GET /metrics HTTP/1.1\r\nHost: x", "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nbody"]
    {
        silent.push(begin(&address, part));
        scrape(&address);
    }
    running.terminate();
    running.wait().assert_success();
    drop(silent);
}

#[test]
fn a_port_that_is_taken_or_no_address_is_refused_before_anything_is_done() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, 10_000);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = format!(":{}", taken.local_addr().expect("bound").port());
    start(&job.folder, &port).wait().assert_refused(UNUSABLE, &[&port, "in use", "port 0"]);
    let refused = start(&job.folder, "nowhere").wait();
    assert_eq!(refused.status.code(), Some(UNUSABLE), "{}", refused.stderr);
    assert!(refused.stderr.contains("HOST:PORT"), "{}", refused.stderr);
    assert!(!job.output().exists() && !job.folder.path("state").exists());
}
