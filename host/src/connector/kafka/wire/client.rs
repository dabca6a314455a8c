//! The cluster as a whole: a connection to each broker that is asked, made when it is.
//!
//! Invariant: what only one broker knows (a coordinator, a leader) is asked of that one.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::ask::Cluster;
use super::connection::{ANSWER_MAX, Connection};
use super::{Address, Settings, WireError};

/// For how long a cluster may be busy with itself, as with an election or its first transaction.
const BUSY_MAX: Duration = Duration::from_secs(15);
/// Between two questions.
pub(super) const RETRY: Duration = Duration::from_millis(100);

pub struct Client {
    settings: Settings,
    /// To the first broker that answered.
    first: Connection,
    cluster: Cluster,
    by_node: BTreeMap<i32, Connection>,
}

impl Client {
    /// Connects to the first of the brokers that answers, and learns of the others.
    ///
    /// # Errors
    /// If none answers, or the one that does refuses.
    pub fn connect(settings: Settings) -> Result<Client, WireError> {
        Client::connect_within(settings, ANSWER_MAX)
    }

    /// As [`Client::connect`], with this limit for each step.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_within(settings: Settings, limit: Duration) -> Result<Client, WireError> {
        let mut first = first_of(&settings, limit)?;
        let cluster = Cluster::ask(&mut first)?;
        Ok(Client { settings, first, cluster, by_node: BTreeMap::new() })
    }

    /// What the cluster is.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The broker that answered, as it was given.
    pub fn answered(&self) -> &Address {
        self.first.broker()
    }

    pub(super) fn any(&mut self) -> &mut Connection {
        &mut self.first
    }

    /// # Errors
    /// If the broker isn't known or can't be reached.
    pub(super) fn at(&mut self, node: i32) -> Result<&mut Connection, WireError> {
        if !self.by_node.contains_key(&node) {
            let address = self.cluster.brokers.get(&node).ok_or(WireError::Nowhere { node })?;
            let connection = Connection::open(address, &self.settings)?;
            self.by_node.insert(node, connection);
        }
        Ok(self.by_node.get_mut(&node).expect("it was just made"))
    }

    /// Asks again while the answer is that the cluster is busy.
    ///
    /// # Errors
    /// The last one.
    pub(super) fn patiently<T>(
        &mut self,
        mut ask: impl FnMut(&mut Client) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let until = Instant::now() + BUSY_MAX;
        loop {
            match ask(self) {
                Err(error) if error.is_busy() && Instant::now() < until => thread::sleep(RETRY),
                asked => return asked,
            }
        }
    }

    /// Forgets a connection after an error, so that the next question gets a new one.
    pub(super) fn forget(&mut self, node: i32) {
        self.by_node.remove(&node);
    }
}

/// # Errors
/// Of the one broker, or of all of several. A broker that can be reached and refuses ends the search: the others would, too.
fn first_of(settings: &Settings, limit: Duration) -> Result<Connection, WireError> {
    let mut tried = Vec::new();
    for broker in &settings.brokers {
        match Connection::open_within(broker, settings, limit) {
            Ok(connection) => return Ok(connection),
            Err(error @ (WireError::Unreachable { .. } | WireError::TooSlow { .. } | WireError::Broken { .. })) => {
                tried.push(error)
            }
            Err(error) => return Err(error),
        }
    }
    match tried.len() {
        1 => Err(tried.remove(0)),
        _ => Err(WireError::NoBroker { tried }),
    }
}
