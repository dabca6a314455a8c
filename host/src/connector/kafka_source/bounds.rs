//! Whether a partition still has the records from an offset on. Pure.
//!
//! Invariant: an offset that was let through here is at or behind the first record, and not behind the end.

use super::afresh::BEGIN_AFRESH;
use super::position::Partition;
use crate::connector::ConnectorError;
use crate::connector::kafka::Doing;

/// The offsets that a partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of the first record that is still there.
    pub low: u64,
    /// Behind the last record that can be read.
    pub high: u64,
}

/// Who wants to read from an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    Checkpoint,
    /// The key `start` of the source.
    Start,
}

/// An offset from which a partition can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    pub problem: String,
    pub advice: String,
}

impl OutOfBounds {
    pub fn refused(self, doing: &Doing<'_>) -> ConnectorError {
        doing.unfit(self.problem, self.advice)
    }
}

impl Bounds {
    pub fn check(self, partition: &Partition, next: u64, asking: Asking) -> Result<(), OutOfBounds> {
        let Bounds { low, high } = self;
        let from = match asking {
            Asking::Checkpoint => format!("the checkpoint goes on at offset {next}"),
            Asking::Start => format!("start begins at offset {next}"),
        };
        let problem = match next {
            next if next < low => {
                let lost = low - next;
                format!(
                    "{from} of {partition}, and its first record is at {low}: {lost} offsets were deleted before they were \
                     read (by the topic's retention, by hand, or with the topic)"
                )
            }
            next if next > high => match asking {
                Asking::Checkpoint => format!(
                    "{from} of {partition}, and it ends at {high}: the topic was deleted and created again, or its brokers \
                     have lost records"
                ),
                Asking::Start => {
                    format!("{from} of {partition}, and it ends at {high}: there are no records from there on")
                }
            },
            _ => return Ok(()),
        };
        let topic = &partition.topic;
        let advice = match asking {
            Asking::Checkpoint => format!(
                "nothing was skipped, and the job won't skip anything by itself. Put the records back; or {BEGIN_AFRESH}. So that it \
                 doesn't happen again, raise retention.ms of topic '{topic}' above the longest time for which the job may be down"
            ),
            Asking::Start => "set start to offsets that are there, or to \"earliest\" or \"latest\"".to_owned(),
        };
        Err(OutOfBounds { problem, advice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_is_there_is_let_through_and_others_are_told_with_the_choices() {
        let (bounds, partition) = (Bounds { low: 10, high: 20 }, "orders/3".parse().expect("a partition"));
        let check = |next| bounds.check(&partition, next, Asking::Checkpoint);
        for next in [10, 15, 20] {
            assert_eq!(check(next), Ok(()));
        }
        let early = check(7).expect_err("deleted");
        assert!(early.problem.contains("offset 7 of orders/3") && early.problem.contains("3 offsets were deleted"));
        assert!(early.advice.contains("new name") && early.advice.contains("retention.ms of topic 'orders'"));
        let late = check(21).expect_err("beyond the end");
        assert!(late.problem.contains("ends at 20") && late.problem.contains("created again"), "{}", late.problem);
        let start = bounds.check(&partition, 9, Asking::Start).expect_err("deleted");
        assert!(start.problem.contains("start begins at offset 9") && start.advice.contains("\"earliest\""));
        let start = bounds.check(&partition, 21, Asking::Start).expect_err("beyond the end");
        assert!(start.problem.contains("offset 21 of orders/3, and it ends at 20"), "{}", start.problem);
        assert!(!start.problem.contains("created again"), "{}", start.problem);
    }
}
