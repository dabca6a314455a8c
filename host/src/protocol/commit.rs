//! The proof that a sink may make an epoch's output visible.
//!
//! Invariant: a [`CommitPermit`] is only made from a [`PublishReceipt`], and a receipt is only made where a manifest was
//! published or loaded. Both places call [`PublishReceipt::for_published`], so a search for that name finds all of them.

use super::decision::Digest;
use crate::id::Epoch;

/// Says that the manifest of an epoch is durable in the checkpoint store.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct PublishReceipt {
    epoch: Epoch,
    digest: Digest,
}

impl PublishReceipt {
    /// For the checkpoint store alone: call it after the manifest's create-if-absent write has succeeded (with its folder
    /// synced), or after that manifest was read back and compared with its checksum. Never on the strength of a request
    /// whose answer is missing.
    pub fn for_published(epoch: Epoch, digest: Digest) -> PublishReceipt {
        PublishReceipt { epoch, digest }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Of the manifest.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// Allows the commit of one epoch. Where a sink's own transaction decides, that one is committed first, and the others only when it
/// is certain.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct CommitPermit {
    epoch: Epoch,
    digest: Digest,
}

impl CommitPermit {
    pub fn new(receipt: PublishReceipt) -> CommitPermit {
        CommitPermit { epoch: receipt.epoch, digest: receipt.digest }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Of the manifest that was published.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
