//! The two transactions in every order of what may happen to them.

use super::*;

mod interleavings;

const AGE_MAX: Duration = Duration::from_secs(10);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn transactions(subtasks: usize) -> Transactions {
    Transactions::new(subtasks, AGE_MAX)
}

/// Asks, and begins what is to be begun.
fn ask(both: &mut Transactions, subtask: usize, turn: u64, now_s: u64) -> Permission {
    let permission = both.ask(subtask, Turn(turn));
    if matches!(permission, Permission::Begin(_)) {
        both.begun(Turn(turn), secs(now_s));
    }
    permission
}

/// Decides, in a transaction that is begun if it has to be.
fn decide(both: &mut Transactions, epoch: u64, now_s: u64) -> Permission {
    let (turn, permission) = both.decide(Epoch(epoch));
    if matches!(permission, Permission::Begin(_)) {
        both.begun(turn, secs(now_s));
    }
    permission
}

#[test]
fn epochs_take_the_two_transactions_in_turn_and_a_transaction_is_begun_once() {
    let mut both = transactions(2);
    assert_eq!(ask(&mut both, 0, 0, 0), Permission::Begin(Transaction::A));
    assert_eq!(ask(&mut both, 1, 0, 0), Permission::Send(Transaction::A));
    assert_eq!(both.cut(0, Epoch(7), true), Turn(0));
    both.acknowledged(0, Turn(0));
    assert_eq!(ask(&mut both, 0, 1, 1), Permission::Begin(Transaction::B));
    assert_eq!(both.cut(1, Epoch(7), false), Turn(0));
    assert_eq!(decide(&mut both, 7, 2), Permission::Send(Transaction::A));
    both.decided(Epoch(7));
    both.cut(0, Epoch(8), false);
    assert_eq!(ask(&mut both, 0, 2, 3), Permission::Begin(Transaction::A));
    assert_eq!(ask(&mut both, 1, 1, 3), Permission::Send(Transaction::B));
}

#[test]
fn a_subtask_waits_for_its_own_records_and_for_no_other_subtasks() {
    let mut both = transactions(2);
    ask(&mut both, 0, 0, 0);
    both.cut(0, Epoch(1), true);
    both.cut(1, Epoch(1), false);
    assert_eq!(ask(&mut both, 0, 1, 0), Permission::Unacknowledged);
    assert_eq!(ask(&mut both, 1, 1, 0), Permission::Begin(Transaction::B));
    assert_eq!(ask(&mut both, 0, 0, 0), Permission::Send(Transaction::A), "what it still has of the epoch");
    both.acknowledged(0, Turn(0));
    both.acknowledged(0, Turn(0));
    assert_eq!(ask(&mut both, 0, 1, 0), Permission::Send(Transaction::B));
}

#[test]
fn with_several_checkpoints_in_flight_the_third_epoch_waits_for_the_first_to_be_decided() {
    let mut both = transactions(1);
    ask(&mut both, 0, 0, 0);
    both.cut(0, Epoch(1), true);
    both.acknowledged(0, Turn(0));
    ask(&mut both, 0, 1, 0);
    both.cut(0, Epoch(2), true);
    assert_eq!(ask(&mut both, 0, 2, 0), Permission::Unacknowledged);
    both.acknowledged(0, Turn(1));
    assert_eq!(ask(&mut both, 0, 2, 0), Permission::Undecided);
    decide(&mut both, 1, 0);
    assert_eq!(ask(&mut both, 0, 2, 0), Permission::Undecided, "not before it is certain");
    both.decided(Epoch(1));
    assert_eq!(ask(&mut both, 0, 2, 0), Permission::Begin(Transaction::A));
}

#[test]
fn an_epoch_without_records_has_no_transaction_unless_it_is_decided() {
    let mut both = transactions(1);
    for epoch in 1..=5 {
        both.cut(0, Epoch(epoch), false);
        assert_eq!(both.ages(secs(9)).count(), 0);
        both.discarded(Epoch(epoch));
    }
    both.cut(0, Epoch(6), false);
    assert_eq!(decide(&mut both, 6, 9), Permission::Begin(Transaction::B));
    both.decided(Epoch(6));
    assert_eq!(both.ages(secs(9)).count(), 0);
}

#[test]
fn a_transaction_is_as_old_as_its_beginning_and_the_oldest_is_told() {
    let mut both = transactions(1);
    ask(&mut both, 0, 0, 5);
    both.cut(0, Epoch(1), true);
    both.acknowledged(0, Turn(0));
    ask(&mut both, 0, 1, 8);
    assert_eq!(both.overdue(secs(14)), None);
    let a = Overdue { transaction: Transaction::A, age: secs(10) };
    assert_eq!(both.overdue(secs(15)), Some(a));
    assert_eq!(both.overdue(secs(30)).map(|overdue| overdue.transaction), Some(Transaction::A));
    decide(&mut both, 1, 15);
    both.decided(Epoch(1));
    assert_eq!(both.overdue(secs(17)), None);
    assert_eq!(both.overdue(secs(18)).map(|overdue| overdue.transaction), Some(Transaction::B));
    assert_eq!(both.overdue(secs(1)), None, "a clock that stands back is no age");
}

#[test]
#[should_panic(expected = "all of epoch 1 is acknowledged")]
fn an_epoch_of_which_something_is_not_acknowledged_is_never_decided() {
    let mut both = transactions(1);
    ask(&mut both, 0, 0, 0);
    both.cut(0, Epoch(1), true);
    decide(&mut both, 1, 0);
}

#[test]
#[should_panic(expected = "isn't passed over")]
fn an_epoch_with_records_is_never_passed_over() {
    let mut both = transactions(1);
    ask(&mut both, 0, 0, 0);
    both.cut(0, Epoch(1), false);
    both.discarded(Epoch(1));
}
