//! How long checkpoints take when a sink holds everything back: aligned, where a barrier waits behind what is queued, and unaligned,
//! where it overtakes.

use crate::case::{Bench, run};
use crate::report::{Spread, line};

/// Generated records through a filter into a sink that takes a hundredth of what they could bring.
pub fn barriers(pairs: usize) -> anyhow::Result<()> {
    const RECORDS: u64 = 400_000;
    const RATE: u64 = 40_000;
    println!("barriers: {RECORDS} records into a sink that takes {RATE} a second, {pairs} pairs");
    let bench = Bench::new(&["filter"])?;
    let job = |name: &str, alignment: &str| -> anyhow::Result<std::path::PathBuf> {
        let path = bench.path(&format!("{name}.toml"));
        let text = format!(
            "[job]\nname = '{name}'\n[checkpoint]\ninterval = '500ms'\nalignment = '{alignment}'\n\
             [source.records]\ntype = 'generator'\nkind = 'csv'\ncount = {RECORDS}\n\
             [operator.filter]\nwasm = 'filter.wasm'\ninput = 'records'\nparallelism = 2\n\
             [sink.slow]\ntype = 'null'\ninput = 'filter'\nrate = {RATE}.0\n"
        );
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let (aligned, unaligned) = (job("aligned", "aligned")?, job("unaligned", "unaligned")?);
    let mut figures = Vec::new();
    for _ in 0..pairs {
        bench.clear("aligned")?;
        bench.clear("unaligned")?;
        figures.push((run(&aligned, false)?, run(&unaligned, false)?));
    }
    let aligned = figures.iter().map(|(aligned, _)| aligned.checkpoint_s * 1e3);
    line("aligned, a checkpoint takes", &Spread::of(aligned), "ms", "");
    let unaligned = figures.iter().map(|(_, unaligned)| unaligned.checkpoint_s * 1e3);
    line("unaligned, a checkpoint takes", &Spread::of(unaligned), "ms", "");
    let ratio = figures.iter().map(|(aligned, unaligned)| unaligned.checkpoint_s / aligned.checkpoint_s);
    line("unaligned / aligned", &Spread::of(ratio), "times", "at most 0.1");
    Ok(())
}
