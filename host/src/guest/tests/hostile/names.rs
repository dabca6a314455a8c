//! Texts that aren't UTF-8, wherever a guest hands over one.

use super::super::guest::{DATA, Guest, RESULT, STATIC, list, log, store, store_words};
use super::super::timers::{open_timed, reject, timed};
use super::super::*;
use super::{failure, trap};
use crate::guest::{Emitted, OperatorInstance};

const BAD: [u8; 4] = [b'a', 0xff, 0xc0, b'z'];

/// Puts the text into memory at [`DATA`].
fn bad() -> String {
    store(DATA, BAD)
}

fn is_about_utf_8(words: &str) -> bool {
    words.contains("utf-8")
}

#[test]
fn a_log_line_or_the_name_of_a_counter_that_isn_t_utf_8_is_refused() {
    let text = list(DATA, BAD.len() as u32);
    for call in [format!("(call $log (i32.const 1) {text})"), format!("(call $counter_add {text} (i64.const 1))")] {
        let words = trap(failure(&format!("{} {call}", bad())));
        assert!(is_about_utf_8(&words), "{words}");
    }
}

#[test]
fn a_panic_with_a_message_that_isn_t_utf_8_still_ends_the_call() {
    let words = trap(failure(&format!("{} unreachable", log(3, BAD))));
    assert!(is_about_utf_8(&words), "{words}");
}

#[test]
fn the_message_of_an_error_that_isn_t_utf_8_is_refused() {
    let error = format!("{} {} {}", bad(), store(RESULT, [1]), store_words(RESULT + 16, &[DATA, BAD.len() as u32]));
    let words = trap(failure(&error));
    assert!(is_about_utf_8(&words), "{words}");
}

#[test]
fn the_reason_of_a_rejection_that_isn_t_utf_8_is_refused() {
    // The message lies behind the row of the record that `reject` makes.
    let message = format!("{} {}", store(DATA + 100, BAD), store_words(DATA + 4, &[DATA + 100, BAD.len() as u32]));
    let guest = Guest { process: format!("{} {message}", reject(&[1])), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest, true);
    let error = instance.process(0, &timed(&[1, 2]), &mut Emitted::new()).expect_err("refused");
    let words = trap(*error.failure);
    assert!(is_about_utf_8(&words), "{words}");
}

#[test]
fn no_name_of_a_descriptor_may_be_anything_but_utf_8() {
    let names = ["operator", "1.2.3", "input", "output", "table"];
    for (place, name) in names.iter().enumerate() {
        let at = STATIC + names[..place].iter().map(|name| name.len()).sum::<usize>();
        let guest = Guest {
            name: names[0],
            inputs: vec![(names[2], false)],
            outputs: vec![names[3]],
            tables: vec![(names[4], 0, 1)],
            describe: store(at as u32, [0xff]),
            ..Guest::default()
        };
        let Problem::Describe(error) = refusal(&guest.component()) else { panic!("{name} is UTF-8") };
        let words = trap(*error.failure);
        assert!(is_about_utf_8(&words), "{name}: {words}");
    }
}

#[test]
fn names_of_functions_are_in_no_error() {
    let evil = r#"(func $"\1b[2Jevil\0a" (call $log (i32.const 1) (i32.const 0) (i32.const -1)))"#;
    let guest = Guest { process: r#"(call $"\1b[2Jevil\0a")"#.to_owned(), extra: evil.to_owned(), ..Guest::default() };
    let error = open(&guest).process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it isn't in memory");
    let said = error.to_string();
    assert!(said.contains("out of bounds") && !said.contains("evil") && !said.contains(char::is_control), "{said}");
}
