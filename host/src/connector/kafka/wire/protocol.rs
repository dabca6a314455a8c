//! Which protocol a listener speaks, found out when it isn't the one of the settings.
//!
//! Invariant: nothing but a first request is sent that way, so that no secret goes over a connection that isn't protected.

use std::time::Duration;

use super::connection::Connection;
use super::stream::Timed;
use super::{Address, Security, Settings, TlsFiles, WireError, tls};

/// For each step of such a try.
const TRY_MAX: Duration = Duration::from_secs(5);

/// What is to be said of a listener to which no connection could be made with these settings: that it speaks TLS, or doesn't, if it is
/// so, or else the error.
pub(super) fn explained(error: WireError, broker: &Address, settings: &Settings, limit: Duration) -> WireError {
    let limit = limit.min(TRY_MAX);
    let broker = broker.clone();
    match (&error, &settings.security.tls) {
        (WireError::Tls { .. }, Some(_)) if speaks_plain(&broker, settings, limit) => WireError::NoTls { broker },
        (WireError::Broken { .. } | WireError::TooSlow { .. } | WireError::Garbled { .. }, None)
            if speaks_tls(&broker, limit) =>
        {
            WireError::TlsOnly { broker }
        }
        _ => error,
    }
}

fn speaks_plain(broker: &Address, settings: &Settings, limit: Duration) -> bool {
    let settings = Settings { security: Security::default(), ..settings.clone() };
    Connection::greet(broker, &settings, limit).is_ok()
}

/// Whoever it is: nothing is sent to it.
fn speaks_tls(broker: &Address, limit: Duration) -> bool {
    let anybody =
        TlsFiles { ca: None, certificate: None, key: None, key_password: None, verify_name: false, verify: false };
    let Ok(timed) = Timed::connect(broker, limit) else { return false };
    match tls::wrap(broker, &anybody, timed) {
        Ok(_) => true,
        // One that wants a certificate of ours refuses in its own words.
        Err(WireError::Tls { problem, .. }) => problem.contains("alert"),
        Err(_) => false,
    }
}
