//! Query 4, first part: for each auction that has closed with a bid, a record with its category as the key, its final
//! price as the value (decimal) and the time at which it has closed.
//!
//! The final price is that of the highest bid between the auction's beginning and its end, both included. Bids and
//! auctions come on two inputs, so a bid may come first: it waits until the watermark says that no auction can come any
//! more in whose time it is.

use lockgate::encoding::decode;
use lockgate::prelude::*;
use lockgate::text::decimal;

use crate::event::{Auction, Bid};

/// Inputs: `auctions` and `bids`, both keyed by the auction.
pub struct Closed {
    bids: Input,
    open: Value<Open>,
    /// Times and prices of bids on an auction that isn't known.
    early: Value<Vec<(i64, u64)>>,
    timers: Timers,
}

#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Open {
    auction: Auction,
    highest: Option<u64>,
}

impl Open {
    fn add(&mut self, time: i64, price: u64) {
        if (self.auction.date_time..=self.auction.expires).contains(&time) {
            self.highest = self.highest.max(Some(price));
        }
    }
}

/// The timer at the end of an auction.
const CLOSE: &[u8] = b"close";
/// The timer of bids that wait.
const FORGET: &[u8] = b"forget";

impl Operator for Closed {
    fn new(declare: &mut Declaration) -> Closed {
        declare.input("auctions");
        Closed {
            bids: declare.input("bids"),
            open: declare.value("open"),
            early: declare.value("early"),
            timers: declare.timers(),
        }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value().unwrap_or_default();
        if ctx.input() == self.bids {
            let Bid { price, date_time, .. } = decode(value)?;
            if let Some(mut open) = self.open.get(ctx)? {
                open.add(date_time, price);
                return self.open.set(ctx, open);
            }
            if date_time > ctx.watermark() {
                self.early.modify(ctx, |early| early.push((date_time, price)))?;
                self.timers.set_event_time(ctx, date_time, FORGET)?;
            }
            return Ok(());
        }
        let mut open = Open { auction: decode(value)?, highest: None };
        for (time, price) in self.early.take(ctx)?.unwrap_or_default() {
            open.add(time, price);
        }
        self.timers.set_event_time(ctx, open.auction.expires, CLOSE)?;
        self.open.set(ctx, open)
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        if timer.tag() == CLOSE {
            if let Some(Open { auction, highest: Some(price) }) = self.open.take(ctx)? {
                ctx.emit(decimal(auction.category), decimal(price));
            }
            return Ok(());
        }
        let Some(mut early) = self.early.take(ctx)? else { return Ok(()) };
        early.retain(|&(time, _)| time > timer.time());
        if early.is_empty() { Ok(()) } else { self.early.set(ctx, early) }
    }
}
