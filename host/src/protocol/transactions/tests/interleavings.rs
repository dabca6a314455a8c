//! Every order in which subtasks write and pass barriers, brokers acknowledge and checkpoints are decided, at small size.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What the world knows, kept apart from what is tested: what each transaction holds, and what the rules say of the rest.
#[derive(Clone, Default)]
struct World {
    concurrent_max: u64,
    epochs: u64,
    /// Barriers that were let go, by their number from 0.
    barriers: u64,
    /// Turns that are decided or passed over.
    over: u64,
    /// The turn of each subtask.
    turns: Vec<u64>,
    /// Sent and not acknowledged, by subtask and turn.
    sent: BTreeMap<(usize, u64), u32>,
    /// Given to a subtask and not sent: it was refused, and a barrier may pass meanwhile.
    kept: BTreeMap<(usize, u64), u32>,
    /// The turn whose records each open transaction holds.
    holds: BTreeMap<Transaction, u64>,
    /// Turns in which something was given to a subtask.
    changed: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Barrier,
    /// The subtask is given a record. It is sent at once if that is allowed.
    Record(usize),
    /// What the subtask has kept of a turn is tried again.
    Retry(usize, u64),
    Acknowledged(usize, u64),
    Cut(usize),
    Decided,
    Discarded,
}

/// How much there is of everything.
#[derive(Clone, Copy)]
struct Size {
    subtasks: usize,
    epochs: u64,
    concurrent_max: u64,
    records: u32,
}

fn epoch(turn: u64) -> Epoch {
    Epoch(turn + 10)
}

impl World {
    fn owes(&self, subtask: usize, turn: u64) -> bool {
        self.sent.contains_key(&(subtask, turn)) || self.kept.contains_key(&(subtask, turn))
    }

    fn happens(&self, records_left: u32) -> Vec<Happens> {
        let mut all = Vec::new();
        if self.barriers < self.epochs && self.barriers - self.over < self.concurrent_max {
            all.push(Happens::Barrier);
        }
        for subtask in 0..self.turns.len() {
            if records_left > 0 {
                all.push(Happens::Record(subtask));
            }
            if self.turns[subtask] < self.barriers {
                all.push(Happens::Cut(subtask));
            }
        }
        all.extend(self.kept.keys().map(|&(subtask, turn)| Happens::Retry(subtask, turn)));
        all.extend(self.sent.keys().map(|&(subtask, turn)| Happens::Acknowledged(subtask, turn)));
        let turn = self.over;
        let passed = self.turns.iter().all(|at| *at > turn);
        if passed && (0..self.turns.len()).all(|subtask| !self.owes(subtask, turn)) {
            all.push(if self.changed.contains(&turn) { Happens::Decided } else { Happens::Discarded });
        }
        all
    }

    /// Sends what a subtask has of a turn, if that is allowed. Checks that only what may be sent is.
    fn try_send(&mut self, both: &mut Transactions, subtask: usize, turn: u64) {
        let permission = ask(both, subtask, turn, 0);
        let owes_before = (0..turn).any(|before| self.owes(subtask, before));
        match permission {
            Permission::Send(transaction) => {
                assert_eq!(self.holds.get(&transaction), Some(&turn), "a transaction holds one epoch's records");
            }
            Permission::Begin(transaction) => {
                assert_eq!(self.holds.insert(transaction, turn), None, "a transaction is begun when it is free");
            }
            Permission::Unacknowledged => {
                assert!(owes_before, "nothing else holds a subtask's records back");
                return;
            }
            Permission::Undecided => {
                assert!(turn >= self.over + 2, "a free transaction is given");
                return;
            }
        }
        assert!(!owes_before, "a subtask sends nothing before its own records of epochs before are acknowledged");
        let kept = self.kept.remove(&(subtask, turn)).expect("something to send");
        *self.sent.entry((subtask, turn)).or_default() += kept;
    }

