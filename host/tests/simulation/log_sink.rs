//! The deciding sink of an attempt: its two producers, and what its subtasks have to send.
//!
//! A producer keeps the order of what it sends to a partition, and two producers keep none between them.
//!
//! Invariant: which transaction takes a row, and when, is the real [`Transactions`]' decision.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lockgate_host::id::{Attempt, Epoch, JobUid};
use lockgate_host::protocol::CommitPermit;
use lockgate_host::protocol::transactions::{Permission, Transaction, Transactions, Turn};

use crate::broker::{Broker, Decides, Denied, Handle, PARTITIONS};
use crate::decision::{Decision, Request};
use crate::mutation::Mutation;
use crate::world::{Manifest, Row};

/// Longer than any attempt.
const AGE_MAX: Duration = Duration::from_hours(24);

/// A row that is sent and not acknowledged.
#[derive(Debug)]
struct Sent {
    writer: usize,
    turn: Turn,
    row: Row,
}

#[derive(Debug, Default)]
struct Writer {
    /// What may not be sent yet.
    waiting: VecDeque<(Turn, Row)>,
    unacknowledged: BTreeMap<Turn, usize>,
    /// Something was written in the turn.
    wrote: bool,
}

impl Writer {
    fn owes(&self, turn: Turn) -> bool {
        self.unacknowledged.contains_key(&turn) || self.waiting.iter().any(|(of, _)| *of == turn)
    }
}

#[derive(Debug)]
pub struct LogSink {
    mutation: Option<Mutation>,
    attempt: Attempt,
    uid: JobUid,
    /// What was decided last, as far as is known here.
    follows: Option<Epoch>,
    transactions: Transactions,
    /// `None`: nobody was shut out yet.
    handles: [Option<Handle>; 2],
    writers: Vec<Writer>,
    /// By producer and partition.
    queues: BTreeMap<(usize, usize), VecDeque<Sent>>,
}

impl LogSink {
    pub fn new(
        (attempt, uid): (Attempt, JobUid),
        follows: Option<Epoch>,
        handles: [Option<Handle>; 2],
        writers: usize,
        mutation: Option<Mutation>,
    ) -> LogSink {
        let transactions = Transactions::new(writers, AGE_MAX);
        let writers = (0..writers).map(|_| Writer::default()).collect();
        LogSink { mutation, attempt, uid, follows, transactions, handles, writers, queues: BTreeMap::new() }
    }

    /// Whether a subtask can't take anything.
    pub fn is_busy(&self, writer: usize) -> bool {
        !self.writers[writer].waiting.is_empty()
    }

    pub fn write(&mut self, writer: usize, row: Row, now: Duration) {
        let turn = self.transactions.turn(writer);
        self.writers[writer].wrote = true;
        self.writers[writer].waiting.push_back((turn, row));
        self.send(writer, now);
    }

    /// Sends what may be sent.
    fn send(&mut self, writer: usize, now: Duration) {
        while let Some(&(turn, row)) = self.writers[writer].waiting.front() {
            let transaction = match (self.transactions.ask(writer, turn), self.mutation) {
                (Permission::Send(transaction), _) => transaction,
                (Permission::Begin(transaction), _) => {
                    self.transactions.begun(turn, now);
                    transaction
                }
                (Permission::Unacknowledged, Some(Mutation::SendsUnacknowledged))
                | (Permission::Undecided, Some(Mutation::SendsUndecided)) => turn.transaction(),
                (Permission::Unacknowledged | Permission::Undecided, _) => return,
            };
            let producer = self.producer(transaction);
            let place = match row {
                Row::Counted { record, .. } => record.key,
                Row::Total { key, .. } => key,
                Row::Seen { counter, .. } => counter.into(),
            };
            let partition = (place % PARTITIONS as u64) as usize;
            self.queues.entry((producer, partition)).or_default().push_back(Sent { writer, turn, row });
            let of_writer = &mut self.writers[writer];
            of_writer.waiting.pop_front();
            *of_writer.unacknowledged.entry(turn).or_default() += 1;
        }
    }

    fn send_all(&mut self, now: Duration) {
        (0..self.writers.len()).for_each(|writer| self.send(writer, now));
    }

    fn producer(&self, transaction: Transaction) -> usize {
        match transaction {
            Transaction::B if self.mutation != Some(Mutation::SharesTransaction) => 1,
            Transaction::A | Transaction::B => 0,
        }
    }

