//! Who compiles a component: this process, or one of its own that the system keeps within limits.
//!
//! How long it takes to compile a function, and how much memory, grows faster than its size, and nobody knows it beforehand. So what
//! isn't trusted is compiled by a process that can be ended.
//!
//! Invariant: with [`Compiler::Process`], no component takes more of the machine than its limits, nor takes this process with it.

mod child;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

pub use worker::work;

use super::cache::VerifiedCode;
use super::error::Problem;

/// Compiles what isn't in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// Without limits, for tests, benchmarks and programs that trust their components.
    InProcess,
    /// One process for each component. The program does [`work`] when its first argument is [`Compiler::VERB`].
    Process { program: PathBuf, limits: CompileLimits },
}

/// What compiling a component may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Wall-clock time, and also processor time of all threads together. Default 5 minutes.
    pub time: Duration,
    /// Memory that is written. Default 4 GiB.
    pub memory_bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> CompileLimits {
        CompileLimits { time: Duration::from_secs(300), memory_bytes: 4 << 30 }
    }
}

impl Compiler {
    /// What a program is told to be the process that compiles. Behind it: the id of the process that waits, and the limits in
    /// milliseconds and bytes.
    pub const VERB: &str = "compile-component";

    /// A process that runs this program again, as it is now, even if another has been installed since.
    pub fn this_program(limits: CompileLimits) -> Compiler {
        Compiler::Process { program: PathBuf::from("/proc/self/exe"), limits }
    }

    /// # Errors
    /// If the component isn't valid, or it can't be compiled within the limits.
    pub(super) fn compile(&self, engine: &wasmtime::Engine, wasm: &[u8]) -> Result<VerifiedCode, Problem> {
        match self {
            Compiler::InProcess => VerifiedCode::compiled(engine, wasm).map_err(|error| invalid_or_too_much(&error)),
            Compiler::Process { program, limits } => child::compile(program, *limits, wasm),
        }
    }
}

/// The compiler validates first; what fails there was never valid.
fn invalid_or_too_much(error: &wasmtime::Error) -> Problem {
    if error.chain().any(|cause| cause.is::<wasmparser::BinaryReaderError>()) {
        return Problem::Invalid(format!("{error:#}"));
    }
    Problem::Compile(format!("{error:#}"))
}

/// The first byte of what the process writes to its standard output, and what the rest of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Answer {
    /// Compiled code.
    Code = b'C',
    /// Why the component isn't valid.
    Invalid = b'I',
    /// Why it can't be compiled.
    Refused = b'R',
}

impl Answer {
    const ALL: [Answer; 3] = [Answer::Code, Answer::Invalid, Answer::Refused];

    fn byte(self) -> u8 {
        self as u8
    }

    fn of_byte(byte: u8) -> Option<Answer> {
        Answer::ALL.into_iter().find(|answer| answer.byte() == byte)
    }
}
