//! The marker as a record: what is written of a decision, and what of it is believed when it is read.
//!
//! The key is `JOB/SLOT`, the value JSON on one line:
//! `{"version":1,"job":"copy","job_uid":"…","slot":0,"epoch":7,"digest":"0123456789abcdef","attempt":3}`. Epoch 0 without a digest says
//! that nothing is decided yet.
//!
//! Invariant: bytes that aren't exactly a marker of this job are an error, and no marker.

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, Epoch, JobUid, Name};
use crate::protocol::decision::{Digest, Marker};

const VERSION: u32 = 1;
/// A process is one slot of a job, and there is one.
pub const SLOT: u32 = 0;
/// Longer values are none of ours.
const VALUE_BYTES_MAX: usize = 4 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    job: Name,
    job_uid: JobUid,
    slot: u32,
    epoch: u64,
    digest: Option<Digest>,
    attempt: Attempt,
}

/// As much of a record as tells its version.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Why a record can't be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMarker {
    #[error("it has {bytes} bytes, and a marker has {VALUE_BYTES_MAX} at most")]
    Length { bytes: usize },
    #[error("it isn't a marker: {problem}")]
    Json { problem: String },
    #[error("it has version {found}, and this Lockgate knows version {VERSION}")]
    Version { found: u32 },
    #[error("it is of job '{job}', slot {slot}")]
    Other { job: Name, slot: u32 },
    #[error("it has epoch {epoch} and {} digest", if *.has_digest { "a" } else { "no" })]
    Half { epoch: u64, has_digest: bool },
}

/// The key of a job's markers.
pub fn key(job: &Name) -> String {
    format!("{job}/{SLOT}")
}

/// The value of a marker.
pub fn encode(job: &Name, marker: &Marker) -> Vec<u8> {
    let record = Record {
        version: VERSION,
        job: job.clone(),
        job_uid: marker.job_uid.clone(),
        slot: SLOT,
        epoch: marker.decided.map_or(0, |(epoch, _)| epoch.0),
        digest: marker.decided.map(|(_, digest)| digest),
        attempt: marker.attempt,
    };
    serde_json::to_vec(&record).expect("a record of texts and numbers")
}

/// Reads a value that has the job's key.
///
/// # Errors
/// If it isn't a marker of this job.
pub fn decode(job: &Name, value: &[u8]) -> Result<Marker, BadMarker> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(BadMarker::Length { bytes: value.len() });
    }
    let bad = |error: serde_json::Error| BadMarker::Json { problem: error.to_string() };
    let Versioned { version } = serde_json::from_slice(value).map_err(bad)?;
    if version != VERSION {
        return Err(BadMarker::Version { found: version });
    }
    let record = serde_json::from_slice::<Record>(value).map_err(bad)?;
    if record.job != *job || record.slot != SLOT {
        return Err(BadMarker::Other { job: record.job, slot: record.slot });
    }
    let decided = match (record.epoch, record.digest) {
        (0, None) => None,
        (epoch @ 1.., Some(digest)) => Some((Epoch(epoch), digest)),
        (epoch, digest) => return Err(BadMarker::Half { epoch, has_digest: digest.is_some() }),
    };
    Ok(Marker { job_uid: record.job_uid, attempt: record.attempt, decided })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job() -> Name {
        Name::new("copy").expect("a name")
    }

    fn marker(decided: Option<(Epoch, Digest)>) -> Marker {
        Marker { job_uid: JobUid("uid-1".to_owned()), attempt: Attempt(3), decided }
    }

    /// The encoding is read by other versions of the host, and by people.
    #[test]
    fn a_marker_is_one_line_of_json_that_never_changes() {
        let decided = marker(Some((Epoch(7), Digest(0x0123_4567_89ab_cdef))));
        let text = r#"{"version":1,"job":"copy","job_uid":"uid-1","slot":0,"epoch":7,"digest":"0123456789abcdef","attempt":3}"#;
        assert_eq!(String::from_utf8(encode(&job(), &decided)).expect("text"), text);
        assert_eq!(decode(&job(), text.as_bytes()), Ok(decided));
        let nothing = r#"{"version":1,"job":"copy","job_uid":"uid-1","slot":0,"epoch":0,"digest":null,"attempt":3}"#;
        assert_eq!(String::from_utf8(encode(&job(), &marker(None))).expect("text"), nothing);
        assert_eq!(decode(&job(), nothing.as_bytes()), Ok(marker(None)));
        assert_eq!(key(&job()), "copy/0");
    }

    #[test]
    fn what_is_not_exactly_a_marker_of_the_job_is_an_error() {
        let text = String::from_utf8(encode(&job(), &marker(Some((Epoch(7), Digest(1)))))).expect("text");
        let decoded = |from: &str, to: &str| decode(&job(), text.replace(from, to).as_bytes());
        assert_eq!(decoded("\"version\":1", "\"version\":2"), Err(BadMarker::Version { found: 2 }));
        assert!(matches!(decoded("\"copy\"", "\"other\""), Err(BadMarker::Other { .. })));
        assert!(matches!(decoded("\"slot\":0", "\"slot\":1"), Err(BadMarker::Other { slot: 1, .. })));
        assert_eq!(decoded("\"epoch\":7", "\"epoch\":0"), Err(BadMarker::Half { epoch: 0, has_digest: true }));
        assert_eq!(decoded("\"0000000000000001\"", "null"), Err(BadMarker::Half { epoch: 7, has_digest: false }));
        for (from, to) in [
            ("\"epoch\":7", "\"epoch\":-7"),
            ("\"epoch\":7", "\"epoch\":7,\"epoch\":8"),
            ("\"epoch\":7", "\"more\":1,\"epoch\":7"),
            ("0000000000000001", "1"),
            ("0000000000000001", "000000000000000G"),
            ("\"copy\"", "\"../x\""),
            (",\"attempt\":3", ""),
        ] {
            assert!(matches!(decoded(from, to), Err(BadMarker::Json { .. })), "{to}");
        }
        let long = vec![b' '; VALUE_BYTES_MAX + 1];
        assert_eq!(decode(&job(), &long), Err(BadMarker::Length { bytes: long.len() }));
        assert!(matches!(decode(&job(), b""), Err(BadMarker::Json { .. })));
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_no_marker_or_one_that_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(marker) = decode(&job(), &bytes) {
                prop_assert_eq!(decode(&job(), &encode(&job(), &marker)), Ok(marker));
            }
        }

        #[test]
        fn bytes_from_outside_that_were_a_marker_are_a_well_formed_one_or_refused(
            changes in prop::collection::vec((0usize..100, any::<u8>()), 1..4)
        ) {
            let mut value = encode(&job(), &marker(Some((Epoch(7), Digest(1)))));
            for (place, byte) in changes {
                let place = place % value.len();
                value[place] = byte;
            }
            if let Ok(read) = decode(&job(), &value) {
                prop_assert!(read.decided.is_some_and(|(epoch, _)| epoch.0 > 0));
                prop_assert_eq!(decode(&job(), &encode(&job(), &read)), Ok(read));
            }
        }
    }
}
