//! How much a daemon takes, and from whom.

use super::*;
use crate::serve::{ErrorKind, JOB_TOML_BYTES_MAX, JobStatus, StopMode, Unfit};
use crate::store::tests::mount::{Mount, fill};

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_plugins_and_jobs_are_limited() {
    let place = Place::new();
    let mut options = options(place.path());
    (options.plugins_max, options.jobs_max) = (1, 1);
    let daemon = Daemon::start(options).await.expect("a daemon");
    let plugin = upload(&daemon, &same("first")).await.expect("taken in");
    let error = upload(&daemon, &same("second")).await.expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    upload(&daemon, &same("first")).await.expect("it is there already");
    let submission = copy(place.path(), &format!("sha256:{}", plugin.hash));
    daemon.submit(submission.clone()).await.expect("submitted");
    let error = daemon.submit(changed(submission, "'copy'", "'more'")).await.expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_uploads_at_a_time_than_there_are_places_are_refused() {
    let place = Place::new();
    let daemon = place.start().await;
    let mut under_way = Vec::new();
    let refused = loop {
        match daemon.begin_upload().await {
            Ok(upload) => under_way.push(upload),
            Err(error) => break error,
        }
    };
    assert_eq!((refused.kind(), under_way.len()), (ErrorKind::Busy, crate::serve::upload::UPLOADS_MAX));
    under_way.pop();
    daemon.begin_upload().await.map(drop).expect("a place is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_may_be_as_large_as_the_limit_and_no_larger() {
    let place = Place::new();
    let component = same("first");
    for (spare, is_taken) in [(0, true), (1, false)] {
        let plugin_bytes_max = component.len() as u64 - spare;
        let daemon =
            Daemon::start(DaemonOptions { plugin_bytes_max, ..options(place.path()) }).await.expect("a daemon");
        let kind = upload(&daemon, &component).await.err().map(|error| error.kind());
        assert_eq!(kind, (!is_taken).then_some(ErrorKind::TooLarge));
        daemon.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_on_the_same_folder_is_refused() {
    let place = Place::new();
    let daemon = place.start().await;
    let error = start_at(place.path()).await.map(drop).expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("is in use by another daemon"), "{error}");
    drop(daemon);
    place.start().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_file_is_of_a_bounded_size_and_its_paths_lead_somewhere() {
    let place = Place::new();
    let daemon = place.start().await;
    let refused = async |submission: Submission| daemon.submit(submission).await.expect_err("refused");
    let job_toml = "#".repeat(JOB_TOML_BYTES_MAX as usize + 1);
    let error = refused(Submission { job_toml, base_dir: None }).await;
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let nowhere = Submission { base_dir: None, ..copy(place.path(), "same.wasm") };
    let error = refused(nowhere).await;
    assert_eq!(
        error.to_string(),
        "wasm of [operator.same] is 'same.wasm', a relative path, and no base_dir says what it is relative to"
    );
    let error = refused(Submission { base_dir: Some("jobs".into()), ..copy(place.path(), "same.wasm") }).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = refused(Submission { job_toml: "[job".to_owned(), base_dir: None }).await;
    assert!(error.to_string().starts_with("job.toml:1: this is not TOML"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_places_are_found_unfit_is_refused() {
    let place = Place::new();
    place.component("same.wasm", &same("first"));
    let unfit = Unfit { message: "it reads what it writes".to_owned(), help: Some("keep them apart".to_owned()) };
    let check = Arc::new(move |_: &crate::config::JobFile| Err::<(), _>(unfit.clone()));
    let daemon = Daemon::start_with(options(place.path()), check).await.expect("a daemon");
    let error = daemon.submit(copy(place.path(), "same.wasm")).await.expect_err("unfit");
    assert_eq!(
        (error.to_string().as_str(), error.help().as_deref()),
        ("it reads what it writes", Some("keep them apart"))
    );
    assert_eq!((error.kind(), daemon.jobs()), (ErrorKind::Invalid, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_requests_fail_and_nothing_is_lost_or_half() {
    let Some(mount) = Mount::new("size=4m") else { return };
    let place = Place::new();
    let options = DaemonOptions { data_dir: mount.folder.join("data"), ..options(place.path()) };
    let daemon = Daemon::start(options.clone()).await.expect("a daemon");
    let plugin = upload(&daemon, &same("first")).await.expect("taken in");
    // Its state is elsewhere, so that only the daemon lacks space.
    let submission = copy(place.path(), &format!("sha256:{}", plugin.hash));
    let submission = changed(submission, "name = 'copy'", "name = 'copy'\nstate_dir = 'state'");
    daemon.submit(submission.clone()).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
    let filling = fill(&mount.folder);
    let full = |error: ServeError| {
        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        assert!(error.help().is_some_and(|help| help.contains("free space on that disk")), "{error:?}");
    };
    full(upload(&daemon, &same("second")).await.expect_err("no space"));
    full(daemon.submit(changed(submission.clone(), "'copy'", "'more'")).await.expect_err("no space"));
    full(daemon.stop("copy", StopMode::Checkpoint).await.expect_err("it can't be noted"));
    full(daemon.restart("copy", Some(changed(submission, "2000", "1000"))).await.expect_err("no space"));
    let info = daemon.job("copy").expect("there");
    assert!(info.resumes && info.status == JobStatus::Running, "{info:?}");
    let before = info.checkpoints;
    until_checkpoints(&daemon, "copy", before + 1).await;
    std::fs::remove_file(filling).expect("freed");
    drop(daemon);
    let daemon = Daemon::start(options).await.expect("a daemon");
    assert_eq!((daemon.plugins().len(), daemon.jobs().len()), (1, 1));
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}
