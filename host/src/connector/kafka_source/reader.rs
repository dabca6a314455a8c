//! One subtask of the Kafka source: which of its splits is read next, and what happens when there are new ones.
//!
//! It has one consumer, with a queue for each partition, so that all are served in turn and the end of each is known. When the
//! partitions change, there is another consumer: how much each queue may hold depends on how many there are.
//!
//! Invariant: nothing is given before it is certain where every split begins; until then the positions are ahead of what was
//! given, so that no checkpoint knows of some splits only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::{Offset, TopicPartitionList};

use super::afresh::topics_of;
use super::bounds::Asking;
use super::client::{self, Consumer};
use super::failing::{is_about_a_topic, is_final, is_out_of_bounds, is_passing};
use super::figures;
use super::position::{Partition, Position, parse_state, split_state};
use super::scout::{Answer, Question, Scout, bounds_of};
use super::split::{Read, Split, SplitFailure};
use super::start::Start;
use super::{Isolation, KafkaSourceOptions};
use crate::connector::kafka::Doing;
use crate::connector::{ConnectorContext, ConnectorError, Polled, Queued, SourceReader, SplitChange, SplitState};
use crate::id::{SplitId, SubtaskId};
use crate::telemetry::PartitionDropped;

/// How long one poll waits for the answer that comes before the first record.
const ANSWER_WAIT: Duration = Duration::from_millis(5);
/// How soon to ask again when there was nothing; doubled each time, up to the most.
const IDLE_MIN: Duration = Duration::from_millis(1);
const IDLE_MAX: Duration = Duration::from_millis(16);
/// Events of the client that are taken in one poll.
const EVENTS_MAX: usize = 64;
/// How long the cluster has to answer all that is asked before the first record.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For what is asked only to tell an error better.
const NEVER: Duration = Duration::from_secs(1 << 32);
const DETAILS_TIMEOUT: Duration = Duration::from_secs(2);

pub struct KafkaReader {
    ctx: ConnectorContext,
    subtask: u32,
    options: KafkaSourceOptions,
    consumer: Arc<Consumer>,
    scout: Scout,
    /// When the scout is to look for what is new.
    look_due: Instant,
    /// Whether a checkpoint knows this source.
    is_known: bool,
    /// The topics of which it does.
    read_before: BTreeSet<String>,
    /// This subtask's positions of the checkpoint, until it is certain that they can be read from.
    restored: BTreeMap<Partition, Position>,
    has_started: bool,
    splits: Vec<Split>,
    /// Whose turn it is.
    turn: usize,
    changes: Vec<(SplitId, SplitChange)>,
    idle: Duration,
    timeout: Duration,
}

impl KafkaReader {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// If the settings can't be used.
    pub fn open(
        options: &KafkaSourceOptions,
        ctx: &ConnectorContext,
        subtask: u32,
    ) -> Result<KafkaReader, ConnectorError> {
        Ok(KafkaReader {
            consumer: client::open(options, &ctx.name, &ctx.job, 1)?,
            ctx: ctx.clone(),
            subtask,
            options: options.clone(),
            scout: Scout::default(),
            look_due: Instant::now(),
            is_known: false,
            read_before: BTreeSet::new(),
            restored: BTreeMap::new(),
            has_started: false,
            splits: Vec::new(),
            turn: 0,
            changes: Vec::new(),
            idle: IDLE_MIN,
            timeout: TIMEOUT,
        })
    }

    /// Gives the cluster another time to answer.
    #[cfg(test)]
    pub fn with_timeout(mut self, timeout: Duration) -> KafkaReader {
        self.timeout = timeout;
        self
    }

    fn question(&self) -> Question {
        let unknown = match (self.has_started, self.is_known) {
            (false, false) => Some(self.options.start.clone()),
            // Those that were there at the first start are all in the checkpoint.
            _ if self.options.is_bounded() => None,
            _ => Some(Start::Earliest),
        };
        let reading = self.splits.iter().map(|split| (split.partition.clone(), *split.progress.position()));
        Question {
            name: self.ctx.name.clone(),
            options: self.options.clone(),
            group: self.options.group(&self.ctx.job),
            parallelism: self.ctx.parallelism,
            subtask: self.subtask,
            read_before: self.read_before.clone(),
            known: if self.has_started { reading.collect() } else { self.restored.clone() },
            check_known: !self.has_started,
            unknown,
            timeout: self.timeout,
        }
    }

    fn ask(&mut self) -> Result<(), ConnectorError> {
        let after = if self.options.is_bounded() { NEVER } else { self.options.discover_interval };
        self.look_due = Instant::now() + after;
        self.scout.ask(self.question(), Arc::clone(&self.consumer))
    }

    /// Finds out where every split begins.
    fn take_first_answer(&mut self) -> Result<(), ConnectorError> {
        if !self.scout.is_asking() {
            self.ask()?;
        }
        if let Some(answer) = self.scout.answer(ANSWER_WAIT) {
            self.take_up(answer?)?;
            self.has_started = true;
            self.restored.clear();
        }
        Ok(())
    }

