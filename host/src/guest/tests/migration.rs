//! Migration across the boundary: what a guest makes of old entries is in its state, and what it may not do ends it.

use tempfile::TempDir;

use super::guest::{Guest, Migrating, RESULT};
use super::*;
use crate::element::Column;
use crate::guest::{Call, Failure, MigrationError, Misuse, OperatorInstance};
use crate::state::{Clock, TIMERS_TABLE};

pub fn column<R: AsRef<[u8]>>(rows: impl IntoIterator<Item = R>) -> Column {
    let mut column = Column::with_capacity(0, 0);
    rows.into_iter().for_each(|row| column.push(row.as_ref()));
    column
}

fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(16).expect("in range")
}

/// Keys of the second subtask of two.
pub fn own_keys(count: usize) -> Vec<String> {
    let own = |key: &String| max_parallelism().subtask(max_parallelism().key_group(key.as_bytes()), 2) == 1;
    (0..).map(|number| format!("key-{number}")).filter(own).take(count).collect()
}

/// State of the second subtask of two: version 1 of `counts`, with the key as the value of each, and a timer if there is to be one.
pub fn old_state(keys: &[String], timer: bool) -> (TempDir, KeyedState) {
    let folder = tempfile::tempdir().expect("a folder");
    let table = |name: &str| TableRef { name: name.to_owned(), version: 1 };
    let options = StateOptions {
        work_dir: folder.path().join("work"),
        subtask: SubtaskId { operator: name("op"), index: 1 },
        key_groups: max_parallelism().range(1, 2),
        max_parallelism: max_parallelism(),
        attempt: Attempt(1),
        tables: vec![table("counts"), table(TIMERS_TABLE)],
        memory_bytes_max: 1 << 20,
        block_cache: BlockCache::new(1 << 20),
    };
    let mut state = KeyedState::open(options, &[], &|_, _| Ok(())).expect("empty state");
    state.write_many(0, &column(keys), &Column::default(), &column(keys), &[]).expect("own keys");
    if timer {
        let time = 1i64.to_le_bytes();
        state.write_timers(Clock::EventTime, &column([&keys[0]]), &column([""]), &time, &[]).expect("an own key");
    }
    state.accept().expect("a working disk");
    (folder, state)
}

/// Gives back the entries that it was given, from [`Migrating::ANSWER`] on.
pub const SAME: &str = "
    (i32.store (i32.const 16388) (local.get 2)) (i32.store (i32.const 16392) (local.get 3))
    (i32.store (i32.const 16396) (local.get 4)) (i32.store (i32.const 16400) (local.get 5))
    (i32.store (i32.const 16404) (local.get 6)) (i32.store (i32.const 16408) (local.get 7))
    (i32.store (i32.const 16412) (local.get 8)) (i32.store (i32.const 16416) (local.get 9))
    (i32.store (i32.const 16420) (local.get 10)) (i32.store (i32.const 16424) (local.get 11))
    (i32.store (i32.const 16428) (local.get 12)) (i32.store (i32.const 16432) (local.get 13))";

/// Gives the first entry that it was given twice, so that both are to be merged: its key at 20480, its offsets at 24576.
pub const TWICE: &str = "
    (memory.copy (i32.const 20480) (local.get 2) (local.get 3))
    (memory.copy (i32.add (i32.const 20480) (local.get 3)) (local.get 2) (local.get 3))
    (i32.store (i32.const 24580) (local.get 3)) (i32.store (i32.const 24584) (i32.mul (local.get 3) (i32.const 2)))
    (i32.store (i32.const 16388) (i32.const 20480)) (i32.store (i32.const 16392) (i32.mul (local.get 3) (i32.const 2)))
    (i32.store (i32.const 16396) (i32.const 24576)) (i32.store (i32.const 16400) (i32.const 12))
    (i32.store (i32.const 16428) (i32.const 24592)) (i32.store (i32.const 16432) (i32.const 12))";

/// Says that keys change.
fn changed() -> String {
    format!("(i32.store8 (i32.const {}) (i32.const 1))", RESULT + 4)
}

pub fn guest(prepare: String, migrate: &str) -> Guest {
    let migrating = Migrating { prepare, migrate: migrate.to_owned(), merge: String::new() };
    Guest { tables: vec![("counts", 0, 2)], timers: true, migrating: Some(migrating), ..Guest::default() }
}

/// Opens a guest over old state, which it has to migrate.
fn migrate_with(guest: &Guest, keys: &[String], timer: bool) -> Result<(TempDir, Instance), OperatorError> {
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let (folder, state) = old_state(keys, timer);
    let opened = plugin.instantiate(InstanceContext { state: Some(state), ..context(Limits::default()) });
    opened.map(|instance| (folder, instance))
}

pub fn refusal_of(guest: &Guest) -> OperatorError {
    migrate_with(guest, &own_keys(3), false).map(|_| ()).expect_err("refused")
}

