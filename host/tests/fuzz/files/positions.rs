//! Positions of splits that a checkpoint has: a source goes on from there or refuses them, and reads no further than its end.

use std::sync::OnceLock;

use lockgate_host::connector::{
    ConnectorError, EventTimeOptions, Polled, SourceOptions, SourceReader, SplitState, open_source,
};
use serde_json::json;
use tempfile::TempDir;

use crate::chance::Chance;
use crate::damage::{damaged_json, damaged_text};
use crate::files::context;
use crate::harness::Target;
use crate::text;

const POSITIONS: Target = Target {
    name: "positions",
    seeds: 1_000,
    bytes_max: 256,
    memory_bytes_max: 16 << 20,
    outcomes: &["read-on", "refused"],
    case,
};

#[test]
fn a_source_goes_on_from_any_position_or_refuses_it() {
    POSITIONS.run();
}

/// Batches that are read of each source.
const POLLS: usize = 3;

/// A folder with a file to read.
fn folder() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("in")).expect("a folder");
        std::fs::write(folder.path().join("in/a.txt"), "one\ntwo\nthree").expect("written");
        std::fs::write(folder.path().join("secret"), "not to be read\n").expect("written");
        folder
    })
}

fn sources() -> [SourceOptions; 3] {
    let options = |json| serde_json::from_value(json).expect("options");
    [
        options(json!({ "type": "file", "path": folder().path().join("in") })),
        options(json!({ "type": "generator", "kind": "sequence", "splits": 2 })),
        options(json!({ "type": "nexmark", "splits": 2 })),
    ]
}

fn open(options: &SourceOptions, subtask: u32, parallelism: u32) -> Result<Box<dyn SourceReader>, ConnectorError> {
    open_source(options, &EventTimeOptions::default(), &context("in", parallelism), subtask)
}

/// Positions after some reading.
fn good(options: &SourceOptions, polls: usize) -> Vec<SplitState> {
    let mut reader = open(options, 0, 1).expect("it opens");
    (0..polls).for_each(|_| drop(reader.poll().expect("it reads")));
    reader.snapshot()
}

fn damaged(chance: &mut Chance<'_, '_>, mut splits: Vec<SplitState>) -> Vec<SplitState> {
    for _ in 0..chance.below(3) {
        let place = chance.below(splits.len() + 1);
        match splits.get_mut(place) {
            Some(state) if chance.one_in(4) => {
                state.split =
                    damaged_text(chance, &state.split, &["../secret", "/", "%", "%2F", "0/2", "1/2", "\u{1b}"]);
            }
            Some(state) if chance.one_in(2) && state.position.get("next").is_some() => {
                state.position["next"] = chance.long().into();
            }
            Some(state) => state.position = damaged_json(chance, &state.position),
            None => splits.push(SplitState { split: "../secret".to_owned(), position: json!("0 0 open") }),
        }
    }
    splits
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let sources = sources();
    let options = chance.pick(&sources);
    let splits = good(options, chance.below(3));
    let splits = damaged(chance, splits);
    chance.tell(|| format!("{splits:?}"));
    // Of two subtasks each has one split of those that are numbered.
    let parallelism = chance.between(1, 2) as u32;
    let subtask = chance.below(parallelism as usize) as u32;
    let mut reader = open(options, subtask, parallelism).map_err(|error| error.to_string())?;
    let refused = |error: ConnectorError| {
        text::check(&error.to_string())?;
        text::check(&error.help())?;
        Ok("refused")
    };
    if let Err(error) = reader.restore(&splits) {
        return refused(error);
    }
    for _ in 0..POLLS {
        match reader.poll() {
            Ok(Polled::Batch { batch, .. }) => {
                batch.check().map_err(|malformed| malformed.to_string())?;
                if batch.iter().any(|row| row.value == Some(b"not to be read")) {
                    return Err("it has read a file that isn't its own".to_owned());
                }
            }
            Ok(Polled::Idle(_)) => {}
            Ok(Polled::Ended) => break,
            Err(error) => return refused(error),
        }
    }
    // What it says of itself is something that it can go on from.
    let mut again = open(options, subtask, parallelism).map_err(|error| error.to_string())?;
    match again.restore(&reader.snapshot()) {
        Ok(()) => Ok("read-on"),
        Err(error) => Err(format!("it refuses its own positions: {error}")),
    }
}
