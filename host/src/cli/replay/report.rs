//! What `lockgate replay` prints.
//!
//! Invariant: the text and the JSON tell the same; and nothing of a capsule, which may be anybody's, reaches the terminal unescaped.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::element::{Batch, NO_TIMESTAMP};
use crate::guest::{Effects, TrialCall};
use crate::replay::{Capsule, Outcome, Rerun, StateOf};
use crate::state::Clock;
use crate::task::base64;
use crate::telemetry::printable;

/// More of a text isn't shown; the JSON has all of a record.
const SHOWN_BYTES_MAX: usize = 2_000;
/// More entries of state aren't listed in the text.
const ENTRIES_SHOWN_MAX: usize = 20;

/// All that there is to say.
#[derive(Debug, Serialize)]
pub struct Report {
    capsule: PathBuf,
    job: String,
    operator: String,
    subtask: u32,
    epoch: u64,
    taken_ms: u64,
    host_version: String,
    component: String,
    sha256: String,
    /// The component that ran instead.
    other: Option<Other>,
    call: &'static str,
    input: Option<String>,
    watermark_ms: Option<i64>,
    record: Option<RecordReport>,
    origin: Option<OriginReport>,
    state: StateReport,
    /// In the job, where it isn't the same as what was recorded.
    seen: Told,
    recorded: Told,
    replayed: Told,
    same: bool,
    bit_for_bit: bool,
    effects: EffectsReport,
    log: Vec<LogLine>,
    test: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Other {
    component: String,
    sha256: String,
}

#[derive(Debug, Serialize)]
struct RecordReport {
    #[serde(flatten)]
    key: KeyBytes,
    #[serde(flatten)]
    value: ValueBytes,
    timestamp_ms: Option<i64>,
    headers: Vec<HeaderReport>,
}

#[derive(Debug, Serialize)]
struct HeaderReport {
    name: String,
    #[serde(flatten)]
    value: ValueBytes,
}

/// Bytes: as text, or in base64 under another name.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum KeyBytes {
    Text { key: Option<String> },
    Base64 { key_base64: String },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ValueBytes {
    Text { value: Option<String> },
    Base64 { value_base64: String },
}

#[derive(Debug, Serialize)]
struct OriginReport {
    split: String,
    offset: u64,
    record: u32,
}

#[derive(Debug, Serialize)]
struct StateReport {
    /// `call`: just before it; `snapshot`: of the last one before.
    of: &'static str,
    snapshot_bytes: usize,
    reads: usize,
    entries: Vec<EntryReport>,
}

#[derive(Debug, Serialize)]
struct EntryReport {
    table: String,
    #[serde(flatten)]
    key: KeyBytes,
    user_key_base64: String,
    #[serde(flatten)]
    value: ValueBytes,
}

/// An outcome, fit to be printed.
#[derive(Debug, Serialize)]
struct Told {
    outcome: &'static str,
    call: Option<String>,
    kind: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Serialize)]
struct EffectsReport {
    batches: u64,
    records: u64,
    writes: u64,
}

#[derive(Debug, Serialize)]
struct LogLine {
    level: &'static str,
    line: String,
}

