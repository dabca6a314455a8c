//! Operators for tests, most of them with one building block: the feature of its name makes a component of it.
//!
//! Lines of the input are `key,time,value`, which `parse` takes apart; values are integers. What the others send are
//! lines that say all.

pub mod joins;
pub mod languages;
pub mod single;
pub mod windows;

#[cfg(feature = "parse")]
lockgate::export!(single::Parse);
#[cfg(feature = "tumbling")]
lockgate::export!(windows::Tumbling);
#[cfg(feature = "sliding")]
lockgate::export!(windows::Sliding);
#[cfg(feature = "session")]
lockgate::export!(windows::Session);
#[cfg(feature = "interval-join")]
lockgate::export!(joins::Interval);
#[cfg(feature = "window-join")]
lockgate::export!(joins::Windowed);
#[cfg(feature = "stamp")]
lockgate::export!(single::Stamp);
#[cfg(feature = "moody")]
lockgate::export!(single::Moody);
#[cfg(feature = "deduplicate")]
lockgate::export!(single::Once);
#[cfg(feature = "ranking")]
lockgate::export!(single::Best);
#[cfg(feature = "enrich")]
lockgate::export!(joins::Enrich);
#[cfg(feature = "set-count")]
lockgate::export!(languages::SetCount);
#[cfg(feature = "dress")]
lockgate::export!(languages::Dress);
#[cfg(feature = "visits")]
lockgate::export!(languages::Visits);
#[cfg(feature = "facts")]
lockgate::export!(languages::Facts);