    /// The barrier of an epoch has come to a subtask. Gives the turn that is over, and whether anything was written in it.
    pub fn cut(&mut self, writer: usize, epoch: Epoch) -> (Turn, bool) {
        let of_writer = &mut self.writers[writer];
        let turn = self.transactions.turn(writer);
        let owes = (of_writer.owes(turn)) && self.mutation != Some(Mutation::PreparesUnacknowledged);
        let wrote = std::mem::take(&mut of_writer.wrote);
        (self.transactions.cut(writer, epoch, owes), wrote)
    }

    /// Whether all that a subtask has written in a turn is acknowledged.
    pub fn is_prepared(&self, writer: usize, turn: Turn) -> bool {
        !self.writers[writer].owes(turn) || self.mutation == Some(Mutation::PreparesUnacknowledged)
    }

    /// The queues that have something.
    pub fn queues(&self) -> impl Iterator<Item = (usize, usize)> {
        self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(place, _)| *place)
    }

    fn handle(&mut self, producer: usize, broker: &mut Broker) -> Result<Handle, Denied> {
        if self.handles[producer].is_none() {
            self.handles[producer] = broker.init(producer);
        }
        self.handles[producer].ok_or(Denied::Busy)
    }

    /// The oldest row of a queue reaches the cluster and is acknowledged.
    pub fn deliver(&mut self, at: (usize, usize), lane: u64, now: Duration, broker: &mut Broker) -> Result<(), Denied> {
        let handle = self.handle(at.0, broker)?;
        let queue = self.queues.get_mut(&at).expect("it was seen to have one");
        let Sent { writer, turn, row } = queue.front().expect("it was seen to have one");
        let (writer, turn) = (*writer, *turn);
        broker.write(handle, at.1, *row, lane + writer as u64)?;
        queue.pop_front();
        let unacknowledged = &mut self.writers[writer].unacknowledged;
        let left = unacknowledged.get_mut(&turn).expect("it was sent");
        *left -= 1;
        if *left == 0 {
            unacknowledged.remove(&turn);
            if !self.writers[writer].owes(turn) {
                self.transactions.acknowledged(writer, turn);
                self.send(writer, now);
            }
        }
        Ok(())
    }

    /// An epoch whose manifest is published is to be decided.
    pub fn decide(&mut self, permit: &CommitPermit, manifest: &Manifest, now: Duration) -> Decide {
        let transaction = match self.transactions.decide(permit.epoch()) {
            (_, Permission::Send(transaction)) => transaction,
            (turn, Permission::Begin(transaction)) => {
                self.transactions.begun(turn, now);
                transaction
            }
            (_, Permission::Unacknowledged | Permission::Undecided) => unreachable!("it is to be decided"),
        };
        let decides = Decides {
            attempt: self.attempt,
            decided: Some((permit.epoch(), permit.digest())),
            follows: self.follows,
            adopts: false,
        };
        let positions = manifest.tasks.values().flat_map(|task| task.positions.clone()).collect();
        Decide { producer: self.producer(transaction), decides, positions }
    }

    /// The decision as requests; `None`: not before the producer has its id.
    pub fn begin(&mut self, decide: &Decide, broker: &mut Broker) -> Option<Decision> {
        let handle = self.handle(decide.producer, broker).ok()?;
        let Decide { decides, positions, .. } = decide.clone();
        Some(Decision { handle, uid: self.uid.clone(), decides, offsets: Some(positions), next: Request::Marker })
    }

    pub fn decided(&mut self, epoch: Epoch, now: Duration) {
        self.transactions.decided(epoch);
        self.follows = Some(epoch);
        self.send_all(now);
    }

    pub fn discarded(&mut self, epoch: Epoch, now: Duration) {
        self.transactions.discarded(epoch);
        self.send_all(now);
    }

    /// Aborts what is open.
    pub fn close(&self, broker: &mut Broker) {
        for handle in self.handles.iter().flatten().filter(|handle| broker.has_open(**handle)).collect::<Vec<_>>() {
            // What can't be aborted now is aborted by whoever comes next.
            let _ = broker.end(*handle, None);
        }
    }
}

/// What is to be decided.
#[derive(Clone, Debug)]
pub struct Decide {
    producer: usize,
    decides: Decides,
    positions: BTreeMap<u32, u64>,
}
