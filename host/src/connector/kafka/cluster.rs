//! A Kafka cluster as a job file names it, and the configuration of clients of it.
//!
//! Invariant: a configuration that was made here holds none of the settings that the host decides but by the host's own word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use super::properties::{Properties, read_properties_file};
use super::wire::{self, Settings, WireError};
use super::{known, refused};
use crate::connector::{BadOption, ConnectorError};
use crate::id::Name;

/// What kind of client is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Consumer,
    Producer,
}

/// Where the brokers are, and how to speak to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `host:port`, several with commas.
    pub brokers: String,
    pub properties: Properties,
    /// `key=value` lines, which `properties` overrule.
    pub properties_file: Option<PathBuf>,
}

impl Cluster {
    /// # Errors
    /// Says which of its keys can't be used. The file isn't read yet.
    pub fn validate(&self) -> Result<(), BadOption> {
        validate_brokers(&self.brokers)?;
        if self.properties_file.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(BadOption::new("properties_file", "''", "name a file of key=value lines"));
        }
        let wrong = self.properties.iter().find_map(|(name, value)| wrong_with(name, value));
        let help = "remove it from properties, or correct it; librdkafka's CONFIGURATION.md says what its settings are";
        wrong.map_or(Ok(()), |(shown, reason)| Err(BadOption::new("properties", shown, reason).with_help(help)))
    }

    /// Makes the path of the file, if it is relative to `base`, usable from anywhere.
    pub fn resolve(&mut self, base: &Path) {
        resolve_properties_file(&mut self.properties_file, base);
    }

    /// The configuration of a client: what the user has set, and what the host sets over it.
    ///
    /// # Errors
    /// If the file of properties can't be read, or a setting can't be used.
    pub fn config(&self, name: &Name, client: Client, own: &[(&str, &str)]) -> Result<ClientConfig, ConnectorError> {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        config.set("client.id", format!("lockgate-{name}"));
        for (setting, value) in self.all_properties(name)? {
            if known::is_for(&setting, client) {
                if setting == "debug" {
                    config.set_log_level(RDKafkaLogLevel::Debug);
                }
                config.set(setting, value);
            }
        }
        config.set("bootstrap.servers", &self.brokers);
        for (setting, value) in own {
            config.set(*setting, *value);
        }
        // Whatever it says of itself is said by the errors that follow from it.
        config.set("log.connection.close", "false");
        match config.create_native_config() {
            Ok(_) => Ok(config),
            Err(error) => Err(self.refused(name, described(&error))),
        }
    }

    /// The user's settings, those of the file first; of two of one name the later counts.
    ///
    /// # Errors
    /// As [`Cluster::config`].
    pub fn all_properties(&self, name: &Name) -> Result<Vec<(String, String)>, ConnectorError> {
        let mut all = Vec::new();
        if let Some(path) = &self.properties_file {
            let lines = read_properties_file(path).map_err(|problem| match problem.source {
                Some(source) => ConnectorError::Refused {
                    name: name.clone(),
                    problem: format!("cannot read its properties_file {}: {source}", path.display()),
                    advice: format!("put the file there, or correct properties_file of '{name}' in the job file"),
                },
                None => self.refused(name, format!("{} can't be used: {}", path.display(), problem.what)),
            })?;
            for (setting, value) in &lines {
                if let Some((shown, reason)) = wrong_with(setting, value) {
                    return Err(self.refused(name, format!("{} can't be used: {shown}: {reason}", path.display())));
                }
            }
            all = lines;
        }
        all.extend(self.properties.iter().map(|(setting, value)| (setting.to_owned(), value.to_owned())));
        Ok(all)
    }

    /// A connection of our own, for what librdkafka doesn't ask. `limit`: for each step of the way to a broker.
    ///
    /// # Errors
    /// The outer one if the file of properties can't be read; the inner one says why there is no connection.
    pub fn connect(&self, name: &Name, limit: Duration) -> Result<Result<wire::Client, WireError>, ConnectorError> {
        let mut properties = self.all_properties(name)?.into_iter().collect::<BTreeMap<_, _>>();
        properties.entry("client.id".to_owned()).or_insert_with(|| format!("lockgate-{name}"));
        let settings = Settings::new(&self.brokers, &properties);
        Ok(settings.and_then(|settings| wire::Client::connect_within(settings, limit)))
    }

    fn refused(&self, name: &Name, problem: String) -> ConnectorError {
        let place = match &self.properties_file {
            Some(path) => format!("properties of '{name}' in the job file, or {}", path.display()),
            None => format!("properties of '{name}' in the job file"),
        };
        ConnectorError::Refused { name: name.clone(), problem, advice: format!("correct {place}") }
    }
}

/// A configuration by which a client can be made to see whether its settings go together, and connects to nothing.
pub fn offline(mut config: ClientConfig) -> ClientConfig {
    config.remove("bootstrap.servers");
    // That there are none would be said.
    config.set_log_level(RDKafkaLogLevel::Emerg);
    config
}

/// As [`Cluster::resolve`], for options that hold its keys side by side. An empty path stays one, so that it can be refused.
pub fn resolve_properties_file(path: &mut Option<PathBuf>, base: &Path) {
    if let Some(path) = path.as_mut().filter(|path| !path.as_os_str().is_empty()) {
        *path = base.join(&*path);
    }
}

fn validate_brokers(brokers: &str) -> Result<(), BadOption> {
    let is_broker = |broker: &str| {
        let (host, port) = broker.rsplit_once(':').unwrap_or((broker, "9092"));
        let is_open_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && !is_open_ipv6 && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match brokers.split(',').map(str::trim).find(|broker| !is_broker(broker)) {
        None => Ok(()),
        Some(broker) if broker.contains("://") => {
            let reason = "write host:port alone; how to speak to it is said by \"security.protocol\" in properties";
            Err(BadOption::new("brokers", format!("'{brokers}'"), reason))
        }
        Some(_) => Err(BadOption::new("brokers", format!("'{brokers}'"), "write host:port, several with commas")),
    }
}

/// What is wrong with a setting: how it may be shown, and why it can't be used.
fn wrong_with(name: &str, value: &str) -> Option<(String, String)> {
    if let Some(reason) = refused::reason(name, value) {
        return Some((format!("'{name}'"), reason.to_owned()));
    }
    let mut config = ClientConfig::new();
    config.set(name, value);
    match config.create_native_config() {
        Ok(_) => None,
        Err(error) => Some((format!("'{name}'"), described(&error))),
    }
}

/// What librdkafka has against a setting. Its own words may hold the value.
fn described(error: &KafkaError) -> String {
    use rdkafka::types::RDKafkaConfRes;
    match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => known::unknown(name),
        KafkaError::ClientConfig(_, words, name, _) if !known::is_secret(name) => words.clone(),
        KafkaError::ClientConfig(_, _, name, _) => format!("the value of '{name}' can't be used (it isn't shown)"),
        KafkaError::Nul(_) => "a name or value holds a byte 0".to_owned(),
        other => other.to_string(),
    }
}
