//! A number or a date as milliseconds since the Unix epoch.
//!
//! Invariant: what comes out is within [`TIME_MAX_MS`] of the epoch.

use chrono::DateTime;
use serde::Deserialize;

use crate::telemetry::printable;

/// 100,000,000 days.
const TIME_MAX_MS: i64 = 8_640_000_000_000_000;
/// Of a text that is no time.
const TEXT_BYTES_SHOWN: usize = 40;

/// In what event times are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Milliseconds since the Unix epoch.
    #[default]
    Ms,
    /// Seconds since the Unix epoch, perhaps with a fraction.
    S,
    /// Microseconds since the Unix epoch.
    Us,
    /// A date with a time and an offset, such as `2015-07-15T00:00:00.123Z`.
    Rfc3339,
}

/// A number as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Fraction(f64),
}

/// What is no event time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadTime {
    #[error("it is {found}, and no number of {unit}")]
    NoNumber { found: String, unit: &'static str },
    #[error("it is {found}, and no date and time with an offset, such as 2015-07-15T00:00:00Z")]
    NoDate { found: String },
    #[error("{found} {unit} is more than 100,000,000 days from 1970")]
    OutOfRange { found: String, unit: &'static str },
}

impl TimeUnit {
    pub(super) fn number_ms(self, number: Number) -> Result<i64, BadTime> {
        let found = || match number {
            Number::Integer(number) => number.to_string(),
            Number::Fraction(number) => number.to_string(),
        };
        let time_ms = match (self, number) {
            (TimeUnit::Rfc3339, _) => return Err(BadTime::NoDate { found: found() }),
            (TimeUnit::Ms, Number::Integer(number)) => Some(number),
            (TimeUnit::S, Number::Integer(number)) => number.checked_mul(1_000),
            (TimeUnit::Us, Number::Integer(number)) => Some(number.div_euclid(1_000)),
            (TimeUnit::Ms, Number::Fraction(number)) => rounded(number),
            (TimeUnit::S, Number::Fraction(number)) => rounded(number * 1e3),
            (TimeUnit::Us, Number::Fraction(number)) => rounded(number / 1e3),
        };
        let in_range = time_ms.and_then(|time| i64::try_from(time).ok()).filter(|time| is_in_range(*time));
        in_range.ok_or_else(|| BadTime::OutOfRange { found: found(), unit: self.name() })
    }

    pub(super) fn text_ms(self, text: &str) -> Result<i64, BadTime> {
        let text = text.trim();
        let quoted = || format!("'{}'", printable(text, TEXT_BYTES_SHOWN));
        match self {
            TimeUnit::Rfc3339 => {
                let date = DateTime::parse_from_rfc3339(text).map_err(|_| BadTime::NoDate { found: quoted() })?;
                Ok(date.timestamp_millis())
            }
            TimeUnit::Ms | TimeUnit::S | TimeUnit::Us => {
                let integer = text.parse().ok().map(Number::Integer);
                let number = integer.or_else(|| text.parse().ok().map(Number::Fraction));
                let number = number.ok_or_else(|| BadTime::NoNumber { found: quoted(), unit: self.name() })?;
                self.number_ms(number)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            TimeUnit::Ms => "milliseconds",
            TimeUnit::S => "seconds",
            TimeUnit::Us => "microseconds",
            TimeUnit::Rfc3339 => "RFC 3339",
        }
    }
}

/// The nearest whole number, if it can be told.
fn rounded(number: f64) -> Option<i128> {
    // Beyond this the cast would saturate, and what is no number would become 0.
    (number.abs() < 1e30).then(|| number.round() as i128)
}

fn is_in_range(time_ms: i64) -> bool {
    (-TIME_MAX_MS..=TIME_MAX_MS).contains(&time_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_gives_milliseconds() {
        for (unit, text, time_ms) in [
            (TimeUnit::Ms, "1436918400123", 1_436_918_400_123),
            (TimeUnit::Ms, "-1", -1),
            (TimeUnit::S, "1436918400", 1_436_918_400_000),
            (TimeUnit::S, " 1436918400.123 ", 1_436_918_400_123),
            (TimeUnit::S, "-0.001", -1),
            (TimeUnit::Us, "1436918400123456", 1_436_918_400_123),
            (TimeUnit::Us, "-1", -1),
            (TimeUnit::Rfc3339, "2015-07-15T00:00:00.123Z", 1_436_918_400_123),
            (TimeUnit::Rfc3339, "2015-07-15T02:00:00.123999+02:00", 1_436_918_400_123),
            (TimeUnit::Rfc3339, "1969-12-31T23:59:59.999Z", -1),
            (TimeUnit::Ms, "8640000000000000", 8_640_000_000_000_000),
        ] {
            assert_eq!(unit.text_ms(text), Ok(time_ms), "{text}");
        }
    }

    #[test]
    fn what_is_too_far_from_1970_is_out_of_range_and_nothing_wraps() {
        for (unit, text) in [
            (TimeUnit::Ms, "8640000000000001"),
            (TimeUnit::Ms, "-9223372036854775808"),
            (TimeUnit::Ms, "9223372036854775807"),
            (TimeUnit::Ms, "170141183460469231731687303715884105727"),
            (TimeUnit::S, "170141183460469231731687303715884105727"),
            (TimeUnit::Us, "170141183460469231731687303715884105727"),
            (TimeUnit::S, "1436918400123456"),
            (TimeUnit::Ms, "1e300"),
            (TimeUnit::Ms, "NaN"),
            (TimeUnit::S, "-inf"),
        ] {
            let refused = unit.text_ms(text).expect_err(text);
            assert!(matches!(refused, BadTime::OutOfRange { .. }), "{refused}");
        }
    }

    #[test]
    fn what_is_no_time_is_told() {
        for (unit, text) in [(TimeUnit::Ms, "soon"), (TimeUnit::S, ""), (TimeUnit::Us, "12:30"), (TimeUnit::Ms, "0x10")]
        {
            assert!(matches!(unit.text_ms(text), Err(BadTime::NoNumber { .. })), "{text}");
        }
        for text in ["1436918400123", "2015-07-15", "2015-07-15T00:00:00", "2015-02-30T00:00:00Z", "\u{1b}"] {
            let refused = TimeUnit::Rfc3339.text_ms(text).expect_err(text);
            assert!(matches!(refused, BadTime::NoDate { .. }) && !refused.to_string().contains('\u{1b}'), "{refused}");
        }
        assert!(matches!(TimeUnit::Rfc3339.number_ms(Number::Integer(5)), Err(BadTime::NoDate { .. })));
    }
}
