//! Whether a topic that acknowledges nothing for a while is still there.
//!
//! librdkafka asks for a topic that was deleted again and again, until the transaction is too old. Nobody else tells of it.
//!
//! Invariant: a topic counts as deleted only if the brokers say twice that it isn't there, with time in between for news of it to
//! get around. Silence says nothing.

use std::time::{Duration, Instant};

use rdkafka::producer::Producer as _;

use super::client::{Producer, partitions_within};
use crate::connector::ConnectorError;
use crate::connector::kafka::Doing;

/// After so long without an acknowledgement the brokers are asked.
const PATIENCE: Duration = Duration::from_secs(3);
/// A topic that isn't there is asked for once more after this time: brokers hear of each other's topics with a delay.
const NEWS_TAKES: Duration = Duration::from_secs(2);
/// For an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// What the brokers say of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    There,
    Missing,
    Nothing,
}

/// Watches over the acknowledgements of one ledger.
pub struct Vigil {
    acknowledged: u64,
    ask_at: Instant,
    was_missing: bool,
}

impl Vigil {
    /// `acknowledged`: how many records are, up to now.
    pub fn begin(acknowledged: u64, now: Instant) -> Vigil {
        Vigil { acknowledged, ask_at: now + PATIENCE, was_missing: false }
    }

    /// Whether the brokers are to be asked now.
    pub fn is_due(&mut self, acknowledged: u64, now: Instant) -> bool {
        if acknowledged != self.acknowledged {
            *self = Vigil::begin(acknowledged, now);
        }
        now >= self.ask_at
    }

    /// Whether it is certain now that the topic was deleted.
    fn told(&mut self, told: Told, now: Instant) -> bool {
        let is_missing = told == Told::Missing;
        let is_certain = is_missing && self.was_missing;
        self.was_missing = is_missing;
        self.ask_at = now + if is_missing { NEWS_TAKES } else { PATIENCE };
        is_certain
    }

    /// Asks the brokers. `advice`: what to do if the topic was deleted.
    ///
    /// # Errors
    /// If it was.
    pub fn ask(
        &mut self,
        producer: &Producer,
        doing: &Doing<'_>,
        topic: &str,
        advice: impl FnOnce() -> String,
    ) -> Result<(), ConnectorError> {
        let told = match partitions_within(producer.client(), doing, topic, ANSWER_TIMEOUT) {
            Ok(Some(_)) => Told::There,
            Ok(None) => Told::Missing,
            Err(_) => Told::Nothing,
        };
        if self.told(told, Instant::now()) {
            return Err(deleted(doing, advice()));
        }
        Ok(())
    }
}

/// What there is to say of a topic that was deleted.
pub fn deleted(doing: &Doing<'_>, advice: String) -> ConnectorError {
    let why = format!("it isn't there any more; it was deleted at {} while the job was running", doing.brokers);
    doing.because(why, advice, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brokers_are_asked_when_nothing_was_acknowledged_for_a_while() {
        let start = Instant::now();
        let mut vigil = Vigil::begin(7, start);
        assert!(!vigil.is_due(7, start + PATIENCE / 2));
        assert!(!vigil.is_due(8, start + PATIENCE), "one more was acknowledged");
        assert!(!vigil.is_due(8, start + PATIENCE + PATIENCE / 2));
        assert!(vigil.is_due(8, start + PATIENCE * 2));
        assert!(!vigil.told(Told::There, start + PATIENCE * 2));
        assert!(!vigil.is_due(8, start + PATIENCE * 2), "they have just said that it is there");
        assert!(vigil.is_due(8, start + PATIENCE * 3));
    }

    #[test]
    fn a_topic_was_deleted_if_it_is_missing_twice_in_a_row() {
        use Told::{Missing, Nothing, There};
        let start = Instant::now();
        let certain = |told: &[Told]| {
            let mut vigil = Vigil::begin(0, start);
            told.iter().map(|told| vigil.told(*told, start)).collect::<Vec<_>>()
        };
        assert_eq!(certain(&[Missing, Missing]), [false, true]);
        assert_eq!(certain(&[Missing, There, Missing, Nothing, Missing]), [false; 5]);
        assert_eq!(certain(&[Nothing, Nothing, There]), [false; 3]);
        let mut vigil = Vigil::begin(0, start);
        vigil.told(Missing, start);
        assert!(vigil.is_due(0, start + NEWS_TAKES), "the second time is soon");
        assert!(!vigil.is_due(1, start + NEWS_TAKES));
        assert!(!vigil.told(Missing, start + NEWS_TAKES), "what was said before an acknowledgement doesn't count");
    }
}
