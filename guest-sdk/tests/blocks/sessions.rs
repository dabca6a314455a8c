//! Session windows.

use std::time::Duration;

use lockgate::ErrorKind;
use lockgate::blocks::{Count, SessionWindows, Sum};
use lockgate::prelude::*;
use lockgate::testing::Harness;

use crate::random::{Driver, Random, Step, steps};

#[derive(serde::Deserialize)]
struct Config {
    gap: u64,
    lateness: u64,
}

struct Sessions {
    sessions: SessionWindows<(Count, Sum)>,
}

impl Operator for Sessions {
    fn new(declare: &mut Declaration) -> Sessions {
        let late = declare.output("late");
        Sessions { sessions: SessionWindows::declare(declare, "s", Duration::from_secs(1)).late_to(late) }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        let Config { gap, lateness } = ctx.config()?;
        self.sessions.set_gap(Duration::from_millis(gap))?;
        if lateness > 0 {
            self.sessions.set_allowed_lateness(Duration::from_millis(lateness))?;
        }
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.sessions.add(ctx, &record, ((), record.value_str()?.parse()?))?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let fired = self.sessions.fire(ctx, &timer, |ctx, window, (count, sum)| {
            ctx.emit_fmt(timer.key(), format_args!("{}..{} {count} {sum}", window.start, window.end));
            Ok(())
        })?;
        assert!(fired);
        Ok(())
    }
}

/// The records of the sessions that are still kept.
struct Session {
    key: &'static str,
    records: Vec<(i64, i64)>,
    changed: bool,
}

impl Session {
    fn first(&self) -> i64 {
        self.records.iter().map(|&(time, _)| time).min().expect("a record")
    }

    fn end(&self, gap: i64) -> i64 {
        self.records.iter().map(|&(time, _)| time).max().expect("a record") + gap
    }
}

struct Model {
    gap: i64,
    lateness: i64,
    watermark: i64,
    sessions: Vec<Session>,
}

impl Model {
    fn add(&mut self, key: &'static str, time: i64, value: i64) -> bool {
        let gap = self.gap;
        let near = |session: &Session| {
            session.key == key && session.records.iter().any(|&(other, _)| other.abs_diff(time) < gap as u64)
        };
        let (near, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.sessions).into_iter().partition(near);
        self.sessions = others;
        if near.is_empty() && time + gap - 1 + self.lateness <= self.watermark {
            return true;
        }
        let mut records = near.into_iter().flat_map(|session| session.records).collect::<Vec<_>>();
        records.push((time, value));
        self.sessions.push(Session { key, records, changed: true });
        false
    }

    fn advance(&mut self, watermark: i64) -> Vec<String> {
        if watermark <= self.watermark {
            return Vec::new();
        }
        self.watermark = watermark;
        let (gap, watermark) = (self.gap, self.watermark);
        let mut lines = Vec::new();
        for session in self.sessions.iter_mut().filter(|session| session.changed && session.end(gap) - 1 <= watermark) {
            session.changed = false;
            let (count, sum) = (session.records.len(), session.records.iter().map(|&(_, value)| value).sum::<i64>());
            let (start, end) = (session.first(), session.end(gap));
            lines.push(format!("{} {start}..{end} {count} {sum} @{}", session.key, end - 1));
        }
        self.sessions.retain(|session| session.end(gap) - 1 + self.lateness > watermark);
        lines.sort();
        lines
    }
}

fn run(seed: u64, gap: i64, lateness: i64) {
    let mut random = Random(seed);
    let mut driver = Driver::<Sessions>::new(format!(r#"{{"gap": {gap}, "lateness": {lateness}}}"#), &["in"]);
    let mut model = Model { gap, lateness, watermark: i64::MIN, sessions: Vec::new() };
    let mut steps = steps(&mut random, 300, 30);
    steps.push(Step::Watermark(i64::MAX));
    for (number, step) in steps.iter().enumerate() {
        driver.step(step).expect("an operator that works");
        let what = || format!("seed {seed}, gap {gap}, lateness {lateness}, step {number}: {step:?}");
        match *step {
            Step::Record(_, key, time, value) => {
                let late = model.add(key, time, value);
                assert_eq!(
                    driver.take_late(),
                    if late { vec![format!("{key} {value}")] } else { vec![] },
                    "{}",
                    what()
                );
            }
            Step::Watermark(watermark) => assert_eq!(driver.take(), model.advance(watermark), "{}", what()),
            Step::Restore | Step::Barrier | Step::Trim | Step::Crash => assert!(driver.take().is_empty(), "{}", what()),
        }
    }
    for key in ["a", "b", "c"] {
        assert_eq!(driver.harness.value::<bool>("s-sessions", key), None);
    }
}

#[test]
fn sessions_are_those_of_a_model_that_keeps_all_records() {
    for seed in 0..30 {
        for gap in [1, 7, 40] {
            run(seed, gap, 0);
        }
    }
}

#[test]
fn sessions_with_allowed_lateness_grow_and_are_given_out_again() {
    for seed in 100..130 {
        for (gap, lateness) in [(7, 10), (20, 3), (5, 100)] {
            run(seed, gap, lateness);
        }
    }
}

#[test]
fn a_session_has_the_earliest_and_latest_times_but_not_beyond() -> Result<(), Error> {
    let open = || Harness::<Sessions>::open_with(r#"{"gap": 10, "lateness": 0}"#);
    let mut harness = open()?;
    harness.process([("a", "1", i64::MIN + 1), ("a", "2", i64::MIN + 10), ("a", "3", i64::MAX - 10)])?;
    harness.advance_watermark(i64::MAX)?;
    let output = harness.take_output();
    assert_eq!(output[0].value_str(), format!("{}..{} 2 3", i64::MIN + 1, i64::MIN + 20));
    assert_eq!(output[1].value_str(), format!("{}..{} 1 3", i64::MAX - 10, i64::MAX));
    let error = open()?.process([("a", "1", i64::MAX - 9)]).expect_err("no end");
    assert_eq!(error.kind(), ErrorKind::BadRecord);
    assert!(error.to_string().contains("too near to an end of time"), "{error}");
    Ok(())
}
