//! What a job file says of sources and sinks, in their own words, and how they are opened from it.
//!
//! The options of a table are what is left of it when the job has taken its own keys (`parallelism`, `input`). Every key has
//! its default here, at the `default` functions of its type.
//!
//! Invariant: a key that the type doesn't know is an error, and options that were opened have been validated.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::event_time::{EventTimeOptions, TimedReader};
use super::file_sink::{self, FileSinkOptions};
use super::file_source::{self, FileReader, FileSourceOptions};
use super::generator::{EventTime, GeneratorOptions, GeneratorReader};
use super::kafka_sink::{self, KafkaSinkOptions};
use super::kafka_source::{self, KafkaReader, KafkaReporter, KafkaSourceOptions};
use super::nexmark::{NexmarkOptions, NexmarkReader};
use super::null_sink::NullSinkOptions;
use super::{ConnectorContext, ConnectorError, ProgressReporter, SourceReader};
use crate::id::Name;
use crate::protocol::Guarantee;

/// `[source.NAME]`, by its `type`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SourceOptions {
    File(FileSourceOptions),
    Generator(GeneratorOptions),
    Kafka(KafkaSourceOptions),
    Nexmark(NexmarkOptions),
}

/// `[sink.NAME]`, by its `type`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SinkOptions {
    File(FileSinkOptions),
    Kafka(KafkaSinkOptions),
    Null(NullSinkOptions),
}

impl SourceOptions {
    /// Makes paths relative to `base` (the folder of the job file) usable from anywhere.
    pub fn resolve(&mut self, base: &Path) {
        match self {
            SourceOptions::File(options) => resolve(&mut options.path, base),
            SourceOptions::Kafka(options) => options.resolve(base),
            SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => {}
        }
    }

    /// # Errors
    /// Says which key has a value that can't be used.
    pub fn validate(&self) -> Result<(), BadOption> {
        match self {
            SourceOptions::File(options) => options.validate(),
            SourceOptions::Generator(options) => options.validate(),
            SourceOptions::Kafka(options) => options.validate(),
            SourceOptions::Nexmark(options) => options.validate(),
        }
    }

    /// Whether its records have event times of their own.
    pub fn has_event_times(&self) -> bool {
        match self {
            SourceOptions::File(_) => false,
            SourceOptions::Generator(options) => match options.event_time {
                EventTime::None => false,
                EventTime::Id => true,
            },
            SourceOptions::Kafka(_) | SourceOptions::Nexmark(_) => true,
        }
    }

    /// Whether a split of it may fall silent for ever while others go on.
    pub fn has_silent_splits(&self) -> bool {
        match self {
            SourceOptions::File(options) => !options.is_bounded(),
            SourceOptions::Kafka(options) => !options.is_bounded(),
            // Their splits are read in one order.
            SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => false,
        }
    }

    /// Whether the source ends by itself.
    pub fn is_bounded(&self) -> bool {
        match self {
            SourceOptions::File(options) => options.is_bounded(),
            SourceOptions::Generator(options) => options.count.is_some(),
            SourceOptions::Kafka(options) => options.is_bounded(),
            SourceOptions::Nexmark(options) => options.count.is_some(),
        }
    }
}

impl SinkOptions {
    /// As [`SourceOptions::resolve`].
    pub fn resolve(&mut self, base: &Path) {
        match self {
            SinkOptions::File(options) => resolve(&mut options.path, base),
            SinkOptions::Kafka(options) => options.resolve(base),
            SinkOptions::Null(_) => {}
        }
    }

    /// As [`SourceOptions::validate`].
    ///
    /// # Errors
    /// Says which key has a value that can't be used.
    pub fn validate(&self) -> Result<(), BadOption> {
        match self {
            SinkOptions::File(options) => options.validate(),
            SinkOptions::Kafka(options) => options.validate(),
            SinkOptions::Null(options) => options.validate(),
        }
    }
}

/// An empty path stays one, so that it can still be refused.
fn resolve(path: &mut PathBuf, base: &Path) {
    if !path.as_os_str().is_empty() {
        *path = base.join(&*path);
    }
}

/// A key of a source or sink with a value that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value} can't be used: {reason}")]
pub struct BadOption {
    pub key: &'static str,
    pub value: String,
    pub reason: Cow<'static, str>,
    /// What to do, where the reason doesn't say it.
    pub help: Option<String>,
}

