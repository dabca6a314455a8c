//! Why a component can't be used, and why a call of an operator failed.
//!
//! Invariant: every error names the operator or its file, and has a `help` that says what to do.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::descriptor::BadDescriptor;
use super::migration::MigrationError;
use super::world::WORLD;
use crate::element::Malformed;
use crate::id::{Epoch, Name, SubtaskId};
use crate::state::{Clock, StateError};
use crate::telemetry::printable;
use crate::units::{duration, size};

/// Why a component can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    #[error("cannot start the WebAssembly engine: {problem}")]
    Engine { problem: String },
    #[error("{}{} can't be used as an operator: {problem}", prefix(.operator), .path.display())]
    Plugin {
        /// Its name in the job, where it has one.
        operator: Option<Name>,
        path: PathBuf,
        problem: Box<Problem>,
    },
}

fn prefix(operator: &Option<Name>) -> String {
    operator.as_ref().map(|name| format!("operator '{name}': ")).unwrap_or_default()
}

impl GuestError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            GuestError::Engine { .. } => "this machine must be x86-64 or arm64 and allow executable memory".to_owned(),
            GuestError::Plugin { problem, .. } => problem.help(),
        }
    }
}

/// What is wrong with a component.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("cannot read it: {0}")]
    Read(std::io::Error),
    #[error("it is not a file")]
    NotAFile,
    #[error("it has {size_bytes} bytes; {limit_bytes} is the most")]
    TooLarge { size_bytes: u64, limit_bytes: u64 },
    #[error("it is empty")]
    Empty,
    #[error("it is not WebAssembly")]
    NotWasm,
    #[error("it is a core module and not a component")]
    CoreModule,
    #[error("it is not a valid component (damaged or cut short?): {}", one_line(.0))]
    Invalid(String),
    #[error("it is a component but not an operator: it lacks {}; it exports {}", listed(.missing, MISSING_SHOWN_MAX), exported(.exports))]
    NotAnOperator { missing: Vec<String>, exports: Vec<String> },
    #[error("it was built against version {} of the operator world, and this host has {}", one_line(.built), WORLD.version)]
    WorldVersion { built: String },
    #[error("it imports {}, which operators don't get", listed(.imports, NAMES_SHOWN_MAX))]
    Import { imports: Vec<String> },
    #[error("it doesn't fit the operator world {version}: {}", one_line(.0), version = WORLD.version)]
    Mismatch(String),
    #[error(
        "it becomes more than {parts_max} parts (imports, exports, types and the like) when what is within it is instantiated"
    )]
    Unfolds { parts_max: u64 },
    #[error("components within it hand each other components, so that what it becomes can't be known beforehand")]
    PassesComponents,
    #[error("a function in it has {size_bytes} bytes, and at most {limit_bytes} are compiled")]
    LargeFunction { size_bytes: usize, limit_bytes: usize },
    #[error("a function in it has more than {limit} blocks within each other")]
    DeepFunction { limit: usize },
    #[error("it can't be compiled: {}", one_line(.0))]
    Compile(String),
    #[error("to compile it takes longer than {}, of wall-clock or processor time", duration::format(*.limit))]
    CompileTime { limit: Duration },
    #[error("to compile it takes more memory than {}", size::format(*.limit_bytes))]
    CompileMemory { limit_bytes: u64 },
    #[error("the process that compiles it failed: {}", one_line(.happened))]
    Compiler { happened: String },
    #[error("what it says of itself makes no sense: {0}")]
    Descriptor(#[from] BadDescriptor),
    #[error("it fails when asked what it is: {0}")]
    Describe(OperatorError),
}

/// What an error shows of names and texts that come out of a component, which may have been made to look like something else.
const NAMES_SHOWN_MAX: usize = 6;
/// All functions of an operator.
const MISSING_SHOWN_MAX: usize = 20;
const NAME_BYTES_SHOWN: usize = 128;
const TEXT_BYTES_SHOWN: usize = 4096;

fn one_line(text: &str) -> String {
    printable(text, TEXT_BYTES_SHOWN)
}

