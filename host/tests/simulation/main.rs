//! The protocol under a seeded simulator: the real aligner, watermarks, coordinator, commit, recovery and retention code
//! drives a simulated job over a simulated store and sink, with crashes, failures and every order of events.
//!
//! - `LOCKGATE_SIM_SEED=7`: runs this seed alone and prints all that happens.
//! - `LOCKGATE_SIM_SEEDS=1000000`: runs so many seeds instead of 10,000.
//!
//! Invariant: a seed that fails is printed with the end of its story.

mod attempt;
mod mutation;
mod operation;
mod oracle;
mod parts;
mod recovery;
mod rng;
mod scenario;
mod simulate;
mod start;
mod task;
mod world;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use mutation::Mutation;
use oracle::Violation;
use simulate::{Story, simulate};

/// In how many seeds a planted bug must be noticed.
const SEEDS_PER_MUTATION_MAX: u64 = 3_000;
const TRACE_LINES_MAX: usize = 60;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not '{text}'")))
}

/// Runs a seed. A failed assertion of the code under test is a violation too.
fn run(seed: u64, mutation: Option<Mutation>) -> Result<Story, Violation> {
    let outcome = catch_unwind(AssertUnwindSafe(|| simulate(seed, mutation, &mut |_| {})));
    outcome.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation(format!("panicked: {}", message.unwrap_or_default())))
    })
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Keeps this thread's panics, which are expected here, out of the output.
fn silence_this_thread() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !SILENT.get() {
            print(panic);
        }
    }));
    SILENT.set(true);
}

/// The last things that happen in a seed.
fn last_lines(seed: u64) -> String {
    let mut lines = VecDeque::new();
    let mut keep = |line: &dyn Fn() -> String| {
        lines.push_back(line());
        if lines.len() > TRACE_LINES_MAX {
            lines.pop_front();
        }
    };
    let _known = catch_unwind(AssertUnwindSafe(|| simulate(seed, None, &mut keep)));
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[test]
fn every_record_has_its_effect_in_the_output_exactly_once() {
    if let Some(seed) = from_environment("LOCKGATE_SIM_SEED") {
        let story = simulate(seed, None, &mut |line| println!("{}", line()));
        println!("{story:?}");
        story.expect("no violation");
        return;
    }
    let seeds = from_environment("LOCKGATE_SIM_SEEDS").unwrap_or(10_000);
    let next = AtomicU64::new(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sum = Story::default();
    std::thread::scope(|scope| {
        let workers = (0..threads).map(|_| scope.spawn(|| run_seeds(&next, seeds))).collect::<Vec<_>>();
        for worker in workers {
            let story = worker.join().expect("a worker reports violations and doesn't panic");
            match story {
                Ok(story) => sum.add(&story),
                Err((seed, Violation(what))) => panic!(
                    "{}\nseed {seed}: {what}\nthe whole story: LOCKGATE_SIM_SEED={seed} cargo test -p lockgate-host \
                     --test simulation -- --nocapture",
                    last_lines(seed)
                ),
            }
        }
    });
    println!("{seeds} seeds: {sum:?}");
    // The seeds are worth something only if they get everywhere.
    let reached = [sum.crashes, sum.crashes_in_recovery, sum.failures, sum.stops, sum.published, sum.files_deleted];
    assert!(reached.iter().all(|&count| count > seeds / 10), "{sum:?}");
}

fn run_seeds(next: &AtomicU64, seeds: u64) -> Result<Story, (u64, Violation)> {
    let mut sum = Story::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > seeds {
            return Ok(sum);
        }
        sum.add(&run(seed, None).map_err(|violation| (seed, violation))?);
    }
}

#[test]
fn every_planted_bug_is_noticed() {
    silence_this_thread();
    let mut unnoticed = Vec::new();
    for mutation in Mutation::ALL {
        let noticed = (1..=SEEDS_PER_MUTATION_MAX).find_map(|seed| Some((seed, run(seed, Some(mutation)).err()?)));
        match noticed {
            Some((seed, Violation(what))) => println!("{mutation:?}, seed {seed}: {what}"),
            None => unnoticed.push(mutation),
        }
    }
    assert!(unnoticed.is_empty(), "nobody noticed {unnoticed:?} in {SEEDS_PER_MUTATION_MAX} seeds");
}
