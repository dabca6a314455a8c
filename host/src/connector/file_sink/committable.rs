//! What a checkpoint keeps of a sink subtask's prepared output. Pure.
//!
//! As JSON: `{"version":1,"epoch":7,"attempt":2,"subtask":0,"folder":"/data/out","extension":"txt","files":[{"number":3,
//! "size_bytes":10,"xxh3":"0123456789abcdef"}]}`. File `i` of the list is staged under its number and becomes the `i`-th part of
//! the epoch. `folder` is where the output was when it was prepared; it may have been moved since, so it only serves to say so.
//!
//! Invariant: a committable that was read names nothing outside the output folder, whoever wrote it.

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, Epoch};

const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Committable {
    version: u32,
    pub epoch: Epoch,
    /// Whose staging folder the files are in.
    pub attempt: Attempt,
    pub subtask: u32,
    /// For people: never opened.
    pub folder: String,
    pub extension: String,
    pub files: Vec<StagedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedFile {
    pub number: u64,
    pub size_bytes: u64,
    /// XXH3-64 of the content, 16 hexadecimal digits.
    pub xxh3: String,
}

/// Where output goes, and how its files are named.
#[derive(Clone, Debug)]
pub struct Place {
    pub folder: String,
    pub extension: String,
}

impl Committable {
    pub fn new(epoch: Epoch, attempt: Attempt, subtask: u32, place: Place, files: Vec<StagedFile>) -> Committable {
        let Place { folder, extension } = place;
        Committable { version: VERSION, epoch, attempt, subtask, folder, extension, files }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and names are JSON")
    }

    /// Reads what a manifest holds for `epoch`; says what is wrong with it.
    pub fn read(bytes: &[u8], epoch: Epoch) -> Result<Committable, String> {
        let read: Committable = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if read.version != VERSION {
            return Err(format!("its version is {} and this host reads {VERSION}", read.version));
        }
        if read.epoch != epoch {
            return Err(format!("it is of epoch {}", read.epoch));
        }
        if !is_extension(&read.extension) {
            return Err(format!("its extension {:?} is no file name's", read.extension));
        }
        Ok(read)
    }
}

/// Whether a text can end a file name: 1 to 16 ASCII letters and digits, single dots between them.
pub fn is_extension(text: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 16 && text.split('.').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_committable_reads_back_and_a_tampered_one_is_refused() {
        let file = StagedFile { number: 3, size_bytes: 10, xxh3: "00".to_owned() };
        let place = Place { folder: "/out".to_owned(), extension: "txt".to_owned() };
        let good = Committable::new(Epoch(7), Attempt(2), 1, place, vec![file]);
        let text = String::from_utf8(good.to_bytes()).expect("JSON");
        assert_eq!(Committable::read(text.as_bytes(), Epoch(7)), Ok(good));
        for (from, to) in [
            ("\"txt\"", "\"../../etc/passwd\""),
            ("\"txt\"", "\"/x\""),
            ("\"txt\"", "\"\""),
            ("\"txt\"", "\".txt\""),
            ("\"txt\"", "\"a..b\""),
            ("\"txt\"", "\"a\\u0000\""),
            ("\"number\":3", "\"number\":-3"),
            ("\"number\":3", "\"number\":\"../3\""),
            ("\"attempt\":2", "\"attempt\":\"../2\""),
            ("\"epoch\":7", "\"epoch\":8"),
            ("\"version\":1", "\"version\":2"),
            ("\"subtask\":1", "\"subtask\":1,\"more\":1"),
            ("}]}", "}]"),
        ] {
            let tampered = text.replacen(from, to, 1);
            assert_ne!(tampered, text);
            assert!(Committable::read(tampered.as_bytes(), Epoch(7)).is_err(), "{tampered}");
        }
    }
}
