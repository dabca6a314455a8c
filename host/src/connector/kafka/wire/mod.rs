//! Requests to Kafka's brokers that librdkafka lacks, over connections of our own: for the tools
//! and for what a source has to know of its topics, never for records.
//!
//! Each request is answered before the next is sent, within a time limit and a size limit, and a broker is believed nothing that
//! could hurt: what it sends is checked before memory is taken for it.
//!
//! Invariant: nothing here creates or changes anything on a cluster, except [`Client::fence`], [`Client::fence_once`] and
//! [`Client::write_end`].

mod address;
mod ask;
mod call;
mod client;
mod connection;
mod error;
mod frame;
mod guarded;
mod login;
mod properties;
mod protocol;
mod scram;
mod security;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

pub use address::Address;
pub use ask::{
    Cluster, Configs, Fenced, Group, Listed, OpenOnPartition, Operation, Operations, Partition, Topic, Transaction,
};
pub use client::Client;
pub use error::WireError;
pub use kafka_protocol::ResponseError;
pub use security::{Login, Mechanism, Secret, Security, Settings, TlsFiles};
