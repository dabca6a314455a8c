//! Newtypes for everything that is counted or named, so that an epoch can't be passed for a subtask.
//!
//! Invariant: a name that has been constructed is safe as a path segment and in a log line.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The number of a checkpoint. Grows by one with each checkpoint that is triggered; 0 is never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of one run of a job between failures. Grows by one with each run; never reused for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u64);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `hash(key) % max_parallelism`: the unit in which keyed state moves between subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyGroup(pub u16);

/// A name of a job, operator, source or sink: 1 to 64 of `a-z A-Z 0-9 _ -`, starting with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A name that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("'{name}' is not a usable name: take 1 to 64 letters, digits, '_' or '-', starting with a letter or digit")]
pub struct BadName {
    name: String,
}

impl Name {
    /// # Errors
    /// [`BadName`] if the text breaks the rule above.
    pub fn new(name: &str) -> Result<Name, BadName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if name.len() <= 64 && starts_well && name.chars().all(allowed) {
            Ok(Name(name.into()))
        } else {
            Err(BadName { name: name.chars().take(80).collect() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;
    fn try_from(name: String) -> Result<Name, BadName> {
        Name::new(&name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.as_str().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a component is known by: the SHA-256 of its bytes, 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginHash(Arc<str>);

/// A text that is no hash of a plugin.
#[derive(Debug, thiserror::Error)]
#[error("'{given}' is not the hash of a plugin, which is 64 lower-case hexadecimal digits")]
pub struct BadPluginHash {
    given: String,
}

impl PluginHash {
    /// What stands before a hash where a path could stand, too.
    pub const PREFIX: &'static str = "sha256:";
    const DIGITS: usize = 64;

    /// # Errors
    /// [`BadPluginHash`] if the text is anything but the digits.
    pub fn new(digits: &str) -> Result<PluginHash, BadPluginHash> {
        let allowed = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() == PluginHash::DIGITS && digits.bytes().all(allowed) {
            Ok(PluginHash(digits.into()))
        } else {
            Err(BadPluginHash { given: digits.chars().take(80).collect() })
        }
    }

    /// By the SHA-256 itself.
    pub fn of_digest(digest: &[u8; 32]) -> PluginHash {
        PluginHash(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PluginHash {
    type Error = BadPluginHash;
    fn try_from(digits: String) -> Result<PluginHash, BadPluginHash> {
        PluginHash::new(&digits)
    }
}

impl From<PluginHash> for String {
    fn from(hash: PluginHash) -> String {
        hash.as_str().to_owned()
    }
}

impl fmt::Display for PluginHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One parallel instance of an operator, source or sink.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubtaskId {
    pub operator: Name,
    /// 0 .. parallelism
    pub index: u32,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.operator, self.index)
    }
}

/// The name of a split of a source, cheap to hand on: unique within the source, stable over restarts and changes of parallelism.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SplitId(Arc<str>);

impl SplitId {
    pub fn new(name: &str) -> SplitId {
        SplitId(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SplitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One task: a chain of subtasks that run in one thread. Numbered within an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// The identity of a job for life: random, made when the job first runs, kept in its checkpoint store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobUid(pub String);

impl fmt::Display for JobUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
