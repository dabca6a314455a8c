//! `examples/quickstart.sh`, as a user runs it: once, again, and with more input.

use std::path::Path;
use std::process::Command;

use lockgate_tests::{JobFolder, repository, target_dir};

/// Runs it over the text in `input`, from a folder that isn't the checkout; gives what it printed.
fn quickstart(folder: &JobFolder) -> String {
    let output = Command::new(repository().join("examples/quickstart.sh"))
        .arg("input")
        .current_dir(folder.path(""))
        .env("CARGO_TARGET_DIR", target_dir())
        .env("LOCKGATE_QUICKSTART_DIR", folder.path("made here"))
        .output()
        .expect("bash starts");
    let (printed, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{messages}");
    printed.into_owned()
}

/// The lines of the table of words.
fn frequent(printed: &str) -> Vec<(u64, String)> {
    let table = printed.lines().skip_while(|line| !line.contains("most frequent words")).skip(1);
    let row = |line: &str| {
        let (count, word) = line.trim().split_once("  ")?;
        Some((count.parse().ok()?, word.to_owned()))
    };
    table.map_while(row).collect()
}

#[test]
fn the_quickstart_counts_then_finds_nothing_new_then_goes_on() {
    let folder = JobFolder::new();
    folder.write("input/a.txt", "The lock, the gate, the LOCK.\n");
    let first = quickstart(&folder);
    let row = |count: u64, word: &str| (count, word.to_owned());
    assert_eq!(frequent(&first), [row(3, "the"), row(2, "lock"), row(1, "gate")], "{first}");
    assert!(first.contains("6 words counted"), "{first}");

    let second = quickstart(&folder);
    assert!(second.contains("Nothing new"), "{second}");
    assert_eq!(frequent(&second), frequent(&first));

    folder.write("input/b.txt", "gate gate gate\n");
    let third = quickstart(&folder);
    assert!(third.contains("3 words counted"), "{third}");
    assert_eq!(frequent(&third), [row(4, "gate"), row(3, "the"), row(2, "lock")], "{third}");
}

#[test]
fn a_path_that_is_not_there_is_refused() {
    let output = Command::new(repository().join("examples/quickstart.sh"))
        .arg(Path::new("/nowhere/at all"))
        .output()
        .expect("bash starts");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("/nowhere/at all") && messages.contains("help: "), "{messages}");
}
