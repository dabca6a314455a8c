//! What an operator may do and know when it is opened.
//!
//! Invariant: nothing of it changes while the operator lives.

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::host::{Host, Level};
use crate::state::Cache;

/// Where an operator stands in its job, and its configuration.
pub struct OpenContext<'a> {
    pub(crate) host: &'a mut dyn Host,
    pub(crate) cache: &'a mut Cache,
    pub(crate) place: &'a Place,
}

/// `context` of the contract: where an instance stands in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub job: String,
    pub operator: String,
    /// 0 .. parallelism
    pub subtask: u32,
    pub parallelism: u32,
    /// A JSON object.
    pub config: String,
    /// Whether bad records are rejected one by one; if not, one fails its call.
    pub rejections: bool,
}

impl OpenContext<'_> {
    pub fn job(&self) -> &str {
        &self.place.job
    }

    /// The operator's name in the job.
    pub fn operator(&self) -> &str {
        &self.place.operator
    }

    /// Which of the parallel instances this is: `0 .. parallelism`.
    pub fn subtask(&self) -> u32 {
        self.place.subtask
    }

    pub fn parallelism(&self) -> u32 {
        self.place.parallelism
    }

    /// The operator's `config` table of the job file.
    ///
    /// ```
    /// use lockgate::prelude::*;
    ///
    /// #[derive(Default, serde::Deserialize)]
    /// #[serde(deny_unknown_fields, default)]
    /// struct Config {
    ///     separator: String,
    /// }
    ///
    /// struct Join {
    ///     config: Config,
    /// }
    ///
    /// impl Operator for Join {
    ///     fn new(_: &mut Declaration) -> Join {
    ///         Join { config: Config::default() }
    ///     }
    ///
    ///     fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
    ///         self.config = ctx.config()?;
    ///         Ok(())
    ///     }
    ///
    ///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
    ///         ctx.emit_fmt(record.key(), format_args!("{}{}", self.config.separator, record.value_str()?));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut harness = lockgate::testing::Harness::<Join>::open_with(r#"{"separator": "; "}"#)?;
    /// harness.process([("k", "v")])?;
    /// assert_eq!(harness.take_output(), [("k", "; v")]);
    /// assert!(lockgate::testing::Harness::<Join>::open_with(r#"{"seperator": "; "}"#).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the table isn't a `C`: fatal, with what is wrong.
    pub fn config<C: DeserializeOwned>(&self) -> Result<C, Error> {
        serde_json::from_str(&self.place.config).map_err(|error| Error::fatal(error).context("config"))
    }

    /// Limits the memory of the state cache, 64 MiB by default and 1 MiB at least. The job's memory limit must leave room
    /// for it.
    pub fn limit_cache(&mut self, bytes_max: usize) {
        self.cache.limit(bytes_max);
    }

    /// Writes a line to the host's log.
    pub fn log(&mut self, level: Level, message: impl AsRef<str>) {
        self.host.log(level, message.as_ref());
    }
}
