//! Transactions that hang: their coordinator has ended them, and a partition was never told.
//!
//! A broker that dies and comes back may complete a transaction without having written its end to each partition that it is in. Who reads
//! what is committed waits there for ever; and as the next transaction of the same producer goes on where that one was left, its end
//! would decide over the records of both. So it is looked for before a transactional id is taken over, and before another transaction of it
//! begins when brokers were away since the last one did. What hangs is ended as its coordinator has ended it elsewhere.
//!
//! How Kafka's own tool finds them is in [KIP-664](https://cwiki.apache.org/confluence/display/KAFKA/KIP-664%3A+Provide+tooling+to+detect+and+abort+hanging+transactions).
//! Only topics are looked at that the job writes to: what hangs in the topic of groups' offsets is ended by the next transaction, and
//! newer offsets take its place.
//!
//! Invariant: what was committed isn't aborted, and what was aborted isn't committed; where the coordinator has forgotten which, a
//! person decides.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::connector::ConnectorError;
use crate::connector::kafka::wire::{Client, OpenOnPartition, ResponseError, Transaction, WireError};
use crate::connector::kafka::{Cluster, Doing};
use crate::id::Name;

/// For each step of the way to a broker.
const STEP_MAX: Duration = Duration::from_secs(5);
/// For a coordinator to end what is being ended; and for brokers to be there, when a job starts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Who looks for them, and where.
pub struct Search {
    /// Who is named in errors.
    pub name: Name,
    pub cluster: Cluster,
    /// All that the job writes to.
    pub topics: BTreeSet<String>,
}

/// What is known of the transaction that a producer had last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Decided, and partitions are being told.
    Ending,
    Committed,
    Aborted,
    /// None since the id was last taken over.
    Forgotten,
}

fn state(told: &str) -> State {
    match told {
        "Ongoing" => State::Open,
        "CompleteCommit" => State::Committed,
        "CompleteAbort" => State::Aborted,
        "Empty" | "Dead" => State::Forgotten,
        // `PrepareCommit`, `PrepareAbort`, `PrepareEpochFence`, and what later versions may have on the way.
        _ => State::Ending,
    }
}

/// Whose transaction is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Another process, or an attempt before: what it has open is aborted.
    Past,
    /// This attempt: what it has open isn't ours to end.
    Own,
}

/// Why there is no more to find out.
enum Stop {
    Wire(WireError),
    Told(ConnectorError),
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Stop {
        Stop::Wire(error)
    }
}

