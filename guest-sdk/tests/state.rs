//! State behaves like plain maps, whatever is cached, evicted, snapshotted, lost or restored in between.
//!
//! An operator runs random commands on its tables; a model without any cache runs the same ones.

use std::collections::BTreeMap;

use lockgate::encoding::{decode, encode};
use lockgate::prelude::*;
use lockgate::testing::{Harness, Snapshot};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// What a record tells the operator to do with the state of its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Command {
    Add(u64),
    Set(u64),
    Take,
    Remove,
    Note(String),
    Forget,
    Insert(u16, String),
    Append(u16, String),
    Delete(u16),
    Look(u16),
    ClearMap,
    Entries,
    Push(String),
    At(u64),
    Elements,
    ClearList,
}

/// Runs commands and emits what they found.
struct Machine {
    number: Value<u64>,
    note: Value<String>,
    map: Map<u16, String>,
    list: List<String>,
}

impl Operator for Machine {
    fn new(declare: &mut Declaration) -> Machine {
        Machine {
            number: declare.value("number"),
            note: declare.value("note"),
            map: declare.map("map"),
            list: declare.list("list"),
        }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        ctx.limit_cache(1 << 20);
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let found = match decode::<Command>(record.value().unwrap_or_default())? {
            Command::Add(n) => format!("{}", self.number.update(ctx, |sum| sum.unwrap_or(0).wrapping_add(n))?),
            Command::Set(n) => format!("{:?}", self.number.set(ctx, n)?),
            Command::Take => format!("{:?}", self.number.take(ctx)?),
            Command::Remove => format!("{:?}", self.number.remove(ctx)?),
            Command::Note(text) => self.note.modify(ctx, |note| {
                note.push_str(&text);
                note.clone()
            })?,
            Command::Forget => format!("{:?}", self.note.take(ctx)?),
            Command::Insert(at, text) => format!("{:?}", self.map.insert(ctx, &at, text)?),
            Command::Append(at, text) => self.map.update(ctx, &at, |old| old.unwrap_or_default() + &text)?,
            Command::Delete(at) => format!("{:?}", self.map.remove(ctx, &at)?),
            Command::Look(at) => format!("{:?} {}", self.map.get(ctx, &at)?, self.map.contains(ctx, &at)?),
            Command::ClearMap => format!("{:?}", self.map.clear(ctx)?),
            Command::Entries => {
                let mut entries = self.map.iter(ctx)?;
                let mut all = BTreeMap::new();
                while let Some((at, text)) = entries.next(ctx)? {
                    all.insert(at, text);
                }
                format!("{all:?}")
            }
            Command::Push(text) => {
                self.list.push(ctx, text)?;
                format!("{}", self.list.len(ctx)?)
            }
            Command::At(index) => format!("{:?}", self.list.get(ctx, index)?),
            Command::Elements => format!("{:?}", self.list.to_vec(ctx)?),
            Command::ClearList => format!("{:?}", self.list.clear(ctx)?),
        };
        ctx.emit(record.key(), found);
        Ok(())
    }
}

/// The state of one key, as plain as can be.
#[derive(Clone, Debug, Default)]
struct Plain {
    number: Option<u64>,
    note: Option<String>,
    map: BTreeMap<u16, String>,
    list: Vec<String>,
}

impl Plain {
    fn run(&mut self, command: Command) -> String {
        match command {
            Command::Add(n) => {
                let sum = self.number.unwrap_or(0).wrapping_add(n);
                self.number = Some(sum);
                format!("{sum}")
            }
            Command::Set(n) => format!("{:?}", self.number = Some(n)),
            Command::Take => format!("{:?}", self.number.take()),
            Command::Remove => format!("{:?}", self.number = None),
            Command::Note(text) => {
                let note = self.note.get_or_insert_default();
                note.push_str(&text);
                note.clone()
            }
            Command::Forget => format!("{:?}", self.note.take()),
            Command::Insert(at, text) => {
                self.map.insert(at, text);
                "()".to_owned()
            }
            Command::Append(at, text) => {
                let old = self.map.entry(at).or_default();
                old.push_str(&text);
                old.clone()
            }
            Command::Delete(at) => {
                self.map.remove(&at);
                "()".to_owned()
            }
            Command::Look(at) => format!("{:?} {}", self.map.get(&at), self.map.contains_key(&at)),
            Command::ClearMap => format!("{:?}", self.map.clear()),
            Command::Entries => format!("{:?}", self.map),
            Command::Push(text) => {
                self.list.push(text);
                format!("{}", self.list.len())
            }
            Command::At(index) => format!("{:?}", self.list.get(index as usize)),
            Command::Elements => format!("{:?}", self.list),
            Command::ClearList => format!("{:?}", self.list.clear()),
        }
    }
}

/// What happens to the instance.
#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(u16, Command)>),
    Snapshot,
    /// A crash: back to the last snapshot.
    Recover,
    /// Another instance goes on from a snapshot taken now.
    Restore,
    Trim(u32),
}

