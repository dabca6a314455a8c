//! SIGKILL before and after every durable step of a daemon.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;
use crate::serve::{ErrorKind, JobStatus, StopMode, UpgradeSpec};

const FOLDER: &str = "LOCKGATE_TEST_SERVE_FOLDER";
/// Each with how often a life comes by it. The specification is written when an upgrade is noted and when it is over, when a job is to
/// stop, when it has, when it is started again, and at its two last stops.
const POINTS: [(&str, u32); 12] = [
    ("serve.plugin.before", 2),
    ("serve.plugin.after", 2),
    ("serve.job.before", 1),
    ("serve.job.after", 1),
    ("serve.spec.before", 7),
    ("serve.spec.after", 7),
    ("serve.upgrade.noted", 1),
    ("serve.upgrade.answered", 1),
    ("serve.delete.before", 1),
    ("serve.delete.after", 1),
    ("serve.remove-plugin.before", 2),
    ("serve.remove-plugin.after", 2),
];

/// A whole life: two plugins, a job that gets one after the other, is stopped, started again, deleted.
async fn live(root: &Path) -> Result<(), ServeError> {
    let daemon = start_at(root).await?;
    let first = upload(&daemon, &same("first")).await?;
    let second = upload(&daemon, &same("second")).await?;
    daemon.submit(copy(root, &format!("sha256:{}", first.hash))).await?;
    until_checkpoints(&daemon, "copy", 1).await;
    let to_second = UpgradeSpec { plugin: second.hash.to_string(), dry_run: false, probation_ms: Some(0) };
    daemon.upgrade("copy", "same", to_second).await?;
    daemon.stop("copy", StopMode::Savepoint).await?;
    daemon.restart("copy", None).await?;
    until_checkpoints(&daemon, "copy", 1).await;
    end(&daemon).await
}

/// The rest of any life: what is there is stopped and goes, in the order in which it may.
async fn end(daemon: &Daemon) -> Result<(), ServeError> {
    if daemon.job("copy").is_ok() {
        daemon.stop("copy", StopMode::Checkpoint).await?;
        for kept in daemon.checkpoints("copy").await?.into_iter().filter(|checkpoint| checkpoint.kept) {
            daemon.delete_savepoint("copy", kept.epoch.0).await?;
        }
        daemon.delete("copy").await?;
    }
    for plugin in daemon.plugins() {
        daemon.remove_plugin(plugin.hash.as_str()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn live_for_another_test() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    live(Path::new(&folder)).await.expect("a whole life");
}

/// Lives in another process that is killed when it comes by the point for the `hit`-th time; `false` if it never did.
fn killed_at(point: &str, hit: u32, root: &Path) -> bool {
    let module = module_path!().split_once("::").expect("a crate").1;
    let test = format!("{module}::live_for_another_test");
    let mut process = Command::new(std::env::current_exe().expect("this binary"));
    process.args([&test, "--exact", "--nocapture"]);
    let done = process.env(FOLDER, root).env("LOCKGATE_CRASH_AT", format!("{point}:{hit}")).output();
    let done = done.expect("another process");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() || done.status.signal() == Some(9), "{point}:{hit}: {said}");
    !done.status.success()
}

/// What a daemon makes of what a dead one has left: everything is whole, goes on, and can be ended.
async fn take_up(point: &str, root: &Path) {
    let daemon = start_at(root).await.unwrap_or_else(|error| panic!("{point}: {error}"));
    assert!(daemon.plugins().iter().all(|plugin| plugin.problem.is_none()), "{point}");
    match daemon.job("copy") {
        Ok(info) if info.resumes => drop(until_checkpoints(&daemon, "copy", 1).await),
        Ok(info) => {
            assert_eq!(info.status, JobStatus::Stopped, "{point}: {info:?}");
            daemon.restart("copy", None).await.unwrap_or_else(|error| panic!("{point}: {error}"));
            until_checkpoints(&daemon, "copy", 1).await;
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{point}"),
    }
    assert!(daemon.jobs().iter().all(|info| info.upgrading.is_none()), "{point}");
    end(&daemon).await.unwrap_or_else(|error| panic!("{point}: {error}"));
    for folder in ["data/plugins", "data/jobs"] {
        let left = std::fs::read_dir(root.join(folder)).expect("listed").count();
        assert_eq!(left, 0, "{point}: {folder}");
    }
    let numbers = numbers_in(&root.join("out"));
    if !numbers.is_empty() {
        assert_exactly_once(&numbers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_at_any_step_the_next_daemon_takes_up_what_there_is_and_nothing_is_half() {
    for (point, hits) in POINTS {
        for hit in 1..=hits {
            let place = Place::new();
            assert!(killed_at(point, hit, place.path()), "{point}:{hit} is on the way");
            take_up(&format!("{point}:{hit}"), place.path()).await;
        }
    }
}
