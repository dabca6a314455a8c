//! Identity, publish and load.

use crate::id::{Attempt, Epoch};
use crate::store::sample::{checkpoint, name, store};
use crate::store::{CheckpointStore, Damage, StoreError};

#[tokio::test]
async fn what_was_published_is_loaded() {
    let (folder, store) = store().await;
    let attempt = store.claim_attempt().await.expect("an attempt");
    assert_eq!(store.epochs().await.expect("a list"), []);
    for epoch in [1, 2, 10] {
        let manifest = checkpoint(&store, epoch, attempt, &[]);
        assert_eq!(store.publish(&manifest).await.expect("published").epoch(), Epoch(epoch));
        let again = CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect("opened again");
        assert_eq!(again.job_uid(), store.job_uid());
        let (loaded, receipt) = again.load(Epoch(epoch)).await.expect("loaded");
        assert_eq!((loaded, receipt.epoch()), (manifest, Epoch(epoch)));
    }
    assert_eq!(store.epochs().await.expect("a list"), [Epoch(1), Epoch(2), Epoch(10)]);
    let error = store.load(Epoch(3)).await.expect_err("never published");
    assert!(matches!(error, StoreError::NoCheckpoint { epoch: Epoch(3), .. }), "{error}");
}

#[tokio::test]
async fn the_same_manifest_twice_is_one_success_and_another_one_is_none() {
    let (_folder, store) = store().await;
    let manifest = checkpoint(&store, 1, Attempt(1), &[]);
    for _ in 0..2 {
        assert_eq!(store.publish(&manifest).await.expect("published").epoch(), Epoch(1));
    }
    let other = crate::store::Manifest { created_ms: manifest.created_ms + 1, ..manifest.clone() };
    let error = store.publish(&other).await.expect_err("another content");
    assert!(matches!(error, StoreError::Overtaken { epoch: Epoch(1), found: Epoch(1) }), "{error}");
    assert_eq!(store.load(Epoch(1)).await.expect("loaded").0, manifest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_runs_that_publish_one_epoch_exactly_one_wins() {
    let (folder, store) = store().await;
    for epoch in 1..=30 {
        let racers = (0..4).map(|racer| {
            let root = folder.path().to_owned();
            tokio::spawn(async move {
                let store = CheckpointStore::open(&root, &name("word-count"), 0).await.expect("a store");
                let mut manifest = checkpoint(&store, epoch, Attempt(1), &[]);
                manifest.created_ms = racer;
                store.publish(&manifest).await.map(|receipt| (receipt.epoch(), racer))
            })
        });
        let mut winners = Vec::new();
        for racer in racers.collect::<Vec<_>>() {
            match racer.await.expect("no panic") {
                Ok(winner) => winners.push(winner),
                Err(error) => assert!(matches!(error, StoreError::Overtaken { .. }), "{error}"),
            }
        }
        let published = store.load(Epoch(epoch)).await.expect("loaded").0;
        assert_eq!(winners, [(Epoch(epoch), published.created_ms)]);
    }
}

#[tokio::test]
async fn an_epoch_before_the_newest_is_not_published() {
    let (_folder, store) = store().await;
    let _receipt = store.publish(&checkpoint(&store, 5, Attempt(1), &[])).await.expect("published");
    let error = store.publish(&checkpoint(&store, 4, Attempt(1), &[])).await.expect_err("overtaken");
    assert!(matches!(error, StoreError::Overtaken { epoch: Epoch(4), found: Epoch(5) }), "{error}");
}

#[tokio::test]
async fn a_run_that_was_replaced_can_not_publish() {
    let (folder, old) = store().await;
    let attempt = old.claim_attempt().await.expect("an attempt");
    let _receipt = old.publish(&checkpoint(&old, 1, attempt, &[])).await.expect("published");
    let new = CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect("a store");
    let newer = new.claim_attempt().await.expect("an attempt");
    let error = old.publish(&checkpoint(&old, 2, attempt, &[])).await.expect_err("fenced");
    assert!(matches!(error, StoreError::Fenced { ours, newer: by } if ours == attempt && by == newer), "{error}");
    assert_eq!(new.epochs().await.expect("a list"), [Epoch(1)]);
}

#[tokio::test]
async fn another_jobs_folder_is_refused() {
    let (folder, store) = store().await;
    std::fs::rename(folder.path().join("word-count"), folder.path().join("other")).expect("moved");
    let error = CheckpointStore::open(folder.path(), &name("other"), 0).await.expect_err("another job's");
    assert!(matches!(error, StoreError::OtherJob { .. }), "{error}");
    assert!(error.to_string().ends_with("belongs to the job 'word-count', not to 'other'"), "{error}");
    drop(store);
}

#[tokio::test]
async fn manifests_of_another_job_of_the_same_name_are_refused() {
    let ((mine, store), (theirs, other)) = (store().await, store().await);
    let _receipt = other.publish(&checkpoint(&other, 1, Attempt(1), &[])).await.expect("published");
    let folder = |root: &tempfile::TempDir| root.path().join("word-count/0/manifests");
    std::fs::rename(folder(&theirs), folder(&mine)).expect("moved");
    let error = store.load(Epoch(1)).await.expect_err("another job's");
    assert!(matches!(error, StoreError::OtherIdentity { field: "job uid", .. }), "{error}");
    let manifest = |epoch| folder(&mine).join(format!("{epoch:020}.json"));
    std::fs::rename(manifest(1), manifest(2)).expect("renamed");
    assert!(store.load(Epoch(2)).await.is_err());
}

#[tokio::test]
async fn a_manifest_under_another_epochs_name_is_refused() {
    let (folder, store) = store().await;
    let _receipt = store.publish(&checkpoint(&store, 1, Attempt(1), &[])).await.expect("published");
    let manifest = |epoch| folder.path().join(format!("word-count/0/manifests/{epoch:020}.json"));
    std::fs::copy(manifest(1), manifest(9)).expect("copied");
    let error = store.load(Epoch(9)).await.expect_err("another epoch's");
    assert!(matches!(error, StoreError::OtherIdentity { field: "epoch", .. }), "{error}");
}

#[tokio::test]
async fn a_damaged_manifest_or_identity_is_an_error_that_names_the_file() {
    let (folder, store) = store().await;
    let _receipt = store.publish(&checkpoint(&store, 1, Attempt(1), &[])).await.expect("published");
    let path = folder.path().join("word-count/0/manifests/00000000000000000001.json");
    let bytes = std::fs::read(&path).expect("its bytes");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("cut off");
    let error = store.load(Epoch(1)).await.expect_err("cut off");
    assert!(matches!(&error, StoreError::Damaged { source: Damage::CutOff, .. }), "{error}");
    assert!(error.to_string().contains("00000000000000000001.json"), "{error}");
    assert!(error.help().expect("help").contains("checkpoint verify"));
    std::fs::write(folder.path().join("word-count/job.json"), "").expect("emptied");
    let error = CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect_err("emptied");
    assert!(matches!(&error, StoreError::IdentityDamaged { .. }), "{error}");
    let help = error.help().expect("help");
    assert!(help.contains("put job.json back from a backup") && help.contains("start the job afresh"), "{help}");
}

#[tokio::test]
async fn checkpoints_without_an_identity_are_nobodys() {
    let (folder, store) = store().await;
    let _receipt = store.publish(&checkpoint(&store, 1, Attempt(1), &[])).await.expect("published");
    std::fs::remove_file(folder.path().join("word-count/job.json")).expect("removed");
    let error = CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect_err("nobody's");
    assert!(matches!(error, StoreError::NoIdentity { .. }), "{error}");
    let error = CheckpointStore::open_existing(folder.path(), &name("word-count"), 0).await.expect_err("nobody's");
    assert!(matches!(error, StoreError::NoIdentity { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_first_runs_agree_on_the_uid() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || {
            let root = folder.path().join("deep/store");
            tokio::spawn(async move { CheckpointStore::open(&root, &name("a"), 0).await.expect("a store") })
        };
        let (one, other) = (open(), open());
        let (one, other) = (one.await.expect("no panic"), other.await.expect("no panic"));
        assert_eq!(one.job_uid(), other.job_uid());
    }
}

#[tokio::test]
async fn to_look_at_a_store_makes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = CheckpointStore::open_existing(folder.path(), &name("a"), 0).await.expect_err("no job");
    assert!(matches!(error, StoreError::NoJob { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
