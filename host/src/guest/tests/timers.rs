//! Timers, time and rejections across the boundary: what a guest sets comes back, and what it may not do ends its call.

use tempfile::TempDir;

use super::guest::{DATA, EMIT_INPUT, Guest, RESULT, TEXT};
use super::*;
use crate::guest::{Call, Clock, Emitted, Failure, Fired, Misuse, OperatorInstance, RejectedTimer, Rejection};
use crate::id::{Attempt, Epoch};
use crate::protocol::MaxParallelism;
use crate::state::{BlockCache, KeyedState, StateError, StateOptions, TIMERS_TABLE};
use crate::store::TableRef;

/// Sets an event-time timer for each row of the batch: its key, its value as the tag, its timestamp as the time.
pub const SET_TIMERS: &str = "(call $write_timers (i32.const 0) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
    (local.get 6) (local.get 7) (local.get 8) (local.get 9) (local.get 10) (local.get 11)
    (i32.const 0) (i32.const 0))";

/// Rejects rows of the batch, without a message.
pub fn reject(rows: &[u32]) -> String {
    let record = |(index, row): (usize, &u32)| {
        let at = DATA as usize + index * 12;
        format!("(i32.store (i32.const {at}) (i32.const {row}))")
    };
    let records = rows.iter().enumerate().map(record).collect::<Vec<_>>().join(" ");
    format!(
        "{records} (i32.store (i32.const {}) (i32.const {DATA})) (i32.store (i32.const {}) (i32.const {}))",
        RESULT + 4,
        RESULT + 8,
        rows.len()
    )
}

/// State of subtask `index` of two, with timers.
fn state(index: u32) -> (TempDir, KeyedState) {
    let folder = tempfile::tempdir().expect("a folder");
    let max_parallelism = MaxParallelism::new(16).expect("in range");
    let options = StateOptions {
        work_dir: folder.path().join("work"),
        subtask: SubtaskId { operator: name("op"), index },
        key_groups: max_parallelism.range(index, 2),
        max_parallelism,
        attempt: Attempt(1),
        tables: vec![TableRef { name: TIMERS_TABLE.to_owned(), version: 1 }],
        memory_bytes_max: 1 << 20,
        block_cache: BlockCache::new(1 << 20),
    };
    (folder, KeyedState::open(options, &[], &|_, _| Ok(())).expect("empty state"))
}

/// An instance with timers, as the second subtask of two.
pub fn open_timed(guest: Guest, rejections: bool) -> (TempDir, Instance) {
    open_timed_within(guest, rejections, Limits::default())
}

pub fn open_timed_within(guest: Guest, rejections: bool, limits: Limits) -> (TempDir, Instance) {
    let plugin = load_bytes(&Guest { timers: true, ..guest }.component()).expect("it loads");
    let (folder, state) = state(1);
    let context = InstanceContext { rejections, state: Some(state), ..context(limits) };
    (folder, plugin.instantiate(context).expect("it opens"))
}

/// Keys of the second subtask of two, so many.
fn own_keys(count: usize) -> Vec<String> {
    let max = MaxParallelism::new(16).expect("in range");
    let keys = (0..).map(|n: u32| format!("k{n}"));
    keys.filter(|key| max.subtask(max.key_group(key.as_bytes()), 2) == 1).take(count).collect()
}

/// Records of own keys with these times, their numbers as values.
pub fn timed(times: &[i64]) -> Batch {
    let mut batch = Batch::default();
    for (index, (key, timestamp)) in own_keys(times.len()).iter().zip(times).enumerate() {
        let value = index.to_string();
        batch.push(Row { key: Some(key.as_bytes()), value: Some(value.as_bytes()), timestamp: *timestamp });
    }
    batch
}

fn process(instance: &mut Instance, batch: &Batch) -> Vec<Rejection> {
    instance.process(0, batch, &mut Emitted::new()).expect("it processes")
}

