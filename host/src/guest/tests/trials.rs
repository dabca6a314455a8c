//! Trials find what has failed, do it again, and leave no trace.

use std::time::{Duration, Instant};

use super::guest::Guest;
use super::timers::{SET_TIMERS, open_timed, timed};
use super::wasi::{VERSION, count, counted, guest_of};
use super::*;
use crate::element::NO_TIMESTAMP;
use crate::guest::{Again, Clock, Draws, Emitted, Made, OperatorInstance, Read, Repeat, TrialCall};
use crate::id::Epoch;

/// Traps if an `x` is among the values of the batch.
const TRAP_AT_X: &str = "(block $done (loop $next
    (br_if $done (i32.ge_u (local.get $i) (local.get 7)))
    (if (i32.eq (i32.load8_u (i32.add (local.get 6) (local.get $i))) (i32.const 120)) (then (unreachable)))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br $next)))";

fn in_time() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn process(rows: Batch) -> TrialCall {
    TrialCall::Process { port: 0, rows }
}

fn repeat_of(again: &Again, reads: Vec<Read>) -> Repeat<'_> {
    Repeat { trial: &again.trial, draws: Some(again.draws), reads }
}

/// The values of a call's rows.
fn values(call: &TrialCall) -> Vec<String> {
    let rows = call.rows().expect("it has rows");
    rows.iter().map(|row| String::from_utf8_lossy(row.value.unwrap_or_default()).into_owned()).collect()
}

#[test]
fn the_row_at_which_a_call_has_failed_is_found_and_fails_again_and_again() {
    let mut instance = open(&Guest { process: TRAP_AT_X.to_owned(), ..Guest::default() });
    let rows = batch(&["a", "b", "x", "c", "x"]);
    instance.process(0, &rows, &mut Emitted::new()).expect_err("there is an x");
    let again = instance.look_back(&process(rows), None, in_time()).expect("it is found");
    assert_eq!((values(&again.trial.call), again.trial.watermark_ms), (vec!["x".to_owned()], NO_TIMESTAMP));
    let facts = instance.facts();
    let reads = again.tried.recorded.reads.clone();
    let repeated = facts.plugin.repeat(facts.place, *facts.limits, None, repeat_of(&again, reads));
    let text = |tried: &crate::guest::Tried| tried.outcome.as_ref().expect_err("an x").to_string();
    assert_eq!(text(&repeated), text(&again.tried));
    assert_eq!(repeated.recorded.effects, again.tried.recorded.effects);
}

#[test]
fn what_only_an_old_instance_does_is_not_blamed_on_a_row() {
    let process_once = "(if (global.get $calls) (then (unreachable))) (global.set $calls (i32.const 1))";
    let extra = "(global $calls (mut i32) (i32.const 0))".to_owned();
    let mut instance = open(&Guest { process: process_once.to_owned(), extra, ..Guest::default() });
    instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect("the first call");
    let fresh = instance.again(Epoch(1), process(batch(&["b"])), Made::NotYet).expect("a snapshot");
    fresh.tried.outcome.expect("a fresh instance processes it");
    instance.process(0, &batch(&["b"]), &mut Emitted::new()).expect_err("the second call");
    assert!(instance.look_back(&process(batch(&["b"])), None, in_time()).is_none());
}

#[test]
fn a_trial_sets_timers_that_never_were() {
    let guest = Guest { process: SET_TIMERS.to_owned(), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest, false);
    let again = instance.again(Epoch(1), process(timed(&[5])), Made::NotYet).expect("a snapshot");
    again.tried.outcome.expect("it passes");
    assert_eq!(again.tried.recorded.effects.writes, 1);
    assert_eq!(instance.next_timer(Clock::EventTime), None);
    instance.process(0, &timed(&[7]), &mut Emitted::new()).expect("the instance is as it was");
    assert_eq!(instance.next_timer(Clock::EventTime), Some(7));
}

#[test]
fn timers_at_which_a_call_has_failed_are_tried_and_still_there() {
    let guest = Guest { process: SET_TIMERS.to_owned(), on_timers: TRAP_AT_X.replace("120", "49"), ..Guest::default() };
    let (_folder, mut instance) = open_timed(guest, false);
    instance.process(0, &timed(&[10, 20, 30]), &mut Emitted::new()).expect("they are set");
    instance.fire_timers(Clock::EventTime, 25, &mut Emitted::new()).expect_err("its tag is '1'");
    for _ in 0..2 {
        let rows = instance.due_again(Clock::EventTime, 25).expect("they are there");
        assert_eq!(rows.rows, 2);
        let call = TrialCall::Timers { clock: Clock::EventTime, rows };
        let again = instance.look_back(&call, None, in_time()).expect("it is found");
        assert_eq!((values(&again.trial.call), again.trial.watermark_ms), (vec!["1".to_owned()], 25));
    }
}

