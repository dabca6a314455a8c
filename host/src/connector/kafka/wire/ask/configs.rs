//! DescribeConfigs: the settings of brokers and topics.

use std::collections::BTreeMap;

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::protocol::StrBytes;

use super::super::connection::Connection;
use super::super::{Client, WireError};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Values by name; of a secret only the name is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configs(BTreeMap<String, String>);

impl Configs {
    pub fn of<const N: usize>(values: [(&str, &str); N]) -> Configs {
        Configs(values.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }
}

impl Client {
    /// Those of a topic, defaults included.
    ///
    /// # Errors
    /// [`WireError::Refused`] if this user may not know them.
    pub fn topic_configs(&mut self, topic: &str) -> Result<Configs, WireError> {
        configs(self.any(), TOPIC, topic)
    }

    /// Those of one broker, defaults included.
    ///
    /// # Errors
    /// As [`Client::topic_configs`].
    pub fn broker_configs(&mut self, node: i32) -> Result<Configs, WireError> {
        configs(self.at(node)?, BROKER, &node.to_string())
    }
}

fn configs(connection: &mut Connection, kind: i8, name: &str) -> Result<Configs, WireError> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(StrBytes::from_string(name.to_owned()))
        .with_configuration_keys(None);
    let answer = connection.call(&DescribeConfigsRequest::default().with_resources(vec![resource]))?;
    let mut found = BTreeMap::new();
    for result in &answer.results {
        let what = if kind == TOPIC { format!("topic '{name}'") } else { format!("broker {name}") };
        connection.refuse::<DescribeConfigsRequest>(&what, result.error_code)?;
        let values = result
            .configs
            .iter()
            .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())));
        found.extend(values);
    }
    Ok(Configs(found))
}
