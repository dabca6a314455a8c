//! An operator gets another component while the job runs: nothing is lost or doubled, its state goes on, and a component that fails is
//! replaced by the one before, whatever happens and wherever the process is killed.

mod crashes;
mod job;
mod load;

use job::{UpgradedJob, Work, changes, hash, replaced_by, upgrade_to};
use lockgate_tests::operator;

/// Enough that an upgrade is over before them, on a busy machine as well.
const WORDS: u64 = 1_000_000;
/// Some have been read before anything is asked for.
const FIRST: &str = "read:1000";
/// As long as nothing else ends it.
const HOUR: [&str; 2] = ["--probation-ms", "3600000"];

fn lines_of(works: &[Work], edition: &str) -> u64 {
    works.iter().filter(|work| work.edition == edition).map(|work| work.lines).sum()
}

#[test]
fn the_new_component_goes_on_where_the_old_one_was_and_the_way_back_is_the_same() {
    const EACH: u64 = 10_000;
    let mut job = UpgradedJob::new().continuous();
    job.add_words(EACH);
    let [second, third] = [2, 3].map(|_| format!("add:{}", job.keep_words(EACH)));
    let read = [1, 2, 3].map(|files| format!("read:{}", files * EACH));
    let (new, old) = (upgrade_to("new"), upgrade_to("old"));
    let driven = job.drive(&[&read[0], &new, &second, &read[1], &old, &third, &read[2], "stop"]);
    driven.finished.assert_success();
    let upgraded = driven.answer("upgraded");
    let (swapped, adopted) = (upgraded["swapped_at"].as_u64(), upgraded["adopted_at"].as_u64());
    assert_eq!(swapped.map(|epoch| epoch + 1), adopted);
    assert_eq!(driven.answer("restarts").as_u64(), Some(0));
    let works = job.assert_exact();
    assert_eq!(changes(&works), ["old", "new", "old"]);
    assert_eq!((lines_of(&works, "new"), lines_of(&works, "old")), (EACH, 2 * EACH), "each has had what was its own");
    let first_of_new = works.iter().find(|work| work.edition == "new").map(|work| work.epoch);
    assert!(first_of_new >= adopted && swapped >= Some(works[0].epoch), "{works:?}, {upgraded}");
    assert_eq!(job.in_force(), Some(hash("old")));
}

#[test]
fn the_next_run_goes_on_with_the_component_that_its_job_file_names() {
    let mut job = UpgradedJob::new();
    job.add_words(WORDS);
    job.drive(&[FIRST, &upgrade_to("new")]).answer("upgraded");
    assert_eq!(job.in_force(), Some(hash("new")));
    job.add_words(WORDS);
    job.folder.run().assert_success();
    assert_eq!(changes(&job.assert_exact()), ["old", "new", "old"], "the file is the truth");
    assert_eq!(job.in_force(), Some(hash("old")));
}

#[test]
fn a_new_component_that_fails_anywhere_is_reverted_without_a_restart_and_nothing_is_lost_or_doubled() {
    for place in ["open", "restore", "process", "snapshot"] {
        let mut job = UpgradedJob::new().fault(place);
        job.add_words(WORDS);
        let driven = job.drive(&[FIRST, &upgrade_to("new")]);
        driven.finished.assert_success();
        let why = driven.answer("reverted").as_str().expect("a text");
        assert!(why.contains(&format!("the new edition fails at {place}")), "{why}");
        assert_eq!(driven.answer("restarts").as_u64(), Some(0), "a revert isn't counted");
        assert_eq!(changes(&job.assert_exact()), ["old"]);
        assert_eq!(job.in_force(), Some(hash("old")));
    }
}

#[test]
fn what_the_new_component_traps_at_is_no_poison_to_the_old_one() {
    let mut job = UpgradedJob::new().fault("process").on_error("skip");
    job.add_words(WORDS);
    let driven = job.drive(&[FIRST, &upgrade_to("new")]);
    driven.finished.assert_success();
    driven.answer("reverted");
    assert_eq!(changes(&job.assert_exact()), ["old"], "no record is skipped");
}

#[test]
fn an_operator_under_a_policy_is_upgraded_under_it() {
    let mut job = UpgradedJob::new().on_error("skip");
    job.add_words(WORDS);
    let driven = job.drive(&[FIRST, &upgrade_to("new")]);
    driven.finished.assert_success();
    driven.answer("upgraded");
    assert_eq!(changes(&job.assert_exact()), ["old", "new"]);
}

