//! A cluster as a deciding sink meets it: partitions whose records belong to transactions, and the coordinator of those.
//!
//! Each transaction is of a transactional id, which the newest process with that id owns: its *producer epoch* shuts out all
//! before. The end of a transaction is accepted at once, and reaches one partition after the other later. Other jobs have
//! transactions in the topic of the markers, too.
//!
//! Invariant: a partition never changes but at its end; what was accepted is done at some time, whoever lives.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::id::{Attempt, Epoch};
use lockgate_host::protocol::decision::{Digest, Marker};

use crate::rng::Rng;
use crate::world::Row;

/// How many partitions the output has. The one behind them is that of the markers.
pub const PARTITIONS: usize = 2;
const MARKERS: usize = PARTITIONS;

/// The right to write with a transactional id, until another one gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    id: usize,
    epoch: u64,
}

/// Why a request isn't done, for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Another process has the id, or the transaction took too long.
    Fenced,
    /// The transaction before is still being ended: to be tried again.
    Busy,
}

#[derive(Clone, Debug)]
pub enum Content {
    Row {
        row: Row,
        /// Rows of a key are in order within a lane.
        lane: u64,
    },
    Marker(Marker),
    /// Of another job.
    Foreign,
}

#[derive(Clone, Debug)]
struct Entry {
    /// `None`: it counts at once.
    transaction: Option<usize>,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Accepted; partitions may not know yet.
    Ended {
        commits: bool,
    },
}

/// What it means if a transaction is committed, as only the simulator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decides {
    pub attempt: Attempt,
    pub decided: Option<(Epoch, Digest)>,
    /// What was decided before, as the process believes.
    pub follows: Option<Epoch>,
    /// It changes nothing but the marker.
    pub adopts: bool,
}

#[derive(Clone, Debug)]
struct Transaction {
    /// `None`: of another job.
    id: Option<usize>,
    state: State,
    /// The partitions that it has records in and that don't know of its end.
    unsettled: BTreeSet<usize>,
    offsets: Option<BTreeMap<u32, u64>>,
}

#[derive(Clone, Debug, Default)]
struct Id {
    epoch: u64,
    current: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Broker {
    logs: [Vec<Entry>; PARTITIONS + 1],
    transactions: Vec<Transaction>,
    ids: Vec<Id>,
    /// By split: the offsets that are committed.
    pub offsets: BTreeMap<u32, u64>,
    /// What the last commit decided.
    pub decided: Option<Decides>,
    /// Up to where a reader has got in each partition.
    read: [usize; PARTITIONS],
}

impl Broker {
    fn id(&mut self, id: usize) -> &mut Id {
        if id >= self.ids.len() {
            self.ids.resize_with(id + 1, Id::default);
        }
        &mut self.ids[id]
    }

    /// Takes over an id. `None`: what it had isn't over yet; to be asked again.
    pub fn init(&mut self, id: usize) -> Option<Handle> {
        self.id(id).epoch += 1;
        match self.ids[id].current {
            None => Some(Handle { id, epoch: self.ids[id].epoch }),
            Some(current) => {
                if self.transactions[current].state == State::Open {
                    self.end_transaction(current, false);
                }
                None
            }
        }
    }

    /// The open transaction of a handle, which is begun if there is none.
    fn open(&mut self, handle: Handle) -> Result<usize, Denied> {
        let Id { epoch, current } = *self.id(handle.id);
        if epoch != handle.epoch {
            return Err(Denied::Fenced);
        }
        match current {
            Some(current) if self.transactions[current].state == State::Open => Ok(current),
            Some(_) => Err(Denied::Busy),
            None => {
                let begun = self.begin(Some(handle.id));
                self.ids[handle.id].current = Some(begun);
                Ok(begun)
            }
        }
    }

    fn begin(&mut self, id: Option<usize>) -> usize {
        self.transactions.push(Transaction { id, state: State::Open, unsettled: BTreeSet::new(), offsets: None });
        self.transactions.len() - 1
    }

