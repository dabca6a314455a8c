//! Names of splits: paths below the source's folder, as text, whatever bytes they have. Pure.
//!
//! Invariant: two files never have the same split name, and a decoded name stays below the folder.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The path as it is, but with `%` and each byte that is not part of UTF-8 as `%XX`.
pub fn encode(path: &Path) -> String {
    let mut name = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        name.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            write!(name, "%{byte:02X}").expect("text can be written to a String");
        }
    }
    name
}

/// The inverse of [`encode`]; nothing for a name that it never makes.
pub fn decode(name: &str) -> Option<PathBuf> {
    let mut parts = name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    let stays_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    (stays_below && !name.is_empty()).then_some(path)
}

/// Whether a name of a file is one that is passed over.
pub fn is_hidden(name: &std::ffi::OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") || name.ends_with(b"~") || name.ends_with(b".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_name_of_its_own_and_comes_back_from_it() {
        let paths: [&[u8]; 8] =
            [b"a.txt", b"a/b c.txt", b"100%", b"%41", b"\xff\xfe", b"caf\xc3\xa9", b"caf\xe9/x", b"line\nend"];
        let mut names = Vec::new();
        for bytes in paths {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let name = encode(&path);
            assert_eq!(decode(&name), Some(path), "{name}");
            names.push(name);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), paths.len());
        assert_eq!(encode(Path::new("caf\u{e9} 1.txt")), "caf\u{e9} 1.txt");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", "/etc/passwd", "../x", "a/../../x", "%2", "%zz", "%2E%2E/x", "%2Fetc", "%+1"] {
            assert_eq!(decode(name), None, "{name}");
        }
    }
}
