//! Which Rust compiles operators: one that has the standard library for Wasm, and a linker for it.
//!
//! Invariant: a [`Toolchain`] has both; what is missing is an error that says how to get it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::CliError;

pub(super) const TARGET: &str = "wasm32-unknown-unknown";
/// Names the compiler to use, for those who have several.
const RUSTC_VARIABLE: &str = "LOCKGATE_RUSTC";
const LINKER_VARIABLE: &str = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER";
/// Where Debian and Ubuntu put theirs.
const SYSTEM_RUSTC: &str = "/usr/bin/rustc";

pub(super) struct Toolchain {
    /// Set for cargo where it isn't the one that cargo takes by itself.
    rustc: Option<PathBuf>,
    linker: Option<PathBuf>,
}

/// Cargo itself: the one in PATH, else the system's.
pub(super) fn cargo_program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

impl Toolchain {
    /// Looks for a compiler: `LOCKGATE_RUSTC`, else the one in PATH (as seen from the crate's folder, where a
    /// `rust-toolchain.toml` may choose), else the system's.
    ///
    /// # Errors
    /// If none has the standard library for Wasm, or none a linker.
    pub fn find(crate_dir: &Path) -> Result<Toolchain, CliError> {
        let chosen = env::var_os(RUSTC_VARIABLE).map(PathBuf::from);
        let in_path = PathBuf::from(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let candidates = match &chosen {
            Some(rustc) => vec![rustc.clone()],
            None => vec![in_path.clone(), PathBuf::from(SYSTEM_RUSTC)],
        };
        let has_std = |rustc: &&PathBuf| wasm_library(rustc, crate_dir).is_some_and(|folder| holds_std(&folder));
        let Some(rustc) = candidates.iter().find(has_std) else {
            return Err(no_target(&candidates, crate_dir));
        };
        let linker = find_linker(rustc, &in_path, crate_dir)?;
        Ok(Toolchain { rustc: (*rustc != in_path).then(|| rustc.clone()), linker })
    }

    /// A command that runs cargo with this toolchain.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(cargo_program());
        if let Some(rustc) = &self.rustc {
            cargo.env("RUSTC", rustc);
        }
        if let Some(linker) = &self.linker {
            cargo.env(LINKER_VARIABLE, linker);
        }
        cargo
    }
}

/// What `rustc` prints, from the crate's folder; `None` if it doesn't run.
fn ask(rustc: &Path, arguments: &[&str], crate_dir: &Path) -> Option<PathBuf> {
    let asked = Command::new(rustc).args(arguments).current_dir(crate_dir).output().ok()?;
    let said = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| PathBuf::from(said.trim_end_matches('\n')))
}

fn wasm_library(rustc: &Path, crate_dir: &Path) -> Option<PathBuf> {
    ask(rustc, &["--print", "target-libdir", "--target", TARGET], crate_dir)
}

fn holds_std(folder: &Path) -> bool {
    let Ok(files) = fs::read_dir(folder) else { return false };
    files.filter_map(Result::ok).any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

fn no_target(candidates: &[PathBuf], crate_dir: &Path) -> CliError {
    let runs = |rustc: &&PathBuf| ask(rustc, &["--version"], crate_dir).is_some();
    let found = candidates.iter().filter(runs).map(|rustc| rustc.display().to_string()).collect::<Vec<_>>();
    if found.is_empty() {
        let tried = candidates.iter().map(|rustc| rustc.display().to_string()).collect::<Vec<_>>().join(" and ");
        return CliError::failed(format!("there is no Rust compiler here (tried {tried})"))
            .help("install it from https://rustup.rs");
    }
    CliError::failed(format!("no Rust compiler here can build for {TARGET} (looked at {})", found.join(" and "))).help(
        format!(
            "run: rustup target add {TARGET}\n      or, without a download from rustup, in Lockgate's repository: \
             .ci/setup.sh wasm (builds it from Debian's rust-web-src)"
        ),
    )
}

/// `None`: the compiler finds its own, or the user has named one.
fn find_linker(rustc: &Path, in_path: &Path, crate_dir: &Path) -> Result<Option<PathBuf>, CliError> {
    let sysroot = |rustc: &Path| ask(rustc, &["--print", "sysroot"], crate_dir);
    if env::var_os(LINKER_VARIABLE).is_some() || sysroot(rustc).as_deref().and_then(rust_lld_in).is_some() {
        return Ok(None);
    }
    let rustup_home = env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let rustup_home = rustup_home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".rustup")));
    let toolchains = rustup_home.into_iter().flat_map(|home| subfolders(&home.join("toolchains")));
    let linker = sysroot(in_path).into_iter().chain(toolchains).find_map(|sysroot| rust_lld_in(&sysroot));
    linker.or_else(lld_in_path).map(Some).ok_or_else(|| {
        CliError::failed(format!("there is no linker for {TARGET}"))
            .help("run: apt-get install lld (or name one in CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER)")
    })
}

/// rustup's toolchains bring a linker that isn't in PATH.
fn rust_lld_in(sysroot: &Path) -> Option<PathBuf> {
    let linkers = subfolders(&sysroot.join("lib/rustlib")).into_iter().map(|host| host.join("bin/rust-lld"));
    linkers.into_iter().find(|linker| linker.is_file())
}

/// In order of their names, so that the choice is the same each time.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut folders = entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>();
    folders.sort();
    folders
}

/// `lld`, with or without a version in its name.
fn lld_in_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders = env::split_paths(&path).collect::<Vec<_>>();
    let plain = folders.iter().map(|folder| folder.join("lld")).find(|linker| linker.is_file());
    let is_versioned = |file: &PathBuf| {
        let version = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("lld-"));
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
    };
    plain.or_else(|| folders.iter().flat_map(|folder| subfolders(folder)).rfind(is_versioned))
}
