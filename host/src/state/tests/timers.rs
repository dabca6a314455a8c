//! Timers fire once, in the order of their times, whatever is restored, rescaled, failed or too many for memory in between.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::element::{Batch, Row};
use crate::id::Epoch;
use crate::state::{Clock, TAG_BYTES_MAX, TIMERS_TABLE};

/// So many key groups that the head of each has its least size.
const KEY_GROUPS: u32 = 4096;
const CLOCKS: [Clock; 2] = [Clock::EventTime, Clock::ProcessingTime];

/// Clock, time, key, tag.
type Timer = (usize, i64, Vec<u8>, Vec<u8>);
type Model = BTreeSet<Timer>;

fn options(world: &World, index: u32, parallelism: u32, key_groups: u32) -> StateOptions {
    let max_parallelism = MaxParallelism::new(key_groups).expect("in range");
    StateOptions {
        key_groups: max_parallelism.range(index, parallelism),
        max_parallelism,
        tables: vec![table("a", 1), table(TIMERS_TABLE, 1)],
        ..world.options(0, 1, 64 << 10)
    }
}

fn open(world: &World) -> KeyedState {
    world.open_with(options(world, 0, 1, 16), &[]).expect("empty state")
}

fn times(times: impl IntoIterator<Item = i64>) -> Vec<u8> {
    times.into_iter().flat_map(i64::to_le_bytes).collect()
}

/// Sets or deletes one timer.
fn put(state: &mut KeyedState, (clock, time, key, tag): &Timer, delete: bool) -> i64 {
    let deletes = if delete { vec![1] } else { Vec::new() };
    let earliest = state.write_timers(CLOCKS[*clock], &column([key]), &column([tag]), &times([*time]), &deletes);
    earliest.expect("a good timer")
}

fn timers(clock: usize, batch: &Batch) -> Vec<Timer> {
    let timer = |row: Row<'_>| {
        let bytes = |field: Option<&[u8]>| field.expect("never missing").to_vec();
        (clock, row.timestamp, bytes(row.key), bytes(row.value))
    };
    batch.iter().map(timer).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// One call in each subtask: timers that are set or deleted.
    Call {
        writes: Vec<(Timer, bool)>,
        fails: bool,
    },
    /// So many timers of one key, far apart.
    Many {
        key: u8,
        count: u16,
        from: i64,
    },
    Fire {
        clock: usize,
        up_to: i64,
        rows_max: usize,
        fails: bool,
    },
    /// Keyed state beside, so that segments get full.
    Write(u8),
    Checkpoint,
    Restore {
        parallelism: u32,
    },
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![20 => 0..1000i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX), 1 => Just(-1i64)]
}

fn step() -> impl Strategy<Value = Step> {
    let timer = (0..2usize, time(), 0..6u8, 0..3u8)
        .prop_map(|(clock, time, key, tag)| (clock, time, vec![key; 2], vec![tag; usize::from(tag)]));
    let writes = prop::collection::vec((timer, prop::bool::weighted(0.3)), 1..60);
    prop_oneof![
        6 => (writes, prop::bool::weighted(0.2)).prop_map(|(writes, fails)| Step::Call { writes, fails }),
        2 => (0..6u8, 1..300u16, 0..900i64).prop_map(|(key, count, from)| Step::Many { key, count, from }),
        6 => (0..2usize, time(), 1..200usize, prop::bool::weighted(0.2))
            .prop_map(|(clock, up_to, rows_max, fails)| Step::Fire { clock, up_to, rows_max, fails }),
        1 => any::<u8>().prop_map(Step::Write),
        2 => Just(Step::Checkpoint),
        1 => (1..=3u32).prop_map(|parallelism| Step::Restore { parallelism }),
    ]
}

struct Run<'a> {
    world: &'a World,
    states: Vec<KeyedState>,
    model: Model,
    epoch: Epoch,
    attempt: u32,
    stored: (Model, Vec<KeyedSnapshot>),
}

