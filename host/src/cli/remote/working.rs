//! Says that a daemon is at work on something that takes a while.
//!
//! Invariant: it goes to standard error; on a terminal it is gone when the work is done.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::print;

const EVERY: Duration = Duration::from_millis(200);

pub struct Working {
    bar: Option<ProgressBar>,
}

impl Working {
    /// Work of which nobody knows how long it takes.
    pub fn on(what: &str) -> Working {
        if !std::io::stderr().is_terminal() {
            print::err(&format!("{what}\n"));
            return Working { bar: None };
        }
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("a good template"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(EVERY);
        Working { bar: Some(bar) }
    }

    /// Bytes that are sent.
    pub fn sending(what: &str, bytes: u64) -> Working {
        if !std::io::stderr().is_terminal() {
            print::err(&format!("{what}\n"));
            return Working { bar: None };
        }
        let bar = ProgressBar::new(bytes);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes} of {total_bytes}");
        bar.set_style(style.expect("a good template"));
        bar.set_message(what.to_owned());
        Working { bar: Some(bar) }
    }

    pub fn sent(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
