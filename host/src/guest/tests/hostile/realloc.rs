//! Guests that misuse the two calls which come in the middle of others: for memory, and behind an answer.

use super::super::guest::{DATA, EMIT_INPUT, Guest, emit_zeros};
use super::super::*;
use super::{DIG, SPIN, assert_goes_on, short, trap};
use crate::element::Malformed;
use crate::guest::{Call, Emitted, Failure, Misuse, OperatorInstance};
use crate::id::Epoch;

/// What a call for the values of a row's key looks like, and when `realloc` is armed.
const ARMED: &str = "(global $armed (mut i32) (i32.const 0))";
const GET: &str = "(global.set $armed (i32.const 1))
    (call $get_many (i32.const 0) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 16384))";

/// What `process` ends with if this is done when the host asks for memory for its records.
fn for_records(realloc: &str, limits: Limits) -> Failure {
    let guest = Guest {
        process: EMIT_INPUT.to_owned(),
        realloc: realloc.to_owned(),
        extra: DIG.to_owned(),
        ..Guest::default()
    };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    // Opening asks for memory as well: only what comes behind it is bad.
    let error = match plugin.instantiate(context(limits)) {
        Ok(mut instance) => instance.process(0, &batch(&["a"]), &mut Emitted::new()).map(drop).expect_err("it fails"),
        Err(error) => {
            assert_eq!(error.call, Call::Open);
            error
        }
    };
    assert_goes_on();
    *error.failure
}

/// What `process` ends with if this is done when the host asks for memory for an answer of its own.
fn for_an_answer(realloc: &str, limits: Limits) -> Failure {
    let guest = Guest {
        tables: vec![("counts", 0, 1)],
        process: GET.to_owned(),
        realloc: format!("(if (global.get $armed) (then {realloc}))"),
        extra: format!("{ARMED} {DIG}"),
        ..Guest::default()
    };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let (_folder, state) = whole_state(&["counts"], 1 << 20);
    let opened = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) });
    let error = opened.expect("it opens").process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it fails");
    assert_eq!(error.call, Call::Process { port: 0, rows: 1 });
    assert_goes_on();
    *error.failure
}

#[test]
fn memory_that_never_comes_ends_the_call_that_wanted_it() {
    for failure_of in [for_records, for_an_answer] {
        assert!(matches!(failure_of(SPIN, short()), Failure::Deadline { .. }));
        assert!(matches!(failure_of("unreachable", Limits::default()), Failure::Trap { .. }));
        assert!(matches!(failure_of("(call $dig)", Limits::default()), Failure::Stack { .. }));
        let limits = Limits { memory_bytes_max: 1 << 20, ..Limits::default() };
        let grow = "(loop $more (drop (memory.grow (i32.const 1))) (br $more))";
        assert!(matches!(failure_of(grow, limits), Failure::Memory { .. }));
    }
}

#[test]
fn memory_that_is_none_is_refused() {
    for failure_of in [for_records, for_an_answer] {
        for pointer in ["(i32.const -1)", "(i32.const -8)", "(i32.mul (memory.size) (i32.const 65536))"] {
            let words = trap(failure_of(&format!("(return {pointer})"), Limits::default()));
            assert!(words.contains("realloc"), "{pointer}: {words}");
        }
    }
    // A list of lists has to be aligned.
    let guest = Guest { realloc: "(return (i32.const 20481))".to_owned(), ..Guest::default() };
    let error = open(&guest).restore(&[vec![1], vec![2]]).expect_err("it fails");
    assert!(trap(*error.failure).contains("align"));
}

#[test]
fn records_that_are_put_one_over_the_other_are_the_guest_s_own_trouble() {
    let failure = for_records("(return (i32.const 32768))", Limits::default());
    assert!(matches!(failure, Failure::Misuse(Misuse::MalformedBatch(Malformed::Offsets))), "{failure}");
    for_an_answer("(global.set $armed (i32.const 0)) unreachable", Limits::default());
}

#[test]
fn a_guest_that_is_asked_for_memory_can_t_call_the_host() {
    let log = "(call $log (i32.const 1) (i32.const 0) (i32.const 0))";
    for calls in [log.to_owned(), emit_zeros(0, 0), "(drop (call $now))".to_owned()] {
        for failure_of in [for_records, for_an_answer] {
            let words = trap(failure_of(&calls, Limits::default()));
            assert!(words.contains("cannot leave component instance"), "{words}");
        }
    }
}

#[test]
fn a_call_that_never_comes_back_from_behind_its_answer_has_failed() {
    let ended = |fault: &str, limits: Limits| {
        let behind = |function: &str| {
            format!(r#"(func (export "cabi_post_lockgate:operator/operator@0.1.0#{function}") (param i32) {fault})"#)
        };
        let extra = format!("{DIG} {} {}", behind("snapshot"), behind("process"));
        let guest = Guest { process: emit_zeros(0, 1), extra, ..Guest::default() };
        let plugin = load_bytes(&guest.component()).expect("it loads");
        let open = || plugin.instantiate(context(limits)).expect("it opens");
        let snapshot = open().snapshot(Epoch(1)).expect_err("it fails");
        assert_eq!(snapshot.call, Call::Snapshot { epoch: Epoch(1) });
        let mut emitted = Emitted::new();
        let process = open().process(0, &batch(&["a"]), &mut emitted).expect_err("it fails");
        assert!(emitted.is_empty());
        assert_eq!(snapshot.failure.word(), process.failure.word());
        assert_goes_on();
        *snapshot.failure
    };
    assert!(matches!(ended(SPIN, short()), Failure::Deadline { .. }));
    assert!(matches!(ended("unreachable", Limits::default()), Failure::Trap { .. }));
    assert!(matches!(ended("(call $dig)", Limits::default()), Failure::Stack { .. }));
    let calls = format!("(call $log (i32.const 1) (i32.const {DATA}) (i32.const 0))");
    assert!(trap(ended(&calls, Limits::default())).contains("cannot leave component instance"));
}
