//! Watermarks by example, and against a slower computation of the same.

use proptest::prelude::*;

use super::*;
use crate::element::Row;

const SECOND: Duration = Duration::from_secs(1);

fn split(name: &str) -> SplitId {
    SplitId::new(name)
}

fn batch(times: &[i64]) -> Batch {
    let mut batch = Batch::with_capacity(times.len(), 0);
    times.iter().for_each(|&timestamp| batch.push(Row { key: None, value: None, timestamp }));
    batch
}

fn watermarks(strategy: WatermarkStrategy, idle_timeout: Option<Duration>) -> SourceWatermarks {
    SourceWatermarks::new(WatermarkOptions { strategy, idle_timeout })
}

fn told(watermarks: &mut SourceWatermarks, now: Duration) -> Vec<Change> {
    std::iter::from_fn(|| watermarks.tick(now)).collect()
}

#[test]
fn a_watermark_stays_below_the_newest_event_time_by_what_may_be_out_of_order() {
    for (strategy, expected) in [
        (WatermarkStrategy::None, vec![]),
        (WatermarkStrategy::Monotonous, vec![Change::Watermark(6_999)]),
        (WatermarkStrategy::Bounded { max_out_of_orderness: 5 * SECOND }, vec![Change::Watermark(1_999)]),
    ] {
        let mut watermarks = watermarks(strategy, None);
        assert_eq!(watermarks.batch(&split("a"), &batch(&[3_000, NO_TIMESTAMP, 7_000, 5_000])), None);
        assert_eq!(told(&mut watermarks, SECOND), expected);
        watermarks.batch(&split("a"), &batch(&[6_000]));
        assert_eq!(told(&mut watermarks, SECOND), [], "it doesn't go back, and isn't told twice");
    }
}

#[test]
fn the_slowest_split_holds_the_watermark_until_it_ends() {
    let mut watermarks = watermarks(WatermarkStrategy::Monotonous, None);
    watermarks.batch(&split("slow"), &batch(&[11]));
    watermarks.batch(&split("fast"), &batch(&[500]));
    assert_eq!(told(&mut watermarks, SECOND), [Change::Watermark(10)]);
    watermarks.rests(&split("slow"), SECOND);
    assert_eq!(watermarks.next_deadline(), None, "without a timeout a split is never idle");
    assert_eq!(told(&mut watermarks, 1_000_000 * SECOND), []);
    watermarks.ended(&split("slow"));
    assert_eq!(told(&mut watermarks, SECOND), [Change::Watermark(499)]);
    watermarks.ended(&split("fast"));
    assert_eq!(told(&mut watermarks, SECOND), []);
}

#[test]
fn a_split_that_was_begun_before_a_restart_holds_the_watermark_from_the_start() {
    let mut watermarks = watermarks(WatermarkStrategy::Monotonous, None);
    watermarks.begun(&split("slow"));
    watermarks.batch(&split("fast"), &batch(&[500]));
    assert_eq!(told(&mut watermarks, SECOND), []);
    watermarks.batch(&split("slow"), &batch(&[20]));
    assert_eq!(told(&mut watermarks, SECOND), [Change::Watermark(19)]);
}

#[test]
fn a_split_that_is_said_to_begin_again_holds_the_watermark_where_it_is() {
    let mut watermarks = watermarks(WatermarkStrategy::Monotonous, Some(SECOND));
    watermarks.batch(&split("a"), &batch(&[100]));
    watermarks.batch(&split("b"), &batch(&[100]));
    watermarks.begun(&split("b"));
    assert_eq!(told(&mut watermarks, SECOND), [Change::Watermark(99)], "what it has given counts");
    watermarks.rests(&split("b"), SECOND);
    watermarks.batch(&split("a"), &batch(&[200]));
    assert_eq!(told(&mut watermarks, 2 * SECOND), [Change::Watermark(199)], "it is idle");
    watermarks.begun(&split("b"));
    watermarks.batch(&split("a"), &batch(&[300]));
    assert_eq!(told(&mut watermarks, 3 * SECOND), []);
    watermarks.batch(&split("b"), &batch(&[250]));
    assert_eq!(told(&mut watermarks, 3 * SECOND), [Change::Watermark(249)]);
}

