//! A core module that another toolchain has linked, such as clang: read, and looked at before anything is made of it.
//!
//! Invariant: what is read here is a core module that says for which world it is; anything else is an error that says what it is.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use wasmparser::{Encoding, Parser, Payload};

use crate::cli::CliError;

/// The largest module that is read: no component of it could be loaded.
const MODULE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How the sections begin in which wit-bindgen notes the world.
const WORLD_SECTION: &str = "component-type";

/// # Errors
/// If it can't be read or isn't a core module with a world.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = read_bytes(path)?;
    let unusable = |what: &str| CliError::unusable(format!("{} {what}", path.display()));
    match look_at(&bytes) {
        Ok(Found::Module { has_world: true }) => Ok(bytes),
        Ok(Found::Module { has_world: false }) => {
            let help = "link the object file that `wit-bindgen c` makes (stream_operator_component_type.o), as \
                        examples/word-count-c/build.sh does, or embed the world: wasm-tools component embed";
            Err(unusable("is a core module that doesn't say for which world it is").help(help))
        }
        Ok(Found::Component) => {
            let help = format!("use it as it is; lockgate inspect {} checks it", path.display());
            Err(unusable("is a component already").help(help))
        }
        Err(problem) => {
            let refused = unusable("is no WebAssembly module").caused_by(&problem);
            Err(refused.help("name the folder of a crate, or the core module that a linker has made"))
        }
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, CliError> {
    let failed =
        |error: &std::io::Error| CliError::unusable(format!("cannot read {}", path.display())).caused_by(error);
    let file = File::open(path).map_err(|error| failed(&error).help("check its path and its permissions"))?;
    let mut bytes = Vec::new();
    // One byte more tells that there is more.
    file.take(MODULE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error).help("check the disk that it is on"))?;
    if bytes.len() as u64 > MODULE_BYTES_MAX {
        let problem = format!("{} has more than {MODULE_BYTES_MAX} bytes, which is the most", path.display());
        return Err(CliError::unusable(problem).help("link it without debug information (-Wl,--strip-debug)"));
    }
    Ok(bytes)
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Module { has_world: bool },
    Component,
}

fn look_at(bytes: &[u8]) -> Result<Found, wasmparser::BinaryReaderError> {
    let mut has_world = false;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding: Encoding::Component, .. } => return Ok(Found::Component),
            Payload::CustomSection(section) => has_world |= section.name().starts_with(WORLD_SECTION),
            // The encoder reads and checks all others.
            _ => {}
        }
    }
    Ok(Found::Module { has_world })
}

/// Beside the module: `count.wasm` for `count.core.wasm`, `count.component.wasm` for `count.wasm`.
pub(super) fn default_out(module: &Path) -> PathBuf {
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    let name = match name.strip_suffix(".core.wasm") {
        Some(stem) if !stem.is_empty() => format!("{stem}.wasm"),
        _ => format!("{}.component.wasm", name.strip_suffix(".wasm").unwrap_or(&name)),
    };
    module.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn a_world_is_found_by_its_section() {
        let with = |name: &str| {
            let size = u8::try_from(name.len()).expect("a short name");
            [EMPTY_MODULE, &[0, size + 1, size], name.as_bytes()].concat()
        };
        assert_eq!(look_at(EMPTY_MODULE).expect("a module"), Found::Module { has_world: false });
        assert_eq!(look_at(&with("name-of-it")).expect("a module"), Found::Module { has_world: false });
        assert_eq!(look_at(&with("component-type:stream")).expect("a module"), Found::Module { has_world: true });
        assert_eq!(look_at(b"\0asm\x0d\0\x01\0").expect("a component"), Found::Component);
        assert!(look_at(b"").is_err() && look_at(b"\0as").is_err() && look_at(b"(module)").is_err());
    }

    #[test]
    fn the_component_is_never_put_in_the_place_of_its_module() {
        for (module, out) in [
            ("a/count.core.wasm", "a/count.wasm"),
            ("count.wasm", "count.component.wasm"),
            ("count", "count.component.wasm"),
            (".core.wasm", ".core.component.wasm"),
        ] {
            assert_eq!(default_out(Path::new(module)), Path::new(out));
        }
    }
}
