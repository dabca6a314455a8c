//! Guests that loop, panic, lie and misuse the host: each ends its own call with an error that says so, and nothing else.

use std::time::Duration;

use super::guest::{DATA, EMIT_INPUT, Guest, RESULT, emit, emit_zeros, log};
use super::*;
use crate::element::{BadHeaders, Malformed};
use crate::guest::{Call, Emitted, ErrorKind, Failure, Misuse, OperatorInstance};
use crate::id::Epoch;

/// What a `process` with these instructions ends with. Afterwards the host must still run a good guest.
fn process_error(process: &str, limits: Limits) -> OperatorError {
    process_error_of(&Guest { process: process.to_owned(), ..Guest::default() }, limits)
}

fn process_error_of(guest: &Guest, limits: Limits) -> OperatorError {
    let mut instance = open_with(guest, limits).expect("it opens");
    let mut emitted = Emitted::new();
    let error = instance.process(0, &batch(&["a", "b"]), &mut emitted).expect_err("it fails");
    assert!(emitted.is_empty(), "nothing of a failed call gets out");
    assert_eq!(error.call, Call::Process { port: 0, rows: 2 });
    assert!(error.to_string().starts_with("operator 'op[1]' failed in process (input 0, 2 rows): "), "{error}");
    assert!(!error.help().is_empty());
    let mut good = open(&Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() });
    good.process(0, &batch(&["a"]), &mut emitted).expect("the host goes on");
    error
}

fn failure(process: &str) -> Failure {
    *process_error(process, Limits::default()).failure
}

const SPIN: &str = "(loop $spin (br $spin))";

#[test]
fn an_endless_loop_ends_at_its_deadline_wherever_it_is() {
    let limit = Duration::from_millis(50);
    let limits = Limits { call_timeout: limit, ..Limits::default() };
    let error = process_error(SPIN, limits);
    assert!(matches!(*error.failure, Failure::Deadline { limit: reached } if reached == limit), "{error}");
    let ends = |guest: Guest| open_with(&guest, limits).map(|_| ()).expect_err("it ends");
    let opening = ends(Guest { open: SPIN.to_owned(), ..Guest::default() });
    assert!(matches!(*opening.failure, Failure::Deadline { .. }) && opening.call == Call::Open, "{opening}");
    let mut late =
        open_with(&Guest { watermark: SPIN.to_owned(), snapshot: SPIN.to_owned(), ..Guest::default() }, limits)
            .expect("it opens");
    let error = late.watermark(1, &mut Emitted::new()).expect_err("it ends");
    assert!(matches!(*error.failure, Failure::Deadline { .. }), "{error}");
}

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
    assert!(matches!(*error.failure, Failure::Stack), "{error}");
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
    assert!(matches!(*error.failure, Failure::Stack), "{error}");
}

#[test]
fn reading_outside_of_memory_and_dividing_by_zero_trap() {
    for process in ["(drop (i32.load (i32.const -8)))", "(drop (i32.div_u (i32.const 1) (i32.const 0)))"] {
        assert!(matches!(failure(process), Failure::Trap { .. }), "{process}");
    }
}

#[test]
fn an_output_that_isn_t_there_is_named() {
    let misuse = failure(&emit_zeros(7, 1));
    assert!(matches!(misuse, Failure::Misuse(Misuse::NoSuchOutput { port: 7, outputs: 1 })), "{misuse}");
}

#[test]
fn malformed_batches_are_refused() {
    let malformed = |process: &str| match failure(process) {
        Failure::Misuse(Misuse::MalformedBatch(malformed)) => malformed,
        other => panic!("{other}"),
    };
    assert!(matches!(malformed(&emit(0, 2, 8, 16)), Malformed::Length { rows: 2, .. }));
    assert!(matches!(malformed(&emit(0, u32::MAX >> 1, 8, 16)), Malformed::Length { .. }));
    assert!(matches!(malformed(&emit(0, 2, 12, 15)), Malformed::Timestamps { .. }));
    let falling = format!("(i32.store (i32.const {}) (i32.const 9)) {}", DATA + 4, emit_zeros(0, 2));
    assert!(matches!(malformed(&falling), Malformed::Offsets));
}

