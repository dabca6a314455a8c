//! Which cluster a verb asks: that of a job file, or of brokers on the command line.
//!
//! Invariant: exactly one of the two was given.

use std::path::{Path, PathBuf};

use crate::cli::CliError;
use crate::cli::kafka::{connect, connect_to, output_cluster};
use crate::config::JobFile;
use crate::connector::kafka::wire::Client;

/// In place of a job file.
#[derive(Debug, clap::Args)]
pub(super) struct Brokers {
    /// The cluster, in place of that of a job file: HOST:PORT, several with commas
    #[arg(long, value_name = "HOST:PORT")]
    pub brokers: Option<String>,
    /// How to speak to it: lines of librdkafka's settings, as security.protocol=SASL_SSL
    #[arg(long, value_name = "FILE", requires = "brokers")]
    properties_file: Option<PathBuf>,
}

pub(super) struct Whom {
    pub client: Client,
    pub job: Option<JobFile>,
}

impl Whom {
    /// # Errors
    /// If neither or both were given, or the cluster can't be reached.
    pub fn reach(job_file: Option<&Path>, brokers: &Brokers) -> Result<Whom, CliError> {
        match (job_file, &brokers.brokers) {
            (Some(path), None) => {
                let file = JobFile::load(path)?;
                let (name, cluster) = output_cluster(&file).ok_or_else(|| {
                    CliError::unusable(format!("{} has no source or sink of Kafka", path.display()))
                        .help("give the cluster itself: --brokers HOST:PORT")
                })?;
                Ok(Whom { client: connect(&name, &cluster)?, job: Some(file) })
            }
            (None, Some(addresses)) => {
                Ok(Whom { client: connect_to(addresses, brokers.properties_file.as_deref())?, job: None })
            }
            (Some(_), Some(_)) => {
                Err(CliError::unusable("a job file and --brokers name two clusters").help("give one of them"))
            }
            (None, None) => {
                Err(CliError::unusable("no cluster is named").help("give a job file, or --brokers HOST:PORT"))
            }
        }
    }
}
