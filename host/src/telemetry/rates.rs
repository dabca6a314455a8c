//! Records a second over the last seconds, from counters that are read now and then.
//!
//! Invariant: a rate is of what happened within [`RATE_SPAN`] before the newest reading, or since the first one.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::Totals;
use crate::id::Name;

/// The time that a rate is the mean of.
pub const RATE_SPAN: Duration = Duration::from_secs(5);
/// More readings than that within the span are not kept.
const READINGS_MAX: usize = 64;

/// Readings of one job.
#[derive(Debug, Default)]
pub struct Rates {
    /// Oldest first.
    readings: VecDeque<(Instant, BTreeMap<Name, Totals>)>,
}

impl Rates {
    /// What the totals of each source, operator and sink are now.
    pub fn read(&mut self, now: Instant, totals: BTreeMap<Name, Totals>) {
        self.readings.push_back((now, totals));
        // The one at the beginning of the span stays.
        let too_old = |at: &Instant| now.saturating_duration_since(*at) >= RATE_SPAN;
        while self.readings.len() > READINGS_MAX || self.readings.get(1).is_some_and(|(at, _)| too_old(at)) {
            self.readings.pop_front();
        }
    }

    /// Records taken in and given out a second; 0 before there are two readings.
    pub fn of(&self, name: &Name) -> (f64, f64) {
        let (Some((then, before)), Some((now, after))) = (self.readings.front(), self.readings.back()) else {
            return (0.0, 0.0);
        };
        let (Some(before), Some(after)) = (before.get(name), after.get(name)) else { return (0.0, 0.0) };
        let seconds = now.saturating_duration_since(*then).as_secs_f64();
        if seconds <= 0.0 {
            return (0.0, 0.0);
        }
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        (rate(before.records_in, after.records_in), rate(before.records_out, after.records_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new("count").expect("a name")
    }

    fn totals(records_in: u64, records_out: u64) -> BTreeMap<Name, Totals> {
        BTreeMap::from([(name(), Totals { records_in, records_out, ..Totals::default() })])
    }

    #[test]
    fn a_rate_is_of_the_last_seconds_and_not_of_all_time() {
        let (start, mut rates) = (Instant::now(), Rates::default());
        let at = |s: u64| start + Duration::from_secs(s);
        rates.read(at(0), totals(0, 0));
        assert_eq!(rates.of(&name()), (0.0, 0.0), "one reading is none");
        for s in 1..=10 {
            rates.read(at(s), totals(s * 100, s * 10));
        }
        assert_eq!(rates.of(&name()), (100.0, 10.0));
        for s in 11..=20 {
            rates.read(at(s), totals(1_000, 100));
        }
        assert_eq!(rates.of(&name()), (0.0, 0.0), "nothing has happened for long enough");
    }

    #[test]
    fn however_often_it_is_read_only_so_much_is_kept() {
        let (start, mut rates) = (Instant::now(), Rates::default());
        for ms in 0..4_000 {
            rates.read(start + Duration::from_millis(ms), totals(ms, 0));
        }
        assert!(rates.readings.len() <= READINGS_MAX);
        let (rate, _) = rates.of(&name());
        assert!((rate - 1_000.0).abs() < 1.0, "{rate}");
    }
}
