//! Manifests to bytes and back.
//!
//! Invariant: a [`Manifest`] that `decode` gives is whole, of a version this host knows, and holds only paths, checksums and
//! ranges that are safe to use as they are.

use serde::Deserialize;

use super::error::StoreError;
use super::layout;
use super::manifest::{FileRef, KeyedSnapshot, MANIFEST_VERSION, Manifest};
use super::sealed::{Damage, seal, unseal};
use crate::protocol::MaxParallelism;

/// Why bytes aren't a manifest that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error(transparent)]
    Damaged(#[from] Damage),
    #[error("its format version is {found}, and this host reads 1 to {MANIFEST_VERSION}")]
    TooNew { found: u32 },
}

impl Manifest {
    /// The bytes of the manifest's file.
    pub fn encode(&self) -> Vec<u8> {
        seal(self)
    }

    /// Reads the bytes of a manifest's file.
    ///
    /// # Errors
    /// [`ManifestError`] if they aren't exactly what a host wrote, or were written by a newer one.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let json = unseal(bytes)?;
        let Version { version } = parse(json)?;
        if version > MANIFEST_VERSION {
            return Err(ManifestError::TooNew { found: version });
        }
        let manifest: Manifest = parse(json)?;
        manifest.check().map_err(|problem| Damage::Content { problem })?;
        Ok(manifest)
    }

    /// What serde can't see: the hash says that a host wrote it, not that this host can rely on it.
    fn check(&self) -> Result<(), String> {
        if self.version == 0 || self.epoch.0 == 0 {
            return Err("version and epoch are counted from 1".to_owned());
        }
        for (what, number) in [("epoch", self.epoch.0), ("attempt", self.attempt.0)] {
            if number > layout::NUMBER_MAX {
                return Err(format!("{number} as its {what}, and no host comes so far"));
            }
        }
        if MaxParallelism::new(self.max_parallelism.key_groups()).is_none() {
            return Err(format!("{} key groups", self.max_parallelism.key_groups()));
        }
        for (name, operator) in &self.operators {
            for (index, subtask) in operator.subtasks.iter().enumerate() {
                let keyed = subtask.keyed.iter().try_for_each(|keyed| self.check_keyed(keyed));
                keyed.map_err(|problem| format!("{name}[{index}]: {problem}"))?;
            }
            if let Some(component) = operator.component.as_ref().filter(|component| !is_hex(component, 64)) {
                return Err(format!("{name}: '{component}' as the hash of a component"));
            }
        }
        self.files().try_for_each(check_file)
    }

    fn check_keyed(&self, keyed: &KeyedSnapshot) -> Result<(), String> {
        let (first, last) = (keyed.key_groups.first.0, keyed.key_groups.last.0);
        if first > last || u32::from(last) >= self.max_parallelism.key_groups() {
            return Err(format!("key groups {first} to {last} of {}", self.max_parallelism.key_groups()));
        }
        match keyed.base.keys().find(|name| !layout::is_file_name(name)) {
            Some(name) => Err(format!("'{name}' as a file of the state's folder")),
            None => Ok(()),
        }
    }
}

fn check_file(file: &FileRef) -> Result<(), String> {
    layout::check(&file.path).map_err(|error| error.to_string())?;
    if is_hex(&file.xxh3, 16) { Ok(()) } else { Err(format!("'{}' as the checksum of {}", file.xxh3, file.path)) }
}

/// Whether a text is so many hexadecimal digits.
fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

/// What is read of a manifest before anything else, in every version.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

fn parse<'json, T: Deserialize<'json>>(json: &'json [u8]) -> Result<T, Damage> {
    serde_json::from_slice(json).map_err(|error| Damage::Content { problem: error.to_string() })
}