#[test]
fn a_split_that_rests_too_long_is_left_out_and_the_source_is_idle_when_all_are() {
    let mut watermarks = watermarks(WatermarkStrategy::Monotonous, Some(10 * SECOND));
    watermarks.batch(&split("a"), &batch(&[100]));
    watermarks.batch(&split("b"), &batch(&[200]));
    watermarks.rests(&split("a"), SECOND);
    assert_eq!(watermarks.next_deadline(), Some(11 * SECOND));
    assert_eq!(told(&mut watermarks, 10 * SECOND), [Change::Watermark(99)]);
    assert_eq!(told(&mut watermarks, 11 * SECOND), [Change::Watermark(199)]);
    watermarks.all_rest(12 * SECOND);
    assert_eq!(told(&mut watermarks, 21 * SECOND), []);
    assert_eq!(told(&mut watermarks, 22 * SECOND), [Change::Idle]);
    assert_eq!((watermarks.next_deadline(), told(&mut watermarks, 99 * SECOND)), (None, vec![]));
    // Its records are late, and what was told stays true of it.
    assert_eq!(watermarks.batch(&split("a"), &batch(&[150])), Some(Change::Active));
    assert_eq!(told(&mut watermarks, 100 * SECOND), []);
    watermarks.batch(&split("a"), &batch(&[300]));
    assert_eq!(told(&mut watermarks, 100 * SECOND), [Change::Watermark(299)]);
}

#[test]
fn what_a_split_had_come_to_before_its_end_counts_when_the_others_fall_idle() {
    let mut watermarks = watermarks(WatermarkStrategy::Monotonous, Some(10 * SECOND));
    watermarks.batch(&split("a"), &batch(&[100]));
    watermarks.batch(&split("b"), &batch(&[200]));
    watermarks.ended(&split("b"));
    assert_eq!(told(&mut watermarks, SECOND), [Change::Watermark(99)]);
    watermarks.all_rest(SECOND);
    assert_eq!(told(&mut watermarks, 11 * SECOND), [Change::Watermark(199), Change::Idle]);
}

#[test]
fn a_subtask_without_any_split_falls_idle_too() {
    for strategy in [WatermarkStrategy::None, WatermarkStrategy::Monotonous] {
        let mut watermarks = watermarks(strategy, Some(SECOND));
        assert_eq!((watermarks.next_deadline(), told(&mut watermarks, 9 * SECOND)), (None, vec![]));
        watermarks.all_rest(10 * SECOND);
        assert_eq!(watermarks.next_deadline(), Some(11 * SECOND));
        assert_eq!(told(&mut watermarks, 11 * SECOND), [Change::Idle]);
        assert_eq!(watermarks.batch(&split("a"), &batch(&[NO_TIMESTAMP])), Some(Change::Active));
        assert_eq!(told(&mut watermarks, 11 * SECOND), []);
    }
}

#[test]
fn event_times_at_the_ends_of_the_range_neither_overflow_nor_end_the_stream() {
    let far = WatermarkStrategy::Bounded { max_out_of_orderness: Duration::MAX };
    for strategy in [WatermarkStrategy::Monotonous, far] {
        let mut watermarks = watermarks(strategy, None);
        watermarks.batch(&split("a"), &batch(&[i64::MIN + 1]));
        assert_eq!(told(&mut watermarks, SECOND), []);
        watermarks.batch(&split("a"), &batch(&[i64::MAX]));
        let told = told(&mut watermarks, SECOND);
        let [Change::Watermark(watermark)] = told[..] else { panic!("{told:?}") };
        assert!(watermark < WATERMARK_END - 1);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Batch(usize, Vec<i64>),
    Rests(usize),
    AllRest,
    Ended(usize),
    Wait(u32),
}

fn times() -> impl Strategy<Value = i64> {
    prop_oneof![-50..50i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3usize, prop::collection::vec(times(), 0..4)).prop_map(|(split, times)| Step::Batch(split, times)),
        2 => (0..3usize).prop_map(Step::Rests),
        1 => Just(Step::AllRest),
        1 => (0..3usize).prop_map(Step::Ended),
        3 => (0..15u32).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..40)
}