impl BadOption {
    pub(super) fn new(key: &'static str, value: impl ToString, reason: impl Into<Cow<'static, str>>) -> BadOption {
        BadOption { key, value: value.to_string(), reason: reason.into(), help: None }
    }

    /// Says what to do.
    #[must_use]
    pub(super) fn with_help(self, help: impl Into<String>) -> BadOption {
        BadOption { help: Some(help.into()), ..self }
    }

    pub(super) fn refused(self, ctx: &ConnectorContext) -> ConnectorError {
        ConnectorError::Refused {
            name: ctx.name.clone(),
            problem: self.to_string(),
            advice: self.help.unwrap_or_else(|| format!("correct '{}' in the job file", self.key)),
        }
    }
}

/// Opens one subtask of a source, whose records get their event times as `event_time` says. Reads nothing yet but makes sure that there is something to read from.
///
/// # Errors
/// If the options or what they name can't be used.
pub fn open_source(
    options: &SourceOptions,
    event_time: &EventTimeOptions,
    ctx: &ConnectorContext,
    subtask: u32,
) -> Result<Box<dyn SourceReader>, ConnectorError> {
    assert!(subtask < ctx.parallelism, "subtask {subtask} of {}", ctx.parallelism);
    options.validate().map_err(|bad| bad.refused(ctx))?;
    let reader: Box<dyn SourceReader> = match options {
        SourceOptions::File(options) => Box::new(FileReader::open(options, ctx, subtask)?),
        SourceOptions::Generator(options) => Box::new(GeneratorReader::open(options, ctx, subtask)?),
        SourceOptions::Kafka(options) => Box::new(KafkaReader::open(options, ctx, subtask)?),
        SourceOptions::Nexmark(options) => Box::new(NexmarkReader::open(options, ctx, subtask)?),
    };
    Ok(TimedReader::wrap(reader, &ctx.name, event_time))
}

/// Opens what tells others how far a source has got, if there is anybody to be told.
///
/// # Errors
/// If the options can't be used.
pub fn open_reporter(
    options: &SourceOptions,
    ctx: &ConnectorContext,
) -> Result<Option<Box<dyn ProgressReporter>>, ConnectorError> {
    match options {
        SourceOptions::Kafka(options) => Ok(Some(Box::new(KafkaReporter::open(options, ctx)?))),
        SourceOptions::File(_) | SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => Ok(None),
    }
}

/// Finds out whether a source will be able to read, without reading a record.
///
/// # Errors
/// If what it names isn't there or can't be read.
pub fn preview_source(options: &SourceOptions, name: &Name) -> Result<(), ConnectorError> {
    match options {
        SourceOptions::File(options) => file_source::preview(options, name),
        SourceOptions::Kafka(options) => kafka_source::preview(options, name),
        SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => Ok(()),
    }
}

/// Finds out whether a sink will be let into its output, without touching it.
///
/// # Errors
/// If it belongs to another job or sink, or its settings can't be used.
pub fn preview_sink(options: &SinkOptions, ctx: &ConnectorContext, guarantee: Guarantee) -> Result<(), ConnectorError> {
    match options {
        SinkOptions::File(options) => file_sink::preview(options, ctx),
        // Its cluster is only asked if the user asks for it.
        SinkOptions::Kafka(options) => kafka_sink::preview(options, &ctx.job, &ctx.name, guarantee),
        SinkOptions::Null(_) => Ok(()),
    }
}

/// Finds out whether a source can begin, from what its cluster says; none is asked for the others. Changes nothing.
///
/// # Errors
/// What the source would say.
pub fn check_source(options: &SourceOptions, name: &Name, job: &Name) -> Result<(), ConnectorError> {
    match options {
        SourceOptions::Kafka(options) => kafka_source::check_beginning(options, name, job),
        SourceOptions::File(_) | SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => Ok(()),
    }
}

