//! Interval joins and window joins.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate::ErrorKind;
use lockgate::blocks::{IntervalJoin, Pair, WindowJoin};
use lockgate::prelude::*;
use lockgate::testing::Harness;

use crate::random::{Driver, Random, Step, steps};

/// The operators below take records of the second input for right ones.
struct Interval<const LOWER: i64, const UPPER: i64> {
    right: Input,
    join: IntervalJoin<i64, i64>,
}

fn pair(key: Option<&[u8]>, ctx: &mut Context<'_>, pair: Pair<'_, i64, i64>) -> Result<(), Error> {
    let text = format!("{}@{} {}@{}", pair.left, pair.left_time, pair.right, pair.right_time);
    ctx.emit_with_timestamp(key, text, pair.time());
    Ok(())
}

impl<const LOWER: i64, const UPPER: i64> Operator for Interval<LOWER, UPPER> {
    fn new(declare: &mut Declaration) -> Self {
        declare.input("left");
        let right = declare.input("right");
        let late = declare.output("late");
        let join = IntervalJoin::declare(declare, "j", LOWER..=UPPER).keep_unmatched_left().late_to(late);
        Interval { right, join }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?.parse()?;
        if ctx.input() == self.right {
            self.join.add_right(ctx, &record, value, |ctx, found| pair(record.key(), ctx, found))?;
        } else {
            self.join.add_left(ctx, &record, value, |ctx, found| pair(record.key(), ctx, found))?;
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let fired = self.join.fire(ctx, &timer, |ctx, time, left| {
            ctx.emit_with_timestamp(timer.key(), format!("{left} alone"), time);
            Ok(())
        })?;
        assert!(fired);
        Ok(())
    }
}

type Held = (&'static str, i64, i64);

/// Every pair of two records that were not late, and every left record that is in none.
fn pairs(left: &[Held], right: &[Held], lower: i64, upper: i64) -> Vec<String> {
    let mut lines = Vec::new();
    for &(key, left_time, left) in left {
        let partner = |&&(other, time, _): &&Held| other == key && (lower..=upper).contains(&(time - left_time));
        let partners = right.iter().filter(partner).collect::<Vec<_>>();
        for &&(_, right_time, right) in &partners {
            let time = left_time.max(right_time);
            lines.push(format!("{key} {left}@{left_time} {right}@{right_time} @{time}"));
        }
        if partners.is_empty() {
            lines.push(format!("{key} {left} alone @{left_time}"));
        }
    }
    lines.sort();
    lines
}

fn run_interval<const LOWER: i64, const UPPER: i64>(seed: u64, spread: i64) {
    let mut random = Random(seed);
    let mut driver = Driver::<Interval<LOWER, UPPER>>::new("{}".to_owned(), &["left", "right"]);
    let (mut sides, mut watermark, mut lines) = ([Vec::new(), Vec::new()], i64::MIN, Vec::new());
    let mut steps = steps(&mut random, 300, spread);
    steps.push(Step::Watermark(i64::MAX));
    for step in &steps {
        driver.step(step).expect("an operator that works");
        lines.extend(driver.take());
        match *step {
            Step::Record(input, key, time, value) => {
                let late = time <= watermark;
                assert_eq!(driver.take_late().len(), usize::from(late), "seed {seed}: {step:?}");
                if !late {
                    sides[input].push((key, time, value));
                }
            }
            Step::Watermark(reached) => watermark = reached,
            Step::Restore | Step::Barrier | Step::Trim | Step::Crash => {}
        }
    }
    lines.sort();
    let [left, right] = &sides;
    assert_eq!(lines, pairs(left, right, LOWER, UPPER), "seed {seed}, {LOWER}..={UPPER}");
    for (side, key) in ["left", "right"].iter().flat_map(|side| ["a", "b", "c"].map(|key| (side, key))) {
        assert_eq!(driver.harness.value::<bool>(&format!("j-{side}-counts"), key), None, "{side} of {key}");
        assert!(driver.harness.map::<(i64, u32), i64>(&format!("j-{side}"), key).is_empty());
    }
}

#[test]
fn an_interval_join_gives_every_pair_once_and_the_left_records_that_are_in_none() {
    for seed in 0..20 {
        run_interval::<-3, 5>(seed, 20);
        run_interval::<0, 0>(seed, 5);
        run_interval::<10, 40>(seed, 20);
        run_interval::<-40, -10>(seed, 20);
        run_interval::<-2_000, 500>(seed, 2_000);
    }
}

#[test]
fn partners_beyond_the_ends_of_time_are_none() -> Result<(), Error> {
    let mut harness = Harness::<Interval<10, 40>>::open()?;
    harness.process_from("right", [("a", "1", i64::MAX), ("a", "2", i64::MAX - 1)])?;
    harness.process_from("left", [("a", "3", i64::MAX - 5), ("a", "4", i64::MAX - 11), ("a", "5", i64::MIN + 1)])?;
    let output = harness.take_output();
    assert_eq!(output.len(), 3 - 1, "{output:?}");
    harness.advance_watermark(i64::MAX)?;
    let alone = harness.take_output().iter().map(|record| record.value_str()).collect::<Vec<_>>();
    assert_eq!(alone, ["5 alone", "3 alone"]);
    Ok(())
}

/// What both sides of a window are, as text.
struct Windowed {
    right: Input,
    join: WindowJoin<i64, i64>,
}

const SIZE: i64 = 25;

impl Operator for Windowed {
    fn new(declare: &mut Declaration) -> Windowed {
        declare.input("left");
        let right = declare.input("right");
        let late = declare.output("late");
        let size = Duration::from_millis(SIZE as u64);
        Windowed { right, join: WindowJoin::declare(declare, "j", size).late_to(late) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?.parse()?;
        if ctx.input() == self.right {
            self.join.add_right(ctx, &record, value)?;
        } else {
            self.join.add_left(ctx, &record, value)?;
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let fired = self.join.fire(ctx, &timer, |ctx, window, left, right| {
            ctx.emit_fmt(timer.key(), format_args!("{} {left:?} {right:?}", window.start));
            Ok(())
        })?;
        assert!(fired);
        Ok(())
    }
}

#[test]
fn a_window_join_gives_both_sides_of_each_window_in_the_order_in_which_they_came() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut driver = Driver::<Windowed>::new("{}".to_owned(), &["left", "right"]);
        let mut windows = BTreeMap::<_, [Vec<i64>; 2]>::new();
        let mut watermark = i64::MIN;
        let mut steps = steps(&mut random, 400, 30);
        steps.push(Step::Watermark(i64::MAX));
        for step in &steps {
            driver.step(step).expect("an operator that works");
            match *step {
                Step::Record(input, key, time, value) => {
                    let start = time.div_euclid(SIZE) * SIZE;
                    let late = start + SIZE - 1 <= watermark;
                    assert_eq!(driver.take_late().len(), usize::from(late));
                    if !late {
                        windows.entry((start, key)).or_default()[input].push(value);
                    }
                }
                Step::Watermark(reached) => {
                    watermark = reached;
                    let mut lines = Vec::new();
                    windows.retain(|(start, key), [left, right]| {
                        let complete = start + SIZE - 1 <= watermark;
                        if complete {
                            lines.push(format!("{key} {start} {left:?} {right:?} @{}", start + SIZE - 1));
                        }
                        !complete
                    });
                    lines.sort();
                    assert_eq!(driver.take(), lines, "seed {seed}: {step:?}");
                }
                Step::Restore | Step::Barrier | Step::Trim | Step::Crash => assert!(driver.take().is_empty()),
            }
        }
        for (side, key) in ["left", "right"].iter().flat_map(|side| ["a", "b", "c"].map(|key| (side, key))) {
            assert_eq!(driver.harness.value::<bool>(&format!("j-{side}-counts"), key), None);
            assert!(driver.harness.map::<(i64, u32), i64>(&format!("j-{side}"), key).is_empty());
        }
    }
}

#[test]
fn a_window_join_takes_thousands_of_records_of_one_key_and_refuses_the_end_of_time() {
    let mut harness = Harness::<Windowed>::open().expect("no configuration");
    let values = (0..5_000).map(|number| ("a", number.to_string(), number % SIZE));
    harness.process_from("right", values).expect("records");
    harness.advance_watermark(i64::MAX - 1).expect("windows");
    let output = harness.take_output();
    let all = (0..5_000).collect::<Vec<i64>>();
    assert_eq!(output, [("a", format!("0 [] {all:?}"), SIZE - 1)]);
    let error = harness.process([("a", "1", i64::MAX)]).expect_err("no window");
    assert_eq!(error.kind(), ErrorKind::BadRecord);
}
