//! Operators of one input: taking lines apart, deduplication, ranking.

use std::time::Duration;

use lockgate::blocks::{Deduplicate, Ranking};
use lockgate::prelude::*;

/// From lines `key,time,value` to records.
pub struct Parse;

impl Operator for Parse {
    fn new(_: &mut Declaration) -> Parse {
        Parse
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let line = record.value_str()?;
        let mut fields = line.splitn(3, ',');
        let (Some(key), Some(time), Some(value)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(Error::bad_record(format_args!("'{line}' is not key,time,value")));
        };
        ctx.emit_with_timestamp(key, value, time.parse()?);
        Ok(())
    }
}

/// Sends the time of day at which it has got each record, in milliseconds since the Unix epoch.
pub struct Stamp;

impl Operator for Stamp {
    fn new(_: &mut Declaration) -> Stamp {
        Stamp
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let now = ctx.now();
        ctx.emit_with(record.key(), |value| value.integer(now));
        Ok(())
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Mood {
    bad_end: bool,
}

/// Sends the value of each record when event time has come to it. Panics instead where the value is `bad timer`; and, with
/// `bad_end = true` in its configuration, at the last watermark.
pub struct Moody {
    timers: Timers,
    mood: Mood,
}

impl Operator for Moody {
    fn new(declare: &mut Declaration) -> Moody {
        Moody { timers: declare.timers(), mood: Mood::default() }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.mood = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?;
        self.timers.set_event_time(ctx, record.timestamp().unwrap_or_default(), value.as_bytes())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        assert!(timer.tag() != b"bad timer", "not at this time");
        ctx.emit(timer.key(), timer.tag());
        Ok(())
    }

    fn watermark(&mut self, timestamp: i64, _: &mut Context<'_>) -> Result<(), Error> {
        assert!(!self.mood.bad_end || timestamp < i64::MAX, "it must not end");
        Ok(())
    }
}

/// Sends `key,time,value` of the first record of each key within 5 s.
pub struct Once {
    seen: Deduplicate,
}

impl Operator for Once {
    fn new(declare: &mut Declaration) -> Once {
        Once { seen: Deduplicate::declare(declare, "seen", Duration::from_secs(5)) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if self.seen.is_first(ctx, &record)? {
            let (key, time) = (record.key_str()?, record.timestamp().unwrap_or_default());
            ctx.emit_fmt(key, format_args!("{key},{time},{}", record.value_str()?));
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.seen.fire(ctx, &timer)?;
        Ok(())
    }
}

/// Sends `key,a,b,c` each time that the three greatest values of a key change.
pub struct Best {
    best: Ranking<i64, 3>,
}

impl Operator for Best {
    fn new(declare: &mut Declaration) -> Best {
        Best { best: Ranking::declare(declare, "best") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if let Some(best) = self.best.offer(ctx, record.value_str()?.parse()?)? {
            let best = best.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            ctx.emit_fmt(record.key(), format_args!("{},{best}", record.key_str()?));
        }
        Ok(())
    }
}