#[test]
fn headers_that_lie_are_refused_and_those_of_no_row_are_none() {
    // Two rows of nothing, and headers of so many bytes that are all zero but for some.
    let emit = |bytes: u32, stores: &[(u32, i32)]| {
        let at = DATA + 1024;
        let store = |(offset, word): &(u32, i32)| format!("(i32.store (i32.const {}) (i32.const {word}))", at + offset);
        let stores = stores.iter().map(store).collect::<String>();
        let nothing = format!("(i32.const {DATA}) (i32.const 0))");
        let emit = emit_zeros(0, 2).strip_suffix(&nothing).expect("no headers").to_owned();
        format!("{stores} {emit} (i32.const {at}) (i32.const {bytes}))")
    };
    let malformed = |bytes, stores: &[(u32, i32)]| match failure(&emit(bytes, stores)) {
        Failure::Misuse(Misuse::MalformedBatch(malformed)) => malformed,
        other => panic!("{other}"),
    };
    assert_eq!(malformed(8, &[]), Malformed::Headers { rows: 2, bytes: 8 });
    assert_eq!(malformed(16, &[]), Malformed::Offsets);
    assert_eq!(malformed(15, &[(4, 3), (8, 3)]), Malformed::HeadersOfRow { row: 0, problem: BadHeaders::Length });
    assert_eq!(malformed(20, &[(8, 8), (12, -1)]), Malformed::HeadersOfRow { row: 1, problem: BadHeaders::Length });
    let name = [(8, 9), (12, 1), (16, 0xff)];
    assert_eq!(malformed(21, &name), Malformed::HeadersOfRow { row: 1, problem: BadHeaders::Name });

    let guest = Guest { process: emit(12, &[]), ..Guest::default() };
    let mut emitted = Emitted::new();
    open(&guest).process(0, &batch(&["a"]), &mut emitted).expect("rows without headers");
    assert_eq!(emitted[0].1.headers(1).count(), 0);
}

#[test]
fn lists_outside_of_memory_are_refused_however_they_wrap() {
    for (pointer, length) in [(u32::MAX, 1u32), (65_536 * 2 - 1, 2), (0, u32::MAX), (u32::MAX, u32::MAX)] {
        let list = format!("(i32.const {}) (i32.const {})", pointer as i32, length as i32);
        let none = "(i32.const 0) (i32.const 0)";
        let process =
            format!("(call $emit (i32.const 0) (i32.const 0) {list} {none} {none} {none} {none} {none} {none})");
        assert!(matches!(failure(&process), Failure::Trap { .. }), "{pointer} {length}");
    }
}

#[test]
fn text_that_isn_t_utf_8_is_refused() {
    let process = format!(
        "(i32.store8 (i32.const {DATA}) (i32.const 255)) (call $log (i32.const 1) (i32.const {DATA}) (i32.const 1))"
    );
    assert!(matches!(failure(&process), Failure::Trap { .. }));
}

#[test]
fn a_level_that_isn_t_there_and_a_result_that_is_none_are_refused() {
    assert!(matches!(failure("(call $log (i32.const 9) (i32.const 0) (i32.const 0))"), Failure::Trap { .. }));
    assert!(matches!(failure(&format!("(i32.store8 (i32.const {RESULT}) (i32.const 7))")), Failure::Trap { .. }));
    assert!(matches!(failure("(return (i32.const -4))"), Failure::Trap { .. }));
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
fn state_without_tables_is_refused() {
    let none = "(i32.const 0) (i32.const 0)";
    let process = format!("(call $write_many (i32.const 0) {none} {none} {none} {none} {none} {none} {none})");
    assert!(matches!(failure(&process), Failure::Misuse(Misuse::NoState)));
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
        at = super::guest::TEXT,
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
