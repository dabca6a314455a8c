//! What the queries ask, computed over all events at once, with sorting and hash maps: nothing of the operators is
//! used.

use std::collections::{BTreeMap, HashMap, HashSet};

use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::{Auction, Bid, Event, Person};
use serde_json::json;

/// 2015-07-15T00:00:00Z in milliseconds.
const BASE_TIME: u64 = 1_436_918_400_000;

/// All events by kind, with exact times.
pub struct Events {
    pub persons: Vec<Person>,
    pub auctions: Vec<Auction>,
    pub bids: Vec<Bid>,
}

impl Events {
    pub fn generate(count: u64, rate: u64) -> Events {
        let config = NexmarkConfig {
            base_time: BASE_TIME,
            first_rate: rate as usize,
            next_rate: rate as usize,
            ..NexmarkConfig::default()
        };
        let mut events = Events { persons: Vec::new(), auctions: Vec::new(), bids: Vec::new() };
        for (number, event) in (0..count).zip(EventGenerator::new(config)) {
            let date_time = BASE_TIME + number * 1_000 / rate;
            match event {
                Event::Person(person) => events.persons.push(Person { date_time, ..person }),
                Event::Auction(auction) => {
                    // How long an auction runs is the generator's; when it begins is by the number of the event.
                    let expires = date_time + (auction.expires - auction.date_time);
                    events.auctions.push(Auction { date_time, expires, ..auction });
                }
                Event::Bid(bid) => events.bids.push(Bid { date_time, ..bid }),
            }
        }
        events
    }
}

pub fn q0(events: &Events) -> Vec<String> {
    let persons = events.persons.iter().map(|person| {
        json!({
            "type": "person", "id": person.id, "name": person.name, "email_address": person.email_address,
            "credit_card": person.credit_card, "city": person.city, "state": person.state,
            "date_time": person.date_time, "extra": person.extra,
        })
    });
    let auctions = events.auctions.iter().map(|auction| {
        json!({
            "type": "auction", "id": auction.id, "item_name": auction.item_name, "description": auction.description,
            "initial_bid": auction.initial_bid, "reserve": auction.reserve, "date_time": auction.date_time,
            "expires": auction.expires, "seller": auction.seller, "category": auction.category, "extra": auction.extra,
        })
    });
    let bids = events.bids.iter().map(|bid| {
        json!({
            "type": "bid", "auction": bid.auction, "bidder": bid.bidder, "price": bid.price, "channel": bid.channel,
            "url": bid.url, "date_time": bid.date_time, "extra": bid.extra,
        })
    });
    persons.chain(auctions).chain(bids).map(|event| event.to_string()).collect()
}

pub fn q1(events: &Events) -> Vec<String> {
    let line = |bid: &Bid| {
        let digits = format!("{:04}", bid.price * 908);
        let (euros, decimals) = digits.split_at(digits.len() - 3);
        format!("{},{},{euros}.{decimals},{},{}", bid.auction, bid.bidder, bid.date_time, bid.extra)
    };
    events.bids.iter().map(line).collect()
}

pub fn q2(events: &Events) -> Vec<String> {
    let selected = events.bids.iter().filter(|bid| bid.auction % 123 == 0);
    selected.map(|bid| format!("{},{}", bid.auction, bid.price)).collect()
}

pub fn q3(events: &Events) -> Vec<String> {
    let persons = events.persons.iter().map(|person| (person.id, person)).collect::<HashMap<_, _>>();
    let joined = events.auctions.iter().filter(|auction| auction.category == 10).filter_map(|auction| {
        let seller = persons.get(&auction.seller)?;
        let near = matches!(seller.state.as_str(), "or" | "id" | "ca");
        near.then(|| format!("{},{},{},{}", seller.name, seller.city, seller.state, auction.id))
    });
    joined.collect()
}

pub fn q4(events: &Events) -> Vec<String> {
    let mut bids = HashMap::<usize, Vec<&Bid>>::new();
    for bid in &events.bids {
        bids.entry(bid.auction).or_default().push(bid);
    }
    // Category, the 10 s of the closing, final price.
    let mut closed = Vec::new();
    for auction in &events.auctions {
        let valid = bids.get(&auction.id).into_iter().flatten();
        let valid = valid.filter(|bid| bid.date_time >= auction.date_time && bid.date_time <= auction.expires);
        if let Some(price) = valid.map(|bid| bid.price).max() {
            closed.push((auction.category, auction.expires / 10_000, price));
        }
    }
    closed.sort_unstable();
    let mut lines = Vec::new();
    let mut sums = HashMap::new();
    for (at, &(category, period, price)) in closed.iter().enumerate() {
        let (sum, count) = sums.entry(category).or_insert((0, 0));
        *sum += price;
        *count += 1;
        let is_last = closed.get(at + 1).is_none_or(|next| (next.0, next.1) != (category, period));
        if is_last {
            lines.push(format!("{category},{}", *sum / *count));
        }
    }
    lines
}

pub fn q5(events: &Events) -> Vec<String> {
    let mut counts = BTreeMap::<u64, HashMap<usize, u64>>::new();
    for bid in &events.bids {
        // The windows that have the bid end at the five even seconds after it.
        let first = bid.date_time / 2_000 * 2_000 + 2_000;
        for end in (first..).step_by(2_000).take(5) {
            *counts.entry(end).or_default().entry(bid.auction).or_default() += 1;
        }
    }
    let mut lines = Vec::new();
    for (end, counts) in counts {
        let most = counts.values().max().copied().expect("no window is empty");
        let hottest = counts.into_iter().filter(|&(_, count)| count == most);
        lines.extend(hottest.map(|(auction, count)| format!("{end},{auction},{count}")));
    }
    lines
}

pub fn q7(events: &Events) -> Vec<String> {
    let mut highest = HashMap::<u64, usize>::new();
    for bid in &events.bids {
        let price = highest.entry(bid.date_time / 10_000).or_default();
        *price = bid.price.max(*price);
    }
    let highest = events.bids.iter().filter(|bid| highest[&(bid.date_time / 10_000)] == bid.price);
    highest.map(|bid| format!("{},{},{},{}", bid.auction, bid.bidder, bid.price, bid.date_time)).collect()
}

pub fn q8(events: &Events) -> Vec<String> {
    let sellers = events.auctions.iter().map(|auction| (auction.seller, auction.date_time / 10_000));
    let sellers = sellers.collect::<HashSet<_>>();
    let new = events.persons.iter().filter(|person| sellers.contains(&(person.id, person.date_time / 10_000)));
    new.map(|person| format!("{},{},{}", person.id, person.name, person.date_time / 10_000 * 10_000)).collect()
}