#[test]
fn a_search_that_is_late_finds_nothing() {
    let mut instance = open(&Guest { process: TRAP_AT_X.to_owned(), ..Guest::default() });
    let rows = batch(&["a", "x"]);
    instance.process(0, &rows, &mut Emitted::new()).expect_err("there is an x");
    assert!(instance.look_back(&process(rows.clone()), None, Instant::now()).is_none());
    let said = instance.look_back(&process(rows), Some(1), Instant::now()).expect("there is nothing to search");
    assert_eq!(values(&said.trial.call), ["x"]);
}

/// A random number for each byte of the batch's values, of which `each` makes something.
fn draw_for_each(each: &str) -> String {
    format!(
        "(block $done (loop $next
            (br_if $done (i32.ge_u (local.get $i) (local.get 7)))
            {each}
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $next)))"
    )
}

/// A random number that a counter can take.
pub const NUMBER: &str = "(i64.shr_u (call $random ) (i64.const 8))";

/// Traps at this random number.
pub fn trap_at(number: u64) -> String {
    draw_for_each(&format!("(if (i64.eq {NUMBER} (i64.const {number})) (then (unreachable)))"))
}

/// Whether a trial is made again as it was; and what it is elsewhere among the random numbers.
fn assert_repeats(instance: &Instance, again: &Again) {
    let facts = instance.facts();
    let repeat = |draws| {
        let repeat = Repeat { draws, ..repeat_of(again, Vec::new()) };
        facts.plugin.repeat(facts.place, *facts.limits, None, repeat).outcome
    };
    let text = again.tried.outcome.as_ref().expect_err("it has failed").to_string();
    assert_eq!(repeat(Some(again.draws)).expect_err("it fails again").to_string(), text);
    repeat(Some(Draws { call: again.draws.call + 1, ..again.draws })).expect("another call has other numbers");
    repeat(None).expect("and one that nobody has numbered");
}

#[test]
fn a_call_that_fails_by_chance_has_the_same_random_numbers_in_its_trial() {
    let times = [5, 5, 6];
    // In which call it fails, every row of the batch a call of its own.
    let numbers = counted(&guest_of(VERSION, &count(NUMBER)), 1, &times);
    let mut instance = open(&guest_of(VERSION, &trap_at(numbers[2])));
    for now_ms in &times[..2] {
        instance.set_now(*now_ms);
        instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect("other numbers");
    }
    instance.set_now(times[2]);
    instance.process(0, &batch(&["b"]), &mut Emitted::new()).expect_err("that number");
    let again = instance.look_back(&process(batch(&["b"])), None, in_time()).expect("it is found");
    assert_repeats(&instance, &again);
}

#[test]
fn a_row_that_fails_by_chance_is_found_among_those_that_have_had_the_numbers_before() {
    let sum_of = |rows: usize| {
        let plugin = load_bytes(&guest_of(VERSION, &draw_for_each(&count(NUMBER))).component()).expect("it loads");
        let context = context(Limits::default());
        let counters = context.counters.clone();
        let mut instance = plugin.instantiate(context).expect("it opens");
        instance.set_now(9);
        instance.process(0, &batch(&vec!["a"; rows]), &mut Emitted::new()).expect("it counts");
        counters.read()[&name("n")]
    };
    let third = sum_of(3) - sum_of(2);
    let mut instance = open(&guest_of(VERSION, &trap_at(third)));
    instance.set_now(9);
    let rows = batch(&["a", "b", "c", "d"]);
    instance.process(0, &rows, &mut Emitted::new()).expect_err("that number");
    let again = instance.look_back(&process(rows.clone()), None, in_time()).expect("it is found");
    assert_eq!((values(&again.trial.call), again.draws), (vec!["c".to_owned()], Draws { call: 2, taken: 2 }));
    assert_repeats(&instance, &again);
    let said = instance.look_back(&process(rows), Some(2), in_time()).expect("the operator has said which");
    assert_eq!(said.draws, again.draws);
}

#[test]
fn a_call_that_is_still_to_come_has_the_numbers_that_it_will_have() {
    let number = counted(&guest_of(VERSION, &count(NUMBER)), 1, &[0, 0, 0])[2];
    let mut instance = open(&guest_of(VERSION, &trap_at(number)));
    instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect("other numbers");
    // The snapshot of the trial is a call as well, as it is in the job when the record comes.
    let again = instance.again(Epoch(1), process(batch(&["b"])), Made::NotYet).expect("a snapshot");
    assert_eq!(again.draws, Draws { call: 4, taken: 0 });
    assert_repeats(&instance, &again);
    instance.process(0, &batch(&["b"]), &mut Emitted::new()).expect_err("so it does");
}

#[test]
fn a_row_that_was_rejected_has_the_numbers_with_which_its_call_began() {
    let mut instance = open(&guest_of(VERSION, &draw_for_each("(drop (call $random ))")));
    for _ in 0..2 {
        instance.process(0, &batch(&["a", "b"]), &mut Emitted::new()).expect("processed");
    }
    for epoch in [1, 2] {
        // Snapshots are calls as well, but none with records.
        let again = instance.again(Epoch(epoch), process(batch(&["b"])), Made::Last).expect("a snapshot");
        assert_eq!(again.draws, Draws { call: 3, taken: 0 });
    }
}
