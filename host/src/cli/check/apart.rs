//! Whether the output of each sink is apart from that of the others.
//!
//! Invariant: paths are compared as they are without links and `..`, as far as they exist.

use std::collections::BTreeMap;

use super::places::resolved;
use crate::cli::CliError;
use crate::config::JobFile;
use crate::connector::SinkOptions;

/// Whether each sink has an output folder of its own.
///
/// # Errors
/// The first two that don't.
pub(super) fn check_outputs_apart(file: &JobFile) -> Result<(), CliError> {
    let mut owners = BTreeMap::new();
    for (name, sink) in &file.sinks {
        let SinkOptions::File(options) = &sink.options else { continue };
        if let Some(other) = owners.insert(resolved(&options.path), name) {
            let shown = options.path.display();
            let refused = format!("sinks '{other}' and '{name}' have the same output folder {shown}");
            return Err(CliError::unusable(refused)
                .help(format!("give [sink.{name}] another path; or let one sink read both: inputs = [\"a\", \"b\"]")));
        }
    }
    Ok(())
}
