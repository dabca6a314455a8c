//! Guests that mean no good: each ends its own call, or isn't loaded, with an error that says why, and the host goes on.

mod answers;
mod batches;
mod components;
mod deadlines;
mod exports;
mod names;
mod realloc;
mod state;
mod traps;

use std::time::Duration;

use super::guest::{EMIT_INPUT, Guest};
use super::*;
use crate::guest::{Call, Emitted, Failure, OperatorInstance};

/// Never ends.
const SPIN: &str = "(loop $spin (br $spin))";
/// A recursion that never ends is `(call $dig)` with this.
const DIG: &str = "(func $dig (call $dig) (call $dig))";

/// Soon enough for a test, and long enough for calls that do nothing on a busy machine.
fn short() -> Limits {
    Limits { call_timeout: Duration::from_millis(100), ..Limits::default() }
}

/// What a `process` with these instructions ends with. Afterwards the host must still run a good guest.
fn process_error(process: &str, limits: Limits) -> OperatorError {
    process_error_of(&Guest { process: process.to_owned(), ..Guest::default() }, limits)
}

fn process_error_of(guest: &Guest, limits: Limits) -> OperatorError {
    let mut instance = open_with(guest, limits).expect("it opens");
    let mut emitted = Emitted::new();
    let error = instance.process(0, &batch(&["a", "b"]), &mut emitted).expect_err("it fails");
    assert!(emitted.is_empty(), "nothing of a failed call gets out");
    assert_eq!(error.call, Call::Process { port: 0, rows: 2 });
    assert!(error.to_string().starts_with("operator 'op[1]' failed in process (input 0, 2 rows): "), "{error}");
    assert!(!error.help().is_empty());
    assert_goes_on();
    error
}

/// The host still runs a good guest.
fn assert_goes_on() {
    static GOOD: OnceLock<Plugin> = OnceLock::new();
    let load = || load_bytes(&Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() }.component());
    let good = GOOD.get_or_init(|| load().expect("it loads"));
    let (mut instance, mut emitted) = (good.instantiate(context(Limits::default())).expect("it opens"), Emitted::new());
    instance.process(0, &batch(&["a"]), &mut emitted).expect("it processes");
    assert_eq!(emitted, [(0, batch(&["a"]))]);
}

fn failure(process: &str) -> Failure {
    *process_error(process, Limits::default()).failure
}

/// The words of a trap.
#[track_caller]
fn trap(failure: Failure) -> String {
    match failure {
        Failure::Trap { trap } => trap,
        other => panic!("{other}"),
    }
}
