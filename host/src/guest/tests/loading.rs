//! What loads and what doesn't, and that each refusal says why.

use std::time::Instant;

use super::guest::{Guest, embed, encode};
use super::*;
use crate::guest::{BadDescriptor, Failure, Redistribution, TableKind, default_cache_dir, examine};

fn said(problem: &Problem) -> String {
    problem.to_string()
}

#[test]
fn an_operator_loads_and_says_what_it_is() {
    let guest = Guest {
        name: "word count",
        inputs: vec![("text", false), ("stop-words", true)],
        tables: vec![("counts", 0, 3), ("seen", 1, 1)],
        timers: true,
        redistribution: 2,
        ..Guest::default()
    };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let descriptor = plugin.descriptor();
    assert_eq!((descriptor.name.as_str(), descriptor.version.as_str()), ("word count", "1.2.3"));
    let inputs = descriptor.inputs.iter().map(|input| (input.name.as_str(), input.broadcast));
    assert_eq!(inputs.collect::<Vec<_>>(), [("text", false), ("stop-words", true)]);
    assert_eq!(descriptor.outputs, [name("out")]);
    assert!(descriptor.timers && descriptor.redistribution == Redistribution::Broadcast);
    let tables = descriptor.tables.iter().map(|table| (table.name.as_str(), table.kind, table.version));
    assert_eq!(tables.collect::<Vec<_>>(), [("counts", TableKind::Value, 3), ("seen", TableKind::Map, 1)]);
    assert_eq!(plugin.interface().exports, ["lockgate:operator/operator@0.1.0"]);
    assert!(plugin.interface().imports.contains(&"lockgate:operator/output@0.1.0".to_owned()));
    assert_eq!(plugin.hash().len(), 64);
}

#[test]
fn a_missing_file_a_folder_and_foreign_bytes_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = engine().load(&name("op"), &folder.path().join("none.wasm")).map(|_| ()).expect_err("missing");
    assert!(error.to_string().contains("none.wasm") && error.to_string().contains("operator 'op'"), "{error}");
    let error = engine().inspect(folder.path()).map(|_| ()).expect_err("a folder");
    assert!(error.to_string().ends_with("it is not a file"), "{error}");
    assert!(matches!(refusal(b""), Problem::Empty));
    assert!(matches!(refusal(b"\x7fELF\x02\x01\x01"), Problem::NotWasm));
    assert!(matches!(refusal(&Guest::default().module()), Problem::CoreModule));
}

#[test]
fn every_truncation_of_a_component_is_refused() {
    let whole = Guest::default().component();
    let looks_whole = |length: &usize| examine::interface(&whole[..*length]).is_ok_and(|found| found.check().is_ok());
    let suspects = (0..whole.len()).filter(looks_whole).collect::<Vec<_>>();
    for length in (0..whole.len()).step_by(97).chain(suspects) {
        // Behind the exports there are only custom sections (number 0), without which it is as good.
        if load_bytes(&whole[..length]).is_ok() {
            assert_eq!(whole[length], 0, "cut to {length} bytes, it loads");
        }
    }
}

#[test]
fn damage_anywhere_never_ends_the_host() {
    let whole = Guest::default().component();
    let mut loaded = 0;
    let places = (0..whole.len()).step_by(41).collect::<Vec<_>>();
    for at in &places {
        let mut damaged = whole.clone();
        damaged[*at] ^= 0x55;
        // A flipped byte of a name or a constant may still be a valid operator.
        loaded += usize::from(load_bytes(&damaged).is_ok());
    }
    assert!(loaded < places.len() / 2, "most damage is noticed, not {loaded} of {}", places.len());
}

