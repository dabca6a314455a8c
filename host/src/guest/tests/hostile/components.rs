//! Components that do harm before the first call: while they are read, compiled or instantiated.

use wasmparser::{Parser, Payload};

use super::super::guest::{Guest, WasiImports};
use super::super::*;
use super::{DIG, SPIN, assert_goes_on, short};
use crate::guest::functions::{BODY_BYTES_MAX, NESTED_MAX};
use crate::guest::{Call, Failure};

/// Numbers as the binary format has them.
fn leb128(mut number: usize, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn push_section(wasm: &mut Vec<u8>, id: u8, content: &[u8]) {
    wasm.push(id);
    leb128(content.len(), wasm);
    wasm.extend_from_slice(content);
}

/// An operator with another component within, which it instantiates.
fn with_component(wat: &str) -> Vec<u8> {
    let mut wasm = Guest::default().component();
    let mut depth = 0u32;
    let mut components = 0;
    for payload in Parser::new(0).parse_all(&wasm) {
        match payload.expect("a good component") {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentSection { .. } if depth == 1 => components += 1,
            _ => {}
        }
    }
    push_section(&mut wasm, 4, &wat::parse_str(wat).expect("a component"));
    let mut instance = vec![1, 0];
    leb128(components, &mut instance);
    instance.push(0);
    push_section(&mut wasm, 5, &instance);
    wasm
}

fn refused_within(guest: &[u8], limits: Limits) -> Problem {
    let (_folder, path) = file(guest);
    match engine().load_within(&name("op"), &path, limits).map(drop).expect_err("refused") {
        GuestError::Plugin { problem, .. } => *problem,
        GuestError::Engine { problem } => panic!("the engine fails: {problem}"),
    }
}

/// What instantiation ends with.
fn start_failure(guest: &[u8], limits: Limits) -> Failure {
    match refused_within(guest, limits) {
        Problem::Describe(error) => {
            assert_eq!(error.call, Call::Instantiate, "{error}");
            *error.failure
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_start_function_that_never_comes_back_ends_as_any_call_does() {
    let start = |fault: &str, limits: Limits| {
        let extra = format!("{DIG} (func $start {fault}) (start $start)");
        start_failure(&Guest { extra, ..Guest::default() }.component(), limits)
    };
    assert!(matches!(start(SPIN, short()), Failure::Deadline { .. }));
    assert!(matches!(start("unreachable", Limits::default()), Failure::Trap { .. }));
    assert!(matches!(start("(call $dig)", Limits::default()), Failure::Stack { .. }));
    let limits = Limits { memory_bytes_max: 1 << 20, ..Limits::default() };
    let grow = "(loop $more (drop (memory.grow (i32.const 1))) (br $more))";
    assert!(matches!(start(grow, limits), Failure::Memory { limit_bytes: 1_048_576, .. }));
    assert_goes_on();
}

#[test]
fn the_start_functions_of_all_instances_together_have_the_time_of_one_call() {
    // Each of them takes a moment, and there are many.
    let spin = "(local $i i32) (loop $more (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $i) (i32.const 100000000))))";
    let module = format!("(core module $m (func $start {spin}) (start $start))");
    let instances = "(core instance (instantiate $m))".repeat(60);
    let failure = start_failure(&with_component(&format!("(component {module} {instances})")), short());
    assert!(matches!(failure, Failure::Deadline { .. }), "{failure}");
}

#[test]
fn instances_memories_and_tables_beyond_their_number_are_refused_by_name() {
    let instances = "(core instance (instantiate $m))".repeat(200);
    let many = with_component(&format!("(component (core module $m) {instances})"));
    let failure = start_failure(&many, Limits::default());
    assert!(matches!(failure, Failure::Instances { limit: 100 }), "{failure}");
    let extra = |extra: &str, count| Guest { extra: extra.repeat(count), ..Guest::default() }.component();
    let failure = start_failure(&extra("(memory 0) ", 4), Limits::default());
    assert!(failure.to_string().contains("memory count"), "{failure}");
    let failure = start_failure(&extra("(table 1 funcref) ", 40), Limits::default());
    assert!(failure.to_string().contains("table count"), "{failure}");
    assert_goes_on();
}

#[test]
fn tables_and_memories_that_are_too_large_from_the_start_are_refused() {
    let limits = Limits { table_elements_max: 1000, ..Limits::default() };
    let table = Guest { extra: "(table 2000 funcref)".to_owned(), ..Guest::default() };
    assert!(matches!(start_failure(&table.component(), limits), Failure::Tables { limit_elements: 1000, .. }));
    // The most that there is.
    let memory = Guest { pages: 65_536, ..Guest::default() };
    assert!(matches!(start_failure(&memory.component(), limits), Failure::Memory { .. }));
}

#[test]
fn a_component_that_doubles_with_each_level_within_is_refused_before_it_is_compiled() {
    let level = |within, _| format!("(component $c {within} (instance (instantiate $c)) (instance (instantiate $c)))");
    let bomb = (0..40).fold("(component $c (core module $m) (core instance (instantiate $m)))".to_owned(), level);
    let problem = refused_within(&with_component(&bomb), Limits::default());
    assert!(matches!(problem, Problem::Unfolds { .. }), "{problem}");
    // A small one is as good as any other.
    let (_folder, path) = file(&with_component("(component (core module $m) (core instance (instantiate $m)))"));
    engine().load(&name("op"), &path).expect("it loads");
    assert_goes_on();
}

/// With a core module that has one function of this body.
fn with_function(body: &str) -> Vec<u8> {
    with_component(&format!("(component (core module $m (func {body})) (core instance (instantiate $m)))"))
}

#[test]
fn functions_that_would_take_all_memory_to_compile_are_refused_before_they_are_compiled() {
    let nested = |levels: usize| format!("{}{}", "block ".repeat(levels), "end ".repeat(levels));
    let problem = refused_within(&with_function(&nested(NESTED_MAX + 1)), Limits::default());
    assert!(matches!(problem, Problem::DeepFunction { limit: NESTED_MAX }), "{problem}");
    let adds = |bytes: usize| format!("i32.const 0 {} drop", "i32.const 1 i32.add ".repeat(bytes / 3));
    let problem = refused_within(&with_function(&adds(BODY_BYTES_MAX)), Limits::default());
    assert!(matches!(problem, Problem::LargeFunction { limit_bytes: BODY_BYTES_MAX, .. }), "{problem}");
    // Many after each other are as good as one, and so are as many as may be within each other.
    let many = format!("{} {}", nested(1).repeat(NESTED_MAX + 1), nested(NESTED_MAX));
    let (_folder, path) = file(&with_function(&many));
    engine().load(&name("op"), &path).expect("it loads");
    assert_goes_on();
}

#[test]
fn imports_that_there_are_not_are_refused_wherever_they_would_come_from() {
    let foreign = WasiImports {
        core: r#"(import "evil:host/files@1.0.0" "open" (func $open_file (result i32)))"#.to_owned(),
        world: "import evil:host/files@1.0.0;".to_owned(),
        packages: "package evil:host@1.0.0 { interface files { open: func() -> u32; } }".to_owned(),
    };
    let problem = refusal(&Guest { wasi: foreign, ..Guest::default() }.component());
    assert!(matches!(&problem, Problem::Import { imports } if imports == &["evil:host/files@1.0.0"]), "{problem}");

    let sleep = ("now-ms: func() -> s64;", "now-ms: func() -> s64; sleep: func(ms: u64);");
    let import = r#"(import "lockgate:operator/runtime@0.1.0" "sleep" (func $sleep (param i64)))"#;
    let problem = refusal(&Guest { contract: sleep, import: (import, ""), ..Guest::default() }.component());
    assert!(matches!(&problem, Problem::Mismatch(text) if text.contains("sleep")), "{problem}");

    let signed = ("delta: u64", "delta: s64");
    let problem = refusal(&Guest { contract: signed, ..Guest::default() }.component());
    assert!(matches!(&problem, Problem::Mismatch(text) if text.contains("counter-add")), "{problem}");
}

/// A component that only has exports, by these names.
fn exporting(names: impl ExactSizeIterator<Item = String>) -> Vec<u8> {
    let mut content = Vec::new();
    leb128(names.len(), &mut content);
    for name in names {
        content.push(0);
        leb128(name.len(), &mut content);
        content.extend_from_slice(name.as_bytes());
        // The first function, of its own type.
        content.extend_from_slice(&[1, 0, 0]);
    }
    let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
    push_section(&mut wasm, 11, &content);
    wasm
}

#[test]
fn names_that_are_long_many_or_made_for_a_terminal_are_shown_harmlessly() {
    let evil = (0..5000).map(|number| format!("\u{1b}[2J\r\n{number}{}", "x".repeat(1000)));
    let problem = refusal(&exporting(evil));
    assert!(matches!(&problem, Problem::NotAnOperator { exports, .. } if exports.len() == 5000));
    let said = problem.to_string();
    assert!(said.len() < 2_000 && said.contains("and 4994 more") && !said.contains(char::is_control), "{said}");
    let version = exporting(["lockgate:operator/operator@\u{1b}[31m\n9.9.9".to_owned()].into_iter());
    let said = refusal(&version).to_string();
    assert!(said.contains("9.9.9") && !said.contains(char::is_control), "{said}");
}
