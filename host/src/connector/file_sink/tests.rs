//! The file sink over real folders: what is visible when, who may write, and what a checkpoint can't talk it into.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::committable::Committable;
use super::{FileCommitter, FileSinkOptions, FileSinkWriter, MissingValue};
use crate::connector::{ConnectorContext, ConnectorError, SinkCommitter, SinkWriter, said, test_ctx};
use crate::element::{Batch, Header, NO_TIMESTAMP, Row};
use crate::id::{Attempt, Epoch, JobUid, Name};
use crate::protocol::decision::Digest;
use crate::protocol::{CommitPermit, PublishReceipt};

pub fn permit(epoch: u64) -> CommitPermit {
    CommitPermit::new(PublishReceipt::for_published(Epoch(epoch), Digest(epoch)))
}

pub fn options(path: &Path) -> FileSinkOptions {
    FileSinkOptions {
        path: path.to_owned(),
        extension: "txt".to_owned(),
        roll_size: None,
        missing_value: MissingValue::Error,
    }
}

pub fn attempt(number: u64) -> ConnectorContext {
    ConnectorContext { attempt: Attempt(number), ..test_ctx("out", 2) }
}

pub fn batch(lines: &[&str]) -> Batch {
    let mut batch = Batch::with_capacity(0, 0);
    let row = |line: &&str| batch.push(Row { key: None, value: Some(line.as_bytes()), timestamp: NO_TIMESTAMP });
    lines.iter().for_each(row);
    batch
}

/// The visible files with their content.
pub fn visible(out: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(out).expect("a folder").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_name() != ".lockgate");
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().expect("a name"), fs::read_to_string(entry.path()).expect("text"))
    };
    files.map(read).collect()
}

fn staged_files(out: &Path) -> usize {
    let folders = fs::read_dir(out.join(".lockgate/staging")).expect("staging");
    folders.map(|folder| fs::read_dir(folder.expect("an entry").path()).expect("a folder").count()).sum()
}

struct Sink {
    out: tempfile::TempDir,
    ctx: ConnectorContext,
    committer: FileCommitter,
    writer: FileSinkWriter,
}

impl Sink {
    fn new() -> Sink {
        Sink::at(tempfile::tempdir().expect("a folder"), 1, |_| {})
    }

    fn at(out: tempfile::TempDir, number: u64, change: fn(&mut FileSinkOptions)) -> Sink {
        let (mut options, ctx) = (options(out.path()), attempt(number));
        change(&mut options);
        let committer = FileCommitter::open(&options, &ctx).expect("ours");
        let writer = FileSinkWriter::open(&options, &ctx, 0);
        Sink { out, ctx, committer, writer }
    }

    /// As after a restart of the process.
    fn restart(self) -> Sink {
        Sink::at(self.out, self.ctx.attempt.0 + 1, |_| {})
    }

    fn prepare(&mut self, epoch: u64, lines: &[&str]) -> Vec<u8> {
        self.writer.write(&batch(lines)).expect("written");
        self.writer.prepare(Epoch(epoch)).expect("cut")().expect("durable")
    }

    fn visible(&self) -> BTreeMap<String, String> {
        visible(self.out.path())
    }

    fn error(&self, epoch: u64, committables: &[Vec<u8>]) -> String {
        said(&self.committer.commit(&permit(epoch), committables).expect_err("refused"))
    }
}

fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn output_is_invisible_until_its_commit_and_then_whole() {
    let mut sink = Sink::new();
    let first = sink.prepare(1, &["a", "", "b"]);
    let second = sink.prepare(2, &["c"]);
    assert_eq!(sink.visible(), files(&[]));
    sink.committer.commit(&permit(1), &[Vec::new(), first.clone()]).expect("committed");
    assert_eq!(sink.visible(), files(&[("part-00000001-0000.txt", "a\n\nb\n")]));
    sink.committer.commit(&permit(1), &[first]).expect("again is no error");
    sink.committer.commit(&permit(2), &[second]).expect("committed");
    let wanted = files(&[("part-00000001-0000.txt", "a\n\nb\n"), ("part-00000002-0000.txt", "c\n")]);
    assert_eq!(sink.visible(), wanted);
    assert_eq!(staged_files(sink.out.path()), 0);
}

