//! The Kafka clusters that a verb asks: of a job file, or of the command line.
//!
//! Invariant: they are asked by the same settings by which a run would speak to them.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use crate::cli::CliError;
use crate::config::JobFile;
use crate::connector::kafka::wire::{Client, Settings, WireError};
use crate::connector::kafka::{Cluster, Properties};
use crate::connector::{ConnectorError, SinkOptions, SourceOptions};
use crate::id::Name;

/// The cluster that the job writes to, or else one that it reads, with the name of the sink or source.
pub(super) fn output_cluster(file: &JobFile) -> Option<(Name, Cluster)> {
    let mut sinks = file.sinks.iter().filter_map(|(name, sink)| match &sink.options {
        SinkOptions::Kafka(options) => Some((name.clone(), options.cluster())),
        SinkOptions::File(_) | SinkOptions::Null(_) => None,
    });
    let mut sources = file.sources.iter().filter_map(|(name, source)| match &source.options {
        SourceOptions::Kafka(options) => Some((name.clone(), options.cluster())),
        SourceOptions::File(_) | SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => None,
    });
    sinks.next().or_else(|| sources.next())
}

/// # Errors
/// If the settings can't be used, or no broker answers.
pub(super) fn connect(name: &Name, cluster: &Cluster) -> Result<Client, CliError> {
    let settings = settings(cluster, &properties(name, cluster)?)?;
    Client::connect(settings).map_err(|error| asked(&error))
}

/// As [`connect`], of addresses and a file of properties.
///
/// # Errors
/// If the settings can't be used, or no broker answers.
pub(super) fn connect_to(brokers: &str, properties_file: Option<&Path>) -> Result<Client, CliError> {
    let cluster = Cluster {
        brokers: brokers.to_owned(),
        properties: Properties::default(),
        properties_file: properties_file.map(Path::to_owned),
    };
    cluster.validate().map_err(|bad| CliError::unusable(bad.to_string()))?;
    connect(&Name::new("cluster").expect("a good name"), &cluster)
}

/// All settings of the job's clients that the user has set, by librdkafka's names.
///
/// # Errors
/// If they can't be read.
pub(super) fn properties(name: &Name, cluster: &Cluster) -> Result<BTreeMap<String, String>, CliError> {
    Ok(cluster.all_properties(name).map_err(|error| refused(&error))?.into_iter().collect())
}

/// # Errors
/// If one of them can't be followed.
pub(super) fn settings(cluster: &Cluster, properties: &BTreeMap<String, String>) -> Result<Settings, CliError> {
    Settings::new(&cluster.brokers, properties).map_err(|error| asked(&error))
}

fn refused(error: &ConnectorError) -> CliError {
    let refused = CliError::unusable(error.to_string()).help(error.help());
    error.source().map_or(refused.clone(), |cause| refused.caused_by(cause))
}

/// The error of a verb that asks a cluster.
pub(super) fn asked(error: &WireError) -> CliError {
    let message = error.to_string();
    let failed = match error {
        WireError::Setting { .. } => CliError::unusable(message),
        _ => CliError::failed(message),
    };
    failed.help(error.help())
}
