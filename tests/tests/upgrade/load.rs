//! An upgrade under load, with its figures: `tests/bench.sh upgrade` prints them.

use serde_json::Value;

use crate::job::{Driven, UpgradedJob, changes, upgrade_to};

/// Some seconds of input.
const MANY_WORDS: u64 = 4_000_000;
/// Over so many the rate is measured.
const MEASURED: &str = "rate:400000";

/// The numbers that some answers have, in their order.
fn figures(driven: &Driven, of: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
    driven.answers.iter().filter_map(of).collect()
}

#[test]
fn under_load_the_stream_pauses_for_the_swap_alone() {
    let mut job = UpgradedJob::new().checkpoint("interval = \"200ms\"");
    job.add_words(MANY_WORDS);
    let (new, old) = (upgrade_to("new"), upgrade_to("old"));
    let driven = job.drive(&["read:300000", MEASURED, "checkpoint", &new, MEASURED, &old, MEASURED]);
    driven.finished.assert_success();
    let named = |name: &'static str| figures(&driven, move |answer| answer[name].as_f64());
    let took = |name: &'static str| {
        figures(&driven, move |answer| answer.get(name).and(answer["took_us"].as_f64()).map(|us| us / 1e3))
    };
    let (rates, meanwhile, paused) = (named("rate"), named("rate_meanwhile"), named("paused_us"));
    let (checkpoint, upgrade) = (took("checkpoint"), took("upgraded"));
    assert_eq!((rates.len(), meanwhile.len(), paused.len()), (3, 2, 2), "{:?}", driven.answers);
    for (number, way) in ["to the new component", "back to the old one"].iter().enumerate() {
        println!(
            "{way}: {:.0} records/s before, {:.0} during the upgrade ({:.0} ms), {:.0} after; the stream paused for {:.2} ms",
            rates[number],
            meanwhile[number],
            upgrade[number],
            rates[number + 1],
            paused[number] / 1e3
        );
    }
    println!("a checkpoint without an upgrade: {:.0} ms", checkpoint[0]);
    assert_eq!(changes(&job.assert_exact()), ["old", "new", "old"]);
}
