//! Whether a sink will be let into its output folder, found out without touching it.
//!
//! Invariant: nothing is changed, and nothing is refused that a run would take.

use super::layout::Layout;
use super::{FileSinkOptions, claim};
use crate::connector::{ConnectorContext, ConnectorError};

/// Looks whether the folder is free or this sink's.
///
/// # Errors
/// If it belongs to another job or sink, or its owner can't be read.
pub fn preview(options: &FileSinkOptions, ctx: &ConnectorContext) -> Result<(), ConnectorError> {
    let layout = Layout::new(&options.path);
    if claim::is_claimed(&layout, ctx)? { claim::check(&layout, ctx) } else { Ok(()) }
}
