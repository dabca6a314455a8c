//! State of an older version of an operator becomes that of a newer one, or the reason why not is said.

use lockgate::prelude::*;
use lockgate::testing::{Harness, Snapshot};
use lockgate::{Entry, ErrorKind};

/// Version 1: a value, a map and a list for each key, and timers if the record asks for one.
struct First {
    counts: Value<u64>,
    seen: Map<u32, u8>,
    log: List<String>,
    timers: Timers,
}

impl Operator for First {
    fn new(declare: &mut Declaration) -> First {
        First {
            counts: declare.value("counts"),
            seen: declare.map("seen"),
            log: declare.list("log"),
            timers: declare.timers(),
        }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?.to_owned();
        if value == "timer" {
            return self.timers.set_event_time(ctx, 10, b"");
        }
        let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        self.seen.insert(ctx, &(value.len() as u32), count as u8)?;
        self.log.push(ctx, value)
    }
}

type Migrate = fn(&mut Tables, &mut Migration<'_>) -> Result<(), Error>;

struct Tables {
    counts: Value<(u64, bool)>,
    seen: Map<String, u64>,
    log: List<Vec<u8>>,
}

/// Version 2 of all tables; `MIGRATE` is a number into [`WAYS`].
struct Second<const MIGRATE: usize>(Tables);

impl<const MIGRATE: usize> Operator for Second<MIGRATE> {
    fn new(declare: &mut Declaration) -> Self {
        let tables = Tables {
            counts: declare.value(TableName::new("counts").version(2)),
            seen: declare.map(TableName::new("seen").version(2)),
            log: declare.list(TableName::new("log").version(2)),
        };
        declare.timers();
        Second(tables)
    }

    fn process(&mut self, _: Record<'_>, _: &mut Context<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn migrate(&mut self, migration: &mut Migration<'_>) -> Result<(), Error> {
        WAYS[MIGRATE](&mut self.0, migration)
    }
}

const WAYS: [Migrate; 6] = [in_place, |_, _| Ok(()), lower, lower_without_merge, moved, drop_even];

fn in_place(tables: &mut Tables, migration: &mut Migration<'_>) -> Result<(), Error> {
    migration.value(tables.counts, 1, |count: u64| (count, true))?;
    migration.map(tables.seen, 1, |length: u32, count: u8| (format!("len {length}"), u64::from(count)))?;
    migration.list(tables.log, 1, |line: String| line.into_bytes())
}

fn lower(tables: &mut Tables, migration: &mut Migration<'_>) -> Result<(), Error> {
    lower_without_merge(tables, migration)?;
    migration.merge(tables.counts, 1, |one, other| (one.0 + other.0, one.1))?;
    migration.merge(tables.seen, 1, |one, other| one.max(other))
}

fn lower_without_merge(tables: &mut Tables, migration: &mut Migration<'_>) -> Result<(), Error> {
    migration.keys(tables.counts, 1, |key| key.to_ascii_lowercase())?;
    migration.keys(tables.seen, 1, |key| key.to_ascii_lowercase())?;
    in_place(tables, migration)
}

/// Changes a key where none may be.
fn moved(tables: &mut Tables, migration: &mut Migration<'_>) -> Result<(), Error> {
    migration.entries(tables.counts, 1, |entry| Ok(Some(Entry { key: b"elsewhere".to_vec(), ..entry })))
}

fn drop_even(tables: &mut Tables, migration: &mut Migration<'_>) -> Result<(), Error> {
    in_place(tables, migration)?;
    migration.entries(tables.counts, 1, |entry| Ok((entry.value[0] % 2 == 1).then_some(entry)))
}

fn snapshot(records: &[(&str, &str)]) -> Snapshot {
    let mut harness = Harness::<First>::open().expect("no configuration");
    harness.process(records.iter().copied()).expect("records with keys");
    harness.snapshot().expect("a snapshot")
}

fn refusal<const MIGRATE: usize>(snapshot: &Snapshot) -> String {
    let error = Harness::<Second<MIGRATE>>::restore(&[snapshot]).map(|_| ()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Fatal);
    error.to_string()
}

#[test]
fn values_maps_and_lists_are_migrated_entry_by_entry() {
    // More keys than one part has.
    let keys = (0..50).map(|number| format!("key-{number}")).collect::<Vec<_>>();
    let records = keys.iter().flat_map(|key| [(&key[..], "a"), (&key[..], "bcd")]).collect::<Vec<_>>();
    let mut new = Harness::<Second<0>>::restore(&[&snapshot(&records)]).expect("it migrates");
    for key in &keys {
        assert_eq!(new.value("counts", key), Some((2u64, true)));
        assert_eq!(new.map("seen", key), [("len 1".to_owned(), 1u64), ("len 3".to_owned(), 2)]);
        assert_eq!(new.list::<Vec<u8>>("log", key), [b"a".to_vec(), b"bcd".to_vec()]);
    }
    // What was migrated is in the new version from now on.
    let again = new.snapshot().expect("a snapshot");
    let mut again = Harness::<Second<1>>::restore(&[&again]).expect("nothing is to be migrated");
    assert_eq!(again.value("counts", &keys[0]), Some((2u64, true)));
}

#[test]
fn entries_whose_keys_become_one_are_merged() {
    let old = snapshot(&[("Tea", "ab"), ("tea", "ab"), ("TEA", "abc"), ("tea", "ab"), ("oil", "a")]);
    let mut new = Harness::<Second<2>>::restore(&[&old]).expect("it migrates");
    assert_eq!(new.value("counts", "tea"), Some((4u64, true)));
    assert_eq!(new.map("seen", "tea"), [("len 2".to_owned(), 2u64), ("len 3".to_owned(), 1)]);
    assert_eq!(new.value("counts", "oil"), Some((1u64, true)));
    assert_eq!(new.value::<(u64, bool)>("counts", "Tea"), None);
    let error = refusal::<3>(&old);
    assert!(error.contains("table 'counts', key 'tea'") && error.contains("Migration::merge"), "{error}");
}

#[test]
fn an_entry_may_be_dropped_and_may_not_change_its_key_by_the_way() {
    let old = snapshot(&[("one", "a"), ("two", "a"), ("two", "a")]);
    let mut new = Harness::<Second<5>>::restore(&[&old]).expect("it migrates");
    assert_eq!(new.value("counts", "one"), Some((1u64, true)));
    assert_eq!(new.value::<(u64, bool)>("counts", "two"), None);
    let error = refusal::<4>(&old);
    assert!(error.contains("table 'counts', key 'one'") && error.contains("Migration::keys"), "{error}");
}

#[test]
fn a_version_of_which_nothing_is_said_is_refused_by_name() {
    let error = refusal::<1>(&snapshot(&[("a", "a")]));
    assert!(error.contains("'counts'") && error.contains("from 1 to 2"), "{error}");
}

#[test]
fn state_of_a_newer_version_is_refused() {
    let mut new = Harness::<Second<0>>::open().expect("no configuration");
    let snapshot = new.snapshot().expect("a snapshot");
    let error = Harness::<First>::restore(&[&snapshot]).map(|_| ()).expect_err("refused").to_string();
    assert!(error.contains("version 2 of table 'counts'") && error.contains("declares version 1"), "{error}");
}

#[test]
fn keys_can_t_change_while_timers_are_set() {
    let old = snapshot(&[("Tea", "a"), ("Tea", "timer")]);
    let error = refusal::<2>(&old);
    assert!(error.contains("'counts'") && error.contains("timers"), "{error}");
    let new = Harness::<Second<0>>::restore(&[&old]).expect("keys are kept");
    assert_eq!(new.timers(Clock::EventTime).len(), 1);
}
