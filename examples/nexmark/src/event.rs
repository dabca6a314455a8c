//! The events of the auction house, as the source writes them and as operators hand them on.
//!
//! Invariant: a line is read once, without copying its texts; what is handed on has only what queries need.

use std::borrow::Cow;

use lockgate::Error;
use serde::{Deserialize, Serialize};

/// Any event: the fields of all three kinds, each missing where the kind doesn't have it.
#[derive(Debug, Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: Option<u64>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    city: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Option<Cow<'a, str>>,
    date_time: i64,
    expires: Option<i64>,
    seller: Option<u64>,
    category: Option<u64>,
    auction: Option<u64>,
    bidder: Option<u64>,
    price: Option<u64>,
    #[serde(borrow)]
    extra: Option<Cow<'a, str>>,
}

/// One event.
#[derive(Debug)]
pub enum Event<'a> {
    Person(PersonRef<'a>),
    Auction(Auction),
    Bid(Bid, Cow<'a, str>),
}

/// Somebody who has registered, as part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PersonRef<'a> {
    pub id: u64,
    pub name: Cow<'a, str>,
    pub city: Cow<'a, str>,
    pub state: Cow<'a, str>,
}

/// What a [`PersonRef`] is when it has been handed on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Person {
    pub id: u64,
    pub name: String,
    pub city: String,
    pub state: String,
}

/// An auction that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auction {
    pub id: u64,
    pub seller: u64,
    pub category: u64,
    pub date_time: i64,
    pub expires: i64,
}

/// A bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bid {
    pub auction: u64,
    pub bidder: u64,
    /// In cents.
    pub price: u64,
    pub date_time: i64,
}

impl<'a> Event<'a> {
    /// # Errors
    /// If the line isn't an event of the `nexmark` source.
    pub fn parse(line: &'a [u8]) -> Result<Event<'a>, Error> {
        let Line { kind, id, name, city, state, date_time, expires, seller, category, auction, bidder, price, extra } =
            serde_json::from_slice(line)?;
        let event = match kind {
            "person" => id
                .zip(name)
                .zip(city)
                .zip(state)
                .map(|(((id, name), city), state)| Event::Person(PersonRef { id, name, city, state })),
            "auction" => id.zip(seller).zip(category).zip(expires).map(|(((id, seller), category), expires)| {
                Event::Auction(Auction { id, seller, category, date_time, expires })
            }),
            "bid" => auction.zip(bidder).zip(price).map(|((auction, bidder), price)| {
                Event::Bid(Bid { auction, bidder, price, date_time }, extra.unwrap_or_default())
            }),
            other => return Err(Error::bad_record(format_args!("there are no events of type '{other}'"))),
        };
        event.ok_or_else(|| Error::bad_record(format_args!("the {kind} lacks a field")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_the_source_writes_them() {
        let bid = br#"{"type":"bid","auction":1001,"bidder":1002,"price":345,"channel":"x","url":"y","date_time":7,"extra":"\"z\""}"#;
        let Ok(Event::Bid(bid, extra)) = Event::parse(bid) else { panic!("a bid") };
        assert_eq!((bid, &*extra), (Bid { auction: 1001, bidder: 1002, price: 345, date_time: 7 }, "\"z\""));
        let person = br#"{"type":"person","id":1,"name":"a b","email_address":"","credit_card":"","city":"c","state":"or","date_time":8,"extra":""}"#;
        assert!(matches!(Event::parse(person), Ok(Event::Person(PersonRef { id: 1, .. }))));
    }

    #[test]
    fn what_is_no_event_is_a_bad_record() {
        for (line, wrong) in [
            (&br#"{"type":"bid","auction":1,"date_time":7}"#[..], "the bid lacks a field"),
            (br#"{"type":"gift","date_time":7}"#, "there are no events of type 'gift'"),
            (b"auction", "expected value"),
        ] {
            let error = Event::parse(line).expect_err("no event").to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
