//! What this machine needs before it can run a broker, by the scripts that people use.
//!
//! Invariant: a machine without Kafka says `SKIPPED`; one that could have it, in continuous integration, fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use crate::binary::{repository, target_dir};
use crate::skipped;

/// Whether this machine has no Kafka (no Java 17, no Maven, no Python) to run a test with: then says `SKIPPED` with `what`.
/// A test begins with: `if kafka_missing("…") { return; }`
///
/// # Panics
/// If it is missing although it could be had: in continuous integration on a Debian machine.
pub fn kafka_missing(what: &str) -> bool {
    let Some(why) = MISSING.as_deref() else {
        return false;
    };
    let could_be_had = std::env::var("CI").is_ok_and(|ci| ci == "true") && Path::new("/usr/bin/apt-get").exists();
    assert!(!could_be_had, "{what} needs Kafka: {why}");
    skipped(what, why);
    true
}

/// Why there is none, after an attempt to install it.
static MISSING: LazyLock<Option<String>> = LazyLock::new(|| {
    // Without a terminal, so that it can't wait for a password.
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(repository().join(".ci/setup.sh")).arg("kafka");
    let output = match run(command) {
        Ok(output) => output,
        Err(error) => return Some(format!("setsid doesn't start: {error}")),
    };
    if output.status.success() {
        return None;
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let error = messages.lines().find(|line| line.starts_with("error: ")).unwrap_or("error: no reason was given");
    Some(format!("{} (.ci/setup.sh kafka says more)", error.trim_start_matches("error: ")))
});

/// The Python that has the verifier's library.
pub(super) fn python() -> PathBuf {
    let mut command = Command::new(repository().join(".ci/setup.sh"));
    command.arg("kafka-python");
    PathBuf::from(lines_of(command).pop().expect("it prints a path"))
}

/// A broker that isn't started yet.
pub(super) struct Prepared {
    /// `127.0.0.1:PORT`
    pub address: String,
    pub command: Command,
}

/// Writes what a broker needs into `folder`; one that is there already keeps its data and ports.
///
/// # Panics
/// If it can't.
pub(super) fn prepare(folder: &Path, settings: &[(String, String)]) -> Prepared {
    let mut command = Command::new(repository().join("tests/kafka/broker.sh"));
    command.arg("prepare").arg(folder).args(settings.iter().map(|(key, value)| format!("{key}={value}")));
    let mut lines = lines_of(command).into_iter();
    let address = lines.next().expect("the first line is the address");
    let mut command = Command::new(lines.next().expect("the second line is the program"));
    command.args(lines);
    Prepared { address, command }
}

fn lines_of(command: Command) -> Vec<String> {
    let shown = format!("{command:?}");
    let output = run(command).unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    assert!(output.status.success(), "{shown}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("the scripts print UTF-8");
    text.lines().map(str::to_owned).collect()
}

fn run(mut command: Command) -> std::io::Result<Output> {
    // The scripts keep what they fetch beside the build directory, so this one's.
    command.stdin(Stdio::null()).env("CARGO_TARGET_DIR", target_dir()).output()
}
