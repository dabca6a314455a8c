//! Capsules on disk: what is kept comes back, what is damaged or made up is refused, and there are never too many.

mod chance;

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_128;

use super::error::BadCapsule;
use super::folder::Wanted;
use super::*;
use crate::element::{Batch, Column, Header, NO_TIMESTAMP, Row};
use crate::guest::{Draws, Effects, Entry, Place, Read, Trial, TrialCall, hexadecimal};
use crate::id::{Epoch, Name, SubtaskId};
use crate::protocol::MaxParallelism;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn column(rows: &[&[u8]]) -> Column {
    let mut column = Column::with_capacity(0, 0);
    rows.iter().for_each(|row| column.push(row));
    column
}

fn record(value: &str) -> Batch {
    let mut rows = Batch::default();
    rows.push(Row { key: Some(b"k"), value: Some(value.as_bytes()), timestamp: 5 });
    rows.push_header(Header { name: "trace", value: None });
    rows
}

/// One of every kind of thing that a capsule can hold.
fn sample(value: &str) -> Capsule {
    let bytes = b"no component".to_vec();
    let failed = |message: &str| Outcome::Failed {
        call: "process".to_owned(),
        kind: "panic".to_owned(),
        message: message.to_owned(),
    };
    Capsule {
        host_version: "0.1.0".to_owned(),
        taken_ms: 1_750_000_000_000,
        epoch: Epoch(7),
        place: Place {
            job: name("copy"),
            subtask: SubtaskId { operator: name("picky"), index: 1 },
            parallelism: 2,
            config_json: r#"{"a":"\"\\n"}"#.to_owned(),
            rejections: true,
        },
        max_parallelism: MaxParallelism::new(128).expect("in range"),
        limits: vec![("memory".to_owned(), 32 << 20), ("call_ms".to_owned(), 200), ("other".to_owned(), 0)],
        inputs: vec![name("in")],
        tables: vec![TableOf { name: name("counts"), version: 1 }],
        component: Component {
            name: "picky".to_owned(),
            version: "1.2.3".to_owned(),
            sha256: hexadecimal(&Sha256::digest(&bytes)),
            bytes,
        },
        trial: Trial {
            states: vec![b"state".to_vec()],
            now_ms: 3,
            watermark_ms: NO_TIMESTAMP,
            call: TrialCall::Process { port: 0, rows: record(value) },
        },
        origin: Some(ReadFrom { split: "a.txt".to_owned(), offset: 40, record: 2 }),
        state_of: StateOf::Call,
        reads: vec![
            Read::Get {
                table: 0,
                keys: column(&[b"k"]),
                user_keys: Column::default(),
                values: column(&[b"\x02"]),
                found: vec![1],
            },
            Read::Scan {
                table: 0,
                key: b"k".to_vec(),
                after: None,
                bytes_max: 100,
                user_keys: column(&[b""]),
                values: column(&[b"\x02"]),
                more: false,
            },
        ],
        entries: vec![Entry { table: 0, key: b"k".to_vec(), user_key: Vec::new(), value: vec![2] }],
        seen: failed("it panicked: no"),
        tried: failed("it panicked: no"),
        effects: Effects { batches: 1, rows: 2, emitted_xxh3: 3, writes: 4, written_xxh3: 5 },
        draws: Some(Draws { call: 7, taken: 300 }),
    }
}

#[test]
fn a_capsule_comes_back_as_it_was() {
    let capsule = sample("x");
    assert_eq!(Capsule::decode(&capsule.encode()), Ok(capsule));
}

/// Capsules are kept and sent around: what was written once must be readable by every later version.
#[test]
fn capsules_of_the_first_version_are_still_read() {
    let bytes = include_bytes!("fixtures/v1.capsule");
    assert_eq!(Capsule::decode(bytes), Ok(Capsule { draws: None, ..sample("x") }));
}

#[test]
fn capsules_of_the_second_version_are_still_read() {
    let bytes = include_bytes!("fixtures/v2.capsule");
    assert_eq!(Capsule::decode(bytes), Ok(sample("x")));
    assert_eq!(sample("x").encode(), bytes, "what is written today is still version 2");
}

