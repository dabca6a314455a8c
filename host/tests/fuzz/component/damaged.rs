//! Good components with bytes that were changed.

use std::sync::OnceLock;

use crate::chance::Chance;
use crate::component::{Bench, use_it};
use crate::damage::damaged;
use crate::harness::Target;
use crate::wat_guest::{EMIT_INPUT, Guest, Migrating, TEXT, embed, encode};

const DAMAGED: Target = Target {
    name: "damaged",
    seeds: 500,
    bytes_max: 256,
    memory_bytes_max: 256 << 20,
    outcomes: &[
        "core-module",
        "describe",
        "descriptor",
        "failed",
        "import",
        "invalid",
        "not-an-operator",
        "not-wasm",
        "well",
        "world-version",
    ],
    case,
};

#[test]
fn a_damaged_component_is_refused_or_is_one_like_others() {
    DAMAGED.run();
}

fn good() -> &'static [Vec<u8>] {
    static GOOD: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let plain = Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() };
        let keyed = Guest {
            tables: vec![("counts", 0, 1), ("seen", 1, 3)],
            timers: true,
            migrating: Some(Migrating::default()),
            extra: format!("(data (i32.const {TEXT}) \"some text\")"),
            ..Guest::default()
        };
        let other_world = Guest { world_version: "0.7.1", ..Guest::default() };
        let files =
            (r#"(import "files" "open" (func (result i32)))"#, "import files: interface { open: func() -> u32; }");
        let foreign = Guest { import: files, ..Guest::default() };
        let failing = Guest { process: "unreachable".to_owned(), ..Guest::default() };
        let mut command = wat::parse_str(r#"(module (func (export "run")))"#).expect("a module");
        embed(&mut command, "package test:other; world other { export run: func(); }");
        let guests = [&plain, &keyed, &plain, &keyed, &other_world, &foreign, &failing];
        let components = guests.into_iter().map(Guest::component);
        components.chain([encode(&command), plain.module()]).collect()
    })
}

/// What `describe` gives is data of the component; its place is found by the name of its version.
fn with_another_descriptor(chance: &mut Chance<'_, '_>, component: &[u8]) -> Vec<u8> {
    let mut bytes = component.to_vec();
    let version = bytes.windows(5).position(|part| part == b"1.2.3").unwrap_or(0);
    // The descriptor is before its texts, and its lists are behind them.
    for _ in 0..chance.between(1, 4) {
        let at = (version + chance.below(160)).saturating_sub(100);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = if chance.one_in(2) { chance.byte() } else { *chance.pick(&[0, 1, 2, 64, 65, 255]) };
        }
    }
    bytes
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let good = good();
    let whole = chance.pick(good);
    let others = good.iter().map(Vec::as_slice).collect::<Vec<_>>();
    let bytes = match chance.below(8) {
        0 => whole.clone(),
        1 | 2 => with_another_descriptor(chance, whole),
        3 => chance.bytes(200),
        _ => damaged(chance, whole, &others),
    };
    chance.tell(|| format!("{} bytes of a component of {}", bytes.len(), whole.len()));
    match Bench::get().load(&bytes)? {
        Ok(plugin) => use_it(&plugin),
        Err(why) => Ok(why),
    }
}
