//! Writing to standard output and error.
//!
//! Invariant: a reader that has gone away (`lockgate check job.toml | head -1`) is no error and no panic.

use std::io::{ErrorKind, Write};

use crate::cli::CliError;

/// Writes text to standard output, all of it or with an error.
///
/// # Errors
/// If it can't be written, as to a full disk.
pub fn out(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::failed("cannot write to standard output").caused_by(&error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes text to standard error, if anybody reads it.
pub fn err(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
