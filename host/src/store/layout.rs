//! Where things are in a job's folder of the store.
//!
//! ```text
//! <store>/<job>/job.json                                        whose folder it is
//! <store>/<job>/lock                                            held while the job runs
//! <store>/<job>/<slot>/attempts/<attempt, 20 digits>.json       claimed attempts
//! <store>/<job>/<slot>/manifests/<epoch, 20 digits>.json        published checkpoints
//! <store>/<job>/<slot>/decided/<epoch, 20 digits>.json          the newest checkpoint that a sink is known to have decided
//! <store>/<job>/<slot>/kept/<epoch, 20 digits>.json             the checkpoint of that manifest is a savepoint: a user's to delete
//! <store>/<job>/<slot>/retention.lock                           held while something is kept, released or removed
//! <store>/<job>/<slot>/files/<operator>/<subtask>/<attempt>-<name>
//! ```
//!
//! `<name>#<digits>` beside any of them is a write that hasn't finished, or never will.
//! Invariant: a path that came from a manifest or a caller leads to a place below the slot's `files`, or is refused.

use object_store::path::Path as ObjectPath;

use super::error::StoreError;
use crate::id::{Attempt, Epoch, SubtaskId};

/// The longest name of an uploaded file; with the attempt before it, it fits every file system.
const FILE_NAME_BYTES_MAX: usize = 200;

pub(super) fn job_json() -> ObjectPath {
    ObjectPath::from("job.json")
}

pub(super) fn attempts(slot: u32) -> ObjectPath {
    ObjectPath::from(format!("{slot}/attempts"))
}

pub(super) fn attempt(slot: u32, attempt: Attempt) -> ObjectPath {
    ObjectPath::from(format!("{slot}/attempts/{attempt:020}", attempt = attempt.0) + ".json")
}

pub(super) fn manifests(slot: u32) -> ObjectPath {
    ObjectPath::from(format!("{slot}/manifests"))
}

pub(super) fn manifest(slot: u32, epoch: Epoch) -> ObjectPath {
    ObjectPath::from(format!("{slot}/manifests/{epoch:020}", epoch = epoch.0) + ".json")
}

pub(super) fn decisions(slot: u32) -> ObjectPath {
    ObjectPath::from(format!("{slot}/decided"))
}

pub(super) fn decision(slot: u32, epoch: Epoch) -> ObjectPath {
    ObjectPath::from(format!("{slot}/decided/{epoch:020}", epoch = epoch.0) + ".json")
}

pub(super) fn kept_marks(slot: u32) -> ObjectPath {
    ObjectPath::from(format!("{slot}/kept"))
}

pub(super) fn kept_mark(slot: u32, epoch: Epoch) -> ObjectPath {
    ObjectPath::from(format!("{slot}/kept/{epoch:020}", epoch = epoch.0) + ".json")
}

pub(super) fn retention_lock(slot: u32) -> ObjectPath {
    ObjectPath::from(format!("{slot}/retention.lock"))
}

pub(super) fn files(slot: u32) -> ObjectPath {
    ObjectPath::from(format!("{slot}/files"))
}

/// No host comes to greater attempts and epochs; so there is always a next one.
pub(super) const NUMBER_MAX: u64 = i64::MAX as u64;

/// The number in the name of an attempt, manifest, decision or mark. `None` if the name isn't one that a host writes.
pub(super) fn numbered(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    let number = digits.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
    (format!("{number:020}") == digits).then_some(number)
}

/// Which attempt wrote an uploaded file. `None` if the name isn't one that a host writes.
pub(super) fn writer(name: &str) -> Option<Attempt> {
    let (digits, _) = name.split_once('-')?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(Attempt(number))
}

/// Parts a name into that of the file and the `#<digits>` of a write that hasn't finished.
pub(super) fn unfinished(name: &str) -> Option<&str> {
    let (of, mark) = name.rsplit_once('#')?;
    (!mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_digit())).then_some(of)
}

