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

#[cfg(target_os = "linux")]
#[test]
fn a_memory_that_has_grown_large_may_have_huge_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return;
    }
    let process = format!("(drop (memory.grow (i32.const 256))) {EMIT_INPUT}");
    let mut instance = open_with(&Guest { process, ..Guest::default() }, Limits::default()).expect("it opens");
    instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect("within the limit");
    let mappings = std::fs::read_to_string("/proc/self/smaps").expect("of this process");
    // `hg`: huge pages are advised. Nobody else here has a memory of that size and asks for them.
    assert!(mappings.lines().any(|line| line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "hg")));
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
fn tables_of_functions_are_bounded_all_together() {
    let limits = Limits { table_elements_max: 1000, ..Limits::default() };
    let grow = |table: &str, elements: u32| {
        let grown = format!("(table.grow {table} (ref.null func) (i32.const {elements}))");
        format!("(if (i32.eq {grown} (i32.const -1)) (then (unreachable)))")
    };
    let guest = |process: String| Guest {
        extra: "(table $t 1 funcref) (table $u 1 funcref) (table $small 1 10 funcref)".to_owned(),
        process,
        ..Guest::default()
    };
    let run = |guest: &Guest| {
        let mut instance = open_with(guest, limits).expect("it opens");
        instance.process(0, &batch(&["a"]), &mut Emitted::new())
    };
    run(&guest(format!("{} {}", grow("$t", 400), grow("$u", 400)))).expect("within the limit");
    let error = run(&guest(format!("{} {}", grow("$t", 600), grow("$u", 600)))).expect_err("beyond it");
    assert!(matches!(*error.failure, Failure::Tables { limit_elements: 1000, .. }), "{error}");
    assert!(error.to_string().contains("table elements") && error.help().contains("`tables`"), "{error}");
    // What a table's own declaration forbids is no matter of limits.
    let own = "(drop (table.grow $small (ref.null func) (i32.const 100000)))".to_owned();
    run(&guest(own)).expect("it is only told no");
}

#[test]
fn a_component_of_many_instances_is_refused() {
    let limits = Limits { core_instances_max: 1, ..Limits::default() };
    let error = open_with(&Guest::default(), limits).map(|_| ()).expect_err("it has more than one");
    assert_eq!(error.call, Call::Instantiate);
    assert!(matches!(*error.failure, Failure::Instances { limit: 1 }), "{error}");
    assert!(error.help().contains("`instances`"), "{}", error.help());
    let (_folder, path) = file(&Guest::default().component());
    let error = engine().load_within(&name("op"), &path, limits).map(|_| ()).expect_err("already when it is loaded");
    assert!(error.to_string().contains("more than 1 core instances"), "{error}");
}

#[test]
fn the_stack_is_as_large_as_the_limit_says() {
    let guest = Guest {
        process: "(drop (call $dig (i32.const 8000)))".to_owned(),
        extra: "(func $dig (param $depth i32) (result i32)
            (if (i32.eqz (local.get $depth)) (then (return (i32.const 0))))
            (i32.add (local.get $depth) (call $dig (i32.sub (local.get $depth) (i32.const 1)))))"
            .to_owned(),
        ..Guest::default()
    };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let run = |stack_bytes_max| {
        let limits = Limits { stack_bytes_max, ..Limits::default() };
        let mut instance = plugin.instantiate(context(limits)).expect("it opens");
        instance.process(0, &batch(&["a"]), &mut Emitted::new())
    };
    run(MIB).expect("deep enough");
    let error = run(64 * 1024).expect_err("not deep enough");
    assert!(matches!(*error.failure, Failure::Stack { limit_bytes: 65_536 }), "{error}");
    assert!(error.help().contains("`stack`"), "{}", error.help());
}

#[test]
fn keyed_state_is_bounded_and_what_was_accepted_stays() {
    let write = "(call $write_many (i32.const 0) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
        (local.get 6) (local.get 7) (local.get 8) (local.get 9) (i32.const 0) (i32.const 0))";
    let guest = Guest { tables: vec![("kept", 0, 1)], process: write.to_owned(), ..Guest::default() };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let limits = Limits { state_bytes_max: 2 * MIB as u64, ..Limits::default() };
    let (_folder, state) = whole_state(&["kept"], 16 * MIB);
    let mut instance = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) }).expect("it opens");
    let mut process = |number: u32| {
        let mut batch = Batch::default();
        batch.push(Row { key: Some(&number.to_le_bytes()), value: Some(&[7; 100_000]), timestamp: 0 });
        instance.process(0, &batch, &mut Emitted::new()).map(|_| ())
    };
    let (accepted, error) =
        (0..).find_map(|number| process(number).err().map(|error| (number, error))).expect("an end");
    assert!((18..=22).contains(&accepted), "{accepted} entries of 100,000 bytes in two megabytes");
    assert!(
        matches!(*error.failure, Failure::StateSize { limit_bytes, .. } if limit_bytes == 2 * MIB as u64),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("operator 'op[1]' failed in process") && error.help().contains("`state`"),
        "{error}"
    );
    let left = instance.keyed_state().expect("it has state").metrics();
    assert_eq!(left.memory_entries, accepted as usize, "nothing of the failed call is left");
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
