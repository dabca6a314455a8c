//! Claims of attempts.

use std::collections::BTreeSet;

use crate::id::Attempt;
use crate::store::CheckpointStore;
use crate::store::sample::{checkpoint, name, store};

#[tokio::test]
async fn attempts_grow_and_old_claims_go() {
    let (folder, store) = store().await;
    for wanted in 1..=40 {
        assert_eq!(store.claim_attempt().await.expect("an attempt"), Attempt(wanted));
    }
    let claims = std::fs::read_dir(folder.path().join("word-count/0/attempts")).expect("a folder").count();
    assert_eq!(claims, 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_runs_get_one_attempt() {
    let (folder, store) = store().await;
    let racers = (0..8).map(|_| {
        let root = folder.path().to_owned();
        tokio::spawn(async move {
            let store = CheckpointStore::open(&root, &name("word-count"), 0).await.expect("a store");
            let mut claimed = Vec::new();
            for _ in 0..10 {
                claimed.push(store.claim_attempt().await.expect("an attempt"));
            }
            assert!(claimed.is_sorted(), "{claimed:?}");
            claimed
        })
    });
    let mut claimed = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        claimed.extend(racer.await.expect("no panic"));
    }
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 80, "{claimed:?}");
    let next = store.claim_attempt().await.expect("an attempt");
    assert!(claimed.iter().all(|attempt| *attempt < next));
}

#[tokio::test]
async fn an_attempt_is_above_that_of_the_newest_manifest_even_if_the_claims_are_gone() {
    let (folder, store) = store().await;
    let _receipt = store.publish(&checkpoint(&store, 1, Attempt(7), &[])).await.expect("published");
    assert!(!folder.path().join("word-count/0/attempts").exists());
    assert_eq!(store.claim_attempt().await.expect("an attempt"), Attempt(8));
}
