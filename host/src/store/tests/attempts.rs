//! Claims of attempts.

use std::collections::BTreeSet;

use crate::id::{Attempt, Epoch};
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

/// The one who publishes and the one who takes over may miss each other only if nothing comes of what was published.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_checkpoint_that_the_next_run_did_not_see_gives_no_receipt() {
    let (folder, _store) = store().await;
    let open = || async { CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect("a store") };
    let (old, new) = (open().await, open().await);
    let mut attempt = old.claim_attempt().await.expect("an attempt");
    let mut missed = 0;
    for epoch in 1..=300 {
        let (old, new) = (old.clone(), new.clone());
        let publish = tokio::spawn(async move {
            let manifest = checkpoint(&old, epoch, attempt, &[]);
            old.publish(&manifest).await.is_ok()
        });
        let take_over = tokio::spawn(async move {
            let attempt = new.claim_attempt().await.expect("an attempt");
            (attempt, new.epochs().await.expect("a list").contains(&Epoch(epoch)))
        });
        let (receipt, (next, seen)) = (publish.await.expect("no panic"), take_over.await.expect("no panic"));
        assert!(seen || !receipt, "checkpoint {epoch} would be committed, and attempt {next} doesn't know of it");
        missed += u32::from(!seen);
        attempt = next;
    }
    println!("{missed} of 300 weren't seen");
}