/// As [`check_source`], whether a sink has somewhere to write to.
///
/// # Errors
/// What the sink would say.
pub fn check_sink(options: &SinkOptions, name: &Name) -> Result<(), ConnectorError> {
    match options {
        SinkOptions::Kafka(options) => kafka_sink::check_topic(options, name),
        SinkOptions::File(_) | SinkOptions::Null(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Result<SourceOptions, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn a_source_is_read_from_its_table_with_its_defaults() {
        let mut options =
            source("type = 'file'\npath = 'in/*.txt'\nmode = 'bounded'\nmax_line = '2MiB'").expect("file");
        options.resolve(Path::new("/jobs"));
        let SourceOptions::File(file) = &options else { panic!("a file source") };
        assert_eq!(file.path, Path::new("/jobs/in/*.txt"));
        assert_eq!((file.max_line, file.settle.as_secs()), (2 << 20, 2));
        assert!(options.is_bounded());
        assert!(!source("type = 'generator'").expect("all defaults").is_bounded());
        assert!(source("type = 'nexmark'\ncount = 5").expect("bounded").is_bounded());
    }

    #[test]
    fn unknown_keys_and_types_are_refused_with_what_is_known() {
        let error = source("type = 'file'\npath = 'x'\nmaxline = '1MiB'").expect_err("a misspelt key").to_string();
        assert!(error.contains("maxline") && error.contains("max_line"), "{error}");
        let error = source("type = 'kafak'").expect_err("an unknown type").to_string();
        assert!(error.contains("kafak") && error.contains("nexmark"), "{error}");
        let error = toml::from_str::<SinkOptions>("type = 'null'\npath = 'x'").expect_err("a key of another sink");
        assert!(error.to_string().contains("path"), "{error}");
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_key() {
        for (text, key) in [
            ("type = 'file'\npath = ''", "path"),
            ("type = 'file'\npath = 'x'\nmax_line = '0B'", "max_line"),
            ("type = 'file'\npath = 'x'\nmax_line = '2GiB'", "max_line"),
            ("type = 'generator'\nsplits = 0", "splits"),
            ("type = 'generator'\nkeys = 0", "keys"),
            ("type = 'generator'\nkeys = 10000000001", "keys"),
            ("type = 'generator'\ncount = 1000000000001", "count"),
            ("type = 'generator'\nrate = 0", "rate"),
            ("type = 'generator'\nkind = 'words'\nvocabulary = 0", "vocabulary"),
            ("type = 'generator'\nkind = 'words'\nkeyed = true", "keyed"),
            ("type = 'kafka'\nbrokers = ''\ntopics = ['a']", "brokers"),
            ("type = 'kafka'\nbrokers = 'a:1'", "topics"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a/b']", "topics"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a', 'b', 'a']", "topics"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\ntopic_pattern = 'a'", "topic_pattern"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopic_pattern = '('", "topic_pattern"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\ngroup = ''", "group"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\nbuffer = '1KiB'", "buffer"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\ndiscover_interval = '0s'", "discover_interval"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\nstart = { offsets = { b = { 0 = 1 } } }", "start"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\nproperties_file = ''", "properties_file"),
            ("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['a']\nproperties = { 'group.id' = 'g' }", "properties"),
            ("type = 'nexmark'\nsplits = 100000", "splits"),
            ("type = 'nexmark'\nevent_rate = 0", "event_rate"),
        ] {
            assert_eq!(source(text).expect("parses").validate().expect_err(text).key, key);
        }
        for (text, key) in [
            ("type = 'file'\npath = ''", "path"),
            ("type = 'file'\npath = 'x'\nextension = '../x'", "extension"),
            ("type = 'file'\npath = 'x'\nroll_size = '1B'", "roll_size"),
            ("type = 'null'\nrate = 0", "rate"),
        ] {
            assert_eq!(toml::from_str::<SinkOptions>(text).expect("parses").validate().expect_err(text).key, key);
        }
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused_without_a_cluster() {
        let name = Name::new("out").expect("a name");
        let sink = |properties: &str| {
            let text = format!("type = 'kafka'\nbrokers = 'a:1'\ntopic = 'out'\nproperties = {{ {properties} }}");
            let options = toml::from_str::<SinkOptions>(&text).expect("parses");
            for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
                preview_sink(&options, &super::super::test_ctx("out", 1), guarantee)?;
            }
            Ok(())
        };
        let source = |properties: &str| {
            let text = format!("type = 'kafka'\nbrokers = 'a:1'\ntopics = ['in']\nproperties = {{ {properties} }}");
            preview_source(&source(&text).expect("parses"), &name)
        };
        for properties in
            ["'receive.message.max.bytes' = '1000'", "'security.protocol' = 'ssl', 'ssl.ca.location' = '/nowhere'"]
        {
            for refused in [sink(properties), source(properties)] {
                assert!(matches!(refused, Err(ConnectorError::Refused { .. })), "{properties}: {refused:?}");
            }
        }
        assert!(matches!(sink("'linger.ms' = '400000'"), Err(ConnectorError::Refused { .. })));
        sink("'linger.ms' = '50'").expect("good settings");
        source("'security.protocol' = 'ssl'").expect("good settings");
    }
}
