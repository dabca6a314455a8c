//! Deduplication, rankings and broadcast tables.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate::blocks::{BroadcastTable, Deduplicate, Ranking};
use lockgate::prelude::*;
use lockgate::testing::Harness;

use crate::random::{Driver, Random, Step, steps};

struct Once {
    seen: Deduplicate,
}

const WITHIN: i64 = 40;

impl Operator for Once {
    fn new(declare: &mut Declaration) -> Once {
        let late = declare.output("late");
        Once { seen: Deduplicate::declare(declare, "d", Duration::from_millis(WITHIN as u64)).late_to(late) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if self.seen.is_first(ctx, &record)? {
            ctx.emit(record.key(), record.value());
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        assert!(self.seen.fire(ctx, &timer)?);
        Ok(())
    }
}

#[test]
fn one_record_of_a_key_passes_within_the_time() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut driver = Driver::<Once>::new("{}".to_owned(), &["in"]);
        let mut passed = BTreeMap::<_, Vec<i64>>::new();
        let mut watermark = i64::MIN;
        let mut steps = steps(&mut random, 400, 30);
        steps.push(Step::Watermark(i64::MAX));
        for step in &steps {
            driver.step(step).expect("an operator that works");
            let first = driver.take().len();
            match *step {
                Step::Record(_, key, time, _) => {
                    let late = time <= watermark;
                    assert_eq!(driver.take_late().len(), usize::from(late));
                    let passed = passed.entry(key).or_default();
                    let duplicate = passed.iter().any(|other| time.abs_diff(*other) < WITHIN as u64);
                    assert_eq!(first, usize::from(!late && !duplicate), "seed {seed}: {step:?} after {passed:?}");
                    if first == 1 {
                        passed.push(time);
                    }
                }
                Step::Watermark(reached) => watermark = reached,
                Step::Restore | Step::Barrier | Step::Trim | Step::Crash => {}
            }
        }
        for key in ["a", "b", "c"] {
            assert_eq!(driver.harness.value::<Vec<i64>>("d-passed", key), None);
        }
    }
}

#[test]
fn records_at_the_end_of_time_are_kept_until_it() -> Result<(), Error> {
    let mut harness = Harness::<Once>::open()?;
    harness.process([("a", "1", i64::MAX), ("a", "2", i64::MAX - 1), ("b", "3", i64::MIN + 1)])?;
    assert_eq!(harness.take_output(), [("a", "1"), ("b", "3")]);
    harness.advance_watermark(i64::MAX)?;
    assert_eq!(harness.value::<Vec<i64>>("d-passed", "a"), None);
    Ok(())
}

struct Best {
    best: Ranking<i64, 3>,
}

impl Operator for Best {
    fn new(declare: &mut Declaration) -> Best {
        Best { best: Ranking::declare(declare, "r") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        match record.value_str()? {
            "?" => {
                let best = self.best.get(ctx)?;
                ctx.emit_fmt(record.key(), format_args!("{best:?}"));
            }
            "clear" => self.best.clear(ctx)?,
            value => {
                if let Some(best) = self.best.offer(ctx, value.parse()?)? {
                    ctx.emit_fmt(record.key(), format_args!("{best:?}"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_ranking_says_when_it_changes_and_survives_a_restore() -> Result<(), Error> {
    let mut harness = Harness::<Best>::open()?;
    harness.process([("a", "5"), ("a", "1"), ("a", "5"), ("a", "1"), ("a", "3"), ("b", "?")])?;
    let changes = [("a", "[5]"), ("a", "[5, 1]"), ("a", "[5, 5, 1]"), ("a", "[5, 5, 3]"), ("b", "[]")];
    assert_eq!(harness.take_output(), changes);
    let mut harness = Harness::<Best>::restore(&[&harness.snapshot()?])?;
    harness.process([("a", "2"), ("a", "9"), ("a", "clear"), ("a", "?")])?;
    assert_eq!(harness.take_output(), [("a", "[9, 5, 5]"), ("a", "[]")]);
    Ok(())
}

/// Looks values up in a table that a control stream fills; `-` as a value removes.
struct Lookup {
    names: Input,
    table: BroadcastTable<String, String>,
}

impl Operator for Lookup {
    fn new(declare: &mut Declaration) -> Lookup {
        declare.input("visits");
        Lookup { names: declare.broadcast_input("names"), table: BroadcastTable::new() }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if ctx.input() != self.names {
            ctx.emit(record.key(), self.table.get(record.value_str()?).map(String::as_str));
        } else if record.value_str()? == "-" {
            self.table.remove(record.key_str()?);
        } else {
            self.table.insert(record.key_str()?.to_owned(), record.value_str()?.to_owned());
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        self.table.snapshot()
    }

    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        self.table.restore(states)
    }
}

#[test]
fn a_broadcast_table_is_what_the_control_stream_has_said_at_the_snapshot() -> Result<(), Error> {
    let mut harness = Harness::<Lookup>::open()?;
    harness.process_from("names", [("fr", "France"), ("de", "Germany"), ("xx", "?"), ("xx", "-")])?;
    let snapshot = harness.snapshot()?;
    harness.process_from("names", [("fr", "La France")])?;
    harness.process_from("visits", [("ann", "fr"), ("bob", "xx")])?;
    assert_eq!(harness.take_output(), [(Some("ann"), Some("La France")), (Some("bob"), None)]);
    let mut restored = Harness::<Lookup>::restore(&[&snapshot])?;
    restored.process_from("visits", [("ann", "fr"), ("cat", "de")])?;
    assert_eq!(restored.take_output(), [("ann", "France"), ("cat", "Germany")]);
    assert_eq!(Declaration::of::<Lookup>().redistribution_of_state(), Redistribution::Broadcast);
    Ok(())
}
