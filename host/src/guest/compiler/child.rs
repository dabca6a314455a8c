//! Has another process compile a component: starts it, watches it, and says what became of it.
//!
//! What it takes in and gives out lies in memory without a name, so that neither waits for the other and nothing is left behind.
//!
//! Invariant: when [`compile`] returns or panics, the process has ended and is reaped. It lives no longer than the thread that waits
//! for it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::Signal;

use super::{Answer, CompileLimits, Compiler};
use crate::guest::cache::VerifiedCode;
use crate::guest::error::Problem;

/// How often it is looked at, from the first time on.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(20);
/// What is read of a text of it.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// What Rust's runtime says last when memory is refused.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "Cannot allocate memory"];

/// # Errors
/// What is wrong with the component, or with compiling it.
pub fn compile(program: &Path, limits: CompileLimits, wasm: &[u8]) -> Result<VerifiedCode, Problem> {
    let mut ended = run(program, limits, wasm).map_err(|error| Problem::Compiler { happened: error.to_string() })?;
    let failed = |error: io::Error| Problem::Compiler { happened: format!("what it gave can't be read: {error}") };
    match ended.status {
        Some(status) if status.success() => ended.answer().map_err(failed)?,
        status => Err(why_it_ended(status, &ended.said().map_err(failed)?, limits)),
    }
}

/// A process that has ended.
struct Ended {
    /// `None`: it was ended for its time.
    status: Option<ExitStatus>,
    output: File,
    errors: File,
}

fn run(program: &Path, limits: CompileLimits, wasm: &[u8]) -> io::Result<Ended> {
    let (mut component, output, errors) = (memory_file()?, memory_file()?, memory_file()?);
    component.write_all(wasm)?;
    component.seek(SeekFrom::Start(0))?;
    let deadline = Instant::now().checked_add(limits.time);
    let child = Command::new(program)
        .arg0("lockgate")
        .arg(Compiler::VERB)
        .args([std::process::id().to_string(), limits.time.as_millis().to_string(), limits.memory_bytes.to_string()])
        // What is set there is meant for this process.
        .env_remove("LOCKGATE_LOG")
        .env_remove("LOCKGATE_CRASH_AT")
        .env_remove("LOCKGATE_TOKEN")
        .stdin(component)
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(errors.try_clone()?))
        // A signal of the terminal is for this process, which ends that one.
        .process_group(0)
        .spawn()
        .map_err(|error| io::Error::other(format!("it can't be started: {error}")))?;
    let status = Running(child).wait(deadline)?;
    Ok(Ended { status, output, errors })
}

/// A file in memory that goes away with its last user.
fn memory_file() -> io::Result<File> {
    let create = |flags| rustix::fs::memfd_create("lockgate-compile", MemfdFlags::CLOEXEC | flags);
    let created = match create(MemfdFlags::NOEXEC_SEAL) {
        // Older kernels don't know the flag, which newer ones may insist on.
        Err(Errno::INVAL) => create(MemfdFlags::empty()),
        created => created,
    };
    Ok(File::from(created?))
}

/// Ends and reaps the process when it is dropped.
struct Running(Child);

impl Running {
    /// `None` if it hasn't ended by then.
    fn wait(mut self, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        let mut pause = LOOK_EVERY;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LOOK_EVERY_MAX);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither fails, nor does anything, where it has been reaped already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    fn answer(&mut self) -> io::Result<Result<VerifiedCode, Problem>> {
        let mut first = [0];
        self.output.seek(SeekFrom::Start(0))?;
        self.output.read_exact(&mut first)?;
        Ok(match Answer::of_byte(first[0]) {
            Some(Answer::Code) => {
                let mut code = Vec::new();
                self.output.read_to_end(&mut code)?;
                Ok(VerifiedCode::from_compiler(code))
            }
            Some(Answer::Invalid) => Err(Problem::Invalid(text(&mut self.output)?)),
            Some(Answer::Refused) => Err(Problem::Compile(text(&mut self.output)?)),
            None => Err(Problem::Compiler { happened: "it gave something else than code".to_owned() }),
        })
    }

    /// What it has said last.
    fn said(&mut self) -> io::Result<String> {
        let bytes = self.errors.seek(SeekFrom::End(0))?;
        self.errors.seek(SeekFrom::Start(bytes.saturating_sub(TEXT_BYTES_MAX)))?;
        text(&mut self.errors)
    }
}

