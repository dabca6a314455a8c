//! The next component of an operator finds what the one before has left, in the middle of the stream and after a restore alike.

use super::*;
use crate::id::Epoch;
use crate::state::{Clock, TIMERS_TABLE};

fn write_to(state: &mut KeyedState, table: u32, key: &str, value: &str) {
    let written = state.write_many(table, &column([key]), &Column::default(), &column([value]), &[]);
    written.expect("a good entry");
    state.accept().expect("a working disk");
}

fn read_from(state: &KeyedState, table: u32, key: &str) -> Option<Vec<u8>> {
    let (values, found) = state.get_many(table, &column([key]), &Column::default()).expect("a good key");
    (found == [1]).then(|| values.get(0).to_vec())
}

#[test]
fn tables_are_found_by_name_whatever_their_order_and_new_ones_are_empty() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    write_to(&mut state, 0, "k", "of a");
    write_to(&mut state, 1, "k", "of b");
    let uploader = world.uploader("old");
    uploader.finish(state.freeze(Epoch(1)).expect("a snapshot"));
    let declared = [table("c", 1), table("b", 1), table("a", 1)];
    state.hand_over(&declared).expect("it has all tables");
    assert_eq!(read_from(&state, 0, "k"), None);
    assert_eq!(read_from(&state, 1, "k"), Some(b"of b".to_vec()));
    assert_eq!(read_from(&state, 2, "k"), Some(b"of a".to_vec()));
    write_to(&mut state, 0, "k", "of c");
    // What is restored from the next snapshot is the same.
    let snapshot = uploader.finish(state.freeze(Epoch(2)).expect("a snapshot"));
    let options = StateOptions { tables: declared.into(), ..world.options(0, 1, MIB) };
    let restored = world.open_with(options, &[snapshot]).expect("a good snapshot");
    for state in [&state, &restored] {
        let values = [0, 1, 2].map(|table| read_from(state, table, "k").expect("it is there"));
        assert_eq!(values, [b"of c".to_vec(), b"of b".to_vec(), b"of a".to_vec()]);
    }
}

#[test]
fn timers_and_the_watermark_go_on_and_may_be_new() {
    let world = World::new();
    let timers = [table("a", 1), table(TIMERS_TABLE, 1)];
    let options = StateOptions { tables: timers.into(), ..world.options(0, 1, MIB) };
    let mut state = world.open_with(options, &[]).expect("empty state");
    let set = |state: &mut KeyedState, time: i64| {
        let times = time.to_le_bytes();
        state.write_timers(Clock::EventTime, &column(["k"]), &column([""]), &times, &[]).expect("a good timer");
        state.accept().expect("a working disk");
    };
    set(&mut state, 50);
    state.write_watermark(40).expect("a working disk");
    state.accept().expect("a working disk");
    world.uploader("timed").finish(state.freeze(Epoch(1)).expect("a snapshot"));
    state.hand_over(&[table(TIMERS_TABLE, 1), table("a", 1)]).expect("it has all tables");
    assert_eq!(state.restored_watermark(), 40, "what was late is late");
    assert_eq!(state.next_timer(Clock::EventTime), Some(50));

    let mut without = world.open(MIB, &[]);
    world.uploader("without").finish(without.freeze(Epoch(1)).expect("a snapshot"));
    without.hand_over(&[table("a", 1), table("b", 1), table(TIMERS_TABLE, 1)]).expect("it has all tables");
    assert_eq!(without.next_timer(Clock::EventTime), None);
    set(&mut without, 7);
    assert_eq!(without.next_timer(Clock::EventTime), Some(7));
}

#[test]
fn a_table_that_is_declared_twice_is_refused() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    let error = state.hand_over(&[table("a", 1), table("a", 1)]).expect_err("twice");
    assert!(matches!(error, StateError::TableTwice { .. }), "{error}");
}