#[test]
fn an_epoch_without_records_makes_no_file_and_no_committable() {
    let mut sink = Sink::new();
    assert_eq!(sink.prepare(1, &[]), Vec::<u8>::new());
    sink.committer.commit(&permit(1), &[Vec::new(), Vec::new()]).expect("nothing to do");
    assert_eq!(sink.visible(), files(&[]));
    assert!(!sink.out.path().join(".lockgate/committed.json").exists());
}

#[test]
fn another_process_commits_what_was_prepared_and_discards_the_rest() {
    let mut sink = Sink::new();
    let published = sink.prepare(1, &["kept"]);
    sink.prepare(2, &["thrown away"]);
    sink.writer.write(&batch(&["unfinished"])).expect("written");
    let sink = sink.restart();
    sink.committer.commit(&permit(1), std::slice::from_ref(&published)).expect("committed");
    sink.committer.discard_leftovers().expect("discarded");
    let wanted = files(&[("part-00000001-0000.txt", "kept\n")]);
    assert_eq!((sink.visible(), staged_files(sink.out.path())), (wanted.clone(), 0));
    let mut sink = sink.restart();
    sink.committer.commit(&permit(1), &[published]).expect("done before");
    sink.committer.discard_leftovers().expect("nothing to discard");
    assert_eq!(sink.visible(), wanted);
    let next = sink.prepare(2, &["next"]);
    sink.committer.discard_leftovers().expect("its own attempt is left alone");
    sink.committer.commit(&permit(2), &[next]).expect("committed");
    assert_eq!(sink.visible().len(), 2);
}

#[test]
fn large_epochs_are_cut_into_files_of_the_roll_size() {
    let mut sink = Sink::at(tempfile::tempdir().expect("a folder"), 1, |options| options.roll_size = Some(64 << 10));
    let line = "x".repeat(1023);
    for _ in 0..40 {
        sink.writer.write(&batch(&[line.as_str(); 64])).expect("written");
    }
    let committable = sink.prepare(1, &["last"]);
    sink.committer.commit(&permit(1), &[committable]).expect("committed");
    let parts = sink.visible();
    assert_eq!(parts.len(), 41);
    assert_eq!(parts["part-00000001-0000-0040.txt"], "last\n");
    assert!(parts.iter().filter(|(_, text)| text.len() == 64 << 10).count() == 40);
    let next = sink.prepare(2, &["next"]);
    sink.committer.commit(&permit(2), &[next]).expect("committed");
    assert_eq!(sink.visible()["part-00000002-0000.txt"], "next\n");
}

#[test]
fn a_record_without_a_value_fails_the_job_or_is_skipped_as_asked() {
    let mut rows = batch(&["a"]);
    rows.push(Row { key: Some(b"k"), value: None, timestamp: 0 });
    rows.push(Row { key: None, value: Some(b"b"), timestamp: 0 });
    rows.push_header(Header { name: "in no file", value: Some(b"x") });
    let mut sink = Sink::new();
    let error = said(&sink.writer.write(&rows).expect_err("no line can show it"));
    assert!(error.contains("missing_value = \"skip\""), "{error}");
    let mut sink = Sink::at(sink.out, 2, |options| options.missing_value = MissingValue::Skip);
    sink.writer.write(&rows).expect("skipped");
    let committable = sink.prepare(1, &[]);
    sink.committer.commit(&permit(1), &[committable]).expect("committed");
    assert_eq!(sink.visible(), files(&[("part-00000001-0000.txt", "a\nb\n")]));
}

#[test]
fn a_folder_of_another_job_or_sink_is_refused_and_untouched() {
    let sink = Sink::new();
    let owner = sink.out.path().join(".lockgate/owner.json");
    let content = fs::read(&owner).expect("an owner");
    let other_job = ConnectorContext { job_uid: JobUid("uid-2".to_owned()), ..attempt(1) };
    let other_sink = ConnectorContext { name: Name::new("second").expect("a name"), ..attempt(1) };
    for ctx in [other_job, other_sink] {
        let error = said(&FileCommitter::open(&options(sink.out.path()), &ctx).err().expect("not theirs"));
        assert!(
            error.contains("belongs to sink 'out' of job 'job'") && error.contains("choose another path"),
            "{error}"
        );
        let mut writer = FileSinkWriter::open(&options(sink.out.path()), &ctx, 0);
        assert!(writer.write(&batch(&["x"])).is_err());
    }
    assert_eq!(fs::read(&owner).expect("an owner"), content);
    assert_eq!(staged_files(sink.out.path()), 0);
    for length in 0..content.len() {
        fs::write(&owner, &content[..length]).expect("written");
        let error = said(&FileCommitter::open(&options(sink.out.path()), &attempt(2)).err().expect("damaged"));
        assert!(error.contains("owner.json"), "{error}");
    }
}

