//! Query 5, second part: `window end,auction,count` of the auctions with the most bids in each window; of all, where
//! several have equally many.

use std::time::Duration;

use lockgate::blocks::TumblingWindows;
use lockgate::prelude::*;
use lockgate::text;

use crate::best::Best;

/// The counts of a window all have its last millisecond as their time, and windows end every so often.
const SLIDE: Duration = Duration::from_secs(2);

/// Input: what `q5-counts` gives, keyed by window.
pub struct HotItems {
    windows: TumblingWindows<Best<u64>>,
}

impl Operator for HotItems {
    fn new(declare: &mut Declaration) -> HotItems {
        HotItems { windows: TumblingWindows::declare(declare, "hottest", SLIDE) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value().unwrap_or_default();
        let (auction, count) = text::split_once(value, b',').ok_or_else(|| Error::bad_record("no comma"))?;
        self.windows.add(ctx, &record, (text::integer(count)?, text::integer(auction)?))?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.fire(ctx, &timer, |ctx, window, (count, auctions)| {
            for auction in auctions {
                ctx.emit_fmt((), format_args!("{},{auction},{count}", window.end));
            }
            Ok(())
        })?;
        Ok(())
    }
}
