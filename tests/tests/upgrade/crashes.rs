//! A process that is killed at any step of an upgrade comes back with the component that its newest checkpoint names, and the output
//! is exact.

use lockgate_tests::crash_points_of_upgrades;

use crate::job::{UpgradedJob, changes, hash, replaced_by, upgrade_to};

/// Enough that the upgrade is over before them, on a busy machine as well.
const WORDS: u64 = 500_000;
/// Some have been read before the upgrade is asked for.
const FIRST: &str = "read:1000";

/// Around the publish and the commit of both checkpoints of an upgrade, which are the first two of a job that takes no others.
const AROUND: [&str; 9] = [
    "runtime.publish.before",
    "store.publish.before",
    "store.publish.after",
    "runtime.published",
    "runtime.commit.before",
    "connector.rename.before",
    "connector.record.after",
    "runtime.commit.sink",
    "runtime.committed",
];

/// Kills an upgrade at a point, then runs on. Tells whether the point was reached.
fn kill_at(point: &str, job: UpgradedJob) -> bool {
    let mut job = job;
    job.add_words(WORDS);
    let killed = job.drive_to(point, &[FIRST, &upgrade_to("new")]);
    if !killed.finished.was_killed() {
        killed.finished.assert_success();
        return false;
    }
    let new_is_in_force = job.in_force() == Some(hash("new"));
    job.add_words(WORDS);
    let candidate = replaced_by("new");
    let again = job.drive(&["--candidate", &candidate]);
    again.finished.assert_success();
    let works = job.assert_exact();
    let (last, expected) = (works.last().expect("there is output"), if new_is_in_force { "new" } else { "old" });
    assert_eq!(last.edition, expected, "after a kill at {point}: {works:?}");
    let in_force = if new_is_in_force { hash("new") } else { hash("old") };
    assert_eq!(job.in_force(), Some(in_force), "after a kill at {point}");
    assert!(!changes(&works).ends_with(&["new", "old"]), "what was decided stays: {works:?}");
    // What was interrupted can be done again, and what was done can be undone.
    job.add_words(WORDS);
    let other = upgrade_to(if new_is_in_force { "old" } else { "new" });
    job.drive(&["--candidate", &candidate, FIRST, &other]).answer("upgraded");
    job.assert_exact();
    true
}

#[test]
fn at_every_step_of_an_upgrade() {
    for point in crash_points_of_upgrades() {
        // A component that fails comes by the points of a revert.
        let fault = if point.starts_with("upgrade.revert") { "process" } else { "" };
        let job = || UpgradedJob::new().fault(fault);
        if fault.is_empty() {
            assert!(kill_at(&point, job()), "no upgrade ever comes by {point}");
            kill_at(&format!("{point}:2"), job());
        } else {
            assert!(kill_reverting_at(&point, job()), "no revert ever comes by {point}");
        }
    }
}

/// The new component fails, and the process is killed while the job goes back.
fn kill_reverting_at(point: &str, mut job: UpgradedJob) -> bool {
    job.add_words(WORDS);
    let killed = job.drive_to(point, &[FIRST, &upgrade_to("new")]);
    if !killed.finished.was_killed() {
        return false;
    }
    job.add_words(WORDS);
    job.drive(&["--candidate", &replaced_by("new")]).finished.assert_success();
    assert_eq!(changes(&job.assert_exact()), ["old"], "after a kill at {point}");
    true
}

#[test]
fn around_the_publish_and_the_commit_of_both_its_checkpoints() {
    for point in AROUND {
        for epoch in 1..=2 {
            let job = UpgradedJob::new().checkpoint("interval = \"1h\"");
            assert!(kill_at(&format!("{point}:{epoch}"), job), "{point} is reached {epoch} times");
        }
    }
}

#[test]
fn with_barriers_that_overtake() {
    for point in ["upgrade.swap.before", "upgrade.swap.after:2", "upgrade.probation", "upgrade.adopted"] {
        let job = UpgradedJob::new().checkpoint("interval = \"20ms\"\nalignment = \"unaligned\"");
        assert!(kill_at(point, job), "no upgrade ever comes by {point}");
    }
}
