//! Modules and components that nobody would write, made by `wasm-smith`: as they are, and within an operator.

use std::sync::OnceLock;

use wasm_smith::{Component, Config, Module};

use crate::chance::Chance;
use crate::component::{Bench, use_it};
use crate::harness::Target;
use crate::wat_guest::Guest;

const RANDOM: Target = Target {
    name: "random",
    seeds: 300,
    bytes_max: 4 << 10,
    memory_bytes_max: 512 << 20,
    outcomes: &["core-module", "not-an-operator", "well"],
    case,
};

#[test]
fn a_random_component_is_refused_or_is_one_like_others() {
    RANDOM.run();
}

/// Instructions of the kinds that the engine takes.
fn config() -> Config {
    Config {
        max_memories: 1,
        max_tables: 4,
        max_memory32_bytes: 4 << 20,
        max_table_elements: 1_000,
        memory64_enabled: false,
        threads_enabled: false,
        exceptions_enabled: false,
        gc_enabled: false,
        ..Config::default()
    }
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let choice = chance.below(4);
    let bytes = match choice {
        0 | 1 => Module::new(config(), chance.rest()).ok().map(|module| module.to_bytes()),
        _ => Component::new(config(), chance.rest()).ok().map(|component| component.to_bytes()),
    };
    // Some bytes make nothing at all.
    let Some(bytes) = bytes else { return Ok("nothing") };
    let bytes = match choice {
        1 => operator_with(CORE_MODULE, &bytes),
        2 => operator_with(COMPONENT, &bytes),
        _ => bytes,
    };
    chance.tell(|| format!("{} bytes", bytes.len()));
    match Bench::get().load(&bytes)? {
        Ok(plugin) => use_it(&plugin),
        Err(why) => Ok(why),
    }
}

/// Numbers of sections of a component.
const CORE_MODULE: u8 = 1;
const COMPONENT: u8 = 4;

/// An operator that has something more within, which is compiled with it.
fn operator_with(section: u8, content: &[u8]) -> Vec<u8> {
    static OPERATOR: OnceLock<Vec<u8>> = OnceLock::new();
    let operator = OPERATOR.get_or_init(|| Guest::default().component());
    let mut bytes = [&operator[..], &[section]].concat();
    // LEB128.
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}
