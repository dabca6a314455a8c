//! Whose transactions these are, and which checkpoint was decided last: what doesn't fit together is refused, and going on is
//! possible once it fits again.

use std::fs;
use std::path::{Path, PathBuf};

use lockgate_tests::kafka::{Client, NewRecord, Record};
use lockgate_tests::{Feed, KafkaJob, assert_exactly_once, numbered, wait_until};

use crate::brokers::shared;
use crate::{FAILED, UNUSABLE};

/// A job that has copied 1,000 records and is down.
pub fn job_with_state(client: &Client, brokers: &str) -> KafkaJob {
    let job = KafkaJob::copy("identity", brokers);
    job.create_topics(client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    job.catch_up(client);
    job
}

/// Copies 1,000 records more, which makes 2,000.
fn assert_goes_on(job: &KafkaJob, client: &Client) {
    client.produce(&job.input(), &numbered(1_000..2_000));
    job.catch_up(client);
    assert_exactly_once(2_000, &client.read(&job.output(), true));
}

/// A copy of a folder beside it.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder is ours");
    for entry in fs::read_dir(from).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        let copy = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            fs::copy(&path, &copy).expect("the folder is ours");
        }
    }
}

pub fn newest_manifest(job: &KafkaJob) -> PathBuf {
    let entries = fs::read_dir(job.manifests()).expect("it has checkpoints");
    entries.map(|entry| entry.expect("it can be listed").path()).max().expect("a manifest")
}

#[test]
fn a_second_process_of_the_same_job_is_refused_and_the_first_goes_on() {
    let Some((broker, client)) = shared("two processes of a job") else { return };
    let job = KafkaJob::copy("twice", broker.address());
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    let mut first = job.folder.start();
    job.wait_until_caught_up(&mut first, &client);
    job.folder.run().assert_refused(FAILED, &[job.name(), "state"]);
    client.produce(&job.input(), &numbered(1_000..2_000));
    job.wait_until_caught_up(&mut first, &client);
    first.terminate();
    let finished = first.wait();
    finished.assert_success();
    assert!(!finished.stderr.contains("restart"), "{}", finished.stderr);
    assert_exactly_once(2_000, &client.read(&job.output(), true));
}

#[test]
fn a_job_of_the_same_name_with_another_store_is_refused_without_shutting_out_the_first() {
    let Some((broker, client)) = shared("two jobs of a name") else { return };
    let job = KafkaJob::copy("namesake", broker.address());
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    let mut first = job.folder.start();
    job.wait_until_caught_up(&mut first, &client);
    let twin = job.twin();
    for _ in 0..2 {
        twin.folder.run().assert_refused(UNUSABLE, &[&job.marker_topic(), "name"]);
    }
    client.produce(&job.input(), &numbered(1_000..2_000));
    job.wait_until_caught_up(&mut first, &client);
    first.terminate();
    let finished = first.wait();
    finished.assert_success();
    assert!(!finished.stderr.contains("restart"), "{}", finished.stderr);
    assert_exactly_once(2_000, &client.read(&job.output(), true));
}

#[test]
fn a_foreign_program_with_a_transactional_id_of_the_job_is_told_and_the_job_does_not_fight_it() {
    let Some((broker, client)) = shared("foreign programs") else { return };
    for slot in ["A", "B"] {
        let job = KafkaJob::copy("foreign", broker.address());
        job.create_topics(&client, 2);
        let elsewhere = job.topic("elsewhere");
        client.create_topic(&elsewhere, 1);
        client.produce(&job.input(), &numbered(0..1_000));
        let mut running = job.folder.start();
        job.wait_until_caught_up(&mut running, &client);
        let id = format!("{}/0/{slot}", job.name());
        client.begin_transaction(&id, 60_000, &elsewhere, &[NewRecord::value("foreign")]);
        let mut feed = Feed::new(&client, &job);
        feed.resume(1_000);
        wait_until("the job has met the other", || {
            feed.add(10);
            !running.is_alive()
        });
        let finished = running.wait();
        finished.assert_refused(FAILED, &[&id]);
        assert!(!finished.stderr.contains("restart 1"), "it would shut the other one out: {}", finished.stderr);
        // Not shut out, it can still commit.
        client.commit_transaction(&id).expect("the job has left it alone");
        job.catch_up(&client);
        assert_exactly_once(feed.count(), &client.read(&job.output(), true));
    }
}