#[test]
fn a_capsule_that_is_cut_off_anywhere_is_refused() {
    let bytes = sample("x").encode();
    for length in 0..bytes.len() {
        Capsule::decode(&bytes[..length]).expect_err("cut off");
    }
    assert_eq!(Capsule::decode(b"LGCAP"), Err(BadCapsule::CutOff));
    assert_eq!(Capsule::decode(b"#!/bin/sh"), Err(BadCapsule::Foreign));
    assert_eq!(Capsule::decode(&[0; 100]), Err(BadCapsule::Foreign));
    Capsule::decode(&[&bytes[..], b"\0"].concat()).expect_err("it goes on");
}

#[test]
fn a_capsule_with_any_bit_flipped_is_refused() {
    let mut bytes = sample("x").encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            Capsule::decode(&bytes).expect_err("a flipped bit");
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn a_capsule_of_a_newer_host_is_refused_by_its_version() {
    let mut bytes = sample("x").encode();
    bytes[8] = 9;
    let end = bytes.len() - 16;
    let checksum = xxh3_128(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(Capsule::decode(&bytes), Err(BadCapsule::Version { found: 9 }));
}

#[test]
fn what_no_host_writes_is_refused_although_its_checksum_is_right() {
    type Change = fn(&mut Capsule);
    let made_up: [(&str, Change); 15] = [
        ("subtask", |capsule| capsule.place.subtask.index = 2),
        ("subtask", |capsule| capsule.place.parallelism = 0),
        ("subtask", |capsule| capsule.place.parallelism = 129),
        ("memory", |capsule| capsule.limits[0].1 = u64::MAX),
        ("call_ms", |capsule| capsule.limits[1].1 = 0),
        ("records", |capsule| {
            let TrialCall::Process { rows, .. } = &mut capsule.trial.call else { return };
            rows.push(Row { key: None, value: None, timestamp: 0 });
        }),
        ("input", |capsule| capsule.inputs.clear()),
        ("table", |capsule| capsule.tables.clear()),
        ("found", |capsule| {
            let Read::Get { found, .. } = &mut capsule.reads[0] else { return };
            found.clear();
        }),
        ("malformed", |capsule| {
            let Read::Get { values, .. } = &mut capsule.reads[0] else { return };
            values.offsets[4] = 9;
        }),
        ("malformed", |capsule| {
            let Read::Scan { values, .. } = &mut capsule.reads[1] else { return };
            *values = Column::default();
        }),
        ("random numbers", |capsule| capsule.draws = Some(Draws { call: 1, taken: u64::MAX })),
        ("no call", |capsule| capsule.draws = Some(Draws { call: 0, taken: 0 })),
        ("component", |capsule| capsule.component.bytes.push(0)),
        ("component", |capsule| capsule.component.sha256.clear()),
    ];
    for (word, change) in made_up {
        let mut capsule = sample("x");
        change(&mut capsule);
        let error = Capsule::decode(&capsule.encode()).expect_err(word);
        let BadCapsule::Content { problem } = error else { panic!("{error}") };
        assert!(problem.contains(word), "{problem} and not {word}");
    }
}

#[test]
fn a_failure_is_like_another_one_whose_batch_was_different() {
    let failed = |kind: &str, message: &str| Outcome::Failed {
        call: "process".to_owned(),
        kind: kind.to_owned(),
        message: message.to_owned(),
    };
    assert!(failed("memory", "it wanted 5 bytes").is_like(&failed("memory", "it wanted 6 bytes")));
    assert!(failed("bad-record", "(row 3 of the batch): no").is_like(&failed("bad-record", "no")));
    assert!(!failed("panic", "a").is_like(&failed("panic", "b")));
    assert!(!failed("panic", "a").is_like(&failed("trap", "a")));
    assert!(!failed("panic", "a").is_like(&Outcome::Passed));
    assert!(!Outcome::Rejected { message: "a".to_owned() }.is_like(&Outcome::Rejected { message: "b".to_owned() }));
}

fn folder() -> (TempDir, Capsules) {
    let folder = tempfile::tempdir().expect("a folder");
    let capsules = Capsules::open(folder.path().join("capsules"));
    (folder, capsules)
}

fn wants(capsules: &Capsules, capsule: &Capsule) -> Wanted {
    capsules.wants(&capsule.place.subtask.operator, capsule.identity(), 2)
}

#[test]
fn the_oldest_capsules_are_kept_and_the_same_failure_once() {
    let (folder, capsules) = folder();
    let [first, second, third] = ["a", "b", "c"].map(sample);
    assert_eq!(wants(&capsules, &first), Wanted::Yes);
    let path = capsules.keep(&first).expect("written").expect("there is room");
    assert!(path.ends_with("capsules/picky-1-7-1.capsule"), "{}", path.display());
    assert_eq!(wants(&capsules, &first), Wanted::Kept(path.clone()));
    capsules.keep(&second).expect("written").expect("there is room");
    assert_eq!(wants(&capsules, &third), Wanted::Full);
    assert_eq!(capsules.wants(&name("other"), third.identity(), 2), Wanted::Yes, "each operator has its own");
    // The next run finds them, and removes what was never finished.
    let unfinished = folder.path().join("capsules/picky-1-7-3.capsule.tmp");
    std::fs::write(&unfinished, b"half").expect("written");
    let capsules = Capsules::open(folder.path().join("capsules"));
    assert_eq!(wants(&capsules, &first), Wanted::Kept(path.clone()));
    assert_eq!(wants(&capsules, &third), Wanted::Full);
    assert!(!unfinished.exists());
    // Whoever removes one makes room.
    std::fs::remove_file(&path).expect("removed");
    let capsules = Capsules::open(folder.path().join("capsules"));
    assert_eq!(wants(&capsules, &third), Wanted::Yes);
    assert_eq!(Capsule::read(&folder.path().join("capsules/picky-1-7-2.capsule")).expect("a capsule"), second);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("capsules"), b"a file").expect("written");
    let capsules = Capsules::open(folder.path().join("capsules"));
    let error = capsules.keep(&sample("a")).expect_err("it is a file");
    assert!(error.to_string().contains("capsules"), "{error}");
}

/// A crate of the operator that the sample is of.
fn crate_with(library: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("src")).expect("a folder");
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"picky\"\n").expect("written");
    std::fs::write(folder.path().join("src/lib.rs"), library).expect("written");
    folder
}

