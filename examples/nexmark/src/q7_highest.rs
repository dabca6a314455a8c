//! Query 7, first part: the highest bids of each auction in each 10 s: a record with the window's end as the key and
//! the bid as the value for each.

use std::time::Duration;

use lockgate::blocks::TumblingWindows;
use lockgate::encoding::{decode, encode};
use lockgate::prelude::*;
use lockgate::text::decimal;

use crate::best::Best;
use crate::event::Bid;

pub(crate) const SIZE: Duration = Duration::from_secs(10);

/// Input: the bids of `split`, keyed by auction.
pub struct HighestOfAuction {
    windows: TumblingWindows<Best<Bid>>,
}

impl Operator for HighestOfAuction {
    fn new(declare: &mut Declaration) -> HighestOfAuction {
        HighestOfAuction { windows: TumblingWindows::declare(declare, "highest", SIZE) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let bid = decode::<Bid>(record.value().unwrap_or_default())?;
        self.windows.add(ctx, &record, (bid.price, bid))?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.fire(ctx, &timer, |ctx, window, (_, bids)| {
            for bid in bids {
                ctx.emit(decimal(window.end), encode(&bid)?);
            }
            Ok(())
        })?;
        Ok(())
    }
}
