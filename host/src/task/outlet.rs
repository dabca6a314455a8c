//! The downstream edges of a task: which record goes to which subtask.
//!
//! Invariant: records of one key leave in the order in which they came, and where they are dealt by key, all of them go to the
//! subtask that owns the key's group. Whatever isn't a batch is sent after all rows that came before it. Nothing here waits.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::TaskError;
use crate::channel::{Closed, Sender};
use crate::element::{Batch, Element};
use crate::id::Name;
use crate::protocol::MaxParallelism;

/// A buffered batch leaves when it has this many rows,
const ROWS_FLUSH: u32 = 1024;
/// or this many bytes.
const BYTES_FLUSH: usize = 256 << 10;

/// How the rows of a batch are dealt to the subtasks of the next operator.
pub enum Exchange {
    /// All to the one subtask with this task's index.
    Forward,
    /// By the key's group.
    Hash(MaxParallelism, WithoutKey),
    /// Batch by batch, in turn.
    Rebalance { next: usize },
    /// All to all.
    Broadcast,
}

/// What becomes of a row without a key where rows are dealt by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutKey {
    /// It is an error: the reader has its state by key.
    Refused,
    /// Nobody waits for it: those of a batch go to one subtask, those of the next to the next.
    InTurn { next: usize },
}

/// One edge out of a task.
pub struct Outlet {
    /// The output of the last operator of the chain that this edge takes.
    port: u32,
    /// Whom it feeds, for errors.
    to: Name,
    exchange: Exchange,
    senders: Vec<Sender>,
    /// Per sender, only for `Hash` with several of them.
    buffers: Vec<Batch>,
}

impl Outlet {
    /// # Panics
    /// If there is no sender, or not exactly one for `Forward`.
    pub fn new(port: u32, to: Name, exchange: Exchange, senders: Vec<Sender>) -> Outlet {
        match exchange {
            Exchange::Forward => assert_eq!(senders.len(), 1, "a forward edge has one receiver"),
            Exchange::Hash(..) | Exchange::Rebalance { .. } | Exchange::Broadcast => {
                assert!(!senders.is_empty(), "an edge has a receiver");
            }
        }
        let buffers = senders.iter().map(|_| Batch::default()).collect();
        Outlet { port, to, exchange, senders, buffers }
    }

    pub fn takes(&self, port: u32) -> bool {
        self.port == port
    }

    /// Sends a batch, or buffers its rows until there are enough of them.
    ///
    /// # Errors
    /// If a receiver is gone, or a record for a keyed operator has no key.
    pub fn send(&mut self, batch: Arc<Batch>) -> Result<(), TaskError> {
        match &mut self.exchange {
            Exchange::Forward => Ok(self.senders[0].push(Element::Batch(batch))?),
            Exchange::Rebalance { next } => {
                let sender = &self.senders[*next];
                *next = (*next + 1) % self.senders.len();
                Ok(sender.push(Element::Batch(batch))?)
            }
            Exchange::Broadcast => Ok(self.push_to_all(&Element::Batch(batch))?),
            Exchange::Hash(max_parallelism, without_key) => {
                let max_parallelism = *max_parallelism;
                let lacks_keys =
                    !batch.nulls.is_empty() && (0..batch.rows as usize).any(|row| batch.key(row).is_none());
                let turn = match without_key {
                    WithoutKey::Refused if lacks_keys => return Err(TaskError::MissingKey { to: self.to.clone() }),
                    WithoutKey::InTurn { next } if lacks_keys => {
                        let turn = *next;
                        *next = (turn + 1) % self.senders.len();
                        turn
                    }
                    WithoutKey::Refused | WithoutKey::InTurn { .. } => 0,
                };
                if let [only] = &self.senders[..] {
                    return Ok(only.push(Element::Batch(batch))?);
                }
                self.partition(&batch, max_parallelism, turn);
                self.send_buffers(|buffer| buffer.rows >= ROWS_FLUSH || buffer.bytes() >= BYTES_FLUSH)
            }
        }
    }

    /// `turn`: the subtask that gets rows without a key.
    fn partition(&mut self, batch: &Batch, max_parallelism: MaxParallelism, turn: usize) {
        let parallelism = self.senders.len() as u32;
        for number in 0..batch.rows {
            let subtask = match batch.key(number as usize) {
                Some(key) => max_parallelism.subtask(max_parallelism.key_group(key), parallelism) as usize,
                None => turn,
            };
            let buffer = &mut self.buffers[subtask];
            buffer.push_from(batch, number as usize);
            if let Some(provenance) = &batch.provenance {
                buffer.push_origin(provenance.of(number));
            }
        }
    }

