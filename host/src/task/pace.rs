//! How many rows an operator is given in one call: so many that what it puts out and the time it takes stay far below its limits, which
//! are those of a call, and that what waits for the call doesn't wait for long.
//!
//! Rows are few at first and twice as many with each call, as long as those of the last one took little enough. A batch that is as small as
//! the first call stays whole, so that what a failure of it depends on is seen at once.

use std::time::Duration;

use crate::guest::Limits;

/// Of the first call.
const ROWS_FIRST: u32 = 16;
/// No call is to take longer, even if it may.
const TIME_MAX: Duration = Duration::from_millis(100);
/// Of what a call may put out, and of the time that it may take, this part is aimed at: the next rows may be heavier.
const SHARE: u32 = 8;

/// The pace of one operator.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rows: u32,
    bytes_max: usize,
    time_max: Duration,
}

impl Pace {
    pub fn new(limits: &Limits) -> Pace {
        let bytes_max = (limits.output_bytes_max / SHARE as usize).max(1);
        let time_max = TIME_MAX.min(limits.call_timeout / SHARE).max(Duration::from_nanos(1));
        Pace { rows: ROWS_FIRST, bytes_max, time_max }
    }

    /// How many rows the next call is given at most.
    #[inline]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// A call with so many rows has put out so many bytes.
    pub fn took(&mut self, rows: u32, bytes: usize, time: Duration) {
        if rows == 0 {
            return;
        }
        let share = (bytes as f64 / self.bytes_max as f64).max(time.as_secs_f64() / self.time_max.as_secs_f64());
        // Without an end if they took nothing; the conversion saturates.
        let fitting = (f64::from(rows) / share) as u32;
        self.rows = fitting.clamp(1, self.rows.max(rows.saturating_mul(2)));
    }

    /// Another component takes the operator's place.
    pub fn begin_again(&mut self) {
        self.rows = ROWS_FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace() -> Pace {
        Pace::new(&Limits { output_bytes_max: 8_000, call_timeout: 80 * MS, ..Limits::default() })
    }

    #[test]
    fn rows_that_cost_nothing_become_twice_as_many_with_each_call() {
        let mut pace = pace();
        for expected in [16, 32, 64, 128] {
            assert_eq!(pace.rows(), expected);
            pace.took(expected, 0, Duration::ZERO);
        }
        pace.took(1, 0, Duration::ZERO);
        pace.took(0, 0, Duration::ZERO);
        assert_eq!(pace.rows(), 256, "one row says nothing of more, and none nothing at all");
        for _ in 0..40 {
            pace.took(pace.rows(), 1, Duration::ZERO);
        }
        assert_eq!(pace.rows(), u32::MAX, "it doesn't overflow");
    }

    #[test]
    fn rows_get_fewer_with_what_they_put_out_and_the_time_they_take() {
        let mut pace = pace();
        (0..6).for_each(|_| pace.took(pace.rows(), 0, Duration::ZERO));
        assert_eq!(pace.rows(), 1024);
        pace.took(1000, 2_000, MS);
        assert_eq!(pace.rows(), 500, "an eighth of 8,000 bytes");
        pace.took(500, 0, 50 * MS);
        assert_eq!(pace.rows(), 100, "an eighth of 80 ms");
        pace.took(100, usize::MAX, Duration::MAX);
        assert_eq!(pace.rows(), 1);
    }
}
