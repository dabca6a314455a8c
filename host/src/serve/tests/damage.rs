//! Files of the data folder that are torn, foreign or gone: one job's trouble is that job's alone.

use super::*;
use crate::serve::{JobStatus, StopMode};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_files_are_damaged_says_so_and_the_others_go_on() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    daemon.submit(copy(place.path(), "same.wasm")).await.expect("submitted");
    let other = changed(copy(place.path(), "same.wasm"), "'copy'", "'torn'");
    let other = changed(other, "path = 'out'", "path = 'torn-out'");
    daemon.submit(other.clone()).await.expect("submitted");
    until_checkpoints(&daemon, "torn", 1).await;
    daemon.shut_down().await;
    drop(daemon);
    let jobs = place.data().join("jobs");
    let spec = jobs.join("torn/spec.json");
    let whole = std::fs::read(&spec).expect("a specification");
    std::fs::write(&spec, &whole[..whole.len() / 2]).expect("torn");
    std::fs::create_dir(jobs.join("empty")).expect("a folder");
    std::fs::write(jobs.join("notes"), "mine").expect("a file");

    let daemon = place.start().await;
    until_checkpoints(&daemon, "copy", 1).await;
    let names = daemon.jobs().into_iter().map(|job| job.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names, ["copy", "empty", "torn"]);
    for (job, wanted) in [("torn", "torn/spec.json is damaged"), ("empty", "empty/spec.json is damaged: it is missing")]
    {
        let info = daemon.job(job).expect("listed");
        assert_eq!(info.status, JobStatus::Failed);
        let error = info.failure.expect("why").error;
        assert!(error.contains(wanted), "{error}");
        assert!(daemon.restart(job, None).await.is_err(), "nobody knows what it is");
        assert!(daemon.stop(job, StopMode::Now).await.is_err());
    }
    // With its job file it goes on where it was.
    daemon.restart("torn", Some(other)).await.expect("mended");
    until_checkpoints(&daemon, "torn", 1).await;
    daemon.stop("torn", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&numbers_in(&place.path().join("torn-out")));
    daemon.delete("empty").await.expect("deleted");
    assert!(jobs.join("notes").exists(), "what isn't ours stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_was_changed_on_the_disk_is_not_used() {
    let place = Place::new();
    let daemon = place.start().await;
    let plugin = upload(&daemon, &same("first")).await.expect("taken in");
    let wasm = format!("sha256:{}", plugin.hash);
    daemon.submit(copy(place.path(), &wasm)).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.shut_down().await;
    drop(daemon);
    let path = place.data().join(format!("plugins/{}.wasm", plugin.hash));
    std::fs::write(&path, same("second")).expect("written");
    std::fs::write(place.data().join("plugins/notes.txt"), "mine").expect("written");

    let daemon = place.start().await;
    let info = until(&daemon, "copy", |info| info.status == JobStatus::Failed).await;
    let error = info.failure.expect("why").error;
    assert!(error.contains(plugin.hash.as_str()) && error.contains("its content has the hash"), "{error}");
    assert!(info.resumes, "the next start tries again");
    daemon.shut_down().await;
    drop(daemon);
    std::fs::write(&path, same("first")).expect("put back");
    let daemon = place.start().await;
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_gone_is_that_jobs_trouble() {
    let place = Place::new();
    let daemon = place.start().await;
    let plugin = upload(&daemon, &same("first")).await.expect("taken in");
    daemon.submit(copy(place.path(), &format!("sha256:{}", plugin.hash))).await.expect("submitted");
    daemon.shut_down().await;
    drop(daemon);
    std::fs::remove_file(place.data().join(format!("plugins/{}.wasm", plugin.hash))).expect("removed");
    let daemon = place.start().await;
    let info = until(&daemon, "copy", |info| info.status == JobStatus::Failed).await;
    assert_eq!(info.failure.expect("why").error, format!("there is no plugin {}", plugin.hash));
    let stopped = daemon.stop("copy", StopMode::Checkpoint).await.expect("it rests");
    assert_eq!((stopped.status, stopped.failure), (JobStatus::Stopped, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_plugin_is_mended_by_uploading_it_again() {
    let place = Place::new();
    let daemon = place.start().await;
    let plugin = upload(&daemon, &same("first")).await.expect("taken in");
    let path = place.data().join(format!("plugins/{}.wasm", plugin.hash));
    let wasm = format!("sha256:{}", plugin.hash);
    for damaged in [same("second"), b"no component any more".to_vec()] {
        std::fs::write(&path, damaged).expect("written");
        let error = daemon.submit(copy(place.path(), &wasm)).await.expect_err("damaged").to_string();
        assert!(error.contains("its content has the hash") && error.contains("uploading"), "{error}");
        assert_eq!(upload(&daemon, &same("first")).await.expect("mended"), plugin);
    }
    daemon.submit(copy(place.path(), &wasm)).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
}
