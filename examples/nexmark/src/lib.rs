//! The queries of NEXMark as operators over the events of the `nexmark` source: each module is an operator, and the
//! feature of its name makes a component of it.
//!
//! | query | what it asks | operators |
//! |---|---|---|
//! | q0 | all events, as they are | [`q0`] |
//! | q1 | all bids, their prices in euros | [`q1`] |
//! | q2 | the bids on some auctions | [`q2`] |
//! | q3 | who offers things of category 10 in three states | [`split`] → [`q3`] |
//! | q4 | the average price of the auctions of each category that have closed | [`split`] → [`q4_closed`] → [`q4_average`] |
//! | q5 | the auctions with the most bids in the last 10 s, every 2 s | [`split`] → [`q5_counts`] → [`q5_top`] |
//! | q7 | the highest bids of each 10 s | [`split`] → [`q7_highest`] → [`q7_top`] |
//! | q8 | who has registered and opened an auction in the same 10 s | [`split`] → [`q8`] |
//!
//! The definitions are those of NEXMark in SQL (the Flink and Beam suites), where these differ that of Flink. A job
//! file for each is beside this crate. The lines of the output say in a query's module what their fields are; no
//! query's output depends on the parallelism, except for the order of lines.

pub mod best;
pub mod event;
pub mod q0;
pub mod q1;
pub mod q2;
pub mod q3;
pub mod q4_average;
pub mod q4_closed;
pub mod q5_counts;
pub mod q5_top;
pub mod q7_highest;
pub mod q7_top;
pub mod q8;
pub mod split;

#[cfg(feature = "split")]
lockgate::export!(split::Split);
#[cfg(feature = "q0")]
lockgate::export!(q0::PassThrough);
#[cfg(feature = "q1")]
lockgate::export!(q1::Currency);
#[cfg(feature = "q2")]
lockgate::export!(q2::Selection);
#[cfg(feature = "q3")]
lockgate::export!(q3::LocalItems);
#[cfg(feature = "q4-closed")]
lockgate::export!(q4_closed::Closed);
#[cfg(feature = "q4-average")]
lockgate::export!(q4_average::AveragePrice);
#[cfg(feature = "q5-counts")]
lockgate::export!(q5_counts::BidCounts);
#[cfg(feature = "q5-top")]
lockgate::export!(q5_top::HotItems);
#[cfg(feature = "q7-highest")]
lockgate::export!(q7_highest::HighestOfAuction);
#[cfg(feature = "q7-top")]
lockgate::export!(q7_top::HighestBids);
#[cfg(feature = "q8")]
lockgate::export!(q8::NewSellers);

#[cfg(all(
    target_arch = "wasm32",
    not(any(
        feature = "split",
        feature = "q0",
        feature = "q1",
        feature = "q2",
        feature = "q3",
        feature = "q4-closed",
        feature = "q4-average",
        feature = "q5-counts",
        feature = "q5-top",
        feature = "q7-highest",
        feature = "q7-top",
        feature = "q8"
    ))
))]
compile_error!(
    "say which operator the component is to hold, for example: lockgate build examples/nexmark --features q0"
);