/// So many of the names, and how many more there are.
fn listed(names: &[String], shown_max: usize) -> String {
    let shown = names.iter().take(shown_max).map(|name| printable(name, NAME_BYTES_SHOWN));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(shown_max) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn exported(names: &[String]) -> String {
    if names.is_empty() { "nothing (is it cut short?)".to_owned() } else { listed(names, NAMES_SHOWN_MAX) }
}

impl Problem {
    fn help(&self) -> String {
        let rebuild = "build it again with `lockgate build`";
        match self {
            Problem::Read(_) | Problem::NotAFile => {
                "check the path of `wasm`; `lockgate build` prints where it puts the component".to_owned()
            }
            Problem::TooLarge { .. } => "build it without debug information".to_owned(),
            Problem::Empty | Problem::NotWasm | Problem::Invalid(_) => rebuild.to_owned(),
            Problem::Unfolds { .. } | Problem::PassesComponents => {
                "this is the component's fault: compose it of fewer parts, and so that each component within it is instantiated where it is \
                 defined, and seldom"
                    .to_owned()
            }
            Problem::LargeFunction { .. } | Problem::DeepFunction { .. } => {
                "this is the component's fault: to compile such a function could take all memory of the machine; split it".to_owned()
            }
            Problem::CoreModule => "`lockgate build` makes a component of an operator crate".to_owned(),
            Problem::NotAnOperator { .. } => {
                "an operator exports one struct with `lockgate::export!`; `lockgate new` shows a whole one".to_owned()
            }
            Problem::WorldVersion { .. } => {
                format!(
                    "rebuild it with version {} of the `lockgate` SDK, or run it with the host it was built for",
                    WORLD.version
                )
            }
            Problem::Import { .. } => {
                "operators may import the interfaces of `lockgate:operator` and of WASI 0.2, and nothing else: leave out what needs \
                 the others"
                    .to_owned()
            }
            Problem::Mismatch(_) => format!("{rebuild} and version {} of the `lockgate` SDK", WORLD.version),
            Problem::Compile(_) => "this is the component's fault or a limit of the engine; see the cause".to_owned(),
            Problem::CompileTime { .. } => trusted_more("time"),
            Problem::CompileMemory { .. } => trusted_more("memory"),
            Problem::Compiler { .. } => {
                "if the machine is short of memory, processes or file handles, give it more; otherwise this is the component's fault, \
                 or the compiler's: nothing else is harmed"
                    .to_owned()
            }
            Problem::Descriptor(_) => "change what the operator declares".to_owned(),
            Problem::Describe(error) => error.help(),
        }
    }
}

/// What to do about a component that takes too much of it to compile.
fn trusted_more(what: &str) -> String {
    format!(
        "a component that is made by a compiler needs far less; if you trust this one, raise --compile-{what} of `lockgate inspect`, \
         `run` or `serve`: when it is compiled once, its code is kept for all of them"
    )
}

/// A call of the host to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Describe,
    /// Instantiation, start functions included.
    Instantiate,
    Open,
    /// Says how it migrates a table.
    Prepare {
        table: u32,
        from_version: u32,
    },
    Migrate {
        table: u32,
        from_version: u32,
        rows: u32,
    },
    Merge {
        table: u32,
        from_version: u32,
        rows: u32,
    },
    Restore,
    Process {
        port: u32,
        rows: u32,
    },
    Timers {
        clock: Clock,
        rows: u32,
    },
    Watermark {
        timestamp: i64,
    },
    Snapshot {
        epoch: Epoch,
    },
    Trim,
    Close,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Describe => f.write_str("describe"),
            Call::Instantiate => f.write_str("its start function"),
            Call::Open => f.write_str("open"),
            Call::Prepare { table, from_version } => {
                write!(f, "prepare of its migration (table {table} from version {from_version})")
            }
            Call::Migrate { table, from_version, rows } => {
                write!(f, "migrate (table {table} from version {from_version}, {rows} entries)")
            }
            Call::Merge { table, from_version, rows } => {
                write!(f, "merge (table {table} from version {from_version}, {rows} pairs)")
            }
            Call::Restore => f.write_str("restore"),
            Call::Process { port, rows } => write!(f, "process (input {port}, {rows} rows)"),
            Call::Timers { clock, rows } => write!(f, "timers ({}, {rows} due)", clock.as_str()),
            Call::Watermark { timestamp } => write!(f, "watermark ({timestamp})"),
            Call::Snapshot { epoch } => write!(f, "snapshot (epoch {epoch})"),
            Call::Trim => f.write_str("trim"),
            Call::Close => f.write_str("close"),
        }
    }
}

