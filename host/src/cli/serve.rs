//! `lockgate serve`: the daemon, from its start to the signal that ends it.
//!
//! Invariant: nothing runs before both the address and the data folder are its own.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::api::{self, ApiError, ApiOptions, Token};
use crate::cli::check::places::check_places;
use crate::cli::compiler::CompilerArgs;
use crate::cli::signals::{StopSignals, at_signals};
use crate::cli::token::{self, token};
use crate::cli::{CliError, print};
use crate::serve::{Daemon, DaemonOptions, ServeError};
use crate::units;

/// How long what is left of a request may take when all else has ended.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Run a daemon that runs many jobs: submit, stop and upgrade them by other verbs, or over HTTP. Its jobs go on when it is started
/// again, also after a crash. SIGTERM or SIGINT (Ctrl-C) stops it, with a last checkpoint of each job; a second one stops it at
/// once, and loses nothing either
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate serve --data /var/lib/lockgate
  lockgate serve --data ./data --listen 127.0.0.1:0 --json
  lockgate serve --data ./data --listen 0.0.0.0:8420 --token-file token

Whoever may ask it may read and write, by way of jobs, what its user may. On an address of this machine only, that is every user of
the machine, unless there is a token. Elsewhere a token is required; what is sent isn't encrypted, so put a proxy that does before it.
Requests: http://ADDRESS/openapi.json; a page for people: http://ADDRESS/; for Prometheus: http://ADDRESS/metrics

Exit codes: 0 it was stopped; 1 it failed; 2 the address or the data folder can't be used; 128 + N it was stopped at once by a second
signal N

Environment:
  LOCKGATE_TOKEN   the token that clients must name, if there is no --token-file")]
pub struct Args {
    /// The folder in which it keeps plugins, jobs and their state; made if it isn't there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where it listens: HOST:PORT; port 0 is a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8420")]
    listen: ListenAddress,
    /// A file with the token that clients must name
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The largest plugin that it takes
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::size::parse)]
    plugin_max: u64,
    /// How many plugins it keeps
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = at_least_one)]
    plugins_max: usize,
    /// How many jobs it keeps, running or not
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = at_least_one)]
    jobs_max: usize,
    #[command(flatten)]
    compiler: CompilerArgs,
    /// Print where it listens, or the error, as JSON
    #[arg(long)]
    pub json: bool,
}

/// A number of things of which one at least is wanted.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be 1 or more".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

#[derive(Clone, Debug)]
struct ListenAddress {
    given: String,
    addresses: Vec<SocketAddr>,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(given: &str) -> Result<ListenAddress, String> {
        let whole = if given.starts_with(':') { format!("127.0.0.1{given}") } else { given.to_owned() };
        let resolved = whole.to_socket_addrs();
        let resolved = resolved.map_err(|error| format!("{error}; write HOST:PORT, or :PORT for 127.0.0.1"))?;
        let addresses = resolved.collect::<Vec<_>>();
        if addresses.is_empty() {
            return Err("there is no such host".to_owned());
        }
        Ok(ListenAddress { given: given.to_owned(), addresses })
    }
}

/// # Errors
/// If the address, the token or the data folder can't be used.
pub fn run(args: &Args) -> Result<(), CliError> {
    let secret = token(args.token_file.as_deref())?;
    let secret = secret.map(|text| Token::new(&text).expect("a token that was checked"));
    if args.token_file.is_some() && std::env::var_os(token::VARIABLE).is_some() {
        print::err(&format!("warning: --token-file counts, and {} doesn't\n", token::VARIABLE));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot start threads").caused_by(&error))?;
    let (begun, has_begun) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let signals = at_signals(|signals| stop_at_signal(signals, has_begun, stop))?;
    let done = runtime.block_on(serve(args, secret, begun, stopped));
    runtime.shutdown_timeout(END_WITHIN);
    drop(signals);
    done
}

/// Says when it has `begun`, and goes on until it is to be `stopped`.
async fn serve(
    args: &Args,
    token: Option<Token>,
    begun: oneshot::Sender<()>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), CliError> {
    let listener = TcpListener::bind(&*args.listen.addresses).await.map_err(|error| {
        let refused = CliError::unusable(format!("cannot listen at {}", args.listen.given)).caused_by(&error);
        refused.help("another process may be listening there: name another address by --listen; port 0 is a free one")
    })?;
    let options = ApiOptions { token, plugin_bytes_max: args.plugin_max };
    api::check(&listener, &options)?;
    let address = listener.local_addr().map_err(|source| ApiError::Socket { source })?;
    let options_of_daemon = DaemonOptions {
        data_dir: args.data.clone(),
        plugin_bytes_max: args.plugin_max,
        plugins_max: args.plugins_max,
        jobs_max: args.jobs_max,
        compiler: args.compiler.compiler(),
    };
    let daemon = Daemon::start_with(options_of_daemon, Arc::new(|file| Ok(check_places(file)?)));
    let daemon = daemon.await.map_err(|error| cannot_start(&error))?;
    // Whoever listens for signals outlives this.
    let _ = begun.send(());
    print::out(&started(args, address))?;
    let stop = async move {
        let _ = stopped.await;
    };
    api::serve(daemon, listener, options, stop).await?;
    print::err("stopped; the jobs go on when the daemon is started again\n");
    Ok(())
}

/// The first signal stops the daemon in order, if it has begun; the second ends the process.
async fn stop_at_signal(mut signals: StopSignals, mut begun: oneshot::Receiver<()>, stop: oneshot::Sender<()>) {
    let number = signals.next().await;
    if begun.try_recv().is_err() {
        end_at_once(number);
    }
    print::err("stopping each job with a checkpoint; a second signal stops at once\n");
    // If nobody waits for it, the daemon is ending already.
    let _ = stop.send(());
    end_at_once(signals.next().await)
}

fn end_at_once(number: i32) -> ! {
    print::err("stopped at once; the jobs go on from their last checkpoints\n");
    std::process::exit(128 + number)
}

fn started(args: &Args, address: SocketAddr) -> String {
    if args.json {
        let (url, data, pid) = (format!("http://{address}"), &args.data, std::process::id());
        return format!("{}\n", serde_json::json!({ "url": url, "address": address, "data": data, "pid": pid }));
    }
    format!("lockgate serves at http://{address}\n")
}

/// Nothing has begun, so it is the folder that can't be used.
fn cannot_start(error: &ServeError) -> CliError {
    let refused = CliError::unusable(error.to_string()).because(error.causes());
    match error.help() {
        Some(help) => refused.help(help),
        None => refused,
    }
}

impl From<ApiError> for CliError {
    fn from(error: ApiError) -> CliError {
        let refused = match std::error::Error::source(&error) {
            Some(cause) => CliError::unusable(error.to_string()).caused_by(cause),
            None => CliError::unusable(error.to_string()),
        };
        refused.help(error.help())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_this_machines_own() {
        let first = |given: &str| given.parse::<ListenAddress>().map(|parsed| parsed.addresses[0].to_string());
        assert_eq!(first(":8420"), Ok("127.0.0.1:8420".to_owned()));
        assert_eq!(first("[::1]:0"), Ok("[::1]:0".to_owned()));
        for wrong in ["", "8420", ":", ":99999", "127.0.0.1"] {
            assert!(first(wrong).expect_err(wrong).contains("HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn a_daemon_keeps_at_least_one_of_each() {
        assert_eq!(at_least_one("3"), Ok(3));
        assert!(at_least_one("0").is_err() && at_least_one("-1").is_err() && at_least_one("many").is_err());
    }
}
