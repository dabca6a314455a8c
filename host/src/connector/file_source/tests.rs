//! The file source over real files: replay, growth, and every way in which a file can change under it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::position::Position;
use super::{FileMode, FileReader, FileSourceOptions};
use crate::connector::{ConnectorError, Polled, SourceReader, SplitChange, SplitState, said, test_ctx};
use crate::id::SplitId;

fn options(path: &Path, mode: FileMode) -> FileSourceOptions {
    FileSourceOptions {
        path: path.to_owned(),
        mode,
        discover_interval: Duration::ZERO,
        settle: Duration::ZERO,
        ordered: false,
        max_line: 1 << 20,
    }
}

fn open(path: &Path) -> FileReader {
    open_with(&options(path, FileMode::Bounded), 0, 1)
}

fn open_with(options: &FileSourceOptions, subtask: u32, parallelism: u32) -> FileReader {
    FileReader::open(options, &test_ctx("text", parallelism), subtask).expect("a source")
}

fn restored(path: &Path, splits: &[SplitState]) -> Result<FileReader, ConnectorError> {
    let mut reader = open(path);
    reader.restore(splits)?;
    Ok(reader)
}

/// All lines until the source ends or has nothing for now.
fn lines(reader: &mut FileReader) -> Vec<String> {
    try_lines(reader).expect("readable")
}

fn try_lines(reader: &mut FileReader) -> Result<Vec<String>, ConnectorError> {
    let mut lines = Vec::new();
    // A poll that gives nothing may have found what the next one reads.
    let mut idle = 0;
    while idle < 2 {
        match reader.poll()? {
            Polled::Batch { batch, .. } => {
                batch.check().expect("well formed");
                lines.extend(batch.iter().map(|row| String::from_utf8_lossy(row.value.expect("a value")).into_owned()));
            }
            Polled::Idle(_) => idle += 1,
            Polled::Ended => return Ok(lines),
        }
    }
    Ok(lines)
}

fn append(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).expect("opened");
    file.write_all(text.as_bytes()).expect("written");
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        files.iter().for_each(|(name, text)| fs::write(folder.at(name), text).expect("written"));
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }
}

#[test]
fn all_line_ends_are_read_alike_whatever_the_chunks() {
    let text = "unix\nwindows\r\nmac\rempty next\n\n\r\n\r\rlast \u{fc}ml\u{e4}ut without end";
    let folder = Folder::with(&[("a", text), ("b", "one\r\n"), ("c", "")]);
    let wanted = ["unix", "windows", "mac", "empty next", "", "", "", "", "last \u{fc}ml\u{e4}ut without end", "one"];
    for chunk in 1..=text.len() + 1 {
        assert_eq!(lines(&mut open(folder.path()).with_chunk_bytes(chunk)), wanted, "by {chunk}");
    }
}

#[test]
fn bytes_that_are_not_utf8_pass_in_content_and_names() {
    let folder = Folder::with(&[]);
    let name = OsStr::from_bytes(b"caf\xe9 100%.txt");
    fs::write(folder.at(name), b"\xff\x00\xfe\nok\n").expect("written");
    let mut reader = open(folder.path());
    let Polled::Batch { batch, .. } = reader.poll().expect("readable") else { panic!("lines") };
    assert_eq!((batch.value(0), batch.key(0)), (Some(&b"\xff\x00\xfe"[..]), None));
    let splits = reader.snapshot();
    assert_eq!(splits[0].split, "caf%E9 100%25.txt");
    assert_eq!(lines(&mut restored(folder.path(), &splits).expect("its own positions")), [""; 0]);
}

#[test]
fn a_replay_from_the_beginning_of_any_line_gives_the_lines_from_there() {
    let text: String = (0..400).map(|i| format!("line {i}{}", ["\n", "\r\n", "\r"][i % 3])).collect();
    let folder = Folder::with(&[("a", &text)]);
    let whole = lines(&mut open(folder.path()));
    let mut offset = 0;
    for (i, line) in whole.iter().enumerate() {
        let position = Position::new(offset as u64, &text.as_bytes()[..text.len().min(1024)], false).to_string();
        let splits = [SplitState { split: "a".to_owned(), position: position.into() }];
        let mut reader = restored(folder.path(), &splits).expect("a position");
        assert_eq!(lines(&mut reader), whole[i..], "from {offset}");
        offset += line.len() + if i % 3 == 1 { 2 } else { 1 };
    }
    assert_eq!(offset, text.len());
}

