//! Whole jobs, measured: what Wasm costs next to native operators, what checkpoints cost, how fast a job starts and recovers,
//! how much a checkpoint uploads, how much memory the host needs.
//!
//! Every run is a process of its own; what is compared runs in turn, A B A B, in one invocation, and the ratio is taken pair
//! by pair. CPU time is that of the whole process, start included.

mod barriers;
mod case;
mod child;
mod event_time;
mod flink;
mod latency;
mod native;
mod probe;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Measure whole jobs. Builds the example operators first
#[derive(Debug, Parser)]
struct Args {
    /// What to measure; all of it if nothing is named
    #[arg(value_enum)]
    what: Vec<What>,
    /// Records of each throughput run
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Pairs of runs to compare
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Distinct keys of the keyed count
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Entries of the large state; 8,000,000 make about 1 GB
    #[arg(long, default_value_t = 8_000_000)]
    entries: u64,
    /// A folder with the Flink baseline set up (`one.sh`), to compare with in the same run
    #[arg(long)]
    flink: Option<PathBuf>,
    /// Run one job in this process and print its figures as JSON (used by the benchmark itself)
    #[arg(long, hide = true)]
    child: Option<PathBuf>,
    #[arg(long, hide = true)]
    native: bool,
    #[arg(long, hide = true)]
    without_deadlines: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Stateless parse and filter: Wasm, native, Flink's J1
    Filter,
    /// Keyed count: Wasm, native, Flink's J2
    Count,
    /// Keyed count with a checkpoint each second, and without
    Checkpoints,
    /// Limits of operators: with deadlines, and without
    Quotas,
    /// What a checkpoint uploads when 1 % of a large state was touched
    Incremental,
    /// From process start, and from SIGKILL, to the first output
    Start,
    /// Resident memory: idle, and with ten times the input
    Memory,
    /// The NEXMark queries
    Nexmark,
    /// Sliding windows of 60 s by 1 s, and tumbling ones of 60 s
    Windows,
    /// Checkpoints under backpressure: aligned, unaligned
    Barriers,
    /// From a record's arrival to its committed output
    Latency,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(job) = &args.child {
        return done(child::run(job, args.native, args.without_deadlines));
    }
    let all = What::value_variants();
    let wanted = if args.what.is_empty() { all } else { &args.what[..] };
    done(wanted.iter().try_for_each(|what| measure(*what, &args)))
}

fn measure(what: What, args: &Args) -> anyhow::Result<()> {
    match what {
        What::Filter => case::filter(args.records, args.pairs, args.flink.as_deref()),
        What::Count => case::count(args.records, args.keys, args.pairs, args.flink.as_deref()),
        What::Checkpoints => case::checkpoints(args.records, args.keys, args.pairs),
        What::Quotas => case::quotas(args.records, args.keys, args.pairs),
        What::Incremental => case::incremental(args.entries),
        What::Start => probe::start(args.pairs),
        What::Memory => probe::memory(args.records),
        What::Nexmark => event_time::nexmark(args.records / 5, args.pairs),
        What::Windows => event_time::windows(args.records / 2, args.pairs),
        What::Barriers => barriers::barriers(args.pairs),
        What::Latency => latency::latency(args.pairs),
    }
}

fn done(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