    fn send_buffers(&mut self, due: impl Fn(&Batch) -> bool) -> Result<(), TaskError> {
        for (sender, buffer) in self.senders.iter().zip(&mut self.buffers) {
            if !buffer.is_empty() && due(buffer) {
                let room = Batch::with_capacity(buffer.rows as usize, buffer.values.data.len());
                let batch = std::mem::replace(buffer, room);
                sender.push(Element::Batch(Arc::new(batch)))?;
            }
        }
        Ok(())
    }

    /// Whether rows wait for more of their kind.
    pub fn has_buffered(&self) -> bool {
        self.buffers.iter().any(|buffer| !buffer.is_empty())
    }

    /// # Errors
    /// If a receiver is gone.
    pub fn flush(&mut self) -> Result<(), TaskError> {
        self.send_buffers(|_| true)
    }

    /// Sends what isn't a batch to every receiver, after the rows that are buffered.
    ///
    /// # Errors
    /// If a receiver is gone.
    pub fn broadcast(&mut self, element: &Element) -> Result<(), TaskError> {
        self.flush()?;
        Ok(self.push_to_all(element)?)
    }

    fn push_to_all(&self, element: &Element) -> Result<(), Closed> {
        self.senders.iter().try_for_each(|sender| sender.push(element.clone()))
    }

