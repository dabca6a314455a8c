//! The sink killed at every durable step, again and again, until it gets through.
//!
//! The child below is a tiny job: per epoch it writes, prepares, publishes a manifest of its own, commits, and goes on. It is
//! this test program run with `LOCKGATE_CRASH_AT`; each run recovers from the newest manifest as the runtime does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use super::tests::{attempt, batch, options, permit, visible};
use super::{FileCommitter, FileSinkWriter, durable};
use crate::connector::{SinkCommitter, SinkWriter};
use crate::id::Epoch;

const CHILD: &str = "connector::file_sink::crash_tests::child";
const FOLDER: &str = "LOCKGATE_TEST_SINK_FOLDER";
const EPOCHS: u64 = 2;
const SUBTASKS: u32 = 2;

/// Every crash point of this sink.
const POINTS: [&str; 12] = [
    "connector.claim.before",
    "connector.claim.after",
    "connector.stage.before",
    "connector.stage.after",
    "connector.rename.before",
    "connector.rename.after",
    "connector.sync.before",
    "connector.sync.after",
    "connector.record.before",
    "connector.record.after",
    "connector.discard.before",
    "connector.discard.after",
];

fn line(epoch: u64, subtask: u32) -> String {
    format!("epoch {epoch} subtask {subtask}")
}

/// Not a test: what [`run`] starts.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (out, manifests) = (Path::new(&folder).join("out"), Path::new(&folder).join("manifests"));
    fs::create_dir_all(&manifests).expect("made");
    let number = (1..).find(|n| fs::create_dir(Path::new(&folder).join(format!("attempt-{n}"))).is_ok());
    let ctx = attempt(number.expect("a free number"));
    let committer = FileCommitter::open(&options(&out), &ctx).expect("ours");
    let manifest = |epoch: u64| manifests.join(format!("{epoch}.json"));
    let newest = (1..=EPOCHS).take_while(|epoch| manifest(*epoch).exists()).last().unwrap_or(0);
    if newest > 0 {
        let bytes = fs::read(manifest(newest)).expect("a manifest");
        let committables: Vec<Vec<u8>> = serde_json::from_slice(&bytes).expect("committables");
        committer.commit(&permit(newest), &committables).expect("what was published can be committed");
    }
    committer.discard_leftovers().expect("discarded");
    let mut writers: Vec<_> =
        (0..SUBTASKS).map(|subtask| FileSinkWriter::open(&options(&out), &ctx, subtask)).collect();
    for epoch in newest + 1..=EPOCHS {
        let write = |(subtask, writer): (usize, &mut FileSinkWriter)| {
            writer.write(&batch(&[&line(epoch, subtask as u32)])).expect("written");
            writer.prepare(Epoch(epoch)).expect("cut")().expect("durable")
        };
        let committables: Vec<Vec<u8>> = writers.iter_mut().enumerate().map(write).collect();
        durable::replace(&manifest(epoch), &serde_json::to_vec(&committables).expect("JSON")).expect("published");
        committer.commit(&permit(epoch), &committables).expect("committed");
    }
}

fn run(folder: &Path, crash_at: Option<&str>) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", CHILD, "--test-threads=1", "-q"]).env(FOLDER, folder);
    match crash_at {
        Some(point) => child.env("LOCKGATE_CRASH_AT", point),
        None => child.env_remove("LOCKGATE_CRASH_AT"),
    };
    child.output().expect("started").status
}

fn check_output(folder: &Path, what: &str) {
    let each = (1..=EPOCHS).flat_map(|epoch| (0..SUBTASKS).map(move |subtask| (epoch, subtask)));
    let wanted: BTreeMap<String, String> = each
        .map(|(epoch, subtask)| (format!("part-{epoch:08}-{subtask:04}.txt"), line(epoch, subtask) + "\n"))
        .collect();
    assert_eq!(visible(&folder.join("out")), wanted, "{what}");
}

#[test]
fn every_record_is_committed_once_whatever_step_the_sink_is_killed_at() {
    let mut kills = 0;
    for point in POINTS {
        for hit in 1.. {
            let folder = tempfile::tempdir().expect("a folder");
            let crash_at = format!("{point}:{hit}");
            if point.starts_with("connector.discard") {
                // Something to discard: two staged files that no manifest names.
                assert_eq!(run(folder.path(), Some("connector.stage.after:2")).signal(), Some(9));
            }
            let status = run(folder.path(), Some(&crash_at));
            if status.success() {
                assert!(hit > 1, "{point} was never reached");
                break;
            }
            assert_eq!(status.signal(), Some(9), "{crash_at}: {status}");
            kills += 1;
            // Once more at the same point while it recovers, then to the end.
            run(folder.path(), Some(&format!("{point}:1")));
            assert!(run(folder.path(), None).success(), "{crash_at}");
            check_output(folder.path(), &crash_at);
            if hit == 1 {
                assert!(run(folder.path(), None).success(), "nothing to do after {crash_at}");
                check_output(folder.path(), &crash_at);
            }
        }
    }
    assert!(kills >= 24, "only {kills} kills");
}

#[test]
fn a_crash_between_link_and_unlink_is_finished() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(run(folder.path(), Some("connector.rename.before:2")).signal(), Some(9));
    // Where the filesystem can't rename without overwriting, the part is linked first.
    let staged = folder.path().join("out/.lockgate/staging/1/part-0001-000000");
    fs::hard_link(&staged, folder.path().join("out/part-00000001-0001.txt")).expect("linked");
    assert!(run(folder.path(), None).success());
    check_output(folder.path(), "link and unlink");
    assert!(!staged.exists());
}