#[test]
fn barriers_that_overtake_swap_as_well() {
    for barriers in [
        "interval = \"20ms\"\nalignment = \"unaligned\"",
        "interval = \"20ms\"\nalignment = \"unaligned\"\nalignment_timeout = \"5ms\"",
    ] {
        let mut job = UpgradedJob::new().checkpoint(barriers);
        // A checkpoint is waited for before the upgrade.
        job.add_words(4 * WORDS);
        let driven = job.drive(&[FIRST, "checkpoint", &upgrade_to("new")]);
        driven.finished.assert_success();
        driven.answer("upgraded");
        assert!(changes(&job.assert_exact()).ends_with(&["new"]), "{barriers}");
    }
}

#[test]
fn several_checkpoints_at_a_time_wait_for_the_probation() {
    let mut job = UpgradedJob::new().continuous().checkpoint("interval = \"1ms\"\nmax_concurrent = 4");
    job.add_words(WORDS);
    let all = format!("read:{WORDS}");
    let driven = job.drive(&["--probation-ms", "50", FIRST, &upgrade_to("new"), &all, "stop"]);
    driven.finished.assert_success();
    let upgraded = driven.answer("upgraded");
    assert_eq!(upgraded["swapped_at"].as_u64().map(|epoch| epoch + 1), upgraded["adopted_at"].as_u64());
    job.assert_exact();
}

#[test]
fn what_doesnt_fit_is_refused_with_all_reasons_and_nothing_happens() {
    let mut job = UpgradedJob::new();
    job.add_words(1_000);
    let split = format!("upgrade:tally={}", operator("split").display());
    let driven = job.drive(&[&split, &upgrade_to("old")]);
    driven.finished.assert_success();
    let refused = driven.answers.iter().filter_map(|answer| answer["upgrade_refused"].as_str()).collect::<Vec<_>>();
    assert_eq!(refused.len(), 2, "{:?}", driven.answers);
    for reason in ["keeps no state by key", "no table 'counts'"] {
        assert!(refused[0].contains(reason), "{refused:?}");
    }
    assert!(refused[1].contains("has this component already"), "{refused:?}");
    assert_eq!(changes(&job.assert_exact()), ["old"]);
}

#[test]
fn the_end_of_the_input_doesnt_wait_for_the_probation_and_adopts() {
    let mut job = UpgradedJob::new();
    job.add_words(WORDS);
    let driven = job.drive(&[&HOUR[..], &[FIRST, &upgrade_to("new")]].concat());
    driven.finished.assert_success();
    assert_eq!(driven.answer("upgraded")["adopted_at"], *driven.answer("epoch"));
    assert_eq!(job.in_force(), Some(hash("new")));
    job.assert_exact();
}

#[test]
fn a_job_that_is_cancelled_on_probation_goes_on_with_the_old_component() {
    let mut job = UpgradedJob::new().continuous().checkpoint("interval = \"1h\"");
    job.add_words(WORDS);
    let (all, start) = (format!("read:{WORDS}"), format!("start:{}", replaced_by("new")));
    let driven = job.drive(&[&HOUR[..], &[FIRST, &start, "committed:1", &all, "cancel"]].concat());
    driven.finished.assert_success();
    driven.answer("not_upgraded");
    assert_eq!(driven.answer("cancelled").as_bool(), Some(true));
    assert_eq!(job.in_force(), Some(hash("old")));
    let read_again = WORDS - job.committed_lines();
    let driven = job.drive(&["--candidate", &replaced_by("new"), &format!("read:{read_again}"), "stop"]);
    assert_eq!(driven.answer("resumed_from").as_u64(), Some(1));
    assert_eq!(changes(&job.assert_exact()), ["old"]);
}

#[test]
fn a_stopped_job_takes_the_checkpoint_that_was_asked_for_and_its_last_one() {
    let mut job = UpgradedJob::new().continuous().checkpoint("interval = \"1h\"");
    job.add_words(WORDS);
    let driven = job.drive(&[FIRST, "checkpoint", &format!("read:{WORDS}"), "checkpoint", "checkpoint", "stop"]);
    driven.finished.assert_success();
    let taken = driven.answers.iter().filter_map(|answer| answer["checkpoint"].as_u64()).collect::<Vec<_>>();
    assert_eq!(taken, [1, 2, 3], "also when nothing has changed");
    assert_eq!(driven.answer("epoch").as_u64(), Some(3), "there was nothing left for the last one");
    job.assert_exact();
}
