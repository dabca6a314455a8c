//! How to reach a cluster: where, and by which protection.
//!
//! Invariant: a password is printed nowhere, not even by `{:?}`.

use std::fmt;
use std::path::PathBuf;

use super::Address;

/// All that a connection needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// At least one.
    pub brokers: Vec<Address>,
    pub client_id: String,
    pub security: Security,
}

/// `None`: without.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Security {
    pub tls: Option<TlsFiles>,
    pub login: Option<Login>,
}

/// What `ssl.…` says, by the names of librdkafka.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsFiles {
    /// Certificates in a file or folder. `None`: those of the system.
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub key_password: Option<Secret>,
    /// Whether the broker's certificate must be for its host name.
    pub verify_name: bool,
    /// Whether it must be signed by one of `ca`.
    pub verify: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Login {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

#[derive(Clone, PartialEq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
