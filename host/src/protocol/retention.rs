//! What may be removed from the checkpoint store.
//!
//! A file goes when no kept manifest reaches it, and it can't be part of a checkpoint that is still being made:
//! - the newest manifests up to the committed one, as many as are to be kept, and all that are newer are kept;
//! - a file of the running attempt (or of a newer one) that no manifest reaches may belong to a snapshot whose manifest
//!   isn't written yet, so it stays. If it never gets into a manifest, the next attempt removes it.
//!
//! What snapshots owe for this to be safe: they refer to new files and to those of the manifest before, never to a file
//! that only an older manifest has.
//!
//! Invariant: everything is classified before anything is deleted. Nothing that a kept manifest reaches is in a
//! [`Deletions`], and neither is the committed epoch's manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use crate::id::{Attempt, Epoch};

/// What was found in the store. List the files first and then the manifests, so that a manifest published in between
/// protects its files.
#[derive(Clone, Debug)]
pub struct RetentionFacts {
    /// Every file, by its path, with the attempt that wrote it.
    pub files: BTreeMap<String, Attempt>,
    /// Every manifest with the paths of the files it names.
    pub manifests: BTreeMap<Epoch, BTreeSet<String>>,
    /// The newest epoch that is committed.
    pub committed: Epoch,
    /// The running attempt.
    pub attempt: Attempt,
}

/// All that may be deleted. Delete in the order of the fields, and the manifests in their order: after a crash in between,
/// every manifest that is still there has all its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletions {
    /// Oldest first.
    pub manifests: Vec<Epoch>,
    pub files: Vec<String>,
}

/// Why nothing may be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetentionRefused {
    #[error(
        "the manifest of epoch {epoch}, which is committed, isn't in the checkpoint store any more, so nothing is removed \
         from it; restore the manifest from a backup before the job is started again"
    )]
    CommittedManifestMissing { epoch: Epoch },
}

/// Lists everything that may go if `keep` committed manifests are to stay.
///
/// # Errors
/// [`RetentionRefused`] if what was found can't be true of a sound store.
pub fn plan(facts: &RetentionFacts, keep: NonZeroU32) -> Result<Deletions, RetentionRefused> {
    if !facts.manifests.contains_key(&facts.committed) {
        return Err(RetentionRefused::CommittedManifestMissing { epoch: facts.committed });
    }
    let committed = facts.manifests.range(..=facts.committed).map(|(&epoch, _)| epoch).collect::<Vec<_>>();
    let goes = committed.len().saturating_sub(keep.get() as usize);
    let manifests = committed[..goes].to_vec();
    let first_kept = committed[goes];

    let needed = facts.manifests.range(first_kept..).flat_map(|(_, paths)| paths).collect::<BTreeSet<_>>();
    let released = facts.manifests.range(..first_kept).flat_map(|(_, paths)| paths).collect::<BTreeSet<_>>();
    let may_be_in_the_making = |path: &String, attempt: Attempt| attempt >= facts.attempt && !released.contains(path);
    let goes = |(path, attempt): &(&String, &Attempt)| !needed.contains(path) && !may_be_in_the_making(path, **attempt);
    let files = facts.files.iter().filter(goes).map(|(path, _)| path.clone()).collect();
    Ok(Deletions { manifests, files })
}
