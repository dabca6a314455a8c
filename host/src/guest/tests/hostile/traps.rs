//! Calls that panic, trap or give up: each ends with an error that says so.

use super::super::guest::{Guest, RESULT, TEXT, emit_zeros, log};
use super::super::*;
use super::{failure, process_error, process_error_of};
use crate::guest::{Emitted, ErrorKind, Failure, Misuse, OperatorInstance};
use crate::id::Epoch;

#[test]
fn a_panic_is_told_with_its_message() {
    let process = format!("{} unreachable", log(3, "panicked at src/lib.rs:7: no such word"));
    let failure = failure(&process);
    assert!(
        matches!(&failure, Failure::Panic { message } if message == "panicked at src/lib.rs:7: no such word"),
        "{failure}"
    );
}

#[test]
fn an_error_logged_by_an_earlier_call_is_not_taken_for_a_panic() {
    let mut instance =
        open(&Guest { watermark: log(3, "just a complaint"), process: "unreachable".to_owned(), ..Guest::default() });
    instance.watermark(1, &mut Emitted::new()).expect("it only logs");
    let error = instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it traps");
    assert!(matches!(*error.failure, Failure::Trap { .. }), "{error}");
}

#[test]
fn an_endless_recursion_is_told_as_such() {
    let guest = Guest {
        process: "(call $dig)".to_owned(),
        extra: "(func $dig (call $dig) (call $dig))".to_owned(),
        ..Guest::default()
    };
    let error = process_error_of(&guest, Limits::default());
    assert!(matches!(*error.failure, Failure::Stack { .. }), "{error}");
}

#[test]
fn a_recursion_that_leaves_the_stack_in_memory_is_told_as_one_too() {
    let guest = Guest {
        process: "(call $dig (i32.const 100))".to_owned(),
        extra: "(func $dig (param $depth i32)
            (if (i32.eqz (local.get $depth)) (then (drop (i32.load (i32.const -8)))))
            (call $dig (i32.sub (local.get $depth) (i32.const 1)))
            (drop (i32.load (i32.const 8))))"
            .to_owned(),
        ..Guest::default()
    };
    let error = process_error_of(&guest, Limits::default());
    assert!(matches!(*error.failure, Failure::Stack { .. }), "{error}");
}

#[test]
fn reading_outside_of_memory_and_dividing_by_zero_trap() {
    for process in ["(drop (i32.load (i32.const -8)))", "(drop (i32.div_u (i32.const 1) (i32.const 0)))"] {
        assert!(matches!(failure(process), Failure::Trap { .. }), "{process}");
    }
}

#[test]
fn only_process_and_watermark_may_emit() {
    let emits = emit_zeros(0, 1);
    let forbidden = |error: OperatorError| matches!(*error.failure, Failure::Misuse(Misuse::EmitForbidden));
    let opening = open_with(&Guest { open: emits.clone(), ..Guest::default() }, Limits::default());
    assert!(forbidden(opening.map(|_| ()).expect_err("open may not")));
    let guest = Guest { snapshot: emits.clone(), restore: emits.clone(), close: emits, ..Guest::default() };
    assert!(forbidden(open(&guest).snapshot(Epoch(1)).expect_err("snapshot may not")));
    assert!(forbidden(open(&guest).restore(&[vec![1]]).expect_err("restore may not")));
    open(&guest).close().expect("what close emits only doesn't count");
}

#[test]
fn an_operator_s_own_error_keeps_its_kind_row_and_message() {
    let text = "not a number";
    let stored = log(0, text);
    let process = format!(
        "{stored} (i32.store8 (i32.const {r}) (i32.const 1)) (i32.store8 (i32.const {kind}) (i32.const 1))
         (i32.store8 (i32.const {some}) (i32.const 1)) (i32.store (i32.const {row}) (i32.const 1))
         (i32.store (i32.const {pointer}) (i32.const {at})) (i32.store (i32.const {length}) (i32.const {bytes}))
         {emits}",
        r = RESULT,
        kind = RESULT + 4,
        some = RESULT + 8,
        row = RESULT + 12,
        pointer = RESULT + 16,
        length = RESULT + 20,
        at = TEXT,
        bytes = text.len(),
        emits = emit_zeros(0, 1),
    );
    let error = process_error(&process, Limits::default());
    let Failure::Refused { kind: ErrorKind::BadRecord, row: Some(1), message } = &*error.failure else {
        panic!("{error}")
    };
    assert_eq!(message, text);
    assert!(!error.is_transient());
    assert!(error.to_string().ends_with("it can't process a record (row 1 of the batch): not a number"), "{error}");
}

#[test]
fn after_a_trap_the_instance_only_fails() {
    let mut instance = open(&Guest { process: "unreachable".to_owned(), ..Guest::default() });
    instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it traps");
    instance.watermark(1, &mut Emitted::new()).expect_err("it is dead");
    instance.close().expect_err("it is dead");
}
