//! What became of the records that were sent.
//!
//! A *ledger* counts what one subtask has sent in epochs of one parity, and what of it is done with. A subtask never has more than
//! one epoch of a parity open, so that a ledger which is even says that the epoch is through. Producers call back in threads of
//! their own, with the number of the ledger.
//!
//! Invariant: a record that was taken by librdkafka is counted once as sent and once as done. The first failure is kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientContext, Statistics};

use crate::connector::kafka::Listener;
use crate::protocol::transactions::{Transaction, Turn};

/// Nobody waits.
const NOBODY: u64 = u64::MAX;

/// A record that wasn't written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub ledger: LedgerId,
    pub code: Code,
    pub topic: String,
    pub partition: i32,
    /// Of its key and value.
    pub bytes: usize,
}

#[derive(Default)]
struct Ledger {
    sent: AtomicU64,
    done: AtomicU64,
    undelivered: AtomicU64,
    /// So many are to be done for the one who waits.
    wanted: AtomicU64,
}

/// The ledgers of all subtasks that share producers.
pub struct Ledgers {
    ledgers: Vec<Ledger>,
    first: OnceLock<Undelivered>,
    /// Whether records may go undelivered: they are counted, and nothing fails by it.
    tolerant: bool,
    closed: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

/// The number of a ledger: what librdkafka keeps with each record.
pub type LedgerId = usize;

/// That of a subtask in a turn: one for each transaction.
pub fn ledger_of(subtask: usize, turn: Turn) -> LedgerId {
    ledger_in(subtask, turn.transaction())
}

/// That of a subtask in a transaction.
pub fn ledger_in(subtask: usize, transaction: Transaction) -> LedgerId {
    match transaction {
        Transaction::A => subtask * 2,
        Transaction::B => subtask * 2 + 1,
    }
}

/// The transaction to which a ledger belongs.
pub fn transaction_of(ledger: LedgerId) -> Transaction {
    if ledger.is_multiple_of(2) { Transaction::A } else { Transaction::B }
}

impl Ledgers {
    /// Two for each subtask.
    pub fn new(subtasks: usize, tolerant: bool) -> Ledgers {
        let ledger = || Ledger { wanted: AtomicU64::new(NOBODY), ..Ledger::default() };
        let ledgers = std::iter::repeat_with(ledger).take(subtasks * 2).collect();
        let (lock, changed) = Default::default();
        Ledgers { ledgers, first: OnceLock::new(), tolerant, closed: AtomicBool::new(false), lock, changed }
    }

    /// librdkafka has taken `records` more.
    pub fn sent(&self, ledger: LedgerId, records: u64) {
        self.ledgers[ledger].sent.fetch_add(records, Ordering::SeqCst);
    }

    /// Whether all that was sent is done with, one way or the other.
    pub fn is_even(&self, ledger: LedgerId) -> bool {
        let Ledger { sent, done, .. } = &self.ledgers[ledger];
        done.load(Ordering::SeqCst) >= sent.load(Ordering::SeqCst)
    }

    /// How many are done with, over all turns.
    pub fn done_count(&self, ledger: LedgerId) -> u64 {
        self.ledgers[ledger].done.load(Ordering::SeqCst)
    }

    /// How many were not written, since this was asked last.
    pub fn take_undelivered(&self, ledger: LedgerId) -> u64 {
        self.ledgers[ledger].undelivered.swap(0, Ordering::SeqCst)
    }

    /// The first record that was not written.
    pub fn first_undelivered(&self) -> Option<&Undelivered> {
        self.first.get()
    }

