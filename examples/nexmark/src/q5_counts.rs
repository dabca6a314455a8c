//! Query 5, first part: how many bids each auction has in windows of 10 s that begin every 2 s: a record with the
//! window's end as the key and `auction,count` as the value.

use std::time::Duration;

use lockgate::blocks::{Count, SlidingWindows};
use lockgate::prelude::*;
use lockgate::text::decimal;

const SIZE: Duration = Duration::from_secs(10);
const SLIDE: Duration = Duration::from_secs(2);

/// Input: the bids of `split`, keyed by auction.
pub struct BidCounts {
    windows: SlidingWindows<Count>,
}

impl Operator for BidCounts {
    fn new(declare: &mut Declaration) -> BidCounts {
        BidCounts { windows: SlidingWindows::declare(declare, "bids", SIZE, SLIDE) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.add(ctx, &record, ())?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let auction = timer.key();
        self.windows.fire(ctx, &timer, |ctx, window, count| {
            ctx.emit_with(decimal(window.end), |value| {
                value.bytes(auction);
                value.byte(b',');
                value.integer(count);
            });
            Ok(())
        })?;
        Ok(())
    }
}
