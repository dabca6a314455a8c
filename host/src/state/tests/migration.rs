//! Tables that are brought to a newer version: what is in them, in later snapshots and after a change of parallelism.

use std::time::Duration;

use super::*;
use crate::id::Epoch;
use crate::state::{FREE_TABLE, MigratedTable, OpenWhole, Outdated, TableSize};

/// Table `a` of the helpers, in the next version.
fn newer(options: StateOptions) -> StateOptions {
    StateOptions { tables: vec![table("a", 2), table("b", 1)], ..options }
}

/// A value of version 2, made of one of version 1.
fn migrated_value(value: &[u8]) -> Vec<u8> {
    [b"new:", value].concat()
}

/// Migrates as an operator would that keeps the keys; gives how many entries there were.
fn migrate(state: &mut KeyedState, rows_max: usize) -> u64 {
    let outdated: Vec<Outdated> = state.outdated().to_vec();
    let mut size = TableSize::default();
    for outdated in outdated {
        let mut walk = state.old_entries(&outdated);
        loop {
            let page = state.read_old(&mut walk, state.part_bytes_max(), rows_max).expect("good state");
            if page.rows() == 0 {
                break;
            }
            assert!(page.rows() <= rows_max);
            let values = column((0..page.rows()).map(|row| migrated_value(page.values.get(row))));
            state.write_many(outdated.table, &page.keys, &page.user_keys, &values, &[]).expect("good entries");
            state.remove_old(&page).expect("a working disk");
            state.accept().expect("a working disk");
            size.entries += page.size.entries;
        }
        let Outdated { name, from_version, to_version, .. } = outdated.clone();
        let (keys_changed, before, after, took) = (false, size, size, Duration::ZERO);
        let migrated = MigratedTable { name, from_version, to_version, keys_changed, before, after, took };
        state.finish_migration(&outdated, migrated);
    }
    size.entries
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// A snapshot of so many entries in version 1, of which every third was deleted in a second epoch.
fn old_snapshot(world: &World, memory_bytes_max: usize, entries: u64) -> KeyedSnapshot {
    let upload = world.uploader("1-0");
    let mut state = world.open(memory_bytes_max, &[]);
    for start in (0..entries).step_by(100) {
        write(&mut state, (start..entries.min(start + 100)).map(|n| (key(n), noise(n, 60))));
    }
    upload.finish(state.freeze(Epoch(1)).expect("a working disk"));
    for n in (0..entries).step_by(3) {
        state.write_many(0, &column([key(n)]), &Column::default(), &column([""]), &[1]).expect("a good key");
        state.accept().expect("a working disk");
    }
    let other = column([b"in b"]);
    state.write_many(1, &other, &Column::default(), &other, &[]).expect("a good key");
    state.accept().expect("a working disk");
    upload.finish(state.freeze(Epoch(2)).expect("a working disk"))
}

/// Asserts that exactly what is left of the old entries is there, in version 2, and the other table as it was.
fn assert_migrated(state: &KeyedState, entries: u64, owns: impl Fn(&[u8]) -> bool) {
    for n in 0..entries {
        let expected = (n % 3 != 0 && owns(&key(n))).then(|| migrated_value(&noise(n, 60)));
        if owns(&key(n)) {
            assert_eq!(read(state, &key(n)), expected, "entry {n}");
        }
    }
    let own = (0..entries).filter(|n| n % 3 != 0 && owns(&key(*n))).count() as u64;
    assert_eq!(state.size_of_table(0).expect("readable").entries, own);
}

#[test]
fn migrated_entries_are_in_the_next_snapshots_and_the_old_ones_are_gone() {
    // In memory, and in a database with bases.
    for (memory_bytes_max, entries) in [(4 * MIB, 600), (64 << 10, 3000)] {
        let world = World::new();
        let old = old_snapshot(&world, memory_bytes_max, entries);
        let options = newer(world.options(0, 1, memory_bytes_max));
        let mut state = world.open_with(options, std::slice::from_ref(&old)).expect("an older version");
        assert_eq!(migrate(&mut state, 64), entries - entries.div_ceil(3));
        assert!(state.outdated().is_empty());
        assert_migrated(&state, entries, |_| true);
        let upload = world.uploader("2-0");
        let first = upload.finish(state.freeze(Epoch(3)).expect("a working disk"));
        assert_eq!(first.tables, [table(FREE_TABLE, 0), table("b", 1), table("a", 2)]);
        write(&mut state, [("later", "1")]);
        let second = upload.finish(state.freeze(Epoch(4)).expect("a working disk"));
        drop(state);
        for snapshot in [first, second] {
            let options = newer(world.options(0, 1, memory_bytes_max));
            let state = world.open_with(options, &[snapshot]).expect("the present version");
            assert!(state.outdated().is_empty());
            let (values, found) = state.get_many(1, &column([b"in b"]), &Column::default()).expect("a good key");
            assert_eq!((values.get(0), &found[..]), (&b"in b"[..], &[1][..]));
            let later = read(&state, b"later").map_or(0, |_| 1);
            assert_eq!(state.size_of_table(0).expect("readable").entries, entries - entries.div_ceil(3) + later);
        }
        // The checkpoint from which it was migrated is as it was.
        let state = world.open(memory_bytes_max, &[old]);
        assert_eq!(read(&state, &key(1)), Some(noise(1, 60)));
    }
}

#[test]
fn halves_migrate_each_its_own_and_are_restored_as_a_whole() {
    let world = World::new();
    let old = old_snapshot(&world, 64 << 10, 1000);
    let halves = [0, 1].map(|index| {
        let options = newer(world.options(index, 2, 64 << 10));
        let mut state = world.open_with(options, std::slice::from_ref(&old)).expect("an older version");
        migrate(&mut state, 1000);
        let max_parallelism = state.space.max_parallelism;
        assert_migrated(&state, 1000, |key| max_parallelism.subtask(max_parallelism.key_group(key), 2) == index);
        world.uploader(&format!("2-{index}")).finish(state.freeze(Epoch(3)).expect("a working disk"))
    });
    let state = world.open_with(newer(world.options(0, 1, MIB)), &halves).expect("both halves");
    assert_migrated(&state, 1000, |_| true);
}

#[test]
fn a_snapshot_before_the_migration_is_refused() {
    let world = World::new();
    let old = old_snapshot(&world, MIB, 10);
    let mut state = world.open_with(newer(world.options(0, 1, MIB)), &[old]).expect("an older version");
    let error = state.freeze(Epoch(3)).map(|_| ()).expect_err("not migrated");
    assert!(matches!(&error, StateError::NotMigrated { table, from: 1, to: 2, .. } if table == "a"), "{error}");
}

#[test]
fn a_state_is_handed_to_an_operator_with_newer_and_more_tables_while_it_is_open() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    write(&mut state, [("k", "v")]);
    state.hand_over(&[table("a", 1), table("b", 1)]).expect("the same tables");
    assert!(state.outdated().is_empty());
    state.hand_over(&[table("new", 1), table("a", 2), table("$timers", 1)]).expect("more tables");
    assert_eq!(migrate(&mut state, 10), 1);
    let entries = state.get_many(1, &column([b"k"]), &Column::default()).expect("a good key");
    assert_eq!((entries.0.get(0), &entries.1[..]), (&b"new:v"[..], &[1][..]));
    assert!(!state.is_any_timer_set());
    let times = 5i64.to_le_bytes();
    state
        .write_timers(crate::state::Clock::EventTime, &column([b"k"]), &column([b""]), &times, &[])
        .expect("timers are declared");
    state.accept().expect("a working disk");
    assert!(state.is_any_timer_set());
    let error = state.hand_over(&[table("a", 1)]).expect_err("an older version");
    assert!(matches!(error, StateError::TableVersion { snapshot: 2, operator: 1, .. }), "{error}");
}

