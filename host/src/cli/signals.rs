//! The signals by which a process is asked to stop.
//!
//! Invariant: signals that come so soon one after the other that one wish must have sent them are one.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::CliError;

/// `timeout`, for one, signals a process and its group.
const SAME_WISH: Duration = Duration::from_millis(200);

/// SIGINT and SIGTERM, one wish at a time.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    last: Option<Instant>,
}

impl StopSignals {
    /// # Errors
    /// If the process can't listen for them.
    pub fn listen() -> Result<StopSignals, CliError> {
        let of = |kind| signal(kind).map_err(|error| CliError::failed("cannot listen for signals").caused_by(&error));
        let (interrupt, terminate) = (of(SignalKind::interrupt())?, of(SignalKind::terminate())?);
        Ok(StopSignals { interrupt, terminate, last: None })
    }

    /// Waits for the next one; gives its number.
    pub async fn next(&mut self) -> i32 {
        loop {
            let number = tokio::select! {
                _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            };
            let same = self.last.is_some_and(|last| last.elapsed() < SAME_WISH);
            if !same {
                self.last = Some(Instant::now());
                return number;
            }
        }
    }
}
