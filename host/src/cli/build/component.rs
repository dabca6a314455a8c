//! From a linked core module to a component.
//!
//! Invariant: a module that isn't an operator's gives an error that says what it lacks or wants too much.

use std::fmt;
use std::fs;
use std::path::Path;

use wit_component::ComponentEncoder;

use crate::cli::{CliError, inspect};
use crate::guest::GuestError;

/// What the user gave, and knows the component by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'a> {
    /// A crate, by the name of its package.
    Crate(&'a str),
    /// A core module that another toolchain has linked.
    Module(&'a Path),
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Crate(package) => write!(f, "the crate '{package}'"),
            Origin::Module(path) => write!(f, "the core module {}", path.display()),
        }
    }
}

impl Origin<'_> {
    fn help(self) -> &'static str {
        match self {
            Origin::Crate(_) => {
                "an operator exports its struct with `lockgate::export!` and links nothing that needs an operating system or \
                 JavaScript (crates like wasm-bindgen or getrandom may bring such imports)"
            }
            Origin::Module(_) => {
                "an operator has the exports of the world `stream-operator`, and links nothing that needs an operating system \
                 (files, the clock, printf); examples/word-count-c shows how to make one"
            }
        }
    }

    fn makes_none(self, problem: &dyn fmt::Display) -> CliError {
        CliError::unusable(format!("{self} makes no operator: {problem}"))
    }

    /// The user knows the crate or the module, and not the temporary file that its component was loaded from.
    pub fn no_operator(self, error: &GuestError) -> CliError {
        match error {
            GuestError::Engine { .. } => inspect::refused(error),
            GuestError::Plugin { problem, .. } => self.makes_none(problem).help(error.help()),
        }
    }
}

/// Makes a component of the module that rustc has linked, and that `lockgate::export!` has described in itself.
///
/// # Errors
/// If it can't be read or isn't an operator.
pub(super) fn encode_file(module: &Path, package: &str) -> Result<Vec<u8>, CliError> {
    let bytes = fs::read(module)
        .map_err(|error| CliError::failed(format!("cannot read {}", module.display())).caused_by(&error))?;
    encode(&bytes, Origin::Crate(package))
}

/// Makes a component of a module that says in itself for which world it is.
///
/// # Errors
/// If it isn't an operator.
pub(super) fn encode(module: &[u8], origin: Origin<'_>) -> Result<Vec<u8>, CliError> {
    encode_bytes(module).map_err(|problem| origin.makes_none(&problem).help(origin.help()))
}

fn encode_bytes(module: &[u8]) -> Result<Vec<u8>, String> {
    let encoder = ComponentEncoder::default().validate(true).module(module).map_err(|error| format!("{error:#}"))?;
    let mut encoder = encoder;
    encoder.encode().map_err(|error| format!("{error:#}"))
}
