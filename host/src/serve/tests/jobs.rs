//! The life of jobs: submitted, watched, stopped, started again, resumed, deleted.

use super::*;
use crate::serve::{ErrorKind, JobStatus, StopMode};

async fn with_copy(place: &Place) -> Arc<Daemon> {
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    daemon.submit(copy(place.path(), "same.wasm")).await.expect("submitted");
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_and_says_what_it_does() {
    let place = Place::new();
    let daemon = with_copy(&place).await;
    let info = until(&daemon, "copy", |info| {
        let moves = info.parts.values().any(|part| part.records_out_per_s > 0.0);
        info.status == JobStatus::Running && info.checkpoint.is_some() && moves
    })
    .await;
    assert!(info.resumes && info.failure.is_none() && info.retry.is_none());
    assert!(info.uptime_ms.is_some() && info.started_at_ms >= Some(info.submitted_at_ms));
    assert_eq!(info.guarantee.as_deref(), Some("exactly-once"));
    let names = info.parts.keys().map(|name| name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["numbers", "out", "same"]);
    assert_eq!(info.state_dir, Some(place.data().canonicalize().expect("there").join("jobs/copy/state")));
    let metrics = daemon.metrics();
    assert!(metrics.contains("lockgate_checkpoints_total{job=\"copy\"}"), "{metrics}");
    let stopped = daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_eq!((stopped.status, stopped.resumes, stopped.uptime_ms), (JobStatus::Stopped, false, None));
    assert_eq!(daemon.metrics(), "", "nothing runs");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_where_it_was_however_it_was_stopped() {
    let place = Place::new();
    let daemon = with_copy(&place).await;
    for how in [StopMode::Checkpoint, StopMode::Now, StopMode::Savepoint] {
        until_checkpoints(&daemon, "copy", 2).await;
        let stopped = daemon.stop("copy", how).await.expect("stopped");
        assert_eq!(stopped.status, JobStatus::Stopped, "{how:?}");
        let again = daemon.stop("copy", how).await.expect("it is stopped");
        assert_eq!(again.status, JobStatus::Stopped);
        daemon.restart("copy", None).await.expect("started again");
    }
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.restart("copy", None).await.expect("stopped and started again");
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_were_running_go_on_with_the_next_daemon_and_stopped_ones_rest() {
    let place = Place::new();
    let daemon = with_copy(&place).await;
    until_checkpoints(&daemon, "copy", 2).await;
    // As by a crash.
    drop(daemon);
    let daemon = place.start().await;
    until_checkpoints(&daemon, "copy", 2).await;
    daemon.shut_down().await;
    let error = daemon.restart("copy", None).await.expect_err("shutting down");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(daemon.job("copy").expect("there").resumes);
    drop(daemon);
    let daemon = place.start().await;
    until_checkpoints(&daemon, "copy", 2).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    let numbers = place.numbers();
    assert_exactly_once(&numbers);
    drop(daemon);
    let daemon = place.start().await;
    let info = daemon.job("copy").expect("there");
    assert_eq!((info.status, info.resumes, info.parts.len()), (JobStatus::Stopped, false, 3));
    assert_eq!(place.numbers(), numbers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_started_again_loses_nothing_that_it_has_read() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    let seldom = changed(copy(place.path(), "same.wasm"), "'20ms'", "'1h'");
    daemon.submit(seldom).await.expect("submitted");
    until(&daemon, "copy", |info| info.parts.values().any(|part| part.records_in > 0)).await;
    assert_eq!(daemon.checkpoints("copy").await.expect("listed"), []);
    daemon.restart("copy", None).await.expect("stopped and started again");
    assert_eq!(daemon.checkpoints("copy").await.expect("listed").len(), 1, "its last one");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_input_has_ended_is_ended_and_stays_so() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    let bounded = changed(copy(place.path(), "same.wasm"), "rate = 2000", "count = 500");
    daemon.submit(bounded).await.expect("submitted");
    let ended = until(&daemon, "copy", |info| info.status == JobStatus::Ended).await;
    assert!(!ended.resumes && ended.failure.is_none());
    assert_eq!(place.numbers(), (0..500).collect::<Vec<_>>());
    daemon.shut_down().await;
    drop(daemon);
    let daemon = place.start().await;
    assert_eq!(daemon.job("copy").expect("there").status, JobStatus::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_for_good_says_why_and_others_run_on() {
    let place = Place::new();
    let daemon = with_copy(&place).await;
    let trap = Guest { name: "trap", process: "unreachable".to_owned(), ..Guest::default() }.component();
    place.component("trap.wasm", &trap);
    let bad = changed(copy(place.path(), "trap.wasm"), "name = 'copy'", "name = 'bad'");
    let bad = changed(bad, "path = 'out'", "path = 'bad-out'");
    let bad = changed(bad, "[checkpoint]", "[restart]\nstrategy = 'none'\n[checkpoint]");
    daemon.submit(bad.clone()).await.expect("submitted");
    let failed = until(&daemon, "bad", |info| info.status == JobStatus::Failed).await;
    let failure = failed.failure.expect("why");
    assert!(failure.causes.iter().any(|cause| cause.contains("'same'") || cause.contains("same[0]")), "{failure:?}");
    assert!(!failed.resumes);
    let before = until_checkpoints(&daemon, "copy", 1).await.checkpoints;
    until_checkpoints(&daemon, "copy", before + 1).await;
    drop(daemon);
    let daemon = place.start().await;
    let still = daemon.job("bad").expect("there");
    assert_eq!((still.status, still.failure), (JobStatus::Failed, Some(failure)), "it is kept");
    // With another component it goes on.
    let mended = changed(bad, "trap.wasm", "same.wasm");
    daemon.restart("bad", Some(mended)).await.expect("started again");
    until_checkpoints(&daemon, "bad", 1).await;
    daemon.stop("bad", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&numbers_in(&place.path().join("bad-out")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_job_file_that_can_not_be_used_leaves_the_job_running() {
    let place = Place::new();
    let daemon = with_copy(&place).await;
    until_checkpoints(&daemon, "copy", 1).await;
    let good = copy(place.path(), "same.wasm");
    for (from, to, wanted) in [
        ("rate = 2000", "rate = 'fast'", "job.toml:10: source.numbers.rate"),
        ("name = 'copy'", "name = 'other'", "the changed job file is of the job 'other', not of 'copy'"),
        ("'same.wasm'", "'none.wasm'", "none.wasm"),
        ("[checkpoint]", "max_parallelism = 7\n[checkpoint]", "can't continue from its newest checkpoint"),
    ] {
        let error = daemon.restart("copy", Some(changed(good.clone(), from, to))).await.expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let info = daemon.job("copy").expect("there");
    assert_eq!((info.status, &info.job_toml), (JobStatus::Running, &good.job_toml));
    let slower = changed(good, "rate = 2000", "rate = 1000");
    let info = daemon.restart("copy", Some(slower.clone())).await.expect("started again");
    assert_eq!(info.job_toml, slower.job_toml);
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_job_that_does_not_run_is_deleted_and_then_nothing_of_it_is_left() {
    let place = Place::new();
    let daemon = with_copy(&place).await;
    let error = daemon.delete("copy").await.expect_err("it runs");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    daemon.stop("copy", StopMode::Now).await.expect("stopped");
    daemon.delete("copy").await.expect("deleted");
    assert_eq!(daemon.job("copy").expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(daemon.jobs(), []);
    assert_eq!(std::fs::read_dir(place.data().join("jobs")).expect("listed").count(), 0);
    for name in ["../copy", "", "a b", "é"] {
        assert_eq!(daemon.job(name).expect_err(name).kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_submissions_of_one_name_one_is_refused() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    let (one, two) =
        tokio::join!(daemon.submit(copy(place.path(), "same.wasm")), daemon.submit(copy(place.path(), "same.wasm")));
    let refused = one.err().or(two.err()).expect("one is refused");
    assert_eq!(refused.to_string(), "there is a job 'copy' already");
    assert_eq!(daemon.jobs().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_brokers_can_not_be_reached_is_tried_again_until_it_is_stopped() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    // A port that nobody listens at.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let kafka =
        format!("type = 'kafka'\nbrokers = '{free}'\ntopics = ['numbers']\n[source.others]\ntype = 'generator'");
    let job = changed(copy(place.path(), "same.wasm"), "type = 'generator'", &kafka);
    let job = changed(job, "input = 'numbers'", "inputs = [['numbers', 'others']]");
    daemon.submit(job).await.expect("submitted");
    let info = until(&daemon, "copy", |info| info.status == JobStatus::Restarting).await;
    let retry = info.retry.expect("why");
    assert!(retry.cause.contains(&free.to_string()) || retry.cause.contains("numbers"), "{retry:?}");
    assert!(info.resumes && info.failure.is_none());
    let stopped = daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_eq!((stopped.status, stopped.retry), (JobStatus::Stopped, None));
}
