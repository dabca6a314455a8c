//! What goes in comes out: batches cross the boundary whole, and only successful calls count.

use super::guest::{DATA, EMIT_INPUT, Guest, RESULT};
use super::*;
use crate::element::Header;
use crate::guest::{Emitted, OperatorFactory, OperatorInstance};
use crate::id::Epoch;

#[test]
fn a_batch_crosses_the_boundary_both_ways_unchanged() {
    let mut instance = open(&Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() });
    let mut emitted = Emitted::new();
    let long = "x".repeat(100_000);
    let mut with_headers = batch(&["a", "b", "c"]);
    with_headers.push_header(Header { name: "name", value: None });
    with_headers.push(Row { key: None, value: None, timestamp: 3 });
    let batches = [batch(&["a", "", "c", &long]), with_headers, batch(&["only"])];
    for sent in &batches {
        instance.process(0, sent, &mut emitted).expect("it passes");
    }
    assert_eq!(emitted, batches.map(|batch| (0, batch)));
}

#[test]
fn an_empty_batch_is_not_passed_on() {
    let mut instance = open(&Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() });
    let mut emitted = Emitted::new();
    instance.process(0, &batch(&[]), &mut emitted).expect("it passes");
    assert!(emitted.is_empty());
}

#[test]
fn snapshots_are_restored_and_instances_are_apart() {
    // Restore copies the first state's pointer and length to where snapshot answers from.
    let restore = format!(
        "(i32.store (i32.const {pointer}) (i32.load (local.get 0)))
         (i32.store (i32.const {length}) (i32.load offset=4 (local.get 0))) (return (i32.const {DATA}))",
        pointer = RESULT + 4,
        length = RESULT + 8,
    );
    let plugin = load_bytes(&Guest { restore, ..Guest::default() }.component()).expect("it loads");
    let open = || OperatorFactory::open(&plugin, context(Limits::default())).expect("it opens");
    let (mut first, mut second) = (open(), open());
    first.restore(&[b"kept".to_vec(), b"other".to_vec()]).expect("restored");
    assert_eq!(first.snapshot(Epoch(1)).expect("a snapshot"), b"kept");
    assert_eq!(second.snapshot(Epoch(1)).expect("a snapshot"), b"");
    assert!(second.keyed_state().is_none());
    first.close().expect("closed");
}

#[test]
fn the_context_reaches_open() {
    // Traps unless subtask is 1, parallelism 2, and the names and the configuration have their lengths.
    let check = |parameter: u32, value: u32| {
        format!("(if (i32.ne (local.get {parameter}) (i32.const {value})) (then (unreachable)))")
    };
    let expected = [(1, "job".len() as u32), (3, "op".len() as u32), (4, 1), (5, 2), (7, "{}".len() as u32)];
    let checks = expected.map(|(parameter, value)| check(parameter, value)).join(" ");
    open(&Guest { open: checks, ..Guest::default() });
    let wrong = Guest { open: check(4, 0), ..Guest::default() };
    open_with(&wrong, Limits::default()).map(|_| ()).expect_err("the checks do check");
}

#[test]
fn an_instance_outlives_its_engine_and_keeps_its_deadline() {
    let spin = Guest { process: "(loop $spin (br $spin))".to_owned(), ..Guest::default() };
    let (_folder, path) = file(&spin.component());
    let engine = Engine::new(None, Compiler::InProcess).expect("an engine");
    let plugin = engine.load(&name("op"), &path).expect("it loads");
    let limits = Limits { call_timeout: std::time::Duration::from_millis(30), ..Limits::default() };
    let mut instance = plugin.instantiate(context(limits)).expect("it opens");
    drop((engine, plugin));
    instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("the clock still ticks");
}
