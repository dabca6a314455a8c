//! DescribeGroups and ConsumerGroupDescribe: whether a group has members, by either protocol of consumers.

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::{ConsumerGroupDescribeRequest, DescribeGroupsRequest, GroupId};
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};
use super::Operations;

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: String,
    /// The client ids of its members.
    pub members: Vec<String>,
    pub operations: Option<Operations>,
}

impl Client {
    /// A group that doesn't exist has no members. All brokers that can be reached are asked, since asking for a coordinator may
    /// make Kafka's topic of groups.
    ///
    /// # Errors
    /// If one of them refuses, or gives no answer.
    pub fn group(&mut self, name: &str) -> Result<Group, WireError> {
        let mut found = Group { name: name.to_owned(), members: Vec::new(), operations: None };
        for node in self.cluster().brokers.keys().copied().collect::<Vec<_>>() {
            match self.group_at(node, &mut found) {
                Err(WireError::Unreachable { .. }) => {}
                asked => asked?,
            }
        }
        Ok(found)
    }

    fn group_at(&mut self, node: i32, found: &mut Group) -> Result<(), WireError> {
        let name = found.name.clone();
        let group = || GroupId(StrBytes::from_string(name.clone()));
        let connection = self.at(node)?;
        let request =
            DescribeGroupsRequest::default().with_groups(vec![group()]).with_include_authorized_operations(true);
        for told in &connection.call(&request)?.groups {
            if !is_elsewhere(told.error_code) {
                connection.refuse::<DescribeGroupsRequest>(&format!("group '{name}'"), told.error_code)?;
                found.members.extend(told.members.iter().map(|member| member.client_id.to_string()));
                found.operations = found.operations.or(Operations::told(told.authorized_operations));
            }
        }
        // A group of the newer protocol isn't found by the older request.
        if connection.knows::<ConsumerGroupDescribeRequest>() {
            let request = ConsumerGroupDescribeRequest::default()
                .with_group_ids(vec![group()])
                .with_include_authorized_operations(true);
            for told in connection.call(&request)?.groups.iter().filter(|told| told.error_code.is_ok()) {
                found.members.extend(told.members.iter().map(|member| member.client_id.to_string()));
                found.operations = found.operations.or(Operations::told(told.authorized_operations));
            }
        }
        Ok(())
    }
}

/// Whether the broker has no such group, as all but its coordinator say.
fn is_elsewhere(code: i16) -> bool {
    let error = code.err();
    error.is_some_and(|error| error.is_retriable() || error == ResponseError::GroupIdNotFound)
}
