//! Whose folder it is: `job.json`, written once when a job first runs and never changed.
//!
//! Invariant: two runs that start a job at the same moment agree on its uid, since only one of them creates the file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::disk::{Created, Disk};
use super::error::StoreError;
use super::layout;
use super::sealed::{Damage, seal, unseal};
use crate::id::{JobUid, Name};

/// The layout of a job's folder that this host writes. It reads this and older ones.
const FOLDER_VERSION: u32 = 1;
const JOB_JSON: &str = "the job's identity";

/// The content of `job.json`, sealed.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    version: u32,
    job: Name,
    uid: JobUid,
    /// For people: milliseconds since the Unix epoch.
    created_ms: u64,
}

/// The uid of the job whose folder it is, or `None` if it is nobody's yet.
pub(super) async fn read(disk: &Disk, job: &Name) -> Result<Option<JobUid>, StoreError> {
    let path = layout::job_json();
    let Some(bytes) = disk.get("read", &path).await? else { return Ok(None) };
    let place = disk.place(&path);
    let identity = decode(&bytes, &place)?;
    if identity.job == *job {
        Ok(Some(identity.uid))
    } else {
        Err(StoreError::OtherJob { path: place, found: identity.job, wanted: job.clone() })
    }
}

/// As [`read`]; makes the folder this job's if it is nobody's.
pub(super) async fn read_or_create(disk: &Disk, job: &Name) -> Result<JobUid, StoreError> {
    if let Some(uid) = read(disk, job).await? {
        return Ok(uid);
    }
    refuse_orphans(disk).await?;
    let identity = Identity { version: FOLDER_VERSION, job: job.clone(), uid: random_uid()?, created_ms: now_ms() };
    let path = layout::job_json();
    crate::crash::point("store.identity.before");
    let created = disk.put_new("write the job's identity", &path, Bytes::from(seal(&identity))).await?;
    crate::crash::point("store.identity.after");
    match created {
        Created::New => Ok(identity.uid),
        // Another run was faster; the job is who that run said it is.
        Created::Exists => {
            read(disk, job).await?.ok_or_else(|| StoreError::Missing { what: JOB_JSON, path: disk.place(&path) })
        }
    }
}

/// Checkpoints without an identity could be anybody's, so no new identity may adopt them.
pub(super) async fn refuse_orphans(disk: &Disk) -> Result<(), StoreError> {
    for slot in disk.list(&object_store::path::Path::default()).await?.folders {
        let manifests = disk.list(&slot.join("manifests")).await?;
        if !manifests.files.is_empty() {
            return Err(StoreError::NoIdentity { folder: disk.place(&object_store::path::Path::default()) });
        }
    }
    Ok(())
}

fn decode(bytes: &[u8], place: &Path) -> Result<Identity, StoreError> {
    let damaged = |source| StoreError::IdentityDamaged { path: place.to_owned(), source };
    let content = |error: serde_json::Error| damaged(Damage::Content { problem: error.to_string() });
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let json = unseal(bytes).map_err(damaged)?;
    let Version { version } = serde_json::from_slice(json).map_err(content)?;
    if version > FOLDER_VERSION {
        let path = place.to_owned();
        return Err(StoreError::TooNew { what: JOB_JSON, path, found: version, known: FOLDER_VERSION });
    }
    let identity: Identity = serde_json::from_slice(json).map_err(content)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if identity.uid.0.len() == 32 && identity.uid.0.bytes().all(is_digit) {
        Ok(identity)
    } else {
        Err(damaged(Damage::Content { problem: "its uid isn't 32 hexadecimal digits".to_owned() }))
    }
}

/// 128 random bits: two jobs never have the same.
fn random_uid() -> Result<JobUid, StoreError> {
    let source = Path::new("/dev/urandom");
    let mut bits = [0; 16];
    let read = File::open(source).and_then(|mut file| file.read_exact(&mut bits));
    read.map_err(|error| StoreError::io("read", source, error))?;
    Ok(JobUid(format!("{:032x}", u128::from_be_bytes(bits))))
}

/// Milliseconds since the Unix epoch, for people to read.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sample::name;

    #[test]
    fn an_identity_damaged_at_any_byte_is_refused() {
        let uid = random_uid().expect("random bits");
        let identity = Identity { version: 1, job: name("a"), uid, created_ms: now_ms() };
        let mut bytes = seal(&identity);
        let place = Path::new("job.json");
        assert_eq!(decode(&bytes, place).expect("its own bytes"), identity);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], place).is_err(), "cut off at {length}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert!(decode(&bytes, place).is_err(), "byte {at}, bit {bit}");
                bytes[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn a_folder_of_a_newer_host_is_refused_by_its_version() {
        let bytes = seal(&serde_json::json!({ "version": 2, "owner": "else" }));
        let error = decode(&bytes, Path::new("job.json")).expect_err("a version of tomorrow");
        assert!(matches!(error, StoreError::TooNew { found: 2, known: 1, .. }), "{error}");
    }
}
