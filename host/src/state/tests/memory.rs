//! Memory is bounded, and what fails in the background is told.

use super::*;
use crate::id::Epoch;

#[test]
fn memory_stays_bounded_however_much_is_written_within_an_epoch() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    for round in 0..200u64 {
        write(&mut state, (0..200).map(|n| (format!("key-{}", round * 200 + n), noise(n, 100))));
        let metrics = state.metrics();
        assert!(metrics.memory_bytes <= MIB, "round {round}: {metrics:?}");
    }
    assert!(state.metrics().disk_bytes > 2 << 20);
    assert_eq!(read(&state, b"key-0"), Some(noise(0, 100)));
    assert_eq!(read(&state, b"key-39999"), Some(noise(199, 100)));
    assert_eq!(read(&state, b"key-40000"), None);
}

#[test]
fn a_call_that_writes_more_than_memory_holds_is_refused_and_can_be_taken_back() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    write(&mut state, [("before", "1")]);
    let (keys, values) = (column(["a", "b"]), column([noise(1, 300_000), noise(2, 300_000)]));
    state.write_many(0, &keys, &Column::default(), &values, &[]).expect("fits");
    let error = state.write_many(0, &keys, &Column::default(), &values, &[]).expect_err("too much");
    assert!(matches!(error, StateError::StagedTooMuch { .. }) && error.is_guest_fault(), "{error}");
    state.discard();
    assert_eq!((read(&state, b"a"), read(&state, b"before")), (None, Some(b"1".to_vec())));
}

#[test]
fn deltas_that_cannot_be_brought_to_the_store_do_not_fill_the_memory() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    for epoch in 1..200 {
        write(&mut state, (0..100).map(|n| (format!("key-{n}"), noise(epoch * 100 + n, 100))));
        drop(state.freeze(Epoch(epoch)).expect("a working disk"));
        let metrics = state.metrics();
        // A hundred entries take 13 KiB.
        assert!(metrics.deltas <= 2 + (MIB / 2) / (12 << 10), "epoch {epoch}: {metrics:?}");
    }
    let snapshot = world.uploader("1-0").finish(state.freeze(Epoch(200)).expect("a working disk"));
    let restored = world.open(MIB, &[snapshot]);
    assert_eq!(read(&restored, b"key-99"), Some(noise(19_999, 100)));
}

#[test]
fn an_error_in_the_background_is_told_at_the_next_calls_and_to_waiting_snapshots() {
    let world = World::new();
    let options = world.options(0, 1, 64 << 10);
    let work_dir = options.work_dir.clone();
    let mut state = world.open_with(options, &[]).expect("empty state");
    // A file where the database's folder should be.
    std::fs::write(work_dir.join("db"), b"").expect("a folder");
    let keys = column((0..200u32).map(u32::to_be_bytes));
    let values = column(vec![[1; 100]; 200]);
    state.write_many(0, &keys, &Column::default(), &values, &[]).expect("fits");
    let pending = match state.accept().and_then(|()| state.freeze(Epoch(1))) {
        Ok(pending) => Some(pending),
        Err(error) => {
            assert!(matches!(error, StateError::Background { .. }), "{error}");
            None
        }
    };
    if let Some(pending) = pending {
        let error = world.uploader("1-0").try_finish(pending).expect_err("no base");
        assert!(matches!(error, StateError::Background { .. }), "{error}");
    }
    for _ in 0..2 {
        let error = state.accept().expect_err("a failed disk");
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(cause.contains("RocksDB cannot open its database"), "{cause}");
        assert!(!error.is_guest_fault());
    }
    state.get_many(0, &keys, &Column::default()).expect_err("a failed disk");
    state.freeze(Epoch(2)).map(|_| ()).expect_err("a failed disk");
}

#[test]
fn the_newest_write_counts_wherever_the_older_ones_lie() {
    let world = World::new();
    let mut state = world.open(64 << 10, &[]);
    let write_pair = |state: &mut KeyedState, kept: &str, deletes: &[u8]| {
        let (keys, values) = (column(["kept", "gone"]), column([kept, "there"]));
        state.write_many(0, &keys, &Column::default(), &values, deletes).expect("good entries");
        state.accept().expect("a working disk");
    };
    let check = |state: &KeyedState, kept: &str, gone: Option<&str>| {
        for (key, value) in [("kept", Some(kept)), ("gone", gone)] {
            let value = value.map(|value| value.as_bytes().to_vec());
            assert_eq!(read(state, key.as_bytes()), value, "{key}");
            let page = state.scan(0, key.as_bytes(), None, 100).expect("a good key");
            assert_eq!(page.values, column(value), "{key}");
        }
    };
    let move_to_disk = |state: &mut KeyedState| {
        write(state, (0..17u8).map(|n| ([n], noise(u64::from(n), 1000))));
        while state.metrics().memory_entries > 0 {
            std::thread::yield_now();
        }
    };
    write_pair(&mut state, "1", &[]);
    move_to_disk(&mut state);
    check(&state, "1", Some("there"));
    write_pair(&mut state, "2", &[0b10]);
    drop(state.freeze(Epoch(1)).expect("a working disk"));
    check(&state, "2", None);
    write_pair(&mut state, "3", &[]);
    drop(state.freeze(Epoch(2)).expect("a working disk"));
    check(&state, "3", Some("there"));
    write_pair(&mut state, "4", &[0b10]);
    check(&state, "4", None);
    move_to_disk(&mut state);
    check(&state, "4", None);
}
