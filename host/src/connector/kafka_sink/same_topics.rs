//! Whether the topics that a job writes to are still those that it began to write to.
//!
//! A topic that is deleted and created again at once takes what is sent to its name from then on, and nothing fails. What of an epoch the
//! old one had is gone then, while the checkpoint would say that it was written. So the ids of the topics are noted before an attempt
//! sends anything, and asked for again when all of an epoch is acknowledged, before it counts.
//!
//! Where ids can't be had, nothing is looked at. A topic that isn't there at the moment is no other one: who writes to it next is told.
//!
//! Invariant: an epoch counts only if no topic is known to be another one than when the attempt began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::connector::ConnectorError;
use crate::connector::kafka::wire::WireError;
use crate::connector::kafka::{Cluster, Doing, TopicId, TopicIdAsker, TopicIds};
use crate::id::Name;

/// For brokers to tell the ids when an attempt begins.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Those of the sinks that share a producer.
pub struct SameTopics {
    brokers: String,
    /// By topic, the sink that is named in errors.
    sinks: BTreeMap<String, Name>,
    noted: TopicIds,
    asker: Mutex<TopicIdAsker>,
}

impl SameTopics {
    /// Notes which topics they are. `sinks`: by topic.
    ///
    /// # Errors
    /// If brokers that could tell don't answer.
    pub fn note(cluster: &Cluster, name: &Name, sinks: BTreeMap<String, Name>) -> Result<SameTopics, ConnectorError> {
        let mut asker = TopicIdAsker::new(cluster, name);
        let topics = names(&sinks);
        let until = Instant::now() + PATIENCE;
        let noted = loop {
            match asker.ask(&topics)? {
                Ok(ids) => break ids,
                Err(error) if error.may_pass() && Instant::now() < until => std::thread::sleep(ASK_AGAIN),
                Err(error) if error.may_pass() => {
                    let doing = doing(&cluster.brokers, name, "look up the ids of", "the topics");
                    return Err(doing.silent(error.to_string(), error.help()));
                }
                Err(error) => {
                    not_told(name, &error);
                    break TopicIds::new();
                }
            }
        };
        Ok(SameTopics { brokers: cluster.brokers.clone(), sinks, noted, asker: Mutex::new(asker) })
    }

    /// Whether they are the same as when they were noted, asked for as long as `go_on` allows.
    ///
    /// # Errors
    /// If one is another topic now, or those of `go_on`.
    pub fn check(&self, go_on: impl Fn() -> Result<(), ConnectorError>) -> Result<(), ConnectorError> {
        if self.noted.is_empty() {
            return Ok(());
        }
        loop {
            let answer = self.asker.lock().unwrap_or_else(PoisonError::into_inner).ask(&names(&self.sinks))?;
            match answer {
                Ok(ids) => return another(&self.noted, &ids).map_or(Ok(()), |other| Err(self.replaced(other))),
                Err(error) if error.may_pass() => {
                    go_on()?;
                    std::thread::sleep(ASK_AGAIN);
                }
                Err(error) => {
                    self.sinks.values().take(1).for_each(|name| not_told(name, &error));
                    return Ok(());
                }
            }
        }
    }

    fn replaced(&self, (topic, was, is): (&str, TopicId, TopicId)) -> ConnectorError {
        let what = format!("topic '{topic}'");
        doing(&self.brokers, &self.sinks[topic], "write to", &what).because(
            format!("it was deleted and created again while the job was running: it had the id {was}, and now has {is}"),
            "run the job again: it goes on from its last checkpoint, and writes to the new topic what comes after. What was committed to \
             the old one before went with it"
                .to_owned(),
            false,
        )
    }
}

fn names(sinks: &BTreeMap<String, Name>) -> BTreeSet<&str> {
    sinks.keys().map(String::as_str).collect()
}

fn doing<'a>(brokers: &'a str, name: &'a Name, action: &'a str, what: &'a str) -> Doing<'a> {
    Doing { name, brokers, action, what, listener: None }
}

/// The first topic that is another one, with the ids that it had and has.
fn another<'a>(noted: &'a TopicIds, now: &TopicIds) -> Option<(&'a str, TopicId, TopicId)> {
    noted.iter().find_map(|(topic, was)| {
        let is = *now.get(topic)?;
        (is != *was).then_some((topic.as_str(), *was, is))
    })
}

fn not_told(name: &Name, error: &WireError) {
    tracing::info!(
        sink = %name,
        "the ids of its topics can't be had, so one that is deleted and created again is taken for the one before: {error}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: &[(&str, u128)]) -> TopicIds {
        all.iter().map(|(topic, id)| ((*topic).to_owned(), TopicId::told(*id).expect("an id"))).collect()
    }

    #[test]
    fn only_another_id_makes_another_topic() {
        let noted = ids(&[("a", 1), ("b", 2)]);
        for now in [&[("a", 1), ("b", 2)][..], &[("b", 2)], &[], &[("a", 1), ("c", 3)]] {
            assert_eq!(another(&noted, &ids(now)), None, "{now:?}");
        }
        let (topic, was, is) = another(&noted, &ids(&[("a", 1), ("b", 3)])).expect("another one");
        assert_eq!((topic, Some(was), Some(is)), ("b", TopicId::told(2), TopicId::told(3)));
        assert_eq!(another(&ids(&[("a", 1)]), &ids(&[("a", 1), ("b", 3)])), None, "one that wasn't known");
    }
}
