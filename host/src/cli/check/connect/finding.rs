//! What was found on the brokers, for people and for scripts.
//!
//! Invariant: an error is something for which the job would fail; nothing else is one.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum Level {
    Error,
    Warning,
    /// How things are.
    Note,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in super::super) struct Finding {
    pub level: Level,
    /// As "sink out".
    pub about: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A cluster that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in super::super) struct Answered {
    pub cluster: String,
    /// The address that was given and answered first.
    pub broker: String,
    /// How many the cluster has.
    pub brokers: usize,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in super::super) struct Connected {
    pub clusters: Vec<Answered>,
    pub findings: Vec<Finding>,
}

impl Finding {
    pub fn error(about: &str, text: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { level: Level::Error, about: about.to_owned(), text: text.into(), help: Some(help.into()) }
    }

    pub fn warning(about: &str, text: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, ..Finding::error(about, text, help) }
    }

    pub fn note(about: &str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Note, about: about.to_owned(), text: text.into(), help: None }
    }
}

impl Connected {
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.level == Level::Error)
    }
}

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nkafka")?;
        if self.clusters.is_empty() && self.findings.is_empty() {
            writeln!(f, "  the job has no source or sink of Kafka")?;
        }
        for Answered { cluster, broker, brokers } in &self.clusters {
            let brokers = if *brokers == 1 { "1 broker".to_owned() } else { format!("{brokers} brokers") };
            writeln!(f, "  cluster {cluster}: {brokers}; {broker} answered")?;
        }
        for note in self.findings.iter().filter(|finding| finding.level == Level::Note) {
            writeln!(f, "  {}: {}", note.about, note.text)?;
        }
        for (level, word) in [(Level::Warning, "warning"), (Level::Error, "error")] {
            for finding in self.findings.iter().filter(|finding| finding.level == level) {
                writeln!(f, "\n{word}: {}: {}", finding.about, finding.text)?;
                if let Some(help) = &finding.help {
                    writeln!(f, "help: {help}")?;
                }
            }
        }
        Ok(())
    }
}
