//! The verbs of the command line.
//!
//! Invariant: a verb that fails says so in one form on standard error and by its exit code; standard output holds results only, and
//! a reader that goes away is no error.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::guest::Compiler;

pub mod build;
mod check;
pub mod checkpoint;
mod checkpoint_verbs;
mod client;
mod compile_component;
mod compiler;
mod dry_run;
mod error;
pub mod inspect;
mod kafka;
mod load;
mod metrics;
pub mod new;
mod own_thread;
mod print;
mod progress;
mod remote;
mod replay;
mod run;
mod savepoint;
mod serve;
mod signals;
mod token;
mod txn;
mod upgrade;

pub use error::{CliError, Exit};

const AFTER_HELP: &str = "\
Examples:
  lockgate new my-op                    make an operator crate, with a test that passes
  lockgate build my-op                  compile it to a component
  lockgate inspect my-op/my_op.wasm     show what the component is
  lockgate check job.toml               show what a job means, and whether it can run
  lockgate run job.toml                 run it to the end of its input, or until Ctrl-C
  lockgate checkpoint list job.toml     show what it could continue from
  lockgate replay FILE.capsule          see an operator fail again, as it did in a job
  lockgate upgrade job.toml my-op my_op.wasm --dry-run    try a new component against the newest checkpoint
  lockgate txn list job.toml            show what it has open on its Kafka cluster
  lockgate serve --data ./data          run a daemon that runs many jobs; then, in another terminal:
  lockgate submit job.toml              give it a job; list, status, stop, restart, delete and savepoint are about its jobs
  lockgate plugin list                  show the components that it has
  lockgate upgrade words count new.wasm replace an operator's component while the job runs

Exit codes:
  0  done; for a job: it has ended or was stopped, and its output is committed
  1  the job, or the work of the verb, failed
  2  the command line, job file, plugin, input or a folder can't be used, or a Kafka cluster doesn't have or allow what the job file
     names; no output was committed. check: the job can't run, or go on
  128 + N  stopped at once by a second signal N; the next run continues from the last checkpoint

Environment:
  LOCKGATE_LOG      as --log
  LOCKGATE_SERVER   as --server of the verbs that ask a daemon
  LOCKGATE_TOKEN    the token that a daemon asks for, and clients name";

/// A stream-processing host with sandboxed WebAssembly operators and exactly-once output.
#[derive(Debug, Parser)]
#[command(name = "lockgate", version, after_help = AFTER_HELP, max_term_width = 120)]
struct Cli {
    /// What is logged to standard error: error, warn, info, debug, trace, or filters such as lockgate_host::store=debug
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    New(new::Args),
    Build(build::Args),
    Inspect(inspect::Args),
    Check(check::Args),
    Run(run::Args),
    Replay(replay::Args),
    Checkpoint(checkpoint_verbs::Args),
    Txn(txn::Args),
    Serve(serve::Args),
    Submit(remote::SubmitArgs),
    List(remote::ListArgs),
    Status(remote::StatusArgs),
    Stop(remote::StopArgs),
    Restart(remote::RestartArgs),
    Delete(remote::DeleteArgs),
    Savepoint(remote::SavepointArgs),
    Plugin(remote::plugin::Args),
    Upgrade(upgrade::Args),
    #[command(name = Compiler::VERB, hide = true)]
    CompileComponent(compile_component::Args),
}

impl Verb {
    fn run(&self) -> Result<(), CliError> {
        match self {
            Verb::New(args) => new::run(args),
            Verb::Build(args) => build::run(args),
            Verb::Inspect(args) => inspect::run(args),
            Verb::Check(args) => check::run(args),
            Verb::Run(args) => run::run(args),
            Verb::Replay(args) => replay::run(args),
            Verb::Checkpoint(args) => checkpoint_verbs::run(args),
            Verb::Txn(args) => txn::run(args),
            Verb::Serve(args) => serve::run(args),
            Verb::Submit(args) => remote::submit::run(args),
            Verb::List(args) => remote::jobs::run(args),
            Verb::Status(args) => remote::status::run(args),
            Verb::Stop(args) => remote::control::stop(args),
            Verb::Restart(args) => remote::control::restart(args),
            Verb::Delete(args) => remote::control::delete(args),
            Verb::Savepoint(args) => remote::savepoint::run(args),
            Verb::Plugin(args) => remote::plugin::run(args),
            Verb::Upgrade(args) => upgrade::run(args),
            Verb::CompileComponent(args) => compile_component::run(args),
        }
    }

    /// Whether results and errors are wanted as JSON.
    fn json(&self) -> bool {
        match self {
            Verb::New(_) | Verb::CompileComponent(_) => false,
            Verb::Build(args) => args.json,
            Verb::Inspect(args) => args.json,
            Verb::Check(args) => args.json,
            Verb::Run(args) => args.json,
            Verb::Replay(args) => args.json,
            Verb::Checkpoint(args) => args.json(),
            Verb::Txn(args) => args.json(),
            Verb::Serve(args) => args.json,
            Verb::Submit(args) => args.json,
            Verb::List(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::Stop(args) => args.json,
            Verb::Restart(args) => args.json,
            Verb::Delete(args) => args.json,
            Verb::Savepoint(args) => args.json,
            Verb::Plugin(args) => args.json(),
            Verb::Upgrade(args) => args.json,
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version come this way too, with exit code 0. If nobody reads them there is nobody to tell.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    let done = start_log(cli.log.as_deref()).and_then(|()| cli.verb.run());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if cli.verb.json() {
                // What matters is on standard error and in the exit code.
                let _ = print::out(&format!("{}\n", error.to_json()));
            }
            print::err(&format!("{error}\n"));
            error.exit().into()
        }
    }
}

/// Logs to standard error what the flag, or else the environment, asks for.
fn start_log(flag: Option<&str>) -> Result<(), CliError> {
    let from_environment = std::env::var("LOCKGATE_LOG").ok().filter(|filters| !filters.is_empty());
    let asked = flag.map(str::to_owned).or(from_environment).unwrap_or_else(|| "info".to_owned());
    let filters = match asked.parse::<tracing::Level>() {
        // The libraries below say little of use at these levels, and much of it.
        Ok(level) => format!("warn,lockgate_host={}", level.as_str().to_lowercase()),
        Err(_) => asked.clone(),
    };
    let filter = EnvFilter::try_new(filters).map_err(|error| {
        let refused = CliError::unusable(format!("'{asked}' is no log level or filter")).caused_by(&error);
        refused.help("take error, warn, info, debug or trace")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
