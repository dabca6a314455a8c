//! Whether a job that failed is started again, and when.
//!
//! A failure is counted until the job has run for `reset_after` without one. As long as no more than `attempts` are counted,
//! there is another attempt, after a delay that the strategy gives.
//!
//! Invariant: without a failure-free time of `reset_after`, a job is started again at most `attempts` times.

use std::time::Duration;

/// How a failed job is started again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RestartStrategy {
    /// Not at all.
    None,
    FixedDelay {
        delay: Duration,
        budget: RestartBudget,
    },
    ExponentialBackoff(Backoff),
}

/// How many failures are borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBudget {
    /// Restarts in a row.
    pub attempts: u32,
    /// Having run for so long without a failure, a job has its whole budget back.
    pub reset_after: Duration,
}

/// Delays that grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Before the first restart.
    pub initial_delay: Duration,
    pub max_delay: Duration,
    /// From one delay to the next; at least 1.
    pub multiplier: f64,
    /// The share of a delay by which it may be shorter or longer, so that jobs that failed together don't come back together; 0
    /// to 1.
    pub jitter: f64,
    pub budget: RestartBudget,
}

impl Default for RestartStrategy {
    fn default() -> RestartStrategy {
        RestartStrategy::ExponentialBackoff(Backoff::default())
    }
}

impl Default for RestartBudget {
    /// 5 within 10 minutes.
    fn default() -> RestartBudget {
        RestartBudget { attempts: 5, reset_after: Duration::from_secs(600) }
    }
}

impl Default for Backoff {
    /// 1 s, 2 s, 4 s and so on, at most a minute, each a tenth shorter or longer.
    fn default() -> Backoff {
        Backoff {
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            multiplier: 2.0,
            jitter: 0.1,
            budget: RestartBudget::default(),
        }
    }
}

/// What is to be done after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    Again {
        delay: Duration,
        /// The how-manieth restart in a row it is, from 1.
        restart: u32,
        /// How many there may be.
        of: u32,
    },
    /// `failures` in a row were too many.
    GiveUp { failures: u32 },
}

/// Counts the failures of a job.
#[derive(Clone, Copy, Debug)]
pub struct Restarts {
    strategy: RestartStrategy,
    failures: u32,
}

impl Restarts {
    /// # Panics
    /// If a number of the strategy is out of its range.
    pub fn new(strategy: RestartStrategy) -> Restarts {
        if let RestartStrategy::ExponentialBackoff(backoff) = &strategy {
            assert!(backoff.multiplier >= 1.0 && backoff.multiplier.is_finite(), "delays don't shrink");
            assert!((0.0..=1.0).contains(&backoff.jitter), "a jitter is a share");
        }
        Restarts { strategy, failures: 0 }
    }

