//! Another component for a running job, and what a crash in the middle leaves.

use super::*;
use crate::id::Name;
use crate::serve::spec::JobSpec;
use crate::serve::{ErrorKind, StopMode, UpgradeSpec, UpgradingInfo};

fn to(plugin: &PluginInfo) -> UpgradeSpec {
    UpgradeSpec { plugin: plugin.hash.to_string(), dry_run: false, probation_ms: Some(0) }
}

fn same_operator() -> Name {
    Name::new("same").expect("a name")
}

async fn with_copy(place: &Place, plugin: &[u8]) -> (Arc<Daemon>, PluginInfo) {
    let daemon = place.start().await;
    let plugin = upload(&daemon, plugin).await.expect("taken in");
    daemon.submit(copy(place.path(), &format!("sha256:{}", plugin.hash))).await.expect("submitted");
    until_checkpoints(&daemon, "copy", 1).await;
    (daemon, plugin)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_gets_another_component_and_keeps_it_over_restarts() {
    let place = Place::new();
    let (daemon, first) = with_copy(&place, &same("first")).await;
    let second = upload(&daemon, &same("second")).await.expect("taken in");
    let upgraded = daemon.upgrade("copy", "same", to(&second)).await.expect("adopted");
    assert_eq!((upgraded.from, &upgraded.to), (first.hash.clone(), &second.hash));
    assert!(upgraded.swapped_at < upgraded.adopted_at);
    let info = daemon.job("copy").expect("there");
    assert_eq!((info.plugins.get(&same_operator()), info.upgrading), (Some(&second.hash), None));
    daemon.remove_plugin(first.hash.as_str()).await.expect("nobody needs it any more");
    drop(daemon);
    let daemon = place.start().await;
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.restart("copy", None).await.expect("started again");
    assert_eq!(daemon.job("copy").expect("there").plugins.get(&same_operator()), Some(&second.hash));
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_does_not_fit_or_fails_leaves_the_old_one_in_place() {
    let place = Place::new();
    let (daemon, first) = with_copy(&place, &same("first")).await;
    let other = Guest { name: "other", inputs: vec![("else", false)], ..Guest::default() }.component();
    let trap = Guest { name: "trap", process: "unreachable".to_owned(), ..Guest::default() }.component();
    for component in [other, trap] {
        let plugin = upload(&daemon, &component).await.expect("taken in");
        // Until a record has come to it, a component that traps is as good as another: its probation lasts until then.
        let upgrade = UpgradeSpec { probation_ms: Some(60_000), ..to(&plugin) };
        let error = daemon.upgrade("copy", "same", upgrade).await.expect_err("it can't take its place");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let info = daemon.job("copy").expect("there");
        assert_eq!((info.plugins.get(&same_operator()), info.upgrading), (Some(&first.hash), None));
        daemon.remove_plugin(plugin.hash.as_str()).await.expect("no job names it");
    }
    until_checkpoints(&daemon, "copy", 1).await;
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_upgraded_is_refused_by_what_is_missing() {
    let place = Place::new();
    let (daemon, first) = with_copy(&place, &same("first")).await;
    let refused = async |job: &str, operator: &str, upgrade: UpgradeSpec| {
        daemon.upgrade(job, operator, upgrade).await.expect_err("refused")
    };
    assert_eq!(refused("none", "same", to(&first)).await.kind(), ErrorKind::NotFound);
    let error = refused("copy", "numbers", to(&first)).await;
    assert_eq!((error.kind(), error.help().as_deref()), (ErrorKind::NotFound, Some("its operators are: same")));
    let unknown = UpgradeSpec { plugin: "0".repeat(64), ..to(&first) };
    assert_eq!(refused("copy", "same", unknown).await.kind(), ErrorKind::NotFound);
    let no_hash = UpgradeSpec { plugin: "../x".to_owned(), ..to(&first) };
    assert_eq!(refused("copy", "same", no_hash).await.kind(), ErrorKind::Invalid);
    let long = UpgradeSpec { probation_ms: Some(u64::MAX), ..to(&first) };
    assert_eq!(refused("copy", "same", long).await.kind(), ErrorKind::Invalid);
    let error = refused("copy", "same", to(&first)).await;
    assert!(error.to_string().contains("it has the plugin"), "{error}");
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    let second = upload(&daemon, &same("second")).await.expect("taken in");
    assert_eq!(refused("copy", "same", to(&second)).await.to_string(), "the job 'copy' is stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_upgrade_that_a_crash_interrupted_the_newest_checkpoint_says_what_became() {
    let place = Place::new();
    let (daemon, first) = with_copy(&place, &same("first")).await;
    let second = upload(&daemon, &same("second")).await.expect("taken in");
    daemon.shut_down().await;
    drop(daemon);
    let upgrading = |from: &PluginInfo, to: &PluginInfo| UpgradingInfo {
        operator: same_operator(),
        from: from.hash.clone(),
        to: to.hash.clone(),
    };
    // As a daemon leaves it that dies before the swap: its newest checkpoint is of the first component.
    note(&place, upgrading(&first, &second));
    let daemon = place.start().await;
    let info = until_checkpoints(&daemon, "copy", 1).await;
    assert_eq!((info.plugins.get(&same_operator()), info.upgrading), (Some(&first.hash), None));
    let adopted = daemon.upgrade("copy", "same", to(&second)).await.expect("adopted");
    assert!(adopted.adopted_at.is_some());
    daemon.shut_down().await;
    drop(daemon);
    // And as one that dies after it was adopted, and before that was noted.
    let mut spec = load(&place);
    spec.plugins.insert(same_operator(), first.hash.clone());
    spec.upgrading = Some(upgrading(&first, &second));
    save(&place, &spec);
    let daemon = place.start().await;
    let info = until_checkpoints(&daemon, "copy", 1).await;
    assert_eq!((info.plugins.get(&same_operator()), info.upgrading), (Some(&second.hash), None));
    daemon.stop("copy", StopMode::Checkpoint).await.expect("stopped");
    assert_exactly_once(&place.numbers());
}

fn note(place: &Place, upgrading: UpgradingInfo) {
    save(place, &JobSpec { upgrading: Some(upgrading), ..load(place) });
}

fn load(place: &Place) -> JobSpec {
    let sealed = crate::serve::durable::read_sealed(&place.data().join("jobs/copy/spec.json"));
    sealed.expect("read").expect("there")
}

fn save(place: &Place, spec: &JobSpec) {
    crate::serve::durable::replace_sealed(&place.data().join("jobs/copy/spec.json"), spec).expect("written");
}
