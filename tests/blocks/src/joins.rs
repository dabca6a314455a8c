//! Operators of two inputs: joins, and enrichment from a control stream.

use std::time::Duration;

use lockgate::blocks::{BroadcastTable, IntervalJoin, Pair, WindowJoin};
use lockgate::prelude::*;

/// A left join of records with those that are up to 1 s later: `key,left,right` and `key,left,`.
pub struct Interval {
    right: Input,
    join: IntervalJoin<String, String>,
}

impl Operator for Interval {
    fn new(declare: &mut Declaration) -> Interval {
        declare.input("left");
        let right = declare.input("right");
        Interval { right, join: IntervalJoin::declare(declare, "join", 0..=1_000).keep_unmatched_left() }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?.to_owned();
        let key = record.key_str()?;
        let send = |ctx: &mut Context<'_>, pair: Pair<'_, String, String>| {
            ctx.emit_fmt(key, format_args!("{key},{},{}", pair.left, pair.right));
            Ok(())
        };
        if ctx.input() == self.right {
            self.join.add_right(ctx, &record, value, send)?;
        } else {
            self.join.add_left(ctx, &record, value, send)?;
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let key = std::str::from_utf8(timer.key())?;
        self.join.fire(ctx, &timer, |ctx, _, left| {
            ctx.emit_fmt(key, format_args!("{key},{left},"));
            Ok(())
        })?;
        Ok(())
    }
}

/// All pairs of records in the same 10 s: `key,left,right`.
pub struct Windowed {
    right: Input,
    join: WindowJoin<String, String>,
}

impl Operator for Windowed {
    fn new(declare: &mut Declaration) -> Windowed {
        declare.input("left");
        let right = declare.input("right");
        Windowed { right, join: WindowJoin::declare(declare, "join", Duration::from_secs(10)) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value_str()?.to_owned();
        if ctx.input() == self.right {
            self.join.add_right(ctx, &record, value)?;
        } else {
            self.join.add_left(ctx, &record, value)?;
        }
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let key = std::str::from_utf8(timer.key())?;
        self.join.fire(ctx, &timer, |ctx, _, left, right| {
            for (left, right) in left.iter().flat_map(|left| right.iter().map(move |right| (left, right))) {
                ctx.emit_fmt(key, format_args!("{key},{left},{right}"));
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Sends `key,value,name`: the name is what the control stream `names` has last said for the key; empty if nothing yet.
pub struct Enrich {
    names: Input,
    table: BroadcastTable<String, String>,
}

impl Operator for Enrich {
    fn new(declare: &mut Declaration) -> Enrich {
        declare.input("records");
        Enrich { names: declare.broadcast_input("names"), table: BroadcastTable::new() }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let (key, value) = (record.key_str()?, record.value_str()?);
        if ctx.input() == self.names {
            self.table.insert(key.to_owned(), value.to_owned());
        } else {
            let name = self.table.get(key).map_or("", String::as_str);
            ctx.emit_fmt(key, format_args!("{key},{value},{name}"));
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
