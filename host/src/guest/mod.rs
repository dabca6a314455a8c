//! Operators as the host drives them, and the Wasm components that implement them.
//!
//! Invariant: nothing that a guest does, says or returns can end the host or reach past its limits.

mod bindings;
mod cache;
mod compiled;
mod descriptor;
mod engine;
mod error;
mod examine;
mod failure;
mod imports;
mod instance;
mod limits;
mod plugin;
mod world;

#[cfg(test)]
mod tests;

pub use cache::default_cache_dir;
pub use descriptor::{BadDescriptor, DECLARATIONS_MAX, Descriptor, Table, TableDeclaration, TableKind};
pub use engine::Engine;
pub use error::{Call, ErrorKind, Failure, GuestError, Misuse, OperatorError, Problem};
pub use examine::Interface;
pub use imports::Counters;
pub use instance::{Instance, InstanceContext};
pub use limits::Limits;
pub use plugin::Plugin;
pub use world::{WORLD, World};

use crate::element::Batch;
use crate::id::Epoch;
use crate::state::KeyedState;

/// What one call of an operator has emitted: output port and batch, in order.
pub type Emitted = Vec<(u32, Batch)>;

/// One subtask of an operator. Driven from one thread. After an error it is only dropped.
///
/// An implementor stages what a call emits and writes, and lets go of it only if the call succeeds.
pub trait OperatorInstance: Send {
    /// Takes up the non-keyed state of one or several subtasks of a checkpoint.
    ///
    /// # Errors
    /// If the operator refuses it or breaks a limit.
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError>;
    /// # Errors
    /// If the operator fails, traps or breaks a limit.
    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<(), OperatorError>;
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
    /// The keyed state of this subtask, if the operator declares any table.
    fn keyed_state(&mut self) -> Option<&mut KeyedState>;
}

/// Makes the instances of one operator. Implemented by [`Plugin`]; a benchmark may bring native operators.
pub trait OperatorFactory: Send + Sync {
    fn descriptor(&self) -> &Descriptor;
    /// Makes an instance for one subtask and opens it.
    ///
    /// # Errors
    /// If the operator refuses its configuration, traps or breaks a limit.
    fn open(&self, context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError>;
}
