//! The tables of a job file as serde reads them, with the ranges of their values.
//!
//! Invariant: every struct refuses unknown keys, and no default stands here: they are in `default.toml`.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::inputs::Inputs;
use crate::graph::Exchange;
use crate::id::Name;
use crate::units;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJob {
    pub name: Name,
    pub guarantee: Guarantee,
    #[serde(deserialize_with = "parallelism")]
    pub parallelism: u32,
    #[serde(deserialize_with = "parallelism")]
    pub max_parallelism: u32,
    #[serde(default, deserialize_with = "some_path")]
    pub state_dir: Option<PathBuf>,
}

/// What the output holds after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Every input record's effect once, whatever fails.
    ExactlyOnce,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCheckpoint {
    #[serde(deserialize_with = "interval")]
    pub interval: Duration,
    #[serde(deserialize_with = "min_pause")]
    pub min_pause: Duration,
    #[serde(deserialize_with = "interval")]
    pub timeout: Duration,
    #[serde(deserialize_with = "retain")]
    pub retain: u32,
    #[serde(default, deserialize_with = "some_path")]
    pub store: Option<PathBuf>,
}

/// The keys of a source that don't depend on its type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSource {
    #[serde(default, deserialize_with = "some_parallelism")]
    pub parallelism: Option<u32>,
}

pub(super) const SOURCE_KEYS: [&str; 1] = ["parallelism"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOperator {
    #[serde(deserialize_with = "path")]
    pub wasm: PathBuf,
    #[serde(default)]
    pub input: Option<Inputs>,
    #[serde(default)]
    pub inputs: Option<Inputs>,
    #[serde(default, deserialize_with = "some_parallelism")]
    pub parallelism: Option<u32>,
    #[serde(default)]
    pub exchange: Option<Exchange>,
    pub limits: RawLimits,
    /// Taken out before the rest is read; here so that it is among the known keys.
    #[serde(default, rename = "config")]
    _config: Option<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    #[serde(deserialize_with = "memory_limit")]
    pub memory: u64,
    #[serde(deserialize_with = "call_limit")]
    pub call: Duration,
    #[serde(deserialize_with = "output_limit")]
    pub output: u64,
    #[serde(deserialize_with = "state_memory_limit")]
    pub state_memory: u64,
}

/// The keys of a sink that don't depend on its type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSink {
    #[serde(default)]
    pub input: Option<Inputs>,
    #[serde(default)]
    pub inputs: Option<Inputs>,
    #[serde(default, deserialize_with = "some_parallelism")]
    pub parallelism: Option<u32>,
}

pub(super) const SINK_KEYS: [&str; 3] = ["input", "inputs", "parallelism"];

/// A path that leads somewhere.
fn path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    match String::deserialize(from)? {
        empty if empty.is_empty() => Err(D::Error::custom("the path is empty")),
        text if text.contains('\0') => Err(D::Error::custom("no path can hold a NUL")),
        text => Ok(PathBuf::from(text)),
    }
}

fn some_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    path(from).map(Some)
}

fn within<T: PartialOrd, E: serde::de::Error>(value: T, least: T, most: T, say: fn(&T) -> String) -> Result<T, E> {
    if least <= value && value <= most {
        Ok(value)
    } else {
        let (value, least, most) = (say(&value), say(&least), say(&most));
        Err(E::custom(format_args!("{value} is outside of {least} to {most}")))
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

/// Key groups have 16 bits, and 32,768 is the most there can be.
fn parallelism<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    within(i64::deserialize(from)?, 1, 32_768, number).map(|number| number as u32)
}

fn some_parallelism<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    parallelism(from).map(Some)
}

fn retain<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    within(i64::deserialize(from)?, 1, 1_000, number).map(|number| number as u32)
}

const DAY: Duration = Duration::from_secs(86_400);

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    within(units::duration::deserialize(from)?, Duration::from_millis(1), 30 * DAY, time)
}

fn min_pause<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    within(units::duration::deserialize(from)?, Duration::ZERO, 30 * DAY, time)
}

/// Less than a megabyte holds no guest's stack; a 32-bit memory has no more than four gigabytes.
fn memory_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(units::size::deserialize(from)?, 1 << 20, 4 << 30, bytes)
}

/// What a call writes has to fit; more than 2 GiB no offset reaches.
fn state_memory_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(units::size::deserialize(from)?, 64 << 10, 2 << 30, bytes)
}

/// A call can only be ended at a tick of the engine's clock, which are 10 ms apart.
fn call_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    within(units::duration::deserialize(from)?, Duration::from_millis(10), DAY, time)
}

/// Offsets in a batch have 32 bits.
fn output_limit<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(units::size::deserialize(from)?, 1 << 10, 4 << 30, bytes)
}