impl Search {
    /// Ends what hangs of the last transaction of this id. `is_over`: nobody waits for it any longer.
    ///
    /// # Errors
    /// If something hangs and can't be ended, or the brokers don't answer.
    pub fn end_hanging(&self, id: &str, owner: Owner, is_over: impl Fn() -> bool) -> Result<(), ConnectorError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let outcome = match self.cluster.connect(&self.name, STEP_MAX)? {
                Ok(mut client) => self.end_once(&mut client, id, owner),
                Err(error) => Err(Stop::Wire(error)),
            };
            match outcome {
                Ok(()) => return Ok(()),
                Err(Stop::Told(error)) => return Err(error),
                Err(Stop::Wire(error)) if error.may_pass() => {
                    // A job that runs waits for its brokers as long as it takes.
                    if is_over() || (owner == Owner::Past && Instant::now() >= until) {
                        return Err(self.no_answer(id, &error));
                    }
                    std::thread::sleep(ASK_AGAIN);
                }
                // A way to log in that these connections don't know, brokers that are too old, a right that this user lacks.
                Err(Stop::Wire(error)) => {
                    tracing::warn!(
                        name = %self.name,
                        id,
                        "cannot find out whether an earlier transaction hangs in a partition: {error}; {}",
                        error.help()
                    );
                    return Ok(());
                }
            }
        }
    }

    fn end_once(&self, client: &mut Client, id: &str, owner: Owner) -> Result<(), Stop> {
        let until = Instant::now() + PATIENCE;
        loop {
            let Some(last) = self.last_of(client, id, owner, until)? else { return Ok(()) };
            let open = self.open_of(client, last.producer_id)?;
            if open.is_empty() {
                return Ok(());
            }
            // Another process may have begun one meanwhile, or ended it. What hangs is there before and after.
            let again = client.describe_transaction(id)?;
            let is_same = again.is_some_and(|again| {
                (&again.state, again.producer_id, again.producer_epoch)
                    == (&last.state, last.producer_id, last.producer_epoch)
            });
            let open = still_there(open, &self.open_of(client, last.producer_id)?);
            if open.is_empty() {
                return Ok(());
            }
            if !is_same {
                if Instant::now() >= until {
                    return Err(Stop::Told(self.not_ending(id, &last.state)));
                }
                continue;
            }
            let is_committed = match state(&last.state) {
                State::Committed => true,
                State::Aborted => false,
                State::Open | State::Ending | State::Forgotten => return Err(Stop::Told(self.forgotten(id, &open[0]))),
            };
            return open.iter().try_for_each(|open| self.end(client, id, open, is_committed));
        }
    }

    /// The last transaction of an id, once it is decided and its coordinator is done with it; `None` if there is nothing to end.
    fn last_of(
        &self,
        client: &mut Client,
        id: &str,
        owner: Owner,
        until: Instant,
    ) -> Result<Option<Transaction>, Stop> {
        loop {
            let Some(last) = client.describe_transaction(id)? else { return Ok(None) };
            match (state(&last.state), owner) {
                (State::Committed | State::Aborted | State::Forgotten, _) => return Ok(Some(last)),
                (State::Open, Owner::Own) => return Ok(None),
                // Once it is aborted, the coordinator still says so; by taking the id over at once we would never know.
                (State::Open, Owner::Past) => match client.fence_once(id) {
                    Ok(_) => {}
                    Err(error) if error.refusal() == Some(ResponseError::ConcurrentTransactions) => {}
                    Err(error) => return Err(error.into()),
                },
                (State::Ending, _) => {}
            }
            if Instant::now() >= until {
                return Err(Stop::Told(self.not_ending(id, &last.state)));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// What a producer has open in the topics.
    fn open_of(&self, client: &mut Client, producer_id: i64) -> Result<Vec<OpenOnPartition>, WireError> {
        let mut all = Vec::new();
        for topic in &self.topics {
            match client.open_in(topic)? {
                Some(open) => all.extend(open.into_iter().filter(|open| open.producer_id == producer_id)),
                None => tracing::debug!(
                    name = %self.name,
                    topic,
                    "cannot see whether an earlier transaction hangs there without the right to read it"
                ),
            }
        }
        Ok(all)
    }

    fn end(&self, client: &mut Client, id: &str, open: &OpenOnPartition, is_committed: bool) -> Result<(), Stop> {
        let as_what = if is_committed { "committed" } else { "aborted" };
        let OpenOnPartition { topic, partition, start_offset, .. } = open;
        match client.write_end(open, is_committed) {
            Ok(()) => {
                tracing::warn!(
                    name = %self.name,
                    id,
                    topic,
                    partition,
                    from_offset = start_offset,
                    "a transaction that was {as_what} hung in a partition, and is {as_what} there now, too"
                );
                Ok(())
            }
            Err(error) if error.may_pass() => Err(error.into()),
            Err(error) => Err(Stop::Told(self.not_ended(id, open, as_what, &error))),
        }
    }

    fn because(&self, id: &str, why: String, advice: String, may_pass: bool) -> ConnectorError {
        let what = format!("transactional id '{id}'");
        let brokers = &self.cluster.brokers;
        Doing { name: &self.name, brokers, action: "take over", what: &what, listener: None }
            .because(why, advice, may_pass)
    }

    fn no_answer(&self, id: &str, error: &WireError) -> ConnectorError {
        self.because(id, error.to_string(), format!("{}; nothing is lost", error.help()), true)
    }

    fn not_ending(&self, id: &str, state: &str) -> ConnectorError {
        let why = format!("its coordinator is in state {state} since {} s", PATIENCE.as_secs());
        let advice = "see that all brokers run, and what their logs say of transactions; nothing is lost".to_owned();
        self.because(id, why, advice, true)
    }

    fn not_ended(&self, id: &str, open: &OpenOnPartition, as_what: &str, error: &WireError) -> ConnectorError {
        let OpenOnPartition { topic, partition, start_offset, .. } = open;
        let why = format!(
            "its transaction was {as_what}, but partition {topic}/{partition} was never told, so that nobody reads what is committed there \
             from offset {start_offset} on, and it can't be told now: {error}"
        );
        let tool = format!(
            "kafka-transactions.sh abort --topic {topic} --partition {partition} --start-offset {start_offset}"
        );
        let advice = match (error.refusal(), as_what) {
            (Some(ResponseError::ClusterAuthorizationFailed), "aborted") => format!(
                "run '{tool}' as an administrator, or give this user the operation ClusterAction on the cluster (kafka-acls.sh --add \
                 --cluster), and run the job again; nothing is lost"
            ),
            (Some(ResponseError::ClusterAuthorizationFailed), _) => {
                "give this user the operation ClusterAction on the cluster (kafka-acls.sh --add --cluster), until the job runs; nothing \
                 is lost"
                    .to_owned()
            }
            _ => error.help(),
        };
        self.because(id, why, advice, false)
    }

    fn forgotten(&self, id: &str, open: &OpenOnPartition) -> ConnectorError {
        let OpenOnPartition { topic, partition, start_offset, .. } = open;
        let why = format!(
            "a transaction hangs in partition {topic}/{partition} from offset {start_offset} on, and its coordinator doesn't know any more \
             whether it was committed"
        );
        let advice = format!(
            "'lockgate txn list' shows all that hang. Read the partition from there on with isolation.level=read_uncommitted: if other partitions \
             show nothing of the same epoch, it wasn't committed; end it with 'kafka-transactions.sh abort --topic {topic} --partition \
             {partition} --start-offset {start_offset}', which hides its records, and run the job again"
        );
        self.because(id, why, advice, false)
    }
}

/// Those that were there before and are there after.
fn still_there(before: Vec<OpenOnPartition>, after: &[OpenOnPartition]) -> Vec<OpenOnPartition> {
    let same = |a: &OpenOnPartition, b: &OpenOnPartition| {
        (&a.topic, a.partition, a.start_offset) == (&b.topic, b.partition, b.start_offset)
    };
    before.into_iter().filter(|open| after.iter().any(|later| same(open, later))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_coordinator_has_its_meaning() {
        for (told, expected) in [
            ("Ongoing", State::Open),
            ("PrepareCommit", State::Ending),
            ("PrepareAbort", State::Ending),
            ("PrepareEpochFence", State::Ending),
            ("CompleteCommit", State::Committed),
            ("CompleteAbort", State::Aborted),
            ("Empty", State::Forgotten),
            ("Dead", State::Forgotten),
        ] {
            assert_eq!(state(told), expected, "{told}");
        }
    }

    #[test]
    fn what_began_or_ended_meanwhile_does_not_hang() {
        let open = |partition, start_offset| OpenOnPartition {
            topic: "t".to_owned(),
            partition,
            leader: 1,
            producer_id: 7,
            producer_epoch: 0,
            coordinator_epoch: -1,
            start_offset,
            last_ms: 1,
        };
        let after = [open(0, 5), open(1, 9), open(3, 1)];
        assert_eq!(still_there(vec![open(0, 5), open(1, 8), open(2, 6)], &after), [open(0, 5)]);
    }
}
