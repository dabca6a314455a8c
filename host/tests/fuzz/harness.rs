//! Runs the cases of a target by seed, notices what they break, and cuts down what broke it.
//!
//! Invariant: whatever a case does, its target and seed are told: by the failure of the test, by the watchdog that ends a case
//! which hangs, or by the file that is left if the process died.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::allocations::peak_of;
use crate::chance::{Chance, Story};
use crate::rng::Rng;

/// Something that takes what comes from outside.
pub struct Target {
    /// That of its test, or a part of it.
    pub name: &'static str,
    /// How many seeds the tests run.
    pub seeds: u64,
    /// Of what a case is made, at most.
    pub bytes_max: usize,
    /// What a case may take of memory, beside that of guests.
    pub memory_bytes_max: usize,
    /// What may come of a case, each of which has to come of some.
    pub outcomes: &'static [&'static str],
    /// Makes up something and hands it over. Gives what came of it, or what is wrong.
    pub case: fn(&mut Chance<'_, '_>) -> Result<&'static str, String>,
}

/// Nothing takes so long, on any machine.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// How often what fails is cut down.
const CUTS_MAX: usize = 400;
const HEX_BYTES_MAX: usize = 512;

impl Target {
    /// Runs the seeds that are asked for.
    ///
    /// # Panics
    /// If one fails, with all that it takes to see it again.
    pub fn run(&self) {
        note_panics();
        let guard = Guard::new(self.name);
        if let Some(seed) = from_environment("LOCKGATE_FUZZ_SEED") {
            let bytes = self.bytes_of(seed);
            guard.begin(seed);
            let outcome = self.attempt(&bytes, &mut |line| println!("{}", line()));
            println!("{}, seed {seed}: {outcome:?}", self.name);
            if let Err(problem) = outcome {
                self.fail(&guard, seed, &bytes, &problem);
            }
            return;
        }
        let seeds = from_environment("LOCKGATE_FUZZ_SEEDS").unwrap_or(self.seeds);
        let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
        let mut most = 0;
        for seed in 1..=seeds {
            let bytes = self.bytes_of(seed);
            guard.begin(seed);
            match self.attempt(&bytes, &mut |_| {}) {
                Ok((outcome, peak)) => {
                    *outcomes.entry(outcome).or_default() += 1;
                    most = most.max(peak);
                }
                Err(problem) => self.fail(&guard, seed, &bytes, &problem),
            }
        }
        println!("{}: {seeds} seeds, {outcomes:?}, {} KiB at most", self.name, most >> 10);
        // The seeds are worth something only if they get everywhere.
        let missed = self.outcomes.iter().filter(|outcome| !outcomes.contains_key(**outcome)).collect::<Vec<_>>();
        assert!(missed.is_empty() || seeds < self.seeds, "no seed has come to {missed:?}: {outcomes:?}");
    }

    /// Short ones and long ones; some with many zeros, since these are what simple things are made of.
    fn bytes_of(&self, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        let most = 1 << rng.between(5, u64::from(self.bytes_max.ilog2()));
        let length = rng.between(most / 2, most);
        let zeros = *rng.pick(&[0, 0, 0, 4]);
        let byte = |rng: &mut Rng| if rng.below(8) < zeros { 0 } else { rng.next() as u8 };
        (0..length).map(|_| byte(&mut rng)).collect()
    }

    /// What comes of a case, and how much memory it took.
    fn attempt(&self, bytes: &[u8], story: Story<'_>) -> Result<(&'static str, usize), String> {
        PANIC.take();
        IN_A_CASE.set(true);
        let work = || catch_unwind(AssertUnwindSafe(|| (self.case)(&mut Chance::new(bytes, story))));
        let (outcome, peak) = peak_of(work);
        IN_A_CASE.set(false);
        let outcome = outcome.map_err(|_| format!("it panicked: {}", PANIC.take()))??;
        if peak > self.memory_bytes_max {
            return Err(format!("it took {} KiB; {} KiB are the most", peak >> 10, self.memory_bytes_max >> 10));
        }
        Ok((outcome, peak))
    }

    fn fail(&self, guard: &Guard, seed: u64, bytes: &[u8], problem: &str) -> ! {
        let smallest = self.cut_down(guard, seed, bytes);
        let mut story = String::new();
        let again = self.attempt(&smallest, &mut |line| story += &format!("  {}\n", line()));
        let name = self.name;
        panic!(
            "{name}, seed {seed}: {problem}\ncut down to {} bytes ({}): {again:?}\n{story}alone: LOCKGATE_FUZZ_SEED={seed} \
             cargo test --workspace --test fuzz {name} -- --nocapture",
            smallest.len(),
            hexadecimal(&smallest),
        )
    }

    /// Leaves out parts of the bytes, and makes zeros of others, as long as something fails.
    fn cut_down(&self, guard: &Guard, seed: u64, bytes: &[u8]) -> Vec<u8> {
        let mut smallest = bytes.to_vec();
        let mut cuts = 0;
        let mut fails = |candidate: &[u8]| {
            cuts += 1;
            guard.begin(seed);
            cuts <= CUTS_MAX && self.attempt(candidate, &mut |_| {}).is_err()
        };
        let mut part = smallest.len() / 2;
        while part > 0 {
            let mut at = 0;
            while at < smallest.len() {
                let end = smallest.len().min(at + part);
                let without = [&smallest[..at], &smallest[end..]].concat();
                if fails(&without) {
                    smallest = without;
                    continue;
                }
                let mut zeroed = smallest.clone();
                zeroed[at..end].fill(0);
                if zeroed != smallest && fails(&zeroed) {
                    smallest = zeroed;
                }
                at = end;
            }
            part /= 2;
        }
        smallest
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().take(HEX_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect::<String>();
    if bytes.len() > HEX_BYTES_MAX { digits + "…" } else { digits }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not '{text}'")))
}

thread_local! {
    static IN_A_CASE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// What the last panic of a case has said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what a case says when it panics, instead of printing it.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IN_A_CASE.get() {
                PANIC.set(panic.to_string());
            } else {
                print(panic);
            }
        }));
    });
}

/// Watches over the cases of a target.
struct Guard {
    beats: Sender<u64>,
    /// Holds the seed that runs; it is left behind only by a process that dies.
    file: PathBuf,
}

impl Guard {
    fn new(name: &'static str) -> Guard {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}.seed"));
        if let Ok(seed) = std::fs::read_to_string(&file) {
            println!("{name}: the process that ran seed {seed} has died, or was ended");
        }
        let (beats, watched) = mpsc::channel();
        std::thread::spawn(move || {
            let mut seed = 0;
            loop {
                match watched.recv_timeout(HANGS_AFTER) {
                    Ok(next) => seed = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("{name}, seed {seed}: it hangs (LOCKGATE_FUZZ_SEED={seed})");
                        std::process::abort();
                    }
                }
            }
        });
        Guard { beats, file }
    }

    fn begin(&self, seed: u64) {
        self.beats.send(seed).expect("the watchdog ends last");
        std::fs::write(&self.file, seed.to_string()).expect("a place for the seed");
    }

    fn end(&self) {
        // Another process of the same test may have been faster.
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}
