//! The operators of the queries on a few records, natively.

use lockgate::Error;
use lockgate::encoding::{decode, encode};
use lockgate::testing::{Harness, TestRecord};
use lockgate_example_nexmark::event::{Auction, Bid, Person};
use lockgate_example_nexmark::{q1, q2, q3, q4_average, q4_closed, q5_counts, q5_top, q7_highest, q7_top, q8, split};

fn bid(auction: u64, price: u64, date_time: i64) -> (String, Vec<u8>, i64) {
    let bid = Bid { auction, bidder: 7, price, date_time };
    (auction.to_string(), encode(&bid).expect("numbers"), date_time)
}

fn auction(key: u64, auction: Auction) -> (String, Vec<u8>, i64) {
    (key.to_string(), encode(&auction).expect("numbers"), auction.date_time)
}

fn person(id: u64, state: &str, date_time: i64) -> (String, Vec<u8>, i64) {
    let fields = (id, format!("name {id}"), "town", state);
    (id.to_string(), encode(&fields).expect("texts"), date_time)
}

fn values(records: &[TestRecord]) -> Vec<String> {
    records.iter().map(TestRecord::value_str).collect()
}

fn line(auction: u64, price: u64) -> String {
    format!(
        r#"{{"type":"bid","auction":{auction},"bidder":7,"price":{price},"channel":"c","url":"u","date_time":9,"extra":"x"}}"#
    )
}

#[test]
fn prices_in_euros_are_exact() -> Result<(), Error> {
    let mut harness = Harness::<q1::Currency>::open()?;
    harness.process([((), line(1, 1)), ((), line(1, 1_000)), ((), line(1, u64::MAX))])?;
    let euros = ["1,7,0.908,9,x", "1,7,908.000,9,x", "1,7,16749643618928272866.420,9,x"];
    assert_eq!(values(&harness.take_output()), euros);
    Ok(())
}

#[test]
fn bids_are_selected_by_auction() -> Result<(), Error> {
    let mut harness = Harness::<q2::Selection>::open()?;
    harness.process([((), line(123, 5)), ((), line(124, 6)), ((), line(1_230, 7))])?;
    assert_eq!(values(&harness.take_output()), ["123,5", "1230,7"]);
    Ok(())
}