#[test]
fn the_positions_after_every_batch_give_the_rest_at_any_parallelism() {
    let folder = Folder::with(&[]);
    for file in 0..7 {
        let text: String = (0..file * 1_500).map(|i| format!("{file}-{i}\n")).collect();
        fs::write(folder.at(format!("{file}.txt")), text).expect("written");
    }
    let mut reader = open(folder.path());
    let mut seen: Vec<String> = Vec::new();
    let all = 1_500 * (1..7).sum::<usize>();
    let mut batches = 0;
    while let Polled::Batch { batch, .. } = reader.poll().expect("readable") {
        batches += 1;
        seen.extend(batch.iter().map(|row| String::from_utf8_lossy(row.value.expect("a value")).into_owned()));
        let splits = reader.snapshot();
        let mut total = seen.clone();
        for subtask in 0..3 {
            let mut other = open_with(&options(folder.path(), FileMode::Bounded), subtask, 3);
            other.restore(&splits).expect("positions");
            total.extend(lines(&mut other));
        }
        total.sort_unstable();
        total.dedup();
        assert_eq!(total.len(), all, "after batch {batches}");
        assert_eq!(lines(&mut restored(folder.path(), &splits).expect("positions")).len() + seen.len(), all);
    }
    assert!(batches > 4 && seen.len() == all, "{batches} batches, {} lines", seen.len());
}

#[test]
fn the_next_run_reads_only_what_has_come_since() {
    let folder = Folder::with(&[("a", "1\n2"), ("b", "3\r")]);
    let mut first = open(folder.path());
    assert_eq!(lines(&mut first), ["1", "2", "3"]);
    let splits = first.snapshot();
    let rest = || lines(&mut restored(folder.path(), &splits).expect("its own positions"));
    assert_eq!(rest(), [""; 0]);
    append(&folder.at("a"), "\n4\n");
    append(&folder.at("b"), "\n5");
    append(&folder.at("c"), "6");
    assert_eq!(rest(), ["4", "5", "6"]);
    append(&folder.at("late.tmp"), "not yet\n");
    assert_eq!(rest().len(), 3);
    fs::rename(folder.at("late.tmp"), folder.at("late")).expect("renamed");
    assert_eq!(rest(), ["4", "5", "6", "not yet"]);
}

#[test]
fn a_file_that_appears_while_a_bounded_source_reads_is_for_the_next_run() {
    let folder = Folder::with(&[("a", "1\n"), ("b", "2\n")]);
    let mut reader = open(folder.path());
    assert!(matches!(reader.poll().expect("readable"), Polled::Batch { .. }));
    append(&folder.at("a"), "3\n");
    append(&folder.at("c"), "4\n");
    assert_eq!(lines(&mut reader), ["2"]);
    assert!(matches!(reader.poll().expect("readable"), Polled::Ended));
    assert_eq!(lines(&mut restored(folder.path(), &reader.snapshot()).expect("positions")), ["3", "4"]);
}

#[test]
fn a_batch_is_of_one_file_and_says_where_in_it_it_begins() {
    let text = "line\n".repeat(5_000);
    let folder = Folder::with(&[("a", &text), ("b", "1\r\n2\n"), ("c", "")]);
    let mut reader = open(folder.path());
    let (mut batches, mut changes) = (Vec::new(), Vec::new());
    while let Polled::Batch { split, first_offset, batch } = reader.poll().expect("readable") {
        batches.push((split.to_string(), first_offset, batch.rows));
        changes.push(reader.split_changes());
    }
    assert_eq!(batches, [("a".to_owned(), 0, 4_096), ("a".to_owned(), 4_096 * 5, 904), ("b".to_owned(), 0, 2)]);
    let (begins, ended) =
        (|split| (SplitId::new(split), SplitChange::Begins), |split| (SplitId::new(split), SplitChange::Ended));
    assert_eq!(changes, [vec![begins("a"), begins("b")], vec![ended("a")], vec![ended("b")]]);
}

#[test]
fn event_time_waits_for_files_that_are_known_of_unless_they_are_in_order() {
    let folder = Folder::with(&[("a", "1\n"), ("b", "2\n")]);
    let kinds = |options: &FileSourceOptions| {
        let mut reader = open_with(options, 0, 1);
        lines(&mut reader);
        reader.split_changes().into_iter().map(|(split, change)| (split.to_string(), change)).collect::<Vec<_>>()
    };
    let change = |split: &str, change| (split.to_owned(), change);
    use SplitChange::{Begins, Ended};
    let bounded = options(folder.path(), FileMode::Bounded);
    let all = [change("a", Begins), change("b", Begins), change("a", Ended), change("b", Ended)];
    assert_eq!(kinds(&bounded), all);
    assert_eq!(kinds(&FileSourceOptions { ordered: true, ..bounded }), all[2..]);
}

