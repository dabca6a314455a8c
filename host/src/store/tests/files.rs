//! Uploads, and files read back.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;

use crate::id::{Attempt, Epoch};
use crate::store::sample::{checkpoint, store, subtask};
use crate::store::{CheckpointStore, Damage, FileRef, StoreError};

/// Fetches as a task's thread does.
async fn fetch(store: &CheckpointStore, file: &FileRef, to: &Path) -> Result<(), StoreError> {
    let (store, file, to) = (store.clone(), file.clone(), to.to_owned());
    let thread = std::thread::spawn(move || store.fetch(&file, &to));
    tokio::task::spawn_blocking(|| thread.join().expect("no panic")).await.expect("no panic")
}

#[tokio::test]
async fn what_was_uploaded_comes_back() {
    let (folder, store) = store().await;
    let uploader = store.uploader(Attempt(3), &subtask());
    for (name, length) in [("none", 0), ("one", 1), ("part", 5 << 20), ("parts", (5 << 20) + 1), ("more", 20 << 20)] {
        let bytes: Vec<u8> = (0..length).map(|at: usize| (at % 251) as u8).collect();
        let source = folder.path().join(name);
        std::fs::write(&source, &bytes).expect("a source");
        let by_bytes = uploader.put_bytes(&format!("b-{name}"), Bytes::from(bytes.clone())).await.expect("uploaded");
        let by_file = uploader.put_file(&format!("f-{name}"), &source).await.expect("uploaded");
        assert_eq!(by_bytes.path, format!("files/count/0/3-b-{name}"));
        assert_eq!((by_file.size_bytes, &by_file.xxh3), (length as u64, &by_bytes.xxh3));
        for file in [&by_bytes, &by_file] {
            assert_eq!(store.read(file).await.expect("read"), bytes);
            let to = folder.path().join("fetched");
            fetch(&store, file, &to).await.expect("fetched");
            assert_eq!(std::fs::read(&to).expect("its bytes"), bytes);
            std::fs::remove_file(&to).expect("removed");
        }
    }
}

#[tokio::test]
async fn a_name_is_for_one_content_in_an_attempt_and_free_in_the_next() {
    let (folder, store) = store().await;
    let source = folder.path().join("source");
    std::fs::write(&source, "new").expect("a source");
    let uploader = store.uploader(Attempt(1), &subtask());
    let file = uploader.put_bytes("a", Bytes::from("old")).await.expect("uploaded");
    assert!(matches!(uploader.put_bytes("a", Bytes::from("new")).await, Err(StoreError::Exists { .. })));
    assert!(matches!(uploader.put_file("a", &source).await, Err(StoreError::Exists { .. })));
    assert_eq!(uploader.put_bytes("a", Bytes::from("old")).await.expect("the same again"), file);
    std::fs::write(&source, "old").expect("a source");
    assert_eq!(uploader.put_file("a", &source).await.expect("the same again"), file);
    assert_eq!(store.read(&file).await.expect("read"), "old");
    std::fs::write(&source, "new").expect("a source");
    let next = store.uploader(Attempt(2), &subtask()).put_file("a", &source).await.expect("uploaded");
    assert_eq!(store.read(&next).await.expect("read"), "new");
}

#[tokio::test]
async fn on_one_file_system_a_file_is_linked_and_outlives_its_source() {
    let (folder, store) = store().await;
    let source = folder.path().join("source");
    std::fs::write(&source, "content").expect("a source");
    let file = store.uploader(Attempt(1), &subtask()).put_file("a", &source).await.expect("uploaded");
    assert_eq!(std::fs::metadata(&source).expect("a file").nlink(), 2);
    std::fs::remove_file(&source).expect("removed");
    assert_eq!(store.read(&file).await.expect("read"), "content");
}

#[tokio::test]
async fn of_a_symbolic_link_the_file_is_uploaded_and_not_the_link() {
    let (folder, store) = store().await;
    let (target, source) = (folder.path().join("target"), folder.path().join("source"));
    std::fs::write(&target, "content").expect("a file");
    std::os::unix::fs::symlink(&target, &source).expect("a link");
    let file = store.uploader(Attempt(1), &subtask()).put_file("a", &source).await.expect("uploaded");
    std::fs::remove_file(&target).expect("removed");
    assert_eq!(store.read(&file).await.expect("read"), "content");
}

/// In a process of its own, since other tests need memory too. `/dev/shm` is another file system, so the file is copied.
#[test]
fn a_large_file_from_another_file_system_passes_in_bounded_memory() {
    super::in_a_process_of_its_own("files::pass_a_large_file_for_another_test");
}

