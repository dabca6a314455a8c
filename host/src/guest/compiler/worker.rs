//! The process that compiles one component: it limits itself, reads the component from standard input, writes the code to standard
//! output, and ends.
//!
//! Invariant: it reads nothing of the component before its limits are set, and it doesn't outlive the process that waits for it.

use std::io::{self, Read, Write};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};

use super::{Answer, CompileLimits, invalid_or_too_much};
use crate::guest::cache::VerifiedCode;
use crate::guest::engine;
use crate::guest::error::Problem;
use crate::guest::plugin::COMPONENT_BYTES_MAX;

/// What a thread may reserve and not use: a stack, and a piece of the allocator.
const RESERVED_BYTES: u64 = 256 << 20;

/// Compiles the component on standard input for the process `parent_id`, which has started this one.
///
/// # Errors
/// If the limits can't be set, or the component can't be read or answered. What is wrong with a component is no error but an answer.
pub fn work(parent_id: u32, limits: CompileLimits) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    check_parent(parent_id)?;
    // It would have the name of the link by which it was started.
    let _ = std::fs::write("/proc/self/comm", "lockgate");
    // Where memory runs out, the system is to end this process and not the one that runs jobs.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    limit(limits)?;
    let mut wasm = Vec::new();
    io::stdin().take(COMPONENT_BYTES_MAX).read_to_end(&mut wasm)?;
    let (answer, said) = match compiled(&wasm) {
        Ok(code) => (Answer::Code, code.into_bytes()),
        Err(Problem::Invalid(text)) => (Answer::Invalid, text.into_bytes()),
        Err(problem) => (Answer::Refused, problem.to_string().into_bytes()),
    };
    let mut to = io::stdout().lock();
    to.write_all(&[answer.byte()])?;
    to.write_all(&said)?;
    to.flush()
}

fn compiled(wasm: &[u8]) -> Result<VerifiedCode, Problem> {
    let engine = engine::compiling().map_err(|error| Problem::Compile(format!("{error:#}")))?;
    VerifiedCode::compiled(&engine, wasm).map_err(|error| invalid_or_too_much(&error))
}

fn check_parent(parent_id: u32) -> io::Result<()> {
    let parent = rustix::process::getppid().map(|parent| Pid::as_raw(Some(parent)).cast_unsigned());
    if parent == Some(parent_id) {
        return Ok(());
    }
    Err(io::Error::other("the process that wants the code isn't there"))
}

fn limit(limits: CompileLimits) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    // Written memory counts as data. What is only reserved counts as address space alone, and there is more of it with each thread.
    let address_space = limits.memory_bytes.saturating_add((threads + 4).saturating_mul(RESERVED_BYTES));
    set(Resource::Core, 0, 0)?;
    set(Resource::Data, limits.memory_bytes, limits.memory_bytes)?;
    set(Resource::As, address_space, address_space)?;
    set(Resource::Fsize, limits.memory_bytes, limits.memory_bytes)?;
    let seconds = whole_seconds(limits.time);
    // At the first of them comes the signal that says why, at the second one that can't be missed.
    set(Resource::Cpu, seconds, seconds.saturating_add(1))
}

/// The system counts processor time in seconds, and takes none at all for one.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}

/// Lowers a limit; one that is lower already stays.
fn set(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let before = rustix::process::getrlimit(resource);
    let lower = |new: u64, old: Option<u64>| Some(old.map_or(new, |old| old.min(new)));
    let limit = Rlimit { current: lower(soft, before.current), maximum: lower(hard, before.maximum) };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_never_less_than_what_was_allowed() {
        let seconds = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([seconds(0), seconds(1), seconds(1_000), seconds(1_001)], [1, 1, 1, 2]);
    }

    #[test]
    fn a_process_that_nobody_waits_for_does_nothing() {
        // Nobody is their own parent.
        assert!(check_parent(std::process::id()).is_err());
        check_parent(std::os::unix::process::parent_id()).expect("its parent");
    }
}
