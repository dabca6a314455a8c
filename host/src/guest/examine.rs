//! Reads what a file is, and what a component imports and exports, without compiling it.
//!
//! Invariant: any bytes at all give an answer or an error, never a panic.

use wasmparser::{Parser, Payload};

use super::error::Problem;
use super::functions;
use super::unfold::Unfolding;
use super::wasi;
use super::world::{MIGRATION, OFFERED, OPERATOR, WORLD};

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
/// If it isn't one, or becomes too much when it is unfolded or compiled.
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
    let (interface, unfolding, functions) = names(wasm).map_err(|error| Problem::Invalid(error.to_string()))?;
    unfolding.check()?;
    functions?;
    Ok(interface)
}

fn cut_or_foreign(start: &[u8]) -> Problem {
    if WASM.starts_with(start) { Problem::Invalid("it ends in its first bytes".to_owned()) } else { Problem::NotWasm }
}

/// The names, what it unfolds to, and whether all its functions can be compiled.
type Read = (Interface, Unfolding, Result<(), Problem>);

fn names(wasm: &[u8]) -> Result<Read, wasmparser::BinaryReaderError> {
    let (mut imports, mut exports, mut compilable) = (Vec::new(), Vec::new(), Ok(()));
    let mut unfolding = Unfolding::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        unfolding.read(&payload)?;
        match payload {
            Payload::ComponentImportSection(section) if unfolding.depth() == 0 => {
                for import in section {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if unfolding.depth() == 0 => {
                for export in section {
                    exports.push(export?.name.name.to_owned());
                }
            }
            Payload::CodeSectionEntry(body) if compilable.is_ok() => compilable = functions::check(&body)?,
            // All other sections are the engine's business.
            _ => {}
        }
    }
    imports.sort();
    exports.sort();
    Ok((Interface { imports, exports }, unfolding, compilable))
}

impl Interface {
    /// The version of the operator world that the component was built for, if it is an operator at all.
    pub fn world_version(&self) -> Option<&str> {
        let prefix = format!("{}/{OPERATOR}@", WORLD.package);
        self.exports.iter().find_map(|export| export.strip_prefix(&prefix))
    }

    /// Whether it can bring state of an older version to its own.
    pub fn migrates(&self) -> bool {
        self.exports.contains(&WORLD.interface(MIGRATION))
    }

    /// Those of its imports that are WASI's. They are satisfied, and nothing real is behind them.
    pub fn wasi_imports(&self) -> impl Iterator<Item = &String> {
        self.imports.iter().filter(|import| wasi::interface(import).is_some())
    }

    /// Checks that it is an operator for this host's world and wants nothing but that and WASI 0.2.
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
        let is_foreign = |import: &&String| !offered.contains(import) && wasi::interface(import).is_none();
        let foreign = self.imports.iter().filter(is_foreign).cloned().collect::<Vec<_>>();
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
        let functions = |interface: &str| {
            let (_, rest) = wit.split_once(&format!("interface {interface} {{")).expect("an exported interface");
            let (inside, _) = rest.split_once("\n}").expect("its end");
            let functions = inside.lines().filter_map(|line| Some(line.trim().split_once(": func(")?.0));
            functions.collect::<Vec<_>>()
        };
        assert_eq!(functions(OPERATOR), super::super::world::OPERATOR_FUNCTIONS);
        assert_eq!(functions(MIGRATION), super::super::world::MIGRATION_FUNCTIONS);
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
        check(&["wasi:filesystem/types@0.2.3"], &[operator]).expect("WASI, which leads nowhere");
        let error =
            check(&["wasi:filesystem/types@0.3.0", "my:own/files"], &[operator]).expect_err("files").to_string();
        assert!(error.contains("wasi:filesystem/types@0.3.0, my:own/files"), "{error}");
    }
}