    /// Whether every receiver's channel has room.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.senders.iter().all(Sender::has_room)
    }

    /// Waits until every receiver's channel has room.
    ///
    /// # Errors
    /// If a receiver is gone.
    pub fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        for sender in &self.senders {
            match sender.poll_room(context) {
                Poll::Ready(Ok(())) => {}
                waits => return waits,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whom it feeds.
    pub fn to(&self) -> &Name {
        &self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Announce, Capacity, Inputs, Received, Receiver, link};
    use crate::element::{Header, Row};

    fn keyed(keys: impl Iterator<Item = u32>) -> Batch {
        let mut batch = Batch::default();
        for key in keys {
            batch.push(Row { key: Some(&key.to_le_bytes()), value: Some(b"v"), timestamp: i64::from(key) });
        }
        batch
    }

    fn to() -> Name {
        Name::new("count").expect("a good name")
    }

    fn links(count: usize) -> (Vec<Sender>, Vec<Receiver>) {
        (0..count).map(|_| link(Capacity::default(), Announce::Never)).unzip()
    }

    /// All that is queued: the receiver and each of its elements.
    fn received(receivers: Vec<Receiver>) -> Vec<(usize, Element)> {
        let mut inputs = Inputs::new(receivers);
        let elements = std::iter::from_fn(|| inputs.try_recv(true));
        let elements = elements.map(|received| match received {
            Received::Element(receiver, element) => (receiver, element),
            other => panic!("{other:?}"),
        });
        elements.collect()
    }

    #[test]
    fn every_key_goes_to_its_owner_and_keeps_its_order() {
        let max = MaxParallelism::new(128).expect("in range");
        let (senders, receivers) = links(3);
        let mut outlet = Outlet::new(0, to(), Exchange::Hash(max, WithoutKey::Refused), senders);
        for round in 0..3 {
            outlet.send(Arc::new(keyed(round * 100..round * 100 + 200))).expect("receivers are there");
        }
        outlet.broadcast(&Element::End).expect("receivers are there");
        let (mut ended, mut seen) = (0, Vec::new());
        for (subtask, element) in received(receivers) {
            match element {
                Element::Batch(batch) => {
                    for row in batch.iter() {
                        let key = row.key.expect("keyed");
                        assert_eq!(max.subtask(max.key_group(key), 3) as usize, subtask);
                        seen.push(row.timestamp);
                    }
                }
                Element::End => ended += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ended, 3);
        seen.sort_unstable();
        let mut expected: Vec<i64> = (0..3i64).flat_map(|round| round * 100..round * 100 + 200).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }

    #[test]
    fn records_that_are_dealt_by_key_keep_their_headers() {
        let (senders, receivers) = links(2);
        let mut outlet = Outlet::new(
            0,
            to(),
            Exchange::Hash(MaxParallelism::new(8).expect("in range"), WithoutKey::Refused),
            senders,
        );
        let mut batch = Batch::default();
        for key in 0..40u32 {
            batch.push(Row { key: Some(&key.to_le_bytes()), value: None, timestamp: i64::from(key) });
            if key % 3 == 0 {
                batch.push_header(Header { name: "n", value: Some(&key.to_le_bytes()) });
            }
        }
        outlet.send(Arc::new(batch)).expect("receivers are there");
        outlet.flush().expect("receivers are there");
        let mut seen = 0;
        for (_, element) in received(receivers) {
            let Element::Batch(batch) = element else { panic!("{element:?}") };
            batch.check().expect("well formed");
            for row in 0..batch.rows as usize {
                let key = batch.timestamp(row) as u32;
                let expected = [Header { name: "n", value: Some(&key.to_le_bytes()) }];
                let expected = if key.is_multiple_of(3) { &expected[..] } else { &[] };
                assert_eq!(batch.headers(row).collect::<Vec<_>>(), expected, "record {key}");
                seen += 1;
            }
        }
        assert_eq!(seen, 40);
    }

    #[test]
    fn a_broadcast_edge_brings_every_batch_to_every_subtask() {
        let (senders, receivers) = links(3);
        let mut outlet = Outlet::new(0, to(), Exchange::Broadcast, senders);
        let (first, second) = (Arc::new(keyed(0..5)), Arc::new(keyed(5..9)));
        outlet.send(Arc::clone(&first)).expect("receivers are there");
        outlet.send(Arc::clone(&second)).expect("receivers are there");
        let mut batches = vec![Vec::new(); 3];
        for (subtask, element) in received(receivers) {
            match element {
                Element::Batch(batch) => batches[subtask].push(batch),
                other => panic!("{other:?}"),
            }
        }
        assert!(batches.iter().all(|of| *of == [Arc::clone(&first), Arc::clone(&second)]), "{batches:?}");
    }

    #[test]
    fn an_edge_has_room_when_all_its_channels_have() {
        let (senders, mut receivers) = links(2);
        let mut outlet = Outlet::new(0, to(), Exchange::Rebalance { next: 0 }, senders);
        let full = Capacity::default().elements_max;
        for _ in 0..full * 2 - 1 {
            assert!(outlet.has_room() || !outlet.senders[0].has_room());
            outlet.send(Arc::new(keyed(0..1))).expect("receivers are there");
        }
        assert!(!outlet.has_room(), "the first channel is full");
        let context = Context::from_waker(std::task::Waker::noop());
        assert!(outlet.poll_room(&context).is_pending());
        assert!(receivers[0].poll_take(&context, true).is_ready());
        assert!(outlet.has_room() && outlet.poll_room(&context).is_ready());
    }

    #[test]
    fn a_record_without_a_key_for_a_keyed_operator_is_an_error() {
        let max = MaxParallelism::new(128).expect("in range");
        for count in [1, 2] {
            let (senders, _receivers) = links(count);
            let mut outlet = Outlet::new(0, to(), Exchange::Hash(max, WithoutKey::Refused), senders);
            let mut batch = keyed(0..10);
            batch.push(Row { key: None, value: Some(b"v"), timestamp: 0 });
            let error = outlet.send(Arc::new(batch)).expect_err("row 10 has no key");
            assert!(matches!(error, TaskError::MissingKey { .. }));
        }
    }

    #[test]
    fn rows_without_a_key_are_dealt_in_turn_where_the_reader_has_no_state_by_key() {
        let max = MaxParallelism::new(128).expect("in range");
        let (senders, receivers) = links(3);
        let exchange = Exchange::Hash(max, WithoutKey::InTurn { next: 0 });
        let mut outlet = Outlet::new(0, to(), exchange, senders);
        for number in 0..6 {
            let mut batch = keyed(0..10);
            for _ in 0..2 {
                batch.push(Row { key: None, value: Some(b"v"), timestamp: number });
            }
            outlet.send(Arc::new(batch)).expect("receivers are there");
        }
        outlet.flush().expect("receivers are there");
        let (mut without, mut rows) = (vec![Vec::new(); 3], 0);
        for (subtask, element) in received(receivers) {
            let Element::Batch(batch) = element else { panic!("{element:?}") };
            rows += batch.rows;
            for row in batch.iter() {
                match row.key {
                    Some(key) => assert_eq!(max.subtask(max.key_group(key), 3) as usize, subtask),
                    None => without[subtask].push(row.timestamp),
                }
            }
        }
        assert_eq!(without, [vec![0, 0, 3, 3], vec![1, 1, 4, 4], vec![2, 2, 5, 5]]);
        assert_eq!(rows, 6 * 12);
    }
}