    fn append(&mut self, partition: usize, transaction: Option<usize>, content: Content) {
        self.logs[partition].push(Entry { transaction, content });
        if let Some(transaction) = transaction {
            self.transactions[transaction].unsettled.insert(partition);
        }
    }

    pub fn write(&mut self, handle: Handle, partition: usize, row: Row, lane: u64) -> Result<(), Denied> {
        let open = self.open(handle)?;
        self.append(partition, Some(open), Content::Row { row, lane });
        Ok(())
    }

    pub fn write_marker(&mut self, handle: Handle, marker: Marker) -> Result<(), Denied> {
        let open = self.open(handle)?;
        self.append(MARKERS, Some(open), Content::Marker(marker));
        Ok(())
    }

    /// As somebody would that forgets the transaction.
    pub fn write_marker_outside(&mut self, marker: Marker) {
        self.append(MARKERS, None, Content::Marker(marker));
    }

    /// Offsets that are committed with the transaction.
    pub fn add_offsets(&mut self, handle: Handle, offsets: BTreeMap<u32, u64>) -> Result<(), Denied> {
        let open = self.open(handle)?;
        self.transactions[open].offsets = Some(offsets);
        Ok(())
    }

    /// Whether a handle has something to commit.
    pub fn has_open(&self, handle: Handle) -> bool {
        let is_open = |current: usize| self.transactions[current].state == State::Open;
        self.ids.get(handle.id).is_some_and(|id| id.epoch == handle.epoch && id.current.is_some_and(is_open))
    }

    /// Ends the transaction of a handle, if it is open still. What a commit decides counts once it is accepted.
    pub fn end(&mut self, handle: Handle, commits: Option<Decides>) -> Result<(), Denied> {
        let open = self.ids[handle.id].current.filter(|_| self.has_open(handle)).ok_or(Denied::Fenced)?;
        self.end_transaction(open, commits.is_some());
        if commits.is_some() {
            self.decided = commits;
        }
        Ok(())
    }

    fn end_transaction(&mut self, transaction: usize, commits: bool) {
        self.transactions[transaction].state = State::Ended { commits };
        self.close_if_settled(transaction);
    }

    fn close_if_settled(&mut self, transaction: usize) {
        let Transaction { id, unsettled, offsets, state, .. } = &mut self.transactions[transaction];
        if !unsettled.is_empty() {
            return;
        }
        if let Some(offsets) = offsets.take().filter(|_| *state == State::Ended { commits: true }) {
            self.offsets = offsets;
        }
        if let Some(id) = *id {
            self.ids[id].current = None;
        }
    }

    /// A partition gets to know of the end of a transaction. Tells whether there was one to be told.
    pub fn settle_one(&mut self, rng: &mut Rng) -> bool {
        let told = |of: &Transaction| of.state != State::Open && !of.unsettled.is_empty();
        let waiting = (0..self.transactions.len()).filter(|&index| told(&self.transactions[index])).collect::<Vec<_>>();
        if waiting.is_empty() {
            return false;
        }
        let transaction = *rng.pick(&waiting);
        let partitions = self.transactions[transaction].unsettled.iter().copied().collect::<Vec<_>>();
        self.transactions[transaction].unsettled.remove(rng.pick(&partitions));
        self.close_if_settled(transaction);
        true
    }

    /// Whether all that was committed is visible. It isn't behind a transaction that is open, either.
    pub fn is_settled(&self) -> bool {
        let settled = |of: &Transaction| of.state == State::Open || of.unsettled.is_empty();
        let visible = |partition| {
            let behind = &self.logs[partition][self.stable(partition)..];
            !behind.iter().any(|entry| self.is_committed(entry))
        };
        self.transactions.iter().all(settled) && (0..PARTITIONS).all(visible)
    }

