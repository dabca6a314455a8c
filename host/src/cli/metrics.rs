//! The metrics of a running job over HTTP, for Prometheus.
//!
//! A thread of its own answers, so that a slow reader holds up nobody.
//!
//! Invariant: a request changes nothing, and there is nothing to ask for but the metrics.

use std::fmt;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use tiny_http::{Header, Method, Request, Response, Server};

use crate::cli::CliError;
use crate::id::Name;
use crate::telemetry::{CONTENT_TYPE, JobCounters, Now, prometheus_text};

/// Where the metrics are.
const PATH: &str = "/metrics";

/// Where to listen: `HOST:PORT`, or `:PORT` for this machine only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress {
    given: String,
    address: SocketAddr,
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(given: &str) -> Result<MetricsAddress, String> {
        let whole = if given.starts_with(':') { format!("127.0.0.1{given}") } else { given.to_owned() };
        let resolved =
            whole.to_socket_addrs().map_err(|error| format!("{error}; write HOST:PORT, or :PORT for 127.0.0.1"))?;
        let address = resolved.into_iter().next().ok_or("there is no such host")?;
        Ok(MetricsAddress { given: given.to_owned(), address })
    }
}

/// Answers until it is dropped.
pub struct MetricsServer {
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// # Errors
    /// If nobody can listen there.
    pub fn start(wanted: &MetricsAddress, job: &Name, counters: &Arc<JobCounters>) -> Result<MetricsServer, CliError> {
        let refused = |error: &dyn std::error::Error| {
            CliError::unusable(format!("cannot serve metrics at {}", wanted.given)).caused_by(error).help(
                "another process may be listening there: name another port with --metrics, or port 0 for one that is free",
            )
        };
        let listener = TcpListener::bind(wanted.address).map_err(|error| refused(&error))?;
        let address = listener.local_addr().map_err(|error| refused(&error))?;
        let server = Server::from_listener(listener, None).map_err(|error| refused(&*error))?;
        let server = Arc::new(server);
        let (answering, job, counters) = (Arc::clone(&server), job.clone(), Arc::clone(counters));
        let answer_all = move || {
            while let Ok(request) = answering.recv() {
                // A reader that has gone away misses its answer.
                let _ = answer(request, &job, &counters);
            }
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(answer_all);
        Ok(MetricsServer { server, address, thread: Some(thread.map_err(|error| refused(&error))?) })
    }
}

impl fmt::Display for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{PATH}", self.address)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // A panic there is no reason for another one here.
            let _ = thread.join();
        }
    }
}

fn answer(request: Request, job: &Name, counters: &JobCounters) -> std::io::Result<()> {
    let header = |name: &str, value: &str| Header::from_bytes(name, value).expect("printable ASCII");
    let path = request.url().split('?').next().unwrap_or_default();
    match (request.method(), path) {
        (Method::Get | Method::Head, PATH) => {
            let now = Now { monotonic: Instant::now(), wall: SystemTime::now() };
            let text = prometheus_text(job, counters, now);
            request.respond(Response::from_string(text).with_header(header("Content-Type", CONTENT_TYPE)))
        }
        (Method::Get | Method::Head, _) => {
            request.respond(Response::from_string(format!("the metrics are at {PATH}\n")).with_status_code(404))
        }
        _ => request.respond(Response::empty(405).with_header(header("Allow", "GET, HEAD"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_this_machines_own() {
        let address = |given: &str| given.parse::<MetricsAddress>().map(|parsed| parsed.address.to_string());
        assert_eq!(address(":9464"), Ok("127.0.0.1:9464".to_owned()));
        assert_eq!(address("0.0.0.0:1"), Ok("0.0.0.0:1".to_owned()));
        assert_eq!(address("[::1]:0"), Ok("[::1]:0".to_owned()));
        for wrong in ["", "9464", ":", ":99999", "127.0.0.1", "127.0.0.1:x"] {
            let error = address(wrong).expect_err(wrong);
            assert!(error.contains("HOST:PORT"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_refused_and_said_what_to_do() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("bound").to_string().parse().expect("an address");
        let job = Name::new("words").expect("a name");
        let error = MetricsServer::start(&address, &job, &Arc::default()).err().expect("it is taken");
        assert_eq!(error.exit(), crate::cli::Exit::Unusable);
        assert!(error.to_string().contains(&address.given) && error.to_string().contains("port 0"), "{error}");
    }
}
