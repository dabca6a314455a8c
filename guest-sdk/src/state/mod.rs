//! Keyed state with a write-back cache in the operator's own memory.
//!
//! [`Value`], [`Map`] and [`List`] are handles to tables. What they hold is always that of the key of the record being
//! processed, so an operator can't touch another subtask's keys. A key that is used again and again never crosses to the
//! host: what is missing is read for all coming records of the batch at once, what was changed is written at the next
//! barrier, and before that only if the cache is full.
//!
//! Invariant: what the host has and what is dirty here together are the state. After an error the two may have parted,
//! for the host drops what a failed call wrote; so the instance is dropped with its cache.

mod cache;
mod column;
mod directory;
mod list;
mod map;
mod map_cells;
mod rows;
mod scan;
mod series;
mod undo;
mod value;
mod writes;

pub(crate) use cache::Cache;
pub(crate) use column::Column;
pub(crate) use list::ListColumn;
pub use list::{List, ListElements};
pub use map::{Map, MapEntries};
pub(crate) use map_cells::MapColumn;
pub(crate) use series::{Series, SeriesColumn};
pub use value::Value;
pub(crate) use value::ValueColumn;
