//! Runs an operator in a native test: no WebAssembly, no host.
//!
//! ```
//! use lockgate::prelude::*;
//! use lockgate::testing::Harness;
//!
//! struct Count {
//!     counts: Value<u64>,
//! }
//!
//! impl Operator for Count {
//!     fn new(declare: &mut Declaration) -> Count {
//!         Count { counts: declare.value("counts") }
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
//!         let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
//!         ctx.emit_fmt(record.key(), format_args!("{count}"));
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let mut harness = Harness::<Count>::open()?;
//! harness.process([("a", ""), ("b", ""), ("a", "")])?;
//! assert_eq!(harness.take_output(), [("a", "1"), ("b", "1"), ("a", "2")]);
//! assert_eq!(harness.value::<u64>("counts", "a"), Some(2));
//!
//! // Another instance goes on from a snapshot.
//! let snapshot = harness.snapshot()?;
//! let mut restored = Harness::<Count>::restore(&[&snapshot])?;
//! restored.process([("a", "")])?;
//! assert_eq!(restored.take_output(), [("a", "3")]);
//!
//! // A crash loses what came after the last snapshot; the source replays it.
//! harness.process([("a", ""), ("a", "")])?;
//! harness.recover()?;
//! assert_eq!(harness.value::<u64>("counts", "a"), Some(2));
//! # Ok(())
//! # }
//! ```

mod memory;
mod migration;
mod record;
mod snapshot;

use serde::de::DeserializeOwned;

pub use memory::Calls;
use memory::MemoryHost;
pub use record::TestRecord;
pub use snapshot::Snapshot;

use crate::encoding::{Data, decode};
use crate::error::Error;
use crate::field::AsField;
use crate::host::{BatchRef, Clock, Level};
use crate::instance::{Instance, Rejection};
use crate::open_context::Place;
use crate::operator::{Declaration, Operator};

/// An operator with a host in memory.
///
/// After an error the instance is of no use any more, as with the real host: only [`recover`](Self::recover) goes on.
pub struct Harness<Op> {
    /// `None` after an error.
    instance: Option<Instance<Op>>,
    host: MemoryHost,
    place: Place,
    inputs: Vec<&'static str>,
    rejections: Vec<Rejection>,
    last: Option<Snapshot>,
}

/// As many timers as the real host fires in one call.
const FIRED_ROWS_MAX: usize = 1024;

impl<Op: Operator> Harness<Op> {
    /// Opens an operator with no configuration, as subtask 0 of 1.
    ///
    /// # Errors
    /// If the operator does.
    pub fn open() -> Result<Harness<Op>, Error> {
        Harness::open_with("{}")
    }

    /// Opens an operator with a configuration, a JSON object.
    ///
    /// # Errors
    /// If the operator does.
    pub fn open_with(config: &str) -> Result<Harness<Op>, Error> {
        Harness::restore_with(config, &[])
    }

    /// Opens an operator that goes on from the snapshots of one or, after a change of parallelism, several subtasks. They may be
    /// those of an older version of the operator; then its [`migrate`](Operator::migrate) is called.
    ///
    /// # Errors
    /// If the operator does.
    pub fn restore(snapshots: &[&Snapshot]) -> Result<Harness<Op>, Error> {
        Harness::restore_with("{}", snapshots)
    }

    /// [`restore`](Self::restore) with a configuration.
    ///
    /// # Errors
    /// If the operator does.
    pub fn restore_with(config: &str, snapshots: &[&Snapshot]) -> Result<Harness<Op>, Error> {
        Harness::start(config, snapshots, false)
    }

    /// Opens an operator of a job that skips bad records or sends them elsewhere: [`rejections`](Self::take_rejections) are
    /// gathered, and the other records of a batch are processed.
    ///
    /// # Errors
    /// If the operator does.
    pub fn open_rejecting(config: &str) -> Result<Harness<Op>, Error> {
        Harness::start(config, &[], true)
    }

    /// Opens an operator where it stands in a job, which goes on from snapshots.
    ///
    /// # Errors
    /// If the operator does.
    pub fn restore_at(place: Place, snapshots: &[&Snapshot]) -> Result<Harness<Op>, Error> {
        let declaration = Declaration::of::<Op>();
        let inputs = declaration.inputs().iter().map(|input| input.name).collect();
        let mut host = MemoryHost::new(&declaration);
        let instance = start(&place, &mut host, snapshots)?;
        Ok(Harness { instance: Some(instance), host, place, inputs, rejections: Vec::new(), last: None })
    }