/// A split, told from its whole history.
#[derive(Clone, Default)]
struct Model {
    times: Vec<i64>,
    live: bool,
    resting_since: Option<u32>,
    idle: bool,
}

proptest! {
    #[test]
    fn whatever_happens_the_watermark_only_grows_and_is_the_smallest_of_the_live_splits(
        steps in steps(), late_ms in 0..20u64, timeout_s in prop::option::of(1..12u32)
    ) {
        let strategy = WatermarkStrategy::Bounded { max_out_of_orderness: Duration::from_millis(late_ms) };
        let mut watermarks = watermarks(strategy, timeout_s.map(|timeout| timeout * SECOND));
        let names = ["a", "b", "c"].map(split);
        let mut model = vec![Model::default(); 3];
        let (mut now, mut idle, mut ended) = (0, false, i128::from(i64::MIN));
        let watermark_of = |split: &Model| {
            let newest = split.times.iter().copied().max().unwrap_or(i64::MIN).min(i64::MAX - 1);
            i128::from(newest) - i128::from(late_ms) - 1
        };
        for step in steps {
            match step {
                Step::Batch(index, times) => {
                    let change = watermarks.batch(&names[index], &batch(&times));
                    prop_assert_eq!(change, idle.then_some(Change::Active));
                    idle = false;
                    let split = &mut model[index];
                    split.times.extend(times);
                    (split.live, split.resting_since, split.idle) = (true, None, false);
                }
                Step::Rests(index) => {
                    watermarks.rests(&names[index], now * SECOND);
                    let rested = model[index].resting_since.unwrap_or(now);
                    model[index].resting_since = model[index].live.then_some(rested);
                }
                Step::AllRest => {
                    watermarks.all_rest(now * SECOND);
                    for split in model.iter_mut().filter(|split| split.live) {
                        split.resting_since.get_or_insert(now);
                    }
                }
                Step::Ended(index) => {
                    watermarks.ended(&names[index]);
                    let gone = std::mem::take(&mut model[index]);
                    ended = if gone.live { ended.max(watermark_of(&gone)) } else { ended };
                }
                Step::Wait(seconds) => now += seconds,
            }
            for split in &mut model {
                split.idle |= split.resting_since.zip(timeout_s).is_some_and(|(since, timeout)| now >= since + timeout);
            }
            let before = watermarks.current();
            let told = told(&mut watermarks, now * SECOND);
            let awake = model.iter().filter(|split| split.live && !split.idle);
            let smallest = awake.map(watermark_of).min();
            // One that has ended counts when the others fall idle.
            let reached = smallest.or(told.contains(&Change::Idle).then_some(ended));
            let expected = reached.map_or(before, |reached| {
                before.max(i64::try_from(reached.max(i128::from(i64::MIN))).expect("below the largest"))
            });
            prop_assert_eq!(watermarks.current(), expected);
            let advanced = told.contains(&Change::Watermark(expected));
            prop_assert_eq!(advanced, expected > before);
            prop_assert!(!told.contains(&Change::Active));
            if told.contains(&Change::Idle) {
                prop_assert!(!idle, "told once");
                idle = true;
            }
            if model.iter().any(|split| split.live) {
                prop_assert_eq!(idle, smallest.is_none());
            }
            prop_assert!(told.len() <= 2);
        }
    }
}
