//! Plugins: what is taken in, what isn't, and when one may go.

use super::*;
use crate::id::PluginHash;
use crate::serve::{ErrorKind, JobStatus, StopMode, UpgradeSpec};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_content_twice_is_one_plugin_and_it_is_there_after_a_restart() {
    let place = Place::new();
    let daemon = place.start().await;
    let first = upload(&daemon, &same("first")).await.expect("taken in");
    assert_eq!(upload(&daemon, &same("first")).await.expect("the same"), first);
    let second = upload(&daemon, &same("second")).await.expect("another");
    assert_ne!(first.hash, second.hash);
    let operator = first.operator.as_ref().expect("usable");
    assert_eq!((operator.name.as_str(), operator.version.as_str()), ("first", "1.2.3"));
    assert_eq!(operator.redistribution, "split");
    assert_eq!(daemon.plugin(&format!("sha256:{}", first.hash)).expect("by its hash"), first);
    let both = daemon.plugins();
    daemon.shut_down().await;
    drop(daemon);
    let daemon = place.start().await;
    assert_eq!(daemon.plugins(), both);
    // What stands beside them isn't needed.
    daemon.shut_down().await;
    drop(daemon);
    std::fs::remove_file(place.data().join(format!("plugins/{}.json", first.hash))).expect("removed");
    let daemon = place.start().await;
    let again = daemon.plugin(first.hash.as_str()).expect("there");
    assert_eq!((again.operator, again.size_bytes), (first.operator, first.size_bytes));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_operator_or_too_large_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let daemon = place.start().await;
    for (bytes, wanted) in [(&b""[..], "it is empty"), (b"\x7fELF", "it is not WebAssembly")] {
        let error = upload(&daemon, bytes).await.expect_err(wanted);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            error.to_string().contains(&format!("the component can't be used as an operator: {wanted}")),
            "{error}"
        );
    }
    let error = upload(&daemon, &vec![0; (1 << 20) + 1]).await.expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let half = daemon.begin_upload().await.expect("begun");
    drop(half);
    assert_eq!(std::fs::read_dir(place.data().join("plugins")).expect("listed").count(), 0);
    assert_eq!(daemon.plugins(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_stays_while_a_job_names_it_and_is_in_memory_only_while_one_runs() {
    let place = Place::new();
    let daemon = place.start().await;
    let plugin = upload(&daemon, &same("first")).await.expect("taken in");
    let wasm = format!("sha256:{}", plugin.hash);
    daemon.submit(copy(place.path(), &wasm)).await.expect("submitted");
    assert_eq!(daemon.plugin(&wasm).expect("there").used_by[0].as_str(), "copy");
    assert!(daemon.plugins.is_in_memory(&plugin.hash));
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    let error = daemon.remove_plugin(&wasm).await.expect_err("a job names it");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().ends_with("is used by the job 'copy'"), "{error}");
    assert!(!daemon.plugins.is_in_memory(&plugin.hash), "nothing of the job runs");
    daemon.delete("copy").await.expect("deleted");
    daemon.remove_plugin(&wasm).await.expect("removed");
    assert_eq!(daemon.remove_plugin(&wasm).await.expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(place.data().join("plugins")).expect("listed").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_at_a_path_is_taken_in_so_that_later_changes_of_the_file_do_not_matter() {
    let place = Place::new();
    let daemon = place.start().await;
    let path = place.component("same.wasm", &same("first"));
    let info = daemon.submit(copy(place.path(), "same.wasm")).await.expect("submitted");
    let hash: &PluginHash = info.plugins.values().next().expect("one operator");
    std::fs::write(&path, "no component any more").expect("written");
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    let again = daemon.restart("copy", None).await.expect("as it was submitted");
    assert_eq!(again.plugins.values().collect::<Vec<_>>(), [hash]);
    until(&daemon, "copy", |info| info.status == JobStatus::Running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_refused_job_would_have_needed_does_not_stay() {
    let place = Place::new();
    let daemon = place.start().await;
    place.component("same.wasm", &same("first"));
    let wrong = changed(copy(place.path(), "same.wasm"), "input = 'same'", "input = 'same:other'");
    assert_eq!(daemon.submit(wrong).await.expect_err("no such output").kind(), ErrorKind::Invalid);
    assert_eq!(daemon.plugins(), []);
    let missing = daemon.submit(copy(place.path(), "none.wasm")).await.expect_err("no such file");
    assert!(missing.to_string().contains("none.wasm"), "{missing}");
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    let unknown = format!("sha256:{}", "0".repeat(64));
    assert_eq!(daemon.submit(copy(place.path(), &unknown)).await.expect_err("none").kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_uploads_of_the_same_component_at_the_same_time_one_is_new() {
    let place = Place::new();
    let daemon = place.start().await;
    let component = same("first");
    let mut whole = Vec::new();
    for _ in 0..6 {
        let mut upload = daemon.begin_upload().await.expect("begun");
        upload.write(&component).await.expect("written");
        whole.push(upload);
    }
    let finishing = whole.into_iter().map(|upload| tokio::spawn(upload.finish())).collect::<Vec<_>>();
    let mut uploaded = Vec::new();
    for finishing in finishing {
        uploaded.push(finishing.await.expect("no panic").expect("taken in"));
    }
    assert_eq!(uploaded.iter().filter(|uploaded| uploaded.is_new).count(), 1, "{uploaded:?}");
    assert!(uploaded.iter().all(|one| one.plugin == uploaded[0].plugin), "{uploaded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_was_told_of_stays_when_the_job_that_brought_it_is_refused() {
    let place = Place::new();
    let daemon = place.start().await;
    let path = place.component("same.wasm", &same("first"));
    // As a job brings it, of which it isn't certain yet that it can run.
    let brought = daemon.uploads.take_in(&path).await.expect("taken in");
    assert!(brought.is_new);
    let told = upload(&daemon, &same("first")).await.expect("it is there");
    daemon.forget_plugin(&told.hash).await.expect("nothing to be done");
    assert_eq!(daemon.plugin(told.hash.as_str()).expect("still there"), told);
    let other = daemon.uploads.take_in(&place.component("other.wasm", &same("other"))).await.expect("taken in");
    daemon.forget_plugin(&other.info.hash).await.expect("removed");
    assert_eq!(daemon.plugins(), [told]);
}

/// It needs more elements of tables than an operator usually may have.
fn large() -> Vec<u8> {
    let extra = "(table $large 300000 funcref)".to_owned();
    Guest { name: "large", process: EMIT_INPUT.to_owned(), extra, ..Guest::default() }.component()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_judged_by_what_each_job_allows_it() {
    let place = Place::new();
    let daemon = place.start().await;
    let (large, usual) = (upload(&daemon, &large()).await.expect("nobody has forbidden it"), same("first"));
    let usual = upload(&daemon, &usual).await.expect("taken in");
    let wasm = format!("sha256:{}", large.hash);
    let error = daemon.submit(copy(place.path(), &wasm)).await.expect_err("more than usual");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("its limit is 200000"), "{error}");
    daemon.submit(copy(place.path(), &format!("sha256:{}", usual.hash))).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
    for dry_run in [true, false] {
        let to_large = UpgradeSpec { plugin: wasm.clone(), dry_run, probation_ms: Some(0) };
        let error = daemon.upgrade("copy", "same", to_large).await.expect_err("more than the job allows");
        assert!(error.to_string().contains("its limit is 200000"), "{error}");
    }
    let allowed = changed(copy(place.path(), &wasm), "input = 'numbers'", "input = 'numbers'\nlimits.tables = 400000");
    daemon.restart("copy", Some(allowed)).await.expect("it is allowed now");
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}
