//! Checkpoints that a user keeps, and the retention beside them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use bytes::Bytes;

use crate::id::{Attempt, Epoch};
use crate::store::sample::{checkpoint, manifest_decided_elsewhere, name, store, subtask};
use crate::store::{CheckpointStore, Manifest, StoreError};

const KEEP: NonZeroU32 = NonZeroU32::new(1).expect("not zero");

/// Publishes a checkpoint of one file.
async fn publish(store: &CheckpointStore, epoch: u64) {
    let uploader = store.uploader(Attempt(1), &subtask());
    let file = uploader.put_bytes(&format!("delta-{epoch}"), Bytes::from("a delta")).await.expect("uploaded");
    let _receipt = store.publish(&checkpoint(store, epoch, Attempt(1), &[&file])).await.expect("published");
}

fn epochs(numbers: &[u64]) -> BTreeSet<Epoch> {
    numbers.iter().copied().map(Epoch).collect()
}

#[tokio::test]
async fn a_kept_checkpoint_stays_whole_over_any_number_of_newer_ones_until_it_is_released() {
    let (folder, store) = store().await;
    publish(&store, 1).await;
    store.keep(Epoch(1)).await.expect("kept");
    store.keep(Epoch(1)).await.expect("the same success");
    for epoch in 2..=5 {
        publish(&store, epoch).await;
        store.retain(Epoch(epoch), KEEP, Attempt(1)).await.expect("retained");
    }
    // As by another process.
    let again = CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect("opened again");
    assert_eq!(again.kept().await.expect("a list"), epochs(&[1]));
    assert_eq!(again.epochs().await.expect("a list"), [Epoch(1), Epoch(5)]);
    assert_eq!(again.verify(Epoch(1)).await.expect("a report").problems.len(), 0);
    again.release(Epoch(1)).await.expect("released");
    store.retain(Epoch(5), KEEP, Attempt(1)).await.expect("retained");
    assert_eq!(store.epochs().await.expect("a list"), [Epoch(5)]);
    let files = std::fs::read_dir(folder.path().join("word-count/0/files/count/0")).expect("a folder");
    assert_eq!(files.count(), 1, "its file went with it");
}

#[tokio::test]
async fn what_is_not_there_is_not_kept_and_what_is_not_kept_is_not_released() {
    let (_folder, store) = store().await;
    publish(&store, 1).await;
    let error = store.keep(Epoch(2)).await.expect_err("not there");
    assert!(matches!(error, StoreError::NoCheckpoint { epoch: Epoch(2), .. }), "{error}");
    let error = store.release(Epoch(1)).await.expect_err("not kept");
    assert!(matches!(error, StoreError::NotKept { epoch: Epoch(1), .. }), "{error}");
    assert_eq!(store.kept().await.expect("a list"), epochs(&[]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_checkpoint_that_was_kept_beside_a_retention_is_there_and_one_that_was_not_says_so() {
    let (folder, store) = store().await;
    publish(&store, 1).await;
    for epoch in 2..=60 {
        publish(&store, epoch).await;
        // Another instance, as a daemon has one beside that of the job.
        let other = CheckpointStore::open_existing(folder.path(), store.job(), 0).await.expect("a store");
        let keeping = tokio::spawn(async move { other.keep(Epoch(epoch - 1)).await });
        store.retain(Epoch(epoch), KEEP, Attempt(1)).await.expect("retained");
        let kept = keeping.await.expect("no panic");
        match kept {
            Ok(()) => {
                store.retain(Epoch(epoch), KEEP, Attempt(1)).await.expect("retained");
                let report = store.verify(Epoch(epoch - 1)).await.expect("it is there");
                assert_eq!(report.problems.len(), 0, "checkpoint {}", epoch - 1);
            }
            Err(error) => {
                assert!(matches!(error, StoreError::NoCheckpoint { .. }), "{error}");
                assert!(!store.kept().await.expect("a list").contains(&Epoch(epoch - 1)));
            }
        }
    }
}

#[tokio::test]
async fn a_checkpoint_that_a_sink_decides_is_certain_when_that_is_noted() {
    let (_folder, store) = store().await;
    publish(&store, 1).await;
    assert_eq!(store.newest_certain().await.expect("read"), Some(Epoch(1)));
    let of_this_job = |epoch| Manifest { job_uid: store.job_uid().clone(), ..manifest_decided_elsewhere(Epoch(epoch)) };
    let _receipt = store.publish(&of_this_job(2)).await.expect("published");
    assert_eq!(store.newest_certain().await.expect("read"), Some(Epoch(1)), "nobody knows yet");
    store.note_decided(Epoch(2)).await.expect("noted");
    assert_eq!(store.newest_certain().await.expect("read"), Some(Epoch(2)));
    let _receipt = store.publish(&of_this_job(3)).await.expect("published");
    assert_eq!(store.newest_certain().await.expect("read"), Some(Epoch(2)));
}

#[tokio::test]
async fn of_a_stopped_job_everything_that_nobody_needs_goes() {
    let (folder, store) = store().await;
    assert_eq!(store.retain_stopped(KEEP).await.expect("nothing").files, 0);
    store.claim_attempt().await.expect("an attempt");
    for epoch in 1..=3 {
        publish(&store, epoch).await;
    }
    store.keep(Epoch(2)).await.expect("kept");
    store.uploader(Attempt(1), &subtask()).put_bytes("never-published", Bytes::from("x")).await.expect("uploaded");
    let retained = store.retain_stopped(KEEP).await.expect("retained");
    assert_eq!((retained.manifests, retained.files), (vec![Epoch(1)], 2));
    assert_eq!(store.list().await.expect("a list").iter().map(|it| it.kept).collect::<Vec<_>>(), [true, false]);
    let files = std::fs::read_dir(folder.path().join("word-count/0/files/count/0")).expect("a folder");
    assert_eq!(files.count(), 2);
}
