//! Nothing that a guest hands over or a file holds does harm.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use crate::element::Malformed;
use crate::id::{Epoch, KeyGroup};
use crate::protocol::KeyGroupRange;
use crate::state::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

fn refused(result: Result<impl std::fmt::Debug, StateError>) -> StateError {
    let error = result.expect_err("a refusal");
    assert!(error.is_guest_fault(), "{error}");
    error
}

#[test]
fn malformed_columns_and_bitmaps_are_refused() {
    let world = World::new();
    let mut state = world.open(MIB, &[]);
    let (two, one, none) = (column(["a", "b"]), column(["a"]), Column::default());
    let mut lying = column(["a", "b"]);
    lying.offsets[4] = 9;
    assert!(matches!(refused(state.get_many(2, &one, &none)), StateError::NoSuchTable { table: 2, tables: 2, .. }));
    assert!(matches!(refused(state.get_many(0, &lying, &none)), StateError::Malformed { what: "keys", .. }));
    assert!(matches!(refused(state.get_many(0, &none, &none)), StateError::Malformed { what: "keys", .. }));
    assert!(matches!(refused(state.get_many(0, &two, &one)), StateError::Malformed { what: "user keys", .. }));
    let data_without_offsets = Column { data: vec![1], offsets: vec![] };
    assert!(matches!(
        refused(state.get_many(0, &two, &data_without_offsets)),
        StateError::Malformed { what: "user keys", source: Malformed::Length { .. }, .. }
    ));
    assert!(matches!(
        refused(state.write_many(0, &two, &none, &one, &[])),
        StateError::Malformed { what: "values", .. }
    ));
    assert!(matches!(
        refused(state.write_many(0, &two, &none, &two, &[0, 0])),
        StateError::Bitmap { rows: 2, bytes: 2, .. }
    ));
    state.discard();
    assert_eq!(state.metrics().memory_entries, 0);
}

#[test]
fn keys_of_other_subtasks_and_keys_and_values_that_are_too_long_are_refused() {
    let world = World::new();
    let mut state = world.open_with(world.options(1, 2, 64 * MIB), &[]).expect("empty state");
    let max = MaxParallelism::new(16).expect("in range");
    let all = (0..100u32).map(|n| n.to_string());
    let (own, foreign): (Vec<_>, Vec<_>) = all.partition(|key| max.subtask(max.key_group(key.as_bytes()), 2) == 1);
    let none = Column::default();
    state.write_many(0, &column(&own), &none, &column(&own), &[]).expect("own keys");
    let mixed = column([&own[0], &foreign[0]]);
    assert!(matches!(refused(state.write_many(0, &mixed, &none, &mixed, &[])), StateError::ForeignKey { .. }));
    assert!(matches!(refused(state.get_many(0, &mixed, &none)), StateError::ForeignKey { .. }));
    let error = refused(state.scan(0, foreign[0].as_bytes(), None, 1000));
    assert!(matches!(error, StateError::ForeignKey { first: 8, last: 15, .. }), "{error}");

    let long = vec![0; KEY_BYTES_MAX + 1];
    let error = refused(state.scan(0, &long, None, 1000));
    assert!(matches!(error, StateError::KeyTooLong { .. }) && error.help().contains("a shorter key"), "{error}");
    let key = column([&own[0]]);
    assert!(matches!(refused(state.get_many(0, &key, &column([&long]))), StateError::TooLong { what: "user key", .. }));
    let value = column([vec![0; VALUE_BYTES_MAX + 1]]);
    assert!(matches!(
        refused(state.write_many(0, &key, &none, &value, &[])),
        StateError::TooLong { what: "value", .. }
    ));
    state.discard();
}

#[test]
fn a_page_is_bounded_and_has_at_least_one_entry() {
    let world = World::new();
    let mut state = world.open(64 * MIB, &[]);
    let user_keys = column((0..100u32).map(u32::to_be_bytes));
    state.write_many(0, &column(vec!["k"; 100]), &user_keys, &column(vec![[7; 1000]; 100]), &[]).expect("good entries");
    for (max_bytes, rows) in [(0, 1), (1, 1), (3000, 2), (u32::MAX, 100)] {
        let page = state.scan(0, b"k", None, max_bytes).expect("a good key");
        assert_eq!((page.values.rows(), page.more), (rows, rows < 100), "{max_bytes} bytes");
    }
    let page = state.scan(0, b"k", Some(&98u32.to_be_bytes()), 0).expect("a good key");
    assert_eq!((page.user_keys, page.more), (column([99u32.to_be_bytes()]), false));
    assert_eq!(state.scan(0, b"k", Some(&[255; 9]), 0).expect("a good key").values.rows(), 0);
    state.discard();
}

