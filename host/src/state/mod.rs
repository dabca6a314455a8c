//! Keyed state over RocksDB, with incremental snapshots that don't hold up the stream.
//!
//! A call's writes are staged in a segment in memory. At a barrier the segment is sealed, which costs next to nothing, and a
//! new one begins; in the background it is written to the checkpoint store as one delta file, and, together with others, moved
//! into RocksDB as one sorted file. A snapshot is a base (the files of RocksDB after some segment) and the deltas since.
//!
//! Invariant: everything that comes from a guest or out of a file is checked before it is used.

mod base;
mod chain;
mod delta_file;
mod entry;
mod error;
mod flusher;
mod hand_over;
mod key_space;
mod keyed;
mod lookup;
mod merge;
mod migration;
mod order;
mod queue;
mod restore;
mod rocks;
mod scan;
mod segment;
mod snapshot;
mod spares;
mod staging;
mod tables;
mod timers;
mod whole;

#[cfg(test)]
mod tests;

pub use entry::{KEY_BYTES_MAX, USER_KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use error::{Corruption, StateError, TransferError};
pub use keyed::{KeyedState, StateMetrics, StateOptions};
pub use migration::{MigratedTable, OldEntries, OldPage, TableSize};
pub use restore::Fetch;
pub use rocks::BlockCache;
pub use scan::Page;
pub use snapshot::{PendingSnapshot, Uploader};
pub use tables::{FREE_TABLE, Outdated};
pub use timers::{Clock, TAG_BYTES_MAX, TIMERS_TABLE};
pub use whole::{OpenWhole, Whole};
