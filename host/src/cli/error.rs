//! How an error looks to the user: what, why, and what to do.
//!
//! Invariant: everything a verb can fail with is printed in this one form: `error:`, then `caused by:` lines, then `help:`.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::graph::GraphError;
use crate::serve::Unfit;

/// What the process says about a failure to whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The job, or the work of a verb, failed: 1.
    Failed,
    /// The command line, job file, plugin, input or a folder can't be used, or a Kafka cluster doesn't have or allow what the job file
    /// names; no output was committed: 2.
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

    /// Adds causes that are known as texts, from the nearest to the farthest.
    #[must_use]
    pub fn because(mut self, causes: Vec<String>) -> CliError {
        self.causes.extend(causes);
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

    /// For scripts: `{"error": {"message", "causes", "help", "exit_code"}}`.
    pub fn to_json(&self) -> serde_json::Value {
        let exit_code = self.exit.code();
        serde_json::json!({
            "error": { "message": self.message, "causes": self.causes, "help": self.help, "exit_code": exit_code }
        })
    }
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Exit::Failed => 1,
            Exit::Unusable => 2,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> CliError {
        let refused = CliError::unusable(error.to_string());
        let refused = error.source().map_or(refused.clone(), |cause| refused.caused_by(cause));
        match error.help() {
            Some(help) => refused.help(help),
            None => refused,
        }
    }
}

impl From<GraphError> for CliError {
    fn from(error: GraphError) -> CliError {
        CliError::unusable(error.to_string()).help(error.help())
    }
}

impl From<CliError> for Unfit {
    /// On one line.
    fn from(error: CliError) -> Unfit {
        let CliError { message, causes, help, .. } = error;
        let causes = causes.into_iter().filter(|cause| !message.contains(cause.as_str()));
        Unfit { message: std::iter::once(message.clone()).chain(causes).collect::<Vec<_>>().join(": "), help }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        // A message often includes its cause already; said twice it only hides the rest.
        let mut said = self.message.as_str();
        for cause in &self.causes {
            if !said.contains(cause.as_str()) {
                write!(f, "\ncaused by: {cause}")?;
                said = cause;
            }
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
        let json =
            r#"{"error":{"causes":["disk full"],"exit_code":1,"help":"make room","message":"cannot write out.wasm"}}"#;
        assert_eq!(error.to_json().to_string(), json);
    }
}