/// Why a call of an operator failed. After it the instance is only dropped.
#[derive(Debug, thiserror::Error)]
#[error("operator '{subtask}' failed in {call}: {failure}")]
pub struct OperatorError {
    pub subtask: SubtaskId,
    pub call: Call,
    #[source]
    pub failure: Box<Failure>,
    /// The file that holds what is needed to see it happen again, where one was written.
    pub capsule: Option<PathBuf>,
}

/// Whose fault an operator says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Trying the same again from the last checkpoint may work.
    Transient,
    /// One record can't be processed.
    BadRecord,
    /// Nothing will help but another component or configuration.
    Fatal,
}

/// What happened in a failed call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The operator returned an error.
    #[error("{}{}: {message}", said(*.kind), at(*.row))]
    Refused { kind: ErrorKind, row: Option<u32>, message: String },
    #[error("it ran longer than its limit of {limit:?} a call")]
    Deadline { limit: Duration },
    #[error("it wanted {wanted_bytes} bytes of memory, and its limit is {limit_bytes}")]
    Memory { wanted_bytes: usize, limit_bytes: usize },
    #[error("it wanted {wanted_elements} table elements, and its limit is {limit_elements}")]
    Tables { wanted_elements: usize, limit_elements: usize },
    #[error("it is made of more than {limit} core instances, which is its limit")]
    Instances { limit: usize },
    #[error("its keyed state takes {bytes} bytes, and its limit is {limit_bytes}")]
    StateSize { bytes: u64, limit_bytes: u64 },
    #[error("it put out more than its limit of {limit_bytes} bytes a call")]
    Output { limit_bytes: usize },
    #[error("it panicked: {message}")]
    Panic { message: String },
    #[error("it used up its stack of {limit_bytes} bytes (an endless recursion?)")]
    Stack { limit_bytes: usize },
    #[error("it trapped: {trap}")]
    Trap { trap: String },
    #[error("it {0}")]
    Misuse(#[from] Misuse),
    /// Its exports have other types than the world says. Found when it is loaded.
    #[error("it doesn't fit the world: {problem}")]
    Unfit { problem: String },
    /// State of an older version can't be brought to its own.
    #[error("it {0}")]
    Migration(#[from] MigrationError),
    /// The keyed state refused or failed it.
    #[error("{0}")]
    State(#[source] StateError),
}

impl Failure {
    /// What kind of failure it is, in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Failure::Refused { kind: ErrorKind::Transient, .. } => "transient",
            Failure::Refused { kind: ErrorKind::BadRecord, .. } => "bad-record",
            Failure::Refused { kind: ErrorKind::Fatal, .. } => "fatal",
            Failure::Deadline { .. } => "deadline",
            Failure::Memory { .. } => "memory",
            Failure::Output { .. } => "output",
            Failure::Panic { .. } => "panic",
            Failure::Stack { .. } => "stack",
            Failure::Tables { .. } => "tables",
            Failure::Instances { .. } => "instances",
            Failure::StateSize { .. } => "state-size",
            Failure::Migration(_) => "migration",
            Failure::Trap { .. } => "trap",
            Failure::Misuse(_) => "misuse",
            Failure::Unfit { .. } => "unfit",
            Failure::State(_) => "state",
        }
    }
}

fn said(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Transient => "it reports a passing failure",
        ErrorKind::BadRecord => "it can't process a record",
        ErrorKind::Fatal => "it gives up",
    }
}

