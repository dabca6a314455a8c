//! Guests that lie to their keyed state, fill it, or ask it for more than there is time for.

use super::super::guest::{DATA, Guest, emit_zeros, list, store, store_words};
use super::super::migration::{column, old_state, own_keys};
use super::super::timers::{SET_TIMERS, open_timed_within, timed};
use super::super::*;
use super::{assert_goes_on, process_error};
use crate::element::{Column, Malformed};
use crate::guest::{Call, Clock, Emitted, Failure, Misuse, OperatorInstance};
use crate::id::Epoch;
use crate::state::{KEY_BYTES_MAX, StateError};

fn none() -> String {
    list(0, 0)
}

/// A column of one row with these bytes, put into memory at `at`; and how a call takes it.
fn one(at: u32, bytes: &[u8]) -> (String, String) {
    let length = bytes.len() as u32;
    let stored = format!("{} {}", store(at, bytes), store_words(at + 64, &[0, length]));
    (stored, format!("{} {}", list(at, length), list(at + 64, 8)))
}

/// Writes a value of one byte for a key.
fn write(table: u32, key: &[u8], value: u8) -> String {
    let ((key, taken_key), (value, taken_value)) = (one(DATA, key), one(DATA + 128, &[value]));
    format!(
        "{key} {value} (call $write_many (i32.const {}) {taken_key} {none} {none} {taken_value} {none})",
        table as i32,
        none = none()
    )
}

#[test]
fn state_without_tables_is_refused() {
    let failure = *process_error(&write(0, b"k", 1), Limits::default()).failure;
    assert!(matches!(failure, Failure::Misuse(Misuse::NoState)), "{failure}");
}

#[test]
fn tables_that_there_are_not_and_columns_that_lie_are_refused_in_every_call() {
    let refused = |process: String| {
        // Room for a key that is too long.
        let guest = Guest { tables: vec![("counts", 0, 1)], process, pages: 20, ..Guest::default() };
        let plugin = load_bytes(&guest.component()).expect("it loads");
        let (_folder, state) = whole_state(&["counts"], 1 << 20);
        let context = InstanceContext { state: Some(state), ..context(Limits::default()) };
        let mut instance = plugin.instantiate(context).expect("it opens");
        let error = instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("refused");
        assert_eq!(instance.keyed_state().expect("it has tables").metrics().memory_entries, 0);
        match *error.failure {
            Failure::State(error) => error,
            other => panic!("{other}"),
        }
    };
    let (key, taken) = one(DATA, b"k");
    let nothing = none();
    let get = |table: i32, keys: &str| {
        format!("{key} (call $get_many (i32.const {table}) {keys} {nothing} {nothing} (i32.const 24576))")
    };
    let scan = |table: i32, key: &str| {
        format!("(call $scan (i32.const {table}) {key} (i32.const 0) {nothing} (i32.const -1) (i32.const 24576))")
    };
    for process in [get(1, &taken), get(-1, &taken), scan(7, &nothing), write(1, b"k", 1), write(u32::MAX, b"k", 1)] {
        assert!(matches!(refused(process), StateError::NoSuchTable { tables: 1, .. }));
    }
    let lying = format!("{} {}", list(DATA, 3), list(DATA + 64, 8));
    let malformed = refused(get(0, &lying));
    assert!(matches!(malformed, StateError::Malformed { what: "keys", source: Malformed::Offsets, .. }), "{malformed}");
    let short = format!("{} {}", list(DATA, 1), list(DATA + 64, 7));
    assert!(matches!(refused(get(0, &short)), StateError::Malformed { what: "keys", .. }));
    // Two values for one key, and eight bytes that say which of the one row are deleted.
    let written = |values: &str, deletes: &str| {
        format!("{key} (call $write_many (i32.const 0) {taken} {nothing} {nothing} {values} {deletes})")
    };
    let two = format!("{nothing} {}", list(24_576, 12));
    assert!(matches!(refused(written(&two, &nothing)), StateError::Malformed { what: "values", .. }));
    let value = format!("{nothing} {}", list(24_576, 8));
    assert!(matches!(refused(written(&value, &list(24_576, 8))), StateError::Bitmap { rows: 1, bytes: 8, .. }));
    let long = list(0, KEY_BYTES_MAX as u32 + 1);
    assert!(matches!(refused(scan(0, &long)), StateError::KeyTooLong { .. }));
}

