//! The ranges of values in a job file.
//!
//! Invariant: what is outside of its range is refused with the range, and with what the value means.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::job_file::Component;
use crate::config::problem::with_help;
use crate::guest::Limits;
use crate::id::PluginHash;
use crate::units;

/// A path that leads somewhere.
pub(super) fn path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    match String::deserialize(from)? {
        empty if empty.is_empty() => Err(D::Error::custom(with_help("the path is empty", "name a file or folder"))),
        text if text.contains('\0') => Err(D::Error::custom(with_help("no path can hold a NUL", "remove the NUL"))),
        text => Ok(PathBuf::from(text)),
    }
}

/// The path of a component, or the hash of a plugin.
pub(super) fn component<'de, D: Deserializer<'de>>(from: D) -> Result<Component, D::Error> {
    let path = path(from)?;
    let Some(digits) = path.to_str().and_then(|text| text.strip_prefix(PluginHash::PREFIX)) else {
        return Ok(Component::File(path));
    };
    let help = "a plugin of a daemon is \"sha256:\" and the digits that its upload gave; a file of such a name is ./sha256:...";
    PluginHash::new(digits).map(Component::Plugin).map_err(|bad| D::Error::custom(with_help(&bad.to_string(), help)))
}

pub(super) fn some_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    path(from).map(Some)
}

/// A value, and how it is said.
struct Range<T> {
    least: T,
    most: T,
    say: fn(&T) -> String,
    /// What the value is, for somebody who has set a wrong one.
    help: &'static str,
}

impl<T: PartialOrd> Range<T> {
    fn check<E: serde::de::Error>(&self, value: T) -> Result<T, E> {
        if self.least <= value && value <= self.most {
            return Ok(value);
        }
        let (value, least, most) = ((self.say)(&value), (self.say)(&self.least), (self.say)(&self.most));
        Err(E::custom(with_help(&format!("{value} is outside of {least} to {most}"), self.help)))
    }
}

fn number<T: Display>(value: &T) -> String {
    value.to_string()
}

fn time(value: &Duration) -> String {
    units::duration::format(*value)
}

fn bytes(value: &u64) -> String {
    units::size::format(*value)
}

fn whole<'de, D: Deserializer<'de>>(from: D, least: i64, most: i64, help: &'static str) -> Result<u32, D::Error> {
    Range { least, most, say: number, help }.check(i64::deserialize(from)?).map(|number| number as u32)
}

fn duration<'de, D: Deserializer<'de>>(
    from: D,
    least: Duration,
    most: Duration,
    help: &'static str,
) -> Result<Duration, D::Error> {
    Range { least, most, say: time, help }.check(units::duration::deserialize(from)?)
}

fn size<'de, D: Deserializer<'de>>(from: D, least: u64, most: u64, help: &'static str) -> Result<u64, D::Error> {
    Range { least, most, say: bytes, help }.check(units::size::deserialize(from)?)
}

fn share<'de, D: Deserializer<'de>>(from: D, least: f64, most: f64, help: &'static str) -> Result<f64, D::Error> {
    Range { least, most, say: number, help }.check(f64::deserialize(from)?)
}

/// Key groups have 16 bits, and 32,768 is the most there can be.
pub(super) fn parallelism<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1, 32_768, "it counts subtasks that work side by side: 1 for one, or as many as there are processors")
}

pub(super) fn some_parallelism<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    parallelism(from).map(Some)
}

pub(super) fn max_parallelism<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1, 32_768, "it is the most that a parallelism can ever be; 128 suits most jobs")
}

pub(super) fn retain<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1, 1_000, "it counts checkpoints that are kept; a job needs the newest one, and 3 is the default")
}

pub(super) fn max_concurrent<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1, 16, "it counts checkpoints that may be under way at once; 1 is the default")
}

pub(super) fn attempts<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1, 1_000_000, "it counts restarts in a row; for none at all set strategy = \"none\"")
}

const DAY: Duration = Duration::from_secs(86_400);
const MILLISECOND: Duration = Duration::from_millis(1);

pub(super) fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let help = "checkpoints can't be taken without a pause; \"1s\" is the default, and output appears at each of them";
    duration(from, MILLISECOND, 30 * DAY, help)
}

pub(super) fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(from, MILLISECOND, 30 * DAY, "a checkpoint needs some time; \"10m\" is the default")
}

/// May be nothing.
pub(super) fn pause<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(from, Duration::ZERO, 30 * DAY, "\"0ms\" is the least, thirty days are the most")
}

pub(super) fn delay<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(from, Duration::ZERO, DAY, "a job that failed is started again within a day, or at once with \"0ms\"")
}

pub(super) fn reset_after<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let help =
        "it is how long a job must run without a failure for its restarts to be counted anew; \"10m\" is the default";
    duration(from, MILLISECOND, 30 * DAY, help)
}

pub(super) fn multiplier<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    share(from, 1.0, 100.0, "delays grow by it from restart to restart; 2.0 doubles them")
}

pub(super) fn jitter<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    share(from, 0.0, 1.0, "it is the share by which a delay is made longer or shorter by chance; 0.1 is a tenth")
}

/// Less than a megabyte holds no guest's stack; a 32-bit memory has no more than four gigabytes.
pub(super) fn memory_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    size(from, 1 << 20, 4 << 30, "an operator needs a megabyte for its stack, and a Wasm memory has at most 4GiB")
}

/// What a call writes has to fit; more than 2 GiB no offset reaches.
pub(super) fn state_memory_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    size(from, 64 << 10, 2 << 30, "it holds what one call changes, and is merged into files when it is full")
}

/// A call can only be ended at a tick of the engine's clock, which are 10 ms apart.
pub(super) fn call_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(from, Duration::from_millis(10), DAY, "calls are timed in steps of 10ms; \"10s\" is the default")
}

pub(super) fn capsules<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 0, 1_000, "it counts files of failures that can be replayed; 10 is the default, and 0 means none")
}

/// Offsets in a batch have 32 bits.
pub(super) fn output_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    size(from, 1 << 10, 4 << 30, "it is what one call may emit; \"64MiB\" is the default")
}

/// A table of functions; the runtimes of whole languages have tens of thousands.
pub(super) fn tables_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(
        from,
        1,
        i64::from(Limits::TABLE_ELEMENTS_MAX),
        "it counts the elements of an operator's tables, eight bytes each; 200000 is the default",
    )
}

pub(super) fn instances_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(
        from,
        1,
        i64::from(Limits::CORE_INSTANCES_MAX),
        "it counts the core modules that a component is made of; 100 is the default",
    )
}

/// Threads have two megabytes unless they are told otherwise, and the host needs some of it.
pub(super) fn stack_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    size(from, 64 << 10, 1 << 20, "it is for calls within the operator, in steps of 64KiB; \"512KiB\" is the default")
}

/// None at all is allowed.
pub(super) fn log_rate_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 0, 1_000_000, "it is how many lines a subtask may log in a second; 100 is the default, 0 is none")
}

pub(super) fn state_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    size(from, 1 << 20, 1 << 50, "it is what the keyed state of one subtask may take; \"64GiB\" is the default")
}