#[test]
fn event_time_waits_for_a_file_that_has_grown_and_not_for_one_that_is_gone() {
    let folder = Folder::with(&[("a", "1\n"), ("b", "2\n")]);
    let mut reader = open_with(&options(folder.path(), FileMode::Continuous), 0, 1);
    lines(&mut reader);
    reader.split_changes();
    append(&folder.at("a"), "3\n");
    fs::write(folder.at("c"), "4\n").expect("written");
    fs::write(folder.at("d"), "5\n").expect("written");
    assert!(matches!(reader.poll().expect("readable"), Polled::Batch { .. }));
    fs::remove_file(folder.at("d")).expect("removed");
    assert_eq!(lines(&mut reader), ["4"]);
    let change = |split, change| (SplitId::new(split), change);
    use SplitChange::{Begins, Ended, Rests};
    let expected = [
        change("a", Begins),
        change("c", Begins),
        change("d", Begins),
        change("a", Rests),
        change("c", Rests),
        change("d", Ended),
    ];
    assert_eq!(reader.split_changes()[..6], expected);
}

#[test]
fn a_file_that_may_grow_only_rests_and_one_that_was_begun_before_is_told() {
    let folder = Folder::with(&[("a", &"line\n".repeat(5_000)), ("b", "1\n2")]);
    let mut reader = open_with(&options(folder.path(), FileMode::Continuous), 0, 1);
    assert!(matches!(reader.poll().expect("readable"), Polled::Batch { .. }));
    let half = reader.snapshot();
    lines(&mut reader);
    let rests = |split| (SplitId::new(split), SplitChange::Rests);
    let begins = |split| (SplitId::new(split), SplitChange::Begins);
    assert_eq!(reader.split_changes()[..4], [begins("a"), begins("b"), rests("a"), rests("b")]);
    assert_eq!(open(folder.path()).begun_splits(), []);
    assert_eq!(restored(folder.path(), &half).expect("positions").begun_splits(), [SplitId::new("a")]);
    assert_eq!(restored(folder.path(), &reader.snapshot()).expect("positions").begun_splits(), []);
    // Its last position may have been that of its end, without anybody knowing it then.
    fs::write(folder.at("a"), "line\n".repeat(4_096)).expect("cut to what was read");
    let mut at_end = restored(folder.path(), &half).expect("positions");
    assert_eq!(lines(&mut at_end), ["1", "2"]);
    assert_eq!(at_end.split_changes()[..2], [(SplitId::new("a"), SplitChange::Ended), begins("b")]);
}

#[test]
fn a_finished_file_may_be_deleted_and_an_unfinished_one_not() {
    let folder = Folder::with(&[("a", "1\n2\n3\n"), ("b", "4\n")]);
    let mut reader = open(folder.path());
    lines(&mut reader);
    let mut splits = reader.snapshot();
    fs::remove_file(folder.at("a")).expect("removed");
    let mut later = restored(folder.path(), &splits).expect("it was finished");
    assert_eq!(lines(&mut later), [""; 0]);
    assert_eq!(later.snapshot(), splits, "what was read is not forgotten");
    let folder = Folder::with(&[("a", &"line\n".repeat(5_000))]);
    let mut reader = open(folder.path());
    assert!(matches!(reader.poll().expect("readable"), Polled::Batch { .. }));
    splits = reader.snapshot();
    fs::remove_file(folder.at("a")).expect("removed");
    let error = restored(folder.path(), &splits).err().expect("lines are lost").to_string();
    assert!(error.contains("/a'") && error.contains("deleted before it was read to its end"), "{error}");
    assert!(error.contains("put the file back"), "{error}");
}

#[test]
fn a_file_that_was_replaced_or_truncated_is_refused_with_what_to_do() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 3] = [
        (|path| fs::write(path, "1\n").expect("written"), "truncated: it has 2 bytes, and 4 were read"),
        (|path| fs::write(path, "one\ntwo\nthree\n").expect("written"), "replaced"),
        (|path| fs::remove_file(path).and_then(|()| fs::create_dir(path)).expect("a folder"), "replaced"),
    ];
    for (change, says) in changes {
        let folder = Folder::with(&[("a", "1\n2\n")]);
        let mut reader = open(folder.path());
        lines(&mut reader);
        change(&folder.at("a"));
        let error = restored(folder.path(), &reader.snapshot()).err().expect("another file").to_string();
        assert!(error.contains(says) && error.contains("/a'") && error.contains("put the file back"), "{error}");
    }
}

#[test]
fn positions_of_something_else_are_refused() {
    let folder = Folder::with(&[("a", "1\n")]);
    for (split, position) in [
        ("a", serde_json::json!({ "next": 1 })),
        ("a", serde_json::json!("1 2 3")),
        ("../../etc/passwd", serde_json::json!("0 0 done")),
        ("/etc/passwd", serde_json::json!("0 0 done")),
    ] {
        let splits = [SplitState { split: split.to_owned(), position }];
        assert!(restored(folder.path(), &splits).is_err(), "{splits:?}");
    }
}

