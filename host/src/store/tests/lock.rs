//! One run at a time, over processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::store::sample::name;
use crate::store::{JobLock, StoreError};

const FOLDER: &str = "LOCKGATE_TEST_LOCK_FOLDER";

/// The other process of the tests below: this test binary, told to run only this.
#[test]
fn hold_a_lock_for_another_test() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let _lock = JobLock::acquire(Path::new(&folder), &name("a")).expect("the lock");
    eprintln!("locked");
    std::thread::park();
}

fn other_process(folder: &Path) -> Child {
    let mut child = super::this_binary("lock::hold_a_lock_for_another_test")
        .env(FOLDER, folder)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("another process");
    let mut said = BufReader::new(child.stderr.take().expect("its words")).lines();
    assert!(said.any(|line| line.expect("a line") == "locked"), "the other process has the lock");
    child
}

#[test]
fn a_second_process_is_refused_by_the_name_of_the_first_until_that_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("state");
    let mut other = other_process(&folder);
    let error = JobLock::acquire(&folder, &name("a")).expect_err("refused");
    assert!(matches!(error, StoreError::Running { .. }), "{error}");
    let wanted = format!("the job 'a' is already running as process {}, started ", other.id());
    assert!(error.to_string().starts_with(&wanted), "{error}");
    let error = JobLock::acquire(&folder, &name("b")).expect_err("refused").to_string();
    let wanted = format!("state is in use by the job 'a' (process {}, started ", other.id());
    assert!(error.contains(&wanted) && error.ends_with("so the job 'b' can't run there"), "{error}");
    // SIGKILL: the other process can't clean up.
    other.kill().expect("killed");
    other.wait().expect("dead");
    JobLock::acquire(&folder, &name("a")).expect("the lock is free");
}

#[test]
fn a_lock_is_free_again_when_it_is_dropped_and_not_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = JobLock::acquire(folder.path(), &name("a")).expect("the lock");
    assert!(matches!(JobLock::acquire(folder.path(), &name("a")), Err(StoreError::Running { .. })));
    drop(lock);
    JobLock::acquire(folder.path(), &name("a")).expect("the lock is free");
}

#[test]
fn whatever_is_in_the_lock_file_it_can_be_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    for content in ["", "1", "garbage\u{0}", "99999999999 99999999999999999999\n"] {
        std::fs::write(folder.path().join("lock"), content).expect("a file");
        let lock = JobLock::acquire(folder.path(), &name("a")).expect("the lock");
        std::fs::write(folder.path().join("lock"), content).expect("overwritten");
        let error = JobLock::acquire(folder.path(), &name("a")).expect_err("refused");
        assert!(error.to_string().contains("running as another process"), "{error}");
        drop(lock);
    }
}
