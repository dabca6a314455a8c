//! Batches that are not what they say.

use super::super::guest::{DATA, Guest, emit, emit_zeros};
use super::super::*;
use super::failure;
use crate::element::{BadHeaders, Malformed};
use crate::guest::{Emitted, Failure, Misuse, OperatorInstance};

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
