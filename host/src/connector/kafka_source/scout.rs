//! Asks the cluster what a source has to know before it reads: which partitions there are, and where in them to begin.
//!
//! It asks in a thread of its own, since answers take a while, and up to the timeout if no broker can be reached.
//!
//! Invariant: every partition of an answer begins at an offset that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::KafkaSourceOptions;
use super::afresh::{self, BEGIN_AFRESH};
use super::bounds::{Asking, Bounds};
use super::client::Consumer;
use super::ids;
use super::places::{Places, offsets_of};
use super::position::{Partition, Position};
use super::selection::Selection;
use super::start::Start;
use crate::connector::ConnectorError;
use crate::connector::kafka::{Doing, ELECTION_MAX, TopicIdAsker, TopicIds, greet, is_election, through_elections};
use crate::id::Name;

/// For so long a topic that is missing may only be too new for a broker to know.
const NEWS_TAKES: Duration = Duration::from_secs(2);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a subtask wants to know.
pub struct Question {
    pub name: Name,
    pub options: KafkaSourceOptions,
    pub group: String,
    pub parallelism: u32,
    pub subtask: u32,
    /// The topics that the job has read, by any of its subtasks.
    pub read_before: BTreeSet<String>,
    /// The partitions that it has already.
    pub known: BTreeMap<Partition, Position>,
    /// Whether those have to be looked at, since they are from a checkpoint.
    pub check_known: bool,
    /// Where those are read from that it doesn't have yet; `None`: they aren't.
    pub unknown: Option<Start>,
    /// For all requests together, but for those about ids.
    pub timeout: Duration,
}

/// A partition as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub position: Position,
    pub high: u64,
}

#[derive(Debug, Default)]
pub struct Answer {
    /// Those that are new; and those that were known, if they had to be looked at.
    pub partitions: BTreeMap<Partition, Found>,
    /// Of topics that are no longer read.
    pub dropped: Vec<Partition>,
    /// Of topics that a pattern matched and that are gone.
    pub gone: Vec<Partition>,
    /// Of the topics that are read.
    pub ids: TopicIds,
}

/// At most one question at a time.
#[derive(Default)]
pub struct Scout {
    asked: Option<Receiver<Result<Answer, ConnectorError>>>,
}

impl Scout {
    pub fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// # Errors
    /// If there is no thread to be had.
    ///
    /// # Panics
    /// If the last question isn't answered yet.
    pub fn ask(&mut self, question: Question, consumer: Arc<Consumer>) -> Result<(), ConnectorError> {
        assert!(self.asked.is_none(), "one question at a time");
        let (name, brokers) = (question.name.clone(), question.options.brokers.clone());
        let (answer, asked) = sync_channel(1);
        let ask = move || {
            // Nobody wants to know any more if this fails.
            let _ = answer.send(question.answer(&consumer));
        };
        let started = thread::Builder::new().name(format!("{name}-scout")).spawn(ask);
        let doing = Doing { name: &name, brokers: &brokers, action: "ask", what: &brokers, listener: None };
        started.map_err(|error| {
            doing.because(error.to_string(), "see how many threads the system allows".to_owned(), true)
        })?;
        self.asked = Some(asked);
        Ok(())
    }

    /// The answer, if there is one within this time.
    pub fn answer(&mut self, wait: Duration) -> Option<Result<Answer, ConnectorError>> {
        let answer = match self.asked.as_ref()?.recv_timeout(wait) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => panic!("the thread that asks Kafka has panicked"),
        };
        self.asked = None;
        Some(answer)
    }
}

impl Question {
    /// # Errors
    /// If the source can't begin or go on as it is asked, or the cluster doesn't say.
    pub fn answer(&self, consumer: &Consumer) -> Result<Answer, ConnectorError> {
        if self.check_known {
            greet(consumer.client(), &self.options.cluster(), &self.looking_up(consumer, "its topics"))?;
        }
        let deadline = Instant::now() + self.timeout;
        let selection = self.options.selection();
        let mut answer = Answer::default();
        let topics = self.topics(consumer, &selection, deadline)?;
        if let Some(Start::Offsets(offsets)) = &self.unknown {
            self.check_starts(offsets, &topics)?;
        }
        let mut wanted: Vec<(Partition, Option<Position>)> = Vec::new();
        for (partition, position) in &self.known {
            match topics.get(&partition.topic) {
                _ if !selection.has(&partition.topic) => answer.dropped.push(partition.clone()),
                Some(count) if partition.index < *count => {
                    if self.check_known {
                        wanted.push((partition.clone(), Some(*position)));
                    }
                }
                Some(count) => return Err(self.fewer_partitions(partition, *count)),
                None => answer.gone.push(partition.clone()),
            }
        }
        if self.unknown.is_some() {
            wanted.extend(self.new_partitions(&topics).map(|partition| (partition, None)));
        }
        let asked = Instant::now();
        answer.ids = self.ids(&topics, &wanted)?;
        answer.partitions = self.begin(consumer, wanted, &answer.ids, deadline + asked.elapsed())?;
        consumer.context().forget_error();
        Ok(answer)
    }

