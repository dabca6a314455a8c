//! Tumbling and sliding windows.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate::ErrorKind;
use lockgate::blocks::{Aggregate, Count, Max, SlidingWindows, Sum, Top, TumblingWindows};
use lockgate::prelude::*;
use lockgate::testing::{Harness, TestRecord};

use crate::random::{Driver, Random, Step, steps};

/// What is kept of a window.
type Kept = ((Count, Sum), (Max<i64>, Top<i64, 2>));

#[derive(Default, serde::Deserialize)]
struct Config {
    size: u64,
    slide: u64,
    lateness: u64,
    /// Whether some records are bad, which is found out when they have been added.
    #[serde(default)]
    rejects: bool,
}

fn is_bad(value: i64) -> bool {
    value % 5 == 0
}

/// Windows by configuration. Tumbling ones are made twice, as such and as sliding ones, and must agree.
struct Windows {
    sliding: SlidingWindows<Kept>,
    tumbling: Option<TumblingWindows<Kept>>,
    tumbled: Output,
    rejects: bool,
}

impl Operator for Windows {
    fn new(declare: &mut Declaration) -> Windows {
        let late = declare.output("late");
        let second = Duration::from_secs(1);
        Windows {
            sliding: SlidingWindows::declare(declare, "sliding", second, second).late_to(late),
            tumbling: Some(TumblingWindows::declare(declare, "tumbling", second)),
            tumbled: declare.output("tumbled"),
            rejects: false,
        }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        let Config { size, slide, lateness, rejects } = ctx.config()?;
        self.rejects = rejects;
        let (size, slide) = (Duration::from_millis(size), Duration::from_millis(slide));
        self.sliding.set_size(size, slide)?;
        match &mut self.tumbling {
            Some(tumbling) if size == slide => tumbling.set_size(size)?,
            Some(_) | None => self.tumbling = None,
        }
        if lateness > 0 {
            let lateness = Duration::from_millis(lateness);
            self.sliding.set_allowed_lateness(lateness)?;
            self.tumbling.iter_mut().try_for_each(|tumbling| tumbling.set_allowed_lateness(lateness))?;
        }
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?.parse::<i64>()?;
        let counts = self.sliding.add(ctx, &record, (((), value), (value, value)))?;
        if let Some(tumbling) = &self.tumbling {
            assert_eq!(tumbling.add(ctx, &record, (((), value), (value, value)))?, counts);
        }
        if self.rejects && is_bad(value) {
            return Err(Error::bad_record("a bad value"));
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let key = timer.key();
        let fired = self.sliding.fire(ctx, &timer, |ctx, window, kept| {
            ctx.emit_fmt(key, format_args!("{}..{} {kept:?}", window.start, window.end));
            Ok(())
        })?;
        if fired {
            return Ok(());
        }
        let tumbling = self.tumbling.as_ref().expect("whose timer is it?");
        let fired = tumbling.fire(ctx, &timer, |ctx, window, kept| {
            let text = format!("{}..{} {kept:?}", window.start, window.end);
            ctx.emit_to(self.tumbled, key, text);
            Ok(())
        })?;
        assert!(fired, "whose timer is it?");
        Ok(())
    }
}

/// All records of all windows, for ever.
struct Model {
    size: i64,
    slide: i64,
    lateness: i64,
    watermark: i64,
    windows: BTreeMap<(&'static str, i64), Vec<i64>>,
    /// Windows that have got a record since they were last given out.
    changed: Vec<(&'static str, i64)>,
}

impl Model {
    /// Says whether the record is late.
    fn add(&mut self, key: &'static str, time: i64, value: i64) -> bool {
        let mut late = true;
        let mut start = time.div_euclid(self.slide) * self.slide;
        while start + self.size > time {
            if start + self.size - 1 + self.lateness > self.watermark {
                late = false;
                self.windows.entry((key, start)).or_default().push(value);
                if !self.changed.contains(&(key, start)) {
                    self.changed.push((key, start));
                }
            }
            start -= self.slide;
        }
        late
    }

    fn advance(&mut self, watermark: i64) -> Vec<String> {
        if watermark <= self.watermark {
            return Vec::new();
        }
        self.watermark = watermark;
        let complete = |start: i64| start + self.size - 1 <= self.watermark;
        let (due, changed) = self.changed.iter().partition::<Vec<_>, _>(|(_, start)| complete(*start));
        self.changed = changed;
        let mut lines = due.iter().map(|(key, start)| self.line(key, *start)).collect::<Vec<_>>();
        lines.sort();
        lines
    }

    fn line(&self, key: &'static str, start: i64) -> String {
        let mut values = self.windows[&(key, start)].clone();
        let (count, sum) = (values.len(), values.iter().sum::<i64>());
        values.sort_unstable_by(|a, b| b.cmp(a));
        let top = &values[..values.len().min(2)];
        let end = start + self.size;
        format!("{key} {start}..{end} (({count}, {sum}), ({}, {top:?})) @{}", values[0], end - 1)
    }
}

fn run(seed: u64, size: i64, slide: i64, lateness: i64) {
    run_rejecting(seed, size, slide, lateness, false);
}

fn run_rejecting(seed: u64, size: i64, slide: i64, lateness: i64, rejects: bool) {
    let mut random = Random(seed);
    let config = format!(r#"{{"size": {size}, "slide": {slide}, "lateness": {lateness}, "rejects": {rejects}}}"#);
    let mut driver = if rejects {
        Driver::<Windows>::rejecting(config.clone(), &["in"])
    } else {
        Driver::<Windows>::new(config.clone(), &["in"])
    };
    let mut model = Model { size, slide, lateness, watermark: i64::MIN, windows: BTreeMap::new(), changed: Vec::new() };
    let mut steps = steps(&mut random, 300, size.min(60));
    steps.push(Step::Watermark(i64::MAX));
    for (number, step) in steps.iter().enumerate() {
        driver.step(step).expect("an operator that works");
        let what = || format!("seed {seed}, {config}, step {number}: {step:?}");
        match *step {
            Step::Record(_, key, time, value) => {
                let late = !(rejects && is_bad(value)) && model.add(key, time, value);
                assert_eq!(
                    driver.take_late(),
                    if late { vec![format!("{key} {value}")] } else { vec![] },
                    "{}",
                    what()
                );
                assert!(driver.take().is_empty(), "{}", what());
            }
            Step::Watermark(watermark) => {
                let tumbled = driver.harness.take_output_of("tumbled");
                let order = driver.harness.take_output();
                assert_in_order(&order);
                let lines = sorted(&order);
                assert_eq!(lines, model.advance(watermark), "{}", what());
                if size == slide {
                    assert_eq!(lines, sorted(&tumbled), "{}", what());
                }
            }
            Step::Restore | Step::Barrier | Step::Trim | Step::Crash => {
                driver.harness.take_output_of("tumbled");
                assert!(driver.take().is_empty(), "{}", what());
            }
        }
    }
    assert_no_state(&mut driver.harness);
}

fn sorted(records: &[TestRecord]) -> Vec<String> {
    let line =
        |record: &TestRecord| format!("{} {} @{}", record.key_str(), record.value_str(), record.timestamp.unwrap_or(0));
    let mut lines = records.iter().map(line).collect::<Vec<_>>();
    lines.sort();
    lines
}

/// What was complete for the first time comes in the order of time for each key.
fn assert_in_order(records: &[TestRecord]) {
    for key in ["a", "b", "c"] {
        let times = records.iter().filter(|record| record.key_str() == key).map(|record| record.timestamp);
        assert!(times.is_sorted(), "{records:?}");
    }
}

fn assert_no_state(harness: &mut Harness<Windows>) {
    for block in ["sliding", "tumbling"] {
        for key in ["a", "b", "c"] {
            for table in ["newest", "panes-used"] {
                assert_eq!(harness.value::<bool>(&format!("{block}-{table}"), key), None, "{block}.{table} of {key}");
            }
            assert!(harness.map::<i64, Kept>(&format!("{block}-panes"), key).is_empty());
        }
    }
    for key in ["a", "b", "c"] {
        assert!(harness.map::<i64, Kept>("sliding-front", key).is_empty());
        assert_eq!(harness.value::<bool>("sliding-back", key), None);
        assert_eq!(harness.value::<i64>("sliding-next", key), None);
    }
}

#[test]
fn windows_are_those_of_a_model_that_keeps_all_records() {
    for seed in 0..12 {
        for (size, slide) in [(10, 10), (1, 1), (10, 2), (60, 1), (10, 3), (64, 4), (100, 70)] {
            run(seed, size, slide, 0);
        }
    }
}

#[test]
fn windows_with_allowed_lateness_are_given_out_again_with_all_they_have() {
    for seed in 100..112 {
        for (size, slide, lateness) in [(10, 10, 5), (10, 2, 7), (60, 1, 40), (10, 3, 100), (64, 4, 1)] {
            run(seed, size, slide, lateness);
        }
    }
}

#[test]
fn records_that_are_rejected_behind_their_windows_leave_nothing_there() {
    for seed in 200..208 {
        for (size, slide, lateness) in [(10, 10, 0), (60, 1, 0), (60, 1, 40), (64, 4, 1)] {
            run_rejecting(seed, size, slide, lateness, true);
        }
    }
}

/// What comes and goes between two barriers costs neither memory nor an entry.
#[test]
fn a_key_is_as_large_after_many_windows_as_after_a_few() {
    let mut harness = open(60_000, 1_000);
    let mut bytes = Vec::new();
    for second in 0..4_000 {
        harness.process([("a", "1", second * 1_000)]).expect("a record");
        harness.advance_watermark(second * 1_000).expect("windows");
        if second % 1_000 == 999 {
            bytes.push(harness.cache_bytes());
        }
    }
    assert!(bytes[3] <= bytes[0] + bytes[0] / 4, "bytes after each 1,000 windows: {bytes:?}");
}

#[test]
fn a_long_silence_costs_no_window() {
    let mut harness = open(60_000, 1_000);
    harness.process([("a", "1", 0), ("a", "2", 1 << 50)]).expect("records");
    harness.advance_watermark(i64::MAX).expect("windows");
    let output = harness.take_output();
    assert_eq!(output.len(), 120);
    assert!(harness.calls().emit <= 2, "{:?}", harness.calls());
}

/// Windows far apart from each other don't make each other complete, however many there are.
#[test]
fn more_windows_than_one_call_gives_out_come_all() {
    let mut harness = open(70_000, 1);
    let records = (0..50).map(|number| ("a", "1".to_owned(), number * 3));
    harness.process(records).expect("records");
    harness.advance_watermark(i64::MAX).expect("windows");
    let output = harness.take_output();
    assert_eq!(output.len(), 70_000 + 49 * 3);
    assert!(output.iter().map(|record| record.timestamp).is_sorted());
    assert_no_state(&mut harness);
}

fn open(size: i64, slide: i64) -> Harness<Windows> {
    Harness::open_with(&format!(r#"{{"size": {size}, "slide": {slide}, "lateness": 0}}"#)).expect("a configuration")
}

#[test]
fn a_record_at_the_end_of_time_is_a_bad_record() {
    for (time, bad) in [
        (i64::MAX, true),
        (i64::MAX - 2_000, false),
        (i64::MIN + 1, true),
        (i64::MIN + 2_000, false),
        (-1, false),
        (0, false),
    ] {
        let mut harness = open(1_000, 100);
        let result = harness.process([("a", "1", time)]);
        if bad {
            let error = result.expect_err("no such window");
            assert_eq!(error.kind(), ErrorKind::BadRecord);
            assert!(error.to_string().contains("too near to an end of time for windows of 1000 ms"), "{error}");
            continue;
        }
        result.expect("a window");
        harness.advance_watermark(i64::MAX).expect("windows");
        assert_eq!(harness.take_output().len(), 10, "{time}");
    }
    let error = open(1_000, 100).process([("a", "1")]).expect_err("no event time");
    assert!(error.to_string().contains("the record has no event time"), "{error}");
}

#[test]
fn lengths_that_make_no_windows_are_refused() {
    let refused = |size: i64, slide: i64| {
        let config = format!(r#"{{"size": {size}, "slide": {slide}, "lateness": 0}}"#);
        Harness::<Windows>::open_with(&config).err().expect("refused").to_string()
    };
    assert_eq!(refused(0, 0), "a window of 0ns is none: it takes whole milliseconds, and at least one");
    assert_eq!(refused(10, 20), "windows of 10ms that begin every 20ms leave gaps: the slide is at most the size");
}

/// A window's panes are merged a few times each, not each record or pane for each window.
#[test]
fn a_window_costs_a_few_merges_however_many_panes_it_has() {
    use std::cell::Cell;

    thread_local! {
        static MERGES: Cell<u64> = const { Cell::new(0) };
    }

    #[derive(Clone, serde::Serialize, serde::Deserialize)]
    struct Counted(u64);

    impl Aggregate for Counted {
        type Input = ();
        type Output = u64;

        fn create((): ()) -> Counted {
            Counted(1)
        }
        fn add(&mut self, (): ()) {
            self.0 += 1;
        }
        fn merge(&mut self, other: &Counted) {
            MERGES.set(MERGES.get() + 1);
            self.0 += other.0;
        }
        fn finish(self) -> u64 {
            self.0
        }
    }

    struct Sliding(SlidingWindows<Counted>);

    impl Operator for Sliding {
        fn new(declare: &mut Declaration) -> Sliding {
            Sliding(SlidingWindows::declare(declare, "s", Duration::from_secs(1_000), Duration::from_secs(1)))
        }
        fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
            self.0.add(ctx, &record, ())?;
            Ok(())
        }
        fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
            self.0.fire(ctx, &timer, |ctx, _, count| {
                ctx.emit_fmt((), format_args!("{count}"));
                Ok(())
            })?;
            Ok(())
        }
    }

    let mut harness = Harness::<Sliding>::open().expect("no configuration");
    let seconds = 5_000;
    for second in 0..seconds {
        harness.process([("a", "", second * 1_000), ("a", "", second * 1_000 + 500)]).expect("records");
        harness.advance_watermark(second * 1_000).expect("windows");
    }
    let output = harness.take_output();
    assert_eq!(output.len(), 4_999);
    assert_eq!(output.last().map(|record| record.value_str()), Some("2000".to_owned()));
    let per_window = MERGES.get() as f64 / output.len() as f64;
    assert!(per_window < 5.0, "{per_window} merges for each window of 1000 panes");
}
