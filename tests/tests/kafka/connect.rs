//! `check --connect` of a job that has run: whether marker, store and input topics still fit together is said before anything runs,
//! as the run would say it, and without changing any of it.

use std::fs;

use lockgate_tests::{KafkaJob, assert_exactly_once, numbered};

use crate::UNUSABLE;
use crate::brokers::shared;
use crate::identity::{job_with_state, newest_manifest};

/// The check finds something that keeps the job from running, and says each of these; the run then ends by it, too.
#[track_caller]
fn assert_found(job: &KafkaJob, says: &[&str]) {
    let checked = job.check_connected();
    assert_eq!(checked.status.code(), Some(UNUSABLE), "{checked:?}");
    for said in says.iter().chain(&["error: ", "help: ", "can't run on its brokers"]) {
        assert!(format!("{}{}", checked.stdout, checked.stderr).contains(said), "'{said}' in: {checked:?}");
    }
    assert!(!checked.stdout.contains("ok: this job can run"), "{checked:?}");
    job.folder.run().assert_refused(UNUSABLE, says);
}

#[track_caller]
fn assert_good(job: &KafkaJob) {
    let checked = job.check_connected();
    assert!(checked.status.success() && checked.stdout.contains("ok: this job can run"), "{checked:?}");
}

#[test]
fn a_job_that_can_go_on_is_told_so_while_it_is_down_and_while_it_runs() {
    let Some((broker, client)) = shared("checks of jobs that have run") else { return };
    let job = job_with_state(&client, broker.address());
    let before = (job.newest_epoch(), client.end_offsets(&job.marker_topic(), false));
    assert_good(&job);
    assert_eq!((job.newest_epoch(), client.end_offsets(&job.marker_topic(), false)), before, "it changes nothing");
    // One that was killed between publishing and deciding goes on from the checkpoint before.
    client.produce(&job.input(), &numbered(1_000..1_500));
    assert!(job.folder.run_to_crash_point("kafka.commit.before").was_killed());
    assert_good(&job);
    let mut running = job.folder.start();
    job.wait_until_caught_up(&mut running, &client);
    assert_good(&job);
    running.terminate();
    running.wait().assert_success();
    assert_exactly_once(1_500, &client.read(&job.output(), true));
}

#[test]
fn a_marker_topic_that_is_gone_or_empty_is_found_before() {
    let Some((broker, client)) = shared("checks of lost markers") else { return };
    let job = job_with_state(&client, broker.address());
    let newest = format!("the newest checkpoint is {}", job.newest_epoch());
    client.delete_topic(&job.marker_topic());
    assert_found(&job, &[&job.marker_topic(), &newest, "has no marker"]);
    assert!(!job.check_connected().stdout.contains("the job makes it"), "it doesn't, where one is missed");
    client.create_topic_with(&job.marker_topic(), 1, &[("cleanup.policy", "compact")]);
    assert_found(&job, &[&job.marker_topic(), &newest, "has no marker"]);
}

#[test]
fn a_store_that_is_older_than_the_marker_is_found_before() {
    let Some((broker, client)) = shared("checks of older stores") else { return };
    let job = job_with_state(&client, broker.address());
    let newest = newest_manifest(&job);
    let decided = format!("checkpoint {} was decided", job.newest_epoch());
    let whole = fs::read(&newest).expect("a manifest can be read");
    fs::remove_file(&newest).expect("the store is ours");
    assert_found(&job, &[&job.marker_topic(), &decided, "the store doesn't have it"]);
    fs::write(&newest, whole).expect("the store is ours");
    assert_good(&job);
}

#[test]
fn records_that_were_deleted_before_they_were_read_are_found_before() {
    let Some((broker, client)) = shared("checks of deleted records") else { return };
    let job = KafkaJob::copy("connect", broker.address());
    job.create_topics(&client, 1);
    client.produce(&job.input(), &numbered(0..1_000));
    job.catch_up(&client);
    client.produce(&job.input(), &numbered(1_000..2_000));
    assert_good(&job);
    client.delete_records(&job.input(), 0, 1_500);
    assert_found(&job, &[&job.input(), "1000", "1500"]);
}
