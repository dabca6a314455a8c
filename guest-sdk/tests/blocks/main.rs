//! The building blocks do what a model does that keeps every record and computes everything anew: in any order of
//! records and watermarks, over snapshots and restores, at the ends of time, and with no state left at the end.

mod joins;
mod random;
mod rest;
mod sessions;
mod windows;
