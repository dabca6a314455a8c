//! Asks a daemon over HTTP, for the verbs that concern it.
//!
//! Invariant: a daemon's text is printed without control characters, and its token goes to nobody else: no proxy, no redirect.

use std::fs::File;
use std::io::Read;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, SendBody};

use crate::cli::CliError;
use crate::cli::token::token;
use crate::telemetry::printable;

const VARIABLE: &str = "LOCKGATE_SERVER";
const DEFAULT_SERVER: &str = "http://127.0.0.1:8420";
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// For the daemon's word whether it wants an upload; an old one may never say it.
const GO_AHEAD_WITHIN: Duration = Duration::from_secs(10);
/// An answer that only says what there is.
const READ_WITHIN: Duration = Duration::from_secs(120);
/// A longer answer is none of a daemon's.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// What of a daemon's error is printed.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Which daemon to ask.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// The daemon [default: that of LOCKGATE_SERVER, else http://127.0.0.1:8420]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A file with the daemon's token [default: the token of LOCKGATE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A daemon to ask.
pub struct Client {
    agent: Agent,
    /// Without a slash at its end.
    server: String,
    authorization: Option<String>,
}

/// What a daemon says when it doesn't do as it was asked.
#[derive(Deserialize)]
struct Refused {
    error: String,
    #[serde(default)]
    causes: Vec<String>,
    help: Option<String>,
}

impl Client {
    /// Connects to nobody yet.
    ///
    /// # Errors
    /// If the URL or the token can't be used.
    pub fn new(args: &ServerArgs) -> Result<Client, CliError> {
        let variable = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
        let given = args.server.clone().or(variable).unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("lockgate/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_await_100(Some(GO_AHEAD_WITHIN))
            .build();
        let authorization = token(args.token_file.as_deref())?.map(|token| format!("Bearer {token}"));
        Ok(Client { agent: config.into(), server: checked(&given)?, authorization })
    }

    /// # Errors
    /// If nobody answers, or with an error.
    pub fn get(&self, path: &str) -> Result<Value, CliError> {
        self.read(self.ask(path))
    }

    /// `None` if there is no such thing.
    ///
    /// # Errors
    /// If nobody answers, or with another error.
    pub fn get_if_there(&self, path: &str) -> Result<Option<Value>, CliError> {
        let answer = self.ask(path);
        if answer.as_ref().is_ok_and(|answer| answer.status() == 404) {
            return Ok(None);
        }
        self.read(answer).map(Some)
    }

    fn ask(&self, path: &str) -> Result<Response<Body>, ureq::Error> {
        let mut request = self.agent.get(self.url(path)).config().timeout_global(Some(READ_WITHIN)).build();
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        request.call()
    }

    /// # Errors
    /// If nobody answers, or with an error.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        let mut request = self.agent.post(self.url(path));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(request.send_json(body))
    }

    /// # Errors
    /// If nobody answers, or with an error.
    pub fn delete(&self, path: &str) -> Result<(), CliError> {
        let mut request = self.agent.delete(self.url(path));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(request.call()).map(|_| ())
    }