impl Run<'_> {
    fn owner(&self, key: &[u8]) -> usize {
        let max = MaxParallelism::new(KEY_GROUPS).expect("in range");
        max.subtask(max.key_group(key), self.states.len() as u32) as usize
    }

    fn end_call(&mut self, fails: bool, model: Model) {
        if fails {
            self.states.iter_mut().for_each(KeyedState::discard);
        } else {
            self.states.iter_mut().for_each(|state| state.accept().expect("a working disk"));
            self.model = model;
        }
    }

    fn call(&mut self, writes: &[(Timer, bool)], fails: bool) {
        let mut model = self.model.clone();
        for (timer, delete) in writes {
            let owner = self.owner(&timer.2);
            let earliest = put(&mut self.states[owner], timer, *delete);
            assert_eq!(earliest, if *delete { i64::MAX } else { timer.1 });
            if *delete {
                model.remove(timer);
            } else {
                model.insert(timer.clone());
            }
        }
        self.end_call(fails, model);
    }

    fn fire(&mut self, clock: usize, up_to: i64, rows_max: usize, fails: bool) {
        let mut model = self.model.clone();
        for subtask in 0..self.states.len() {
            let own = self.model.iter().filter(|timer| timer.0 == clock && self.owner(&timer.2) == subtask);
            let mut due = own.filter(|timer| timer.1 <= up_to).cloned().collect::<Vec<_>>();
            let batch = self.states[subtask].take_timers(CLOCKS[clock], up_to, rows_max).expect("readable state");
            batch.check().expect("well formed");
            let fired = timers(clock, &batch);
            assert!(fired.iter().map(|timer| timer.1).is_sorted());
            // Timers of the same time may come in any order, so only their times are known when there are more.
            assert!(fired.len() <= due.len().min(rows_max) && fired.is_empty() == due.is_empty());
            let latest = fired.last().map_or(i64::MIN, |timer| timer.1);
            assert!(fired.iter().all(|timer| due.contains(timer)));
            due.retain(|timer| timer.1 < latest);
            assert!(due.iter().all(|timer| fired.contains(timer)));
            fired.iter().for_each(|timer| assert!(model.remove(timer), "it fires once"));
        }
        self.end_call(fails, model);
    }

    fn checkpoint(&mut self) {
        self.epoch = self.epoch.next();
        let mut snapshots = Vec::new();
        for (index, state) in self.states.iter_mut().enumerate() {
            let uploader = self.world.uploader(&format!("{}-{index}-{}", self.attempt, self.epoch));
            snapshots.push(uploader.finish(state.freeze(self.epoch).expect("a working disk")));
        }
        self.stored = (self.model.clone(), snapshots);
    }

    fn restore(&mut self, parallelism: u32) {
        self.states.clear();
        self.attempt += 1;
        let (model, snapshots) = self.stored.clone();
        self.model = model;
        for index in 0..parallelism {
            let options = options(self.world, index, parallelism, KEY_GROUPS);
            self.states.push(self.world.open_with(options, &snapshots).expect("good snapshots"));
        }
    }

    fn check(&self) {
        for (clock, name) in CLOCKS.into_iter().enumerate() {
            let next = self.states.iter().filter_map(|state| state.next_timer(name)).min();
            let expected = self.model.iter().filter(|timer| timer.0 == clock).map(|timer| timer.1).min();
            assert_eq!(next, expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn timers_are_a_sorted_set(steps in prop::collection::vec(step(), 1..60)) {
        let world = World::new();
        let mut run = Run {
            world: &world,
            states: Vec::new(),
            model: Model::new(),
            epoch: Epoch(0),
            attempt: 0,
            stored: Default::default(),
        };
        run.restore(1);
        for step in steps {
            match step {
                Step::Call { writes, fails } => run.call(&writes, fails),
                Step::Many { key, count, from } => {
                    let timer = |n: u16| (0, from + i64::from(n % 100) * 7, vec![key; 2], n.to_be_bytes().to_vec());
                    let writes = (0..count).map(|n| (timer(n), false)).collect::<Vec<_>>();
                    run.call(&writes, false);
                }
                Step::Fire { clock, up_to, rows_max, fails } => run.fire(clock, up_to, rows_max, fails),
                Step::Write(n) => {
                    let owner = run.owner(&[n]);
                    write(&mut run.states[owner], [([n], noise(n.into(), 20_000))]);
                }
                Step::Checkpoint => run.checkpoint(),
                Step::Restore { parallelism } => run.restore(parallelism),
            }
            run.check();
        }
        while let Some(&(clock, ..)) = run.model.first() {
            run.fire(clock, i64::MAX, usize::MAX, false);
        }
    }
}

#[test]
fn due_timers_that_outgrow_the_memory_fire_in_several_calls() {
    let world = World::new();
    let mut state = open(&world);
    for first in (0..4000u32).step_by(100) {
        let tags = column((first..first + 100).map(u32::to_be_bytes));
        let keys = column((0..100).map(|_| "k"));
        state.write_timers(Clock::EventTime, &keys, &tags, &times([1; 100]), &[]).expect("good timers");
        state.accept().expect("a working disk");
    }
    let mut calls = Vec::new();
    while calls.last() != Some(&0) {
        calls.push(state.take_timers(Clock::EventTime, 1, usize::MAX).expect("readable state").rows);
        state.accept().expect("a working disk");
    }
    assert!(calls.iter().sum::<u32>() == 4000 && calls.len() > 10, "{calls:?}");
}

#[test]
fn a_million_timers_take_bounded_memory_and_fire_in_order() {
    const TIMERS: u64 = 1_000_000;
    // Far more than a head holds; about an eighth of them fit into all.
    const IN_MEMORY_MAX: usize = 160_000;
    let world = World::new();
    let mut state =
        world.open_with(StateOptions { memory_bytes_max: 16 * MIB, ..options(&world, 0, 1, 16) }, &[]).expect("empty");
    let mut in_memory = 0;
    for first in (0..TIMERS).step_by(10_000) {
        // All numbers below a million, in an order without meaning.
        let numbers = (first..first + 10_000).map(|n| n * 387_420_489 % TIMERS);
        let keys = column(numbers.clone().map(|n| (n % 1000).to_be_bytes()));
        let tags = column(numbers.clone().map(|n| n.to_be_bytes()));
        let times = times(numbers.map(|n| n as i64 / 3));
        state.write_timers(Clock::EventTime, &keys, &tags, &times, &[]).expect("good timers");
        state.accept().expect("a working disk");
        in_memory = in_memory.max(state.metrics().memory_timers);
    }
    assert_eq!(state.next_timer(Clock::EventTime), Some(0));
    let (mut fired, mut last) = (0, 0);
    loop {
        let batch = state.take_timers(Clock::EventTime, i64::MAX, 1024).expect("readable state");
        state.accept().expect("a working disk");
        if batch.is_empty() {
            break;
        }
        assert!(batch.iter().map(|row| row.timestamp).is_sorted() && batch.timestamp(0) >= last);
        last = batch.timestamp(batch.rows as usize - 1);
        fired += u64::from(batch.rows);
        in_memory = in_memory.max(state.metrics().memory_timers);
    }
    assert_eq!(fired, TIMERS);
    assert!(in_memory < IN_MEMORY_MAX, "{in_memory} timers in memory");
}

#[test]
fn times_at_the_ends_of_their_range_are_times() {
    let world = World::new();
    let mut state = open(&world);
    for time in [i64::MAX, i64::MIN, 0] {
        put(&mut state, &(0, time, b"k".to_vec(), Vec::new()), false);
    }
    state.accept().expect("a working disk");
    assert_eq!(state.next_timer(Clock::EventTime), Some(i64::MIN));
    assert_eq!(state.next_timer(Clock::ProcessingTime), None);
    let first = state.take_timers(Clock::EventTime, i64::MIN, 10).expect("readable state");
    state.accept().expect("a working disk");
    let rest = state.take_timers(Clock::EventTime, i64::MAX, 10).expect("readable state");
    let fired = first.iter().chain(rest.iter()).map(|row| row.timestamp);
    assert_eq!(fired.collect::<Vec<_>>(), [i64::MIN, 0, i64::MAX]);
}

#[test]
fn the_watermark_is_restored_as_the_least_of_those_whose_key_groups_are_taken_over() {
    let world = World::new();
    let snapshots = [(0, 700), (1, 900)].map(|(index, watermark)| {
        let mut state = world.open_with(options(&world, index, 2, 16), &[]).expect("empty state");
        assert_eq!(state.restored_watermark(), i64::MIN);
        state.write_watermark(5).expect("a working disk");
        state.write_watermark(watermark).expect("a working disk");
        state.accept().expect("a working disk");
        world.uploader(&index.to_string()).finish(state.freeze(Epoch(1)).expect("a working disk"))
    });
    let restored = |index, parallelism| {
        let options = options(&world, index, parallelism, 16);
        world.open_with(options, &snapshots).expect("good snapshots").restored_watermark()
    };
    assert_eq!([restored(0, 2), restored(1, 2)], [700, 900]);
    assert_eq!(restored(0, 1), 700);
    assert_eq!([restored(0, 3), restored(1, 3), restored(2, 3)], [700, 700, 900]);
}

#[test]
fn what_a_guest_may_not_hand_over_is_refused() {
    let world = World::new();
    // A tag of the greatest length must fit into memory.
    let options = StateOptions { memory_bytes_max: 1 << 20, ..options(&world, 1, 2, 16) };
    let mut state = world.open_with(options, &[]).expect("empty state");
    let max = MaxParallelism::new(16).expect("in range");
    let all = (0..100u32).map(|n| n.to_string());
    let (own, foreign): (Vec<_>, Vec<_>) = all.partition(|key| max.subtask(max.key_group(key.as_bytes()), 2) == 1);
    let (own, foreign) = (column([&own[0]]), column([&foreign[0]]));
    let mut refused = |keys: &Column, tags: &Column, times: &[u8], deletes: &[u8]| {
        let error = state.write_timers(Clock::EventTime, keys, tags, times, deletes).expect_err("a refusal");
        state.discard();
        assert!(error.is_guest_fault(), "{error}");
        assert_eq!(state.next_timer(Clock::EventTime), None);
        error
    };
    let (no_tags, time) = (Column::default(), times([1]));
    assert!(matches!(refused(&foreign, &no_tags, &time, &[]), StateError::ForeignKey { .. }));
    assert!(matches!(refused(&own, &no_tags, &[0; 7], &[]), StateError::Times { rows: 1, bytes: 7, .. }));
    assert!(matches!(refused(&own, &no_tags, &times([1, 2]), &[]), StateError::Times { bytes: 16, .. }));
    assert!(matches!(refused(&own, &no_tags, &time, &[0, 0]), StateError::Bitmap { .. }));
    assert!(matches!(refused(&own, &column(["a", "b"]), &time, &[]), StateError::Malformed { .. }));
    let long = column([vec![0; TAG_BYTES_MAX + 1]]);
    assert!(matches!(refused(&own, &long, &time, &[]), StateError::TooLong { what: "tag of a timer", .. }));
    let longest = column([vec![0; TAG_BYTES_MAX]]);
    state.write_timers(Clock::EventTime, &own, &longest, &time, &[]).expect("just fits");
    state.accept().expect("a working disk");
    let batch = state.take_timers(Clock::EventTime, 1, 10).expect("readable state");
    assert_eq!(batch.values.data.len(), TAG_BYTES_MAX);
    // The table of timers has no index.
    assert!(matches!(state.get_many(1, &own, &no_tags), Err(StateError::NoSuchTable { tables: 1, .. })));
}

#[test]
fn timers_of_an_operator_that_has_none_any_more_stay_in_its_snapshots() {
    let world = World::new();
    let mut state = open(&world);
    put(&mut state, &(0, 5, b"k".to_vec(), b"t".to_vec()), false);
    state.accept().expect("a working disk");
    let snapshot = world.uploader("first").finish(state.freeze(Epoch(1)).expect("a working disk"));
    drop(state);
    let without = StateOptions { tables: vec![table("a", 1)], ..options(&world, 0, 1, 16) };
    let mut state = world.open_with(without, &[snapshot]).expect("a good snapshot");
    assert!(!state.has_timers());
    assert_eq!(state.next_timer(Clock::EventTime), None);
    let snapshot = world.uploader("second").finish(state.freeze(Epoch(2)).expect("a working disk"));
    drop(state);
    let state = world.open_with(options(&world, 0, 1, 16), &[snapshot]).expect("a good snapshot");
    assert_eq!(state.next_timer(Clock::EventTime), Some(5));
}
