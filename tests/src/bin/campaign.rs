//! The long campaigns, of which `cargo test` runs a slice each. Started by `tests/campaign.sh`.

use std::time::Instant;

use clap::{Parser, Subcommand};
use lockgate_tests::kafka::kafka_missing;
use lockgate_tests::{CrashCampaign, KafkaCampaign, crash_in_turn, crash_points_without_kafka};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    campaign: Campaign,
}

#[derive(Subcommand)]
enum Campaign {
    /// Kill a word count at random moments
    Crash {
        /// How often to kill it
        #[arg(long, default_value_t = 100)]
        kills: u32,
        /// How much text to count: a number, or one with K, M or G
        #[arg(long, default_value = "1G", value_parser = parse_bytes)]
        bytes: u64,
        /// Decides the text and the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Kill a word count at each pair of named points in turn
    Pairs,
    /// Kill a copy from Kafka to Kafka at random moments, and the broker too
    Kafka {
        /// How many records to copy
        #[arg(long, default_value_t = 1_000_000)]
        records: u64,
        /// How often to kill the host
        #[arg(long, default_value_t = 30)]
        kills: u32,
        /// How often to kill the broker and start it again
        #[arg(long, default_value_t = 3)]
        bounces: u32,
        /// Decides the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 1_000),
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text, 1),
    };
    let number = digits.parse::<u64>().map_err(|error| format!("{error}; write 500M or 1G"))?;
    Ok(number * factor)
}

fn main() {
    match Cli::parse().campaign {
        Campaign::Crash { kills, bytes, seed } => {
            let report = CrashCampaign { seed, text_bytes: bytes, kills }.run();
            println!(
                "{} kills, {} words counted exactly once, {} part files, {:.0} s (seed {seed})",
                report.kills,
                report.words,
                report.part_files,
                report.took.as_secs_f64()
            );
        }
        Campaign::Pairs => run_pairs(),
        Campaign::Kafka { records, kills, bounces, seed } => run_kafka(KafkaCampaign { seed, records, kills, bounces }),
    }
}

fn run_kafka(campaign: KafkaCampaign) {
    if kafka_missing("the copy campaign") {
        std::process::exit(1);
    }
    let report = campaign.run();
    println!(
        "{} records copied exactly once and in order, {} kills, {} bounces of the broker with {} runs meanwhile, {:.0} s (seed {})",
        campaign.records,
        report.kills,
        report.bounces,
        report.runs_while_down,
        report.took.as_secs_f64(),
        campaign.seed
    );
}

fn run_pairs() {
    let start = Instant::now();
    let points = crash_points_without_kafka();
    let pairs = points.iter().flat_map(|first| points.iter().map(|second| [first.clone(), second.clone()]));
    let pairs = pairs.collect::<Vec<_>>();
    let mut reached = 0;
    for (done, pair) in pairs.iter().enumerate() {
        eprint!("\r{done} of {} pairs", pairs.len());
        reached += crash_in_turn(pair);
    }
    eprintln!();
    println!("{} pairs, {reached} crashes, every output exact, {:.0} s", pairs.len(), start.elapsed().as_secs_f64());
}
