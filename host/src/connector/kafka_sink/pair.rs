//! The two transactional producers of a process, shared by all its Kafka sinks.
//!
//! Invariant: what is done with a transaction is what [`Transactions`] allows. Nothing is sent or committed in one that has been
//! open for nearly as long as the brokers let it be. After any failure the producers are good for nothing but to be closed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::backlog::NotTaken;
use super::client::{self, Producer, Purpose};
use super::delivery::{Deliveries, Ledgers, Undelivered, transaction_of};
use super::failure::{self, Age};
use super::hanging::Search;
use super::lookout::{Lookout, Watch};
use crate::connector::ConnectorError;
use crate::connector::kafka::{Cluster, Doing, Listener};
use crate::crash;
use crate::id::{Epoch, Name};
use crate::protocol::transactions::{Permission, Transaction, Transactions, Turn};

/// For so long the brokers are asked to shut out others.
const INIT_TIMEOUT: Duration = Duration::from_secs(60);
/// So long one call may take; after it there is another, as long as there is time.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// For so long a commit is tried again before it is given up as unknown.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(60);
/// For so long each transaction is aborted when the attempt is over.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);
/// For a first connection; a longer one is waited for elsewhere.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// What gave up the records of a transaction is known at once, or as soon as a call that is under way lets another one in.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);
const CAUSE_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// A transaction counts as too old so long before the brokers abort it, at most.
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// Both producers.
pub struct Pair {
    /// Who is named in errors that concern all sinks.
    name: Name,
    brokers: String,
    ids: [String; 2],
    producers: [Producer; 2],
    ledgers: Arc<Ledgers>,
    lookout: Lookout,
    timeout: Duration,
    state: Mutex<Transactions>,
    start: Instant,
}

/// What they are made from.
pub struct PairOptions<'a> {
    pub job: &'a Name,
    pub name: &'a Name,
    pub cluster: &'a Cluster,
    /// All that is written to in their transactions.
    pub topics: BTreeSet<String>,
    pub timeout: Duration,
    /// What both may hold.
    pub buffer_bytes: u64,
    /// Of all sinks.
    pub subtasks: usize,
}

fn place(transaction: Transaction) -> usize {
    match transaction {
        Transaction::A => 0,
        Transaction::B => 1,
    }
}

/// For how long a transaction may be open by the host's clock, when the brokers let it be for `timeout`.
fn age_max(timeout: Duration) -> Duration {
    timeout - (timeout / 5).min(MARGIN_MAX)
}

impl Pair {
    /// Makes both. They are of no use before [`fence`](Self::fence).
    ///
    /// # Errors
    /// If the settings can't be used.
    pub fn open(options: &PairOptions<'_>, ledgers: &Arc<Ledgers>) -> Result<Pair, ConnectorError> {
        let PairOptions { job, name, cluster, topics, timeout, buffer_bytes, subtasks } = options;
        let search = Search { name: (*name).clone(), cluster: (*cluster).clone(), topics: topics.clone() };
        let ids = [Transaction::A, Transaction::B].map(|which| format!("{job}/{}/{which}", super::marker::SLOT));
        let open = |id: &str| {
            let purpose = Purpose::Transactions { id, timeout: *timeout };
            let config = client::config(cluster, name, purpose, buffer_bytes / 2)?;
            let deliveries = Deliveries { ledgers: Arc::clone(ledgers), listener: Listener::new(name) };
            client::open(&config, deliveries, name)
        };
        let producers = [open(&ids[0])?, open(&ids[1])?];
        Ok(Pair {
            name: (*name).clone(),
            brokers: cluster.brokers.clone(),
            lookout: Lookout::new(search, &ids),
            ids,
            producers,
            ledgers: Arc::clone(ledgers),
            timeout: *timeout,
            state: Mutex::new(Transactions::new(*subtasks, age_max(*timeout))),
            start: Instant::now(),
        })
    }

    pub fn producer(&self, transaction: Transaction) -> &Producer {
        &self.producers[place(transaction)]
    }

