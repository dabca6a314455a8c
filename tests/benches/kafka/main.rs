//! Kafka to Kafka, exactly once: the host with an identity operator, next to a plain loop over librdkafka that does the same.
//!
//! `tests/bench.sh kafka`. Both read the same topic to its end and write a new one, in transactions that hold the offsets of what
//! was read and are committed each second. They run in turn, A B A B, each in a process of its own from start to end, against one
//! broker; the ratio is taken pair by pair.

mod copy;
mod process;
#[path = "../../../host/benches/job/report.rs"]
mod report;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use clap::Parser;
use lockgate_tests::kafka::{Broker, kafka_missing, unique};
use lockgate_tests::{JobFolder, lockgate, operator};

use copy::PlainCopy;
use process::Figures;
use report::{Spread, line};

/// Measure Kafka to Kafka, exactly once
#[derive(Debug, Parser)]
struct Args {
    /// What to measure; there is only this
    #[arg(value_parser = ["kafka"])]
    what: Vec<String>,
    /// Records of each run
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
    /// Bytes of each record's value
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Partitions of each topic
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Subtasks of the job
    #[arg(long, default_value_t = 1)]
    parallelism: u32,
    /// Pairs of runs to compare
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Run the plain loop in this process: broker, input, output (used by the benchmark itself)
    #[arg(long, hide = true, num_args = 3)]
    copy: Option<Vec<String>>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is measured, and where.
struct Case {
    broker: &'static Broker,
    input: String,
    folder: JobFolder,
    operator: PathBuf,
    parallelism: u32,
    partitions: i32,
    records: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.copy.as_deref() {
        Some([address, input, output]) => PlainCopy { address, input, output }.run(),
        Some(_) | None => measure(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> anyhow::Result<()> {
    if kafka_missing("the benchmark of Kafka to Kafka") {
        return Ok(());
    }
    println!(
        "kafka: {} records of {} bytes, {} partitions, a transaction each second, {} pairs",
        args.records, args.bytes, args.partitions, args.pairs
    );
    let case = Case {
        broker: Broker::shared(),
        input: unique("bench-in"),
        folder: JobFolder::new(),
        operator: operator("identity"),
        parallelism: args.parallelism,
        partitions: args.partitions,
        records: args.records,
    };
    case.broker.client().create_topic(&case.input, args.partitions);
    copy::fill(case.broker.address(), &case.input, args.partitions, args.records, args.bytes)?;
    let mut pairs = Vec::new();
    // The first pair warms the broker up and isn't counted.
    for pair in 0..=args.pairs {
        let (host, plain) = (case.host(pair)?, case.plain()?);
        if pair > 0 {
            pairs.push((host, plain));
        }
    }
    case.broker.client().delete_topic(&case.input);
    report(&pairs, args.records);
    Ok(())
}

impl Case {
    /// The job from nothing to its end.
    fn host(&self, run: usize) -> anyhow::Result<Figures> {
        let output = self.output();
        let (broker, input, operator) = (self.broker.address(), &self.input, self.operator.display());
        let (name, parallelism) = (unique(&format!("bench-{run}")), self.parallelism);
        let job = format!("{name}.toml");
        self.folder.write(
            &job,
            format!(
                "[job]\nname = '{name}'\nparallelism = {parallelism}\n[checkpoint]\ninterval = '1s'\n\
                 [source.in]\ntype = 'kafka'\nbrokers = '{broker}'\ntopics = ['{input}']\nmode = 'bounded'\n\
                 [operator.identity]\nwasm = '{operator}'\ninput = 'in'\n\
                 [sink.out]\ntype = 'kafka'\nbrokers = '{broker}'\ntopic = '{output}'\ninput = 'identity'\n"
            ),
        );
        let mut command = Command::new(lockgate());
        command.arg("run").arg(self.folder.path(&job)).env("LOCKGATE_LOG", "warn");
        let figures = process::measure(command)?;
        self.check_and_delete(&output).context("the output of the job")?;
        Ok(figures)
    }

    fn plain(&self) -> anyhow::Result<Figures> {
        let output = self.output();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--copy").args([self.broker.address(), &self.input, &output]);
        let figures = process::measure(command)?;
        self.check_and_delete(&output).context("the output of the plain loop")?;
        Ok(figures)
    }

    fn output(&self) -> String {
        let output = unique("bench-out");
        self.broker.client().create_topic(&output, self.partitions);
        output
    }

    fn check_and_delete(&self, output: &str) -> anyhow::Result<()> {
        let seen = copy::count(self.broker.address(), output)?;
        ensure!(seen == self.records, "it has {seen} committed records of {}", self.records);
        self.broker.client().delete_topic(output);
        Ok(())
    }
}

fn report(pairs: &[(Figures, Figures)], records: u64) {
    let rate = |figures: &Figures| records as f64 / figures.wall_s / 1e3;
    let cpu_us = |figures: &Figures| figures.cpu_s * 1e6 / records as f64;
    let mib = |figures: &Figures| figures.peak_rss_bytes as f64 / 1048576.0;
    let hosts = || pairs.iter().map(|(host, _)| host);
    let plains = || pairs.iter().map(|(_, plain)| plain);
    line("Lockgate, records per second", &Spread::of(hosts().map(rate)), "thousand", "");
    line("plain loop, records per second", &Spread::of(plains().map(rate)), "thousand", "");
    let ratio = Spread::of(pairs.iter().map(|(host, plain)| rate(host) / rate(plain)));
    line("Lockgate / plain loop", &ratio, "times", "at least 0.6");
    line("Lockgate, CPU per record", &Spread::of(hosts().map(cpu_us)), "us", "");
    line("plain loop, CPU per record", &Spread::of(plains().map(cpu_us)), "us", "");
    line("Lockgate, peak memory", &Spread::of(hosts().map(mib)), "MiB", "under 256");
    line("plain loop, peak memory", &Spread::of(plains().map(mib)), "MiB", "");
}
