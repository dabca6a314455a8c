//! Query 1, currency conversion: `auction,bidder,price,date_time,extra` of every bid, its price in euros.
//!
//! A dollar is 0.908 euros. A price is in cents; times 908 it is in thousandths of a cent, exactly, and written with
//! three decimals.

use lockgate::prelude::*;

use crate::event::{Bid, Event};

/// Euros for a thousand dollars.
const EUROS_PER_THOUSAND: u128 = 908;

/// See the module.
pub struct Currency;

impl Operator for Currency {
    fn new(_: &mut Declaration) -> Currency {
        Currency
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let Event::Bid(Bid { auction, bidder, price, date_time }, extra) =
            Event::parse(record.value().unwrap_or_default())?
        else {
            return Ok(());
        };
        let thousandths = u128::from(price) * EUROS_PER_THOUSAND;
        let whole = u64::try_from(thousandths / 1_000).expect("fewer euros than dollars");
        let [tenths, hundredths, thousandths] = [100, 10, 1].map(|unit| b'0' + (thousandths % 1_000 / unit % 10) as u8);
        ctx.emit_with((), |value| {
            value.integer(auction);
            value.byte(b',');
            value.integer(bidder);
            value.byte(b',');
            value.integer(whole);
            value.bytes(&[b'.', tenths, hundredths, thousandths, b',']);
            value.integer(date_time);
            value.byte(b',');
            value.bytes(extra.as_bytes());
        });
        Ok(())
    }
}
