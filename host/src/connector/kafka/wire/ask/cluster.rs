//! DescribeCluster: the id of a cluster and its brokers.

use std::collections::BTreeMap;

use kafka_protocol::messages::DescribeClusterRequest;

use super::super::connection::Connection;
use super::super::{Address, Client, WireError};
use super::Operations;

#[derive(Clone, Debug)]
pub struct Cluster {
    pub id: String,
    /// Where to reach each broker, by its number.
    pub brokers: BTreeMap<i32, Address>,
}

impl Cluster {
    pub(in super::super) fn ask(connection: &mut Connection) -> Result<Cluster, WireError> {
        let answer = connection.call(&DescribeClusterRequest::default())?;
        connection.refuse::<DescribeClusterRequest>("the cluster", answer.error_code)?;
        let brokers = answer.brokers.iter();
        let brokers = brokers.filter_map(|broker| Some((*broker.broker_id, Address::told(&broker.host, broker.port)?)));
        Ok(Cluster { id: answer.cluster_id.to_string(), brokers: brokers.collect() })
    }
}

impl Client {
    /// What this user may do to the cluster.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn cluster_operations(&mut self) -> Result<Option<Operations>, WireError> {
        let request = DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        let answer = self.any().call(&request)?;
        self.any().refuse::<DescribeClusterRequest>("the cluster", answer.error_code)?;
        Ok(Operations::told(answer.cluster_authorized_operations))
    }
}