#[test]
fn timers_come_back_in_the_order_of_their_times_once_they_are_due() {
    let guest = Guest { process: SET_TIMERS.to_owned(), on_timers: EMIT_INPUT.to_owned(), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest, false);
    process(&mut instance, &timed(&[30, 10, 20, 40]));
    assert_eq!(instance.next_timer(Clock::EventTime), Some(10));
    assert_eq!(instance.next_timer(Clock::ProcessingTime), None);
    let mut emitted = Emitted::new();
    assert_eq!(instance.fire_timers(Clock::EventTime, 9, &mut emitted).expect("none"), Fired::default());
    assert_eq!(instance.fire_timers(Clock::ProcessingTime, 99, &mut emitted).expect("none"), Fired::default());
    let fired = instance.fire_timers(Clock::EventTime, 30, &mut emitted).expect("they fire");
    assert_eq!((fired.rows, fired.rejections.len()), (3, 0));
    let keys = own_keys(4);
    let expected = [(&keys[1], "1", 10), (&keys[2], "2", 20), (&keys[0], "0", 30)];
    let mut batch = Batch::default();
    for (key, tag, timestamp) in expected {
        batch.push(Row { key: Some(key.as_bytes()), value: Some(tag.as_bytes()), timestamp });
    }
    assert_eq!(emitted, [(0, batch)]);
    assert_eq!(instance.fire_timers(Clock::EventTime, 30, &mut emitted).expect("none"), Fired::default());
    assert_eq!(instance.next_timer(Clock::EventTime), Some(40));
}

#[test]
fn one_call_fires_a_bounded_number_of_timers() {
    let (_folder, mut instance) = open_timed(Guest { process: SET_TIMERS.to_owned(), ..Guest::default() }, false);
    process(&mut instance, &timed(&[7; 2500]));
    let mut rows = Vec::new();
    while rows.last() != Some(&0) {
        rows.push(instance.fire_timers(Clock::EventTime, 7, &mut Emitted::new()).expect("they fire").rows);
    }
    assert_eq!(rows, [1024, 1024, 452, 0]);
}

#[test]
fn the_operator_sees_the_watermark_with_its_timers_and_the_time_that_it_is_told() {
    let check =
        |time: &str, expected: i64| format!("(if (i64.ne (call ${time}) (i64.const {expected})) (then (unreachable)))");
    let guest = Guest {
        process: format!("{SET_TIMERS} {} {}", check("watermark", i64::MIN), check("now", 77)),
        on_timers: check("watermark", 100),
        watermark: check("watermark", 100),
        snapshot: check("watermark", 100),
        ..Guest::default()
    };
    let (_folder, mut instance) = open_timed(guest, false);
    instance.set_now(77);
    process(&mut instance, &timed(&[1]));
    instance.fire_timers(Clock::EventTime, 100, &mut Emitted::new()).expect("the watermark is 100");
    instance.watermark(100, &mut Emitted::new()).expect("the watermark is 100");
    // One that goes back changes nothing.
    instance.watermark(50, &mut Emitted::new()).expect("the watermark is 100");
    instance.snapshot(crate::id::Epoch(1)).expect("the watermark is 100");
    instance.process(0, &timed(&[2]), &mut Emitted::new()).expect_err("the check does check");
}

#[test]
fn a_call_that_fails_sets_no_timer() {
    let process = format!("{SET_TIMERS} (if (i32.gt_u (local.get 1) (i32.const 1)) (then (unreachable)))");
    let (_folder, mut instance) = open_timed(Guest { process, ..Guest::default() }, false);
    self::process(&mut instance, &timed(&[5]));
    instance.process(0, &timed(&[3, 4]), &mut Emitted::new()).expect_err("it traps");
    assert_eq!(instance.next_timer(Clock::EventTime), Some(5));
}

#[test]
fn timers_of_foreign_keys_and_undeclared_ones_end_the_call() {
    let guest = || Guest { process: SET_TIMERS.to_owned(), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest(), false);
    let mut foreign = Batch::default();
    (0..20u32).for_each(|n| foreign.push(Row { key: Some(&n.to_le_bytes()), value: None, timestamp: 1 }));
    let error = instance.process(0, &foreign, &mut Emitted::new()).expect_err("not its keys");
    assert!(matches!(*error.failure, Failure::State(StateError::ForeignKey { .. })), "{error}");
    let error = open(&guest()).process(0, &timed(&[1]), &mut Emitted::new()).expect_err("it declares none");
    assert!(matches!(*error.failure, Failure::Misuse(Misuse::NoTimers)), "{error}");
}

