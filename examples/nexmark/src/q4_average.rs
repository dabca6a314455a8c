//! Query 4, second part: `category,average` every 10 s of event time in which an auction of the category has closed,
//! over all that have closed so far. The average is in cents, rounded down.

use std::time::Duration;

use lockgate::blocks::{Average, Mean, TumblingWindows};
use lockgate::prelude::*;
use lockgate::text;

const EVERY: Duration = Duration::from_secs(10);

/// Input: what `q4-closed` gives, keyed by category.
pub struct AveragePrice {
    closed: TumblingWindows<Average>,
    /// Sum and count of all that have closed.
    total: Value<(i128, u64)>,
}

impl Operator for AveragePrice {
    fn new(declare: &mut Declaration) -> AveragePrice {
        AveragePrice { closed: TumblingWindows::declare(declare, "closed", EVERY), total: declare.value("total") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.closed.add(ctx, &record, text::integer(record.value().unwrap_or_default())?)?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let category = std::str::from_utf8(timer.key())?;
        self.closed.fire(ctx, &timer, |ctx, _, closed| {
            let (sum, count) = self.total.update(ctx, |total| {
                let (sum, count) = total.unwrap_or_default();
                (sum + closed.sum, count + closed.count)
            })?;
            ctx.emit_fmt((), format_args!("{category},{}", Mean { sum, count }.floor()));
            Ok(())
        })?;
        Ok(())
    }
}
