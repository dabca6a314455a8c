//! The store as the runtime uses it, on real folders.

mod attempts;
mod crash;
mod files;
mod full_disk;
mod keep;
mod lock;
pub mod mount;
mod publish;
mod retention;

use std::process::Command;

const ALONE: &str = "LOCKGATE_TEST_ALONE";

/// Runs a test of this folder in a process of its own; it returns at once where [`is_in_a_process_of_its_own`] is false.
fn in_a_process_of_its_own(test: &str) {
    let done = this_binary(test).env(ALONE, "1").output().expect("another process");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{test} is a test");
}

fn is_in_a_process_of_its_own() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// The command that runs one test of this folder.
fn this_binary(test: &str) -> Command {
    let module = module_path!().split_once("::").expect("a crate").1;
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([&format!("{module}::{test}"), "--exact", "--nocapture"]);
    command
}
