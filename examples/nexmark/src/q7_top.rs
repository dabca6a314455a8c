//! Query 7, second part: `auction,bidder,price,date_time` of the highest bid of each 10 s; of all, where several are
//! equally high.

use lockgate::blocks::TumblingWindows;
use lockgate::encoding::decode;
use lockgate::prelude::*;

use crate::best::Best;
use crate::event::Bid;
use crate::q7_highest::SIZE;

/// Input: what `q7-highest` gives, keyed by window.
pub struct HighestBids {
    windows: TumblingWindows<Best<Bid>>,
}

impl Operator for HighestBids {
    fn new(declare: &mut Declaration) -> HighestBids {
        HighestBids { windows: TumblingWindows::declare(declare, "highest", SIZE) }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let bid = decode::<Bid>(record.value().unwrap_or_default())?;
        self.windows.add(ctx, &record, (bid.price, bid))?;
        Ok(())
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.fire(ctx, &timer, |ctx, _, (_, bids)| {
            for Bid { auction, bidder, price, date_time } in bids {
                ctx.emit_fmt((), format_args!("{auction},{bidder},{price},{date_time}"));
            }
            Ok(())
        })?;
        Ok(())
    }
}
