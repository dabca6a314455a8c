//! One case: an instance of the puppet is opened, called a few times, and looked at behind each call.

use std::time::{Duration, Instant};

use lockgate_host::element::{Batch, Row};
use lockgate_host::guest::{Emitted, Failure, Instance, Limits, Made, OperatorError, OperatorInstance, TrialCall};
use lockgate_host::id::Epoch;

use crate::chance::Chance;
use crate::guest::calls::Call;
use crate::guest::look::{Look, check_emitted, check_error, check_fired, check_rejections};
use crate::guest::puppet::TABLES;
use crate::guest::script::{Answer, Script};
use crate::guest::store::{Store, own_keys};
use crate::guest::{World, context};

const CALLS_MAX: usize = 6;

/// How an instance is opened.
#[derive(Debug)]
struct Setting {
    limits: Limits,
    rejections: bool,
    /// Of the tables that are there before: older ones are migrated.
    version: u32,
    state_memory_bytes_max: usize,
    filled: bool,
    spins: bool,
}

pub fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let world = World::get();
    let setting = setting(chance);
    chance.tell(|| format!("{setting:?}"));
    let own = own_keys();
    let mut script = Script::new(&own, setting.spins);
    script.block(chance, Answer::Unit, 0, false);
    if setting.filled && setting.version < TABLES[0].2 {
        for _ in TABLES {
            script.block(chance, Answer::Keys, 0, false);
            script.block(chance, Answer::Entries, 0, false);
            if chance.one_in(3) {
                script.block(chance, Answer::Column, 1, false);
            }
        }
    }
    let mut calls = Vec::new();
    for _ in 0..chance.between(1, CALLS_MAX) {
        let call = Call::any(chance, &own);
        chance.tell(|| format!("{call:?}"));
        if let Some((answer, rows)) = call.answer() {
            script.block(chance, answer, rows, call.may_emit());
        }
        calls.push(call);
    }
    let store = Store::new(world);
    let outcome = run(world, &store, &setting, &script, &calls);
    goes_on(world)?;
    outcome
}

fn setting(chance: &mut Chance<'_, '_>) -> Setting {
    let spins = chance.one_in(12);
    let usual = Limits { memory_bytes_max: 4 << 20, table_elements_max: 64, ..Limits::default() };
    let limits = Limits {
        output_bytes_max: *chance.pick(&[1 << 20, 1 << 20, 2 << 10]),
        call_timeout: if spins { Duration::from_millis(20) } else { usual.call_timeout },
        log_lines_per_second_max: 3,
        ..usual
    };
    Setting {
        limits,
        rejections: chance.one_in(2),
        version: if chance.one_in(6) { 1 } else { TABLES[0].2 },
        state_memory_bytes_max: if chance.one_in(8) { 0 } else { 64 << 20 },
        filled: !chance.one_in(4),
        spins,
    }
}

fn run(
    world: &World,
    store: &Store,
    setting: &Setting,
    script: &Script<'_>,
    calls: &[Call],
) -> Result<&'static str, String> {
    let unexpected = |error: lockgate_host::state::StateError| format!("before anything was called: {error}");
    let mut state = store.open(world, setting.version, setting.state_memory_bytes_max, &[]).map_err(unexpected)?;
    if setting.filled {
        store.fill(&mut state).map_err(unexpected)?;
    }
    let mut context = context(script.config(), setting.limits, setting.rejections);
    context.state = Some(state);
    let mut instance = match world.puppet.instantiate(context) {
        Ok(instance) => instance,
        Err(error) => return failed(&error, setting, true),
    };
    for call in calls {
        let before = look(&mut instance)?;
        let mut emitted = Emitted::new();
        if let Err(error) = make(&mut instance, call, &mut emitted, setting)? {
            let behind = look(&mut instance)?;
            if behind != before || !emitted.is_empty() {
                return Err(format!("{call:?} failed ({error}) and left something: {before:?} became {behind:?}"));
            }
            look_back(&mut instance, call)?;
            return failed(&error, setting, false);
        }
        check_emitted(&emitted, setting.limits.output_bytes_max)?;
        if !call.may_emit() && !emitted.is_empty() {
            return Err(format!("{call:?} has put something out"));
        }
        if matches!(call, Call::Close) && look(&mut instance)? != before {
            return Err(format!("{call:?} has changed the state"));
        }
    }
    reads_back(world, store, instance)?;
    Ok("well")
}

