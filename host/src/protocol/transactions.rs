//! The two transactions that take the epochs of an attempt in turn.
//!
//! While the transaction of one epoch waits for its checkpoint to be published, the other one takes the next epoch. All subtasks
//! of all sinks that decide share them. Epochs are counted here as *turns*, by the barriers of the attempt, from 0: turn 0 is in
//! transaction A, turn 1 in B, turn 2 in A again.
//!
//! Invariant: a transaction holds records of one epoch alone. A subtask sends a record only when all that it sent in epochs before
//! is acknowledged, so that no partition can have two epochs in the wrong order. An epoch is decided only when all that its
//! subtasks sent is acknowledged, and in its order. An epoch in which nothing was sent has no transaction open.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::id::Epoch;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transaction {
    A,
    B,
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transaction::A => "A",
            Transaction::B => "B",
        })
    }
}

/// The number of an epoch within the attempt: how many barriers a subtask has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(pub u64);

impl Turn {
    /// The one that takes its records.
    pub fn transaction(self) -> Transaction {
        if self.0.is_multiple_of(2) { Transaction::A } else { Transaction::B }
    }

    /// The one after it.
    pub fn next(self) -> Turn {
        Turn(self.0 + 1)
    }
}

/// Whether a subtask may send records of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Into this transaction, which is open.
    Send(Transaction),
    /// Into this transaction, which is to be begun first ([`Transactions::begun`]).
    Begin(Transaction),
    /// Not before all that it sent in turns before is acknowledged.
    Unacknowledged,
    /// Not before the turn that has the transaction is decided.
    Undecided,
}

/// A transaction that has been open for too long: the broker is about to abort it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    pub transaction: Transaction,
    pub age: Duration,
}

/// One turn that isn't decided.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Known from the first barrier on.
    epoch: Option<Epoch>,
    begun: Option<Duration>,
    /// Subtasks that have passed the barrier and have nothing of it left that isn't acknowledged.
    settled: usize,
}

/// One subtask of a sink.
#[derive(Clone, Debug, Default)]
struct Subtask {
    turn: Turn,
    /// Turns before, of which something isn't acknowledged, or not even sent.
    owes: VecDeque<Turn>,
}

/// The state of both.
#[derive(Clone, Debug)]
pub struct Transactions {
    age_max: Duration,
    subtasks: Vec<Subtask>,
    /// The oldest turn that isn't decided.
    oldest: Turn,
    /// That one and those after it, as far as anything is known of them.
    open: VecDeque<Open>,
}

impl Transactions {
    /// `subtasks`: of all sinks that share them. `age_max`: how long a transaction may be open.
    pub fn new(subtasks: usize, age_max: Duration) -> Transactions {
        let subtasks = vec![Subtask::default(); subtasks];
        Transactions { age_max, subtasks, oldest: Turn(0), open: VecDeque::new() }
    }

    /// The turn to which a subtask's records belong.
    pub fn turn(&self, subtask: usize) -> Turn {
        self.subtasks[subtask].turn
    }

    /// Asks whether a subtask may send records of a turn: its current one, or one before of which it still has some.
    ///
    /// # Panics
    /// If the subtask is done with that turn.
    pub fn ask(&self, subtask: usize, turn: Turn) -> Permission {
        let Subtask { turn: current, owes } = &self.subtasks[subtask];
        assert!(turn == *current || owes.contains(&turn), "subtask {subtask} is done with turn {}", turn.0);
        if owes.front().is_some_and(|owed| *owed < turn) {
            return Permission::Unacknowledged;
        }
        if turn.0 >= self.oldest.0 + 2 {
            return Permission::Undecided;
        }
        self.permission(turn)
    }

    fn permission(&self, turn: Turn) -> Permission {
        let place = usize::try_from(turn.0 - self.oldest.0).expect("few turns are open");
        match self.open.get(place).and_then(|open| open.begun) {
            Some(_) => Permission::Send(turn.transaction()),
            None => Permission::Begin(turn.transaction()),
        }
    }

