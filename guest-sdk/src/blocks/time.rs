//! Event time cut into pieces of equal length, and records that come too late for theirs.
//!
//! Invariant: no computation on event times wraps: what doesn't fit is an error of the record, or stops at the end of
//! time where that is what it means.

use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::operator::Output;
use crate::record::Record;

/// A piece of event time in milliseconds since the Unix epoch: from `start` on, up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    pub start: i64,
    pub end: i64,
}

impl Window {
    /// The last millisecond of the window: once the watermark has it, the window is complete.
    pub fn last(self) -> i64 {
        self.end - 1
    }
}

/// A length of event time in milliseconds.
///
/// # Errors
/// If it isn't a whole number of milliseconds from 1 to the greatest i64.
pub(super) fn length_ms(what: &str, length: Duration) -> Result<i64, Error> {
    let whole = length.subsec_nanos().is_multiple_of(1_000_000);
    i64::try_from(length.as_millis()).ok().filter(|&ms| ms > 0 && whole).ok_or_else(|| {
        Error::fatal(format_args!("{what} of {length:?} is none: it takes whole milliseconds, and at least one"))
    })
}

/// As [`length_ms`], where an operator is declared.
///
/// # Panics
/// As it fails.
pub(super) fn declared_ms(what: &str, length: Duration) -> i64 {
    length_ms(what, length).unwrap_or_else(|error| panic!("{error}"))
}

/// # Errors
/// If the record has no event time.
#[inline]
pub(super) fn event_time(record: &Record<'_>) -> Result<i64, Error> {
    record.timestamp().ok_or_else(no_event_time)
}

#[cold]
fn no_event_time() -> Error {
    Error::bad_record(
        "the record has no event time: say where it is in the job file, in the source's `event_time` table, or emit it with one",
    )
}

/// The record is so near to an end of time that what it belongs to would pass it.
#[cold]
pub(super) fn out_of_time(time: i64, what: &str, length_ms: i64) -> Error {
    Error::bad_record(format_args!(
        "the event time {time} is too near to an end of time for {what} of {length_ms} ms: check the unit of the \
         source's event time, which is milliseconds here"
    ))
}

/// Stops at the ends of time.
pub(super) fn clamped(time: i128) -> i64 {
    time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The piece of a length that a time is in, numbered from the epoch on.
#[inline]
pub(super) fn piece(time: i64, length: i64) -> i64 {
    time.div_euclid(length)
}

/// The last millisecond of a piece, or the end of time.
pub(super) fn piece_last(piece: i64, length: i64) -> i64 {
    clamped((i128::from(piece) + 1) * i128::from(length) - 1)
}

/// What becomes of records that come too late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late {
    pub(super) allowed_ms: i64,
    pub(super) output: Option<Output>,
}

/// The counter of records that came too late.
const LATE_RECORDS: &str = "late-records";

impl Late {
    /// Counts a late record and sends it to the side output, if there is one.
    #[cold]
    pub(super) fn give_up(self, ctx: &mut Context<'_>, record: &Record<'_>) {
        ctx.counter(LATE_RECORDS, 1);
        if let Some(output) = self.output {
            ctx.emit_at(output, record.key(), record.value(), record.timestamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_downwards_before_the_epoch() {
        assert_eq!([-11, -10, -1, 0, 9, 10].map(|time| piece(time, 10)), [-2, -1, -1, 0, 0, 1]);
        assert_eq!([-2, -1, 0].map(|number| piece_last(number, 10)), [-11, -1, 9]);
        assert_eq!(piece_last(piece(i64::MAX, 1_000), 1_000), i64::MAX);
        assert_eq!(piece_last(piece(i64::MIN, i64::MAX), i64::MAX), i64::MIN);
    }

    #[test]
    fn a_length_is_a_whole_number_of_milliseconds() {
        let ms = |length| length_ms("a window", length).map_err(|error| error.to_string());
        assert_eq!(ms(Duration::from_secs(2)), Ok(2_000));
        assert_eq!(ms(Duration::from_millis(i64::MAX as u64)), Ok(i64::MAX));
        let refused = [Duration::ZERO, Duration::from_micros(1_500), Duration::MAX];
        for length in refused {
            let error = ms(length).expect_err("refused");
            assert!(error.contains("it takes whole milliseconds, and at least one"), "{error}");
        }
    }
}
