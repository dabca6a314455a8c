//! SIGKILL before and after every durable step.

use std::num::NonZeroU32;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use bytes::Bytes;

use crate::id::{Attempt, Epoch};
use crate::store::sample::{checkpoint, name, subtask};
use crate::store::{CheckpointStore, StoreError};

const FOLDER: &str = "LOCKGATE_TEST_CRASH_FOLDER";
const KEEP: NonZeroU32 = NonZeroU32::new(1).expect("not zero");
const POINTS: [&str; 16] = [
    "store.identity.before",
    "store.identity.after",
    "store.claim.before",
    "store.claim.after",
    "store.upload.before",
    "store.upload.after",
    "store.publish.before",
    "store.publish.after",
    "store.keep.before",
    "store.keep.after",
    "store.release.before",
    "store.release.after",
    "store.retain-manifest.before",
    "store.retain-manifest.after",
    "store.retain-file.before",
    "store.retain-file.after",
];

/// A run from the newest checkpoint on: two more of a file each, of which the newest is kept and the older one removed. Gives the
/// last epoch.
async fn run(root: &Path) -> Result<(Attempt, Epoch), StoreError> {
    let store = CheckpointStore::open(root, &name("word-count"), 0).await?;
    let attempt = store.claim_attempt().await?;
    let mut epoch = store.epochs().await?.pop().unwrap_or(Epoch(0));
    if epoch > Epoch(0) {
        let (_manifest, _receipt) = store.load(epoch).await?;
    }
    for _ in 0..2 {
        epoch = epoch.next();
        let uploader = store.uploader(attempt, &subtask());
        let file = uploader.put_bytes(&format!("delta-{epoch}"), Bytes::from("a delta")).await?;
        let _receipt = store.publish(&checkpoint(&store, epoch.0, attempt, &[&file])).await?;
        store.keep(epoch).await?;
        for kept in store.kept().await?.into_iter().filter(|kept| *kept < epoch) {
            store.release(kept).await?;
        }
        store.retain(epoch, KEEP, attempt).await?;
    }
    Ok((attempt, epoch))
}

#[tokio::test]
async fn run_for_another_test() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    run(Path::new(&folder)).await.expect("a run");
}

/// Runs in another process that is killed when it comes by the point for the `hit`-th time; `false` if it never did.
fn killed_at(point: &str, hit: u32, root: &Path) -> bool {
    let mut process = super::this_binary("crash::run_for_another_test");
    let done = process.env(FOLDER, root).env("LOCKGATE_CRASH_AT", format!("{point}:{hit}")).output();
    let done = done.expect("another process");
    assert!(done.status.success() || done.status.signal() == Some(9), "{}", String::from_utf8_lossy(&done.stdout));
    !done.status.success()
}

#[tokio::test]
async fn after_a_kill_at_any_step_every_checkpoint_is_whole_and_the_next_run_goes_on() {
    for point in POINTS {
        let root = tempfile::tempdir().expect("a folder");
        assert!(killed_at(point, 1, root.path()), "{point} is on the way");
        // Killed again and again on the same store, wherever that leads.
        let again = killed_at(point, 1, root.path());
        assert_eq!(again, !point.starts_with("store.identity.after"), "{point} the second time");

        if let Ok(store) = CheckpointStore::open_existing(root.path(), &name("word-count"), 0).await {
            for epoch in store.epochs().await.expect("a list") {
                assert_eq!(store.verify(epoch).await.expect("a report").problems.len(), 0, "{point}: {epoch}");
            }
        }
        let (attempt, epoch) = run(root.path()).await.expect("the next run");
        let store = CheckpointStore::open_existing(root.path(), &name("word-count"), 0).await.expect("a store");
        assert_eq!(store.epochs().await.expect("a list"), [epoch], "{point}");
        assert_eq!(store.kept().await.expect("a list"), [epoch].into(), "{point}");
        let files = std::fs::read_dir(root.path().join("word-count/0/files/count/0")).expect("a folder");
        let files: Vec<_> = files.map(|file| file.expect("a file").file_name()).collect();
        assert_eq!(files, [format!("{attempt}-delta-{epoch}").as_str()], "{point}: nothing else is left");
    }
}
