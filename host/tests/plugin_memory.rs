//! What a plugin held is free again when it is dropped.
//!
//! Invariant: it alone runs in its process, and one test at a time, so that what the process takes is what plugins take.

#[path = "../benches/plugin/subject.rs"]
mod subject;
#[path = "../src/guest/tests/guest.rs"]
#[expect(dead_code, reason = "written for the tests of the room")]
mod wat_guest;

use std::sync::{Mutex, MutexGuard, PoisonError};

use lockgate_host::guest;
use subject::{Subject, resident_bytes, status};

const MIB: u64 = 1024 * 1024;

fn threads() -> u64 {
    status("Threads").expect("a count")
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_plugin_that_is_loaded_and_dropped_a_thousand_times_leaves_nothing() {
    let _alone = alone();
    let subject = Subject::new().expect("a subject");
    // The first ones fill what allocators keep.
    subject.cycle(200).expect("cycles");
    let (before, threads_before) = (resident_bytes().expect("a size"), threads());
    subject.cycle(1000).expect("cycles");
    let grown = resident_bytes().expect("a size").saturating_sub(before);
    assert!(grown < 4 * MIB, "{grown} bytes are left of a thousand plugins of more than 100 KB each");
    assert_eq!(threads(), threads_before);
}

#[test]
fn plugins_that_are_removed_give_back_what_they_took() {
    let _alone = alone();
    let subject = Subject::new().expect("a subject");
    subject.cycle(200).expect("cycles");
    let hold = || {
        let before = resident_bytes().expect("a size");
        let held = (0..200).map(|_| {
            let plugin = subject.load().expect("it loads");
            let instance = subject.open(&plugin).expect("it opens");
            (plugin, instance)
        });
        let held = held.collect::<Vec<_>>();
        let with = resident_bytes().expect("a size");
        drop(held);
        (with.saturating_sub(before), resident_bytes().expect("a size").saturating_sub(before))
    };
    let (taken, left) = hold();
    assert!(taken > 200 * 100_000, "they do take memory: {taken} bytes");
    // Code and memories go back to the system. The allocator keeps some of the rest, and takes it for the next ones.
    assert!(left < taken / 2, "{left} of {taken} bytes are left");
    let left_by_others = (0..3).map(|_| hold().1).sum::<u64>();
    assert!(left_by_others < taken / 10, "three times as many have left {left_by_others} bytes more");
}

#[test]
fn an_engine_that_is_dropped_ends_its_clock() {
    let _alone = alone();
    let before = threads();
    let subject = Subject::new().expect("a subject");
    subject.cycle(1).expect("a cycle");
    let another = guest::Engine::new(None, guest::Compiler::InProcess).expect("an engine");
    let with = threads();
    drop(another);
    assert_eq!(threads(), with - 1, "one of them beside {before}");
}