impl ManifestError {
    pub(super) fn at(self, path: &std::path::Path) -> StoreError {
        let (what, path) = ("the manifest", path.to_owned());
        match self {
            ManifestError::Damaged(source) => StoreError::Damaged { what, path, source },
            ManifestError::TooNew { found } => StoreError::TooNew { what, path, found, known: MANIFEST_VERSION },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;
    use crate::store::sample;

    #[test]
    fn a_manifest_comes_back_as_it_was() {
        let manifest = sample::manifest(Epoch(7));
        assert_eq!(Manifest::decode(&manifest.encode()).expect("its own bytes"), manifest);
    }

    /// Every version must be readable for ever: these files are never written again.
    #[test]
    fn older_formats_are_still_read() {
        let bytes = include_bytes!("fixtures/manifest-v1.json");
        let manifest = Manifest::decode(bytes).expect("the fixture");
        assert_eq!(manifest, Manifest { version: 1, ..sample::manifest(Epoch(7)) });
        let bytes = include_bytes!("fixtures/manifest-v2.json");
        let manifest = Manifest::decode(bytes).expect("the fixture");
        assert_eq!(manifest, Manifest { version: 2, ..sample::manifest_in_flight(Epoch(7)) });
        let bytes = include_bytes!("fixtures/manifest-v3.json");
        let manifest = Manifest::decode(bytes).expect("the fixture");
        assert_eq!(manifest, Manifest { version: 3, ..sample::manifest_decided_elsewhere(Epoch(7)) });
        let bytes = include_bytes!("fixtures/manifest-v4.json");
        let manifest = Manifest::decode(bytes).expect("the fixture");
        assert_eq!(manifest, sample::manifest_of_component(Epoch(7)));
        assert_eq!(manifest.encode(), bytes, "what is written today is still version 4");
    }

    #[test]
    fn a_manifest_cut_off_at_any_byte_is_refused() {
        let bytes = sample::manifest(Epoch(7)).encode();
        for length in 0..bytes.len() {
            let error = Manifest::decode(&bytes[..length]).expect_err("cut off");
            assert!(matches!(error, ManifestError::Damaged(_)), "{length}: {error}");
        }
    }

    #[test]
    fn a_manifest_with_any_bit_flipped_is_refused() {
        let mut bytes = sample::manifest(Epoch(7)).encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                let error = Manifest::decode(&bytes).expect_err("a flipped bit");
                assert!(matches!(error, ManifestError::Damaged(_)), "byte {at}, bit {bit}: {error}");
                bytes[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn trailing_bytes_are_refused() {
        for extra in ["\n", " ", "\0", "{}"] {
            let mut bytes = sample::manifest(Epoch(7)).encode();
            bytes.extend_from_slice(extra.as_bytes());
            assert!(Manifest::decode(&bytes).is_err(), "{extra:?}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_its_number_even_if_the_rest_is_unknown() {
        let bytes = seal(&serde_json::json!({ "version": 5, "shape": "another" }));
        let error = Manifest::decode(&bytes).expect_err("a version of tomorrow");
        assert_eq!(error.to_string(), "its format version is 5, and this host reads 1 to 4");
    }

    #[test]
    fn an_intact_manifest_that_lies_is_refused() {
        let broken = |change: fn(&mut serde_json::Value)| {
            let mut json = serde_json::to_value(sample::manifest(Epoch(7))).expect("JSON");
            change(&mut json);
            Manifest::decode(&seal(&json)).expect_err("a lie").to_string()
        };
        let cases: [fn(&mut serde_json::Value); 16] = [
            |m| m["epoch"] = 0.into(),
            |m| m["epoch"] = u64::MAX.into(),
            |m| m["attempt"] = u64::MAX.into(),
            |m| m["version"] = 0.into(),
            |m| m["max_parallelism"] = 0.into(),
            |m| m["max_parallelism"] = 40_000.into(),
            |m| m["job"] = "../other".into(),
            |m| m["more"] = 1.into(),
            |m| m["operators"]["count"]["subtasks"][0]["more"] = 1.into(),
            |m| m["operators"]["count"]["component"] = "../plugins/x".into(),
            |m| m["operators"]["count"]["subtasks"][0]["keyed"]["deltas"][0]["path"] = "/etc/passwd".into(),
            |m| {
                m["operators"]["count"]["subtasks"][0]["keyed"]["deltas"][0]["path"] =
                    "files/count/0/../../../1-x".into()
            },
            |m| m["operators"]["count"]["subtasks"][0]["keyed"]["deltas"][0]["xxh3"] = "ABCDEF0123456789".into(),
            |m| {
                m["operators"]["count"]["subtasks"][0]["keyed"]["base"]["../CURRENT"] =
                    m["operators"]["count"]["subtasks"][0]["keyed"]["deltas"][0].clone()
            },
            |m| m["operators"]["count"]["subtasks"][0]["keyed"]["key_groups"]["last"] = 128.into(),
            |m| {
                let file = m["operators"]["count"]["subtasks"][0]["keyed"]["deltas"][0].clone();
                let outside = serde_json::json!({ "path": "../x", "size_bytes": 1, "xxh3": file["xxh3"] });
                m["operators"]["out"]["subtasks"][0]["in_flight"] = serde_json::json!({ "edges": [], "file": outside });
            },
        ];
        for change in cases {
            let error = broken(change);
            assert!(error.starts_with("it is intact but says what no host writes"), "{error}");
        }
    }
}
