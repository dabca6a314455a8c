//! Capsules: files that are sent around, and hold a component, what it was given and what it read.

use std::sync::OnceLock;

use lockgate_host::guest::{Compiler, Engine, hexadecimal};
use lockgate_host::replay::{Capsule, rerun};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_128;

use crate::chance::Chance;
use crate::damage::{damaged, damaged_json};
use crate::harness::Target;
use crate::text;
use crate::wat_guest::{DATA, EMIT_INPUT, Guest};

const CAPSULE: Target = Target {
    name: "capsule",
    seeds: 1_500,
    bytes_max: 512,
    memory_bytes_max: 32 << 20,
    outcomes: &["no-component", "refused", "replayed", "unsuited"],
    case,
};

#[test]
fn any_bytes_are_a_capsule_that_is_written_as_it_was_read_or_refused() {
    CAPSULE.run();
}

const FIXTURE: &[u8] = include_bytes!("../../../src/replay/fixtures/v1.capsule");
/// Magic, version, identity, length.
const HEAD_BYTES: usize = 8 + 4 + 16 + 8;
const CHECKSUM_BYTES: usize = 16;

/// The fixture with another body, of the right length and with the right checksum; its identity is as it was.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = FIXTURE[..HEAD_BYTES - 8].to_vec();
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&xxh3_128(&bytes).to_le_bytes());
    bytes
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let body = &FIXTURE[HEAD_BYTES..FIXTURE.len() - CHECKSUM_BYTES];
    let bytes = match chance.below(8) {
        0 => FIXTURE.to_vec(),
        1 => damaged(chance, FIXTURE, &[]),
        2 => framed(&chance.bytes(200)),
        3..7 => changed(chance),
        _ => framed(&damaged(chance, body, &[])),
    };
    chance.tell(|| format!("{} bytes: {bytes:02x?}", bytes.len()));
    let capsule = match Capsule::decode(&bytes) {
        Ok(capsule) => capsule,
        Err(error) => return text::check_error(&error).map(|()| "refused"),
    };
    if Capsule::decode(&capsule.encode()).as_ref() != Ok(&capsule) {
        return Err(format!("it isn't read again as it was written: {capsule:?}"));
    }
    replay(&capsule)
}

/// A capsule whose component is one: it reads what the fixture's has read, and puts out its record.
fn with_a_component() -> &'static serde_json::Value {
    static GOOD: OnceLock<serde_json::Value> = OnceLock::new();
    GOOD.get_or_init(|| {
        let keys = "(local.get 2) (local.get 3) (local.get 4) (local.get 5)";
        let read = format!(
            "(call $get_many (i32.const 0) {keys} (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const {DATA}))"
        );
        let tables = vec![("counts", 0, 1)];
        let guest = Guest { name: "picky", tables, timers: true, process: read + EMIT_INPUT, ..Guest::default() };
        let mut capsule = Capsule::decode(FIXTURE).expect("the fixture");
        // The subtask that has its key.
        let max_parallelism = capsule.max_parallelism;
        capsule.place.subtask.index = max_parallelism.subtask(max_parallelism.key_group(b"k"), 2);
        capsule.component.bytes = guest.component();
        capsule.component.sha256 = hexadecimal(&Sha256::digest(&capsule.component.bytes));
        serde_json::to_value(&capsule).expect("JSON")
    })
}

/// A capsule as a host might write it, with values that none would: so the identity in its head is right.
fn changed(chance: &mut Chance<'_, '_>) -> Vec<u8> {
    let good = with_a_component();
    let mut json = good.clone();
    // What becomes of other components is seen elsewhere.
    let component = json.as_object_mut().and_then(|fields| fields.remove("component"));
    json = damaged_json(chance, &json);
    if let (Some(fields), Some(component)) = (json.as_object_mut(), component) {
        fields.insert("component".to_owned(), component);
    }
    match serde_json::from_value::<Capsule>(json) {
        Ok(capsule) if is_whole(&capsule) => capsule.encode(),
        Ok(_) | Err(_) => framed(&postcard::to_stdvec(&Capsule::decode(FIXTURE).expect("the fixture")).expect("bytes")),
    }
}

/// Whether it has an identity: of records that make no sense there is none.
fn is_whole(capsule: &Capsule) -> bool {
    capsule.trial.call.rows().is_none_or(|rows| rows.check().is_ok() && rows.rows > 0)
}

/// Makes its trial again. In a word what came of it.
fn replay(capsule: &Capsule) -> Result<&'static str, String> {
    static ENGINE: OnceLock<(TempDir, Engine)> = OnceLock::new();
    // The one component is compiled once.
    let (_, engine) = ENGINE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::new(Some(folder.path().join("cache")), Compiler::InProcess).expect("an engine");
        (folder, engine)
    });
    match rerun(engine, capsule) {
        Ok(_) => Ok("replayed"),
        Err(error) => {
            text::check_error(&error)?;
            let is_component = capsule.component.bytes.starts_with(b"\0asm");
            Ok(if is_component { "unsuited" } else { "no-component" })
        }
    }
}
