//! The repository keeps its own rules: rooms depend in one direction, files stay short, nothing unfinished is left.

use std::fs;
use std::path::{Path, PathBuf};

use lockgate_tests::repository;

/// The rooms of `host/src`, in rows: a room uses only rooms of its own row or above.
const ROOMS: &[&[&str]] = &[
    &["id", "element", "units", "crash"],
    &["protocol"],
    &["graph"],
    &["telemetry"],
    &["channel", "connector"],
    &["store"],
    &["state"],
    &["guest"],
    &["task"],
    &["runtime"],
    &["config"],
    &["cli"],
];
/// Rooms that decide, and do nothing else.
const PURE: &[&str] = &["protocol", "graph"];
/// What a decision must not know: files, clocks, threads, randomness, async, guests, and maps without an order.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::thread",
    "std::env",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "hashbrown",
    "tokio",
    "async ",
    "wasmtime",
    "rand::",
];
const LINES_MAX: usize = 500;
/// Split, so that this file has none of them.
const UNFINISHED: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!("), concat!("#[", "ignore")];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display())) {
        let path = entry.expect("a folder can be listed").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn room_row(room: &str) -> Option<usize> {
    ROOMS.iter().position(|row| row.contains(&room))
}

#[test]
fn rooms_use_only_rooms_above_them() {
    let host = repository().join("host/src");
    let mut wrong = Vec::new();
    for path in sources(&host) {
        let relative = path.strip_prefix(&host).expect("it was found there");
        let room = relative.components().next().expect("a file has a name").as_os_str().to_string_lossy();
        let room = room.trim_end_matches(".rs");
        if room == "lib" || room == "main" {
            continue;
        }
        let row = room_row(room).unwrap_or_else(|| panic!("the room '{room}' has no place in ROOMS"));
        let source = fs::read_to_string(&path).expect("source is text");
        for (number, line) in source.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for used in line.split("crate::").skip(1) {
                let used = used.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
                if room_row(used).is_some_and(|used| used > row) {
                    wrong.push(format!("{}:{}: '{room}' uses '{used}', which is below it", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_rooms_know_nothing_of_the_world() {
    let mut wrong = Vec::new();
    for path in PURE.iter().flat_map(|room| sources(&repository().join("host/src").join(room))) {
        let source = fs::read_to_string(&path).expect("source is text");
        for (number, line) in source.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in IMPURE.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{}: '{word}' in a pure room", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_short_and_finished() {
    let mut wrong = Vec::new();
    for path in sources(repository()) {
        let source = fs::read_to_string(&path).expect("source is text");
        let lines = source.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{} has {lines} lines; {LINES_MAX} is the most", path.display()));
        }
        if !source.starts_with("//! ") {
            wrong.push(format!("{} doesn't start with its one-sentence header (//!)", path.display()));
        }
        for mark in UNFINISHED.iter().filter(|mark| source.contains(**mark)) {
            wrong.push(format!("{} has '{mark}'", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
