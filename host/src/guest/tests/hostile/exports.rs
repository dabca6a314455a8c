//! Each function that an operator exports, with each way never to come back from it.

use super::super::guest::{Guest, Migrating};
use super::super::migration::{TWICE, old_state, own_keys};
use super::super::timers::{SET_TIMERS, open_timed_within, timed};
use super::super::*;
use super::{DIG, SPIN, assert_goes_on, short};
use crate::guest::{Call, Clock, Emitted, Failure, OperatorInstance};
use crate::id::Epoch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Export {
    Describe,
    Open,
    Restore,
    Process,
    Timers,
    Watermark,
    Snapshot,
    Trim,
    Close,
    Prepare,
    Migrate,
    Merge,
}

const ALL: [Export; 12] = [
    Export::Describe,
    Export::Open,
    Export::Restore,
    Export::Process,
    Export::Timers,
    Export::Watermark,
    Export::Snapshot,
    Export::Trim,
    Export::Close,
    Export::Prepare,
    Export::Migrate,
    Export::Merge,
];

/// Makes it one that has to merge what it has migrated.
fn migrating(guest: &mut Guest) -> &mut Migrating {
    (guest.tables, guest.timers) = (vec![("counts", 0, 2)], true);
    guest.migrating.insert(Migrating { migrate: TWICE.to_owned(), ..Migrating::default() })
}

/// An operator that does this in one of its functions.
fn guest(export: Export, fault: &str) -> Guest {
    let mut guest = Guest { extra: DIG.to_owned(), ..Guest::default() };
    let place = match export {
        Export::Describe => &mut guest.describe,
        Export::Open => &mut guest.open,
        Export::Restore => &mut guest.restore,
        Export::Process => &mut guest.process,
        Export::Timers => {
            guest.process = SET_TIMERS.to_owned();
            &mut guest.on_timers
        }
        Export::Watermark => &mut guest.watermark,
        Export::Snapshot => &mut guest.snapshot,
        Export::Trim => &mut guest.trim,
        Export::Close => &mut guest.close,
        Export::Prepare => &mut migrating(&mut guest).prepare,
        Export::Migrate => &mut migrating(&mut guest).migrate,
        Export::Merge => &mut migrating(&mut guest).merge,
    };
    fault.clone_into(place);
    guest
}

/// Brings an operator to the call of that function, and gives the error of it.
fn error_of(export: Export, guest: Guest, limits: Limits) -> OperatorError {
    let emitted = &mut Emitted::new();
    if export == Export::Timers {
        let (_folder, mut instance) = open_timed_within(guest, false, limits);
        instance.process(0, &timed(&[5]), emitted).expect("they are set");
        return instance.fire_timers(Clock::EventTime, 9, emitted).expect_err("it fails");
    }
    let (_folder, path) = file(&guest.component());
    let plugin = match engine().load_within(&name("op"), &path, limits) {
        Ok(plugin) => plugin,
        Err(GuestError::Plugin { problem, .. }) => match *problem {
            Problem::Describe(error) => return error,
            other => panic!("{export:?}: {other}"),
        },
        Err(other) => panic!("{export:?}: {other}"),
    };
    let (_folder, state) = guest.migrating.is_some().then(|| old_state(&own_keys(1), false)).unzip();
    let mut instance = match plugin.instantiate(InstanceContext { state, ..context(limits) }) {
        Ok(instance) => instance,
        Err(error) => return error,
    };
    let ended = match export {
        Export::Restore => instance.restore(&[vec![1]]),
        Export::Process => instance.process(0, &batch(&["a"]), emitted).map(drop),
        Export::Watermark => instance.watermark(1, emitted),
        Export::Snapshot => instance.snapshot(Epoch(1)).map(drop),
        Export::Trim => instance.trim(0),
        Export::Close => instance.close(),
        Export::Describe | Export::Open | Export::Timers | Export::Prepare | Export::Migrate | Export::Merge => Ok(()),
    };
    ended.expect_err(&format!("{export:?} fails"))
}

fn is_of(export: Export, call: Call) -> bool {
    match call {
        Call::Describe => export == Export::Describe,
        Call::Instantiate => false,
        Call::Open => export == Export::Open,
        Call::Prepare { .. } => export == Export::Prepare,
        Call::Migrate { .. } => export == Export::Migrate,
        Call::Merge { .. } => export == Export::Merge,
        Call::Restore => export == Export::Restore,
        Call::Process { .. } => export == Export::Process,
        Call::Timers { .. } => export == Export::Timers,
        Call::Watermark { .. } => export == Export::Watermark,
        Call::Snapshot { .. } => export == Export::Snapshot,
        Call::Trim => export == Export::Trim,
        Call::Close => export == Export::Close,
    }
}

/// Every function ends with the failure that is wanted, which is told as that function's.
#[track_caller]
fn assert_each_ends(fault: &str, limits: Limits, wanted: impl Fn(&Failure) -> bool) {
    for export in ALL {
        let error = error_of(export, guest(export, fault), limits);
        assert!(is_of(export, error.call) && wanted(&error.failure), "{export:?}: {error}");
        assert!(error.to_string().starts_with("operator 'op["), "{error}");
        assert!(!error.help().is_empty());
    }
    assert_goes_on();
}

#[test]
fn an_endless_loop_ends_at_its_deadline_in_each_export() {
    let limits = short();
    assert_each_ends(
        SPIN,
        limits,
        |failure| matches!(failure, Failure::Deadline { limit } if *limit == limits.call_timeout),
    );
}

#[test]
fn a_trap_is_told_in_each_export() {
    let unreachable = |failure: &Failure| matches!(failure, Failure::Trap { trap } if trap.contains("unreachable"));
    assert_each_ends("unreachable", Limits::default(), unreachable);
}

#[test]
fn an_endless_recursion_ends_with_its_stack_in_each_export() {
    let limits = Limits { stack_bytes_max: 128 * 1024, ..Limits::default() };
    assert_each_ends("(call $dig)", limits, |failure| matches!(failure, Failure::Stack { limit_bytes: 131_072 }));
}

#[test]
fn a_memory_that_grows_without_an_end_meets_its_limit_in_each_export() {
    let limits = Limits { memory_bytes_max: 1 << 20, ..Limits::default() };
    let grow = "(loop $more (drop (memory.grow (i32.const 1))) (br $more))";
    assert_each_ends(grow, limits, |failure| matches!(failure, Failure::Memory { limit_bytes: 1_048_576, .. }));
}