#[test]
fn every_file_is_read_by_exactly_one_subtask() {
    let folder = Folder::with(&[]);
    for file in 0..50 {
        append(&folder.at(format!("{file}")), &format!("{file}\n"));
    }
    let mut all = Vec::new();
    for subtask in 0..4 {
        let own = lines(&mut open_with(&options(folder.path(), FileMode::Bounded), subtask, 4));
        assert!(!own.is_empty());
        all.extend(own);
    }
    all.sort_unstable_by_key(|line| line.parse::<u32>().expect("a number"));
    assert_eq!(all, (0..50).map(|file| file.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_continuous_source_notices_new_files_and_growth() {
    let folder = Folder::with(&[("a", "1\n")]);
    let mut reader = open_with(&options(folder.path(), FileMode::Continuous), 0, 1);
    assert_eq!(lines(&mut reader), ["1"]);
    append(&folder.at("a"), "2\n");
    append(&folder.at("b"), "3\n");
    assert_eq!(lines(&mut reader), ["2", "3"]);
    fs::remove_file(folder.at("b")).expect("removed");
    assert_eq!(lines(&mut reader), [""; 0]);
    fs::write(folder.at("a"), "9\n").expect("truncated");
    assert!(try_lines(&mut reader).expect_err("lines are lost").to_string().contains("truncated"));
}

#[test]
fn a_last_line_without_end_waits_until_it_has_settled() {
    let folder = Folder::with(&[("a", "1\n2")]);
    let mut patient = options(folder.path(), FileMode::Continuous);
    patient.settle = Duration::from_secs(3600);
    let mut reader = open_with(&patient, 0, 1);
    assert_eq!(lines(&mut reader), ["1"]);
    append(&folder.at("a"), "2");
    assert_eq!(lines(&mut reader), [""; 0]);
    let open_splits = reader.snapshot();
    append(&folder.at("a"), "2\n3\r");
    assert_eq!(lines(&mut reader), ["222"]);
    let mut hasty = open_with(&options(folder.path(), FileMode::Continuous), 0, 1);
    assert_eq!(lines(&mut hasty), ["1", "222", "3"]);
    append(&folder.at("a"), "\n4");
    assert_eq!(lines(&mut hasty), ["4"]);
    append(&folder.at("a"), "\n5\n");
    assert_eq!(lines(&mut hasty), ["5"]);
    fs::remove_file(folder.at("a")).expect("removed");
    assert!(try_lines(&mut reader).expect_err("it had unread lines").to_string().contains("deleted"));
    let error = restored(folder.path(), &open_splits).err().expect("it had an open line").to_string();
    assert!(error.contains("deleted before it was read to its end"), "{error}");
}

#[test]
fn a_line_over_the_limit_is_an_error_after_the_lines_before_it() {
    let mib = 1 << 20;
    let folder = Folder::with(&[("a", &format!("ok\n{}\nnext\n", "x".repeat(mib)))]);
    let found = lines(&mut open(folder.path()));
    assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [2, mib, 4]);
    fs::write(folder.at("a"), format!("ok\n{}\nnext\n", "x".repeat(mib + 1))).expect("written");
    let mut reader = open(folder.path());
    let mut got = Vec::new();
    let error = loop {
        match reader.poll() {
            Ok(Polled::Batch { batch, .. }) => got.push(batch.rows),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break said(&error),
        }
    };
    assert!(got.is_empty() || got == [1], "{got:?}");
    assert!(error.contains("the line at byte 3 of") && error.contains("/a is longer than max_line = 1MiB"), "{error}");
    assert!(error.contains("raise max_line"), "{error}");
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    let folder = Folder::with(&[]);
    let error = open(&folder.at("nothing")).poll().expect_err("no such file").to_string();
    assert!(error.contains("text: cannot find") && error.contains("/nothing"), "{error}");
    std::os::unix::fs::symlink(folder.at("circle"), folder.at("circle")).expect("linked");
    let error = open(folder.path()).poll().expect_err("a circle of links").to_string();
    assert!(error.contains("cannot look at") && error.contains("/circle"), "{error}");
    fs::remove_file(folder.at("circle")).expect("removed");

    // A file that is gone, or a folder, by the time it is read.
    append(&folder.at("a"), &"1\n".repeat(5_000));
    append(&folder.at("b"), "2\n");
    for make_folder in [false, true] {
        let mut reader = open(folder.path());
        assert!(matches!(reader.poll().expect("the first lines of a"), Polled::Batch { .. }));
        fs::remove_file(folder.at("b")).expect("removed");
        if make_folder {
            fs::create_dir(folder.at("b")).expect("made");
        }
        let error = try_lines(&mut reader).expect_err("b can't be read").to_string();
        assert!(error.contains("/b"), "{error}");
        let _ = fs::remove_dir(folder.at("b"));
        append(&folder.at("b"), "2\n");
    }
}