#[test]
fn a_marker_topic_that_was_deleted_stops_the_job_until_it_is_put_back() {
    let Some((broker, client)) = shared("deleted marker topics") else { return };
    let job = job_with_state(&client, broker.address());
    let marker = job.marker_topic();
    let markers = client.read(&marker, true);
    client.delete_topic(&marker);
    for _ in 0..2 {
        let refused = job.folder.run();
        refused.assert_refused(UNUSABLE, &[&marker]);
        assert!(!refused.stderr.contains("made the topic"), "it would be of no use: {}", refused.stderr);
        assert!(!client.topics().contains(&marker), "nothing is made for a job that can't go on");
    }
    assert_exactly_once(1_000, &client.read(&job.output(), true));
    client.create_topic_with(&marker, 1, &[("cleanup.policy", "compact")]);
    // An empty one isn't taken for a beginning.
    job.folder.run().assert_refused(UNUSABLE, &[&marker]);
    client.produce(&marker, &markers.into_iter().map(again).collect::<Vec<_>>());
    assert_goes_on(&job, &client);
}

/// The same record once more.
fn again(Record { key, value, .. }: Record) -> NewRecord {
    NewRecord { key, value, ..NewRecord::default() }
}

#[test]
fn a_marker_topic_that_is_deleted_while_the_job_runs_ends_it_by_name_and_nothing_more_is_decided() {
    let Some((broker, client)) = shared("marker topics that are deleted while the job runs") else { return };
    // Longer than the test waits for the end: it isn't by its age that the transaction fails.
    let job = KafkaJob::copy("identity", broker.address()).with("sink.out", "transaction_timeout", "'15m'");
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    let mut running = job.folder.start();
    job.wait_until_caught_up(&mut running, &client);
    let marker = job.marker_topic();
    let markers = client.read(&marker, true);
    client.delete_topic(&marker);
    client.produce(&job.input(), &numbered(1_000..2_000));
    running.wait().assert_refused(FAILED, &[&marker, "deleted", "lockgate checkpoint list"]);
    assert_exactly_once(1_000, &client.read(&job.output(), true));
    client.create_topic_with(&marker, 1, &[("cleanup.policy", "compact")]);
    client.produce(&marker, &markers.into_iter().map(again).collect::<Vec<_>>());
    job.catch_up(&client);
    assert_exactly_once(2_000, &client.read(&job.output(), true));
}

#[test]
fn a_marker_that_goes_back_is_refused_until_the_newest_is_there_again() {
    let Some((broker, client)) = shared("markers that go back") else { return };
    let job = job_with_state(&client, broker.address());
    let marker = job.marker_topic();
    let older = client.read(&marker, true).pop().expect("a marker");
    let old_epoch = job.newest_epoch();
    assert_goes_on(&job, &client);
    let newest = client.read(&marker, true).pop().expect("a marker");
    assert!(job.newest_epoch() > old_epoch);
    client.produce(&marker, &[again(older)]);
    // One of those after it is named, of which there may be several.
    let names = format!("it names checkpoint {old_epoch}, and after that ");
    for _ in 0..2 {
        job.folder.run().assert_refused(UNUSABLE, &[&marker, &names, " was decided"]);
    }
    assert_exactly_once(2_000, &client.read(&job.output(), true));
    client.produce(&marker, &[again(newest)]);
    client.produce(&job.input(), &numbered(2_000..3_000));
    job.catch_up(&client);
    assert_exactly_once(3_000, &client.read(&job.output(), true));
}

#[test]
fn a_marker_topic_is_made_with_one_partition_that_keeps_the_newest_of_each_key() {
    let Some((broker, client)) = shared("the marker topic") else { return };
    let job = job_with_state(&client, broker.address());
    let marker = job.marker_topic();
    assert_eq!(client.partition_count(&marker), 1);
    assert_eq!(client.topic_configs(&marker).get("cleanup.policy").map(String::as_str), Some("compact"));
    let newest = client.read(&marker, true).pop().expect("the newest marker");
    assert_eq!(newest.key_text(), format!("{}/0", job.name()));
    let newest = serde_json::from_str::<serde_json::Value>(newest.text()).expect("JSON");
    assert_eq!(newest["epoch"], job.newest_epoch());
    assert_eq!((&newest["version"], &newest["job"], &newest["slot"]), (&1.into(), &job.name().into(), &0.into()));
}

