//! Where `run` serves the metrics of its job.
//!
//! Invariant: they are served on a thread of their own, and no client holds up the job or its end.

use std::fmt;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::api::{METRICS_PATH, serve_metrics};
use crate::cli::CliError;
use crate::cli::own_thread::OwnThread;
use crate::id::Name;
use crate::telemetry::{JobCounters, Now, prometheus_text};

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
    address: SocketAddr,
    _answering: OwnThread,
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
        let (job, counters) = (job.clone(), Arc::clone(counters));
        let text = move || {
            let now = Now { monotonic: Instant::now(), wall: SystemTime::now() };
            prometheus_text(&job, &counters, now)
        };
        let answering = OwnThread::start("metrics", || {
            listener.set_nonblocking(true)?;
            Ok(serve_metrics(tokio::net::TcpListener::from_std(listener)?, text))
        });
        Ok(MetricsServer { address, _answering: answering.map_err(|error| refused(&error))? })
    }
}

impl fmt::Display for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{METRICS_PATH}", self.address)
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
