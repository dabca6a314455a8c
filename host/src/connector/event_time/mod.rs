//! Event times out of the values of records: a field of JSON or a column of CSV, in one of the usual units.
//!
//! Invariant: an event time that was read is within 100,000,000 days of 1970 (as those of JavaScript are): far from the ends
//! of i64, which have meanings of their own, and what lies outside has probably another unit.

mod csv;
mod json;
mod unit;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use json::Pointer;
pub use unit::TimeUnit;

use super::{ConnectorError, Polled, Queued, SourceReader, SplitChange, SplitState};
use crate::element::{Batch, NO_TIMESTAMP};
use crate::id::{Name, SplitId};
use crate::telemetry::printable;
use unit::{BadTime, Number};

/// Of a value whose event time can't be read.
const VALUE_BYTES_SHOWN: usize = 80;

/// `[source.NAME.event_time]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTimeOptions {
    pub from: TimeFrom,
    pub unit: TimeUnit,
    pub on_missing: OnMissing,
}

/// Where the event time of a record is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimeFrom {
    /// With the record: what the source gives.
    #[default]
    Record,
    /// Nowhere, even if the source gives one.
    None,
    /// In the value, which is JSON.
    Json(Pointer),
    /// In the value, which is a line of columns; a column in double quotes may hold the separator.
    Csv { column: usize, separator: u8 },
}

/// What becomes of a record in whose value no event time is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// The source fails.
    #[default]
    Fail,
    /// It has none.
    None,
}

/// What was found at the place of an event time.
#[derive(Debug, PartialEq)]
enum Found<'a> {
    Number(Number),
    Text(Cow<'a, str>),
}

/// Why there is no event time.
#[derive(Debug, PartialEq, thiserror::Error)]
enum NoTime {
    #[error("has no value")]
    NoValue,
    #[error("has no event time: {0}")]
    Missing(String),
    #[error("has an event time that can't be read: {0}")]
    Bad(BadTime),
}

/// A source whose records get their event times from their values.
pub(super) struct TimedReader {
    reader: Box<dyn SourceReader>,
    name: Name,
    options: EventTimeOptions,
}

impl TimedReader {
    pub fn wrap(reader: Box<dyn SourceReader>, name: &Name, options: &EventTimeOptions) -> Box<dyn SourceReader> {
        match options.from {
            TimeFrom::Record => reader,
            TimeFrom::None | TimeFrom::Json(_) | TimeFrom::Csv { .. } => {
                Box::new(TimedReader { reader, name: name.clone(), options: options.clone() })
            }
        }
    }

    fn refused(&self, split: &SplitId, first_offset: u64, row: usize, batch: &Batch, why: &NoTime) -> ConnectorError {
        let value = String::from_utf8_lossy(batch.value(row).unwrap_or_default()).into_owned();
        let value = printable(&value, VALUE_BYTES_SHOWN);
        ConnectorError::Refused {
            name: self.name.clone(),
            problem: format!("record {row} from offset {first_offset} of split '{split}' {why}; it is '{value}'"),
            advice: match why {
                NoTime::Bad(BadTime::OutOfRange { .. }) => format!(
                    "set unit in [source.{0}.event_time] to the one that its numbers are in, or set on_missing = \"none\" there",
                    self.name
                ),
                NoTime::NoValue
                | NoTime::Missing(_)
                | NoTime::Bad(BadTime::NoNumber { .. } | BadTime::NoDate { .. }) => {
                    format!(
                        "correct the place of event times in [source.{0}.event_time], or set on_missing = \"none\" there",
                        self.name
                    )
                }
            },
        }
    }

    /// Writes the event times of a batch.
    fn apply(&self, split: &SplitId, first_offset: u64, batch: &mut Batch) -> Result<(), ConnectorError> {
        let mut timestamps = std::mem::take(&mut batch.timestamps);
        for (row, timestamp) in timestamps.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let time = match (self.options.event_time(batch.value(row)), self.options.on_missing) {
                (Ok(time), _) => time,
                (Err(_), OnMissing::None) => NO_TIMESTAMP,
                (Err(why), OnMissing::Fail) => {
                    return Err(self.refused(split, first_offset, row, batch, &why));
                }
            };
            *timestamp = time.to_le_bytes();
        }
        batch.timestamps = timestamps;
        Ok(())
    }
}

impl EventTimeOptions {
    /// The event time in a record's value, in milliseconds since the Unix epoch.
    fn event_time(&self, value: Option<&[u8]>) -> Result<i64, NoTime> {
        let found = match &self.from {
            TimeFrom::Record | TimeFrom::None => return Ok(NO_TIMESTAMP),
            TimeFrom::Json(pointer) => json::find(value.ok_or(NoTime::NoValue)?, pointer)?,
            TimeFrom::Csv { column, separator } => {
                let field = csv::column(value.ok_or(NoTime::NoValue)?, *separator, *column);
                let field = field.ok_or_else(|| NoTime::Missing(format!("there is no column {column}")))?;
                if field.is_empty() {
                    return Err(NoTime::Missing(format!("column {column} is empty")));
                }
                Found::Text(match field {
                    Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
                    Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
                })
            }
        };
        match found {
            Found::Number(number) => self.unit.number_ms(number),
            Found::Text(text) => self.unit.text_ms(&text),
        }
        .map_err(NoTime::Bad)
    }
}

impl SourceReader for TimedReader {
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        self.reader.restore(splits)
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        match self.reader.poll()? {
            Polled::Batch { split, first_offset, mut batch } => {
                self.apply(&split, first_offset, &mut batch)?;
                Ok(Polled::Batch { split, first_offset, batch })
            }
            other @ (Polled::Idle(_) | Polled::Ended) => Ok(other),
        }
    }

    fn snapshot(&self) -> Vec<SplitState> {
        self.reader.snapshot()
    }

    fn is_ahead(&self) -> bool {
        self.reader.is_ahead()
    }

    fn begun_splits(&self) -> Vec<SplitId> {
        self.reader.begun_splits()
    }

    fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
        self.reader.split_changes()
    }

    fn merges_splits(&self) -> bool {
        self.reader.merges_splits()
    }

    fn lag(&self) -> Option<u64> {
        self.reader.lag()
    }

    fn queued(&self) -> Option<Queued> {
        self.reader.queued()
    }
}
