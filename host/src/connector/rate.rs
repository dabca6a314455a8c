//! How many records may be made now, so that their number per second stays at a given rate.
//!
//! Invariant: after a pause of any length no more than [`CREDIT`]'s worth of records (or two, if that is more) is made up for.

use std::time::{Duration, Instant};

/// How long a stalled source may catch up for.
const CREDIT: Duration = Duration::from_secs(1);
/// Records are handed out in lots of at least this time's worth, so that batches aren't tiny.
const LOT: Duration = Duration::from_millis(5);

/// A rate to keep.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    credit_max: Duration,
    /// The time at which the next record is due.
    due: Instant,
}

/// What may be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    Records(u64),
    Wait(Duration),
}

impl Rate {
    /// # Panics
    /// If the rate isn't above 0.
    pub fn new(per_second: f64, now: Instant) -> Rate {
        assert!(per_second > 0.0, "a rate above 0");
        let credit_max = CREDIT.max(Duration::from_secs_f64(2.0 / per_second));
        Rate { per_second, credit_max, due: now }
    }

    /// How many records, at most `max`, may be made at `now`.
    pub fn ask(&mut self, max: u64, now: Instant) -> Allowance {
        self.due = self.due.max(now.checked_sub(self.credit_max).unwrap_or(now));
        let lot = (self.per_second * LOT.as_secs_f64()).clamp(1.0, max as f64);
        let credit = now.saturating_duration_since(self.due).as_secs_f64() * self.per_second;
        if credit < lot {
            let wait = Duration::from_secs_f64((lot - credit) / self.per_second);
            return Allowance::Wait(wait.max(Duration::from_micros(50)));
        }
        Allowance::Records((credit as u64).min(max))
    }

    /// Says how many were made.
    pub fn made(&mut self, records: u64) {
        self.due += Duration::from_secs_f64(records as f64 / self.per_second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_a_stall_is_not_made_up_for_without_end() {
        for per_second in [0.5, 3.0, 1_000.0, 1_000_000.0] {
            let start = Instant::now();
            let mut rate = Rate::new(per_second, start);
            let (mut now, mut made) = (start, 0);
            while now < start + Duration::from_secs(20) {
                match rate.ask(4096, now) {
                    Allowance::Records(n) => {
                        rate.made(n);
                        made += n;
                    }
                    Allowance::Wait(time) => now += time,
                }
            }
            let wanted = per_second * 20.0;
            assert!((made as f64 - wanted).abs() <= (wanted * 0.01).max(1.0), "{made} of {wanted}");
            now += Duration::from_secs(3600);
            let mut burst = 0;
            while let Allowance::Records(n) = rate.ask(4096, now) {
                rate.made(n);
                burst += n;
            }
            assert!(burst as f64 <= per_second.max(2.0) + 1.0, "{burst} at once");
        }
    }
}