#[test]
fn what_takes_long_to_read_can_be_given_up_also_among_deleted_entries() {
    let world = World::new();
    let mut state = world.open(64 * MIB, &[]);
    let rows = 5000u32;
    let (keys, user_keys) = (column(vec!["k"; rows as usize]), column((0..rows).map(u32::to_be_bytes)));
    let deletes = vec![0xff; rows.div_ceil(8) as usize];
    state.write_many(0, &keys, &user_keys, &column(vec![""; rows as usize]), &deletes).expect("good entries");
    let asked = Cell::new(0);
    let asked = &asked;
    let after = |times: u32| {
        asked.set(0);
        move || asked.replace(asked.get() + 1) >= times
    };
    assert!(matches!(refused(state.scan_until(0, b"k", None, 1000, &after(3))), StateError::GivenUp { .. }));
    assert_eq!(asked.get(), 4);
    assert!(matches!(refused(state.get_many_until(0, &keys, &user_keys, &after(3))), StateError::GivenUp { .. }));
    assert_eq!(asked.get(), 4);
    let page = state.scan_until(0, b"k", None, 1000, &after(1000)).expect("there is time");
    assert_eq!((page.values.rows(), page.more), (0, false));
    state.discard();
}

fn snapshot(world: &World, memory_bytes_max: usize) -> KeyedSnapshot {
    let upload = world.uploader("1-0");
    let mut state = world.open(memory_bytes_max, &[]);
    for round in 0..4u8 {
        write(&mut state, (0..100u32).map(|n| (n.to_be_bytes(), vec![round; 200])));
    }
    upload.finish(state.freeze(Epoch(1)).expect("a working disk"))
}

#[test]
fn a_snapshot_of_other_tables_or_key_groups_is_refused() {
    let world = World::new();
    let good = snapshot(&world, MIB);
    let open = |change: fn(&mut StateOptions), snapshots: &[KeyedSnapshot]| {
        let mut options = world.options(0, 1, MIB);
        change(&mut options);
        world.open_with(options, snapshots).map(|_| ()).expect_err("a refusal")
    };
    let all = std::slice::from_ref(&good);
    let error = open(|options| options.tables[1].version = 0, all);
    assert!(matches!(error, StateError::TableVersion { snapshot: 1, operator: 0, .. }), "{error}");

    let range = |first, last| KeyGroupRange { first: KeyGroup(first), last: KeyGroup(last) };
    let part = |first, last| KeyedSnapshot { key_groups: range(first, last), ..good.clone() };
    for parts in [vec![part(0, 7)], vec![part(0, 7), part(9, 15)], vec![part(0, 8), part(8, 15)]] {
        assert!(matches!(open(|_| (), &parts), StateError::KeyGroups { .. }));
    }
    let mut others = [part(0, 7), part(8, 15)];
    others[1].tables.push(table("c", 1));
    assert!(matches!(open(|_| (), &others), StateError::TablesDiffer { .. }));
    // The entries of all key groups are in the file of a snapshot that claims half of them.
    let error = open(|options| options.key_groups.last = KeyGroup(3), &[part(0, 7)]);
    assert!(matches!(error, StateError::Corrupt { .. }), "{error}");
}

#[test]
fn tables_that_are_new_come_behind_those_of_the_snapshot() {
    let world = World::new();
    let good = snapshot(&world, MIB);
    let mut options = world.options(0, 1, MIB);
    options.tables = vec![table("new", 7), table("a", 1)];
    let mut state = world.open_with(options, &[good]).expect("a good snapshot");
    let key = column([7u32.to_be_bytes()]);
    let (values, found) = state.get_many(1, &key, &Column::default()).expect("a good key");
    assert_eq!((values, found), (column([[3; 200]]), vec![1]));
    assert_eq!(state.get_many(0, &key, &Column::default()).expect("a good key").1, [0]);
    let next = world.uploader("2-0").finish(state.freeze(Epoch(2)).expect("a working disk"));
    assert_eq!(next.tables, [table("a", 1), table("b", 1), table("new", 7)]);
}

#[test]
fn files_that_are_missing_or_corrupt_or_strangely_named_are_refused() {
    let world = World::new();
    let (with_delta, with_base) = (snapshot(&world, MIB), {
        let world = World::new();
        // Only the names count here.
        snapshot(&world, 64 << 10)
    });
    let error = world.open_with(world.options(0, 1, MIB), std::slice::from_ref(&with_base)).map(|_| ());
    assert!(matches!(error.expect_err("no such files"), StateError::Fetch { .. }));

    let mut strange = with_base;
    let file = strange.base.values().next().expect("a base").clone();
    strange.base = BTreeMap::from([("../../passwd".to_owned(), file)]);
    let error = world.open_with(world.options(0, 1, MIB), &[strange]).map(|_| ());
    assert!(matches!(error.expect_err("a strange name"), StateError::FileName { .. }));

    // A file that is what the manifest says and yet no delta.
    let mut other = with_delta;
    let content = b"something else";
    std::fs::write(world.stored("other"), content).expect("a folder");
    let xxh3 = format!("{:016x}", xxh3_64(content));
    other.deltas[0] = FileRef { path: "other".to_owned(), size_bytes: content.len() as u64, xxh3 };
    let error = world.open_with(world.options(0, 1, MIB), &[other]).map(|_| ()).expect_err("no delta");
    assert!(matches!(&error, StateError::Corrupt { path, .. } if path == "other"), "{error}");
}

#[test]
fn a_work_folder_that_was_used_is_refused() {
    let world = World::new();
    let options = world.options(0, 1, MIB);
    std::fs::create_dir_all(options.work_dir.join("db")).expect("a folder");
    let error = world.open_with(options, &[]).map(|_| ()).expect_err("a refusal");
    assert!(matches!(error, StateError::WorkDirUsed { .. }), "{error}");
}