#[test]
fn timers_that_set_themselves_again_without_an_end_are_stopped() {
    let guest = Guest { process: SET_TIMERS.to_owned(), on_timers: SET_TIMERS.to_owned(), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest, false);
    process(&mut instance, &timed(&[5]));
    let error = (0..100_000).find_map(|_| instance.fire_timers(Clock::EventTime, 9, &mut Emitted::new()).err());
    let error = error.expect("it is stopped");
    assert_eq!(error.call, Call::Timers { clock: Clock::EventTime, rows: 1 });
    assert!(matches!(*error.failure, Failure::Misuse(Misuse::EndlessTimers { .. })), "{error}");
}

#[test]
fn rejections_come_out_where_they_are_allowed_with_what_was_rejected() {
    let guest =
        Guest { process: format!("{SET_TIMERS} {}", reject(&[0, 2])), on_timers: reject(&[1]), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest, true);
    let rejections = process(&mut instance, &timed(&[10, 20, 30]));
    assert_eq!(rejections.iter().map(|rejection| rejection.row).collect::<Vec<_>>(), [0, 2]);
    let fired = instance.fire_timers(Clock::EventTime, 99, &mut Emitted::new()).expect("they fire");
    let timer = RejectedTimer { key: own_keys(2)[1].clone().into_bytes(), tag: b"1".to_vec(), time_ms: 20 };
    let rejection = Rejection { row: 1, message: String::new() };
    assert_eq!(fired, Fired { rows: 3, rejections: vec![(rejection, timer)] });
    assert_eq!(instance.next_timer(Clock::EventTime), None);
}

#[test]
fn rejections_that_make_no_sense_are_refused() {
    let refused = |rows: &[u32], allowed: bool| {
        let (_folder, mut instance) = open_timed(Guest { process: reject(rows), ..Guest::default() }, allowed);
        let mut emitted = Emitted::new();
        match *instance.process(0, &timed(&[1, 2, 3]), &mut emitted).expect_err("refused").failure {
            Failure::Misuse(misuse) => misuse,
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&[0], false), Misuse::RejectionForbidden);
    assert_eq!(refused(&[3], true), Misuse::RejectedRow { row: 3, rows: 3 });
    assert_eq!(refused(&[1, 1], true), Misuse::RejectedRow { row: 1, rows: 3 });
    assert_eq!(refused(&[2, 0], true), Misuse::RejectedRow { row: 0, rows: 3 });
}

#[test]
fn what_a_snapshot_that_is_too_large_has_written_is_forgotten() {
    let (key, zeros) = (own_keys(1).remove(0), DATA + 64);
    let opened = |bytes: u32| {
        let snapshot = format!(
            "(i32.store (i32.const {}) (i32.const {length}))
            (call $write_timers (i32.const 0) (i32.const {TEXT}) (i32.const {length}) (i32.const {DATA}) (i32.const 8)
                (i32.const 0) (i32.const 0) (i32.const {zeros}) (i32.const 8) (i32.const {zeros}) (i32.const 8)
                (i32.const 0) (i32.const 0))
            (i32.store (i32.const {}) (i32.const {bytes}))",
            DATA + 4,
            RESULT + 8,
            length = key.len(),
        );
        let extra = format!("(data (i32.const {TEXT}) \"{key}\")");
        let guest = Guest { timers: true, snapshot, extra, ..Guest::default() };
        let plugin = load_bytes(&guest.component()).expect("it loads");
        let (folder, state) = state(1);
        let limits = Limits { output_bytes_max: 1000, ..Limits::default() };
        let instance = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) });
        (folder, instance.expect("it opens"))
    };
    let (_folder, mut good) = opened(1000);
    good.snapshot(Epoch(1)).expect("within the limit");
    assert_eq!(good.next_timer(Clock::EventTime), Some(0));
    let (_folder, mut bad) = opened(1001);
    let error = bad.snapshot(Epoch(1)).expect_err("beyond it");
    assert!(matches!(*error.failure, Failure::Output { limit_bytes: 1000 }), "{error}");
    assert_eq!(bad.next_timer(Clock::EventTime), None);
}
