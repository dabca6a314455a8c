//! The same jobs in Flink, from a folder that holds its baseline (`one.sh`).

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Runs one Flink job and gives the CPU seconds per million records of its steady window.
pub fn cpu_s_per_million(folder: &Path, tag: &str, options: &[&str]) -> anyhow::Result<f64> {
    println!("  running Flink {tag} {}", options.join(" "));
    let script = folder.join("one.sh");
    let run = Command::new(&script).arg(tag).args(options).stdout(Stdio::piped()).stderr(Stdio::null()).output();
    let run = run.with_context(|| format!("cannot run {}", script.display()))?;
    ensure!(run.status.success(), "{} {tag} failed: {}", script.display(), run.status);
    let results = std::fs::read_to_string(folder.join("out/results.jsonl"))?;
    let last: serde_json::Value = serde_json::from_str(results.lines().last().context("no result")?)?;
    ensure!(last["tag"] == tag, "the last result is of {}", last["tag"]);
    last["steadyCpuSPerM"].as_f64().context("no steadyCpuSPerM in the result")
}
