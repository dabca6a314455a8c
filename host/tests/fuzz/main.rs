//! What comes from outside, made up by seed: what a guest hands to its host, components, and every kind of file. Nothing of it may
//! end the host, hold it up or make it take memory without bound; each is used or refused with an error that says why.
//!
//! - `LOCKGATE_FUZZ_SEEDS=100000`: runs so many seeds of each target instead of a few hundred.
//! - `LOCKGATE_FUZZ_SEED=7`: runs this seed alone and tells its story; a filter behind the command says of which target.
//!
//! What only the crate itself can read is made up beside its code, by tests whose names begin with `bytes_from_outside`;
//! `PROPTEST_CASES` says how often.
//!
//! Invariant: a case follows from the bytes of its seed alone, so that it can be made again and cut down.

mod allocations;
mod chance;
mod component;
mod damage;
mod files;
mod guest;
mod harness;
#[path = "../simulation/rng.rs"]
#[expect(dead_code, reason = "the simulator takes more of it")]
mod rng;
mod text;

/// The guests of the room's own tests.
#[path = "../../src/guest/tests/guest.rs"]
#[expect(dead_code, reason = "written for the tests of the room")]
mod wat_guest;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
