//! `lockgate build`: from a Rust crate to an operator component.
//!
//! Invariant: the output file is either the old one or a whole new operator that this host has loaded.

mod component;
mod crate_info;
mod toolchain;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cli::CliError;
use crate::cli::inspect::{self, Report};
use crate::guest::{Engine, GuestError, default_cache_dir};
use crate_info::CrateInfo;
use toolchain::{TARGET, Toolchain};

/// Compile a Rust operator crate to a WebAssembly component, and check that this host can run it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate build
  lockgate build my-op --out plugins/my_op.wasm
  lockgate build my-op --json | jq .sha256

Exit codes: 0 built; 1 it could not be compiled or written; 2 the folder holds no crate, or what it makes is no operator")]
pub struct Args {
    /// The crate's folder
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Where to put the component [default: <crate>.wasm in the crate's folder]
    #[arg(long, visible_alias = "output", value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Features of the crate to turn on, for crates that hold several operators
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub features: Vec<String>,
    /// Print what was built as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the crate can't be compiled, or isn't an operator.
pub fn run(args: &Args) -> Result<(), CliError> {
    let (path, report) = build(&args.dir, &args.features, args.out.as_deref())?;
    inspect::show(&report, args.json, &format!("built {}", path.display()))
}

/// Builds the operator in `dir` with features of its crate; gives the component's path and what it is.
///
/// # Errors
/// As [`run`].
pub fn build(dir: &Path, features: &[String], out: Option<&Path>) -> Result<(PathBuf, Report), CliError> {
    let info = CrateInfo::read(dir)?;
    let toolchain = Toolchain::find(&info.dir)?;
    let module = compile(&info, features, &toolchain)?;
    let component = component::encode(&module, &info.package)?;
    let out = out.map_or_else(|| info.dir.join(format!("{}.wasm", info.library)), Path::to_owned);
    let report = put(&component, &out, &info.package)?;
    Ok((out, report))
}

/// Runs cargo, whose output the user sees; gives the core module that it built.
fn compile(info: &CrateInfo, features: &[String], toolchain: &Toolchain) -> Result<PathBuf, CliError> {
    let mut cargo = toolchain.cargo();
    cargo.arg("build").arg("--manifest-path").arg(&info.manifest).current_dir(&info.dir);
    cargo.args(["--lib", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"]);
    if !features.is_empty() {
        cargo.arg("--features").arg(features.join(","));
    }
    // Operators may use SIMD: the engine has it. Flags of the user's own configuration are added to this one.
    cargo.arg("--config").arg(format!("target.{TARGET}.rustflags=['-Ctarget-feature=+simd128']"));
    let cannot_run = |error: &std::io::Error| {
        CliError::failed(format!("cannot run {}", cargo_name(toolchain)))
            .caused_by(error)
            .help("install Rust from https://rustup.rs")
    };
    let mut running = cargo.stdout(Stdio::piped()).spawn().map_err(|error| cannot_run(&error))?;
    let messages = BufReader::new(running.stdout.take().expect("piped"));
    let mut module = None;
    for message in messages.lines() {
        let message = message.map_err(|error| cannot_run(&error))?;
        module = info.module_in(&message).or(module);
    }
    let status = running.wait().map_err(|error| cannot_run(&error))?;
    if !status.success() {
        return Err(CliError::failed(format!("cargo could not build '{}' for {TARGET}", info.package))
            .help("correct what cargo reports above"));
    }
    module.ok_or_else(|| CliError::failed(format!("cargo built '{}' but names no .wasm file", info.package)))
}

fn cargo_name(toolchain: &Toolchain) -> String {
    toolchain.cargo().get_program().to_string_lossy().into_owned()
}

/// Writes the component beside its final place, loads it there, and only then renames it.
fn put(component: &[u8], out: &Path, package: &str) -> Result<Report, CliError> {
    let failed = |error: &dyn std::error::Error| {
        CliError::failed(format!("cannot write {}", out.display()))
            .caused_by(error)
            .help("check the folder, its permissions and the space on the disk, or name another file with --out")
    };
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = out.file_name().ok_or_else(|| failed(&std::io::Error::other("it names no file")))?;
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let temporary = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let load = || {
        fs::write(&temporary, component).map_err(|error| failed(&error))?;
        let engine = Engine::new(default_cache_dir()).map_err(|error| inspect::refused(&error))?;
        let plugin = engine.inspect(&temporary).map_err(|error| no_operator(package, &error))?;
        fs::rename(&temporary, out).map_err(|error| failed(&error))?;
        Ok(Report::new(out, &plugin))
    };
    load().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// The user knows the crate, and not the temporary file that its component was loaded from.
fn no_operator(package: &str, error: &GuestError) -> CliError {
    match error {
        GuestError::Engine { .. } => inspect::refused(error),
        GuestError::Plugin { problem, .. } => {
            CliError::unusable(format!("the crate '{package}' makes no operator: {problem}")).help(error.help())
        }
    }
}
