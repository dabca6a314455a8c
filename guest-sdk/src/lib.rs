//! Write operators for the Lockgate stream-processing host.
//!
//! An operator is a struct: it declares its state, and is handed one record after the other. The host keeps the state,
//! snapshots it, and makes sure that after a crash every record counts exactly once.
//!
//! ```
//! use lockgate::prelude::*;
//!
//! /// Counts the records of each key.
//! struct Count {
//!     counts: Value<u64>,
//! }
//!
//! impl Operator for Count {
//!     fn new(declare: &mut Declaration) -> Count {
//!         Count { counts: declare.value("counts") }
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
//!         let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
//!         ctx.emit_fmt(record.key(), format_args!("{count}"));
//!         Ok(())
//!     }
//! }
//!
//! lockgate::export!(Count);
//!
//! # fn main() -> Result<(), Error> {
//! // Its test needs no WebAssembly:
//! let mut harness = lockgate::testing::Harness::<Count>::open()?;
//! harness.process([("tea", ""), ("oil", ""), ("tea", "")])?;
//! assert_eq!(harness.take_output(), [("tea", "1"), ("oil", "1"), ("tea", "2")]);
//! # Ok(())
//! # }
//! ```
//!
//! `lockgate new` makes a crate with such an operator, `lockgate build` a component of it.
//!
//! # What there is
//!
//! * [`Operator`]: what an operator may implement: configuration, records, watermarks, state that isn't keyed.
//! * [`Value`], [`Map`], [`List`]: state of the current record's key. It is cached in the operator's own memory: a key that
//!   is used again costs no call to the host. [`OpenContext::limit_cache`] bounds that memory.
//! * [`Timers`]: timers of the current key, by event time or by the machine's clock.
//! * [`Input`], [`Output`]: several inputs, some of them [broadcast](Declaration::broadcast_input), and named outputs.
//! * [`Context`]: output, watermark, time, log and counters. Output keeps the event time and the headers of the current record
//!   unless told otherwise.
//! * [`Error`]: what `?` makes of an error is a *bad record*; say [`Error::fatal`] or [`Error::transient`] where it isn't
//!   the record's fault.
//! * [`blocks`]: windows with incremental aggregates, joins, deduplication, rankings, tables from a control stream.
//! * [`text`]: integers and fields of text, read without a turn of a loop for each byte.
//! * [`Migration`]: what becomes of state that an older version of the operator has written.
//! * [`testing::Harness`]: records, watermarks, timers, snapshots, crashes and restores in a native test.
//! * [`encoding`]: how state is written, byte for byte.
//! * [`Instance`] and [`host::Host`]: for hosts that run operators natively.
//!
//! # What to know
//!
//! * What a call emits and writes takes effect only when it succeeds. After an error or a panic the instance is dropped; a
//!   new one goes on from the last checkpoint. So nothing in an operator has to be rolled back.
//! * An operator sees no files, network, environment or random numbers, and the same input gives the same output: what is
//!   replayed after a crash comes out as it did before. Only what depends on [`Context::now`] or on processing-time timers
//!   doesn't. Fields of the struct that change with the records must be given to [`snapshot`](Operator::snapshot), or be in
//!   tables; otherwise they start anew.
//! * A job may let an operator reject bad records instead of failing. What such a record has emitted, and what it has done to
//!   tables and timers, is undone; fields of the struct are not.
//! * A panic's message and place are in the host's log.

#![deny(unsafe_code)]

pub mod blocks;
mod bytes;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod component;
mod context;
pub mod encoding;
mod error;
mod export;
mod field;
mod headers;
pub mod host;
mod instance;
mod migration;
mod open_context;
mod operator;
mod output;
mod record;
mod state;
pub mod testing;
pub mod text;
mod timers;
mod value_writer;

pub use context::Context;
pub use error::{Error, ErrorKind};
pub use field::AsField;
pub use headers::{Header, Headers};
pub use host::{Clock, Level};
pub use instance::{Instance, Rejection};
pub use migration::{AnyTable, Entry, Keys, MergeTable, Migration};
pub use open_context::{OpenContext, Place};
pub use operator::{Declaration, Input, InputName, Operator, Output, Redistribution, Table, TableKind, TableName};
pub use record::{NO_TIMESTAMP, Record, Rows};
pub use state::{List, ListElements, Map, MapEntries, Value};
pub use text::Integer;
pub use timers::{Timer, Timers};
pub use value_writer::ValueWriter;

/// What most operators need.
pub mod prelude {
    pub use crate::{
        AsField, Clock, Context, Declaration, Error, Input, Level, List, Map, Migration, OpenContext, Operator, Output,
        Record, Redistribution, TableName, Timer, Timers, Value,
    };
}

/// The README's operator is compiled with the examples.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
