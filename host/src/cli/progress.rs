//! What a running job shows: one line that is rewritten on a terminal, a plain line now and then elsewhere.
//!
//! Invariant: progress goes to standard error; standard output is for results.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::print;
use crate::id::Name;
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
    last: (Instant, u64),
}

impl Progress {
    pub fn new(counters: Arc<JobCounters>, sources: Vec<Name>, sinks: Vec<Name>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a good template"));
            bar
        });
        Progress { counters, sources, sinks, bar, last: (Instant::now(), 0) }
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
        let records_in = self.sources.iter().map(|name| self.counters.totals_of(name).records_out).sum::<u64>();
        let records_out = self.sinks.iter().map(|name| self.counters.totals_of(name).records_in).sum::<u64>();
        let (then, before) = std::mem::replace(&mut self.last, (Instant::now(), records_in));
        let rate = (records_in - before) as f64 / then.elapsed().as_secs_f64().max(1e-9);
        let checkpoint = match self.counters.committed_epoch() {
            Some(epoch) => format!("checkpoint {epoch} committed"),
            None => "no checkpoint yet".to_owned(),
        };
        format!("{} read ({}/s), {} written, {checkpoint}", count(records_in), count(rate as u64), count(records_out))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
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
    use super::count;

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 7, 999, 1000, 123_456, 1_234_567].map(count);
        assert_eq!(texts, ["0", "7", "999", "1,000", "123,456", "1,234,567"]);
    }
}
