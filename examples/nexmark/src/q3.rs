//! Query 3, local item suggestion: `name,city,state,auction` of every auction of category 10 whose seller lives in
//! Oregon, Idaho or California.
//!
//! A join by seller without an end: a person is remembered for ever, an auction until its seller is known.

use lockgate::encoding::decode;
use lockgate::prelude::*;

use crate::event::{Auction, Person};

const CATEGORY: u64 = 10;
const STATES: [&str; 3] = ["or", "id", "ca"];

/// Inputs: `persons` and `auctions`, both keyed by the person.
pub struct LocalItems {
    auctions: Input,
    /// `name,city,state`; empty if the person lives elsewhere.
    sellers: Value<String>,
    /// Auctions of a person that isn't known yet.
    waiting: List<u64>,
}

impl Operator for LocalItems {
    fn new(declare: &mut Declaration) -> LocalItems {
        declare.input("persons");
        LocalItems {
            auctions: declare.input("auctions"),
            sellers: declare.value("sellers"),
            waiting: declare.list("waiting"),
        }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value().unwrap_or_default();
        if ctx.input() == self.auctions {
            let auction = decode::<Auction>(value)?;
            if auction.category != CATEGORY {
                return Ok(());
            }
            match self.sellers.get(ctx)? {
                Some(seller) => offer(ctx, &seller, auction.id),
                None => self.waiting.push(ctx, auction.id)?,
            }
            return Ok(());
        }
        let Person { name, city, state, .. } = decode::<Person>(value)?;
        let seller = if STATES.contains(&state.as_str()) { format!("{name},{city},{state}") } else { String::new() };
        for auction in self.waiting.to_vec(ctx)? {
            offer(ctx, &seller, auction);
        }
        self.waiting.clear(ctx)?;
        self.sellers.set(ctx, seller)
    }
}

fn offer(ctx: &mut Context<'_>, seller: &str, auction: u64) {
    if !seller.is_empty() {
        ctx.emit_fmt((), format_args!("{seller},{auction}"));
    }
}
