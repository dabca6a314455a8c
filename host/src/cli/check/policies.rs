//! What becomes of barriers and failures, in words.
//!
//! Invariant: it says what holds, defaults included.

use serde::Serialize;

use crate::config::JobFile;
use crate::protocol::restart::{RestartBudget, RestartStrategy};
use crate::protocol::{AlignmentOptions, Guarantee, OnError};
use crate::units::duration;

#[derive(Debug, Serialize)]
pub(super) struct PolicyReport {
    /// How barriers meet.
    pub alignment: String,
    /// Whether a job that failed is started again.
    pub restart: String,
    pub on_error: Vec<OnErrorReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct OnErrorReport {
    pub operator: String,
    /// What becomes of a record that it can't process.
    pub on_error: OnError,
}

impl PolicyReport {
    pub fn new(file: &JobFile) -> PolicyReport {
        let on_error = file
            .operators
            .iter()
            .map(|(name, operator)| OnErrorReport { operator: name.to_string(), on_error: operator.on_error });
        PolicyReport {
            alignment: alignment(file.guarantee, file.checkpoint.alignment),
            restart: restart(&file.restart),
            on_error: on_error.collect(),
        }
    }
}

fn alignment(guarantee: Guarantee, options: AlignmentOptions) -> String {
    match (guarantee, options) {
        (Guarantee::AtLeastOnce, _) => "none: no barrier holds an input before the last one".to_owned(),
        (Guarantee::AtMostOnce | Guarantee::ExactlyOnce, AlignmentOptions::Aligned) => "aligned".to_owned(),
        (Guarantee::AtMostOnce | Guarantee::ExactlyOnce, AlignmentOptions::Unaligned { timeout }) => {
            match timeout.is_zero() {
                true => "unaligned, at once".to_owned(),
                false => format!("aligned, after {} unaligned", duration::format(timeout)),
            }
        }
    }
}

fn restart(strategy: &RestartStrategy) -> String {
    let times = |RestartBudget { attempts, reset_after }: &RestartBudget| {
        format!("{attempts} in a row at most, counted anew after {} without a failure", duration::format(*reset_after))
    };
    match strategy {
        RestartStrategy::None => "none".to_owned(),
        RestartStrategy::FixedDelay { delay, budget } => {
            format!("fixed-delay, each after {}; {}", duration::format(*delay), times(budget))
        }
        RestartStrategy::ExponentialBackoff(backoff) => {
            let (first, last) = (duration::format(backoff.initial_delay), duration::format(backoff.max_delay));
            format!("exponential-backoff, after {first} to {last}; {}", times(&backoff.budget))
        }
    }
}