#[test]
fn a_snapshot_that_lies_about_its_state_is_refused_and_nothing_of_it_stays() {
    let foreign = (0u8..).map(|n| [b'a' + n]).find(|key| !is_own(key)).expect("half of them are");
    let own = own_keys(1)[0].clone().into_bytes();
    let refused = |snapshot: String| {
        let guest = Guest { tables: vec![("counts", 0, 1)], timers: true, snapshot, ..Guest::default() };
        let plugin = load_bytes(&guest.component()).expect("it loads");
        let (_folder, state) = old_state(&[], false);
        let context = InstanceContext { state: Some(state), ..context(Limits::default()) };
        let mut instance = plugin.instantiate(context).expect("it opens");
        let error = instance.snapshot(Epoch(3)).expect_err("refused");
        assert_eq!(error.call, Call::Snapshot { epoch: Epoch(3) });
        let state = instance.keyed_state().expect("it has tables");
        let (_, found) = state.get_many(0, &column([&own]), &Column::default()).expect("an own key");
        assert_eq!(found, [0], "what it wrote before it failed isn't there");
        *error.failure
    };
    // Table 1 would be that of the timers.
    let good = write(0, &own, 1);
    for (lie, wanted) in
        [(write(9, &own, 1), "no table 9"), (write(0, &foreign, 1), "key group"), (write(1, &own, 1), "no table 1")]
    {
        let failure = refused(format!("{good} {lie}"));
        assert!(matches!(&failure, Failure::State(error) if error.is_guest_fault()), "{failure}");
        assert!(failure.to_string().contains(wanted), "{wanted}: {failure}");
    }
    let emits = format!("{good} {}", emit_zeros(0, 1));
    assert!(matches!(refused(emits), Failure::Misuse(Misuse::EmitForbidden)));
    assert_goes_on();
}

fn is_own(key: &[u8]) -> bool {
    let max = MaxParallelism::new(16).expect("in range");
    max.subtask(max.key_group(key), 2) == 1
}

#[test]
fn an_entry_that_a_snapshot_writes_twice_is_there_once_as_it_was_written_last() {
    let own = own_keys(1)[0].clone().into_bytes();
    let snapshot = format!("{} {}", write(0, &own, b'1'), write(0, &own, b'2'));
    let guest = Guest { tables: vec![("counts", 0, 1)], timers: true, snapshot, ..Guest::default() };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let (_folder, state) = old_state(&[], false);
    let context = InstanceContext { state: Some(state), ..context(Limits::default()) };
    let mut instance = plugin.instantiate(context).expect("it opens");
    instance.snapshot(Epoch(1)).expect("it may");
    let state = instance.keyed_state().expect("it has tables");
    let (values, found) = state.get_many(0, &column([&own]), &Column::default()).expect("an own key");
    assert_eq!((values.get(0), found), (&b"2"[..], vec![1]));
}

/// Makes the time of the first record a millisecond later.
const LATER: &str = "
    (i64.store (local.get 10) (i64.add (i64.load (local.get 10)) (i64.const 1)))";

#[test]
fn millions_of_timers_in_one_call_are_refused_when_its_memory_is_full() {
    let process = format!("(loop $more {LATER} {SET_TIMERS} (br $more))");
    let (_folder, mut instance) = open_timed_within(Guest { process, ..Guest::default() }, false, Limits::default());
    let error = instance.process(0, &timed(&[1]), &mut Emitted::new()).expect_err("too many");
    assert!(matches!(*error.failure, Failure::State(StateError::StagedTooMuch { .. })), "{error}");
    assert_eq!(instance.next_timer(Clock::EventTime), None, "none of them is set");
    let metrics = instance.keyed_state().expect("it has timers").metrics();
    assert_eq!((metrics.memory_entries, metrics.memory_timers), (0, 0));
    assert_goes_on();
}

#[test]
fn millions_of_timers_over_many_calls_meet_the_limit_of_the_state() {
    let limits = Limits { state_bytes_max: 1 << 20, ..Limits::default() };
    let guest = Guest { process: SET_TIMERS.to_owned(), ..Guest::default() };
    let (_folder, mut instance) = open_timed_within(guest, false, limits);
    let (mut set, mut ended) = (0, None);
    while ended.is_none() {
        let times = (set..set + 1000).collect::<Vec<_>>();
        ended = instance.process(0, &timed(&times), &mut Emitted::new()).err();
        set += 1000;
        assert!(set < 1_000_000, "a million timers in a megabyte");
    }
    let error = ended.expect("it ended");
    assert!(matches!(*error.failure, Failure::StateSize { limit_bytes: 1_048_576, .. }), "{error}");
}

#[test]
fn millions_of_entries_in_one_call_are_refused_when_its_memory_is_full() {
    // The key is the number of the round.
    let (stored, taken) = one(DATA, &[0; 4]);
    let counted = format!("(i32.store (i32.const {DATA}) (i32.add (i32.load (i32.const {DATA})) (i32.const 1)))");
    let nothing = none();
    let value = format!("{nothing} {}", list(24_576, 8));
    let write = format!("(call $write_many (i32.const 0) {taken} {nothing} {nothing} {value} {nothing})");
    let process = format!("{stored} (loop $more {counted} {write} (br $more))");
    let guest = Guest { tables: vec![("counts", 0, 1)], process, ..Guest::default() };
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let (_folder, state) = whole_state(&["counts"], 1 << 20);
    let context = InstanceContext { state: Some(state), ..context(Limits::default()) };
    let mut instance = plugin.instantiate(context).expect("it opens");
    let error = instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect_err("too many");
    assert!(matches!(*error.failure, Failure::State(StateError::StagedTooMuch { .. })), "{error}");
    assert_eq!(instance.keyed_state().expect("it has tables").metrics().memory_entries, 0);
}
