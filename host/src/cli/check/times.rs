//! What each source does for event time, in words.
//!
//! Invariant: it says what holds, defaults included.

use serde::Serialize;

use crate::config::SourceConfig;
use crate::connector::{EventTimeOptions, SourceOptions, TimeFrom, TimeUnit};
use crate::protocol::{WatermarkOptions, WatermarkStrategy};
use crate::units::duration;

#[derive(Debug, Serialize)]
pub(super) struct TimeReport {
    pub source: String,
    pub event_time: String,
    pub watermark: String,
}

impl TimeReport {
    pub fn new(name: &str, source: &SourceConfig) -> TimeReport {
        TimeReport {
            source: name.to_owned(),
            event_time: event_time(&source.event_time, &source.options),
            watermark: watermark(source.watermarks),
        }
    }
}

fn event_time(event_time: &EventTimeOptions, options: &SourceOptions) -> String {
    let unit = match event_time.unit {
        TimeUnit::Ms => "ms",
        TimeUnit::S => "s",
        TimeUnit::Us => "us",
        TimeUnit::Rfc3339 => "rfc3339",
    };
    match &event_time.from {
        TimeFrom::Record if options.has_event_times() => "that of its records".to_owned(),
        TimeFrom::Record | TimeFrom::None => "none".to_owned(),
        TimeFrom::Json(pointer) => format!("json {pointer} ({unit})"),
        TimeFrom::Csv { column, .. } => format!("csv column {column} ({unit})"),
    }
}

fn watermark(watermarks: WatermarkOptions) -> String {
    let strategy = match watermarks.strategy {
        WatermarkStrategy::None => "none".to_owned(),
        WatermarkStrategy::Monotonous => "monotonous".to_owned(),
        WatermarkStrategy::Bounded { max_out_of_orderness } => {
            format!("{} behind", duration::format(max_out_of_orderness))
        }
    };
    match watermarks.idle_timeout {
        Some(timeout) => format!("{strategy}, idle after {}", duration::format(timeout)),
        None => format!("{strategy}, never idle"),
    }
}