    /// The coordinator aborts a transaction that takes too long, and shuts its producer out. Tells whether there was one.
    pub fn time_out(&mut self, rng: &mut Rng) -> bool {
        let open = |id: &Id| id.current.filter(|&current| self.transactions[current].state == State::Open);
        let open = self.ids.iter().filter_map(open).collect::<Vec<_>>();
        if open.is_empty() {
            return false;
        }
        let late = *rng.pick(&open);
        let id = self.transactions[late].id.expect("it is of an id");
        self.ids[id].epoch += 1;
        self.end_transaction(late, false);
        true
    }

    /// Another job begins a transaction in the topic of the markers, or ends the one that it has.
    pub fn move_foreign(&mut self, rng: &mut Rng) {
        let is_open = |of: &Transaction| of.id.is_none() && of.state == State::Open;
        match self.transactions.iter().position(is_open) {
            Some(open) => self.end_transaction(open, rng.one_in(2)),
            None => {
                let begun = self.begin(None);
                self.append(MARKERS, Some(begun), Content::Foreign);
            }
        }
    }

    /// Up to where a partition is stable: before the first record of a transaction whose end it doesn't know.
    fn stable(&self, partition: usize) -> usize {
        let unstable =
            |entry: &Entry| entry.transaction.is_some_and(|of| self.transactions[of].unsettled.contains(&partition));
        self.logs[partition].iter().position(unstable).unwrap_or(self.logs[partition].len())
    }

    fn is_committed(&self, entry: &Entry) -> bool {
        entry.transaction.is_none_or(|of| self.transactions[of].state == State::Ended { commits: true })
    }

    /// What a read_committed reader of a partition sees next.
    pub fn read_on(&mut self, partition: usize) -> Vec<(Row, u64)> {
        let stable = self.stable(partition);
        let news = &self.logs[partition][self.read[partition]..stable];
        let rows = news.iter().filter(|entry| self.is_committed(entry)).map(|entry| match &entry.content {
            Content::Row { row, lane } => (*row, *lane),
            Content::Marker(_) | Content::Foreign => unreachable!("the output has rows alone"),
        });
        let rows = rows.collect();
        self.read[partition] = stable;
        rows
    }

    /// Everything is read from the beginning.
    pub fn read_again(&mut self) {
        self.read = [0; PARTITIONS];
    }

    /// The end of the partition of the markers.
    pub fn markers_end(&self) -> usize {
        self.logs[MARKERS].len()
    }

    /// The newest marker, if all markers before `end` are stable; with `None`, of those that are stable now.
    pub fn marker(&self, end: Option<usize>) -> Option<Option<Marker>> {
        let stable = self.stable(MARKERS);
        if end.is_some_and(|end| stable < end) {
            return None;
        }
        let mut markers = self.logs[MARKERS][..stable].iter().rev().filter(|entry| self.is_committed(entry));
        Some(markers.find_map(Entry::marker).cloned())
    }

    /// The newest marker, whatever became of it.
    pub fn marker_uncommitted(&self) -> Option<Marker> {
        self.logs[MARKERS].iter().rev().find_map(Entry::marker).cloned()
    }

    /// The epochs of the markers that count, oldest first.
    pub fn marked(&self) -> Vec<Option<Epoch>> {
        let committed = self.logs[MARKERS].iter().filter(|entry| self.is_committed(entry));
        committed.filter_map(Entry::marker).map(|marker| marker.decided.map(|(epoch, _)| epoch)).collect()
    }

    /// Loses the newest markers, and nothing else.
    pub fn lose_markers(&mut self, count: usize) {
        let places = (0..self.logs[MARKERS].len()).filter(|&place| {
            let entry = &self.logs[MARKERS][place];
            self.is_committed(entry) && entry.marker().is_some()
        });
        let lost = places.rev().take(count).collect::<Vec<_>>();
        for place in lost {
            self.logs[MARKERS].remove(place);
        }
    }
}

impl Entry {
    fn marker(&self) -> Option<&Marker> {
        match &self.content {
            Content::Marker(marker) => Some(marker),
            Content::Row { .. } | Content::Foreign => None,
        }
    }
}
