//! What `txn list` and `txn abort` say.
//!
//! Invariant: as text and as JSON it is the same.

use std::fmt;

use serde::Serialize;

use crate::connector::kafka::wire::{OpenOnPartition, Transaction};

#[derive(Debug, Serialize)]
pub(super) struct Listing {
    /// The cluster's id.
    pub cluster: String,
    /// The broker that answered.
    pub broker: String,
    pub prefix: String,
    /// How many ids with the prefix the cluster knows, whether something is open or not.
    pub known: usize,
    pub transactions: Vec<OpenTransaction>,
    /// `None`: not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hanging: Option<Vec<Hanging>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct OpenTransaction {
    pub transactional_id: String,
    pub state: String,
    pub open_ms: Option<u64>,
    pub timeout_ms: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator: i32,
    /// As `TOPIC/PARTITION`.
    pub partitions: Vec<String>,
}

/// A transaction on a partition that no coordinator knows.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Hanging {
    pub topic: String,
    pub partition: i32,
    pub producer_id: i64,
    pub producer_epoch: i32,
    pub start_offset: i64,
}

impl OpenTransaction {
    pub fn new(told: Transaction, now_ms: i64) -> OpenTransaction {
        let partitions = told.partitions.iter();
        let partitions =
            partitions.flat_map(|(topic, numbers)| numbers.iter().map(move |number| format!("{topic}/{number}")));
        OpenTransaction {
            partitions: partitions.collect(),
            // Clocks of machines differ a little.
            open_ms: told.started_ms.map(|started| u64::try_from(now_ms.saturating_sub(started)).unwrap_or(0)),
            transactional_id: told.transactional_id,
            state: told.state,
            timeout_ms: told.timeout_ms,
            producer_id: told.producer_id,
            producer_epoch: told.producer_epoch,
            coordinator: told.coordinator,
        }
    }

    /// Its coordinator looks for such every 10 s by default.
    fn is_overdue(&self) -> bool {
        let timeout = u64::try_from(self.timeout_ms).unwrap_or(0);
        self.state == "Ongoing" && self.open_ms.is_some_and(|open| open > timeout.saturating_add(30_000))
    }
}

impl From<OpenOnPartition> for Hanging {
    fn from(open: OpenOnPartition) -> Hanging {
        let OpenOnPartition { topic, partition, producer_id, producer_epoch, start_offset, .. } = open;
        Hanging { topic, partition, producer_id, producer_epoch, start_offset }
    }
}

impl Listing {
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.prefix.is_empty() { String::new() } else { format!(" of '{}'", self.prefix) };
        let (cluster, broker) = (&self.cluster, &self.broker);
        let count = match self.transactions.len() {
            0 => "no open transaction".to_owned(),
            1 => "1 open transaction".to_owned(),
            count => format!("{count} open transactions"),
        };
        writeln!(f, "{count}{of} on cluster {cluster} ({broker}); {} known", ids(self.known))?;
        for open in &self.transactions {
            let overdue = if open.is_overdue() { ", overdue" } else { "" };
            let age = open.open_ms.map_or("for an unknown time".to_owned(), |ms| format!("for {}", age(ms)));
            writeln!(
                f,
                "  {}  {} {age} (timeout {}{overdue}), producer {} epoch {}, coordinator {}",
                open.transactional_id,
                state(&open.state),
                age_of_timeout(open.timeout_ms),
                open.producer_id,
                open.producer_epoch,
                open.coordinator,
            )?;
            let on =
                if open.partitions.is_empty() { "no partition yet".to_owned() } else { open.partitions.join(", ") };
            writeln!(f, "    on {on}")?;
        }
        let Some(hanging) = &self.hanging else { return Ok(()) };
        if hanging.is_empty() {
            return writeln!(f, "none hangs: each that is open on a partition is known to its coordinator");
        }
        writeln!(f, "hanging: open on a partition, and no coordinator that this user may see knows of it")?;
        for hung in hanging {
            let Hanging { topic, partition, producer_id, producer_epoch, start_offset } = hung;
            writeln!(
                f,
                "  {topic}/{partition} from offset {start_offset}, producer {producer_id} epoch {producer_epoch}"
            )?;
            writeln!(
                f,
                "    to end it: kafka-transactions.sh --bootstrap-server {broker} abort --topic {topic} --partition {partition} \
                 --start-offset {start_offset}"
            )?;
        }
        Ok(())
    }
}

fn ids(count: usize) -> String {
    if count == 1 { "1 id is".to_owned() } else { format!("{count} ids are") }
}

/// Kafka's name of a state, with what it means.
fn state(state: &str) -> &str {
    match state {
        "Ongoing" => "open",
        "PrepareCommit" => "being committed,",
        "PrepareAbort" => "being aborted,",
        other => other,
    }
}

fn age_of_timeout(ms: i32) -> String {
    age(u64::try_from(ms).unwrap_or(0))
}

/// For people: two units at most.
pub(super) fn age(ms: u64) -> String {
    match ms / 1_000 {
        0 => format!("{ms} ms"),
        s @ 1..60 => format!("{s} s"),
        s @ 60..3_600 if s % 60 == 0 => format!("{} min", s / 60),
        s @ 60..3_600 => format!("{} min {} s", s / 60, s % 60),
        s @ 3_600..86_400 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        s => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// What `txn abort` did.
#[derive(Debug, Serialize)]
pub(super) struct Aborted {
    pub cluster: String,
    pub ids: Vec<AbortedId>,
}

#[derive(Debug, Serialize)]
pub(super) struct AbortedId {
    pub transactional_id: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// Fenced, and what was open is aborted.
    Aborted {
        open_ms: Option<u64>,
        partitions: Vec<String>,
    },
    /// Not touched.
    NothingOpen,
    /// Its end is decided and can't be changed; not touched.
    Ending {
        state: String,
    },
    /// The cluster knows no such id; not touched.
    Unknown,
    Failed {
        problem: String,
        help: String,
    },
}

impl Aborted {
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }

    pub fn count(&self, of: fn(&Outcome) -> bool) -> usize {
        self.ids.iter().filter(|id| of(&id.outcome)).count()
    }
}

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ids.is_empty() {
            return writeln!(f, "nothing is open on cluster {}; nothing was done", self.cluster);
        }
        for AbortedId { transactional_id, outcome } in &self.ids {
            match outcome {
                Outcome::Aborted { open_ms, partitions } => {
                    let after = open_ms.map(|ms| format!(" after {}", age(ms))).unwrap_or_default();
                    let on =
                        if partitions.is_empty() { String::new() } else { format!(", on {}", partitions.join(", ")) };
                    writeln!(f, "{transactional_id}: aborted{after}{on}; its producer is shut out")?;
                }
                Outcome::NothingOpen => writeln!(f, "{transactional_id}: nothing is open; it was left alone")?,
                Outcome::Ending { state: told } => {
                    writeln!(
                        f,
                        "{transactional_id}: it is {} already; it was left alone",
                        state(told).trim_end_matches(',')
                    )?;
                }
                Outcome::Unknown => writeln!(f, "{transactional_id}: cluster {} knows no such id", self.cluster)?,
                Outcome::Failed { problem, .. } => writeln!(f, "{transactional_id}: not aborted: {problem}")?,
            }
        }
        Ok(())
    }
}
