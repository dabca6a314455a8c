//! The log of one instance: lines that the operator logs, and what a language's runtime prints.
//!
//! Invariant: a guest can't flood the log: lines are cut, their rate is bounded, what is dropped is counted and told, and control
//! characters don't get through.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wasmtime::component::{ComponentType, Lift};

use crate::id::SubtaskId;
use crate::telemetry;

const LINE_BYTES_MAX: usize = 4 * 1024;
/// The limit is one of lines in each of these.
const PERIOD: Duration = Duration::from_secs(1);
/// So many of the last lines on standard error are kept for the error that a call ends with.
const LAST_WORDS_LINES_MAX: usize = 16;
/// More lines of a trial aren't kept.
const KEPT_LINES_MAX: usize = 100;

/// A line: its level and text.
pub type Line = (&'static str, String);

/// The level of a log line.
#[derive(ComponentType, Lift, Clone, Copy, PartialEq, Eq)]
#[component(enum)]
#[repr(u8)]
pub(super) enum Level {
    #[component(name = "debug")]
    #[expect(dead_code, reason = "made by the derived lift, from the guest's number")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// Where a runtime prints to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guest) enum Output {
    Stdout,
    Stderr,
}

/// The log of one instance.
pub(in crate::guest) struct GuestLog {
    subtask: SubtaskId,
    rate: Rate,
    /// The last error that the running call has logged.
    last_error: Option<String>,
    /// What the running call has printed on standard error last.
    last_words: VecDeque<String>,
    /// Beginnings of lines.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Lines of an instance on trial, which go nowhere else.
    kept: Option<Vec<Line>>,
}

/// How many lines may pass.
struct Rate {
    lines_max: u32,
    lines_left: u32,
    period_began: Instant,
    dropped: u64,
}

impl Rate {
    fn new(lines_max: u32) -> Rate {
        Rate { lines_max, lines_left: lines_max, period_began: Instant::now(), dropped: 0 }
    }

    /// Whether a line may pass.
    fn takes(&mut self) -> bool {
        let takes = self.lines_left > 0;
        if takes {
            self.lines_left -= 1;
        } else {
            self.dropped += 1;
        }
        takes
    }

    /// If another period has begun: how many lines were dropped until then.
    fn dropped_before(&mut self, now: Instant) -> u64 {
        if now.duration_since(self.period_began) < PERIOD {
            return 0;
        }
        (self.lines_left, self.period_began) = (self.lines_max, now);
        std::mem::take(&mut self.dropped)
    }
}

impl GuestLog {
    pub fn new(subtask: SubtaskId, lines_per_second_max: u32) -> GuestLog {
        GuestLog {
            subtask,
            rate: Rate::new(lines_per_second_max),
            last_error: None,
            last_words: VecDeque::new(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            kept: None,
        }
    }

    /// Keeps the first lines from here on, instead of logging them.
    pub fn keep(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// The lines that were kept.
    pub fn take_kept(&mut self) -> Vec<Line> {
        self.end_lines();
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Another call begins: what the last one has printed without the end of a line is one.
    pub fn begin(&mut self) {
        self.end_lines();
        self.last_error = None;
        self.last_words.clear();
    }

    /// What the running call has said last, if it was about an error: the SDK logs a panic's message before it traps, and
    /// runtimes print it.
    pub fn take_last_words(&mut self) -> Option<String> {
        self.end_lines();
        let printed = self.last_words.make_contiguous().join("; ");
        self.last_words.clear();
        self.last_error.take().or((!printed.is_empty()).then(|| printable(&printed)))
    }

    pub(super) fn write(&mut self, level: Level, line: String, now: Instant) {
        self.pass_on(level, &line, now);
        if level == Level::Error {
            self.last_error = Some(line);
        }
    }

    /// Takes what a runtime prints. Lines that are too long are cut into several.
    pub fn print(&mut self, output: Output, mut bytes: &[u8]) {
        let now = Instant::now();
        while !bytes.is_empty() {
            let begun = self.begun(output);
            let room = &bytes[..bytes.len().min(LINE_BYTES_MAX - begun.len())];
            let (taken, ended) = match room.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end, true),
                None => (room.len(), false),
            };
            begun.extend_from_slice(&room[..taken]);
            bytes = &bytes[taken + usize::from(ended)..];
            if ended || begun.len() == LINE_BYTES_MAX {
                self.end_line(output, now);
            }
        }
    }

    fn begun(&mut self, output: Output) -> &mut Vec<u8> {
        match output {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        }
    }

    fn end_lines(&mut self) {
        for output in [Output::Stdout, Output::Stderr] {
            if !self.begun(output).is_empty() {
                self.end_line(output, Instant::now());
            }
        }
    }

    fn end_line(&mut self, output: Output, now: Instant) {
        let begun = self.begun(output);
        let line = printable(String::from_utf8_lossy(begun).trim_end_matches('\r'));
        begun.clear();
        if line.is_empty() {
            return;
        }
        match output {
            Output::Stdout => self.pass_on(Level::Info, &line, now),
            Output::Stderr => {
                self.pass_on(Level::Warn, &line, now);
                if self.last_words.len() == LAST_WORDS_LINES_MAX {
                    self.last_words.pop_front();
                }
                self.last_words.push_back(line);
            }
        }
    }

    fn pass_on(&mut self, level: Level, line: &str, now: Instant) {
        if let Some(kept) = &mut self.kept {
            if kept.len() < KEPT_LINES_MAX {
                kept.push((level.as_str(), line.to_owned()));
            }
            return;
        }
        let dropped = self.rate.dropped_before(now);
        self.tell_dropped(dropped);
        if !self.rate.takes() {
            return;
        }
        let operator = self.subtask.to_string();
        match level {
            Level::Debug => tracing::debug!(operator, "{line}"),
            Level::Info => tracing::info!(operator, "{line}"),
            Level::Warn => tracing::warn!(operator, "{line}"),
            Level::Error => tracing::error!(operator, "{line}"),
        }
    }

    fn tell_dropped(&self, dropped: u64) {
        if dropped > 0 {
            let (operator, log_rate) = (self.subtask.to_string(), self.rate.lines_max);
            tracing::warn!(
                operator,
                dropped,
                log_rate,
                "the operator logs more lines a second than its log_rate; some were dropped"
            );
        }
    }
}

impl Drop for GuestLog {
    fn drop(&mut self) {
        self.end_lines();
        self.tell_dropped(self.rate.dropped);
    }
}

/// A text of a guest, fit for a log line: on one line, whatever it has.
pub(in crate::guest) fn printable(text: &str) -> String {
    let start = &text[..text.floor_char_boundary(2 * LINE_BYTES_MAX)];
    let lines = start.lines().map(str::trim_end).filter(|line| !line.is_empty());
    telemetry::printable(&lines.collect::<Vec<_>>().join(" "), LINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::id::Name;

    const LINES_MAX: u32 = 100;

    fn log() -> GuestLog {
        GuestLog::new(SubtaskId { operator: Name::new("op").expect("a name"), index: 0 }, LINES_MAX)
    }

    #[test]
    fn a_flood_of_lines_is_dropped_and_counted_and_the_last_error_kept() {
        let mut log = log();
        let start = log.rate.period_began;
        for index in 0..1000 {
            log.write(Level::Error, index.to_string(), start);
        }
        assert_eq!(log.rate.dropped, 1000 - u64::from(LINES_MAX));
        assert_eq!(log.take_last_words().as_deref(), Some("999"));
        log.write(Level::Info, "later".to_owned(), start + PERIOD);
        assert_eq!((log.rate.dropped, log.rate.lines_left), (0, LINES_MAX - 1), "told, and counted anew");
    }

    /// What is written to the log meanwhile.
    fn written(work: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().expect("no panic").extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = lines.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn a_message_of_several_lines_becomes_one_line() {
        assert_eq!(
            printable("panicked at src/lib.rs:7:23:\r\nno such\tword \n\n"),
            "panicked at src/lib.rs:7:23: no such\tword"
        );
        assert_eq!(printable(&"é\n".repeat(LINE_BYTES_MAX)).chars().next(), Some('é'));
    }

    #[test]
    fn what_was_dropped_is_told_at_the_latest_when_the_instance_ends() {
        let text = written(|| {
            let mut log = log();
            log.print(Output::Stdout, "a line\n".repeat(150).as_bytes());
            log.print(Output::Stderr, b"the last one has no end");
        });
        assert_eq!(text.matches("a line").count(), LINES_MAX as usize);
        assert!(text.contains("dropped=51") && text.contains("log_rate=100") && text.contains("op[0]"), "{text}");
    }

    #[test]
    fn what_is_printed_becomes_lines_however_it_is_cut() {
        let mut log = log();
        for part in ["one\r\ntw", "o", "\n\nthree\x1b"] {
            log.print(Output::Stderr, part.as_bytes());
        }
        log.print(Output::Stdout, b"elsewhere\n");
        assert_eq!(log.take_last_words().as_deref(), Some("one; two; three\\u{1b}"));
        log.print(Output::Stderr, b"of the last call");
        log.begin();
        assert_eq!(log.take_last_words(), None);
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_one_line() {
        let mut log = log();
        for _ in 0..100 {
            log.print(Output::Stderr, &[b'x'; 3000]);
            log.print(Output::Stdout, &[0xff; 3000]);
        }
        assert!(log.stderr.len() < LINE_BYTES_MAX && log.stdout.len() < LINE_BYTES_MAX);
        assert_eq!(log.last_words.len(), LAST_WORDS_LINES_MAX);
        assert!(log.take_last_words().expect("said").len() <= LINE_BYTES_MAX + '…'.len_utf8());
    }

    #[test]
    fn the_lines_of_a_trial_are_kept_and_not_logged() {
        let mut kept = Vec::new();
        let text = written(|| {
            let mut log = log();
            log.keep();
            log.write(Level::Error, "panicked".to_owned(), Instant::now());
            log.print(Output::Stdout, "again\n".repeat(2 * KEPT_LINES_MAX).as_bytes());
            assert_eq!(log.take_last_words().as_deref(), Some("panicked"));
            kept = log.take_kept();
        });
        assert_eq!((text.as_str(), kept.len()), ("", KEPT_LINES_MAX));
        assert_eq!(kept[..2], [("error", "panicked".to_owned()), ("info", "again".to_owned())]);
    }

    #[test]
    fn an_error_that_was_logged_counts_for_more_than_what_was_printed() {
        let mut log = log();
        log.print(Output::Stderr, b"stack backtrace\n");
        log.write(Level::Error, "panicked".to_owned(), Instant::now());
        assert_eq!(log.take_last_words().as_deref(), Some("panicked"));
    }
}