#[test]
fn the_state_of_all_subtasks_can_be_had_once_and_leaves_no_folder() {
    let world = World::new();
    let old = old_snapshot(&world, MIB, 300);
    let all = vec![old.clone()];
    let mut state = world.open_with(newer(world.options(1, 4, MIB)), &[old]).expect("an older version");
    assert!(!state.is_whole());
    let options = newer(world.options(0, 1, MIB));
    let dir = options.work_dir.clone();
    let root = world.dir.path().to_owned();
    let fetch = move |file: &FileRef, to: &Path| -> Result<(), TransferError> {
        std::fs::copy(root.join(&file.path), to).map(drop).map_err(Into::into)
    };
    state.set_whole(OpenWhole { dir: dir.clone(), open: Box::new(move || KeyedState::open(options, &all, &fetch)) });
    let whole = state.open_whole().expect("good snapshots").expect("it was set");
    assert!(whole.state().is_whole() && dir.exists());
    let outdated = whole.state().outdated()[0].clone();
    let mut walk = whole.state().old_entries(&outdated);
    let page = whole.state().read_old(&mut walk, usize::MAX, usize::MAX).expect("good state");
    assert_eq!(page.rows(), 200);
    let own = (0..page.rows()).filter(|row| state.owns(page.keys.get(*row))).count() as u64;
    let mut walk = state.old_entries(&outdated);
    assert_eq!(state.read_old(&mut walk, usize::MAX, usize::MAX).expect("good state").size.entries, own);
    drop(whole);
    assert!(!dir.exists());
    assert!(state.open_whole().expect("nothing to open").is_none());
}
