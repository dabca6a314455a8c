//! Windows, joins and other building blocks of operators, on keyed state and event-time timers.
//!
//! A block is a field of the operator's struct: [declared](crate::Operator::new) with a name for its state, fed in
//! [`process`](crate::Operator::process), and given each timer in [`timer`](crate::Operator::timer): its `fire` says
//! whether the timer was its own, so several blocks stand side by side. Everything it keeps belongs to the key of the
//! record, is part of the checkpoint, and is removed by timers when no more records can change it.
//!
//! | block | gives |
//! |---|---|
//! | [`TumblingWindows`], [`SlidingWindows`], [`SessionWindows`] | an [`Aggregate`] of the values in each window: [`Count`], [`Sum`], [`Min`], [`Max`], [`Average`], [`Top`], pairs of them, or your own |
//! | [`IntervalJoin`] | the pairs of two streams whose event times are near each other; those of the left one that found none |
//! | [`WindowJoin`] | the records of two streams in the same window |
//! | [`Deduplicate`] | the first record of each key within a time |
//! | [`Ranking`] | the greatest values of each key so far |
//! | [`BroadcastTable`] | what a control stream has said so far, in every subtask |
//!
//! # What to know
//!
//! * Event time goes on only with the watermark: a job without a `watermark` strategy at its source gives out all
//!   windows at its end.
//! * What one watermark completes comes in an order that depends on the state alone, for each key in the order of time.
//! * Lengths are whole milliseconds. Windows begin at multiples of their length (or slide) since the Unix epoch, before
//!   it too.
//! * A record whose window would pass an end of time (the extreme i64s) is a bad record.
//! * A block's name and lengths belong to its state: with others, it is another block, and the state of the old one
//!   means nothing.

mod aggregate;
mod broadcast_table;
mod deduplicate;
mod geometry;
mod interval_join;
mod name;
mod panes;
mod places;
mod ranking;
mod runs;
mod session;
mod sliding;
mod time;
mod tumbling;
mod window_join;

pub use aggregate::{Aggregate, Average, Count, Max, Mean, Min, Sum, Top};
pub use broadcast_table::BroadcastTable;
pub use deduplicate::Deduplicate;
pub use interval_join::{IntervalJoin, Pair};
pub use ranking::Ranking;
pub use session::SessionWindows;
pub use sliding::SlidingWindows;
pub use time::Window;
pub use tumbling::TumblingWindows;
pub use window_join::WindowJoin;
