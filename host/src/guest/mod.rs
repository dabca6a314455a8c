//! Operators as the host drives them, and the Wasm components that implement them.

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
