//! A `lockgate serve` that a test asks over HTTP, kills and starts again.
//!
//! Invariant: every answer is compared with the daemon's own OpenAPI document.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::binary::lockgate;
use crate::openapi::OpenApi;
use crate::patience::{wait_long_until, wait_until};
use crate::process::{Finished, Running};
use crate::prometheus::Answer;

/// An answer that takes longer is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// A daemon that runs.
pub struct Daemon {
    running: Running,
    address: String,
    token: Option<String>,
    document: OpenApi,
}

/// How a daemon is started.
#[derive(Clone, Debug)]
pub struct DaemonSetUp {
    pub data: PathBuf,
    pub listen: String,
    pub arguments: Vec<String>,
    pub token: Option<String>,
    pub crash_at: Option<String>,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub enum Sent<'a> {
    Nothing,
    Json(&'a Value),
    Bytes { kind: &'a str, bytes: &'a [u8] },
}

impl DaemonSetUp {
    pub fn new(data: impl Into<PathBuf>) -> DaemonSetUp {
        let listen = "127.0.0.1:0".to_owned();
        DaemonSetUp { data: data.into(), listen, arguments: Vec::new(), token: None, crash_at: None }
    }

    #[must_use]
    pub fn listen(mut self, address: &str) -> DaemonSetUp {
        self.listen = address.to_owned();
        self
    }

    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> DaemonSetUp {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    #[must_use]
    pub fn token(mut self, token: &str) -> DaemonSetUp {
        self.token = Some(token.to_owned());
        self
    }

    /// It dies at this point.
    #[must_use]
    pub fn crash_at(mut self, point: &str) -> DaemonSetUp {
        self.crash_at = Some(point.to_owned());
        self
    }

    /// `lockgate serve`, not started yet.
    pub fn command(&self) -> Command {
        let mut command = Command::new(lockgate());
        command.arg("serve").arg("--data").arg(&self.data).args(["--listen", &self.listen, "--json"]);
        command.args(&self.arguments).env_remove("LOCKGATE_CRASH_AT").env_remove("LOCKGATE_TOKEN");
        if let Some(token) = &self.token {
            command.env("LOCKGATE_TOKEN", token);
        }
        if let Some(point) = &self.crash_at {
            command.env("LOCKGATE_CRASH_AT", point);
        }
        command
    }

    /// Starts it, and returns when it listens.
    ///
    /// # Panics
    /// If it ends before.
    pub fn start(&self) -> Daemon {
        match self.try_start() {
            Ok(daemon) => daemon,
            Err(finished) => panic!("the daemon ended with {}; its messages:\n{}", finished.status, finished.stderr),
        }
    }

    /// Starts one that may be killed by its crash point at any moment; `None` if that was before it answered.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub fn start_mortal(&self) -> Option<Daemon> {
        match self.try_start() {
            Ok(daemon) => Some(daemon),
            Err(finished) => {
                assert!(finished.was_killed(), "the daemon ended with {}\n{}", finished.status, finished.stderr);
                None
            }
        }
    }

    /// Starts it, and returns when it listens or has ended.
    ///
    /// # Errors
    /// How it has ended.
    pub fn try_start(&self) -> Result<Daemon, Finished> {
        let mut running = Running::start(self.command());
        let mut address = None;
        wait_until("the daemon's address", || {
            let said = running.stdout().lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
            address = said.and_then(|said| said["address"].as_str().map(str::to_owned));
            address.is_some() || !running.is_alive()
        });
        let Some(address) = address else { return Err(running.wait()) };
        let document = OpenApi::new(Value::Null);
        let mut daemon = Daemon { running, address, token: self.token.clone(), document };
        match daemon.send("GET", "/openapi.json", Sent::Nothing) {
            Ok(answer) => daemon.document = OpenApi::new(serde_json::from_str(&answer.body).expect("a document")),
            Err(error) => {
                let ended = daemon.running.wait();
                assert!(ended.was_killed(), "the daemon doesn't answer: {error}\n{}", ended.stderr);
                return Err(ended);
            }
        }
        Ok(daemon)
    }
}

impl Daemon {
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn process(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Sends a request; gives the answer, if there is one.
    ///
    /// # Errors
    /// If the daemon isn't there, or breaks off.
    pub fn send(&self, method: &str, path: &str, sent: Sent<'_>) -> std::io::Result<Answer> {
        let (kind, body) = match sent {
            Sent::Nothing => (None, Vec::new()),
            Sent::Json(value) => (Some("application/json"), value.to_string().into_bytes()),
            Sent::Bytes { kind, bytes } => (Some(kind), bytes.to_vec()),
        };
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(kind) = kind {
            head += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        }
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        exchange(&self.address, &[head.as_bytes(), b"\r\n", &body].concat())
    }

    /// Sends a request and compares the answer with the daemon's document.
    ///
    /// # Panics
    /// If there is no answer, or it differs.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, sent: Sent<'_>) -> (u16, Value) {
        let answer = self.send(method, path, sent);
        let answer = answer.unwrap_or_else(|error| panic!("no answer to {method} {path}: {error}"));
        self.conforms(method, path, &answer);
        (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
    }

    /// # Panics
    /// If the answer isn't as the daemon's document says.
    #[track_caller]
    pub fn conforms(&self, method: &str, path: &str, answer: &Answer) {
        let kind = answer.headers.get("content-type").map(String::as_str);
        let checked = self.document.check(method, path, answer.status, kind, &answer.body);
        checked.unwrap_or_else(|wrong| panic!("the answer isn't as documented: {wrong}"));
        assert_eq!(answer.headers.get("x-content-type-options").map(String::as_str), Some("nosniff"));
    }

    /// Asks for what must be there.
    ///
    /// # Panics
    /// If it isn't.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.done(200, "GET", path, Sent::Nothing)
    }

