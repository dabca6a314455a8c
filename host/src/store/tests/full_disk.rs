//! Disks that are full or can't be written.

use bytes::Bytes;

use super::mount::{Mount, fill};
use crate::id::{Attempt, Epoch};
use crate::store::sample::{checkpoint, name, subtask};
use crate::store::{CheckpointStore, StoreError};

#[track_caller]
fn assert_full(error: &StoreError) {
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    let help = error.help().expect("help");
    assert!(help.starts_with("nothing was published; free space on that disk and run the job again"), "{help}");
}

#[tokio::test]
async fn a_full_disk_publishes_nothing_and_after_space_is_freed_the_job_goes_on() {
    let Some(mount) = Mount::new("size=4m") else { return };
    let elsewhere = tempfile::tempdir().expect("a folder");
    let source = elsewhere.path().join("source");
    std::fs::write(&source, vec![2; 6 << 20]).expect("a source");
    let store = CheckpointStore::open(&mount.folder, &name("word-count"), 0).await.expect("a store");
    let attempt = store.claim_attempt().await.expect("an attempt");
    let uploader = store.uploader(attempt, &subtask());
    let _receipt = store.publish(&checkpoint(&store, 1, attempt, &[])).await.expect("published");

    let error = uploader.put_file("large", &source).await.expect_err("larger than the disk");
    assert_full(&error);
    assert!(error.to_string().contains("cannot upload ") && error.to_string().contains("1-large"), "{error}");
    let filling = fill(&mount.folder);
    assert_full(&uploader.put_bytes("bytes", Bytes::from(vec![3; 1 << 20])).await.expect_err("full"));
    assert_full(&store.publish(&checkpoint(&store, 2, attempt, &[])).await.expect_err("full"));
    assert_full(&store.claim_attempt().await.expect_err("full"));
    assert_full(&CheckpointStore::open(&mount.folder, &name("word-count"), 0).await.expect_err("full"));
    assert_eq!(store.epochs().await.expect("a list"), [Epoch(1)]);

    std::fs::remove_file(filling).expect("freed");
    let store = CheckpointStore::open(&mount.folder, &name("word-count"), 0).await.expect("a store");
    let attempt = store.claim_attempt().await.expect("an attempt");
    assert_eq!(attempt, Attempt(2), "the claims that failed left nothing");
    let file = store.uploader(attempt, &subtask()).put_bytes("bytes", Bytes::from("some")).await.expect("uploaded");
    let _receipt = store.publish(&checkpoint(&store, 2, attempt, &[&file])).await.expect("published");
    assert_eq!(store.verify(Epoch(2)).await.expect("a report").problems.len(), 0);
}

#[tokio::test]
async fn a_read_only_file_system_is_refused_before_the_job_starts() {
    let Some(mount) = Mount::new("size=4m") else { return };
    let store = CheckpointStore::open(&mount.folder, &name("word-count"), 0).await.expect("a store");
    mount.remount("ro");
    for error in [
        CheckpointStore::open(&mount.folder, &name("word-count"), 0).await.expect_err("read-only"),
        store.claim_attempt().await.expect_err("read-only"),
        store.publish(&checkpoint(&store, 1, Attempt(1), &[])).await.expect_err("read-only"),
    ] {
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
        assert!(error.help().expect("help").contains("mount that file system for writing"));
    }
}

#[tokio::test]
async fn a_file_where_a_folder_should_be_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("store"), "").expect("a file");
    let error = CheckpointStore::open(&folder.path().join("store"), &name("a"), 0).await.expect_err("a file");
    assert!(error.to_string().contains("store/a/0"), "{error}");
}