pub fn migration_error(error: OperatorError) -> MigrationError {
    match *error.failure {
        Failure::Migration(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn old_entries_go_through_the_guest_and_are_found_in_the_new_version() {
    let keys = own_keys(5000);
    let (_folder, mut instance) = migrate_with(&guest(String::new(), SAME), &keys, true).expect("it migrates");
    let state = instance.keyed_state().expect("it has tables");
    let (values, found) = state.get_many(0, &column(&keys), &Column::default()).expect("own keys");
    assert!(found.iter().take(keys.len() / 8).all(|byte| *byte == 0xff));
    assert!((0..keys.len()).all(|row| values.get(row) == keys[row].as_bytes()));
    let [migrated] = state.migrated() else { panic!("one table: {:?}", state.migrated()) };
    assert_eq!((migrated.from_version, migrated.to_version), (1, 2));
    assert_eq!((migrated.before.entries, migrated.after.entries), (5000, 5000));
    assert!(state.outdated().is_empty() && state.is_any_timer_set());
    assert_eq!(instance.migrated_entries(), 5000);
}

#[test]
fn a_component_without_migration_refuses_older_state_and_says_what_to_do() {
    let error = refusal_of(&Guest { migrating: None, ..guest(String::new(), SAME) });
    assert!(error.help().contains("Operator::migrate"), "{}", error.help());
    let error = migration_error(error);
    assert!(matches!(&error, MigrationError::NotExported { table, from: 1, to: 2 } if table == "counts"), "{error}");
}

#[test]
fn a_migration_that_traps_never_ends_or_calls_the_host_is_ended() {
    let error = refusal_of(&guest(String::new(), "unreachable"));
    assert_eq!(error.call, Call::Migrate { table: 0, from_version: 1, rows: 3 });
    assert!(matches!(*error.failure, Failure::Trap { .. }), "{error}");
    let error = refusal_of(&guest("unreachable".to_owned(), SAME));
    assert_eq!(error.call, Call::Prepare { table: 0, from_version: 1 });
    let error = refusal_of(&guest(String::new(), "(drop (call $now))"));
    assert!(matches!(*error.failure, Failure::Misuse(Misuse::ImportInMigration)), "{error}");
    let plugin = load_bytes(&guest(String::new(), "(loop $l (br $l))").component()).expect("it loads");
    let (_folder, state) = old_state(&own_keys(1), false);
    let limits = Limits { call_timeout: std::time::Duration::from_millis(50), ..Limits::default() };
    let opened = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) });
    assert!(matches!(*opened.map(|_| ()).expect_err("stopped").failure, Failure::Deadline { .. }));
}

#[test]
fn a_migration_keeps_to_the_limit_of_state() {
    let plugin = load_bytes(&guest(String::new(), SAME).component()).expect("it loads");
    let keys = own_keys(100);
    let bytes = keys.iter().map(|key| 2 * key.len() as u64).sum::<u64>();
    for (state_bytes_max, fits) in [(bytes, true), (bytes - 1, false)] {
        let (_folder, state) = old_state(&keys, false);
        let limits = Limits { state_bytes_max, ..Limits::default() };
        let opened = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) }).map(|_| ());
        match opened {
            Ok(()) => assert!(fits),
            Err(error) => assert!(!fits && matches!(*error.failure, Failure::StateSize { .. }), "{error}"),
        }
    }
}

#[test]
fn entries_that_make_no_sense_are_refused() {
    // One offset too few in the values.
    let short = format!("{SAME} (i32.store (i32.const 16432) (i32.sub (local.get 13) (i32.const 4)))");
    let error = migration_error(refusal_of(&guest(String::new(), &short)));
    assert!(matches!(error, MigrationError::Malformed { what: "values", .. }), "{error}");
    // The first letter of the first key becomes another.
    let other = format!("{SAME} (i32.store8 (local.get 2) (i32.const 88))");
    let error = migration_error(refusal_of(&guest(String::new(), &other)));
    assert!(matches!(&error, MigrationError::KeyNotKept { key, .. } if key.starts_with("Xey-")), "{error}");
}

#[test]
fn at_a_running_job_a_key_may_only_become_another_of_the_same_subtask() {
    let elsewhere = (0..26u8).map(|n| b'A' + n).find(|first| {
        let key = [&[*first][..], &own_keys(1)[0].as_bytes()[1..]].concat();
        max_parallelism().subtask(max_parallelism().key_group(&key), 2) == 0
    });
    let elsewhere = elsewhere.expect("half of the keys are another subtask's");
    let moved = format!("{SAME} (i32.store8 (local.get 2) (i32.const {elsewhere}))");
    let error = migrate_with(&guest(changed(), &moved), &own_keys(1), false).map(|_| ()).expect_err("refused");
    assert!(error.help().contains("stop the job"), "{}", error.help());
    let error = migration_error(error);
    assert!(matches!(error, MigrationError::KeyElsewhere { .. }), "{error}");
    migrate_with(&guest(changed(), SAME), &own_keys(9), false).expect("the keys are the same in the end");
}

#[test]
fn keys_can_t_change_while_timers_are_set() {
    let error = migrate_with(&guest(changed(), SAME), &own_keys(2), true).map(|_| ()).expect_err("refused");
    assert!(matches!(migration_error(error), MigrationError::TimersSet { table } if table == "counts"));
}
