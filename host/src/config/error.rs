//! What can be wrong with a job file.
//!
//! Invariant: every message names the file, and the line and key where there is one; `help` says what is allowed.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::problem::{Problem, ProblemKind};
use crate::graph::nearest;
use crate::units;

/// A job file that can't be used. Whoever wrote it can mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("cannot read job file {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("job file {} is not a file", .path.display())]
    NotAFile { path: PathBuf },
    #[error("job file {} has more than {}", .path.display(), units::size::format(*.limit_bytes))]
    TooLarge { path: PathBuf, limit_bytes: u64 },
    #[error("job file {} is not text: its byte {byte} is not UTF-8", .path.display())]
    NotUtf8 { path: PathBuf, byte: usize },
    #[error("{place}: this is not TOML: {message}")]
    Syntax { place: Place, message: String },
    #[error("{place}: unknown key '{key}' in {table}")]
    UnknownKey { place: Place, key: String, table: TableName, known: Vec<String> },
    #[error("{place}: {table} has no key '{key}'")]
    MissingKey { place: Place, key: String, table: TableName, known: Vec<String> },
    #[error("{place}: {key} = \"{value}\" is not known")]
    UnknownValue { place: Place, key: String, value: String, known: Vec<String> },
    #[error("{place}: {key} is {found}; it must be {expected}")]
    WrongType { place: Place, key: String, found: String, expected: String },
    #[error("{place}: {key}: {message}")]
    Invalid { place: Place, key: String, message: String, help: Option<String> },
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    /// From 1, where it is known.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// A table of the job file; empty for the whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName(pub String);

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the job file") } else { write!(f, "[{}]", self.0) }
    }
}

impl ConfigError {
    /// What the author of the job file can do, where the message doesn't say it.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Some("give the path of a job file, for example: lockgate run job.toml".to_owned())
            }
            Self::Syntax { .. } => {
                Some("correct that line; examples/word-count/job.toml is a whole job file, with comments".to_owned())
            }
            Self::Read { .. } | Self::WrongType { .. } => None,
            Self::Invalid { help, .. } => help.clone(),
            Self::NotAFile { .. } => Some("give the path of a job file, for example: lockgate run job.toml".to_owned()),
            Self::TooLarge { .. } | Self::NotUtf8 { .. } => Some("a job file is a TOML text of some lines".to_owned()),
            Self::UnknownKey { key, known, .. } => Some(suggestion(key, known, "the keys here are")),
            Self::MissingKey { key, known, .. } if known.is_empty() => Some(format!("add {key} = ... to it")),
            Self::MissingKey { key, known, .. } => {
                Some(format!("add {key} = \"...\" with one of: {}", known.join(", ")))
            }
            Self::UnknownValue { value, known, .. } => Some(suggestion(value, known, "it can be")),
        }
    }

    /// Says where in a file a problem is.
    pub(super) fn new(path: &Path, text: &str, problem: Problem) -> ConfigError {
        let line = problem.span().map(|span| line_of(text, &span));
        let place = Place { path: path.to_owned(), line };
        let path = problem.key_path();
        match problem.kind {
            ProblemKind::Syntax { message } => Self::Syntax { place, message },
            ProblemKind::UnknownKey { key, known } => Self::UnknownKey { place, key, table: TableName(path), known },
            ProblemKind::MissingKey { key, known } => Self::MissingKey { place, key, table: TableName(path), known },
            ProblemKind::UnknownValue { value, known } => Self::UnknownValue { place, key: path, value, known },
            ProblemKind::WrongType { found, expected } => Self::WrongType { place, key: path, found, expected },
            ProblemKind::Invalid { message } => {
                Self::Invalid { place, key: path, message, help: problem.help.map(String::from) }
            }
        }
    }
}

/// "did you mean", and all that is known.
fn suggestion(name: &str, known: &[String], all: &str) -> String {
    let nearest = nearest(name, known.iter().map(String::as_str));
    let all = format!("{all}: {}", known.join(", "));
    match nearest {
        Some(nearest) => format!("did you mean '{nearest}'? ({all})"),
        None => all,
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
