//! Query 2, selection: `auction,price` of every bid on an auction whose number is divisible by 123.

use lockgate::prelude::*;

use crate::event::Event;

const EVERY: u64 = 123;

/// See the module.
pub struct Selection;

impl Operator for Selection {
    fn new(_: &mut Declaration) -> Selection {
        Selection
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if let Event::Bid(bid, _) = Event::parse(record.value().unwrap_or_default())?
            && bid.auction.is_multiple_of(EVERY)
        {
            ctx.emit_fmt((), format_args!("{},{}", bid.auction, bid.price));
        }
        Ok(())
    }
}
