//! What retention removes, and what it never touches.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use bytes::Bytes;

use crate::id::{Attempt, Epoch};
use crate::store::sample::{checkpoint, store, subtask};
use crate::store::{CheckpointStore, FileRef, StoreError};

const KEEP: NonZeroU32 = NonZeroU32::new(2).expect("not zero");

async fn upload(store: &CheckpointStore, attempt: u64, name: &str) -> FileRef {
    let uploader = store.uploader(Attempt(attempt), &subtask());
    uploader.put_bytes(name, Bytes::from(name.to_owned())).await.expect("uploaded")
}

async fn publish(store: &CheckpointStore, epoch: u64, attempt: u64, files: &[&FileRef]) {
    let manifest = checkpoint(store, epoch, Attempt(attempt), files);
    let _receipt = store.publish(&manifest).await.expect("published");
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn exactly_what_no_kept_manifest_reaches_goes() {
    let (folder, store) = store().await;
    let files = folder.path().join("word-count/0/files/count/0");
    let base = upload(&store, 1, "base").await;
    let [a, b, c] = [upload(&store, 1, "a").await, upload(&store, 1, "b").await, upload(&store, 1, "c").await];
    let merged = upload(&store, 1, "merged").await;
    publish(&store, 1, 1, &[&base, &a]).await;
    publish(&store, 2, 1, &[&base, &a, &b]).await;
    publish(&store, 3, 1, &[&base, &a, &b, &c]).await;
    let retained = store.retain(Epoch(3), KEEP, Attempt(1)).await.expect("retained");
    assert_eq!((retained.manifests, retained.files), (vec![Epoch(1)], 0));
    assert_eq!(names(&files), set(&["1-a", "1-b", "1-base", "1-c", "1-merged"]), "all of it is shared");

    // The deltas are merged: from here on only the kept older manifest needs them.
    publish(&store, 4, 1, &[&merged]).await;
    let in_flight = upload(&store, 1, "in-flight").await;
    let retained = store.retain(Epoch(4), KEEP, Attempt(1)).await.expect("retained");
    assert_eq!((retained.manifests, retained.files), (vec![Epoch(2)], 0));
    publish(&store, 5, 1, &[&merged, &in_flight]).await;
    upload(&store, 1, "next").await;
    let retained = store.retain(Epoch(5), KEEP, Attempt(1)).await.expect("retained");
    assert_eq!((retained.manifests, retained.files, retained.bytes), (vec![Epoch(3)], 4, 7));
    assert_eq!(names(&files), set(&["1-in-flight", "1-merged", "1-next"]));
    for epoch in store.epochs().await.expect("a list") {
        assert_eq!(store.verify(epoch).await.expect("a report").problems.len(), 0, "checkpoint {epoch} is whole");
    }
    let again = store.retain(Epoch(5), KEEP, Attempt(1)).await.expect("retained");
    assert_eq!((again.manifests, again.files), (vec![], 0));
}

#[tokio::test]
async fn leftovers_of_dead_attempts_go_and_those_of_the_running_one_stay() {
    let (folder, store) = store().await;
    let slot = folder.path().join("word-count/0");
    let needed = upload(&store, 1, "needed").await;
    publish(&store, 1, 1, &[&needed]).await;
    upload(&store, 1, "dead").await;
    upload(&store, 2, "running").await;
    store.claim_attempt().await.expect("an attempt");
    let part = |path: &str| std::fs::write(slot.join(path), "half of").expect("a file");
    part("files/count/0/1-torn#1");
    part("files/count/0/2-torn#1");
    part("attempts/00000000000000000001.json#1");
    part("manifests/00000000000000000001.json#3");
    part("manifests/00000000000000000002.json#1");
    part("files/count/0/mine.txt");
    part("files/count/0/README");
    part("manifests/notes");
    let retained = store.retain(Epoch(1), KEEP, Attempt(2)).await.expect("retained");
    assert_eq!((retained.files, retained.leftovers), (1, 3));
    let files = set(&["1-needed", "2-running", "2-torn#1", "README", "mine.txt"]);
    assert_eq!(names(&slot.join("files/count/0")), files);
    let manifests = set(&["00000000000000000001.json", "00000000000000000002.json#1", "notes"]);
    assert_eq!(names(&slot.join("manifests")), manifests);
}

#[tokio::test]
async fn nothing_is_removed_without_the_committed_manifest() {
    let (_folder, store) = store().await;
    let file = upload(&store, 1, "a").await;
    publish(&store, 1, 1, &[&file]).await;
    let error = store.retain(Epoch(2), KEEP, Attempt(2)).await.expect_err("refused");
    assert!(matches!(error, StoreError::Retention(_)), "{error}");
    store.read(&file).await.expect("still there");
}

#[tokio::test]
async fn a_kept_manifest_that_can_not_be_read_protects_every_file_until_it_goes() {
    let (folder, store) = store().await;
    let files = [upload(&store, 1, "a").await, upload(&store, 1, "b").await, upload(&store, 1, "c").await];
    for (at, file) in files.iter().enumerate() {
        publish(&store, at as u64 + 1, 1, &[file]).await;
    }
    // As by another process, which hasn't seen the manifests before.
    let store = CheckpointStore::open_existing(folder.path(), store.job(), 0).await.expect("a store");
    std::fs::write(folder.path().join("word-count/0/manifests/00000000000000000002.json"), "").expect("emptied");
    let retained = store.retain(Epoch(3), KEEP, Attempt(2)).await.expect("retained");
    assert_eq!((retained.manifests, retained.files), (vec![Epoch(1)], 0));
    assert_eq!(retained.unreadable.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>(), [Epoch(2)]);
    store.read(&files[1]).await.expect("still there");
    publish(&store, 4, 2, &[&files[2]]).await;
    let retained = store.retain(Epoch(4), KEEP, Attempt(2)).await.expect("retained");
    assert_eq!((retained.manifests, retained.files), (vec![Epoch(2)], 2));
    store.read(&files[2]).await.expect("still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn retentions_that_overlap_remove_what_one_would() {
    let (folder, store) = store().await;
    let mut under_way = Vec::new();
    for epoch in 1..=40 {
        let file = upload(&store, 1, &format!("delta-{epoch}")).await;
        publish(&store, epoch, 1, &[&file]).await;
        let store = store.clone();
        under_way.push(tokio::spawn(async move { store.retain(Epoch(epoch), KEEP, Attempt(1)).await }));
    }
    for retention in under_way {
        assert_eq!(retention.await.expect("no panic").expect("retained").unreadable.len(), 0);
    }
    store.retain(Epoch(40), KEEP, Attempt(1)).await.expect("retained");
    assert_eq!(names(&folder.path().join("word-count/0/files/count/0")), set(&["1-delta-39", "1-delta-40"]));
}
