//! The Kafka source: the records of topics, as they are.
//!
//! A split is a partition, named `TOPIC/PARTITION`. Partition p of a topic belongs to subtask (XXH3-64(topic) + p) modulo
//! parallelism. Its position is the offset of the next record, `{"next":17}`, and where a bounded source ends, the offset that it
//! ends before: `{"next":17,"end":40}`. Where it is known, the id of the topic is with it (`"topic_id":"AQIDBAUGBwgJCgsMDQ4PEA"`),
//! so that another topic of the same name isn't taken for it.
//!
//! Where reading begins: at the position that the checkpoint has; a partition that it doesn't have has come since, and is read
//! from its first record. What `start` says is for a source that no checkpoint knows.
//!
//! A bounded source ends at the offsets that its topics had when it first started: those are part of its positions. With
//! `isolation = "read_committed"` they are those behind the last transaction that was decided.
//!
//! A topic that `topics` names has to be there; one that `topic_pattern` matched may go, which is logged, since a pattern means
//! what there is.
//!
//! Invariant: a record is given once, in the order of its partition; an offset that can't be read any more is an error, never
//! a leap.

mod afresh;
mod bounds;
mod client;
mod failing;
mod figures;
mod ids;
mod memory;
mod options;
mod places;
mod position;
mod progress;
mod reader;
mod reporter;
mod scout;
mod selection;
mod split;
mod start;
mod still_there;

#[cfg(test)]
mod tests;

pub use afresh::{deleted_advice, topics_of};
pub use client::preview;
pub use options::{Isolation, KafkaMode, KafkaSourceOptions};
pub use position::{NoPosition, Partition, next_offsets};
pub use reader::KafkaReader;
pub use reporter::KafkaReporter;
pub use start::Start;
pub use still_there::{bad_starts, check_beginning, lost_positions};
