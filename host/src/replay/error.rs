//! Why a capsule can't be read, written or replayed.
//!
//! Invariant: every error names the file, and has a `help` that says what to do.

use std::path::PathBuf;

use super::codec::CAPSULE_VERSION;
use crate::guest::GuestError;
use crate::state::StateError;

/// Why a file is no capsule that can be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadCapsule {
    #[error("it is not a file")]
    NotAFile,
    #[error("it isn't a capsule")]
    Foreign,
    #[error("it has {bytes} bytes, and no capsule has more than {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("it is cut off")]
    CutOff,
    #[error("it has {found} bytes of content and not {expected}, as when it was written")]
    Length { expected: u64, found: u64 },
    #[error("its checksum isn't the one of when it was written")]
    Checksum,
    #[error("its format version is {found}, and this host reads up to {CAPSULE_VERSION}")]
    Version { found: u32 },
    #[error("it is intact but says what no host writes: {problem}")]
    Content { problem: String },
}

impl BadCapsule {
    /// Of bytes that are too few to be a capsule.
    pub fn of_start(bytes: &[u8], magic: &[u8]) -> BadCapsule {
        let shared = bytes.len().min(magic.len());
        if bytes[..shared] == magic[..shared] { BadCapsule::CutOff } else { BadCapsule::Foreign }
    }
}

/// Why a capsule can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    #[error("cannot read the capsule {path}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} can't be replayed: {problem}", path = path.display())]
    Refused { path: PathBuf, problem: BadCapsule },
    #[error("cannot {action} {path}", path = path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the component in the capsule can't be used")]
    Component { source: GuestError },
    #[error("the component can't be used in the place of the capsule's")]
    Other { source: GuestError },
    #[error("the component doesn't suit the capsule: {problem}")]
    Unsuited { problem: String },
    #[error("the state that the capsule holds can't be used")]
    State { source: StateError },
    #[error("{folder} isn't the folder of the operator's crate: {problem}", folder = folder.display())]
    NoCrate { folder: PathBuf, problem: String },
}

impl ReplayError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            ReplayError::Read { .. } => {
                "capsules are in the folder `capsules` of a job's state_dir; the log names each that was written".to_owned()
            }
            ReplayError::Refused { problem: BadCapsule::Version { .. }, .. } => {
                "replay it with the version of Lockgate that wrote it".to_owned()
            }
            ReplayError::Refused { .. } => "get the file again from where it was written".to_owned(),
            ReplayError::File { .. } => "check the folder's permissions and the space on the disk".to_owned(),
            ReplayError::Component { source } | ReplayError::Other { source } => source.help(),
            ReplayError::Unsuited { .. } => {
                "take a build of the same operator: with --wasm its inputs and the versions of its tables must be the capsule's"
                    .to_owned()
            }
            ReplayError::State { source } => source.help(),
            ReplayError::NoCrate { .. } => {
                "name the folder with the operator's Cargo.toml, whose src has the line lockgate::export!(…)".to_owned()
            }
        }
    }
}
