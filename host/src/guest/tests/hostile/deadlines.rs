//! Guests in whose calls the time goes by on the host's side, where the engine doesn't look at its clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::guest::{DATA, Guest, TEXT, emit_zeros, list, store_words};
use super::super::*;
use super::assert_goes_on;
use crate::guest::{Emitted, Failure, OperatorInstance};
use crate::state::{KEY_BYTES_MAX, TIMERS_TABLE};

#[test]
fn a_look_up_of_millions_of_keys_ends_with_the_time_of_its_call() {
    // If it came to the last of them it would find that one too long.
    let (rows, long, offsets) = (16u32 << 20, KEY_BYTES_MAX as u32 + 1, 2 << 20);
    let last = store_words(offsets + rows * 4, &[long]);
    let keys = format!("{} {}", list(0, long), list(offsets, (rows + 1) * 4));
    let none = list(0, 0);
    let process = format!("{last} (call $get_many (i32.const 0) {keys} {none} {none} (i32.const {DATA}))");
    let guest = Guest { tables: vec![("counts", 0, 1)], process, pages: 32 + 1025, ..Guest::default() };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let (_folder, state) = whole_state(&["counts"], 1 << 20);
    let limits = Limits { call_timeout: Duration::from_millis(30), ..Limits::default() };
    let opened = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) });
    let error = opened.expect("it opens").process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it is ended");
    assert!(matches!(*error.failure, Failure::Deadline { .. }), "{error}");
    assert_goes_on();
}

/// What becomes of a guest that makes a call of the host again and again while an hour goes by for the host, and no time for the
/// engine.
fn failure_within_an_hour(call: &str) -> Failure {
    let process = format!(
        "(loop $more {call} (local.set $i (i32.add (local.get $i) (i32.const 1)))
         (br_if $more (i32.lt_u (local.get $i) (i32.const 300000000))))"
    );
    let guest = Guest { tables: vec![("counts", 0, 1)], timers: true, process, ..Guest::default() };
    let (_component_folder, path) = file(&guest.component());
    let engine = Engine::new(None, Compiler::InProcess).expect("an engine");
    let plugin = engine.load(&name("op"), &path).expect("it loads");
    let (_folder, state) = whole_state(&["counts", TIMERS_TABLE], 1 << 20);
    let hour = Duration::from_secs(3600);
    let limits = Limits { call_timeout: hour, output_bytes_max: usize::MAX, ..Limits::default() };
    let context = InstanceContext { state: Some(state), ..context(limits) };
    let mut instance = plugin.instantiate(context).expect("it opens");
    let (clock, is_over) = (engine.engines.clock(), AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                clock.tick();
            }
        });
        let outcome = instance.process(0, &batch(&["a"]), &mut Emitted::new());
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    *outcome.expect_err("its time is over").failure
}

#[test]
fn a_guest_that_does_nothing_but_call_the_host_ends_at_its_deadline_whatever_it_calls() {
    let none = list(0, 0);
    let nothing = |count| vec![none.as_str(); count].join(" ");
    for call in [
        format!("(call $log (i32.const 0) {})", list(TEXT, 1)),
        format!("(call $counter_add {} (i64.const 1))", list(TEXT, 1)),
        "(drop (call $now))".to_owned(),
        "(drop (call $watermark))".to_owned(),
        emit_zeros(0, 0),
        format!("(call $get_many (i32.const 0) {none} {} {} (i32.const 24576))", list(DATA, 4), nothing(2)),
        format!(
            "(call $write_many (i32.const 0) {none} {} {} {none} {} {none})",
            list(DATA, 4),
            nothing(2),
            list(DATA, 4)
        ),
        format!("(call $scan (i32.const 0) {none} (i32.const 0) {none} (i32.const 0) (i32.const 24576))"),
        format!("(call $write_timers (i32.const 0) {none} {} {none} {} {})", list(DATA, 4), list(DATA, 4), nothing(2)),
    ] {
        let failure = failure_within_an_hour(&call);
        assert!(matches!(failure, Failure::Deadline { .. }), "{call}: {failure}");
    }
    assert_goes_on();
}
