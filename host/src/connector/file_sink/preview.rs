//! Whether a sink will be let into its output folder, found out without touching it.
//!
//! Invariant: nothing is changed, and nothing is refused that a run would take.

use super::layout::Layout;
use super::{FileCommitter, FileSinkOptions, claim};
use crate::connector::{ConnectorContext, ConnectorError, SinkCommitter};
use crate::id::Epoch;

/// Looks whether the folder is free or this sink's.
///
/// # Errors
/// If it belongs to another job or sink, or its owner can't be read.
pub fn preview(options: &FileSinkOptions, ctx: &ConnectorContext) -> Result<(), ConnectorError> {
    let layout = Layout::new(&options.path);
    if claim::is_claimed(&layout, ctx)? { claim::check(&layout, ctx) } else { Ok(()) }
}

impl FileSinkOptions {
    /// The newest epoch that is known to be committed to the folder.
    ///
    /// # Errors
    /// As [`preview`], or if that can't be read.
    pub fn committed(&self, ctx: &ConnectorContext) -> Result<Option<Epoch>, ConnectorError> {
        Ok(FileCommitter::look(self, ctx)?.committed())
    }

    /// Finds out whether the output of an epoch is in the folder, be it committed or not.
    ///
    /// # Errors
    /// What a commit would give.
    pub fn can_commit(
        &self,
        ctx: &ConnectorContext,
        epoch: Epoch,
        committables: &[Vec<u8>],
    ) -> Result<(), ConnectorError> {
        FileCommitter::look(self, ctx)?.can_commit(epoch, committables)
    }
}