fn command() -> impl Strategy<Value = Command> {
    // Long texts fill the cache, so that it must give up keys in the middle of batches.
    let long = (8_000..30_000usize).prop_map(|len| "long".repeat(len / 4));
    let text = prop_oneof![5 => "[a-z]{0,8}", 1 => long];
    let at = 0..20u16;
    prop_oneof![
        3 => any::<u64>().prop_map(Command::Add),
        1 => any::<u64>().prop_map(Command::Set),
        1 => Just(Command::Take),
        1 => Just(Command::Remove),
        2 => text.clone().prop_map(Command::Note),
        1 => Just(Command::Forget),
        2 => (at.clone(), text.clone()).prop_map(|(at, text)| Command::Insert(at, text)),
        1 => (at.clone(), text.clone()).prop_map(|(at, text)| Command::Append(at, text)),
        1 => at.clone().prop_map(Command::Delete),
        2 => at.prop_map(Command::Look),
        1 => Just(Command::ClearMap),
        1 => Just(Command::Entries),
        3 => text.prop_map(Command::Push),
        1 => (0..12u64).prop_map(Command::At),
        1 => Just(Command::Elements),
        1 => Just(Command::ClearList),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec((0..30u16, command()), 1..120).prop_map(Step::Batch),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Recover),
        1 => Just(Step::Restore),
        1 => (0..200_000u32).prop_map(Step::Trim),
    ]
}

/// Short and long keys.
fn key(number: u16) -> Vec<u8> {
    format!("{number}{}", "-long".repeat(usize::from(number % 6))).into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn state_is_as_if_there_were_no_cache(steps in prop::collection::vec(step(), 1..40)) {
        let mut harness = Harness::<Machine>::open().expect("no configuration");
        let mut model = BTreeMap::<u16, Plain>::new();
        let mut saved = model.clone();
        for step in steps {
            match step {
                Step::Batch(commands) => {
                    let records = commands.iter().map(|(number, command)| (key(*number), encode(command).expect("bytes")));
                    harness.process(records.collect::<Vec<_>>()).expect("commands");
                    let found = harness.take_output();
                    prop_assert_eq!(found.len(), commands.len());
                    for ((number, command), found) in commands.into_iter().zip(found) {
                        let expected = model.entry(number).or_default().run(command.clone());
                        prop_assert_eq!(found.value_str(), expected, "{:?} of key {}", command, number);
                    }
                }
                Step::Snapshot => {
                    harness.snapshot().expect("a snapshot");
                    saved = model.clone();
                }
                Step::Recover => {
                    harness.recover().expect("the snapshot");
                    model = saved.clone();
                }
                Step::Restore => {
                    let snapshot = harness.snapshot().expect("a snapshot");
                    harness = Harness::restore(&[&snapshot]).expect("the snapshot");
                    harness.snapshot().expect("a snapshot");
                    saved = model.clone();
                }
                Step::Trim(bytes) => {
                    harness.trim(u64::from(bytes)).expect("less memory");
                    prop_assert!(harness.cache_bytes() <= bytes as usize, "{} > {bytes}", harness.cache_bytes());
                }
            }
        }
    }
}

/// Counts, and nothing else.
struct Count {
    counts: Value<u64>,
}

impl Operator for Count {
    fn new(declare: &mut Declaration) -> Count {
        Count { counts: declare.value("counts") }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        ctx.limit_cache(ctx.config::<usize>()?);
        Ok(())
    }

    fn process(&mut self, _: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        Ok(())
    }
}

fn numbered(range: std::ops::Range<u32>) -> Vec<(String, ())> {
    range.map(|number| (format!("key-{number}"), ())).collect()
}

#[test]
fn hot_keys_cost_no_call_and_a_barrier_one() -> Result<(), Error> {
    let mut harness = Harness::<Count>::open_with("67108864")?;
    harness.process(numbered(0..1000))?;
    let cold = harness.calls();
    assert!(cold.get_many <= 2, "{cold:?}");
    for _ in 0..50 {
        harness.process(numbered(0..1000))?;
    }
    assert_eq!(harness.calls(), cold);
    harness.snapshot()?;
    assert_eq!((harness.calls().get_many, harness.calls().write_many), (cold.get_many, 1));
    // Nothing has changed, so nothing is written.
    harness.snapshot()?;
    assert_eq!(harness.calls().write_many, 1);
    assert_eq!(harness.value::<u64>("counts", "key-7"), Some(51));
    Ok(())
}

#[test]
fn the_cache_keeps_its_limit_and_loses_nothing() -> Result<(), Error> {
    let mut harness = Harness::<Count>::open_with("1048576")?;
    for _ in 0..3 {
        for first in (0..40_000).step_by(1000) {
            harness.process(numbered(first..first + 1000))?;
            assert!(harness.cache_bytes() < 1_300_000, "{} bytes", harness.cache_bytes());
        }
    }
    for number in [0, 1, 20_000, 39_999] {
        assert_eq!(harness.value::<u64>("counts", format!("key-{number}")), Some(3), "key {number}");
    }
    Ok(())
}

#[test]
fn subtasks_can_be_joined() -> Result<(), Error> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for first in [0, 100] {
        let mut harness = Harness::<Count>::open_with("1048576")?;
        harness.process(numbered(first..first + 100))?;
        snapshots.push(harness.snapshot()?);
    }
    let mut joined = Harness::<Count>::restore_with("1048576", &[&snapshots[0], &snapshots[1]])?;
    joined.process(numbered(50..150))?;
    assert_eq!(joined.value::<u64>("counts", "key-49"), Some(1));
    assert_eq!(joined.value::<u64>("counts", "key-50"), Some(2));
    assert_eq!(joined.value::<u64>("counts", "key-149"), Some(2));
    Ok(())
}