#[tokio::test]
async fn pass_a_large_file_for_another_test() {
    const SIZE: usize = 50 << 20;
    if !super::is_in_a_process_of_its_own() {
        return;
    }
    let (folder, store) = store().await;
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let device = |path: &Path| std::fs::metadata(path).expect("a folder").dev();
    assert_ne!(device(folder.path()), device(elsewhere.path()), "/dev/shm is a file system of its own");
    let source = elsewhere.path().join("large");
    std::fs::write(&source, vec![7; SIZE]).expect("a source");

    let before = peak_kib_since_reset();
    let file = store.uploader(Attempt(1), &subtask()).put_file("large", &source).await.expect("uploaded");
    let to = folder.path().join("fetched");
    fetch(&store, &file, &to).await.expect("fetched");
    let grown = peak_kib().saturating_sub(before);

    assert_eq!((file.size_bytes, std::fs::metadata(&source).expect("a file").nlink()), (SIZE as u64, 1));
    assert!(std::fs::read(&to).expect("its bytes") == vec![7; SIZE]);
    // Parts of 5 MiB, some of which the allocator keeps for later; the file as a whole would be 50 MiB.
    println!("the peak grew by {grown} KiB");
    assert!(grown < 40 << 10, "the peak grew by {grown} KiB");
}

/// The process's resident memory now; its peak counts from here on.
fn peak_kib_since_reset() -> usize {
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak is reset");
    peak_kib()
}

fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
async fn a_file_that_is_not_as_it_was_written_is_never_handed_on() {
    let (folder, store) = store().await;
    let bytes: Vec<u8> = (0..9 << 20).map(|at: usize| (at % 251) as u8).collect();
    let file =
        store.uploader(Attempt(1), &subtask()).put_bytes("a", Bytes::from(bytes.clone())).await.expect("uploaded");
    let path = folder.path().join("word-count/0").join(&file.path);
    let manifest = checkpoint(&store, 1, Attempt(1), &[&file]);
    let _receipt = store.publish(&manifest).await.expect("published");
    assert_eq!(store.verify(Epoch(1)).await.expect("a report").problems.len(), 0);
    let to = folder.path().join("fetched");

    type Damaging = fn(&mut Vec<u8>);
    let cases: [(&str, Damaging); 6] = [
        ("emptied", |bytes| bytes.clear()),
        ("one byte short", |bytes| bytes.truncate(bytes.len() - 1)),
        ("one byte long", |bytes| bytes.push(0)),
        ("first bit", |bytes| bytes[0] ^= 1),
        ("last bit", |bytes| *bytes.last_mut().expect("a byte") ^= 128),
        ("zeros in the second part", |bytes| bytes[8 << 20..].fill(0)),
    ];
    for (case, damage) in cases {
        let mut damaged = bytes.clone();
        damage(&mut damaged);
        std::fs::write(&path, &damaged).expect("damaged");
        let by_size = damaged.len() != bytes.len();
        for error in [
            fetch(&store, &file, &to).await.expect_err(case),
            store.read(&file).await.expect_err(case),
            store.verify(Epoch(1)).await.expect("a report").problems.pop().expect(case),
        ] {
            let StoreError::Damaged { path: named, source, .. } = &error else { panic!("{case}: {error}") };
            assert!(named.ends_with(&file.path), "{case}: {error}");
            assert_eq!(matches!(source, Damage::Size { .. }), by_size, "{case}: {source}");
        }
        assert!(!to.exists(), "{case}: nothing is left of it");
    }

    std::fs::remove_file(&path).expect("removed");
    for error in [
        fetch(&store, &file, &to).await.expect_err("missing"),
        store.read(&file).await.expect_err("missing"),
        store.verify(Epoch(1)).await.expect("a report").problems.pop().expect("a finding"),
    ] {
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    }
    assert!(!to.exists());
}

#[tokio::test]
async fn sizes_that_no_disk_has_are_told_and_not_added_up_to_something_else() {
    let (_folder, store) = store().await;
    let file = |name: &str| FileRef {
        path: format!("files/count/0/1-{name}"),
        size_bytes: u64::MAX,
        xxh3: "2d06800538d394c2".to_owned(),
    };
    let manifest = checkpoint(&store, 1, Attempt(1), &[&file("a"), &file("b")]);
    let _receipt = store.publish(&manifest).await.expect("published");
    let report = store.verify(Epoch(1)).await.expect("a report");
    assert_eq!((report.bytes, report.problems.len()), (u64::MAX, 2));
    let listed = store.list().await.expect("a list").remove(0).content.expect("a manifest");
    assert_eq!((listed.files, listed.bytes), (2, u64::MAX));
}

#[tokio::test]
async fn a_reference_that_leads_elsewhere_is_refused() {
    let (folder, store) = store().await;
    std::fs::write(folder.path().join("secret"), "").expect("a file");
    for path in ["../../secret", "/etc/passwd", "files/count/0/../../../../../secret", "../job.json"] {
        let file = FileRef { path: path.to_owned(), size_bytes: 0, xxh3: "2d06800538d394c2".to_owned() };
        let error = store.read(&file).await.expect_err(path);
        assert!(matches!(error, StoreError::UnsafePath { .. }), "{error}");
        assert!(matches!(fetch(&store, &file, &folder.path().join("to")).await, Err(StoreError::UnsafePath { .. })));
    }
}

#[tokio::test]
async fn a_source_that_can_not_be_read_is_named() {
    let (folder, store) = store().await;
    let error = store.uploader(Attempt(1), &subtask()).put_file("a", &folder.path().join("gone")).await;
    let error = error.expect_err("no source");
    assert!(error.to_string().ends_with("/gone"), "{error}");
    let left: Vec<_> = walk(&folder.path().join("word-count/0/files"));
    assert_eq!(left, Vec::<std::path::PathBuf>::new(), "nothing is left of it");
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
