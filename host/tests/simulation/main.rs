//! The protocol under a seeded simulator: the real aligner, watermarks, coordinator, commit, decision, recovery, retention and
//! rescaling code drives a simulated job over a simulated store and simulated sinks, with crashes, failures and every order of
//! events. The job has one or two streams that meet in counters, which every attempt may have another number of, in every mode of
//! alignment. The counters may get other components on the way. It has a two-phase sink, a deciding one, or both; what that one's cluster or the store may lose, they lose.
//!
//! - `LOCKGATE_SIM_SEED=7`: runs this seed alone and prints all that happens.
//! - `LOCKGATE_SIM_SEEDS=1000000`: runs so many seeds instead of 10,000.
//!
//! Invariant: a seed that fails is printed with the end of its story.

mod attempt;
mod broker;
mod channel;
mod cluster;
mod commit;
mod decision;
mod facts;
mod log_sink;
mod loss;
mod mutation;
mod operation;
mod oracle;
mod output;
mod parts;
mod recovery;
mod rng;
mod scenario;
mod simulate;
mod start;
mod take_over;
mod task;
mod upgrade;
mod world;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mutation::Mutation;
use oracle::Violation;
use simulate::{Story, simulate};

/// In how many seeds the oracle must notice a planted bug.
const SEEDS_PER_MUTATION_MAX: u64 = 3_000;
const TRACE_LINES_MAX: usize = 60;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not '{text}'")))
}

/// How a seed can fail.
enum Failure {
    /// The oracle has seen it.
    Violated(String),
    /// An assertion of the simulator or of the code under test has failed.
    Panicked(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Violated(what) => f.write_str(what),
            Failure::Panicked(message) => write!(f, "panicked: {message}"),
        }
    }
}

fn run(seed: u64, mutation: Option<Mutation>) -> Result<Story, Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| simulate(seed, mutation, &mut |_| {})));
    match outcome {
        Ok(Ok(story)) => Ok(story),
        Ok(Err(Violation(what))) => Err(Failure::Violated(what)),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().cloned();
            let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Failure::Panicked(message.unwrap_or_default()))
        }
    }
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of silent threads, where they are expected, out of the output.
fn silence_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !SILENT.get() {
            print(panic);
        }
    }));
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
                Err((seed, failure)) => panic!(
                    "{}\nseed {seed}: {failure}\nthe whole story: LOCKGATE_SIM_SEED={seed} cargo test -p lockgate-host \
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
    let rarer = [sum.overtaken, sum.rescaled, sum.rescaled_in_flight, sum.decided, sum.adopted];
    assert!(rarer.iter().all(|&count| count > seeds / 20), "{sum:?}");
    let rarest = [sum.withdrawn, sum.unknown, sum.shut_out, sum.timed_out, sum.lost, sum.refused];
    assert!(rarest.iter().all(|&count| count > seeds / 200), "{sum:?}");
    assert!(sum.lost > sum.refused, "{sum:?}");
    let of_upgrades = [sum.upgraded, sum.upgraded_late, sum.reverted];
    assert!(of_upgrades.iter().all(|&count| count > seeds / 500) && sum.upgraded > seeds / 10, "{sum:?}");
    // That only a recovery tells is rare: its cases are tried one by one beside the function.
    assert!(sum.told_by_store > seeds / 100, "{sum:?}");
}

fn run_seeds(next: &AtomicU64, seeds: u64) -> Result<Story, (u64, Failure)> {
    let mut sum = Story::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > seeds {
            return Ok(sum);
        }
        sum.add(&run(seed, None).map_err(|failure| (seed, failure))?);
    }
}

#[test]
fn the_oracle_notices_every_planted_bug() {
    let next = AtomicUsize::new(0);
    let unnoticed = Mutex::new(Vec::new());
    silence_panics();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                SILENT.set(true);
                while let Some(&mutation) = Mutation::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !is_noticed(mutation) {
                        unnoticed.lock().expect("no thread panics").push(mutation);
                    }
                }
            });
        }
    });
    let unnoticed = unnoticed.into_inner().expect("no thread panics");
    assert!(unnoticed.is_empty(), "the oracle hasn't noticed {unnoticed:?} in {SEEDS_PER_MUTATION_MAX} seeds");
}

/// Whether the oracle notices the bug. An assertion that fails first doesn't count: it says nothing of the output.
fn is_noticed(mutation: Mutation) -> bool {
    let noticed = (1..=SEEDS_PER_MUTATION_MAX).find_map(|seed| match run(seed, Some(mutation)) {
        Err(Failure::Violated(what)) => Some((seed, what)),
        Ok(_) | Err(Failure::Panicked(_)) => None,
    });
    if let Some((seed, what)) = &noticed {
        println!("{mutation:?}, seed {seed}: {what}");
    }
    noticed.is_some()
}
