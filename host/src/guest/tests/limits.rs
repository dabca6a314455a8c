//! Limits hold, and breaking one is told with its figure.

use std::time::Duration;

use super::guest::{EMIT_INPUT, Guest, RESULT, emit_zeros, log};
use super::*;
use crate::element::Header;
use crate::guest::{Call, Emitted, Failure, OperatorInstance};
use crate::id::Epoch;

const MIB: usize = 1024 * 1024;

fn process_failure(process: &str, limits: Limits) -> Failure {
    let mut instance = open_with(&Guest { process: process.to_owned(), ..Guest::default() }, limits).expect("it opens");
    *instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it breaks a limit").failure
}

#[test]
fn memory_beyond_the_limit_is_refused_while_running_and_at_the_start() {
    let limits = Limits { memory_bytes_max: 4 * MIB, ..Limits::default() };
    let bomb = "(loop $more (drop (memory.grow (i32.const 1))) (br $more))";
    let failure = process_failure(bomb, limits);
    assert!(matches!(failure, Failure::Memory { limit_bytes, .. } if limit_bytes == 4 * MIB), "{failure}");
    let big = Guest { pages: 65, ..Guest::default() };
    let error = open_with(&big, limits).map(|_| ()).expect_err("too big from the start");
    assert_eq!(error.call, Call::Instantiate);
    assert!(matches!(*error.failure, Failure::Memory { .. }), "{error}");
    open_with(&Guest { pages: 64, ..Guest::default() }, limits).expect("just fits");
}

#[test]
fn a_flood_of_output_is_refused_however_it_is_cut() {
    let limits = Limits { output_bytes_max: MIB, ..Limits::default() };
    let flood = |emit: &str| format!("(loop $more {emit} (br $more))");
    for emit in [emit_zeros(0, 1000), emit_zeros(0, 1), emit_zeros(0, 0)] {
        let failure = process_failure(&flood(&emit), limits);
        assert!(matches!(failure, Failure::Output { limit_bytes } if limit_bytes == MIB), "{failure}");
    }
}

#[test]
fn headers_count_as_output() {
    let limits = Limits { output_bytes_max: MIB, ..Limits::default() };
    let mut sent = batch(&["a"]);
    sent.push_header(Header { name: "large", value: Some(&[0; MIB]) });
    let guest = Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() };
    let outcome = open_with(&guest, limits).expect("it opens").process(0, &sent, &mut Emitted::new());
    let error = outcome.expect_err("beyond the limit");
    assert!(matches!(*error.failure, Failure::Output { limit_bytes: MIB }), "{error}");
}

#[test]
fn the_output_limit_is_per_call() {
    let limits = Limits { output_bytes_max: 8 * 1024, ..Limits::default() };
    let guest = Guest { process: emit_zeros(0, 200), ..Guest::default() };
    let mut instance = open_with(&guest, limits).expect("it opens");
    let mut emitted = Emitted::new();
    for _ in 0..10 {
        instance.process(0, &batch(&["a"]), &mut emitted).expect("within the limit");
    }
    assert_eq!(emitted.len(), 10);
}

#[test]
fn a_snapshot_beyond_the_output_limit_is_refused() {
    let limits = Limits { output_bytes_max: 1000, ..Limits::default() };
    let snapshot = |bytes: u32| {
        let snapshot = format!("(i32.store (i32.const {}) (i32.const {bytes}))", RESULT + 8);
        open_with(&Guest { snapshot, ..Guest::default() }, limits).expect("it opens").snapshot(Epoch(3))
    };
    assert_eq!(snapshot(1000).expect("within the limit").len(), 1000);
    let error = snapshot(1001).expect_err("beyond it");
    assert!(matches!(*error.failure, Failure::Output { limit_bytes: 1000 }), "{error}");
    assert!(error.to_string().contains("snapshot (epoch 3)"), "{error}");
}

#[test]
fn tables_of_functions_are_bounded() {
    let guest = Guest {
        extra: "(table $t 1 funcref)".to_owned(),
        process:
            "(if (i32.eq (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1)) (then (unreachable)))"
                .to_owned(),
        ..Guest::default()
    };
    let error = open(&guest).process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("it can't grow");
    assert!(matches!(*error.failure, Failure::Trap { .. }), "{error}");
}

#[test]
fn a_flood_of_log_lines_and_counters_is_survived() {
    let counted = "(call $counter_add (i32.const 8192) (i32.const 4) (i64.const 2))";
    let process = format!(
        "{} (loop $more {counted} (call $log (i32.const 0) (i32.const 8192) (i32.const 4))
         (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $more (i32.lt_u (local.get $i) (i32.const 10000))))",
        log(0, "late")
    );
    let guest = Guest { process, ..Guest::default() };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let context = context(Limits { call_timeout: Duration::from_secs(60), ..Limits::default() });
    let counters = context.counters.clone();
    let mut instance = plugin.instantiate(context).expect("it opens");
    instance.process(0, &batch(&[]), &mut Emitted::new()).expect("it only talks");
    assert_eq!(counters.read()[&name("late")], 20_000);
}