    /// Sends a file, as it is read.
    ///
    /// # Errors
    /// If it can't be read, nobody answers, or with an error.
    pub fn upload(&self, path: &str, file: &Path, told: &mut dyn FnMut(u64)) -> Result<Value, CliError> {
        let cannot = |error: &dyn std::error::Error| {
            CliError::unusable(format!("cannot read {}", file.display()))
                .caused_by(error)
                .help("give a component's path")
        };
        let opened = File::open(file).map_err(|error| cannot(&error))?;
        let facts = opened.metadata().map_err(|error| cannot(&error))?;
        if !facts.is_file() {
            return Err(cannot(&std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        // No more than was announced, should the file grow meanwhile.
        let mut counted = Counted { reader: opened.take(facts.len()), bytes: 0, told };
        let request = self.agent.post(self.url(path));
        let mut request = request
            .header("Content-Type", "application/wasm")
            .header("Content-Length", facts.len().to_string())
            .header("Expect", "100-continue");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(request.send(SendBody::from_reader(&mut counted)))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    fn read(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Value, CliError> {
        let mut answer = answer.map_err(|error| self.unanswered(&error))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| self.unanswered(&error))?;
        if (200..300).contains(&status) {
            return match text.as_str() {
                "" => Ok(Value::Null),
                text => serde_json::from_str(text).map_err(|error| self.stranger(status).caused_by(&error)),
            };
        }
        match serde_json::from_str::<Refused>(&text) {
            Ok(refused) => Err(refused.into_error(status)),
            Err(_) => Err(self.stranger(status)),
        }
    }

    fn unanswered(&self, error: &ureq::Error) -> CliError {
        let refused = match error {
            ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => true,
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
            _ => false,
        };
        if refused {
            let error = CliError::failed(format!("no daemon answers at {}", self.server)).caused_by(error);
            return error.help("start one with: lockgate serve --data DIR; or name another with --server");
        }
        if matches!(error, ureq::Error::Io(_)) && !has_address(&self.server) {
            let error = CliError::failed(format!("there is no host of the name in {}", self.server)).caused_by(error);
            return error.help("name the daemon with --server http://HOST:PORT");
        }
        let error = CliError::failed(format!("the daemon at {} has broken off", self.server)).caused_by(error);
        error.help("look at its log and at the status of the job: what was asked may have been done")
    }

    fn stranger(&self, status: u16) -> CliError {
        let error =
            CliError::failed(format!("what answers at {} is no lockgate daemon (status {status})", self.server));
        error.help("name the daemon with --server http://HOST:PORT")
    }
}

impl Refused {
    fn into_error(self, status: u16) -> CliError {
        let text = |text: &str| printable(text, TEXT_BYTES_MAX);
        // What can't be now, or is the daemon's trouble, is no mistake of the command line.
        let failed = matches!(status, 409 | 429 | 500..);
        let message = text(&self.error);
        let error = if failed { CliError::failed(message) } else { CliError::unusable(message) };
        let error = error.because(self.causes.iter().map(|cause| text(cause)).collect());
        match self.help {
            Some(help) => error.help(text(&help)),
            None => error,
        }
    }
}

/// The URL of a daemon without a slash at its end.
fn checked(given: &str) -> Result<String, CliError> {
    let refused = |why: &str, help: &str| {
        Err(CliError::unusable(format!("'{}' is no daemon's URL: {why}", printable(given, 200))).help(help))
    };
    let url = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let url = url.trim_end_matches('/');
    let Ok(uri) = url.parse::<Uri>() else {
        return refused("it can't be read", "write http://HOST:PORT");
    };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return refused(
                "lockgate doesn't speak TLS itself",
                "reach the daemon by a tunnel (ssh -L 8420:localhost:8420 HOST), and name http://127.0.0.1:8420",
            );
        }
        Some(_) | None => return refused("its scheme isn't http", "write http://HOST:PORT"),
    }
    let is_root = uri.path() == "/" && uri.query().is_none();
    if !is_root || uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return refused("there is more in it than a host and a port", "write http://HOST:PORT");
    }
    Ok(url.to_owned())
}

/// Whether the host of a URL can be found. Asked only when it didn't answer.
fn has_address(url: &str) -> bool {
    let uri = url.parse::<Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    (host, uri.port_u16().unwrap_or(80)).to_socket_addrs().is_ok_and(|mut addresses| addresses.next().is_some())
}

/// A reader that tells how much was read.
struct Counted<'a, R> {
    reader: R,
    bytes: u64,
    told: &'a mut dyn FnMut(u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes += read as u64;
        (self.told)(self.bytes);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn a_daemon_is_named_by_host_and_port_and_nothing_else() {
        assert_eq!(checked("http://127.0.0.1:8420/").expect("a URL"), "http://127.0.0.1:8420");
        assert_eq!(checked("localhost:8420").expect("a URL"), "http://localhost:8420");
        let bad = [
            "https://x",
            "ftp://x",
            "http://x/v1",
            "http://x?y",
            "http://u:p@x",
            "http://",
            "",
            "http://a b",
            "\u{1b}[31m",
        ];
        for bad in bad {
            let error = checked(bad).expect_err(bad);
            assert_eq!(error.exit(), Exit::Unusable);
            assert!(error.to_string().contains("help: ") && !error.to_string().contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn a_host_that_there_is_not_is_told_from_one_that_is_silent() {
        assert!(has_address("http://127.0.0.1:1") && has_address("http://[::1]:1") && has_address("http://localhost"));
        assert!(!has_address("http://nowhere.invalid") && !has_address("nonsense://"));
    }

    #[test]
    fn a_daemons_error_says_what_why_and_what_to_do_and_can_not_move_the_cursor() {
        let text = r#"{"error":"there is \u001b[2Jno job","causes":["a\nb"],"help":"list them"}"#;
        let refused: Refused = serde_json::from_str(text).expect("an error");
        let error = refused.into_error(404);
        assert_eq!(error.to_string(), "error: there is \\u{1b}[2Jno job\ncaused by: a\\nb\nhelp: list them");
        assert_eq!(error.exit(), Exit::Unusable);
        let busy = Refused { error: "in use".to_owned(), causes: Vec::new(), help: None }.into_error(409);
        assert_eq!(busy.exit(), Exit::Failed);
    }
}