#[test]
fn a_checkpoint_store_that_was_put_back_to_an_older_state_is_refused() {
    let Some((broker, client)) = shared("older checkpoint stores") else { return };
    let job = job_with_state(&client, broker.address());
    let (state, older, newer) = (job.folder.path("state"), job.folder.path("older"), job.folder.path("newer"));
    let old_epoch = job.newest_epoch();
    copy_folder(&state, &older);
    assert_goes_on(&job, &client);
    let new_epoch = job.newest_epoch();
    fs::rename(&state, &newer).expect("the folder is ours");
    copy_folder(&older, &state);
    for _ in 0..2 {
        let epochs = [format!("checkpoint {new_epoch}"), format!("its newest is {old_epoch}")];
        job.folder.run().assert_refused(UNUSABLE, &[&epochs[0], &epochs[1], &job.marker_topic()]);
    }
    assert_exactly_once(2_000, &client.read(&job.output(), true));
    fs::remove_dir_all(&state).expect("the folder is ours");
    fs::rename(&newer, &state).expect("the folder is ours");
    client.produce(&job.input(), &numbered(2_000..3_000));
    job.catch_up(&client);
    assert_exactly_once(3_000, &client.read(&job.output(), true));
}

#[test]
fn a_second_host_with_an_older_store_is_refused_and_the_first_runs_on_unharmed() {
    let Some((broker, client)) = shared("older stores on a second host") else { return };
    let job = job_with_state(&client, broker.address());
    let (second, old_epoch) = (job.twin(), job.newest_epoch());
    copy_folder(&job.folder.path("state"), &second.folder.path("state"));
    let mut first = job.folder.start();
    client.produce(&job.input(), &numbered(1_000..2_000));
    job.wait_until_caught_up(&mut first, &client);
    let newest = format!("its newest is {old_epoch}");
    for _ in 0..2 {
        second.folder.run().assert_refused(UNUSABLE, &[&newest, &job.marker_topic(), "another copy of the job"]);
    }
    client.produce(&job.input(), &numbered(2_000..3_000));
    job.wait_until_caught_up(&mut first, &client);
    first.terminate();
    let finished = first.wait();
    finished.assert_success();
    assert!(!finished.stderr.contains("restart"), "{}", finished.stderr);
    assert_exactly_once(3_000, &client.read(&job.output(), true));
}

#[test]
fn a_checkpoint_store_that_was_lost_is_missed() {
    let Some((broker, client)) = shared("lost checkpoint stores") else { return };
    let job = job_with_state(&client, broker.address());
    let (state, kept) = (job.folder.path("state"), job.folder.path("kept"));
    fs::rename(&state, &kept).expect("the folder is ours");
    for _ in 0..2 {
        job.folder.run().assert_refused(UNUSABLE, &[&job.marker_topic()]);
    }
    assert_exactly_once(1_000, &client.read(&job.output(), true));
    assert!(!state.exists(), "the refused runs leave none");
    fs::rename(&kept, &state).expect("the folder is ours");
    assert_goes_on(&job, &client);
}

#[test]
fn a_decided_checkpoint_that_the_store_has_lost_is_named() {
    let Some((broker, client)) = shared("lost checkpoints") else { return };
    let job = job_with_state(&client, broker.address());
    let (epoch, manifest) = (job.newest_epoch(), newest_manifest(&job));
    let whole = fs::read(&manifest).expect("a manifest can be read");
    fs::remove_file(&manifest).expect("the store is ours");
    job.folder.run().assert_refused(UNUSABLE, &[&format!("checkpoint {epoch}"), &job.marker_topic()]);
    fs::write(&manifest, whole).expect("the store is ours");
    assert_goes_on(&job, &client);
}

#[test]
fn a_sink_that_decided_the_checkpoints_can_be_neither_removed_nor_moved() {
    let Some((broker, client)) = shared("deciding sinks that are gone") else { return };
    let mut job = job_with_state(&client, broker.address());
    let decided = format!("checkpoint {}", job.newest_epoch());
    job.change("sink.out", "marker_topic", &format!("'{}'", job.topic("other-marker")));
    job.folder.run().assert_refused(UNUSABLE, &[&decided, &job.marker_topic(), &job.topic("other-marker")]);
    job.without("sink.out", "marker_topic");
    assert_goes_on(&job, &client);
}