#[test]
fn a_file_in_the_place_of_the_output_folder_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    fs::write(&out, "a file").expect("written");
    let error = FileCommitter::open(&options(&out), &attempt(1)).err().expect("no folder").to_string();
    assert!(error.starts_with("out: cannot create the output folder") && error.ends_with("/out"), "{error}");
}

#[test]
fn a_writer_whose_folder_nobody_claimed_writes_nothing() {
    let out = tempfile::tempdir().expect("a folder");
    let mut writer = FileSinkWriter::open(&options(out.path()), &attempt(1), 0);
    assert!(writer.write(&batch(&["x"])).is_err());
    assert_eq!(fs::read_dir(out.path()).expect("a folder").count(), 0);
}

#[test]
fn files_of_others_are_never_touched_or_overwritten() {
    let out = tempfile::tempdir().expect("a folder");
    fs::write(out.path().join("notes"), "mine").expect("written");
    fs::write(out.path().join("part-00000001-0001.txt"), "mine too").expect("written");
    let mut sink = Sink::at(out, 1, |_| {});
    let mut second = FileSinkWriter::open(&options(sink.out.path()), &sink.ctx, 1);
    second.write(&batch(&["b"])).expect("written");
    let committables = [sink.prepare(1, &["a"]), second.prepare(Epoch(1)).expect("cut")().expect("durable")];
    let before = files(&[("notes", "mine"), ("part-00000001-0001.txt", "mine too")]);
    for _ in 0..2 {
        let error = sink.error(1, &committables);
        assert!(error.contains("part-00000001-0001.txt is there already") && error.contains("away"), "{error}");
        assert_eq!(sink.visible(), before, "not even the part that had a free name");
    }
    fs::remove_file(sink.out.path().join("part-00000001-0001.txt")).expect("moved away");
    let sink = sink.restart();
    sink.committer.commit(&permit(1), &committables).expect("now it can");
    assert_eq!(sink.visible().len(), 3);
}

#[test]
fn committed_output_may_be_taken_away_and_lost_output_is_an_error() {
    let mut sink = Sink::new();
    let part = sink.out.path().join("part-00000001-0000.txt");
    let first = sink.prepare(1, &["a"]);
    sink.committer.commit(&permit(1), std::slice::from_ref(&first)).expect("committed");
    fs::write(&part, "changed by someone").expect("written");
    assert!(sink.error(1, std::slice::from_ref(&first)).contains("was committed with 2"));
    fs::remove_file(&part).expect("taken away");
    let mut sink = sink.restart();
    sink.committer.commit(&permit(1), &[first]).expect("it was complete");
    let second = sink.prepare(2, &["b"]);
    let staged = sink.out.path().join(".lockgate/staging/2/part-0000-000000");
    fs::write(&staged, "").expect("truncated");
    assert!(sink.error(2, std::slice::from_ref(&second)).contains("is not what was prepared"));
    fs::write(&staged, "B\n").expect("same size, other content");
    let sink = sink.restart();
    assert!(sink.error(2, std::slice::from_ref(&second)).contains("is not what was prepared"));
    fs::remove_file(&staged).expect("removed");
    assert!(sink.error(2, &[second]).contains("output is lost"));
    assert_eq!(sink.visible(), files(&[]));
}

#[test]
fn an_epoch_whose_number_was_used_before_is_never_committed_twice() {
    let mut sink = Sink::new();
    let first = sink.prepare(5, &["first"]);
    sink.committer.commit(&permit(5), &[first]).expect("committed");
    fs::remove_file(sink.out.path().join("part-00000005-0000.txt")).expect("taken away");
    let again = sink.prepare(5, &["again"]);
    assert!(sink.error(5, &[again]).contains("was committed before"));
    assert_eq!(sink.visible(), files(&[]));
}