/// The path of a new file, relative to the slot, as manifests have it.
///
/// # Errors
/// [`StoreError::UnsafePath`] if `name` isn't 1 to 200 letters, digits, `.`, `_` or `-`.
pub(super) fn new_file(attempt: Attempt, subtask: &SubtaskId, name: &str) -> Result<String, StoreError> {
    let SubtaskId { operator, index } = subtask;
    let path = format!("files/{operator}/{index}/{attempt}-{name}");
    check(&path)?;
    Ok(path)
}

/// Where a file that a manifest names is in the job's folder.
///
/// # Errors
/// [`StoreError::UnsafePath`].
pub(super) fn file(slot: u32, path: &str) -> Result<ObjectPath, StoreError> {
    check(path)?;
    Ok(ObjectPath::from(format!("{slot}/{path}")))
}

/// Refuses every path that [`new_file`] doesn't give.
///
/// # Errors
/// [`StoreError::UnsafePath`].
pub(super) fn check(path: &str) -> Result<(), StoreError> {
    let refused = |problem| Err(StoreError::UnsafePath { path: path.chars().take(200).collect(), problem });
    let segments: Vec<&str> = path.split('/').collect();
    let ["files", _, _, name] = segments[..] else {
        return refused("it isn't files/<operator>/<subtask>/<attempt>-<name>");
    };
    if !segments.iter().all(|segment| is_file_name(segment)) {
        return refused(
            "a part of it is empty, too long, starts with a dot, or has other characters than letters, digits, '.', '_', '-'",
        );
    }
    match name.split_once('-') {
        Some((_, rest)) if is_file_name(rest) && writer(name).is_some() => Ok(()),
        Some(_) | None => refused("its name isn't the number of an attempt, '-' and a name"),
    }
}

/// Whether a name is safe as one segment of a path.
pub(super) fn is_file_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=FILE_NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Name;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "files",
            "files/count/0",
            "files/count/0/",
            "files//0/1-a",
            "/files/count/0/1-a",
            "files/count/0/1-a/",
            "files/../0/1-a",
            "files/count/../1-a",
            "files/count/0/..",
            "files/count/0/../../../../../etc/passwd",
            "files/count/0/1-../../x",
            "files/./0/1-a",
            "manifests/count/0/1-a",
            "files/count/0/1-a\0",
            "files/count/0/1-a#1",
            "files/count/0/1-a%2f..",
            "files\\count\\0\\1-a",
            "files/count/0/no-attempt",
            "files/count/0/01-a",
            "files/count/0/+1-a",
            "files/count/0/.1-a",
            "files/count/0/1-ä",
        ] {
            assert!(matches!(file(0, path), Err(StoreError::UnsafePath { .. })), "{path:?}");
        }
        assert!(check(&format!("files/count/0/1-{}", "a".repeat(300))).is_err());
    }

    #[test]
    fn a_new_file_is_one_that_can_be_read_again() {
        let subtask = SubtaskId { operator: Name::new("count").expect("a name"), index: 3 };
        let path = new_file(Attempt(12), &subtask, "delta-7.seg").expect("a path");
        assert_eq!(path, "files/count/3/12-delta-7.seg");
        assert_eq!(file(5, &path).expect("a path").as_ref(), "5/files/count/3/12-delta-7.seg");
        assert_eq!(writer("12-delta-7.seg"), Some(Attempt(12)));
        for name in ["", "a/b", "..", ".a", "a#1", "a b", &"a".repeat(201)] {
            assert!(new_file(Attempt(12), &subtask, name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn only_names_that_a_host_writes_count() {
        assert_eq!(numbered("00000000000000000007.json"), Some(7));
        let of_manifest = |epoch| numbered(manifest(0, Epoch(epoch)).filename().expect("a name"));
        assert_eq!((of_manifest(NUMBER_MAX), of_manifest(NUMBER_MAX + 1)), (Some(NUMBER_MAX), None));
        for name in [
            "7.json",
            "00000000000000000007",
            "00000000000000000007.json#1",
            "+0000000000000000007.json",
            "99999999999999999999.json",
        ] {
            assert_eq!(numbered(name), None, "{name}");
        }
        assert_eq!(unfinished("3-a#12"), Some("3-a"));
        assert_eq!(unfinished("3-a"), None);
        assert_eq!(unfinished("3-a#"), None);
        assert_eq!(unfinished("3-a#x"), None);
    }
}
