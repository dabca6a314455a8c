//! The NEXMark source: people, auctions and bids of an auction house, the events of the field's benchmark queries.
//!
//! Event `n` is one line of JSON with a `type` of `person`, `auction` or `bid` and the fields of NEXMark. Records have no key;
//! their event time is the event's `date_time`. Of 50 events one is a person, three are auctions and 46 are bids.
//!
//! Invariant: no wall clock: time begins at [`BASE_TIME_MS`] and goes on by `event_rate`.

use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::Event;
use serde::{Deserialize, Serialize};

use super::numbered::{MakeRecords, NumberedReader, Numbers};
use super::{BadOption, ConnectorContext, ConnectorError};
use crate::element::{Batch, Row};

/// 2015-07-15T00:00:00Z, where NEXMark time begins.
pub const BASE_TIME_MS: u64 = 1_436_918_400_000;
/// Beyond this, ids would leave the range that the generator computes in.
const COUNT_MAX: u64 = 1_000_000_000_000;

/// `type = "nexmark"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NexmarkOptions {
    /// How many events there are in all; the source ends after them. Without it, it never ends.
    pub count: Option<u64>,
    /// Events a second in all, by the clock. Without it, as fast as they are taken.
    pub rate: Option<f64>,
    /// Events in one second of event time.
    pub event_rate: u32,
    /// How many splits the events are dealt to; at least the parallelism. Fixed for the life of a job's state.
    pub splits: u32,
}

impl Default for NexmarkOptions {
    fn default() -> NexmarkOptions {
        NexmarkOptions { count: None, rate: None, event_rate: 10_000, splits: 64 }
    }
}

impl NexmarkOptions {
    pub(super) fn validate(&self) -> Result<(), BadOption> {
        self.numbers().validate()?;
        if self.count.is_some_and(|count| count > COUNT_MAX) {
            return Err(BadOption::new("count", self.count.unwrap_or_default(), "it is at most a million million"));
        }
        if !(1..=1_000_000).contains(&self.event_rate) {
            return Err(BadOption::new("event_rate", self.event_rate, "it must be 1 to 1,000,000"));
        }
        Ok(())
    }

    fn numbers(&self) -> Numbers {
        Numbers { splits: self.splits, count: self.count, rate: self.rate }
    }
}

/// One subtask of the NEXMark source.
pub type NexmarkReader = NumberedReader<Maker>;

impl NexmarkReader {
    pub(super) fn open(
        options: &NexmarkOptions,
        ctx: &ConnectorContext,
        subtask: u32,
    ) -> Result<NexmarkReader, ConnectorError> {
        NumberedReader::new(options.numbers(), Maker::new(options.event_rate), ctx, subtask)
    }
}

/// Makes the events.
pub struct Maker {
    /// Always there between calls.
    generator: Option<EventGenerator>,
    event_rate: u64,
    line: Vec<u8>,
}

impl Maker {
    fn new(event_rate: u32) -> Maker {
        let config = NexmarkConfig {
            base_time: BASE_TIME_MS,
            first_rate: event_rate as usize,
            next_rate: event_rate as usize,
            ..NexmarkConfig::default()
        };
        Maker { generator: Some(EventGenerator::new(config)), event_rate: event_rate.into(), line: Vec::new() }
    }

    /// The generator computes time in 32-bit floating point, which gets coarse after some millions of events.
    fn date_time(&self, number: u64) -> u64 {
        let (seconds, rest) = (number / self.event_rate, number % self.event_rate);
        BASE_TIME_MS + seconds * 1_000 + rest * 1_000 / self.event_rate
    }
}

impl MakeRecords for Maker {
    fn value_bytes(&self) -> usize {
        256
    }

    fn make(&mut self, first: u64, n: u64, batch: &mut Batch) {
        let mut generator = self.generator.take().expect("a generator between calls").with_offset(first);
        for number in first..first + n {
            let event = generator.next().expect("an endless generator");
            let time = self.date_time(number);
            self.line.clear();
            serde_json::to_writer(&mut self.line, &Json::new(&event, time)).expect("events are JSON");
            batch.push(Row { key: None, value: Some(&self.line), timestamp: time as i64 });
        }
        self.generator = Some(generator);
    }
}