    fn settle(&mut self, both: &mut Transactions, subtask: usize, turn: u64) {
        if turn < self.turns[subtask] && !self.owes(subtask, turn) {
            both.acknowledged(subtask, Turn(turn));
        }
    }

    fn perform(&mut self, both: &mut Transactions, event: Happens) {
        match event {
            Happens::Barrier => self.barriers += 1,
            Happens::Record(subtask) => {
                let turn = self.turns[subtask];
                assert_eq!(both.turn(subtask), Turn(turn));
                self.changed.insert(turn);
                *self.kept.entry((subtask, turn)).or_default() += 1;
                self.try_send(both, subtask, turn);
            }
            Happens::Retry(subtask, turn) => self.try_send(both, subtask, turn),
            Happens::Acknowledged(subtask, turn) => {
                self.sent.remove(&(subtask, turn));
                self.settle(both, subtask, turn);
            }
            Happens::Cut(subtask) => {
                let turn = self.turns[subtask];
                self.turns[subtask] += 1;
                assert_eq!(both.cut(subtask, epoch(turn), self.owes(subtask, turn)), Turn(turn));
            }
            Happens::Decided => {
                let turn = self.over;
                let held = self.holds.remove(&Turn(turn).transaction());
                match decide(both, epoch(turn).0, 0) {
                    Permission::Send(_) => assert_eq!(held, Some(turn), "what is committed is the epoch's"),
                    Permission::Begin(_) => assert_eq!(held, None, "an epoch without records has no transaction"),
                    other => panic!("what is acknowledged can be committed, and not {other:?}"),
                }
                both.decided(epoch(turn));
                self.over += 1;
            }
            Happens::Discarded => {
                both.discarded(epoch(self.over));
                assert_ne!(self.holds.get(&Turn(self.over).transaction()), Some(&self.over), "nothing is left open");
                self.over += 1;
            }
        }
        assert_eq!(both.ages(Duration::ZERO).count(), self.holds.len(), "what is open is known to be open");
    }
}

/// States that were seen before lead to nothing new.
type Seen = BTreeSet<String>;

fn explore(both: &Transactions, world: &World, records_left: u32, seen: &mut Seen, ends: &mut u64) {
    let state = format!(
        "{records_left} {} {} {:?} {:?} {:?} {:?} {:?} {both:?}",
        world.barriers, world.over, world.turns, world.sent, world.kept, world.holds, world.changed
    );
    if !seen.insert(state) {
        return;
    }
    let events = world.happens(records_left);
    if world.over == world.epochs {
        *ends += 1;
    } else {
        assert!(!events.is_empty(), "there is always a way on");
    }
    for event in events {
        let (mut both, mut world) = (both.clone(), world.clone());
        world.perform(&mut both, event);
        let records_left = records_left - u32::from(matches!(event, Happens::Record(_)));
        explore(&both, &world, records_left, seen, ends);
    }
}

fn explore_all(size: Size) {
    let Size { subtasks, epochs, concurrent_max, records } = size;
    let world = World { concurrent_max, epochs, turns: vec![0; subtasks], ..World::default() };
    let (mut seen, mut ends) = (Seen::new(), 0);
    explore(&transactions(subtasks), &world, records, &mut seen, &mut ends);
    assert!(seen.len() > 1_000 && ends > 10, "{} states, {ends} ends", seen.len());
}

#[test]
fn whatever_the_order_the_rules_hold() {
    explore_all(Size { subtasks: 2, epochs: 3, concurrent_max: 1, records: 4 });
    explore_all(Size { subtasks: 3, epochs: 3, concurrent_max: 1, records: 3 });
}

#[test]
fn with_several_checkpoints_in_flight_the_rules_hold_as_well() {
    explore_all(Size { subtasks: 2, epochs: 4, concurrent_max: 2, records: 4 });
    explore_all(Size { subtasks: 2, epochs: 4, concurrent_max: 4, records: 4 });
    explore_all(Size { subtasks: 3, epochs: 3, concurrent_max: 3, records: 2 });
}