fn text(of: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    of.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// What a process says for itself that has given no code.
fn why_it_ended(status: Option<ExitStatus>, said: &str, limits: CompileLimits) -> Problem {
    let signal = status.and_then(|status| status.signal());
    let is_signal = |known: Signal| signal == Some(known.as_raw());
    let Some(status) = status else { return Problem::CompileTime { limit: limits.time } };
    if is_signal(Signal::XCPU) {
        return Problem::CompileTime { limit: limits.time };
    }
    if is_signal(Signal::XFSZ) || OUT_OF_MEMORY.iter().any(|text| said.contains(text)) {
        return Problem::CompileMemory { limit_bytes: limits.memory_bytes };
    }
    let last_words = if said.is_empty() { String::new() } else { format!(": {said}") };
    Problem::Compiler { happened: format!("it ended with {status}{last_words}") }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    const LIMITS: CompileLimits = CompileLimits { time: Duration::from_secs(60), memory_bytes: 1 << 30 };

    /// A program that does what a shell is told, in a folder that goes away with the first value.
    fn program(script: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        // Written by another process: a file that this one has open for writing can't be run.
        let write = "printf '#!/bin/sh\\nulimit -c 0\\n%s\\n' \"$1\" > \"$2\" && chmod 700 \"$2\"";
        let written = Command::new("sh").args(["-c", write, "sh", script]).arg(&path).status();
        assert!(written.expect("a shell").success());
        (folder, path)
    }

    fn given(script: &str) -> Result<Vec<u8>, Problem> {
        let (_folder, path) = program(script);
        compile(&path, LIMITS, b"a component").map(VerifiedCode::into_bytes)
    }

    #[track_caller]
    fn failed(script: &str) -> String {
        match given(script).expect_err("no code") {
            Problem::Compiler { happened } => happened,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_it_is_given_and_gives_passes_whole() {
        assert_eq!(given("printf C; cat").expect("code"), b"a component");
        let argument = |number: u32| {
            let given = given(&format!("printf C; printf %s \"${number}\"")).expect("code");
            String::from_utf8(given).expect("text")
        };
        assert_eq!(argument(1), Compiler::VERB);
        assert_eq!(
            [argument(2), argument(3), argument(4)],
            [std::process::id().to_string(), "60000".into(), "1073741824".into()]
        );
    }

    #[test]
    fn what_it_says_of_the_component_is_said() {
        assert!(matches!(given("printf Icut"), Err(Problem::Invalid(text)) if text == "cut"));
        assert!(matches!(given("printf Rdeep"), Err(Problem::Compile(text)) if text == "deep"));
    }

    #[test]
    fn one_that_takes_too_long_is_ended_and_reaped() {
        let (folder, path) = program("echo $$ > $0.pid; exec sleep 1000");
        let limits = CompileLimits { time: Duration::from_millis(500), ..LIMITS };
        let problem = compile(&path, limits, b"").map(|_| ()).expect_err("too long");
        assert!(matches!(problem, Problem::CompileTime { limit } if limit == limits.time), "{problem}");
        let id = std::fs::read_to_string(folder.path().join("program.pid")).expect("it has run");
        assert!(!Path::new(&format!("/proc/{}", id.trim())).exists());
    }

    #[test]
    fn an_end_by_a_limit_is_told_from_others() {
        assert!(matches!(given("kill -XCPU $$"), Err(Problem::CompileTime { .. })));
        assert!(matches!(given("kill -XFSZ $$"), Err(Problem::CompileMemory { limit_bytes: 1_073_741_824 })));
        let refused = given("echo 'memory allocation of 16 bytes failed' >&2; kill -ABRT $$");
        assert!(matches!(refused, Err(Problem::CompileMemory { .. })));
        for (script, said) in [
            ("kill -KILL $$", "signal: 9 (SIGKILL)"),
            ("echo why >&2; kill -SEGV $$", "signal: 11 (SIGSEGV): why"),
            ("echo why >&2; exit 101", "exit status: 101: why"),
        ] {
            let happened = failed(script);
            assert_eq!(happened, format!("it ended with {said}"));
        }
    }

    #[test]
    fn one_that_gives_no_code_or_does_not_start_is_no_compiler() {
        assert!(failed("exit 0").contains("can't be read"));
        assert!(failed("printf X").contains("something else"));
        let problem = compile(Path::new("/nowhere/lockgate"), LIMITS, b"").map(|_| ()).expect_err("not there");
        assert!(problem.to_string().contains("can't be started"), "{problem}");
    }

    #[test]
    fn only_the_end_of_what_it_says_is_kept() {
        let happened = failed("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1");
        assert!(happened.len() < 100_000 && happened.ends_with("xend"), "{}", happened.len());
    }
}
