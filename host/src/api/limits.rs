//! What a client may ask of the daemon at most, and for how long it may keep a connection waiting.
//!
//! Invariant: every wait for a client and everything that a client can make grow has a limit here.

use std::time::Duration;

/// A body that holds JSON.
pub const JSON_BODY_BYTES_MAX: usize = 1 << 20;
/// All names and values of a request's headers.
pub const HEADER_BYTES_MAX: usize = 16 << 10;
pub const HEADERS_MAX: usize = 64;
/// The path and query of a request.
pub const TARGET_BYTES_MAX: usize = 4 << 10;

/// How long an answer may take that only reads what there is.
pub const READ_WITHIN: Duration = Duration::from_secs(60);
/// How long answers that are under way may take when the daemon stops.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// The waits for a client. Tests wait less.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the opening of a connection, or the answer before, to the end of a request's head.
    pub head: Duration,
    /// For a whole body of JSON.
    pub json_body: Duration,
    /// For the next bytes of an upload.
    pub upload_pause: Duration,
    /// For a whole upload.
    pub upload: Duration,
    /// For a client to take the next bytes of its answer.
    pub write: Duration,
    /// Connections that are open at once; others wait to be accepted.
    pub connections_max: usize,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            head: Duration::from_secs(30),
            json_body: Duration::from_secs(30),
            upload_pause: Duration::from_secs(30),
            upload: Duration::from_secs(3_600),
            write: Duration::from_secs(30),
            connections_max: 256,
        }
    }
}