impl Report {
    /// `other`: whether another component ran than the capsule's.
    pub fn new(path: &Path, capsule: &Capsule, rerun: &Rerun, other: bool, test: Option<PathBuf>) -> Report {
        let Capsule { place, component, trial, .. } = capsule;
        let Effects { batches, rows, writes, .. } = rerun.effects;
        let line = |(level, line): &(&'static str, String)| LogLine { level, line: line.clone() };
        Report {
            capsule: path.to_owned(),
            job: place.job.to_string(),
            operator: place.subtask.operator.to_string(),
            subtask: place.subtask.index,
            epoch: capsule.epoch.0,
            taken_ms: capsule.taken_ms,
            host_version: shown(&capsule.host_version),
            component: shown(&format!("{} {}", component.name, component.version)),
            sha256: component.sha256.clone(),
            other: other.then(|| Other { component: rerun.component.clone(), sha256: rerun.sha256.clone() }),
            call: call(&trial.call),
            input: input(capsule),
            watermark_ms: Some(trial.watermark_ms).filter(|watermark| *watermark != NO_TIMESTAMP),
            record: trial.call.rows().map(record),
            origin: capsule.origin.as_ref().map(|origin| OriginReport {
                split: shown(&origin.split),
                offset: origin.offset,
                record: origin.record,
            }),
            state: state(capsule),
            seen: told(&capsule.seen),
            recorded: told(&capsule.tried),
            replayed: told(&rerun.outcome),
            same: if other { rerun.outcome.is_like(&capsule.tried) } else { rerun.is_same_failure(capsule) },
            bit_for_bit: rerun.is_bit_for_bit(capsule),
            effects: EffectsReport { batches, records: rows, writes },
            log: rerun.lines.iter().map(line).collect(),
            test,
        }
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

fn shown(text: &str) -> String {
    printable(text, SHOWN_BYTES_MAX)
}

fn call(call: &TrialCall) -> &'static str {
    match call {
        TrialCall::Process { .. } => "process",
        TrialCall::Timers { clock: Clock::EventTime, .. } => "timers (event time)",
        TrialCall::Timers { clock: Clock::ProcessingTime, .. } => "timers (processing time)",
        TrialCall::Watermark { .. } => "watermark",
    }
}

fn input(capsule: &Capsule) -> Option<String> {
    let TrialCall::Process { port, .. } = capsule.trial.call else { return None };
    Some(capsule.inputs[port as usize].to_string())
}

fn record(rows: &Batch) -> RecordReport {
    let header =
        |header: crate::element::Header<'_>| HeaderReport { name: header.name.to_owned(), value: value(header.value) };
    RecordReport {
        key: key(rows.key(0)),
        value: value(rows.value(0)),
        timestamp_ms: Some(rows.timestamp(0)).filter(|timestamp| *timestamp != NO_TIMESTAMP),
        headers: rows.headers(0).map(header).collect(),
    }
}

fn key(bytes: Option<&[u8]>) -> KeyBytes {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => KeyBytes::Text { key: None },
        Some((_, Ok(text))) => KeyBytes::Text { key: Some(text.to_owned()) },
        Some((bytes, Err(_))) => KeyBytes::Base64 { key_base64: base64(bytes) },
    }
}

fn value(bytes: Option<&[u8]>) -> ValueBytes {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => ValueBytes::Text { value: None },
        Some((_, Ok(text))) => ValueBytes::Text { value: Some(text.to_owned()) },
        Some((bytes, Err(_))) => ValueBytes::Base64 { value_base64: base64(bytes) },
    }
}

fn state(capsule: &Capsule) -> StateReport {
    let entry = |entry: &crate::guest::Entry| EntryReport {
        table: capsule.tables[entry.table as usize].name.to_string(),
        key: key(Some(&entry.key)),
        user_key_base64: base64(&entry.user_key),
        // State is bytes in an encoding of its own.
        value: ValueBytes::Base64 { value_base64: base64(&entry.value) },
    };
    StateReport {
        of: match capsule.state_of {
            StateOf::Call => "call",
            StateOf::Snapshot => "snapshot",
        },
        snapshot_bytes: capsule.trial.states.iter().map(Vec::len).sum(),
        reads: capsule.reads.len(),
        entries: capsule.entries.iter().map(entry).collect(),
    }
}

fn told(outcome: &Outcome) -> Told {
    let (outcome, call, kind, message) = match outcome {
        Outcome::Passed => ("processed", None, None, None),
        Outcome::Rejected { message } => ("rejected", None, None, Some(message)),
        Outcome::Failed { call, kind, message } => ("failed", Some(call), Some(kind), Some(message)),
    };
    let [call, kind, message] = [call, kind, message].map(|text| text.map(|text| shown(text)));
    Told { outcome, call, kind, message }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.outcome)?;
        if let (Some(call), Some(kind)) = (&self.call, &self.kind) {
            write!(f, " in {call} ({kind})")?;
        }
        self.message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))
    }
}

/// Bytes on one line, quoted.
fn quoted(text: &Option<String>, base64: Option<&String>) -> String {
    match (text, base64) {
        (_, Some(base64)) => format!("base64 {}", shown(base64)),
        (Some(text), None) => format!("\"{}\"", shown(&text.escape_debug().to_string())),
        (None, None) => "none".to_owned(),
    }
}