    fn start(config: &str, snapshots: &[&Snapshot], rejections: bool) -> Result<Harness<Op>, Error> {
        let place = Place {
            job: "test".to_owned(),
            operator: "operator".to_owned(),
            subtask: 0,
            parallelism: 1,
            config: config.to_owned(),
            rejections,
        };
        Harness::restore_at(place, snapshots)
    }

    /// Hands the operator records as one batch: pairs of key and value, with the event time as a third if there is one.
    ///
    /// # Errors
    /// If the operator does. What it has emitted in this call is dropped.
    pub fn process<R: Into<TestRecord>>(&mut self, records: impl IntoIterator<Item = R>) -> Result<(), Error> {
        self.process_from(self.inputs[0], records)
    }

    /// [`process`](Self::process) with records of another input.
    ///
    /// # Errors
    /// As `process`.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn process_from<R: Into<TestRecord>>(
        &mut self,
        input: &str,
        records: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        let port = self.inputs.iter().position(|name| *name == input);
        let port = port.unwrap_or_else(|| panic!("no input '{input}' among {:?}", self.inputs));
        let records = records.into_iter().map(Into::into).collect::<Vec<_>>();
        let batch = record::Columns::of(&records);
        self.process_batch(port as u32, batch.as_batch())
    }

    /// Hands the operator a batch of the input with a number.
    ///
    /// # Errors
    /// As `process`.
    pub fn process_batch(&mut self, input: u32, batch: BatchRef<'_>) -> Result<(), Error> {
        let rejections = self.call(|instance, host| instance.process(host, input, batch))?;
        self.rejections.extend(rejections);
        Ok(())
    }

    /// Brings event time to `timestamp`: lets the timers that are due fire, then tells the operator that no more records with
    /// an event time at or before this one come. A watermark that isn't later than the last one changes nothing.
    ///
    /// # Errors
    /// If the operator does.
    pub fn advance_watermark(&mut self, timestamp: i64) -> Result<(), Error> {
        if timestamp <= self.host.watermark_ms {
            return Ok(());
        }
        self.host.watermark_ms = timestamp;
        self.fire(Clock::EventTime, timestamp)?;
        self.call(|instance, host| instance.watermark(host, timestamp))
    }

    /// Brings the time of day to `now`, and lets the timers that are due fire.
    ///
    /// # Errors
    /// If the operator does.
    pub fn advance_processing_time(&mut self, now: i64) -> Result<(), Error> {
        self.host.now_ms = now;
        self.fire(Clock::ProcessingTime, now)
    }

    fn fire(&mut self, clock: Clock, up_to_ms: i64) -> Result<(), Error> {
        loop {
            let due = self.host.take_timers(clock, up_to_ms, FIRED_ROWS_MAX);
            if due.is_empty() {
                return Ok(());
            }
            let batch = record::Columns::of(&due);
            let rejections = self.call(|instance, host| instance.timers(host, clock, batch.as_batch()))?;
            self.rejections.extend(rejections);
        }
    }

    /// The records and timers that were rejected since this was last asked, with their rows in their batches.
    pub fn take_rejections(&mut self) -> Vec<Rejection> {
        std::mem::take(&mut self.rejections)
    }

    /// The timers of a clock that are set, by time: time, key, tag.
    pub fn timers(&self, clock: Clock) -> Vec<(i64, Vec<u8>, Vec<u8>)> {
        let of_clock = self.host.timers.iter().filter(|timer| timer.0 == clock);
        of_clock.map(|(_, time, key, tag)| (*time, key.clone(), tag.clone())).collect()
    }

    /// A barrier.
    ///
    /// # Errors
    /// If the operator does.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let state = self.call(|instance, host| instance.snapshot(host))?;
        let MemoryHost { tables, timers, .. } = &self.host;
        let watermark_ms = self.host.kept_watermark_ms();
        let versions = Declaration::of::<Op>().tables().iter().map(|table| (table.name, table.version)).collect();
        let snapshot = Snapshot { tables: tables.clone(), versions, timers: timers.clone(), watermark_ms, state };
        self.last = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Asks the operator to free memory.
    ///
    /// # Errors
    /// If the operator does.
    pub fn trim(&mut self, bytes_target: u64) -> Result<(), Error> {
        self.call(|instance, host| instance.trim(host, bytes_target))
    }

    /// The end of the job.
    ///
    /// # Errors
    /// If the operator does.
    pub fn close(&mut self) -> Result<(), Error> {
        self.call(|instance, _| instance.close())
    }

    /// Goes on as after a crash: a new instance from the last [`snapshot`](Self::snapshot), or from nothing if there was
    /// none. Output that wasn't taken yet is dropped.
    ///
    /// # Errors
    /// If the operator does.
    pub fn recover(&mut self) -> Result<(), Error> {
        self.instance = None;
        self.host.reset();
        let from = self.last.iter().collect::<Vec<_>>();
        let instance = start(&self.place, &mut self.host, &from)?;
        self.instance = Some(instance);
        Ok(())
    }

    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut Instance<Op>, &mut MemoryHost) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut instance =
            self.instance.take().expect("an operator that hasn't failed; `recover` goes on after an error");
        let result = call(&mut instance, &mut self.host);
        self.host.end_call(result.is_ok());
        if result.is_ok() {
            self.instance = Some(instance);
        }
        result
    }

    /// What was sent to the main output since it was last taken.
    pub fn take_output(&mut self) -> Vec<TestRecord> {
        self.take_output_of("out")
    }

    /// What was sent to an output since it was last taken.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn take_output_of(&mut self, output: &str) -> Vec<TestRecord> {
        self.host.take_output(output)
    }

    /// What a [`Value`](crate::Value) holds for a key.
    ///
    /// # Panics
    /// If there is no such table or it holds something else; so do `map` and `list`.
    pub fn value<V: DeserializeOwned>(&mut self, table: &str, key: impl AsField) -> Option<V> {
        let entries = self.entries(table, key);
        entries.first().map(|(_, value)| decode(value).expect("a value of this type"))
    }

    /// What a [`Map`](crate::Map) holds for a key, in the order of the encoded user keys.
    pub fn map<K: Data, V: Data>(&mut self, table: &str, key: impl AsField) -> Vec<(K, V)> {
        let entries = self.entries(table, key);
        let decoded = entries.iter().map(|(user_key, value)| Ok((decode(user_key)?, decode(value)?)));
        decoded.collect::<Result<_, Error>>().expect("entries of this type")
    }

    /// What a [`List`](crate::List) holds for a key.
    pub fn list<V: Data>(&mut self, table: &str, key: impl AsField) -> Vec<V> {
        let entries = self.entries(table, key);
        let elements = entries.iter().skip(1).map(|(_, value)| decode(value));
        elements.collect::<Result<_, Error>>().expect("elements of this type")
    }

    fn entries(&mut self, table: &str, key: impl AsField) -> Vec<(Vec<u8>, Vec<u8>)> {
        if let Some(instance) = &mut self.instance {
            instance.trim(&mut self.host, u64::MAX).expect("state that can be written");
        }
        self.host.entries(table, key.as_field().expect("a key"))
    }

    /// The lines that were logged.
    pub fn logs(&self) -> &[(Level, String)] {
        &self.host.logs
    }

    /// The sum of a counter.
    pub fn counter(&self, name: &str) -> u64 {
        self.host.counters.get(name).copied().unwrap_or(0)
    }

    /// How often the host was called; that is what state costs.
    pub fn calls(&self) -> Calls {
        self.host.calls
    }

    /// About how much memory the state cache uses.
    ///
    /// # Panics
    /// After an error.
    pub fn cache_bytes(&self) -> usize {
        self.instance.as_ref().expect("an operator that hasn't failed").cache_bytes()
    }
}

fn start<Op: Operator>(place: &Place, host: &mut MemoryHost, from: &[&Snapshot]) -> Result<Instance<Op>, Error> {
    let mut instance = Instance::open(place, host)?;
    if !from.is_empty() {
        for snapshot in from {
            host.load(&snapshot.tables);
            host.timers.extend(snapshot.timers.iter().cloned());
        }
        host.watermark_ms = from.iter().map(|snapshot| snapshot.watermark_ms).min().unwrap_or(i64::MIN);
        migration::migrate(&mut instance, host, from)?;
        // As with the real host: no state is nothing to restore.
        let states = from.iter().map(|snapshot| snapshot.state.clone()).filter(|state| !state.is_empty());
        let states = states.collect::<Vec<_>>();
        if !states.is_empty() {
            instance.restore(&states)?;
        }
    }
    host.end_call(true);
    Ok(instance)
}