#[test]
fn a_component_that_is_no_operator_says_what_is_missing() {
    let mut module = wat::parse_str(r#"(module (func (export "run")))"#).expect("a module");
    embed(&mut module, "package test:other; world other { export run: func(); }");
    let problem = refusal(&encode(&module));
    assert!(matches!(problem, Problem::NotAnOperator { .. }), "{problem}");
    assert!(said(&problem).contains("lockgate:operator/operator@0.1.0") && said(&problem).contains("run"), "{problem}");
}

#[test]
fn an_operator_that_lacks_functions_says_which() {
    let wit = "package lockgate:operator@0.1.0; interface operator { close: func(); } world w { export operator; }";
    let text = r#"(module (func (export "lockgate:operator/operator@0.1.0#close")))"#;
    let mut module = wat::parse_str(text).expect("a module");
    embed(&mut module, wit);
    let problem = refusal(&encode(&module));
    assert!(matches!(problem, Problem::NotAnOperator { .. }), "{problem}");
    assert!(said(&problem).contains(".describe") && said(&problem).contains(".trim"), "{problem}");
    assert!(!said(&problem).contains(".close"), "{problem}");
}

#[test]
fn an_operator_with_other_types_doesn_t_fit() {
    let functions = ["open", "restore", "process", "timers", "watermark", "snapshot", "trim", "close", "describe"];
    let wit = functions.map(|name| format!("{name}: func();")).join(" ");
    let wit = format!("package lockgate:operator@0.1.0; interface operator {{ {wit} }} world w {{ export operator; }}");
    let exports =
        functions.map(|name| format!(r#"(func (export "lockgate:operator/operator@0.1.0#{name}"))"#)).join(" ");
    let mut module = wat::parse_str(format!("(module {exports})")).expect("a module");
    embed(&mut module, &wit);
    let problem = refusal(&encode(&module));
    assert!(matches!(problem, Problem::Mismatch(_)), "{problem}");
}

#[test]
fn another_version_of_the_world_is_named_with_the_way_out() {
    let (_folder, path) = file(&Guest { world_version: "0.2.0", ..Guest::default() }.component());
    let error = engine().load(&name("op"), &path).map(|_| ()).expect_err("another world");
    assert!(error.to_string().contains("version 0.2.0") && error.to_string().contains("has 0.1.0"), "{error}");
    assert!(error.help().contains("version 0.1.0 of the `lockgate` SDK"), "{}", error.help());
}

#[test]
fn imports_that_operators_don_t_get_are_named() {
    let import = (r#"(import "clock" "now" (func (result i64)))"#, "import clock: interface { now: func() -> u64; }");
    let (_folder, path) = file(&Guest { import, ..Guest::default() }.component());
    let error = engine().load(&name("op"), &path).map(|_| ()).expect_err("no clock");
    assert!(error.to_string().ends_with("it imports clock, which operators don't get"), "{error}");
    assert!(error.help().contains("WASI 0.2, and nothing else"), "{}", error.help());
}

#[test]
fn names_out_of_a_component_are_few_and_fit_for_a_log() {
    let import = (r#"(import "clock" "now" (func (result i64)))"#, "import clock: interface { now: func() -> u64; }");
    let mut bytes = Guest { import, ..Guest::default() }.component();
    while let Some(at) = bytes.windows(5).position(|part| part == b"clock") {
        bytes[at..at + 5].copy_from_slice(b"cl\x1bck");
    }
    assert_eq!(said(&refusal(&bytes)), "it imports cl\\u{1b}ck, which operators don't get");
}

#[test]
fn nonsense_in_the_descriptor_is_refused() {
    let refused = |guest: Guest| match refusal(&guest.component()) {
        Problem::Descriptor(problem) => problem,
        other => panic!("{other}"),
    };
    assert_eq!(refused(Guest { outputs: vec![], ..Guest::default() }), BadDescriptor::None { what: "output" });
    let twice = refused(Guest { outputs: vec!["a", "a"], ..Guest::default() });
    assert!(matches!(twice, BadDescriptor::Twice { what: "output", .. }));
    let many = refused(Guest { outputs: vec!["x"; 100], ..Guest::default() });
    assert!(matches!(many, BadDescriptor::TooMany { what: "output", count: 100 }));
    assert_eq!(refused(Guest { inputs: vec![], ..Guest::default() }), BadDescriptor::None { what: "input" });
    let broadcast = Guest { inputs: vec![("in", false), ("rules", true)], ..Guest::default() };
    assert!(matches!(refused(broadcast), BadDescriptor::Redistribution { .. }));
    let unnamed = refused(Guest { tables: vec![("no name", 0, 1)], ..Guest::default() });
    assert!(matches!(unnamed, BadDescriptor::Name { what: "table", .. }));
}

#[test]
fn a_guest_that_fails_to_say_what_it_is_is_refused_in_time() {
    let refused =
        |describe: &str| match refusal(&Guest { describe: describe.to_owned(), ..Guest::default() }.component()) {
            Problem::Describe(error) => *error.failure,
            other => panic!("{other}"),
        };
    assert!(matches!(refused("unreachable"), Failure::Trap { .. }));
    let emits = super::guest::emit_zeros(0, 1);
    assert!(matches!(refused(&emits), Failure::Misuse(_)), "describe calls no import");
}

#[test]
fn a_cached_component_loads_in_milliseconds_and_a_corrupt_cache_is_compiled_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    let (_component_folder, path) = file(&Guest::default().component());
    let load = || {
        let engine = Engine::new(Some(cache.clone()), Compiler::InProcess).expect("an engine");
        let start = Instant::now();
        let plugin = engine.load(&name("op"), &path).expect("it loads");
        plugin.instantiate(context(Limits::default())).expect("it runs");
        start.elapsed()
    };
    load();
    let files =
        || std::fs::read_dir(&cache).expect("a cache").map(|file| file.expect("a file").path()).collect::<Vec<_>>();
    let [code] = files().try_into().expect("one file");
    let cached = (0..5).map(|_| load()).min().expect("five times");
    assert!(cached.as_millis() < 50, "{cached:?}");
    let whole = std::fs::read(&code).expect("code");
    std::fs::write(&code, &whole[..whole.len() / 2]).expect("torn");
    load();
    assert_eq!(std::fs::read(&code).expect("code").len(), whole.len(), "written anew");
}

#[test]
fn a_cache_that_can_t_be_used_costs_only_time() {
    let (_folder, path) = file(&Guest::default().component());
    // A file where the folder should be.
    let engine = Engine::new(Some(path.clone()), Compiler::InProcess).expect("an engine");
    engine.load(&name("op"), &path).expect("it loads");
    assert!(default_cache_dir().is_none_or(|dir| dir.is_absolute()));
}