impl fmt::Display for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyBytes::Text { key } => f.write_str(&quoted(key, None)),
            KeyBytes::Base64 { key_base64 } => f.write_str(&quoted(&None, Some(key_base64))),
        }
    }
}

impl fmt::Display for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueBytes::Text { value } => f.write_str(&quoted(value, None)),
            ValueBytes::Base64 { value_base64 } => f.write_str(&quoted(&None, Some(value_base64))),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { job, operator, subtask, epoch, component, sha256, host_version, .. } = self;
        writeln!(f, "{}", self.capsule.display())?;
        writeln!(f, "  operator   {operator}[{subtask}] of job '{job}', before checkpoint {epoch}")?;
        writeln!(f, "  component  {component}, sha256 {sha256} (Lockgate {host_version})")?;
        match &self.input {
            Some(input) => writeln!(f, "  call       {} (input '{input}')", self.call)?,
            None => writeln!(f, "  call       {}", self.call)?,
        }
        self.fmt_record(f)?;
        self.fmt_state(f)?;
        if self.seen.to_string() != self.recorded.to_string() {
            writeln!(f, "  in the job {}", self.seen)?;
        }
        writeln!(f, "  recorded   {}", self.recorded)?;
        if let Some(Other { component, sha256 }) = &self.other {
            writeln!(f, "  run with   {component}, sha256 {sha256}")?;
        }
        for LogLine { level, line } in &self.log {
            writeln!(f, "  log        {level}: {line}")?;
        }
        writeln!(f, "  replayed   {}", self.replayed)?;
        let EffectsReport { batches, records, writes } = &self.effects;
        writeln!(f, "  until then {records} records emitted in {batches} batches, {writes} entries written")?;
        if let Some(test) = &self.test {
            writeln!(f, "  test       {}", test.display())?;
        }
        let verdict = match (&self.other, self.same, self.bit_for_bit) {
            (Some(_), _, _) if self.replayed.outcome == "processed" => "it is processed now",
            (Some(_), true, _) => "the same failure",
            (Some(_), false, _) => "another failure",
            (None, true, true) => "the same failure, bit for bit",
            (None, true, false) => "the same failure, but not bit for bit",
            (None, false, _) => "not the same",
        };
        writeln!(f, "{verdict}")
    }
}

impl Report {
    fn fmt_record(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(OriginReport { split, offset, record }) = &self.origin {
            writeln!(f, "  read at    record {record} from offset {offset} of split '{split}'")?;
        }
        if let Some(RecordReport { key, value, timestamp_ms, headers }) = &self.record {
            writeln!(f, "  key        {key}\n  value      {value}")?;
            if let Some(timestamp_ms) = timestamp_ms {
                writeln!(f, "  event time {timestamp_ms} ms")?;
            }
            for HeaderReport { name, value } in headers {
                writeln!(f, "  header     {}: {value}", shown(&name.escape_debug().to_string()))?;
            }
        }
        self.watermark_ms.map_or(Ok(()), |watermark_ms| writeln!(f, "  watermark  {watermark_ms} ms"))
    }

    fn fmt_state(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateReport { of, snapshot_bytes, reads, entries } = &self.state;
        let of = if *of == "call" {
            "just before the call"
        } else {
            "of the last snapshot, and of the rows before it in its batch"
        };
        let entry_count = entries.len();
        writeln!(f, "  state      {of}: {snapshot_bytes} bytes beside tables; {entry_count} entries in {reads} reads")?;
        for EntryReport { table, key, user_key_base64, value } in entries.iter().take(ENTRIES_SHOWN_MAX) {
            let user_key = if user_key_base64.is_empty() { String::new() } else { format!(", {user_key_base64}") };
            writeln!(f, "  entry      {table}[{key}{user_key}] = {value}")?;
        }
        match entry_count.checked_sub(ENTRIES_SHOWN_MAX) {
            None | Some(0) => Ok(()),
            Some(more) => writeln!(f, "             and {more} more, which --json lists"),
        }
    }
}
