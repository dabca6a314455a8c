//! The client against brokers that follow a script: what goes over the wire, and what a lying broker can do.

mod lies;
mod sasl;
mod script;
mod sent;
mod tls;
