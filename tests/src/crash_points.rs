//! The names of all crash points in the host's source.

use std::fs;
use std::path::Path;

use crate::binary::repository;

const CALL: &str = "crash::point(\"";

/// Every name given to `crash::point` in `host/src`, sorted.
///
/// # Panics
/// If the source can't be read, or a call's name isn't a literal on the same line (it would be missed).
pub fn crash_points() -> Vec<String> {
    let mut names = Vec::new();
    collect(&repository().join("host/src"), &mut names);
    names.sort();
    names.dedup();
    names
}

/// Those of [`crash_points`] that a job without Kafka comes by, of which nothing is asked while it runs.
///
/// # Panics
/// As [`crash_points`].
pub fn crash_points_without_kafka() -> Vec<String> {
    crash_points()
        .into_iter()
        .filter(|point| !is_of_kafka(point) && !is_of_daemon(point) && !is_of_upgrades(point))
        .collect()
}

/// Those of [`crash_points`] that only a daemon comes by, when it is asked for something.
///
/// # Panics
/// As [`crash_points`].
pub fn daemon_crash_points() -> Vec<String> {
    crash_points().into_iter().filter(|point| is_of_daemon(point)).collect()
}

fn is_of_daemon(point: &str) -> bool {
    ["serve.", "store.keep.", "store.release."].iter().any(|room| point.starts_with(room))
}

/// Those of [`crash_points`] that only an upgrade comes by.
///
/// # Panics
/// As [`crash_points`].
pub fn crash_points_of_upgrades() -> Vec<String> {
    crash_points().into_iter().filter(|point| is_of_upgrades(point)).collect()
}

fn is_of_upgrades(point: &str) -> bool {
    point.starts_with("upgrade.")
}

/// Where no sink decides, there is nothing to decide, to note and to withdraw.
fn is_of_kafka(point: &str) -> bool {
    let rooms = ["kafka.", "store.note-decided.", "store.withdraw.", "runtime.decided"];
    rooms.iter().any(|room| point.starts_with(room))
}

fn collect(folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the source is there") {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("source is text");
            collect_from(&source, &path, names);
        }
    }
}

fn collect_from(source: &str, path: &Path, names: &mut Vec<String>) {
    for line in source.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        let calls = line.matches("crash::point(").count();
        let literals = line.split(CALL).skip(1).filter_map(|rest| rest.split('"').next());
        let found = literals.map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found.len(), calls, "{}: a crash point's name must be a literal: {line}", path.display());
        names.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_code_and_not_in_comments() {
        let mut names = Vec::new();
        let source =
            "  crash::point(\"a.before\"); // x\n/// crash::point(\"not.this\")\ncrate::crash::point(\"a.after\");";
        collect_from(source, Path::new("x.rs"), &mut names);
        assert_eq!(names, ["a.before", "a.after"]);
    }
}
