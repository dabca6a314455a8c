//! The NEXMark queries as Wasm operators give, line for line, what a computation over all events at once gives: at any
//! parallelism, and when the process is killed in between.

mod expected;
mod query;

use expected::Events;
use query::Query;

/// 60 s of event time.
const COUNT: u64 = 60_000;
const EVENT_RATE: u64 = 1_000;

fn assert_exact(name: &'static str, wanted: impl Fn(&Events) -> Vec<String>) {
    let events = Events::generate(COUNT, EVENT_RATE);
    let mut wanted = wanted(&events);
    assert!(!wanted.is_empty(), "a query without results tests nothing");
    wanted.sort();
    for parallelism in [1, 2, 3] {
        let query = Query::new(name, COUNT, EVENT_RATE, parallelism);
        query.folder.run().assert_success();
        query.assert_output(&wanted);
    }
}

/// Kills the job at several moments; there is no progress without a checkpoint, so some kills come after one.
fn assert_exact_with_kills(name: &'static str, seed: u64, wanted: impl Fn(&Events) -> Vec<String>) {
    let (count, rate) = (120_000, 40_000);
    let events = Events::generate(count, EVENT_RATE);
    let mut wanted = wanted(&events);
    wanted.sort();
    for parallelism in [1, 2, 3] {
        let query = Query::new(name, count, EVENT_RATE, parallelism).rate(rate);
        let killed = query.kill_at_random_moments(seed + u64::from(parallelism), 4);
        assert!(killed >= 2, "only {killed} kills have hit a running process");
        query.folder.run().assert_success();
        query.assert_output(&wanted);
    }
}

#[test]
fn q0_passes_every_event_through() {
    assert_exact("q0", expected::q0);
}

#[test]
fn q1_converts_the_price_of_every_bid() {
    assert_exact("q1", expected::q1);
}

#[test]
fn q2_selects_the_bids_on_some_auctions() {
    assert_exact("q2", expected::q2);
}

#[test]
fn q3_joins_auctions_with_their_sellers() {
    assert_exact("q3", expected::q3);
}

#[test]
fn q4_averages_the_prices_of_closed_auctions() {
    assert_exact("q4", expected::q4);
}

#[test]
fn q5_finds_the_auctions_with_the_most_bids() {
    assert_exact("q5", expected::q5);
}

#[test]
fn q7_finds_the_highest_bids() {
    assert_exact("q7", expected::q7);
}

#[test]
fn q8_finds_new_users_who_sell() {
    assert_exact("q8", expected::q8);
}

#[test]
fn q4_is_exact_after_kills() {
    assert_exact_with_kills("q4", 40, expected::q4);
}

#[test]
fn q5_is_exact_after_kills() {
    assert_exact_with_kills("q5", 50, expected::q5);
}

#[test]
fn q8_is_exact_after_kills() {
    assert_exact_with_kills("q8", 80, expected::q8);
}