/// An event as it is written.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Json<'a> {
    Person {
        id: usize,
        name: &'a str,
        email_address: &'a str,
        credit_card: &'a str,
        city: &'a str,
        state: &'a str,
        date_time: u64,
        extra: &'a str,
    },
    Auction {
        id: usize,
        item_name: &'a str,
        description: &'a str,
        initial_bid: usize,
        reserve: usize,
        date_time: u64,
        expires: u64,
        seller: usize,
        category: usize,
        extra: &'a str,
    },
    Bid {
        auction: usize,
        bidder: usize,
        price: usize,
        channel: &'a str,
        url: &'a str,
        date_time: u64,
        extra: &'a str,
    },
}

impl<'a> Json<'a> {
    fn new(event: &'a Event, date_time: u64) -> Json<'a> {
        match event {
            Event::Person(person) => Json::Person {
                id: person.id,
                name: &person.name,
                email_address: &person.email_address,
                credit_card: &person.credit_card,
                city: &person.city,
                state: &person.state,
                date_time,
                extra: &person.extra,
            },
            Event::Auction(auction) => Json::Auction {
                id: auction.id,
                item_name: &auction.item_name,
                description: &auction.description,
                initial_bid: auction.initial_bid,
                reserve: auction.reserve,
                date_time,
                // How long it runs is the generator's; when it began is not.
                expires: date_time + auction.expires.saturating_sub(auction.date_time),
                seller: auction.seller,
                category: auction.category,
                extra: &auction.extra,
            },
            Event::Bid(bid) => Json::Bid {
                auction: bid.auction,
                bidder: bid.bidder,
                price: bid.price,
                channel: &bid.channel,
                url: &bid.url,
                date_time,
                extra: &bid.extra,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Polled, SourceReader, test_ctx};
    use super::*;

    fn events(reader: &mut NexmarkReader) -> Vec<(serde_json::Value, i64)> {
        let mut events = Vec::new();
        while let Polled::Batch { batch, .. } = reader.poll().expect("never fails") {
            batch.check().expect("well formed");
            events.extend(
                batch
                    .iter()
                    .map(|row| (serde_json::from_slice(row.value.expect("a value")).expect("JSON"), row.timestamp)),
            );
        }
        events
    }

    fn reader(options: &NexmarkOptions, subtask: u32, parallelism: u32) -> NexmarkReader {
        NexmarkReader::open(options, &test_ctx("auctions", parallelism), subtask).expect("opens")
    }

    #[test]
    fn events_are_json_in_nexmarks_proportions_and_on_its_time() {
        let options = NexmarkOptions { count: Some(5_000), ..Default::default() };
        let events = events(&mut reader(&options, 0, 1));
        let of = |kind: &str| events.iter().filter(|(event, _)| event["type"] == kind).count();
        assert_eq!((of("person"), of("auction"), of("bid")), (100, 300, 4_600));
        for (number, (event, timestamp)) in events.iter().enumerate() {
            assert_eq!(*timestamp, BASE_TIME_MS as i64 + number as i64 / 10);
            assert_eq!(event["date_time"], *timestamp);
        }
        assert_eq!(events[0].0["name"], "vicky noris");
        assert!(events[1].0["expires"].as_i64().expect("a time") > events[1].1);
    }

    #[test]
    fn a_replay_from_any_snapshot_gives_the_same_rest_at_another_parallelism() {
        let options = NexmarkOptions { count: Some(9_000), ..Default::default() };
        let texts = |events: Vec<(serde_json::Value, i64)>| {
            events.into_iter().map(|(event, time)| format!("{time} {event}")).collect::<Vec<_>>()
        };
        let whole = texts(events(&mut reader(&options, 0, 1)));
        let mut first = reader(&options, 0, 1);
        let mut seen = 0;
        while let Polled::Batch { batch, .. } = first.poll().expect("never fails") {
            seen += batch.rows as usize;
            let mut rest = Vec::new();
            for subtask in 0..2 {
                let mut second = reader(&options, subtask, 2);
                second.restore(&first.snapshot()).expect("its own positions");
                rest.extend(texts(events(&mut second)));
            }
            rest.sort_unstable();
            let mut wanted = whole[seen..].to_vec();
            wanted.sort_unstable();
            assert_eq!(rest, wanted);
        }
        assert_eq!(seen, 9_000);
    }
}