#[test]
fn a_committable_from_elsewhere_is_refused_before_anything_is_touched() {
    let mut sink = Sink::new();
    let good = sink.prepare(3, &["a"]);
    assert!(sink.error(4, std::slice::from_ref(&good)).contains("it is of epoch 3"));
    let text = String::from_utf8(good.clone()).expect("JSON");
    for (from, to) in [("\"txt\"", "\"/../../x\""), ("\"attempt\":1", "\"attempt\":\"../1\""), ("{", "[")] {
        let tampered = text.replacen(from, to, 1).into_bytes();
        assert!(Committable::read(&tampered, Epoch(3)).is_err());
        assert!(sink.error(3, &[good.clone(), tampered]).contains("can't be used"));
    }
    assert_eq!(sink.visible(), files(&[]));
    sink.committer.commit(&permit(3), &[good]).expect("the good one is as it was");
}

#[test]
fn a_damaged_record_of_commits_is_an_error() {
    let mut sink = Sink::new();
    let first = sink.prepare(1, &["a"]);
    sink.committer.commit(&permit(1), &[first]).expect("committed");
    let record = sink.out.path().join(".lockgate/committed.json");
    let content = fs::read(&record).expect("a record");
    for length in 0..content.len() {
        fs::write(&record, &content[..length]).expect("written");
        let error = said(&FileCommitter::open(&options(sink.out.path()), &attempt(2)).err().expect("damaged"));
        assert!(error.contains("committed.json is damaged"), "{error}");
    }
}

/// A small filesystem of its own; nothing if this process may not mount one.
fn small_disk() -> Option<SmallDisk> {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(folder.path())
        .status()
        .is_ok_and(|status| status.success());
    mounted.then(|| SmallDisk(folder))
}

struct SmallDisk(tempfile::TempDir);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_a_clear_error_and_nothing_shows() {
    let Some(disk) = small_disk() else {
        eprintln!("SKIPPED: a_full_disk_is_a_clear_error_and_nothing_shows: mounting a tmpfs needs root");
        return;
    };
    let out = disk.0.path().join("out");
    let ctx = attempt(1);
    let committer = FileCommitter::open(&options(&out), &ctx).expect("there is room for that");
    let mut writer = FileSinkWriter::open(&options(&out), &ctx, 0);
    writer.write(&batch(&["kept"])).expect("written");
    let kept = writer.prepare(Epoch(1)).expect("cut")().expect("durable");
    let line = "x".repeat(100_000);
    let error = (0..20).find_map(|_| writer.write(&batch(&[&line])).err()).expect("the disk is full");
    assert!(matches!(error, ConnectorError::Full { .. }), "{error:?}");
    let text = said(&error);
    assert!(
        text.contains("the disk is full; free some space") && text.contains("staging/1/part-0000-000001"),
        "{text}"
    );
    drop((writer, committer));
    assert_eq!(visible(&out), files(&[]));
    let next = attempt(2);
    let committer = FileCommitter::open(&options(&out), &next).expect("ours");
    // Even with a full disk what was prepared can be renamed; the record of it needs space.
    let _ = committer.commit(&permit(1), std::slice::from_ref(&kept));
    assert_eq!(visible(&out), files(&[("part-00000001-0000.txt", "kept\n")]));
    committer.discard_leftovers().expect("discarding frees the space");
    committer.commit(&permit(1), &[kept]).expect("there is room again");
    assert_eq!(visible(&out), files(&[("part-00000001-0000.txt", "kept\n")]));
}

#[test]
fn a_file_that_is_named_twice_is_refused_before_anything_is_touched() {
    let mut sink = Sink::new();
    let good = sink.prepare(1, &["a"]);
    let mut twice: serde_json::Value = serde_json::from_slice(&good).expect("JSON");
    let file = twice["files"][0].clone();
    twice["files"] = vec![file.clone(), file].into();
    for committables in [vec![twice.to_string().into_bytes()], vec![good.clone(), good.clone()]] {
        let error = sink.committer.commit(&permit(1), &committables).expect_err("twice");
        assert!(error.to_string().contains("file 0 of subtask 0 twice"), "{error}");
        assert!(visible(sink.out.path()).is_empty());
    }
    sink.committer.commit(&permit(1), &[good]).expect("once");
    assert_eq!(visible(sink.out.path()).len(), 1);
}