    /// Takes in what the scout has found since, if it has; a bounded source looks only if there is something amiss.
    fn take_answer(&mut self) -> Result<(), ConnectorError> {
        match self.scout.answer(Duration::ZERO) {
            // The stream goes on; it is asked again.
            Some(Err(
                ConnectorError::Kafka { problem, may_pass: true, .. } | ConnectorError::Silent { problem, .. },
            )) => {
                tracing::warn!(source = %self.ctx.name, "cannot look for new partitions: {problem}");
            }
            Some(answer) => self.take_up(answer?)?,
            None if !self.scout.is_asking() && Instant::now() >= self.look_due => self.ask()?,
            None => {}
        }
        Ok(())
    }

    /// Reads from then on what an answer says.
    fn take_up(&mut self, answer: Answer) -> Result<(), ConnectorError> {
        let Answer { partitions, dropped, gone, ids } = answer;
        for split in &mut self.splits {
            if let Some(id) = ids.get(&split.partition.topic) {
                split.progress.is_of(*id);
            }
        }
        if partitions.is_empty() && gone.is_empty() && dropped.is_empty() {
            return Ok(());
        }
        for (partitions, why) in [(&dropped, "its topic is no longer selected"), (&gone, "its topic is gone")] {
            for partition in partitions {
                PartitionDropped { source: &self.ctx.name, partition: &partition.to_string(), why }.emit();
            }
        }
        let (left, kept) = std::mem::take(&mut self.splits)
            .into_iter()
            .partition(|split| dropped.contains(&split.partition) || gone.contains(&split.partition));
        self.splits = kept;
        self.changes.extend(left.into_iter().map(|split: Split| (split.id, SplitChange::Ended)));
        for (partition, found) in partitions {
            let split = Split::new(partition, found);
            self.changes.push((
                split.id.clone(),
                if split.progress.has_ended() { SplitChange::Ended } else { SplitChange::Begins },
            ));
            self.splits.push(split);
        }
        self.splits.sort_by(|a, b| a.partition.cmp(&b.partition));
        self.turn = 0;
        self.assign()
    }

    /// Reads all splits that go on with a new consumer.
    fn assign(&mut self) -> Result<(), ConnectorError> {
        let going = self.splits.iter().filter(|split| !split.progress.has_ended()).count();
        let consumer = client::open(&self.options, &self.ctx.name, &self.ctx.job, going)?;
        let mut list = TopicPartitionList::with_capacity(going);
        let mut queues = Vec::new();
        let doing = doing(&self.ctx, &self.options, &consumer, "the partitions of its topics");
        for split in &mut self.splits {
            queues.extend(split.detach());
            if !split.progress.has_ended() {
                split.attach(&consumer);
                let Partition { topic, index } = &split.partition;
                let next = Offset::Offset(split.progress.position().next as i64);
                list.add_partition_offset(topic, *index, next).map_err(|error| doing.failed(&error))?;
            }
        }
        consumer.assign(&list).map_err(|error| doing.failed(&error))?;
        let old = std::mem::replace(&mut self.consumer, consumer);
        // It takes its time to disconnect, in which the stream goes on.
        let closing =
            thread::Builder::new().name(format!("{}-close", self.ctx.name)).spawn(move || drop((queues, old)));
        drop(closing);
        Ok(())
    }

    /// Lets the client say what it has to say.
    fn serve(&mut self) -> Result<(), ConnectorError> {
        for _ in 0..EVENTS_MAX {
            match self.consumer.poll(Duration::ZERO) {
                None => break,
                Some(Ok(_)) => unreachable!("every partition has a queue of its own"),
                Some(Err(error)) if is_final(&error) => {
                    return Err(doing(&self.ctx, &self.options, &self.consumer, "its topics").failed(&error));
                }
                Some(Err(error)) if error.rdkafka_error_code().is_some_and(is_about_a_topic) => {
                    self.look_due = Instant::now();
                }
                // Told by its listener; the client tries again.
                Some(Err(_)) => {}
            }
        }
        if let Some(statistics) = self.consumer.context().take_statistics() {
            let committed_only = self.options.isolation == Isolation::ReadCommitted;
            let figures = figures::read(&statistics, committed_only);
            for split in &mut self.splits {
                if let Some(figures) = figures.get(&split.partition) {
                    (split.queued_records, split.queued_bytes) = (figures.queued_records, figures.queued_bytes);
                    split.progress.told(figures);
                }
            }
        }
        Ok(())
    }

