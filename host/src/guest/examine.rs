//! Reads what a file is, and what a component imports and exports, without compiling it.
//!
//! Invariant: any bytes at all give an answer or an error, never a panic.

use wasmparser::{Parser, Payload};

use super::error::Problem;
use super::world::{OFFERED, OPERATOR, WORLD};

/// The top-level names of a component, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub imports: Vec<String>,
    pub exports: Vec<String>,
}

/// What the first eight bytes of every WebAssembly binary say.
const WASM: [u8; 4] = *b"\0asm";
const CORE_MODULE: [u8; 4] = [1, 0, 0, 0];

/// Reads the names of a component.
///
/// # Errors
/// If it isn't one.
pub(super) fn interface(wasm: &[u8]) -> Result<Interface, Problem> {
    if wasm.is_empty() {
        return Err(Problem::Empty);
    }
    let Some((magic, version)) = wasm.split_at_checked(4) else { return Err(cut_or_foreign(wasm)) };
    if magic != WASM {
        return Err(Problem::NotWasm);
    }
    if version.starts_with(&CORE_MODULE) {
        return Err(Problem::CoreModule);
    }
    names(wasm).map_err(|error| Problem::Invalid(error.to_string()))
}

fn cut_or_foreign(start: &[u8]) -> Problem {
    if WASM.starts_with(start) { Problem::Invalid("it ends in its first bytes".to_owned()) } else { Problem::NotWasm }
}

fn names(wasm: &[u8]) -> Result<Interface, wasmparser::BinaryReaderError> {
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let mut depth = 0u32;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export?.name.name.to_owned());
                }
            }
            // All other sections are the engine's business.
            _ => {}
        }
    }
    imports.sort();
    exports.sort();
    Ok(Interface { imports, exports })
}

impl Interface {
    /// The version of the operator world that the component was built for, if it is an operator at all.
    pub fn world_version(&self) -> Option<&str> {
        let prefix = format!("{}/{OPERATOR}@", WORLD.package);
        self.exports.iter().find_map(|export| export.strip_prefix(&prefix))
    }

    /// Checks that it is an operator for this host's world and wants nothing else.
    ///
    /// # Errors
    /// Says which version, export or import is the trouble.
    pub(super) fn check(&self) -> Result<(), Problem> {
        match self.world_version() {
            Some(version) if version == WORLD.version => {}
            Some(built) => return Err(Problem::WorldVersion { built: built.to_owned() }),
            None => {
                let missing = vec![WORLD.interface(OPERATOR)];
                return Err(Problem::NotAnOperator { missing, exports: self.exports.clone() });
            }
        }
        let offered = OFFERED.map(|name| WORLD.interface(name));
        let foreign = self.imports.iter().filter(|import| !offered.contains(import)).cloned().collect::<Vec<_>>();
        if foreign.is_empty() { Ok(()) } else { Err(Problem::Import { imports: foreign }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_here_is_that_of_the_wit_file() {
        let wit = include_str!("../../../wit/operator.wit");
        assert!(wit.contains(&format!("package {}@{};", WORLD.package, WORLD.version)));
        for name in OFFERED {
            assert!(wit.contains(&format!("interface {name} {{")), "{name}");
        }
        let (_, operator) = wit.split_once("interface operator {").expect("the exported interface");
        let (operator, _) = operator.split_once("\n}").expect("its end");
        let functions = operator.lines().filter_map(|line| Some(line.trim().split_once(": func(")?.0));
        assert_eq!(functions.collect::<Vec<_>>(), super::super::world::OPERATOR_FUNCTIONS);
    }

    #[test]
    fn other_files_are_told_apart() {
        assert!(matches!(interface(b""), Err(Problem::Empty)));
        assert!(matches!(interface(b"\0as"), Err(Problem::Invalid(_))));
        assert!(matches!(interface(b"\0asm"), Err(Problem::Invalid(_))));
        assert!(matches!(interface(b"#!/bin/sh\n"), Err(Problem::NotWasm)));
        assert!(matches!(interface(b"abc"), Err(Problem::NotWasm)));
        assert!(matches!(interface(b"\0asm\x01\0\0\0"), Err(Problem::CoreModule)));
        assert!(matches!(interface(b"\0asm\x07\0\0\0"), Err(Problem::Invalid(_))));
    }

    #[test]
    fn foreign_exports_versions_and_imports_are_named() {
        let check = |imports: &[&str], exports: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Interface { imports: owned(imports), exports: owned(exports) }.check()
        };
        let operator = "lockgate:operator/operator@0.1.0";
        check(&["lockgate:operator/output@0.1.0", "lockgate:operator/types@0.1.0"], &[operator]).expect("an operator");
        let error = check(&[], &["wasi:cli/run@0.2.3"]).expect_err("a command").to_string();
        assert!(error.contains(operator) && error.contains("wasi:cli/run@0.2.3"), "{error}");
        let error = check(&[], &["lockgate:operator/operator@0.7.1"]).expect_err("another world").to_string();
        assert!(error.contains("0.7.1") && error.contains("0.1.0"), "{error}");
        let error = check(&["wasi:filesystem/types@0.2.3"], &[operator]).expect_err("files").to_string();
        assert!(error.contains("wasi:filesystem/types@0.2.3"), "{error}");
    }
}
