//! Why an API can't be served.
//!
//! Invariant: whoever started the daemon can mend each of them.

use std::io;
use std::net::SocketAddr;

/// Nothing is answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    #[error("cannot use the socket")]
    Socket { source: io::Error },
    #[error("{address} can be reached by others, and there is no token that they would have to know")]
    TokenWanted { address: SocketAddr },
}

impl ApiError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            ApiError::Socket { .. } => "try again, or listen at another address",
            ApiError::TokenWanted { .. } => {
                "write a secret into a file (openssl rand -hex 32 makes one) and name it by --token-file, set LOCKGATE_TOKEN, or \
                 listen on 127.0.0.1"
            }
        }
    }
}
