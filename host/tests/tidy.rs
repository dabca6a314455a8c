//! Reads the repository and fails on what style alone doesn't keep: the direction of rooms, pure rooms, short files, headers.
//!
//! Invariant: every message names file and line, and says what the rule is.

use std::fs;
use std::path::{Path, PathBuf};

/// A room uses only rooms above it, and itself. Those of one line are as high as each other.
const ROOMS: [&[&str]; 16] = [
    &["crash", "id", "units"],
    &["element"],
    &["protocol"],
    &["graph"],
    &["telemetry"],
    &["channel", "connector"],
    &["store"],
    &["state"],
    &["guest"],
    &["replay"],
    &["task"],
    &["runtime"],
    &["config"],
    &["serve"],
    &["api"],
    &["cli"],
];

/// Rooms that know no file, clock, thread, chance or order of a hash map, so that every interleaving can be tried.
const PURE: [&str; 5] = ["protocol", "graph", "element", "id", "units"];
const IMPURE: [&str; 11] = [
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::thread",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "tokio",
    "async ",
];

/// Written in two parts, so that this file doesn't find itself.
const UNFINISHED: [(&str, &str); 5] =
    [("todo", "!("), ("unimplemented", "!("), ("dbg", "!("), ("#[ign", "ore"), ("TO", "DO")];
const NOT_ABOUT_THE_PRODUCT: [(&str, &str); 7] = [
    ("/work/", "wt"),
    ("/work/", "main"),
    ("/work/", "shared"),
    ("cla", "ude"),
    ("anth", "ropic"),
    ("chat", "gpt"),
    ("language ", "model"),
];
const LINES_MAX: usize = 500;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_folder = path.is_dir() && !path.is_symlink();
        if is_folder && !matches!(name, "target" | ".git") {
            files(&path, found);
        } else if matches!(path.extension().and_then(|end| end.to_str()), Some("rs" | "md" | "toml" | "sh" | "wit")) {
            found.push(path);
        }
    }
}

fn height(room: &str) -> Option<usize> {
    ROOMS.iter().position(|level| level.contains(&room))
}

/// The room of a file of the host; its library and binary roots belong to none.
fn room_of<'a>(root: &Path, path: &'a Path) -> Option<&'a str> {
    let inside = path.strip_prefix(root.join("host/src")).ok()?;
    let first = inside.iter().next()?.to_str()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(room, "lib" | "main")).then_some(room)
}

/// What is wrong with one line of code in a room.
fn wrong_in_room(room: &str, line: &str) -> Option<String> {
    let code = line.split("//").next().unwrap_or_default();
    for used in code.split("crate::").skip(1) {
        let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        match (height(room), height(used)) {
            (None, _) => return Some(format!("room '{room}' has no place in the order of rooms")),
            (Some(_), None) => return Some(format!("name rooms one by one: 'crate::{used}' is none")),
            (Some(here), Some(there)) if there < here || room == used => {}
            (Some(_), Some(_)) => return Some(format!("room '{room}' can't use '{used}', which isn't above it")),
        }
    }
    let impure = IMPURE.iter().find(|word| PURE.contains(&room) && code.contains(**word))?;
    Some(format!("'{room}' is pure and can't know '{impure}'"))
}

/// So many blanks within a text are the indent of a line of it that was meant to be left out.
const BLANKS: &str = "                ";

/// Whether a line of code has such blanks between two words of a text.
fn has_stray_blanks(line: &str) -> bool {
    let words = line.trim();
    let Some(place) = words.find(BLANKS) else { return false };
    let before = words[..place].replace("\\\"", "");
    before.matches('"').count() % 2 == 1 && !before.ends_with('"')
}

#[test]
fn blanks_within_a_text_are_told_from_those_before_and_behind_it() {
    let line = |parts: [&str; 3]| parts.join(BLANKS);
    assert!(has_stray_blanks(&line(["\"its offsets", "only: {error}\"", ""])));
    assert!(has_stray_blanks(&line(["say(\"a \\\"b\\\"", "c\")", ""])));
    for fine in
        [["", "\"one text\",", ""], ["x", "// behind", ""], ["\"", "an indent\"", ""], ["f(\"a\",", "\"b\")", ""]]
    {
        assert!(!has_stray_blanks(&line(fine)), "{fine:?}");
    }
}

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned();
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.sort();
    let mut wrong = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path).expect("UTF-8");
        let is_code = path.extension().is_some_and(|end| end == "rs");
        let mut report = |line: usize, what: String| wrong.push(format!("{}:{line}: {what}", path.display()));
        let length = text.lines().count();
        if is_code && length > LINES_MAX {
            report(length, format!("a file has at most {LINES_MAX} lines"));
        }
        if is_code && !text.starts_with("//! ") {
            report(1, "a file starts with its one-sentence header (//!)".to_owned());
        }
        for (number, line) in (1..).zip(text.lines()) {
            let lower = line.to_lowercase();
            if let Some((a, b)) = NOT_ABOUT_THE_PRODUCT.iter().find(|(a, b)| lower.contains(&format!("{a}{b}"))) {
                report(number, format!("'{a}{b}' is not about the product"));
            }
            if is_code && has_stray_blanks(line) {
                report(
                    number,
                    "blanks in the middle of a text: a line of it that goes on ends with a backslash".to_owned(),
                );
            }
            if let Some((a, b)) = UNFINISHED.iter().find(|(a, b)| is_code && line.contains(&format!("{a}{b}"))) {
                report(number, format!("'{a}{b}' is not finished work"));
            }
            if let Some(what) = room_of(&root, path).filter(|_| is_code).and_then(|room| wrong_in_room(room, line)) {
                report(number, what);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
