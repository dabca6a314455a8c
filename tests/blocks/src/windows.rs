//! Operators with windows: each sends `key,start,end,count,sum,max`, and late records as they came to `late`.

use std::time::Duration;

use lockgate::blocks::{Count, Max, SessionWindows, SlidingWindows, Sum, TumblingWindows, Window};
use lockgate::prelude::*;

type Kept = (Count, (Sum, Max<i64>));

fn input(record: &Record<'_>) -> Result<((), (i64, i64)), Error> {
    let value = record.value_str()?.parse()?;
    Ok(((), (value, value)))
}

fn send(ctx: &mut Context<'_>, key: &[u8], window: Window, kept: (u64, (i128, i64))) -> Result<(), Error> {
    let (count, (sum, max)) = kept;
    let text = std::str::from_utf8(key)?;
    ctx.emit_fmt(key, format_args!("{text},{},{},{count},{sum},{max}", window.start, window.end));
    Ok(())
}

/// Lengths in milliseconds.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    size: Option<u64>,
    slide: Option<u64>,
}

/// Of 10 s, or of `size`.
pub struct Tumbling {
    windows: TumblingWindows<Kept>,
}

impl Operator for Tumbling {
    fn new(declare: &mut Declaration) -> Tumbling {
        let late = declare.output("late");
        Tumbling { windows: TumblingWindows::declare(declare, "windows", Duration::from_secs(10)).late_to(late) }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        let Config { size, .. } = ctx.config()?;
        size.map_or(Ok(()), |size| self.windows.set_size(Duration::from_millis(size)))
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.add(ctx, &record, input(&record)?)?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.fire(ctx, &timer, |ctx, window, kept| send(ctx, timer.key(), window, kept))?;
        Ok(())
    }
}

/// Of 60 s, every second, or of `size` every `slide`.
pub struct Sliding {
    windows: SlidingWindows<Kept>,
}

impl Operator for Sliding {
    fn new(declare: &mut Declaration) -> Sliding {
        let late = declare.output("late");
        let (size, slide) = (Duration::from_secs(60), Duration::from_secs(1));
        Sliding { windows: SlidingWindows::declare(declare, "windows", size, slide).late_to(late) }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        let Config { size, slide } = ctx.config()?;
        let lengths = size.zip(slide).map(|(size, slide)| (Duration::from_millis(size), Duration::from_millis(slide)));
        lengths.map_or(Ok(()), |(size, slide)| self.windows.set_size(size, slide))
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.add(ctx, &record, input(&record)?)?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.fire(ctx, &timer, |ctx, window, kept| send(ctx, timer.key(), window, kept))?;
        Ok(())
    }
}

/// With a gap of 2 s.
pub struct Session {
    windows: SessionWindows<Kept>,
}

impl Operator for Session {
    fn new(declare: &mut Declaration) -> Session {
        let late = declare.output("late");
        Session { windows: SessionWindows::declare(declare, "windows", Duration::from_secs(2)).late_to(late) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.add(ctx, &record, input(&record)?)?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.fire(ctx, &timer, |ctx, window, kept| send(ctx, timer.key(), window, kept))?;
        Ok(())
    }
}
