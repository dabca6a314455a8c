//! Capsules to bytes and back.
//!
//! ```text
//! 8 bytes     "LGCAPSUL"
//! 4 bytes     the version of the format
//! 16 bytes    the capsule's identity: which failure it is, so that one that is kept already is known without reading it all
//! 8 bytes     the length of what follows, but for the checksum
//! …           the capsule, in the encoding of `postcard`, its fields in the order of `capsule.rs`
//! 16 bytes    the XXH3-128 of all that is before
//! ```
//!
//! All numbers are little-endian. The frame is the same in all versions. A version adds fields at the end of the one before:
//!
//! - 1: all up to the effects
//! - 2: which random numbers the trial has had
//!
//! Invariant: bytes that differ in any way from what was written are refused.

use std::borrow::Cow;
use std::path::Path;

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::capsule::{Capsule, Identity};
use super::error::{BadCapsule, ReplayError};
use crate::guest::{COMPONENT_BYTES_MAX, READ_BYTES_MAX, hexadecimal};

/// The version that this host writes. It reads those before as well.
pub const CAPSULE_VERSION: u32 = 2;
/// How a field that version 1 lacks says that there is nothing.
const NOTHING_OF_VERSION_2: &[u8] = &[0];
const MAGIC: [u8; 8] = *b"LGCAPSUL";
/// Magic, version, identity, length.
pub const HEAD_BYTES: usize = 8 + 4 + 16 + 8;
const CHECKSUM_BYTES: usize = 16;
/// A component, what was read (once as answers, once as entries), and a state and a record, which are within a call's output.
const FILE_BYTES_MAX: u64 = COMPONENT_BYTES_MAX + 2 * READ_BYTES_MAX as u64 + (512 << 20);

impl Capsule {
    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("memory takes all of it");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&CAPSULE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.identity().0.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&xxh3_128(&bytes).to_le_bytes());
        bytes
    }

    /// # Errors
    /// If the bytes aren't exactly what a host has written, or were written by a newer one.
    pub fn decode(bytes: &[u8]) -> Result<Capsule, BadCapsule> {
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(BadCapsule::of_start(bytes, &MAGIC))?;
        let (version, identity) = read_head(head)?;
        let length = u64::from_le_bytes(*head.last_chunk().expect("eight bytes"));
        let (checked, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(BadCapsule::CutOff)?;
        let body = checked.get(HEAD_BYTES..).ok_or(BadCapsule::CutOff)?;
        if body.len() as u64 != length {
            return Err(BadCapsule::Length { expected: length, found: body.len() as u64 });
        }
        if u128::from_le_bytes(*checksum) != xxh3_128(checked) {
            return Err(BadCapsule::Checksum);
        }
        let body = match version {
            1 => Cow::Owned([body, NOTHING_OF_VERSION_2].concat()),
            CAPSULE_VERSION => Cow::Borrowed(body),
            _ => return Err(BadCapsule::Version { found: version }),
        };
        let content = |problem: String| BadCapsule::Content { problem };
        let (capsule, rest) =
            postcard::take_from_bytes::<Capsule>(&body).map_err(|error| content(error.to_string()))?;
        if !rest.is_empty() {
            return Err(content(format!("{} bytes behind its end", rest.len())));
        }
        capsule.check().map_err(content)?;
        if hexadecimal(&Sha256::digest(&capsule.component.bytes)) != capsule.component.sha256 {
            return Err(content("a component that isn't the one that it names".to_owned()));
        }
        if capsule.identity() != identity {
            return Err(content("another failure than its head says".to_owned()));
        }
        Ok(capsule)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it can't be read, or is no capsule that this host can use.
    pub fn read(path: &Path) -> Result<Capsule, ReplayError> {
        let failed = |source| ReplayError::Read { path: path.to_owned(), source };
        // Asked before it is opened: to open a pipe is to wait for its writer.
        let found = std::fs::metadata(path).map_err(failed)?;
        let refused = |problem| ReplayError::Refused { path: path.to_owned(), problem };
        if !found.is_file() {
            return Err(refused(BadCapsule::NotAFile));
        }
        if found.len() > FILE_BYTES_MAX {
            return Err(refused(BadCapsule::TooLarge { bytes: found.len(), bytes_max: FILE_BYTES_MAX }));
        }
        let bytes = std::fs::read(path).map_err(failed)?;
        Capsule::decode(&bytes).map_err(refused)
    }
}

/// The version and the identity that a head names.
pub fn read_head(head: &[u8; HEAD_BYTES]) -> Result<(u32, Identity), BadCapsule> {
    let rest = head.strip_prefix(&MAGIC).ok_or(BadCapsule::Foreign)?;
    let (version, rest) = rest.split_first_chunk().expect("the head's length");
    let (identity, _) = rest.split_first_chunk().expect("the head's length");
    Ok((u32::from_le_bytes(*version), Identity(u128::from_le_bytes(*identity))))
}