    pub fn ledgers(&self) -> &Arc<Ledgers> {
        &self.ledgers
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn state(&self) -> MutexGuard<'_, Transactions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn doing<'a>(&'a self, action: &'a str, what: &'a str, transaction: Transaction) -> Doing<'a> {
        let listener = Some(&self.producer(transaction).context().listener);
        Doing { name: &self.name, brokers: &self.brokers, action, what, listener }
    }

    /// Whether a transaction is too old.
    pub fn age(&self) -> Age {
        self.state().overdue(self.start.elapsed()).into()
    }

    /// # Errors
    /// If a transaction is too old, or a record wasn't delivered.
    pub fn check(&self, name: &Name) -> Result<(), ConnectorError> {
        let age = self.age();
        if let Some(undelivered) = self.ledgers.failure() {
            return Err(self.not_delivered(name, undelivered, age));
        }
        match age {
            Age::Young => Ok(()),
            Age::Overdue(overdue) => Err(failure::too_long(name, overdue, self.timeout)),
        }
    }

    fn not_delivered(&self, name: &Name, undelivered: &Undelivered, age: Age) -> ConnectorError {
        let transaction = transaction_of(undelivered.ledger);
        let is_consequence =
            matches!(undelivered.code, Code::PurgeQueue | Code::PurgeInflight | Code::State | Code::Fatal);
        let cause = match is_consequence {
            true => self.cause_in_time(transaction),
            // Whatever a record of it failed by, a producer that was shut out is one.
            false => self.fatal(transaction).filter(|error| error.rdkafka_error_code().is_some_and(failure::is_fenced)),
        };
        match cause {
            Some(cause) => self.failed_by("write in the transaction of", transaction, &cause, age),
            None => {
                let doing = Doing { name, ..self.doing("write to", "", transaction) };
                failure::not_delivered(doing, undelivered, age, self.timeout)
            }
        }
    }

    /// As [`cause`](Self::cause), where there is one for certain. Without it a producer that was shut out would be taken for one that
    /// another attempt may replace, and two instances of a job would shut each other out for ever.
    fn cause_in_time(&self, transaction: Transaction) -> Option<KafkaError> {
        let end = Instant::now() + CAUSE_TIMEOUT;
        loop {
            match self.cause(transaction) {
                None if Instant::now() < end => std::thread::sleep(CAUSE_AGAIN_AFTER),
                cause => return cause,
            }
        }
    }

    /// Why a producer takes and delivers nothing any more. When a transaction has failed the records that were to follow are
    /// given up, and only another call tells why: this one changes nothing. It isn't let in while a commit is under way, and what
    /// is the end of the producer can be asked for without it.
    fn cause(&self, transaction: Transaction) -> Option<KafkaError> {
        if let Some(fatal) = self.fatal(transaction) {
            return Some(fatal);
        }
        match self.producer(transaction).begin_transaction() {
            Err(KafkaError::Transaction(cause)) if cause.txn_requires_abort() || cause.is_fatal() => {
                Some(KafkaError::Transaction(cause))
            }
            Ok(()) | Err(_) => None,
        }
    }

    /// What has made an end of a producer.
    fn fatal(&self, transaction: Transaction) -> Option<KafkaError> {
        self.producer(transaction).client().fatal_error().map(|(code, _)| KafkaError::Global(code))
    }

    /// Whether a transaction that is open has failed without a word, as it may before anything that is sent in it has.
    ///
    /// # Errors
    /// If it has.
    pub fn look(&self, transaction: Transaction) -> Result<(), ConnectorError> {
        match self.cause(transaction) {
            Some(cause) => Err(self.failed_by("write in the transaction of", transaction, &cause, self.age())),
            None => Ok(()),
        }
    }

    /// Says why a record can't be sent.
    pub fn not_taken(&self, name: &Name, topic: &str, record: &NotTaken, turn: Turn) -> ConnectorError {
        if let Err(cause) = self.check(name) {
            return cause;
        }
        let transaction = turn.transaction();
        match (record.code != Code::MessageSizeTooLarge).then(|| self.cause(transaction)).flatten() {
            Some(cause) => self.failed_by("write in the transaction of", transaction, &cause, Age::Young),
            None => {
                let doing = Doing { name, ..self.doing("write to", "", transaction) };
                failure::not_taken(doing, topic, record, Age::Young, self.timeout)
            }
        }
    }

    /// The producer for records of a turn, if the subtask may send them now. Begins its transaction with the first of them.
    ///
    /// # Errors
    /// As [`check`](Self::check), or if it can't be begun.
    pub fn allow(&self, name: &Name, subtask: usize, turn: Turn) -> Result<Option<&Producer>, ConnectorError> {
        self.check(name)?;
        let mut state = self.state();
        match state.ask(subtask, turn) {
            Permission::Unacknowledged | Permission::Undecided => Ok(None),
            Permission::Send(transaction) => Ok(Some(self.producer(transaction))),
            Permission::Begin(transaction) if self.is_lookout_due(transaction) => {
                drop(state);
                if let Some(watch) = self.lookout.try_watch(transaction) {
                    let is_free = |state: &Transactions| matches!(state.ask(subtask, turn), Permission::Begin(_));
                    self.look_out(transaction, watch, is_free)?;
                }
                Ok(None)
            }
            Permission::Begin(transaction) => {
                self.begin_at_once(transaction)?;
                state.begun(turn, self.start.elapsed());
                Ok(Some(self.producer(transaction)))
            }
        }
    }

    /// Whether [`allow`](Self::allow) would allow it, or has something to do.
    pub fn would_allow(&self, subtask: usize, turn: Turn) -> bool {
        match self.state().ask(subtask, turn) {
            Permission::Unacknowledged | Permission::Undecided => false,
            Permission::Send(_) => true,
            // Somebody else may be looking out.
            Permission::Begin(transaction) => self.lookout.try_watch(transaction).is_some(),
        }
    }

    pub fn cut(&self, subtask: usize, epoch: Epoch, owes: bool) -> Turn {
        self.state().cut(subtask, epoch, owes)
    }

    pub fn acknowledged(&self, subtask: usize, turn: Turn) {
        self.state().acknowledged(subtask, turn);
    }

    /// The transaction of a published epoch, begun if nothing was.
    ///
    /// # Errors
    /// As [`allow`](Self::allow).
    pub fn decide(&self, epoch: Epoch) -> Result<Transaction, ConnectorError> {
        loop {
            self.check(&self.name)?;
            let mut state = self.state();
            match state.decide(epoch) {
                (_, Permission::Send(transaction)) => return Ok(transaction),
                (_, Permission::Begin(transaction)) if self.is_lookout_due(transaction) => {
                    drop(state);
                    let is_free = |state: &Transactions| matches!(state.decide(epoch).1, Permission::Begin(_));
                    self.look_out(transaction, self.lookout.watch(transaction), is_free)?;
                }
                (turn, Permission::Begin(transaction)) => {
                    self.begin_at_once(transaction)?;
                    state.begun(turn, self.start.elapsed());
                    return Ok(transaction);
                }
                (_, Permission::Unacknowledged | Permission::Undecided) => unreachable!("the oldest epoch is free"),
            }
        }
    }

    pub fn decided(&self, epoch: Epoch) {
        self.state().decided(epoch);
    }

    pub fn discarded(&self, epoch: Epoch) {
        self.state().discarded(epoch);
    }

    /// Shuts out whoever else has the two ids, aborts what they had open, and waits for what they were committing. What was left
    /// hanging in a partition is ended before: once the ids are ours, nobody knows how it was to end.
    ///
    /// # Errors
    /// If that isn't certain.
    pub fn fence(&self) -> Result<(), ConnectorError> {
        self.lookout.end_past(|| self.ledgers.is_closed())?;
        crash::point("kafka.hanging.after");
        self.init(Transaction::A)?;
        crash::point("kafka.fence.before");
        self.init(Transaction::B)?;
        crash::point("kafka.fence.after");
        Ok(())
    }

    fn init(&self, transaction: Transaction) -> Result<(), ConnectorError> {
        let producer = self.producer(transaction);
        let what = self.what(transaction);
        // librdkafka looks for the coordinator half a second later if it has no connection yet. A failure is told below.
        let _ = producer.client().fetch_cluster_id(CONNECT_TIMEOUT);
        let outcome = self.until(INIT_TIMEOUT, |time| producer.init_transactions(time));
        outcome.map_err(|error| {
            let doing = self.doing("take over", &what, transaction);
            failure::transaction(doing, &error, Age::Young, self.timeout)
        })
    }

    /// Begins one outside of all epochs.
    ///
    /// # Errors
    /// If the producer is in no state for it.
    pub fn begin(&self, transaction: Transaction) -> Result<(), ConnectorError> {
        while self.is_lookout_due(transaction) {
            self.look_out(transaction, self.lookout.watch(transaction), |_| true)?;
        }
        self.begin_at_once(transaction)
    }

    /// Begins one for which it needn't be looked out.
    fn begin_at_once(&self, transaction: Transaction) -> Result<(), ConnectorError> {
        crash::point("kafka.begin.before");
        let begun = self.producer(transaction).begin_transaction();
        begun.map_err(|error| self.failed("begin a transaction of", transaction, &error))?;
        crash::point("kafka.begin.after");
        Ok(())
    }

    fn losses(&self, transaction: Transaction) -> u64 {
        self.producer(transaction).context().listener.losses()
    }

    /// The one before may not have ended in each partition, if brokers were away since it began.
    fn is_lookout_due(&self, transaction: Transaction) -> bool {
        self.lookout.is_due(transaction, self.losses(transaction))
    }

    /// Looks for it, which may take as long as brokers are away: the state isn't held meanwhile. `is_free`: the transaction isn't begun.
    fn look_out(
        &self,
        transaction: Transaction,
        watch: Watch<'_>,
        is_free: impl Fn(&Transactions) -> bool,
    ) -> Result<(), ConnectorError> {
        let losses = self.losses(transaction);
        watch.end_own(|| self.ledgers.is_closed())?;
        // One that somebody has begun meanwhile, having looked, is none that was looked at.
        let state = self.state();
        if is_free(&state) {
            watch.has_seen(losses);
        }
        Ok(())
    }

    /// Calls again what may be called again, until the time or the attempt is over.
    pub fn until(&self, time: Duration, call: impl FnMut(Duration) -> KafkaResult<()>) -> KafkaResult<()> {
        until(time, || self.ledgers.is_closed(), call)
    }

    /// Commits one. An error doesn't say that it isn't committed.
    ///
    /// # Errors
    /// If it isn't certain that it is.
    pub fn commit(&self, transaction: Transaction) -> Result<(), ConnectorError> {
        let producer = self.producer(transaction);
        match self.until(COMMIT_TIMEOUT, |time| producer.commit_transaction(time)) {
            Ok(()) => Ok(()),
            Err(error) if failure::is_retriable(&error) => {
                let what = self.what(transaction);
                let doing = self.doing("commit the transaction of", &what, transaction);
                Err(failure::unknown_outcome(&doing, COMMIT_TIMEOUT, &error.to_string()))
            }
            Err(error) => Err(self.failed("commit the transaction of", transaction, &error)),
        }
    }

    /// Says what failed, which is what kept a record from being delivered, if anything did.
    pub fn failed(&self, action: &str, transaction: Transaction, error: &KafkaError) -> ConnectorError {
        // Asked once: begin and decide hold the state.
        let age = self.state.try_lock().map_or(Age::Young, |state| state.overdue(self.start.elapsed()).into());
        if let Some(undelivered) = self.ledgers.failure() {
            return self.not_delivered(&self.name, undelivered, age);
        }
        self.failed_by(action, transaction, error, age)
    }

    fn failed_by(&self, action: &str, transaction: Transaction, error: &KafkaError, age: Age) -> ConnectorError {
        let what = self.what(transaction);
        failure::transaction(self.doing(action, &what, transaction), error, age, self.timeout)
    }

    fn what(&self, transaction: Transaction) -> String {
        format!("transactional id '{}'", self.ids[place(transaction)])
    }

    /// The attempt is over: nobody waits any longer, and what is open is aborted, if that goes at once.
    pub fn close(&self) {
        self.ledgers.close();
        let open = self.state().ages(Duration::ZERO).map(|open| open.transaction).collect::<Vec<_>>();
        for transaction in open {
            if let Err(error) = self.producer(transaction).abort_transaction(ABORT_TIMEOUT) {
                tracing::debug!(%error, id = self.ids[place(transaction)], "a transaction is left to be aborted by the next attempt");
            }
        }
    }
}

/// As [`Pair::until`].
fn until(
    time: Duration,
    is_over: impl Fn() -> bool,
    mut call: impl FnMut(Duration) -> KafkaResult<()>,
) -> KafkaResult<()> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match call(left.min(CALL_TIMEOUT)) {
            Err(error) if failure::is_retriable(&error) && !left.is_zero() && !is_over() => {
                // Some say at once that nothing can be done now.
                if error.rdkafka_error_code() != Some(Code::OperationTimedOut) {
                    std::thread::sleep(Duration::from_millis(50).min(left));
                }
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests;
