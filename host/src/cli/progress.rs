//! What a running job shows: one line that is rewritten on a terminal, a plain line now and then elsewhere.
//!
//! Invariant: progress goes to standard error; standard output is for results.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::checkpoint::size;
use crate::cli::print;
use crate::id::{Epoch, Name};
use crate::telemetry::JobCounters;

/// How often the line on a terminal changes.
const TERMINAL_EVERY: Duration = Duration::from_millis(200);
/// How often a plain line is written elsewhere.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

pub struct Progress {
    counters: Arc<JobCounters>,
    sources: Vec<Name>,
    sinks: Vec<Name>,
    bar: Option<ProgressBar>,
    /// When the last line was made, and what had been read and written then.
    last: (Instant, u64, u64),
}

impl Progress {
    pub fn new(counters: Arc<JobCounters>, sources: Vec<Name>, sinks: Vec<Name>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a good template"));
            bar
        });
        Progress { counters, sources, sinks, bar, last: (Instant::now(), 0, 0) }
    }

    /// Shows progress until the future is dropped.
    pub async fn show(mut self) -> std::convert::Infallible {
        let every = if self.bar.is_some() { TERMINAL_EVERY } else { PLAIN_EVERY };
        loop {
            tokio::time::sleep(every).await;
            let line = self.line();
            match &self.bar {
                Some(bar) => {
                    bar.set_message(line);
                    bar.tick();
                }
                None => print::err(&format!("{line}\n")),
            }
        }
    }

    fn line(&mut self) -> String {
        if let Some(restart) = self.counters.pending_restart() {
            let wait = restart.due.saturating_duration_since(Instant::now());
            return format!("failed: {}; starting again in {:.0} s", restart.cause, wait.as_secs_f64().ceil());
        }
        let records_in = self.sources.iter().map(|name| self.counters.totals_of(name).records_out).sum::<u64>();
        let records_out = self.sinks.iter().map(|name| self.counters.totals_of(name).records_in).sum::<u64>();
        let now = Instant::now();
        let (then, read_before, written_before) = std::mem::replace(&mut self.last, (now, records_in, records_out));
        let seconds = now.duration_since(then).as_secs_f64().max(1e-9);
        let rate = |now: u64, before: u64| count(((now - before) as f64 / seconds) as u64);
        let (read, written) = (rate(records_in, read_before), rate(records_out, written_before));
        let lag = self.left_to_read() + &self.lag();
        let (state, checkpoint) = (self.state(), self.checkpoint(now));
        let restarts = match self.counters.restarts() {
            0 => String::new(),
            restarts => format!(", {restarts} restarts"),
        };
        let (records_in, records_out) = (count(records_in), count(records_out));
        format!("{records_in} read ({read}/s), {records_out} written ({written}/s){lag}{state}, {checkpoint}{restarts}")
    }

    /// How many records there are to read, as far as sources know.
    fn left_to_read(&self) -> String {
        let lags = self.counters.subtasks().into_iter().filter_map(|(_, counters)| counters.backlog().lag_records());
        let records = lags.reduce(|sum, records| sum + records);
        records.map(|records| format!(", {} left to read", count(records))).unwrap_or_default()
    }

    /// How far event time is behind, where it is most, if the job has any.
    fn lag(&self) -> String {
        let (now, subtasks) = (SystemTime::now(), self.counters.subtasks());
        let lag = subtasks.iter().filter_map(|(_, counters)| counters.times().read().lag(now)).max();
        match lag.map(|lag| lag.as_secs_f64()) {
            None => String::new(),
            Some(s @ 0.0..3_600.0) => format!(", {s:.1} s behind"),
            Some(s) => format!(", {:.0} h behind", s / 3_600.0),
        }
    }

    /// The size of all keyed state, if the job has any.
    fn state(&self) -> String {
        let sizes = self.counters.subtasks().into_iter().filter_map(|(_, counters)| counters.state());
        let bytes = sizes.map(|state| state.snapshot_bytes).reduce(|sum, bytes| sum + bytes);
        bytes.map(|bytes| format!(", state {}", size(bytes))).unwrap_or_default()
    }

    fn checkpoint(&self, now: Instant) -> String {
        match self.counters.checkpoint_figures().read().newest {
            Some(newest) => {
                let age = now.saturating_duration_since(newest.committed).as_secs_f64();
                format!("checkpoint {} took {:.2} s, {age:.1} s ago", newest.epoch, newest.took.as_secs_f64())
            }
            None => none_taken(self.counters.resumed_from()),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// While this process has taken no checkpoint: what it started from, if anything.
fn none_taken(resumed_from: Option<Epoch>) -> String {
    match resumed_from {
        Some(epoch) => format!("from checkpoint {epoch} on, none taken since"),
        None => "no checkpoint yet".to_owned(),
    }
}

/// A number with its thousands apart: 1234567 is "1,234,567".
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_goes_on_from_a_checkpoint_is_not_said_to_have_none() {
        assert_eq!(none_taken(None), "no checkpoint yet");
        assert_eq!(none_taken(Some(Epoch(41))), "from checkpoint 41 on, none taken since");
    }

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 7, 999, 1000, 123_456, 1_234_567].map(count);
        assert_eq!(texts, ["0", "7", "999", "1,000", "123,456", "1,234,567"]);
    }
}