fn look(instance: &mut Instance) -> Result<Look, String> {
    Look::at(instance.keyed_state().ok_or("the state is gone")?)
}

/// Makes a call. The outer error is the host's.
fn make(
    instance: &mut Instance,
    call: &Call,
    emitted: &mut Emitted,
    setting: &Setting,
) -> Result<Result<(), OperatorError>, String> {
    let done = match call {
        Call::Restore(states) => instance.restore(states),
        Call::Process(port, rows) => match instance.process(*port, rows, emitted) {
            Ok(rejections) => return check_rejections(&rejections, rows.rows, setting.rejections).map(Ok),
            Err(error) => Err(error),
        },
        Call::Timers(clock, up_to_ms) => match instance.fire_timers(*clock, *up_to_ms, emitted) {
            Ok(fired) => return check_fired(&fired, setting.rejections).map(Ok),
            Err(error) => Err(error),
        },
        Call::Watermark(timestamp) => instance.watermark(*timestamp, emitted),
        Call::Now(now_ms) => {
            instance.set_now(*now_ms);
            Ok(())
        }
        Call::Snapshot => match instance.snapshot(Epoch(1)) {
            Ok(bytes) if bytes.len() > setting.limits.output_bytes_max => {
                return Err(format!("a snapshot has {} bytes", bytes.len()));
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
        Call::Trim(target_bytes) => instance.trim(*target_bytes),
        Call::Again(trial) => match instance.again(Epoch(1), trial.clone(), Made::NotYet) {
            Ok(again) => return again.tried.outcome.err().map_or(Ok(()), |error| check_error(&error)).map(Ok),
            Err(error) => Err(error),
        },
        Call::Close => instance.close(),
    };
    Ok(done)
}

/// A failed call is made again, row by row, which changes nothing.
fn look_back(instance: &mut Instance, call: &Call) -> Result<(), String> {
    let trial = match call {
        Call::Process(port, rows) => TrialCall::Process { port: *port, rows: rows.clone() },
        Call::Watermark(timestamp) => TrialCall::Watermark { timestamp: *timestamp },
        Call::Restore(_)
        | Call::Timers(..)
        | Call::Now(_)
        | Call::Snapshot
        | Call::Trim(_)
        | Call::Again(_)
        | Call::Close => return Ok(()),
    };
    let before = look(instance)?;
    instance.look_back(&trial, None, Instant::now() + Duration::from_secs(1));
    if look(instance)? == before {
        Ok(())
    } else {
        Err("looking for the row that failed has changed the state".to_owned())
    }
}

/// What came of a case that failed, if that is a way in which a guest may fail.
fn failed(error: &OperatorError, setting: &Setting, opening: bool) -> Result<&'static str, String> {
    check_error(error)?;
    let expected = match &*error.failure {
        Failure::State(of_state) => of_state.is_guest_fault(),
        Failure::Deadline { .. } => setting.spins,
        Failure::Migration(_) => opening && setting.version < TABLES[0].2,
        Failure::Instances { .. } | Failure::Unfit { .. } | Failure::StateSize { .. } => false,
        _ => true,
    };
    if expected { Ok(error.failure.word()) } else { Err(format!("no failure of a guest: {error} ({error:?})")) }
}

/// What an instance leaves is what a snapshot brings back.
fn reads_back(world: &World, store: &Store, instance: Instance) -> Result<(), String> {
    let mut state = Box::new(instance).into_state().ok_or("the state is gone")?;
    let before = Look::at(&state)?;
    let restored =
        store.through_a_snapshot(world, &mut state).map_err(|error| format!("it can't be read back: {error}"))?;
    let behind = Look::at(&restored)?;
    if behind == before { Ok(()) } else { Err(format!("{before:?} became {behind:?} through a snapshot")) }
}

/// The host still runs other operators.
fn goes_on(world: &World) -> Result<(), String> {
    let mut rows = Batch::default();
    rows.push(Row { key: None, value: Some(b"a record"), timestamp: 1 });
    let mut emitted = Emitted::new();
    let instance = world.good.instantiate(context("{}".to_owned(), Limits::default(), false));
    let processed = instance.and_then(|mut instance| instance.process(0, &rows, &mut emitted));
    match processed {
        Ok(_) if emitted.len() == 1 && emitted[0].1 == rows => Ok(()),
        Ok(_) => Err(format!("a good operator puts out {emitted:?}")),
        Err(error) => Err(format!("a good operator fails: {error}")),
    }
}