    /// The ids of the topics that it reads, as far as they can be had; those that it knows must be the same.
    fn ids(
        &self,
        topics: &BTreeMap<String, i32>,
        wanted: &[(Partition, Option<Position>)],
    ) -> Result<TopicIds, ConnectorError> {
        let partitions = self.known.keys().chain(wanted.iter().map(|(partition, _)| partition));
        let names = partitions.map(|partition| partition.topic.as_str()).filter(|topic| topics.contains_key(*topic));
        let names = names.collect::<BTreeSet<_>>();
        match TopicIdAsker::new(&self.options.cluster(), &self.name).ask(&names)? {
            Ok(ids) => match ids::of_another(&self.known, &ids) {
                Some(other) => Err(other.refused(&self.name)),
                None => Ok(ids),
            },
            // They could be had before, and what was read is only certain with them.
            Err(error) if self.check_known && error.may_pass() && self.knows_ids() => Err(ConnectorError::Kafka {
                name: self.name.clone(),
                problem: format!("cannot look up the ids of its topics: {error}"),
                advice: error.help(),
                may_pass: true,
            }),
            Err(error) => {
                if self.check_known {
                    tracing::info!(
                        source = %self.name,
                        "the ids of its topics can't be had, so a topic that is deleted and created again is known by its offsets \
                         only: {error}"
                    );
                }
                Ok(TopicIds::new())
            }
        }
    }

    fn knows_ids(&self) -> bool {
        self.known.values().any(|position| position.topic_id.is_some())
    }

    /// The partitions of this subtask that it doesn't have.
    fn new_partitions(&self, topics: &BTreeMap<String, i32>) -> impl Iterator<Item = Partition> {
        let all =
            topics.iter().flat_map(|(topic, count)| (0..*count).map(|index| Partition { topic: topic.clone(), index }));
        all.filter(|partition| partition.owner(self.parallelism) == self.subtask && !self.known.contains_key(partition))
    }

    /// The selected topics, with how many partitions they have.
    fn topics(
        &self,
        consumer: &Consumer,
        selection: &Selection,
        deadline: Instant,
    ) -> Result<BTreeMap<String, i32>, ConnectorError> {
        match selection {
            Selection::Names(names) => {
                let mut topics = BTreeMap::new();
                for name in names {
                    let count = self.partitions_of(consumer, name, deadline)?;
                    let what = format!("topic '{name}'");
                    let doing = self.looking_up(consumer, &what);
                    let count = count.ok_or_else(|| self.missing(&doing, name))?;
                    topics.insert(name.clone(), count);
                }
                Ok(topics)
            }
            Selection::Pattern(_) => {
                let doing = self.looking_up(consumer, "the list of topics");
                let metadata = consumer.fetch_metadata(None, left(deadline)).map_err(|error| doing.failed(&error))?;
                let selected = metadata.topics().iter().filter(|topic| selection.has(topic.name()));
                let found = selected.filter(|topic| topic.error().is_none());
                let mut topics = found
                    .map(|topic| (topic.name().to_owned(), topic.partitions().len() as i32))
                    .collect::<BTreeMap<_, _>>();
                // What was there before is asked for by name before it counts as gone.
                let known = self.known.keys().map(|partition| &partition.topic);
                let missing = known.filter(|topic| selection.has(topic) && !topics.contains_key(*topic));
                let mut missing = missing.cloned().collect::<Vec<_>>();
                missing.dedup();
                for topic in missing {
                    if let Some(count) = self.partitions_of(consumer, &topic, deadline)? {
                        topics.insert(topic, count);
                    }
                }
                Ok(topics)
            }
        }
    }

