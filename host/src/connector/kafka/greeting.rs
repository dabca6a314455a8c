//! The first answer of a cluster: what keeps it from coming is found out soon, where the settings do.
//!
//! librdkafka tries again for as long as it may, whatever it is that keeps it out.
//!
//! Invariant: a cluster that is only slow is not refused.

use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{Cluster, Doing, Listener};
use crate::connector::ConnectorError;

/// A cluster that has said nothing for so long is asked in another way.
const SOON: Duration = Duration::from_secs(3);
/// For each step of that other way.
const STEP_MAX: Duration = Duration::from_secs(5);

/// Waits a little for the cluster to answer a client at all.
///
/// # Errors
/// If it never will by these settings. A cluster that doesn't answer for another reason is told by what is asked next.
pub fn greet<C: ClientContext>(
    client: &rdkafka::client::Client<C>,
    cluster: &Cluster,
    doing: &Doing<'_>,
) -> Result<(), ConnectorError> {
    if client.fetch_cluster_id(SOON).is_some() {
        return Ok(());
    }
    // Our own connections may be more particular than librdkafka's; then it has heard nothing of the kind.
    let has_heard = doing
        .listener
        .and_then(Listener::last_error)
        .is_some_and(|(code, _)| matches!(code, Code::SSL | Code::Authentication | Code::SaslAuthenticationFailed));
    match cluster.connect(doing.name, STEP_MAX)? {
        Err(error) if error.is_of_protocol() || (has_heard && error.is_of_trust()) => {
            Err(doing.unfit(error.to_string(), error.help()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
