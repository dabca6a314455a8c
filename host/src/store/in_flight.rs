//! Records that a barrier has overtaken, as one file of a checkpoint.
//!
//! All numbers are little-endian u32. The file begins with the eight bytes `LGFLIGHT`, the version of this layout (1) and the number
//! of channels. A channel: the place of its edge in the manifest's list, the number of the subtask that sent, the number of batches.
//! A batch: its rows, then seven byte strings, each a length and its bytes: data and offsets of the keys, data and offsets of the
//! values, timestamps, nulls, ext (headers), as in `batch` of `wit/operator.wit`. Channels are in the order in which they are to be taken up;
//! one may come more than once.
//!
//! The checksum is that of the file's [`FileRef`]. Invariant: a batch that `decode` gives is well formed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::manifest::FileRef;
use crate::element::{Batch, Column};
use crate::graph::Exchange;
use crate::id::Name;

const MAGIC: &[u8; 8] = b"LGFLIGHT";
const VERSION: u32 = 1;

/// What was in flight to one subtask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlightSnapshot {
    pub edges: Vec<EdgeRef>,
    pub file: FileRef,
}

/// An edge that leads to a subtask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeRef {
    pub from: Name,
    /// The name of the output; empty for a source.
    pub output: String,
    /// The number of the reader's input.
    pub input: u32,
    pub exchange: Exchange,
}

/// What was queued in one channel, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelContent {
    /// A place in [`InFlightSnapshot::edges`].
    pub edge: u32,
    /// The number of the subtask that sent.
    pub sender: u32,
    pub batches: Vec<Arc<Batch>>,
}

