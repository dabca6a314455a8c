//! The Lockgate host: see `ARCHITECTURE.md` for the rooms and what each may use.

pub mod crash;
pub mod element;
pub mod id;
pub mod units;

pub mod protocol;

pub mod graph;

pub mod telemetry;

pub mod channel;
pub mod store;

pub mod connector;
pub mod state;

pub mod guest;

pub mod replay;

pub mod task;

pub mod runtime;

pub mod config;

pub mod serve;

pub mod api;

pub mod cli;