#[test]
fn events_are_split_by_kind_and_keyed_as_configured() -> Result<(), Error> {
    let opened = r#"{"type":"auction","id":5,"item_name":"","description":"","initial_bid":1,"reserve":1,"date_time":9,"expires":19,"seller":3,"category":10,"extra":""}"#;
    let registered = r#"{"type":"person","id":3,"name":"a","email_address":"","credit_card":"","city":"b","state":"or","date_time":9,"extra":""}"#;
    for (config, key) in [("{}", "5"), (r#"{"auction_key": "seller"}"#, "3")] {
        let mut harness = Harness::<split::Split>::open_with(config)?;
        harness.process([((), opened, 9), ((), registered, 9), ((), line(5, 6).as_str(), 9)])?;
        let auctions = harness.take_output_of("auctions");
        assert_eq!((auctions[0].key_str(), auctions[0].timestamp), (key.to_owned(), Some(9)));
        let opened = decode::<Auction>(auctions[0].value.as_deref().unwrap_or_default())?;
        assert_eq!(opened, Auction { id: 5, seller: 3, category: 10, date_time: 9, expires: 19 });
        let person = decode::<Person>(harness.take_output_of("persons")[0].value.as_deref().unwrap_or_default())?;
        assert_eq!((person.id, &*person.name, &*person.city, &*person.state), (3, "a", "b", "or"));
        assert_eq!(harness.take_output_of("bids")[0].key_str(), "5");
    }
    Ok(())
}

#[test]
fn an_auction_and_its_seller_meet_in_either_order() -> Result<(), Error> {
    let offer = |id, category| auction(3, Auction { id, seller: 3, category, date_time: 0, expires: 0 });
    let mut harness = Harness::<q3::LocalItems>::open()?;
    harness.process_from("auctions", [offer(1, 10), offer(2, 11)])?;
    harness.process_from("persons", [person(3, "or", 0), person(4, "wa", 0)])?;
    harness.process_from("auctions", [offer(5, 10)])?;
    harness
        .process_from("auctions", [auction(4, Auction { id: 6, seller: 4, category: 10, date_time: 0, expires: 0 })])?;
    assert_eq!(values(&harness.take_output()), ["name 3,town,or,1", "name 3,town,or,5"]);
    Ok(())
}

#[test]
fn the_final_price_is_that_of_the_highest_bid_in_time() -> Result<(), Error> {
    let opened = auction(1, Auction { id: 1, seller: 3, category: 10, date_time: 100, expires: 200 });
    let mut harness = Harness::<q4_closed::Closed>::open()?;
    harness.process_from("bids", [bid(1, 900, 99), bid(1, 50, 100), bid(2, 7, 150)])?;
    harness.process_from("auctions", [opened])?;
    harness.process_from("bids", [bid(1, 60, 200), bid(1, 800, 201)])?;
    harness.advance_watermark(200)?;
    assert_eq!(harness.take_output(), [("10", "60", 200)]);
    harness.advance_watermark(i64::MAX)?;
    assert!(harness.take_output().is_empty());
    for key in ["1", "2"] {
        assert_eq!(harness.value::<Vec<(i64, u64)>>("early", key), None);
    }
    Ok(())
}

#[test]
fn the_average_is_over_all_that_have_closed_so_far() -> Result<(), Error> {
    let mut harness = Harness::<q4_average::AveragePrice>::open()?;
    harness.process([("10", "5", 1), ("10", "6", 9_999), ("11", "7", 5), ("10", "1", 20_000)])?;
    harness.advance_watermark(i64::MAX)?;
    let mut averages = values(&harness.take_output());
    averages.sort();
    assert_eq!(averages, ["10,4", "10,5", "11,7"]);
    Ok(())
}

#[test]
fn the_hottest_auctions_of_each_window_are_all_that_have_as_many_bids() -> Result<(), Error> {
    let mut counts = Harness::<q5_counts::BidCounts>::open()?;
    counts.process([bid(1, 1, 0), bid(2, 1, 1), bid(2, 1, 2_000)])?;
    counts.advance_watermark(i64::MAX)?;
    let mut top = Harness::<q5_top::HotItems>::open()?;
    top.process(counts.take_output())?;
    top.advance_watermark(i64::MAX)?;
    let hottest = ["2000,1,1", "2000,2,1", "4000,2,2", "6000,2,2", "8000,2,2", "10000,2,2", "12000,2,1"];
    assert_eq!(values(&top.take_output()), hottest);
    Ok(())
}

#[test]
fn the_highest_bids_of_each_window_are_all_that_are_as_high() -> Result<(), Error> {
    let mut highest = Harness::<q7_highest::HighestOfAuction>::open()?;
    highest.process([bid(1, 5, 0), bid(1, 9, 1), bid(2, 9, 9_999), bid(2, 8, 9_998), bid(2, 1, 10_000)])?;
    highest.advance_watermark(i64::MAX)?;
    let mut top = Harness::<q7_top::HighestBids>::open()?;
    top.process(highest.take_output())?;
    top.advance_watermark(i64::MAX)?;
    assert_eq!(values(&top.take_output()), ["1,7,9,1", "2,7,9,9999", "2,7,1,10000"]);
    Ok(())
}

#[test]
fn new_users_who_sell_in_the_same_window_are_named_once() -> Result<(), Error> {
    let opened =
        |seller: u64, date_time| auction(seller, Auction { id: 1, seller, category: 10, date_time, expires: 0 });
    let mut harness = Harness::<q8::NewSellers>::open()?;
    harness.process_from("auctions", [opened(3, 5), opened(3, 6), opened(4, 10_000), opened(5, 1)])?;
    harness.process_from("persons", [person(3, "or", 9_999), person(4, "or", 9_999), person(6, "or", 1)])?;
    harness.advance_watermark(i64::MAX)?;
    assert_eq!(values(&harness.take_output()), ["3,name 3,0"]);
    Ok(())
}
