//! How an error looks to the user: what, why, and what to do.
//!
//! Invariant: everything a verb can fail with is printed in this one form: `error:`, then `caused by:` lines, then `help:`.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// What the process says about a failure to whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The job, or the work of a verb, failed: 1.
    Failed,
    /// The command line, job file or plugin can't be used; nothing was done: 2.
    Unusable,
}

/// Why a verb failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    message: String,
    causes: Vec<String>,
    help: Option<String>,
    exit: Exit,
}

impl CliError {
    /// Work that failed. The message names the thing and begins in lower case.
    pub fn failed(message: impl Into<String>) -> CliError {
        CliError { message: message.into(), causes: Vec::new(), help: None, exit: Exit::Failed }
    }

    /// Something the user gave that can't be used.
    pub fn unusable(message: impl Into<String>) -> CliError {
        CliError { exit: Exit::Unusable, ..CliError::failed(message) }
    }

    /// Adds an error and all that caused it.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn Error) -> CliError {
        let mut cause = Some(error);
        while let Some(error) = cause {
            self.causes.push(error.to_string());
            cause = error.source();
        }
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> CliError {
        self.help = Some(help.into());
        self
    }

    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        match exit {
            Exit::Failed => ExitCode::from(1),
            Exit::Unusable => ExitCode::from(2),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        // A message often includes its cause already; said twice it only hides the rest.
        for cause in self.causes.iter().filter(|cause| !self.message.contains(cause.as_str())) {
            write!(f, "\ncaused by: {cause}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl Error for CliError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_then_why_then_what_to_do() {
        let cause = std::io::Error::other("disk full");
        let error = CliError::failed("cannot write out.wasm").caused_by(&cause).help("make room");
        assert_eq!(error.to_string(), "error: cannot write out.wasm\ncaused by: disk full\nhelp: make room");
        let said = CliError::unusable("cannot read job.toml: disk full").caused_by(&cause);
        assert_eq!(said.to_string(), "error: cannot read job.toml: disk full");
        assert_eq!((error.exit(), said.exit()), (Exit::Failed, Exit::Unusable));
    }
}
