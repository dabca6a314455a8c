//! The brokers of this test program: one that all tests share, and one that a test may stop, kill or pause.
//!
//! Invariant: the one that may be broken is running and answers whenever a test gets it.

use std::sync::{LazyLock, Mutex, MutexGuard};

use lockgate_tests::kafka::{Broker, Client, Record, kafka_missing};

/// The shared broker and a verifier. `None`: this machine has no Kafka, which is said with `what`.
pub fn shared(what: &str) -> Option<(&'static Broker, Client)> {
    if kafka_missing(what) {
        return None;
    }
    let broker = Broker::shared();
    Some((broker, broker.client()))
}

/// A broker that belongs to one test at a time.
pub struct Breakable {
    broker: MutexGuard<'static, Broker>,
}

/// The broker that may be broken. It forgets the offsets of a group a minute after they were committed.
pub fn breakable(what: &str) -> Option<Breakable> {
    static BROKER: LazyLock<Mutex<Broker>> = LazyLock::new(|| {
        let settings = [("offsets.retention.minutes", "1"), ("offsets.retention.check.interval.ms", "1000")];
        Mutex::new(Broker::start_with(&settings))
    });
    if kafka_missing(what) {
        return None;
    }
    let broker = BROKER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // The test before may have failed and left it in any state.
    broker.resume();
    if !broker.is_running() {
        broker.restart();
    }
    Some(Breakable { broker })
}

impl std::ops::Deref for Breakable {
    type Target = Broker;
    fn deref(&self) -> &Broker {
        &self.broker
    }
}

/// The values of records as text, sorted.
pub fn values(records: &[Record]) -> Vec<String> {
    let mut values = records.iter().map(|record| record.text().to_owned()).collect::<Vec<_>>();
    values.sort();
    values
}
