//! Compiled code in the cache that was changed: it is never run, but compiled again.
//!
//! Invariant: the component is the same in every case, and so is its code.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use lockgate_host::guest::{Compiler, Engine};
use tempfile::TempDir;

use crate::chance::Chance;
use crate::component::{name, use_it};
use crate::damage::damaged;
use crate::harness::Target;
use crate::wat_guest::{EMIT_INPUT, Guest};

const CACHE: Target = Target {
    name: "cache",
    seeds: 120,
    bytes_max: 64,
    memory_bytes_max: 256 << 20,
    outcomes: &["compiled-again"],
    case,
};

#[test]
fn cached_code_that_was_changed_is_compiled_again() {
    CACHE.run();
}

/// A cache with one file, of a component beside it.
struct Place {
    _folder: TempDir,
    engine: Engine,
    wasm: PathBuf,
    code: PathBuf,
    /// As it was written.
    written: Vec<u8>,
}

impl Place {
    fn get() -> &'static Place {
        static PLACE: OnceLock<Place> = OnceLock::new();
        PLACE.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let (wasm, cache) = (folder.path().join("op.wasm"), folder.path().join("cache"));
            let guest = Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() };
            fs::write(&wasm, guest.component()).expect("written");
            let engine = Engine::new(Some(cache.clone()), Compiler::InProcess).expect("an engine");
            engine.load(&name(), &wasm).expect("it loads");
            let mut files = fs::read_dir(&cache).expect("a folder").map(|entry| entry.expect("an entry").path());
            let code = files.next().expect("the code");
            assert!(files.next().is_none(), "one file");
            let written = fs::read(&code).expect("the code");
            Place { _folder: folder, engine, wasm, code, written }
        })
    }
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let place = Place::get();
    // Near the end are the mark and the checksum.
    let from = if chance.one_in(2) { place.written.len() - 32 } else { 0 };
    let changed = [&place.written[..from], &damaged(chance, &place.written[from..], &[])].concat();
    if changed == place.written {
        return Ok("unchanged");
    }
    fs::write(&place.code, &changed).expect("written");
    let plugin = place.engine.load(&name(), &place.wasm).map_err(|error| format!("the component is good: {error}"))?;
    // What was compiled again was written again.
    if fs::read(&place.code).expect("the code") != place.written {
        return Err("changed code was taken for what was written".to_owned());
    }
    use_it(&plugin).map(|_| "compiled-again")
}
