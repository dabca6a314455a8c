//! Durations and sizes as people write them: "500ms", "10s", "64MiB".
//!
//! For serde: `#[serde(with = "crate::units::duration")]` on a [`Duration`](std::time::Duration), and
//! `#[serde(with = "crate::units::size")]` on a `u64` of bytes. A number without a unit is refused.
//!
//! Invariant: what is written here is read back as the same value.

/// A text that is no duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUnit {
    #[error(
        "'{text}' is not a duration: write a whole number and a unit (ms, s, m, h or d), for example \"500ms\" or \"10s\""
    )]
    Duration { text: String },
    #[error(
        "'{text}' is not a size: write a whole number and a unit (B, KiB, MiB, GiB, TiB, kB, MB, GB or TB), for example \"64MiB\""
    )]
    Size { text: String },
}

/// Millisecond factors, the largest first.
const DURATION_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Byte factors. Those of 1,024 come first, so that they are the ones written.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
];

/// `<digits><optional space><unit>` as a multiple of the smallest unit; `None` if it isn't that or doesn't fit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// The largest unit of which `number` is a whole multiple.
fn format(number: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let whole = units.iter().find(|(_, factor)| number != 0 && number.is_multiple_of(*factor));
    whole.map_or_else(|| format!("{number}{smallest}"), |(unit, factor)| format!("{}{unit}", number / factor))
}

/// Durations in whole milliseconds.
pub mod duration {
    use std::borrow::Cow;
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{BadUnit, DURATION_UNITS};

    /// # Errors
    /// [`BadUnit::Duration`] unless it is a whole number and a unit.
    pub fn parse(text: &str) -> Result<Duration, BadUnit> {
        let millis = super::parse(text, &DURATION_UNITS);
        millis.map(Duration::from_millis).ok_or_else(|| BadUnit::Duration { text: text.chars().take(80).collect() })
    }

    /// The shortest text that [`parse`] reads as this duration, to the millisecond.
    pub fn format(duration: Duration) -> String {
        super::format(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), &DURATION_UNITS, "ms")
    }

    /// # Errors
    /// That of the format.
    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format(*duration))
    }

    /// # Errors
    /// If it isn't a text that [`parse`] takes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse(&Cow::<'de, str>::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Sizes in bytes.
pub mod size {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{BadUnit, SIZE_UNITS};

    /// # Errors
    /// [`BadUnit::Size`] unless it is a whole number and a unit.
    pub fn parse(text: &str) -> Result<u64, BadUnit> {
        let bytes = super::parse(text, &SIZE_UNITS);
        bytes.ok_or_else(|| BadUnit::Size { text: text.chars().take(80).collect() })
    }

    /// The shortest text that [`parse`] reads as this size.
    pub fn format(bytes: u64) -> String {
        super::format(bytes, &SIZE_UNITS, "B")
    }

    /// # Errors
    /// That of the format.
    pub fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format(*bytes))
    }

    /// # Errors
    /// If it isn't a text that [`parse`] takes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        parse(&Cow::<'de, str>::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, size};

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, millis) in
            [("0ms", 0), ("500ms", 500), ("1s", 1_000), ("90s", 90_000), ("10 m", 600_000), ("2d", 172_800_000)]
        {
            assert_eq!(duration::parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for millis in [0, 1, 999, 1_000, 1_001, 60_000, 90_000, 3_600_000, 86_400_000, u64::MAX] {
            let text = duration::format(Duration::from_millis(millis));
            assert_eq!(duration::parse(&text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration::format(Duration::from_secs(60)), "1m");
    }

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in
            [("0B", 0), ("1MiB", 1 << 20), ("1MB", 1_000_000), ("64 KiB", 65_536), ("1kB", 1_000), ("1KB", 1_000)]
        {
            assert_eq!(size::parse(text), Ok(bytes), "{text}");
        }
        for bytes in [0, 1, 1_000, 1_024, 1_025, 1 << 20, 3 << 30, u64::MAX] {
            assert_eq!(size::parse(&size::format(bytes)), Ok(bytes));
        }
        assert_eq!(size::format(64 << 20), "64MiB");
    }

    #[test]
    fn what_is_no_duration_or_size_is_refused_with_an_example() {
        for text in [
            "",
            "1",
            "s",
            "-1s",
            "+1s",
            "1.5s",
            "1 hour",
            "1S",
            "1s ",
            " 1s",
            "1  s",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            let error = duration::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains("\"500ms\""), "{error}");
        }
        for text in ["", "1", "MiB", "-1B", "1.5MiB", "1mib", "1M", "64 MB ", "18446744073709551615KiB"] {
            let error = size::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains("\"64MiB\""), "{error}");
        }
    }
}
