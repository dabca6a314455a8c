//! The job file.

pub use crate::units;
