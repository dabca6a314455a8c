//! Versions of an operator that counts the records of each key and sends `key<tab>count`; the feature says which one the component
//! holds.

mod first;
mod keyer;
mod later;
mod mark;

pub use first::First;
pub use keyer::Keyer;
pub use later::{Folded, Marked, Silent, Tally};
pub use mark::Mark;

#[cfg(feature = "keyer")]
lockgate::export!(Keyer);
#[cfg(feature = "first")]
lockgate::export!(First);
#[cfg(feature = "tally")]
lockgate::export!(Tally);
#[cfg(feature = "marked")]
lockgate::export!(Marked);
#[cfg(feature = "folded")]
lockgate::export!(Folded);
#[cfg(feature = "silent")]
lockgate::export!(Silent);