    /// The same, if that is a failure.
    pub fn failure(&self) -> Option<&Undelivered> {
        self.first.get().filter(|_| !self.tolerant)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The attempt is over: nobody waits any longer, and what fails now is no news.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Waits until a ledger is even, or something failed, or it is over, but not longer than `time`. One at a time for a ledger.
    pub fn wait_even(&self, ledger: LedgerId, time: Duration) {
        let Ledger { sent, wanted, .. } = &self.ledgers[ledger];
        wanted.store(sent.load(Ordering::SeqCst), Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_even(ledger) && !self.is_closed() && self.failure().is_none() {
            drop(self.changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner));
        }
        wanted.store(NOBODY, Ordering::SeqCst);
    }

    /// Waits for `time`, or until it is over or something failed.
    pub fn rest(&self, time: Duration) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_closed() && self.failure().is_none() {
            drop(self.changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn wake(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// A record is done with.
    #[inline]
    fn done(&self, ledger: LedgerId) {
        let Ledger { done, wanted, .. } = &self.ledgers[ledger];
        let done = done.fetch_add(1, Ordering::SeqCst) + 1;
        if done >= wanted.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn not_delivered(&self, undelivered: Undelivered) {
        self.ledgers[undelivered.ledger].undelivered.fetch_add(1, Ordering::SeqCst);
        if !self.is_closed() && self.first.set(undelivered).is_ok() {
            self.wake();
        }
    }
}

/// The context of a producer.
pub struct Deliveries {
    pub ledgers: Arc<Ledgers>,
    pub listener: Listener,
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = LedgerId;

    fn delivery(&self, result: &DeliveryResult<'_>, ledger: LedgerId) {
        if let Err((error, message)) = result {
            let bytes = message.key_len() + message.payload_len();
            let (topic, partition) = (message.topic().to_owned(), message.partition());
            let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
            self.ledgers.not_delivered(Undelivered { ledger, code, topic, partition, bytes });
        }
        self.ledgers.done(ledger);
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.listener.log(level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        self.listener.stats(statistics);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.listener.stats_raw(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.listener.error(error, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undelivered(code: Code) -> Undelivered {
        Undelivered { ledger: 0, code, topic: "out".to_owned(), partition: 1, bytes: 7 }
    }

    #[test]
    fn every_subtask_has_a_ledger_of_its_own_for_either_parity() {
        let of = |subtask, turn| ledger_of(subtask, Turn(turn));
        assert_eq!([of(0, 0), of(0, 1), of(0, 2), of(1, 0), of(1, 5)], [0, 1, 0, 2, 3]);
        assert_eq!([0, 3].map(transaction_of), [Transaction::A, Transaction::B]);
    }

    #[test]
    fn a_ledger_is_even_when_all_that_was_sent_is_done_with() {
        let ledgers = Ledgers::new(2, false);
        assert!(ledgers.is_even(2));
        ledgers.sent(0, 2);
        ledgers.done(0);
        assert!(!ledgers.is_even(0) && ledgers.is_even(1));
        ledgers.not_delivered(undelivered(Code::MessageTimedOut));
        ledgers.done(0);
        assert!(ledgers.is_even(0));
        assert_eq!((ledgers.take_undelivered(0), ledgers.take_undelivered(0)), (1, 0));
    }

    #[test]
    fn the_first_failure_is_kept_and_none_after_the_end_counts() {
        let ledgers = Ledgers::new(1, false);
        ledgers.not_delivered(undelivered(Code::MessageSizeTooLarge));
        ledgers.not_delivered(undelivered(Code::PurgeQueue));
        assert_eq!(ledgers.failure().map(|failure| failure.code), Some(Code::MessageSizeTooLarge));
        let ledgers = Ledgers::new(1, false);
        ledgers.close();
        ledgers.not_delivered(undelivered(Code::PurgeQueue));
        assert_eq!(ledgers.failure(), None);
    }

    #[test]
    fn where_records_may_go_undelivered_it_is_no_failure() {
        let ledgers = Ledgers::new(1, true);
        ledgers.not_delivered(undelivered(Code::MessageTimedOut));
        assert_eq!(ledgers.failure(), None);
        assert_eq!(ledgers.first_undelivered().map(|first| first.code), Some(Code::MessageTimedOut));
    }

    /// Each of these would wait for an hour otherwise.
    #[test]
    fn who_waits_is_woken_by_the_last_record_a_failure_and_the_end() {
        const HOUR: Duration = Duration::from_secs(3600);
        let wakes: [fn(&Ledgers); 3] = [
            |ledgers| ledgers.done(0),
            |ledgers| ledgers.not_delivered(undelivered(Code::MessageTimedOut)),
            Ledgers::close,
        ];
        for wake in wakes {
            let ledgers = Ledgers::new(1, false);
            ledgers.sent(0, 2);
            std::thread::scope(|scope| {
                scope.spawn(|| ledgers.wait_even(0, HOUR));
                ledgers.done(0);
                wake(&ledgers);
            });
        }
    }
}