    /// The transaction of a turn has been begun, as it was to be.
    ///
    /// # Panics
    /// If it was begun before, or isn't free.
    pub fn begun(&mut self, turn: Turn, now: Duration) {
        assert!(turn.0 < self.oldest.0 + 2, "a transaction is begun when it is free");
        let before = self.open(turn).begun.replace(now);
        assert_eq!(before, None, "a transaction is begun once for a turn");
    }

    /// A subtask has come to the barrier of an epoch. `owes`: whether anything that it was given before isn't acknowledged.
    /// Gives the turn that is over.
    ///
    /// # Panics
    /// If another subtask has come to this turn's end with another epoch.
    pub fn cut(&mut self, subtask: usize, epoch: Epoch, owes: bool) -> Turn {
        let turn = self.subtasks[subtask].turn;
        let open = self.open(turn);
        let known = *open.epoch.get_or_insert(epoch);
        assert_eq!(known, epoch, "all subtasks pass the same barriers");
        self.subtasks[subtask].turn = turn.next();
        if owes {
            self.subtasks[subtask].owes.push_back(turn);
        } else {
            self.open(turn).settled += 1;
        }
        turn
    }

    /// All that a subtask was given in a turn before is acknowledged. Told again, it changes nothing.
    ///
    /// # Panics
    /// If it owes one before that.
    pub fn acknowledged(&mut self, subtask: usize, turn: Turn) {
        let owes = &mut self.subtasks[subtask].owes;
        if owes.contains(&turn) {
            assert_eq!(owes.pop_front(), Some(turn), "turns are sent in their order");
            self.open(turn).settled += 1;
        }
    }

    /// The checkpoint of an epoch is published: its transaction is to be committed, and to be begun for that if it isn't.
    ///
    /// # Panics
    /// If it isn't that epoch's turn, or not all of it is acknowledged.
    pub fn decide(&self, epoch: Epoch) -> (Turn, Permission) {
        let open = self.open.front().expect("its barrier has passed");
        assert_eq!(open.epoch, Some(epoch), "epochs are decided in their order");
        assert_eq!(open.settled, self.subtasks.len(), "all of epoch {epoch} is acknowledged before it is decided");
        (self.oldest, self.permission(self.oldest))
    }

    /// It is committed: its transaction is free.
    pub fn decided(&mut self, epoch: Epoch) {
        let open = self.open.pop_front().expect("something was to be decided");
        assert!(open.epoch == Some(epoch) && open.begun.is_some(), "what is committed was to be decided");
        self.oldest = self.oldest.next();
    }

    /// An epoch in which nothing changed is passed over.
    ///
    /// # Panics
    /// If it isn't that epoch's turn, or it has a transaction.
    pub fn discarded(&mut self, epoch: Epoch) {
        let open = self.open.pop_front().expect("its barrier has passed");
        assert_eq!(open.epoch, Some(epoch), "epochs are passed over in their order");
        assert!(open.begun.is_none(), "an epoch in which something was sent isn't passed over");
        self.oldest = self.oldest.next();
    }

    /// The oldest transaction that is open for too long, if there is any.
    pub fn overdue(&self, now: Duration) -> Option<Overdue> {
        let ages = self.ages(now);
        ages.filter(|overdue| overdue.age >= self.age_max).max_by_key(|overdue| overdue.age)
    }

    /// Those that are open.
    pub fn ages(&self, now: Duration) -> impl Iterator<Item = Overdue> {
        (self.oldest.0..).map(Turn).zip(&self.open).filter_map(move |(turn, open)| {
            let age = now.saturating_sub(open.begun?);
            Some(Overdue { transaction: turn.transaction(), age })
        })
    }

    fn open(&mut self, turn: Turn) -> &mut Open {
        let place = usize::try_from(turn.0 - self.oldest.0).expect("few turns are open");
        if place >= self.open.len() {
            self.open.resize_with(place + 1, Open::default);
        }
        &mut self.open[place]
    }
}
