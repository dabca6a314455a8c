//! A call that fails by chance fails again from its capsule: it gets the same random numbers.

use std::time::Duration;

use super::*;
use crate::guest::tests::context;
use crate::guest::tests::trials::{NUMBER, trap_at};
use crate::guest::tests::wasi::{VERSION, count, counted, guest_of};
use crate::guest::{Compiler, Emitted, Engine, Limits, OperatorInstance};
use crate::replay::rerun::rerun;

#[test]
fn a_failure_by_chance_is_replayed_bit_for_bit_with_the_numbers_of_its_call() {
    let (folder, capsules) = folder();
    let engine = Engine::new(None, Compiler::InProcess).expect("an engine");
    let number = counted(&guest_of(VERSION, &count(NUMBER)), 1, &[5, 6])[1];
    let path = folder.path().join("chance.wasm");
    std::fs::write(&path, guest_of(VERSION, &trap_at(number)).component()).expect("written");
    let plugin = engine.load(&name("op"), &path).expect("it loads");
    // A deadline that no slow machine comes near.
    let limits = Limits { call_timeout: Duration::from_secs(600), ..Limits::default() };
    let mut instance = plugin.instantiate(context(limits)).expect("it opens");
    let mut rows = Batch::default();
    rows.push(Row { key: None, value: Some(b"a"), timestamp: 0 });
    instance.set_now(5);
    instance.process(0, &rows, &mut Emitted::new()).expect("another number");
    instance.set_now(6);
    let error = instance.process(0, &rows, &mut Emitted::new()).expect_err("that number");
    let max_parallelism = MaxParallelism::new(16).expect("in range");
    let mut examiner = Examiner::new(std::sync::Arc::new(capsules), 10, max_parallelism, 1 << 20);
    let failed = FailedCall { epoch: Epoch(1), call: TrialCall::Process { port: 0, rows }, certain: None };
    let Looked::Kept(path) = examiner.failed(&mut instance, &failed, &error) else { panic!("it fails again") };
    let capsule = Capsule::read(&path).expect("a capsule");
    assert_eq!(capsule.draws, Some(Draws { call: 3, taken: 0 }), "behind open and another call");
    let again = rerun(&engine, &capsule).expect("replayed");
    assert!(again.is_bit_for_bit(&capsule), "{again:?}");
    // As of an older host, which didn't know of it.
    let other = Capsule { draws: None, ..capsule };
    assert_eq!(rerun(&engine, &other).expect("replayed").outcome, Outcome::Passed);
}