    /// Takes in a failure that is worth another attempt. `ran_for` is how long the attempt that failed had run, `chance` a number
    /// in 0 .. 1.
    pub fn failed(&mut self, ran_for: Duration, chance: f64) -> RestartDecision {
        let budget = match &self.strategy {
            RestartStrategy::None => RestartBudget { attempts: 0, ..RestartBudget::default() },
            RestartStrategy::FixedDelay { budget, .. } => *budget,
            RestartStrategy::ExponentialBackoff(backoff) => backoff.budget,
        };
        if ran_for >= budget.reset_after {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures > budget.attempts {
            return RestartDecision::GiveUp { failures: self.failures };
        }
        let delay = match &self.strategy {
            RestartStrategy::None => Duration::ZERO,
            RestartStrategy::FixedDelay { delay, .. } => *delay,
            RestartStrategy::ExponentialBackoff(backoff) => backoff.delay(self.failures, chance),
        };
        RestartDecision::Again { delay, restart: self.failures, of: budget.attempts }
    }
}

impl Backoff {
    /// `initial_delay * multiplier ^ (failures - 1)`, moved by chance, and never above `max_delay`.
    fn delay(&self, failures: u32, chance: f64) -> Duration {
        if self.initial_delay.is_zero() {
            return Duration::ZERO;
        }
        let exponent = i32::try_from(failures - 1).unwrap_or(i32::MAX);
        let max_s = self.max_delay.as_secs_f64();
        let grown_s = (self.initial_delay.as_secs_f64() * self.multiplier.powi(exponent)).min(max_s);
        let moved_s = grown_s * (1.0 + self.jitter * (2.0 * chance.clamp(0.0, 1.0) - 1.0));
        // What is too long to be a time is longer than the longest.
        Duration::try_from_secs_f64(moved_s).map_or(self.max_delay, |moved| moved.min(self.max_delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Duration = Duration::from_secs(10);

    fn budget(attempts: u32) -> RestartBudget {
        RestartBudget { attempts, reset_after: RESET }
    }

    fn backoff() -> Backoff {
        Backoff { jitter: 0.0, budget: budget(40), ..Backoff::default() }
    }

    fn delays(strategy: RestartStrategy, chance: f64, failures: usize) -> Vec<Duration> {
        let mut restarts = Restarts::new(strategy);
        let mut delays = Vec::new();
        for _ in 0..failures {
            match restarts.failed(Duration::ZERO, chance) {
                RestartDecision::Again { delay, .. } => delays.push(delay),
                RestartDecision::GiveUp { .. } => break,
            }
        }
        delays
    }

    #[test]
    fn without_a_strategy_the_first_failure_is_the_end() {
        let mut restarts = Restarts::new(RestartStrategy::None);
        assert_eq!(restarts.failed(Duration::from_secs(1 << 40), 0.5), RestartDecision::GiveUp { failures: 1 });
    }

    /// All sequences of short and long attempts up to a length, against the rule said in other words: what counts are the
    /// failures since the last long attempt, that one included.
    #[test]
    fn the_budget_holds_for_every_sequence_of_failures() {
        for attempts in 0..4 {
            let delay = Duration::from_secs(3);
            for strategy in [
                RestartStrategy::FixedDelay { delay, budget: budget(attempts) },
                RestartStrategy::ExponentialBackoff(Backoff { budget: budget(attempts), ..backoff() }),
            ] {
                for sequence in 0u32..1 << 8 {
                    let long = |place: u32| sequence >> place & 1 == 1;
                    let mut restarts = Restarts::new(strategy);
                    for place in 0..8 {
                        let ran_for = if long(place) { RESET } else { RESET - Duration::from_nanos(1) };
                        let since = (0..=place).rev().find(|&place| long(place)).unwrap_or(0);
                        let failures = place - since + 1;
                        let decision = restarts.failed(ran_for, 0.5);
                        if failures > attempts {
                            assert_eq!(decision, RestartDecision::GiveUp { failures });
                            break;
                        }
                        let RestartDecision::Again { restart, of, .. } = decision else { panic!("{decision:?}") };
                        assert_eq!((restart, of), (failures, attempts));
                    }
                }
            }
        }
    }

    #[test]
    fn a_fixed_delay_is_always_the_same() {
        let delay = Duration::from_millis(250);
        assert_eq!(delays(RestartStrategy::FixedDelay { delay, budget: budget(3) }, 0.9, 10), [delay; 3]);
    }

    #[test]
    fn delays_grow_up_to_the_longest_and_start_anew_after_a_time_without_failure() {
        let seconds = delays(RestartStrategy::ExponentialBackoff(backoff()), 0.5, 9);
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Duration::from_secs));
        let mut restarts = Restarts::new(RestartStrategy::ExponentialBackoff(backoff()));
        for ran_for in [Duration::ZERO, Duration::ZERO, RESET] {
            let RestartDecision::Again { delay, restart, .. } = restarts.failed(ran_for, 0.5) else { panic!("budget") };
            assert_eq!((delay, restart), if ran_for == RESET { (Duration::from_secs(1), 1) } else { (delay, restart) });
        }
    }

    #[test]
    fn chance_moves_a_delay_by_its_share_and_never_above_the_longest() {
        let with_jitter = |jitter| RestartStrategy::ExponentialBackoff(Backoff { jitter, ..backoff() });
        let millis = |jitter, chance| {
            let delays = delays(with_jitter(jitter), chance, 7);
            delays.iter().map(|delay| (delay.as_secs_f64() * 1000.0).round() as u64).collect::<Vec<_>>()
        };
        assert_eq!(millis(0.1, 0.0), [900, 1_800, 3_600, 7_200, 14_400, 28_800, 54_000]);
        assert_eq!(millis(0.1, 1.0), [1_100, 2_200, 4_400, 8_800, 17_600, 35_200, 60_000]);
        assert_eq!(millis(1.0, 0.0), [0; 7]);
    }

    #[test]
    fn no_number_is_too_large() {
        let huge = Backoff {
            initial_delay: Duration::MAX / 2,
            max_delay: Duration::from_secs(u64::MAX / 2),
            multiplier: f64::MAX,
            jitter: 1.0,
            budget: RestartBudget { attempts: u32::MAX, reset_after: Duration::MAX },
        };
        let mut restarts = Restarts::new(RestartStrategy::ExponentialBackoff(huge));
        for _ in 0..100 {
            let decision = restarts.failed(Duration::ZERO, 1.0);
            assert!(matches!(decision, RestartDecision::Again { delay, .. } if delay <= huge.max_delay));
        }
    }
}
