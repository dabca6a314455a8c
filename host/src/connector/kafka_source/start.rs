//! Where a source begins that no checkpoint knows.
//!
//! Invariant: what is read here is one of these, with a time or offsets that are some.

use std::collections::BTreeMap;
use std::fmt;

use chrono::DateTime;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::connector::BadOption;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the first record there is.
    #[default]
    Earliest,
    /// Behind the last record there is.
    Latest,
    /// At the offsets that the group has committed; at the first record of a partition for which it has none.
    Committed,
    /// At the first record whose timestamp isn't before this one, in milliseconds since the Unix epoch.
    Timestamp { ms: i64 },
    /// At these, by topic and partition; at the first record of a partition that isn't named.
    Offsets(BTreeMap<String, BTreeMap<i32, u64>>),
}

const FORMS: &str = "\"earliest\", \"latest\", \"committed\", { timestamp = \"2026-01-01T00:00:00Z\" } or \
                     { offsets = { TOPIC = { \"0\" = 17 } } }";

impl Start {
    /// # Errors
    /// If offsets are of a topic that isn't read. `topics`: none if a pattern selects them.
    pub(super) fn validate(&self, topics: &[String]) -> Result<(), BadOption> {
        match self {
            Start::Offsets(offsets) if !topics.is_empty() => {
                let stranger = offsets.keys().find(|topic| !topics.contains(topic));
                let refused =
                    |topic: &String| BadOption::new("start", format!("'{topic}'"), "topics doesn't name this topic");
                stranger.map(refused).map_or(Ok(()), Err)
            }
            Start::Earliest | Start::Latest | Start::Committed | Start::Timestamp { .. } | Start::Offsets(_) => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Start, D::Error> {
        from.deserialize_any(StartVisitor)
    }
}

struct StartVisitor;

impl<'de> Visitor<'de> for StartVisitor {
    type Value = Start;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMS)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Start, E> {
        match text {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            "committed" => Ok(Start::Committed),
            other => {
                let other = other.chars().take(40).flat_map(char::escape_debug).collect::<String>();
                Err(E::custom(format_args!("'{other}' is no place to start: write {FORMS}")))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Start, A::Error> {
        let none = || A::Error::custom(format_args!("write one of {FORMS}"));
        let start = match entries.next_key::<String>()?.as_deref() {
            Some("timestamp") => Start::Timestamp { ms: entries.next_value::<Time>()?.0 },
            Some("offsets") => {
                let offsets = entries.next_value::<BTreeMap<String, BTreeMap<Index, u64>>>()?;
                let by_number =
                    |of: BTreeMap<Index, u64>| of.into_iter().map(|(Index(index), offset)| (index, offset)).collect();
                Start::Offsets(offsets.into_iter().map(|(topic, of)| (topic, by_number(of))).collect())
            }
            Some(_) | None => return Err(none()),
        };
        match entries.next_key::<String>()? {
            None => Ok(start),
            Some(_) => Err(none()),
        }
    }
}

/// A date and time in RFC 3339.
struct Time(i64);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        let text = String::deserialize(from)?;
        let date = DateTime::parse_from_rfc3339(text.trim()).ok().map(|date| date.timestamp_millis());
        date.filter(|ms| *ms >= 0).map(Time).ok_or_else(|| {
            let text = text.chars().take(40).flat_map(char::escape_debug).collect::<String>();
            D::Error::custom(format_args!(
                "'{text}' is no date and time since 1970 with an offset, such as 2026-01-01T00:00:00Z"
            ))
        })
    }
}

/// The number of a partition, which is a key of a table and so a text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Index(i32);

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Index, D::Error> {
        let text = String::deserialize(from)?;
        let index = text.parse().ok().filter(|index| *index >= 0);
        index.map(Index).ok_or_else(|| D::Error::custom(format_args!("'{text}' is no number of a partition")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Table {
        start: Start,
    }

    fn start(text: &str) -> Result<Start, String> {
        toml::from_str::<Table>(&format!("start = {text}")).map(|table| table.start).map_err(|error| error.to_string())
    }

    #[test]
    fn each_form_is_read() {
        assert_eq!(start("'earliest'"), Ok(Start::Earliest));
        assert_eq!(start("'latest'"), Ok(Start::Latest));
        assert_eq!(start("'committed'"), Ok(Start::Committed));
        assert_eq!(start("{ timestamp = '1970-01-01T01:00:01+01:00' }"), Ok(Start::Timestamp { ms: 1_000 }));
        let offsets = BTreeMap::from([("orders".to_owned(), BTreeMap::from([(0, 17), (3, 0)]))]);
        assert_eq!(start("{ offsets = { orders = { '0' = 17, 3 = 0 } } }"), Ok(Start::Offsets(offsets)));
    }

    #[test]
    fn anything_else_is_refused_with_the_forms_there_are() {
        for text in ["'first'", "17", "{}", "{ offset = 1 }", "{ timestamp = '2026-01-01T00:00:00Z', offsets = {} }"] {
            let error = start(text).expect_err(text);
            assert!(error.contains("\"earliest\"") && error.contains("offsets = {"), "{error}");
        }
        for (text, says) in [
            ("{ timestamp = 'yesterday' }", "'yesterday' is no date"),
            ("{ timestamp = '1960-01-01T00:00:00Z' }", "since 1970"),
            ("{ offsets = { orders = { a = 1 } } }", "'a' is no number of a partition"),
            ("{ offsets = { orders = { '-1' = 1 } } }", "'-1' is no number"),
            ("{ offsets = { orders = { '0' = -1 } } }", "-1"),
        ] {
            let error = start(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn offsets_are_of_topics_that_are_read() {
        let offsets = start("{ offsets = { a = { 0 = 1 } } }").expect("offsets");
        assert_eq!(offsets.validate(&["a".to_owned()]), Ok(()));
        assert_eq!(offsets.validate(&[]), Ok(()));
        assert_eq!(offsets.validate(&["b".to_owned()]).expect_err("another topic").key, "start");
    }
}