#[test]
fn a_test_has_the_record_and_what_was_read() {
    let folder = crate_with("lockgate::export!(ops::Picky);\n");
    let path = write_test(&sample("x\"\u{1}"), folder.path(), None).expect("written");
    let text = std::fs::read_to_string(&path).expect("it is there");
    for line in [
        "use picky::ops::Picky;",
        "        config: \"{\\\"a\\\":\\\"\\\\\\\"\\\\\\\\n\\\"}\".to_owned(),",
        "        .with_state(b\"state\")",
        "        .with_entry(\"counts\", b\"k\", b\"\", b\"\\x02\")",
        "        value: Some(b\"x\\\"\\x01\".to_vec()),",
        "        timestamp: Some(5),",
        "        headers: vec![(\"trace\".to_owned(), None)],",
        "    let mut harness = Harness::<Picky>::restore_at(place, &[&state]).expect(\"the state of the failure\");",
    ] {
        assert!(text.contains(line), "no line '{line}' in\n{text}");
    }
    let again = write_test(&sample("x\"\u{1}"), folder.path(), None).expect_err("it is there already");
    assert!(matches!(again, ReplayError::File { .. }), "{again}");
}

#[test]
fn a_test_is_only_written_into_the_crate_of_the_operator() {
    let none = crate_with("// nothing");
    let problem = write_test(&sample("x"), none.path(), None).expect_err("it exports nothing").to_string();
    assert!(problem.contains("export!"), "{problem}");
    let two = crate_with("lockgate::export!(A);\nlockgate::export!(B);\n");
    let problem = write_test(&sample("x"), two.path(), None).expect_err("which?").to_string();
    assert!(problem.contains("A, B") && problem.contains("--type"), "{problem}");
    write_test(&sample("x"), two.path(), Some("B")).expect("that one");
    write_test(&sample("x"), two.path(), Some("B; fn f() {}")).expect_err("no path");
    let mut other = sample("x");
    other.component.name = "else".to_owned();
    let problem = write_test(&other, two.path(), Some("A")).expect_err("another crate").to_string();
    assert!(problem.contains("'picky'") && problem.contains("'else'"), "{problem}");
}
