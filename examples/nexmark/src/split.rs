//! From one stream of events to a stream of each kind, on the outputs `persons`, `auctions` and `bids`.
//!
//! Keys: of persons their id, of bids their auction, of auctions their seller or their own id, as the configuration
//! says: `auction_key = "id"` (unless said) or `"seller"`. Values are events in the encoding of state.

use lockgate::encoding::encode;
use lockgate::prelude::*;
use lockgate::text::decimal;

use crate::event::Event;

/// See the module.
pub struct Split {
    config: Config,
    persons: Output,
    auctions: Output,
    bids: Output,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    auction_key: AuctionKey,
}

#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum AuctionKey {
    #[default]
    Id,
    Seller,
}

impl Operator for Split {
    fn new(declare: &mut Declaration) -> Split {
        Split {
            config: Config::default(),
            persons: declare.output("persons"),
            auctions: declare.output("auctions"),
            bids: declare.output("bids"),
        }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let (output, key, value) = match Event::parse(record.value().unwrap_or_default())? {
            Event::Person(person) => (self.persons, person.id, encode(&person)?),
            Event::Auction(auction) => {
                let key = match self.config.auction_key {
                    AuctionKey::Id => auction.id,
                    AuctionKey::Seller => auction.seller,
                };
                (self.auctions, key, encode(&auction)?)
            }
            Event::Bid(bid, _) => (self.bids, bid.auction, encode(&bid)?),
        };
        ctx.emit_to(output, decimal(key), value);
        Ok(())
    }
}