    /// Asks for what must be done with this status.
    ///
    /// # Panics
    /// If it isn't.
    #[track_caller]
    pub fn done(&self, status: u16, method: &str, path: &str, sent: Sent<'_>) -> Value {
        let (found, body) = self.ask(method, path, sent);
        assert_eq!(found, status, "{method} {path}: {body}");
        body
    }

    /// Asks for what must be refused with this status and an error that names each of the things and says what to do.
    ///
    /// # Panics
    /// If it isn't.
    #[track_caller]
    pub fn refused(&self, status: u16, method: &str, path: &str, sent: Sent<'_>, things: &[&str]) {
        let body = self.done(status, method, path, sent);
        let text = body.to_string();
        assert!(body["help"].is_string(), "{method} {path}: nothing says what to do: {text}");
        for thing in things {
            assert!(text.contains(thing), "{method} {path}: nothing names '{thing}': {text}");
        }
    }

    /// Uploads a component; gives its hash.
    ///
    /// # Panics
    /// If it isn't taken.
    #[track_caller]
    pub fn upload(&self, component: &Path) -> String {
        let bytes = std::fs::read(component).expect("the component is there");
        let sent = Sent::Bytes { kind: "application/wasm", bytes: &bytes };
        let (status, plugin) = self.ask("POST", "/v1/plugins", sent);
        assert!(matches!(status, 200 | 201), "{status}: {plugin}");
        plugin["hash"].as_str().expect("a hash").to_owned()
    }

    /// Submits a job file.
    ///
    /// # Panics
    /// If it isn't taken.
    #[track_caller]
    pub fn submit(&self, job_toml: &str, base_dir: &Path) -> Value {
        let submission = json!({ "job_toml": job_toml, "base_dir": base_dir });
        self.done(201, "POST", "/v1/jobs", Sent::Json(&submission))
    }

    #[track_caller]
    pub fn job(&self, name: &str) -> Value {
        self.get(&format!("/v1/jobs/{name}"))
    }

    /// Returns when the job has this status.
    ///
    /// # Panics
    /// If it fails before, or never has it.
    #[track_caller]
    pub fn wait_for_status(&self, name: &str, wanted: &str) -> Value {
        let mut job = Value::Null;
        wait_long_until(&format!("the job {name} to be {wanted}"), || {
            job = self.job(name);
            assert!(job["status"] != "failed" || wanted == "failed", "{job}");
            job["status"] == wanted
        });
        job
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.running.kill();
        self.running.wait();
    }

    /// SIGTERM, and its end.
    ///
    /// # Panics
    /// Unless it ends in order.
    #[track_caller]
    pub fn stop(self) -> Finished {
        self.running.terminate();
        let finished = self.running.wait();
        finished.assert_success();
        finished
    }

    /// Waits for its end.
    pub fn wait(self) -> Finished {
        self.running.wait()
    }
}

/// Sends bytes as they are, and reads the answer to its end.
///
/// # Errors
/// If nobody is there, or what comes is no answer.
pub fn exchange(address: &str, request: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    // A daemon that refuses may do so before it has read all; its answer is what counts.
    let written = stream.write_all(request);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        written?;
        read?;
    }
    let _ = stream.shutdown(Shutdown::Both);
    parse(&answer).ok_or_else(|| std::io::Error::other("what came is no answer in HTTP/1.1"))
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let body = &answer[end + 4..];
    let whole = headers.get("content-length").is_none_or(|length| length.parse() == Ok(body.len()));
    whole.then(|| Answer { status, headers, body: String::from_utf8_lossy(body).into_owned() })
}
