//! The brokers of this test program: one that all tests share, and one that a test may stop, kill or pause.
//!
//! Invariant: the one that may be broken is running and answers whenever a test gets it.

use std::sync::{LazyLock, Mutex, MutexGuard};

use lockgate_tests::KafkaJob;
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

/// The broker that may be broken.
pub fn breakable(what: &str) -> Option<Breakable> {
    static BROKER: LazyLock<Mutex<Broker>> = LazyLock::new(|| Mutex::new(Broker::start()));
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

/// So many jobs run at a time where there are many to be run: each waits for Kafka, for checkpoints and for restarts most of its time.
const LANES: usize = 4;

/// Verifiers for [`side_by_side`].
pub fn lanes(broker: &Broker) -> Vec<Client> {
    std::iter::repeat_with(|| broker.client()).take(LANES).collect()
}

/// Does the work with each of the items, as many at a time as there are verifiers, each with one of its own.
pub fn side_by_side<'c, T: Send>(clients: &'c [Client], items: Vec<T>, work: impl Fn(T, &'c Client) + Sync) {
    let items = Mutex::new(items.into_iter());
    let (items, work) = (&items, &work);
    let next = move || items.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || std::iter::from_fn(next).for_each(|item| work(item, client)));
        }
    });
}

/// The values of records as text, sorted.
pub fn values(records: &[Record]) -> Vec<String> {
    let mut values = records.iter().map(|record| record.text().to_owned()).collect::<Vec<_>>();
    values.sort();
    values
}

/// A job that was refused at its first run is as if it had never been started.
#[track_caller]
pub fn assert_nothing_left(job: &KafkaJob, client: &Client) {
    assert!(!job.folder.path("state").exists(), "there is a state folder");
    assert!(!client.topics().contains(&job.marker_topic()), "there is a marker topic");
}
