//! Jobs in event time: the queries of NEXMark, and what it costs that windows overlap.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::case::{Bench, run};
use crate::report::{Spread, line};

const QUERIES: [&str; 8] = ["q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8"];

/// The job files of the examples, with as many events as are asked for and a sink that drops what it gets.
pub fn nexmark(events: u64, rounds: usize) -> anyhow::Result<()> {
    println!(
        "nexmark: {events} events, 10,000 of them in a second of event time, a checkpoint each second, {rounds} rounds"
    );
    let bench = Bench::new(&[])?;
    for query in QUERIES {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/nexmark").join(format!("{query}.toml"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let operators = text.lines().filter_map(|line| line.strip_prefix("wasm = \"")?.strip_suffix(".wasm\""));
        let operators = operators.map(str::to_owned).filter(|name| !bench.path(&format!("{name}.wasm")).exists());
        bench.build_features("examples/nexmark", &operators.collect::<Vec<_>>())?;
        let count = format!("count = {events}");
        let sink = format!("type = \"file\"\npath = \"output/{query}\"");
        ensure!(
            text.contains("count = 1_000_000") && text.contains(&sink),
            "{} is another than it was",
            file.display()
        );
        let text = text.replace("count = 1_000_000", &count).replace(&sink, "type = \"null\"");
        let job = bench.path(&format!("{query}.toml"));
        std::fs::write(&job, text)?;
        let mut figures = Vec::new();
        for round in 0..=rounds {
            bench.clear(query)?;
            let figure = run(&job, false)?;
            // The first round fills the cache of compiled code.
            if round > 0 {
                figures.push(figure);
            }
        }
        let rate = figures.iter().map(|figures| figures.records as f64 / figures.wall_s / 1e6);
        line(&format!("{query}, events per second"), &Spread::of(rate), "million", "");
        let cpu = figures.iter().map(|figures| figures.cpu_ns_per_record());
        line(&format!("{query}, CPU per event"), &Spread::of(cpu), "ns", "");
    }
    Ok(())
}

/// Count, sum and maximum in windows of a minute: tumbling, and sliding by a second, in turn.
pub fn windows(records: u64, pairs: usize) -> anyhow::Result<()> {
    println!("windows: {records} records, 1,000 of them in a second of event time, {pairs} pairs");
    let bench = Bench::new(&[])?;
    bench.build_features("tests/blocks", &["tumbling", "sliding"].map(str::to_owned))?;
    for (keys, goal) in [(10, "at most 3"), (100, "")] {
        let job = |operator: &str, config: &str| -> anyhow::Result<std::path::PathBuf> {
            let path = bench.path(&format!("{operator}.toml"));
            let text = format!(
                "[job]\nname = '{operator}'\n[source.records]\ntype = 'generator'\nkind = 'sequence'\ncount = {records}\n\
                 keys = {keys}\nevent_time = 'id'\n[source.records.watermark]\nstrategy = 'monotonous'\n\
                 [operator.{operator}]\nwasm = '{operator}.wasm'\ninput = 'records'\nconfig = {config}\n\
                 [sink.none]\ntype = 'null'\ninput = '{operator}'\n"
            );
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let tumbling = job("tumbling", "{ size = 60_000 }")?;
        let sliding = job("sliding", "{ size = 60_000, slide = 1_000 }")?;
        let mut figures = Vec::new();
        for pair in 0..=pairs {
            bench.clear("tumbling")?;
            bench.clear("sliding")?;
            let both = (run(&tumbling, false)?, run(&sliding, false)?);
            if pair > 0 {
                figures.push(both);
            }
        }
        println!("  {keys} keys: {} records of a key in each second", 1_000 / keys);
        let tumbling = figures.iter().map(|(tumbling, _)| tumbling.cpu_ns_per_record());
        line("tumbling 60 s, CPU per record", &Spread::of(tumbling), "ns", "");
        let sliding = figures.iter().map(|(_, sliding)| sliding.cpu_ns_per_record());
        line("sliding 60 s by 1 s, CPU per record", &Spread::of(sliding), "ns", "");
        let ratio = figures.iter().map(|(tumbling, sliding)| sliding.cpu_s / tumbling.cpu_s);
        line("sliding / tumbling, CPU", &Spread::of(ratio), "times", goal);
    }
    Ok(())
}
