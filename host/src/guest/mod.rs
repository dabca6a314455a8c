//! Operators as the host drives them, and the Wasm components that implement them.
//!
//! Invariant: nothing that a guest does, says or returns can end the host or reach past its limits.

mod bindings;
mod cache;
mod compiled;
mod compiler;
mod deadline;
mod descriptor;
mod engine;
mod error;
mod examine;
mod failure;
mod functions;
mod huge_pages;
mod imports;
mod instance;
mod limits;
mod migration;
mod plugin;
mod recording;
mod unfold;
mod wasi;
mod world;

#[cfg(test)]
pub(crate) mod tests;

pub use cache::default_cache_dir;
pub use compiler::{CompileLimits, Compiler, work as compile_for};
pub use descriptor::{
    BadDescriptor, DECLARATIONS_MAX, Declared, Descriptor, Input, Redistribution, Table, TableDeclaration, TableKind,
};
pub use engine::Engine;
pub use error::{Call, ErrorKind, Failure, GuestError, Misuse, OperatorError, Problem};
pub use examine::Interface;
pub use imports::{Counters, Line};
pub use instance::{Again, Facts, Instance, InstanceContext, Made, Place, Repeat, Trial, TrialCall, Tried};
pub use limits::Limits;
pub use migration::MigrationError;
pub use plugin::{COMPONENT_BYTES_MAX, Plugin, hexadecimal};
pub use recording::{Effects, Entry, READ_BYTES_MAX, Read, Recorded};
pub use wasi::Draws;
pub use world::{WORLD, World};

use crate::element::Batch;
use crate::id::Epoch;
pub use crate::state::Clock;
use crate::state::KeyedState;

/// What one call of an operator has emitted: output port and batch, in order.
pub type Emitted = Vec<(u32, Batch)>;

/// A row that an operator could not process, and that had no effect at all. Only where the context allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Of the batch that was given; each row at most once, in order.
    pub row: u32,
    /// Fit for a log.
    pub message: String,
}

/// A timer that was rejected. It is no longer set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedTimer {
    pub key: Vec<u8>,
    pub tag: Vec<u8>,
    pub time_ms: i64,
}

/// What came of a call for timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// How many timers have fired, rejected ones included; 0: none is due.
    pub rows: u32,
    pub rejections: Vec<(Rejection, RejectedTimer)>,
}

/// The most timers that one call fires.
pub const FIRED_ROWS_MAX: usize = 1024;

/// One subtask of an operator. Driven from one thread. After an error it is only dropped.
///
/// An implementor stages what a call emits and writes, and lets go of it only if the call succeeds.
pub trait OperatorInstance: Send {
    /// Takes up the non-keyed state of one or several subtasks of a checkpoint.
    ///
    /// # Errors
    /// If the operator refuses it or breaks a limit.
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError>;
    /// Processes records of one input. Gives the rows that the operator rejects; none if the context doesn't allow it.
    ///
    /// # Errors
    /// If the operator fails, traps or breaks a limit.
    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError>;
    /// Fires timers whose time is at or before `up_to_ms`, the earliest first, at most [`FIRED_ROWS_MAX`] of them: to be
    /// called until none is due. For event time, `up_to_ms` is the watermark, which the operator sees from here on; its
    /// [`watermark`](Self::watermark) follows when no timer is due any more.
    ///
    /// # Errors
    /// As `process`.
    fn fire_timers(&mut self, clock: Clock, up_to_ms: i64, emitted: &mut Emitted) -> Result<Fired, OperatorError>;
    /// The time of the earliest timer.
    fn next_timer(&self, clock: Clock) -> Option<i64>;
    /// The time of day that the calls from here on see, in milliseconds since the Unix epoch.
    fn set_now(&mut self, now_ms: i64);
    /// Tells that event time has come to `timestamp`, behind the timers that are due by then.
    ///
    /// # Errors
    /// As `process`.
    fn watermark(&mut self, timestamp: i64, emitted: &mut Emitted) -> Result<(), OperatorError>;
    /// Brings all changed keyed state into [`keyed_state`](Self::keyed_state) and gives the state that isn't keyed.
    ///
    /// # Errors
    /// As `process`.
    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError>;
    /// # Errors
    /// As `process`.
    fn close(&mut self) -> Result<(), OperatorError>;
    /// The keyed state of this subtask, if the operator has tables or timers.
    fn keyed_state(&mut self) -> Option<&mut KeyedState>;
    /// The instance of a component that it is, if it is one.
    fn wasm(&mut self) -> Option<&mut Instance> {
        None
    }
    /// How many entries of its keyed state were brought to a newer version when it was opened.
    fn migrated_entries(&self) -> u64 {
        0
    }
    /// Ends the instance, without closing it, and gives its keyed state: to be called behind [`snapshot`](Self::snapshot), when all
    /// that the operator has changed is in it.
    fn into_state(self: Box<Self>) -> Option<KeyedState>;
}

/// Makes the instances of one operator. Implemented by [`Plugin`]; a benchmark may bring native operators.
pub trait OperatorFactory: Send + Sync {
    fn descriptor(&self) -> &Descriptor;
    /// The SHA-256 of the component, in hexadecimal digits; native operators have none.
    fn component(&self) -> Option<&str> {
        None
    }
    /// Whether its instances can bring state of an older version to theirs when they are opened. `false` unless said.
    fn migrates(&self) -> bool {
        false
    }
    /// Makes an instance for one subtask and opens it. State whose tables are in an older version is migrated on the way.
    ///
    /// # Errors
    /// If the operator refuses its configuration or its state, traps or breaks a limit.
    fn open(&self, context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError>;
}
