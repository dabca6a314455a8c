//! `lockgate build`: from a Rust crate, or from a core module of another language, to an operator component.
//!
//! Invariant: the output file is either the old one or a whole new operator that this host has loaded.

mod component;
mod crate_info;
mod module;
mod toolchain;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use xxhash_rust::xxh3::xxh3_64;

use crate::cli::CliError;
use crate::cli::compiler::{engine, usual};
use crate::cli::inspect::{self, Report};
use component::Origin;
use crate_info::CrateInfo;
use toolchain::{TARGET, Toolchain};

/// Make a WebAssembly component of a Rust operator crate or of a core module, and check that this host can run it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate build
  lockgate build my-op --out plugins/my_op.wasm
  lockgate build my-op --json | jq .sha256
  lockgate build count.core.wasm --out count.wasm

Exit codes: 0 built; 1 it could not be compiled or written; 2 there is no crate or core module, or what it makes is no operator")]
pub struct Args {
    /// The crate's folder; or a core module that says for which world it is, as clang links one with what wit-bindgen makes
    #[arg(default_value = ".", value_name = "DIR or CORE.WASM")]
    pub from: PathBuf,
    /// Where to put the component [default: <crate>.wasm in the crate's folder; <module>.wasm beside <module>.core.wasm]
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
    let make = if args.from.is_file() { componentize } else { build };
    let (path, report) = make(&args.from, &args.features, args.out.as_deref())?;
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
    let component = component::encode_file(&module, &info.package)?;
    let out = out.map_or_else(|| info.dir.join(format!("{}.wasm", info.library)), Path::to_owned);
    let report = put(&component, &out, Origin::Crate(&info.package))?;
    Ok((out, report))
}

/// Makes a component of a core module; gives its path and what it is.
fn componentize(module: &Path, features: &[String], out: Option<&Path>) -> Result<(PathBuf, Report), CliError> {
    if !features.is_empty() {
        let refused = CliError::unusable(format!("{} is a file, and only a crate has features", module.display()));
        return Err(refused.help("leave out --features, or name the crate's folder"));
    }
    let origin = Origin::Module(module);
    let component = component::encode(&module::read(module)?, origin)?;
    let out = out.map_or_else(|| module::default_out(module), Path::to_owned);
    let report = put(&component, &out, origin)?;
    Ok((out, report))
}

/// Runs cargo, whose output the user sees; gives the core module that it built.
fn compile(info: &CrateInfo, features: &[String], toolchain: &Toolchain) -> Result<PathBuf, CliError> {
    let mut cargo = toolchain.cargo();
    cargo.arg("rustc").arg("--manifest-path").arg(&info.manifest).current_dir(&info.dir);
    cargo.args(["--lib", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"]);
    if !features.is_empty() {
        cargo.arg("--features").arg(features.join(","));
    }
    // Operators may use SIMD: the engine has it. Flags of the user's own configuration are added to this one.
    cargo.arg("--config").arg(format!("target.{TARGET}.rustflags=['-Ctarget-feature=+simd128']"));
    // In a target folder that copies of a crate share, cargo takes what it has built of one for the other, unless a flag differs.
    cargo.arg("--").arg(format!("-Cmetadata={:016x}", xxh3_64(info.dir.as_os_str().as_encoded_bytes())));
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
fn put(component: &[u8], out: &Path, origin: Origin<'_>) -> Result<Report, CliError> {
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
        let engine = engine(usual())?;
        let plugin = engine.inspect(&temporary).map_err(|error| origin.no_operator(&error))?;
        fs::rename(&temporary, out).map_err(|error| failed(&error))?;
        Ok(Report::new(out, &plugin))
    };
    load().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
