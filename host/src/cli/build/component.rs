//! From the core module that rustc links to a component.
//!
//! Invariant: a module that isn't an operator's gives an error that says what it lacks or wants too much.

use std::fs;
use std::path::Path;

use wit_component::ComponentEncoder;

use crate::cli::CliError;

/// Makes a component of the module that `lockgate::export!` has described in itself.
///
/// # Errors
/// If it can't be read or isn't an operator.
pub(super) fn encode(module: &Path, package: &str) -> Result<Vec<u8>, CliError> {
    let bytes = fs::read(module)
        .map_err(|error| CliError::failed(format!("cannot read {}", module.display())).caused_by(&error))?;
    encode_bytes(&bytes).map_err(|problem| {
        CliError::unusable(format!("the crate '{package}' makes no operator: {problem}")).help(
            "an operator exports its struct with `lockgate::export!` and links nothing that needs an operating system or \
             JavaScript (crates like wasm-bindgen or getrandom may bring such imports)",
        )
    })
}

fn encode_bytes(module: &[u8]) -> Result<Vec<u8>, String> {
    let encoder = ComponentEncoder::default().validate(true).module(module).map_err(|error| format!("{error:#}"))?;
    let mut encoder = encoder;
    encoder.encode().map_err(|error| format!("{error:#}"))
}