    /// How many partitions a topic has; `None` if there is no such topic.
    fn partitions_of(
        &self,
        consumer: &Consumer,
        topic: &str,
        deadline: Instant,
    ) -> Result<Option<i32>, ConnectorError> {
        let what = format!("topic '{topic}'");
        let doing = self.looking_up(consumer, &what);
        let asked = Instant::now();
        loop {
            let metadata = consumer.fetch_metadata(Some(topic), left(deadline));
            let metadata = metadata.map_err(|error| doing.failed(&error))?;
            let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(None) };
            match found.error().map(Code::from) {
                None => return Ok(Some(found.partitions().len() as i32)),
                Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId) => {
                    if asked.elapsed() >= NEWS_TAKES {
                        return Ok(None);
                    }
                }
                Some(code) if is_election(code) && Instant::now() < deadline => {}
                Some(code) => return Err(doing.failed_with(code, None)),
            }
            thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    /// Where each partition begins, and where it ends if the source does.
    fn begin(
        &self,
        consumer: &Consumer,
        wanted: Vec<(Partition, Option<Position>)>,
        ids: &TopicIds,
        deadline: Instant,
    ) -> Result<BTreeMap<Partition, Found>, ConnectorError> {
        let unknown = wanted.iter().filter(|(_, position)| position.is_none()).map(|(partition, _)| partition);
        let is_of_group = matches!(self.unknown, Some(Start::Committed));
        let what = if is_of_group { format!("group '{}'", self.group) } else { "its topics".to_owned() };
        let doing = Doing { action: "look up where to start in", ..self.looking_up(consumer, &what) };
        let places = match &self.unknown {
            Some(start) => {
                let unknown = unknown.cloned().collect::<Vec<_>>();
                let ask = || offsets_of(start, &unknown, consumer, left(deadline));
                through_elections(&doing, deadline, ask).map_err(|error| doing.failed(&error))?
            }
            None => Places::default(),
        };
        let mut begun = BTreeMap::new();
        for (partition, position) in wanted {
            let what = format!("partition {partition}");
            let doing = Doing { action: "look up the offsets of", ..self.looking_up(consumer, &what) };
            let bounds = bounds_in_time(&doing, consumer, &partition, deadline)?;
            let (next, asking) = match position {
                Some(position) => (position.next, Asking::Checkpoint),
                None => (places.of(&partition, bounds), Asking::Start),
            };
            let reading = Doing { action: "read", ..doing };
            bounds.check(&partition, next, asking).map_err(|out| out.refused(&reading))?;
            let end =
                self.options.is_bounded().then(|| position.and_then(|position| position.end).unwrap_or(bounds.high));
            let known = position.and_then(|position| position.topic_id);
            let topic_id = known.or_else(|| ids.get(&partition.topic).copied());
            begun.insert(partition, Found { position: Position { next, end, topic_id }, high: bounds.high });
        }
        Ok(begun)
    }

    fn looking_up<'a>(&'a self, consumer: &'a Consumer, what: &'a str) -> Doing<'a> {
        let (name, brokers) = (&self.name, self.options.brokers.as_str());
        Doing { name, brokers, action: "look up", what, listener: Some(consumer.context()) }
    }

    /// A topic that is named and isn't there.
    fn missing(&self, doing: &Doing<'_>, topic: &str) -> ConnectorError {
        let when = match (self.check_known, self.read_before.contains(topic)) {
            (true, false) => return doing.failed_with(Code::UnknownTopic, None),
            (true, true) => "after the job had read from it",
            (false, _) => "while the job was running",
        };
        afresh::deleted(&self.name, &self.options.brokers, topic, when)
    }

    /// Whether `start` is of partitions that are there: one that isn't would be passed over, and its topic read from elsewhere.
    fn check_starts(
        &self,
        offsets: &BTreeMap<String, BTreeMap<i32, u64>>,
        topics: &BTreeMap<String, i32>,
    ) -> Result<(), ConnectorError> {
        let partitions = offsets.iter().flat_map(|(topic, of)| of.keys().map(move |index| (topic, *index)));
        for (topic, index) in partitions {
            let problem = match topics.get(topic) {
                Some(count) if index < *count => continue,
                Some(count) => format!(
                    "start gives an offset for partition {index} of topic '{topic}', which has {count} partitions, numbered from 0"
                ),
                None => format!("start gives an offset for topic '{topic}', which isn't among those that it reads"),
            };
            let (name, advice) = (self.name.clone(), format!("correct start of [source.{}]", self.name));
            return Err(ConnectorError::Unfit { name, problem, advice });
        }
        Ok(())
    }

    fn fewer_partitions(&self, partition: &Partition, count: i32) -> ConnectorError {
        let Partition { topic, index } = partition;
        ConnectorError::Unfit {
            name: self.name.clone(),
            problem: format!(
                "cannot read partition {partition}: topic '{topic}' has only {count} partitions, so it was deleted and created \
                 again with fewer"
            ),
            advice: format!(
                "nothing was skipped. If what partition {index} held isn't wanted any more, {BEGIN_AFRESH}"
            ),
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// As [`bounds_of`], and waits for a leader.
///
/// # Errors
/// If the cluster doesn't say.
pub fn bounds_in_time(
    doing: &Doing<'_>,
    consumer: &Consumer,
    partition: &Partition,
    deadline: Instant,
) -> Result<Bounds, ConnectorError> {
    let end = deadline.min(Instant::now() + ELECTION_MAX);
    let bounds = through_elections(doing, end, || bounds_of(consumer, partition, deadline));
    bounds.map_err(|error| doing.failed(&error))
}

/// The first offset of a partition, and the one behind its last record that can be read.
pub fn bounds_of(consumer: &Consumer, partition: &Partition, deadline: Instant) -> Result<Bounds, KafkaError> {
    let (low, high) = consumer.fetch_watermarks(&partition.topic, partition.index, left(deadline))?;
    let offset = |offset: i64| u64::try_from(offset).map_err(|_| KafkaError::OffsetFetch(Code::NoOffset));
    Ok(Bounds { low: offset(low)?, high: offset(high)? })
}