/// Why bytes with the right checksum can't be read.
#[derive(Debug, thiserror::Error)]
pub enum BadInFlight {
    #[error("it isn't a file of records in flight")]
    Magic,
    #[error("its layout has version {found}, and this host reads {VERSION}")]
    Version { found: u32 },
    #[error("it ends too early, or has more than it says")]
    Length,
    #[error("a batch in it is malformed")]
    Batch(#[source] crate::element::Malformed),
    #[error("a channel in it is of edge {edge}, and there are {edges}")]
    Edge { edge: u32, edges: usize },
}

fn put_number(to: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("what is in flight is far below 4 GiB");
    to.extend_from_slice(&number.to_le_bytes());
}

/// The bytes of the file.
pub fn encode(channels: &[ChannelContent]) -> Vec<u8> {
    let bytes = channels.iter().flat_map(|channel| &channel.batches).map(|batch| batch.bytes() + 64).sum::<usize>();
    let mut to = Vec::with_capacity(bytes + 64);
    to.extend_from_slice(MAGIC);
    put_number(&mut to, VERSION as usize);
    put_number(&mut to, channels.len());
    for ChannelContent { edge, sender, batches } in channels {
        for number in [*edge as usize, *sender as usize, batches.len()] {
            put_number(&mut to, number);
        }
        for batch in batches {
            put_number(&mut to, batch.rows as usize);
            for string in strings(batch) {
                put_number(&mut to, string.len());
                to.extend_from_slice(string);
            }
            put_number(&mut to, batch.headers.offsets.len() + batch.headers.data.len());
            to.extend_from_slice(&batch.headers.offsets);
            to.extend_from_slice(&batch.headers.data);
        }
    }
    to
}

/// All but the headers, which are in two pieces.
fn strings(batch: &Batch) -> [&Vec<u8>; 6] {
    // Where they were read isn't kept.
    let Batch { rows: _, keys, values, timestamps, nulls, headers: _, provenance: _ } = batch;
    [&keys.data, &keys.offsets, &values.data, &values.offsets, timestamps, nulls]
}

/// Reads the bytes of a file of a checkpoint with so many edges.
///
/// # Errors
/// [`BadInFlight`]: then a host wrote it that isn't this one.
pub fn decode(bytes: &[u8], edges: usize) -> Result<Vec<ChannelContent>, BadInFlight> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(BadInFlight::Magic)?;
    let mut from = Reader { rest };
    let found = from.number()?;
    if found != VERSION {
        return Err(BadInFlight::Version { found });
    }
    let count = from.number()?;
    let mut channels = Vec::new();
    for _ in 0..count {
        let (edge, sender, count) = (from.number()?, from.number()?, from.number()?);
        if edge as usize >= edges {
            return Err(BadInFlight::Edge { edge, edges });
        }
        let mut batches = Vec::new();
        for _ in 0..count {
            batches.push(Arc::new(from.batch()?));
        }
        channels.push(ChannelContent { edge, sender, batches });
    }
    if from.rest.is_empty() { Ok(channels) } else { Err(BadInFlight::Length) }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u32, BadInFlight> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(BadInFlight::Length)?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*number))
    }

    fn string(&mut self) -> Result<Vec<u8>, BadInFlight> {
        let length = self.number()? as usize;
        let (string, rest) = self.rest.split_at_checked(length).ok_or(BadInFlight::Length)?;
        self.rest = rest;
        Ok(string.to_vec())
    }

    fn column(&mut self) -> Result<Column, BadInFlight> {
        Ok(Column { data: self.string()?, offsets: self.string()? })
    }

    fn batch(&mut self) -> Result<Batch, BadInFlight> {
        let (rows, keys, values) = (self.number()?, self.column()?, self.column()?);
        let batch = Batch {
            rows,
            keys,
            values,
            timestamps: self.string()?,
            nulls: self.string()?,
            headers: Batch::headers_of(rows, &self.string()?).map_err(BadInFlight::Batch)?,
            provenance: None,
        };
        batch.check().map_err(BadInFlight::Batch)?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Header, Row};

    fn channels() -> Vec<ChannelContent> {
        let mut full = Batch::default();
        full.push(Row { key: Some(b"k"), value: Some(b"value"), timestamp: 7 });
        full.push(Row { key: None, value: Some(b""), timestamp: -1 });
        full.push_header(Header { name: "n", value: Some(b"9") });
        let full = Arc::new(full);
        vec![
            ChannelContent {
                edge: 1,
                sender: 3,
                batches: vec![Arc::clone(&full), Arc::new(Batch::with_capacity(0, 0))],
            },
            ChannelContent { edge: 0, sender: 0, batches: Vec::new() },
            ChannelContent { edge: 1, sender: 0, batches: vec![full] },
        ]
    }

    #[test]
    fn what_was_in_flight_comes_back_as_it_was() {
        assert_eq!(decode(&encode(&channels()), 2).expect("its own bytes"), channels());
        assert_eq!(decode(&encode(&[]), 0).expect("its own bytes"), []);
    }

    #[test]
    fn bytes_that_are_cut_off_anywhere_or_go_on_are_refused() {
        let mut bytes = encode(&channels());
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], 2).is_err(), "{length}");
        }
        bytes.push(0);
        assert!(matches!(decode(&bytes, 2), Err(BadInFlight::Length)));
    }

    #[test]
    fn what_no_host_writes_is_refused() {
        let good = encode(&channels());
        let broken = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode(&bytes, 2).expect_err("broken")
        };
        assert!(matches!(broken(0, b'X'), BadInFlight::Magic));
        assert!(matches!(broken(8, 2), BadInFlight::Version { found: 2 }));
        assert!(matches!(broken(16, 2), BadInFlight::Edge { edge: 2, edges: 2 }));
        // The number of rows of the first batch.
        assert!(matches!(broken(28, 3), BadInFlight::Batch(_)));
    }

    /// Files of version 1 must be readable for ever.
    #[test]
    fn the_layout_never_changes() {
        let mut batch = Batch::default();
        batch.push(Row { key: Some(b"k"), value: Some(b"vw"), timestamp: 1 });
        let bytes = encode(&[ChannelContent { edge: 0, sender: 2, batches: vec![Arc::new(batch)] }]);
        let expected: &[&[u8]] = &[
            b"LGFLIGHT\x01\0\0\0\x01\0\0\0",
            b"\0\0\0\0\x02\0\0\0\x01\0\0\0",
            b"\x01\0\0\0",
            b"\x01\0\0\0k\x08\0\0\0\0\0\0\0\x01\0\0\0",
            b"\x02\0\0\0vw\x08\0\0\0\0\0\0\0\x02\0\0\0",
            b"\x08\0\0\0\x01\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0",
        ];
        assert_eq!(bytes, expected.concat());
    }
}
