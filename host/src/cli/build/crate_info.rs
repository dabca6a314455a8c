//! What cargo knows of the crate that is to become an operator.
//!
//! Invariant: a [`CrateInfo`] names one package that builds a `cdylib`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::cli::CliError;

pub(super) struct CrateInfo {
    /// The crate's folder, absolute.
    pub dir: PathBuf,
    pub manifest: PathBuf,
    pub package: String,
    /// The library's name, which is the file name that rustc gives it.
    pub library: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    crate_types: Vec<String>,
}

impl Target {
    fn is_cdylib(&self) -> bool {
        self.crate_types.iter().any(|kind| kind == "cdylib")
    }
}

/// One line of `cargo rustc --message-format json`.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

impl CrateInfo {
    /// Asks cargo about the crate in `dir`.
    ///
    /// # Errors
    /// If there is no crate or it isn't a `cdylib`.
    pub fn read(dir: &Path) -> Result<CrateInfo, CliError> {
        let manifest = dir.join("Cargo.toml");
        let manifest = manifest.canonicalize().map_err(|error| {
            CliError::unusable(format!("there is no operator crate in {}", dir.display()))
                .caused_by(&error)
                .help("name the folder of its Cargo.toml, or make a new one: lockgate new NAME")
        })?;
        let package = own_package(metadata(&manifest)?, &manifest)?;
        let Some(library) = package.targets.iter().find(|target| target.is_cdylib()) else {
            return Err(CliError::unusable(format!("the crate '{}' builds no WebAssembly module", package.name))
                .help(format!("add to {}:\n\n    [lib]\n    crate-type = [\"cdylib\", \"lib\"]", manifest.display())));
        };
        let dir = manifest.parent().expect("a file has a folder").to_owned();
        Ok(CrateInfo { dir, library: library.name.replace('-', "_"), package: package.name, manifest })
    }

    /// The module, if this line of cargo's output says that it is built.
    pub fn module_in(&self, message: &str) -> Option<PathBuf> {
        // Lines that aren't cargo's come from build scripts' compilers; they say nothing about the module.
        let message = serde_json::from_str::<Message>(message).ok()?;
        let ours = message.reason == "compiler-artifact" && message.manifest_path == self.manifest;
        if !ours || !message.target?.is_cdylib() {
            return None;
        }
        message.filenames.into_iter().find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
    }
}

fn metadata(manifest: &Path) -> Result<Metadata, CliError> {
    let mut cargo = Command::new(super::toolchain::cargo_program());
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let asked = cargo.output().map_err(|error| {
        CliError::failed("cannot run cargo").caused_by(&error).help("install Rust from https://rustup.rs")
    })?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
        return Err(
            CliError::unusable(format!("cargo can't use {}: {said}", manifest.display())).help("correct the manifest")
        );
    }
    serde_json::from_slice(&asked.stdout)
        .map_err(|error| CliError::failed("cannot understand what cargo says of the crate").caused_by(&error))
}

fn own_package(metadata: Metadata, manifest: &Path) -> Result<Package, CliError> {
    let own = |package: &Package| package.manifest_path.canonicalize().is_ok_and(|path| path == manifest);
    let members = metadata.packages.iter().filter(|package| package.targets.iter().any(Target::is_cdylib));
    let members = members.map(|package| package.manifest_path.parent().unwrap_or(Path::new("/")).display().to_string());
    let members = members.collect::<Vec<_>>();
    metadata.packages.into_iter().find(own).ok_or_else(|| {
        let error = CliError::unusable(format!("{} is a workspace and no crate", manifest.display()));
        if members.is_empty() { error } else { error.help(format!("build one of its members: {}", members.join(", "))) }
    })
}
