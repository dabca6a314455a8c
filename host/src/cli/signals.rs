//! The signals by which a process is asked to stop.
//!
//! Signals of one kind that nobody has noticed yet are one, so they are waited for where nothing else runs.
//!
//! Invariant: signals that come so soon one after the other that one wish must have sent them are one; others are counted.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::CliError;
use crate::cli::own_thread::OwnThread;

/// `timeout`, for one, signals a process and its group, one right after the other.
const SAME_WISH: Duration = Duration::from_millis(10);

/// Does what signals ask for, from now on until the result is dropped.
///
/// # Errors
/// If the process can't listen for them.
pub(super) fn at_signals<F>(act: impl FnOnce(StopSignals) -> F) -> Result<OwnThread, CliError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let acting = OwnThread::start("signals", || Ok(act(StopSignals::listen()?)));
    acting.map_err(|error| CliError::failed("cannot listen for signals").caused_by(&error))
}

/// SIGINT and SIGTERM, one wish at a time.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    wishes: Wishes,
}

impl StopSignals {
    fn listen() -> io::Result<StopSignals> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(StopSignals { interrupt, terminate, wishes: Wishes::default() })
    }

    /// Waits for the next one; gives its number.
    pub async fn next(&mut self) -> i32 {
        loop {
            let number = tokio::select! {
                _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            };
            if self.wishes.is_another(Instant::now()) {
                return number;
            }
        }
    }
}

/// Tells wishes apart by their times.
#[derive(Default)]
struct Wishes {
    /// When the last one began.
    last: Option<Instant>,
}

impl Wishes {
    /// Whether a signal at this time is another wish than the one before.
    fn is_another(&mut self, now: Instant) -> bool {
        let is_another = self.last.is_none_or(|last| now.duration_since(last) >= SAME_WISH);
        if is_another {
            self.last = Some(now);
        }
        is_another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_at_once_are_one_wish_and_20_ms_apart_they_are_two() {
        let start = Instant::now();
        let mut wishes = Wishes::default();
        let is_another = [0, 1, 9, 20, 21, 40].map(|ms| wishes.is_another(start + Duration::from_millis(ms)));
        assert_eq!(is_another, [true, false, false, true, false, true]);
    }
}