    /// The next batch, from the first split in turn that has anything.
    fn take_turns(&mut self) -> Result<Option<Polled>, ConnectorError> {
        for _ in 0..self.splits.len() {
            let place = self.turn % self.splits.len();
            self.turn = place + 1;
            let split = &mut self.splits[place];
            if split.progress.has_ended() {
                continue;
            }
            let Read { first_offset, batch, rests } = match split.read() {
                Ok(read) => read,
                Err(failure) => {
                    self.failed(place, failure)?;
                    continue;
                }
            };
            let id = split.id.clone();
            if split.progress.has_ended() {
                self.changes.push((id.clone(), SplitChange::Ended));
                self.pause(place)?;
            } else if rests {
                self.changes.push((id.clone(), SplitChange::Rests));
            }
            if !batch.is_empty() {
                return Ok(Some(Polled::Batch { split: id, first_offset, batch }));
            }
        }
        Ok(None)
    }

    /// A split that has ended needs no more records.
    fn pause(&self, place: usize) -> Result<(), ConnectorError> {
        let Partition { topic, index } = &self.splits[place].partition;
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition(topic, *index);
        let what = format!("partition {topic}/{index}");
        let doing = Doing { action: "pause", ..doing(&self.ctx, &self.options, &self.consumer, &what) };
        self.consumer.pause(&list).map_err(|error| doing.failed(&error))
    }

    /// What becomes of a failure of one split: an error, or the scout is to see to it.
    fn failed(&mut self, place: usize, failure: SplitFailure) -> Result<(), ConnectorError> {
        let split = &self.splits[place];
        let what = format!("partition {}", split.partition);
        let doing = doing(&self.ctx, &self.options, &self.consumer, &what);
        let error = match failure {
            SplitFailure::Kafka(error) => error,
            SplitFailure::Header { offset } => {
                let why = format!("the record at offset {offset} has a header whose name isn't UTF-8");
                let advice = "delete the records up to it (kafka-delete-records.sh), or begin behind it with start under a new job \
                              name"
                    .to_owned();
                return Err(doing.because(why, advice, false));
            }
        };
        match error.rdkafka_error_code() {
            Some(code) if is_out_of_bounds(code) => {
                let next = split.progress.position().next;
                let bounds = bounds_of(&self.consumer, &split.partition, Instant::now() + DETAILS_TIMEOUT);
                let out = bounds.map(|bounds| bounds.check(&split.partition, next, Asking::Checkpoint));
                match out {
                    Ok(Err(out)) => Err(out.refused(&doing)),
                    Ok(Ok(())) | Err(_) => Err(doing.failed(&error)),
                }
            }
            Some(code) if is_about_a_topic(code) => {
                self.look_due = Instant::now();
                Ok(())
            }
            Some(code) if is_passing(code) => Ok(()),
            _ => Err(doing.failed(&error)),
        }
    }
}

fn doing<'a>(
    ctx: &'a ConnectorContext,
    options: &'a KafkaSourceOptions,
    consumer: &'a Consumer,
    what: &'a str,
) -> Doing<'a> {
    Doing { name: &ctx.name, brokers: &options.brokers, action: "read", what, listener: Some(consumer.context()) }
}

impl SourceReader for KafkaReader {
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        self.is_known = !splits.is_empty();
        self.read_before = topics_of(splits);
        for state in splits {
            let refused = |problem: String| ConnectorError::Snapshot {
                subtask: SubtaskId { operator: self.ctx.name.clone(), index: self.subtask },
                what: state.split.clone(),
                problem,
            };
            let (partition, position) = parse_state(state).map_err(|bad| refused(bad.to_string()))?;
            let end = position.end.filter(|_| self.options.is_bounded());
            if partition.owner(self.ctx.parallelism) == self.subtask {
                self.restored.insert(partition, Position { end, ..position });
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        self.serve()?;
        if !self.has_started {
            self.take_first_answer()?;
            return Ok(Polled::Idle(Duration::ZERO));
        }
        self.take_answer()?;
        if let Some(batch) = self.take_turns()? {
            self.idle = IDLE_MIN;
            return Ok(batch);
        }
        if self.options.is_bounded() && self.splits.iter().all(|split| split.progress.has_ended()) {
            return Ok(Polled::Ended);
        }
        let idle = self.idle;
        self.idle = (idle * 2).min(IDLE_MAX);
        Ok(Polled::Idle(idle))
    }

    fn snapshot(&self) -> Vec<SplitState> {
        if !self.has_started {
            return self.restored.iter().map(|(partition, position)| split_state(partition, position)).collect();
        }
        self.splits.iter().map(|split| split_state(&split.partition, split.progress.position())).collect()
    }

    fn is_ahead(&self) -> bool {
        !self.has_started
    }

    fn begun_splits(&self) -> Vec<SplitId> {
        let going = self.restored.iter().filter(|(_, position)| !position.has_ended());
        going.map(|(partition, _)| SplitId::new(&partition.to_string())).collect()
    }

    fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
        std::mem::take(&mut self.changes)
    }

    fn lag(&self) -> Option<u64> {
        self.has_started.then(|| self.splits.iter().map(|split| split.progress.lag()).sum())
    }

    fn queued(&self) -> Option<Queued> {
        let sum = |of: fn(&Split) -> u64| self.splits.iter().map(of).sum();
        Some(Queued { records: sum(|split| split.queued_records), bytes: sum(|split| split.queued_bytes) })
    }
}
