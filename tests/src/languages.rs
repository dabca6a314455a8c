//! The word counts of all languages, built by the script of each.
//!
//! Invariant: what is taken from an earlier build was made of the same sources by the same tools.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use crate::binary::{lockgate, operator, profile_dir, repository, target_dir};
use crate::skipped;

/// A language that the two operators of the word count are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    Python,
    JavaScript,
    C,
}

impl Language {
    pub const ALL: [Language; 4] = [Language::Rust, Language::Python, Language::JavaScript, Language::C];

    /// Whether its tools aren't there and can't be had, which is said.
    ///
    /// # Panics
    /// If they are missing although they could be had: in continuous integration on a Debian machine.
    pub fn is_missing(self, what: &str) -> bool {
        let Some(part) = self.part() else { return false };
        // Without a terminal, so that it can't wait for a password.
        let output = Command::new("setsid").arg("--wait").arg(repository().join(".ci/setup.sh")).arg(part).output();
        let output = output.unwrap_or_else(|error| panic!("setsid doesn't start: {error}"));
        if output.status.success() {
            return false;
        }
        let could_be_had = std::env::var("CI").is_ok_and(|ci| ci == "true") && Path::new("/usr/bin/apt-get").exists();
        assert!(!could_be_had, "{what} needs the tools of {self:?}: {}", stderr(&output));
        skipped(what, &format!("the tools of {self:?} can't be had (.ci/setup.sh {part} says why)"));
        true
    }

    /// The part of `.ci/setup.sh` that installs its tools.
    fn part(self) -> Option<&'static str> {
        match self {
            Language::Rust => None,
            Language::Python => Some("python"),
            Language::JavaScript => Some("javascript"),
            Language::C => Some("c"),
        }
    }

    /// The component of `split` or `count`, built before the first use.
    ///
    /// # Panics
    /// If it doesn't build.
    pub fn operator(self, name: &str) -> PathBuf {
        match self.part() {
            None => operator(name),
            Some(part) => build(part).join(format!("{name}.wasm")),
        }
    }
}

/// Runs the script of a language's example; gives the folder with what it has made.
fn build(part: &str) -> PathBuf {
    let example = repository().join("examples").join(format!("word-count-{part}"));
    build_from(part, &example, &[&repository().join("wit"), &repository().join(".ci")])
}

/// The operators that try what the modules for Python and for JavaScript can do (`tests/languages`): `NAME-python.wasm` and
/// `NAME-javascript.wasm` in the folder that is given back.
///
/// # Panics
/// If they don't build.
pub fn module_operators() -> PathBuf {
    let used = ["wit", ".ci", "examples/word-count-python", "examples/word-count-javascript"];
    let used = used.map(|folder| repository().join(folder));
    build_from("modules", &repository().join("tests/languages"), &used.each_ref().map(PathBuf::as_path))
}

/// Runs the `build.sh` of a folder, unless that was done for the same sources.
fn build_from(name: &str, folder: &Path, used: &[&Path]) -> PathBuf {
    // One at a time: they take all processors, and tests run side by side.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let sources = fingerprint(&[&[folder], used].concat());
    let built = profile_dir().join("test-operators").join(format!("{name}-{sources:016x}"));
    if !built.is_dir() {
        let fresh = built.with_extension(std::process::id().to_string());
        run_script(&folder.join("build.sh"), &fresh);
        // Another test program may have been faster, and made the same.
        if fs::rename(&fresh, &built).is_err() {
            assert!(built.is_dir(), "{} can't be renamed", fresh.display());
        }
    }
    built
}

fn run_script(script: &Path, out: &Path) {
    let mut command = Command::new(script);
    command.arg(out).env("LOCKGATE_BIN", lockgate()).env("CARGO_TARGET_DIR", target_dir());
    let output = command.output().expect("bash starts");
    assert!(output.status.success(), "{}: {}", script.display(), stderr(&output));
}

/// A number that is another when a file in one of the folders is another.
fn fingerprint(folders: &[&Path]) -> u64 {
    let mut hasher = DefaultHasher::new();
    folders.iter().for_each(|folder| add_folder(folder, &mut hasher));
    hasher.finish()
}

fn add_folder(folder: &Path, hasher: &mut DefaultHasher) {
    let entries = fs::read_dir(folder).expect("a folder of this checkout");
    let mut paths = entries.map(|entry| entry.expect("a readable folder").path()).collect::<Vec<_>>();
    // What was made of the others may lie among them.
    paths.retain(|path| !path.ends_with("__pycache__") && path.extension().is_none_or(|extension| extension != "wasm"));
    paths.sort();
    for path in paths {
        hasher.write(path.file_name().expect("a file has a name").as_encoded_bytes());
        if path.is_dir() {
            add_folder(&path, hasher);
        } else {
            hasher.write(&fs::read(&path).expect("a file of this checkout"));
        }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