fn at(row: Option<u32>) -> String {
    row.map(|row| format!(" (row {row} of the batch)")).unwrap_or_default()
}

/// A guest called an import in a way that the world forbids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    #[error("emitted to output {port}, and it has {outputs}")]
    NoSuchOutput { port: u32, outputs: u32 },
    #[error("emitted in a call that may not emit (only process, timers and watermark may)")]
    EmitForbidden,
    #[error("emitted a malformed batch: {0}")]
    MalformedBatch(Malformed),
    #[error("used keyed state and declares no table")]
    NoState,
    #[error("used timers and doesn't declare that it does")]
    NoTimers,
    #[error("rejected rows, and must not here")]
    RejectionForbidden,
    #[error("rejected row {row} of {rows}, which is none or not behind the one before")]
    RejectedRow { row: u32, rows: u32 },
    #[error("set timers again and again that were due at once, {rounds} times in a row")]
    EndlessTimers { rounds: u32 },
    #[error("handed more than {most} bytes to the host at once, which is more than it may have of memory or put out")]
    HandedOver { most: usize },
    #[error("called an import in describe")]
    ImportInDescribe,
    #[error("called an import other than the log while it migrated its state")]
    ImportInMigration,
    #[error("called {function}, and operators get nothing of that")]
    Absent { function: String },
    /// `said`: a colon and what it has printed last, if anything.
    #[error("called exit({code}){said}")]
    Exited { code: u8, said: String },
    #[error("wants to wait for nothing at all (poll without a handle)")]
    PolledNothing,
    #[error("asked for {wanted} random bytes at once, and {most} are the most")]
    RandomBytes { wanted: u64, most: usize },
    #[error("printed {bytes} bytes at once, and {most} are the most")]
    WriteTooLong { bytes: usize, most: usize },
}

impl OperatorError {
    pub fn new(subtask: SubtaskId, call: Call, failure: Failure) -> OperatorError {
        OperatorError { subtask, call, failure: Box::new(failure), capsule: None }
    }

    /// Whether trying again from the last checkpoint may help.
    pub fn is_transient(&self) -> bool {
        matches!(*self.failure, Failure::Refused { kind: ErrorKind::Transient, .. })
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        let help = self.help_of_failure();
        match &self.capsule {
            Some(capsule) => format!("{help}; to see it happen again: lockgate replay {}", capsule.display()),
            None => help,
        }
    }

    fn help_of_failure(&self) -> String {
        let name = &self.subtask.operator;
        match &*self.failure {
            Failure::Refused { kind: ErrorKind::BadRecord, .. } => {
                format!(
                    "nothing is lost: correct the input, or set on_error = \"skip\" or \"dead-letter\" in [operator.{name}], then \
                     run the job again"
                )
            }
            Failure::Refused { .. } => "nothing is lost: remove the cause and run the job again".to_owned(),
            Failure::Deadline { .. } => format!("if it needs the time, raise `call` in [operator.{name}.limits]"),
            Failure::Memory { .. } => format!("if it needs the memory, raise `memory` in [operator.{name}.limits]"),
            Failure::Output { .. } => format!("if it is right, raise `output` in [operator.{name}.limits]"),
            Failure::Tables { .. } => format!("if it needs them, raise `tables` in [operator.{name}.limits]"),
            Failure::Instances { .. } => format!("if it needs them, raise `instances` in [operator.{name}.limits]"),
            Failure::StateSize { .. } => {
                format!(
                    "nothing is lost: raise `state` in [operator.{name}.limits], or let the operator keep less (timers and deletions \
                     count until they are merged), then run the job again"
                )
            }
            Failure::Stack { .. } => {
                format!("if it isn't endless, raise `stack` in [operator.{name}.limits] (1MiB is the most)")
            }
            Failure::Panic { .. } | Failure::Trap { .. } | Failure::Misuse(_) | Failure::Unfit { .. } => {
                "this is the operator's fault; nothing is lost: correct it and run the job again".to_owned()
            }
            Failure::Migration(error) => error.help(),
            Failure::State(error) => error.help(),
        }
    }
}
