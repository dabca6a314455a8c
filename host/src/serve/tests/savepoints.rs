//! Checkpoints that a user keeps.

use super::*;
use crate::guest::tests::guest::{RESULT, store};
use crate::serve::{ErrorKind, StopMode};

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_of_a_running_job_outlives_the_checkpoints_after_it() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    daemon.submit(copy(place.path(), "same.wasm")).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
    let savepoint = daemon.savepoint("copy").await.expect("kept");
    assert!(savepoint.kept && savepoint.problem.is_none());
    let newer = |info: &JobInfo| info.checkpoint.is_some_and(|newest| newest.epoch.0 > savepoint.epoch.0 + 5);
    until(&daemon, "copy", newer).await;
    let kept = daemon.checkpoints("copy").await.expect("listed").into_iter().filter(|it| it.kept);
    assert_eq!(kept.collect::<Vec<_>>(), std::slice::from_ref(&savepoint));
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    let error = daemon.delete("copy").await.expect_err("it has a savepoint");
    assert_eq!(error.to_string(), format!("the job 'copy' has a savepoint: {}", savepoint.epoch));
    daemon.delete_savepoint("copy", savepoint.epoch.0).await.expect("deleted");
    let left = daemon.checkpoints("copy").await.expect("listed");
    assert_eq!(left.len(), 1, "of a stopped job it goes at once: {left:?}");
    let error = daemon.delete_savepoint("copy", left[0].epoch.0).await.expect_err("it is none");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    daemon.delete("copy").await.expect("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_stops_with_a_savepoint_that_is_its_last_checkpoint_and_goes_on_from_there() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    daemon.submit(copy(place.path(), "same.wasm")).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Savepoint).await.expect("stopped");
    let checkpoints = daemon.checkpoints("copy").await.expect("listed");
    assert!(checkpoints.last().expect("one").kept, "{checkpoints:?}");
    let again = daemon.savepoint("copy").await.expect("kept already");
    assert_eq!(Some(&again), checkpoints.last());
    daemon.restart("copy", None).await.expect("started again");
    until_checkpoints(&daemon, "copy", 3).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    let kept = daemon.checkpoints("copy").await.expect("listed").into_iter().filter(|it| it.kept).count();
    assert_eq!(kept, 1);
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_of_a_job_that_restarts_for_ever_is_refused() {
    let place = Place::new();
    let daemon = place.start().await;
    // No snapshot of it succeeds, and each time it says that the next one may.
    let snapshot = store(RESULT, [1]);
    let failing = Guest { name: "failing", process: EMIT_INPUT.to_owned(), snapshot, ..Guest::default() }.component();
    place.component("same.wasm", &failing);
    let restart = "[restart]\nstrategy = 'fixed-delay'\nattempts = 1000000\ndelay = '1ms'\n[checkpoint]";
    let submission = changed(copy(place.path(), "same.wasm"), "[checkpoint]", restart);
    daemon.submit(submission).await.expect("submitted");
    until(&daemon, "copy", |info| info.restarts > 0).await;
    let error = daemon.savepoint("copy").await.expect_err("it never comes");
    assert!(error.to_string().contains("5 attempts of the job have failed meanwhile"), "{error}");
    daemon.stop("copy", StopMode::Now).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_checkpoint_has_nothing_to_keep() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    // The first checkpoint would come in a month, and to stop at once takes none.
    let rare = changed(copy(place.path(), "same.wasm"), "interval = '20ms'", "interval = '30d'");
    daemon.submit(rare).await.expect("submitted");
    daemon.stop("copy", StopMode::Now).await.expect("stopped");
    assert_eq!(daemon.checkpoints("copy").await.expect("listed"), []);
    let error = daemon.savepoint("copy").await.expect_err("nothing to keep");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("has no checkpoint to keep"), "{error}");
}
