//! `[source.NAME.event_time]` and `[source.NAME.watermark]`.
//!
//! Invariant: what is needed for the way that is chosen is there, and a watermark has event times to be made from.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::problem::Problem;
use crate::config::ranges;
use crate::connector::{EventTimeOptions, OnMissing, Pointer, SourceOptions, TimeFrom, TimeUnit};
use crate::protocol::{WatermarkOptions, WatermarkStrategy};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEventTime {
    from: RawFrom,
    #[serde(default)]
    field: Option<RawPointer>,
    #[serde(default)]
    column: Option<u32>,
    #[serde(deserialize_with = "separator")]
    separator: u8,
    unit: TimeUnit,
    on_missing: OnMissing,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawFrom {
    Record,
    None,
    Json,
    Csv,
}

struct RawPointer(Pointer);

impl<'de> Deserialize<'de> for RawPointer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<RawPointer, D::Error> {
        String::deserialize(from)?.parse().map(RawPointer).map_err(D::Error::custom)
    }
}

/// One character that is one byte, and can't be part of a number or a quoted column.
fn separator<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() && !matches!(byte, b'"' | b'-' | b'.') => Ok(*byte),
        [byte @ (b'\t' | b' ')] => Ok(*byte),
        _ => Err(D::Error::custom(format_args!(
            "'{}' can't separate columns: take a single character such as \",\", \";\" or \"\\t\"",
            text.chars().take(20).flat_map(char::escape_debug).collect::<String>()
        ))),
    }
}

impl RawEventTime {
    pub fn options(self) -> Result<EventTimeOptions, Problem> {
        let from = match self.from {
            RawFrom::Record => TimeFrom::Record,
            RawFrom::None => TimeFrom::None,
            RawFrom::Json => TimeFrom::Json(self.field.ok_or_else(|| Problem::missing_key("field", &[]))?.0),
            RawFrom::Csv => {
                let column = self.column.ok_or_else(|| Problem::missing_key("column", &[]))?;
                TimeFrom::Csv { column: column as usize, separator: self.separator }
            }
        };
        Ok(EventTimeOptions { from, unit: self.unit, on_missing: self.on_missing })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWatermark {
    strategy: RawStrategy,
    #[serde(deserialize_with = "ranges::pause")]
    max_out_of_orderness: Duration,
    #[serde(deserialize_with = "ranges::pause")]
    idle_timeout: Duration,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawStrategy {
    None,
    Monotonous,
    Bounded,
}

impl RawWatermark {
    pub fn options(&self) -> WatermarkOptions {
        let strategy = match self.strategy {
            RawStrategy::None => WatermarkStrategy::None,
            RawStrategy::Monotonous => WatermarkStrategy::Monotonous,
            RawStrategy::Bounded => WatermarkStrategy::Bounded { max_out_of_orderness: self.max_out_of_orderness },
        };
        let idle_timeout = (!self.idle_timeout.is_zero()).then_some(self.idle_timeout);
        WatermarkOptions { strategy, idle_timeout }
    }
}

/// Whether there are event times to make watermarks from.
pub(super) fn check(
    options: &SourceOptions,
    event_time: &EventTimeOptions,
    watermarks: WatermarkOptions,
) -> Result<(), Problem> {
    let has_times = match event_time.from {
        TimeFrom::Record => options.has_event_times(),
        TimeFrom::None => false,
        TimeFrom::Json(_) | TimeFrom::Csv { .. } => true,
    };
    match watermarks.strategy {
        WatermarkStrategy::Monotonous | WatermarkStrategy::Bounded { .. } if !has_times => {
            let problem = Problem::invalid("its records have no event times to make watermarks from".to_owned());
            let help = "say in its event_time table where they are, for example from = \"json\" and field = \"/time\"";
            Err(problem.with_help(help).inside("watermark"))
        }
        WatermarkStrategy::None | WatermarkStrategy::Monotonous | WatermarkStrategy::Bounded { .. } => Ok(()),
    }
}
