//! Where a job starts again whose checkpoints are decided elsewhere than in the checkpoint store: facts in, decision out.
//!
//! A *deciding* sink can't prepare its output and make it visible later, but it can put a *marker* into the transaction that
//! holds its output: the epoch and the digest of its manifest. The manifest of epoch N is published first, then the transaction is
//! committed, and that is the decision. So a crash leaves at most one manifest that is published and not decided, and the newest
//! marker tells it apart. A manifest says where it is decided; one that doesn't was decided by being published.
//!
//! Invariant: a job starts from exactly the checkpoint that was decided last, or not at all. Nothing is assumed about a marker
//! that isn't there: before a job publishes anything it writes one that says that nothing is decided.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, Epoch, JobUid};

/// The checksum of a manifest as it was published: XXH3-64 of its JSON, written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub u64);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;
    fn try_from(digits: String) -> Result<Digest, &'static str> {
        let lower = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        match u64::from_str_radix(&digits, 16) {
            Ok(digest) if digits.len() == 16 && digits.bytes().all(lower) => Ok(Digest(digest)),
            Ok(_) | Err(_) => Err("a digest is 16 lower-case hexadecimal digits"),
        }
    }
}

/// Where checkpoints are decided: what a marker is looked for by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionPlace {
    /// The type of the sink.
    pub kind: String,
    /// The cluster's own id.
    pub cluster: String,
    pub topic: String,
    /// The key of the marker's record.
    pub key: String,
}

impl fmt::Display for DecisionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic '{}' of {} cluster {}", self.topic, self.kind, self.cluster)
    }
}

/// What was decided last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub job_uid: JobUid,
    /// Who wrote it; for people.
    pub attempt: Attempt,
    /// `None`: nothing yet.
    pub decided: Option<(Epoch, Digest)>,
}

/// A manifest, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub digest: Digest,
    /// Where it is decided; `None`: by being published.
    pub decision: Option<DecisionPlace>,
}

/// What was read of the place where the job that is to run decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeciderFacts {
    pub place: DecisionPlace,
    /// The newest one. No other process can write another any more.
    pub marker: Option<Marker>,
}

/// Where the attempt starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// From this checkpoint; `None`: from the beginning.
    pub epoch: Option<Epoch>,
    /// A manifest that was never decided and never can be: to be removed before anything else is published.
    pub withdraw: Option<Epoch>,
    /// Whether the marker doesn't say so yet and has to be written, before anything is published.
    pub adopt: bool,
}

/// Why it isn't known where the job left off. [`help`](DecisionRefused::help) says what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionRefused {
    #[error("the marker in {place} is of another job of this name ({found}), and this one is {expected}")]
    OtherJob { place: Box<DecisionPlace>, found: JobUid, expected: JobUid },
    #[error("checkpoint {epoch} was to be decided in {place}, and the job has no sink any more that decides there")]
    DeciderGone { epoch: Epoch, place: Box<DecisionPlace> },
    #[error("checkpoint {epoch} was to be decided in {place}, and the job decides in {now}")]
    DeciderMoved { epoch: Epoch, place: Box<DecisionPlace>, now: Box<DecisionPlace> },
    #[error("the newest checkpoint is {epoch}, and {place} has no marker that says whether it was decided")]
    MarkerLost { epoch: Epoch, place: Box<DecisionPlace> },
    #[error(
        "the marker in {place} is older than the checkpoints of the store: it names {}, and after that {epoch} was decided",
        marker_names(*.marker)
    )]
    MarkerBehind { epoch: Epoch, marker: Option<Epoch>, place: Box<DecisionPlace> },
    #[error(
        "checkpoint {epoch} was decided in {place}, and the store doesn't have it: {}",
        .newest.map_or_else(|| "it has none".to_owned(), |newest| format!("its newest is {newest}"))
    )]
    CheckpointLost { epoch: Epoch, newest: Option<Epoch>, place: Box<DecisionPlace> },
    #[error(
        "the store's checkpoint {epoch} isn't the one that was decided in {place}: its digest is {found} and not {decided}"
    )]
    Differs { epoch: Epoch, found: Digest, decided: Digest, place: Box<DecisionPlace> },
}

fn marker_names(epoch: Option<Epoch>) -> String {
    epoch.map_or_else(|| "no checkpoint".to_owned(), |epoch| format!("checkpoint {epoch}"))
}

impl DecisionRefused {
    /// Whether this is so by any marker that was ever committed, be it the newest or not: then the job can't go on whoever is shut
    /// out. A manifest is there before its marker is, so a store without it is older, or another copy.
    pub fn holds_for_any_marker(&self) -> bool {
        match self {
            Self::CheckpointLost { epoch, newest, .. } => newest.is_none_or(|newest| newest < *epoch),
            Self::Differs { .. } => true,
            Self::OtherJob { .. }
            | Self::DeciderGone { .. }
            | Self::DeciderMoved { .. }
            | Self::MarkerLost { .. }
            | Self::MarkerBehind { .. } => false,
        }
    }

    /// What the user can do.
    pub fn help(&self) -> String {
        match self {
            Self::OtherJob { .. } => {
                "two jobs of one name on one cluster would shut each other out: give this job another name; or, if its state_dir or \
                 checkpoint.store was moved or lost, put it back"
                    .into()
            }
            Self::DeciderGone { .. } => {
                "put that sink back; whether its output is visible is only known there. Or start the job under a new name".into()
            }
            Self::DeciderMoved { .. } => {
                "let brokers and marker_topic name the cluster and topic that they named when the checkpoint was taken, or start the \
                 job under a new name"
                    .into()
            }
            Self::MarkerLost { .. } => {
                "if the topic was deleted, its record can't be made again: compare the output with the job's checkpoints ('lockgate \
                 checkpoint list'), and start the job under a new name, from the positions that fit"
                    .into()
            }
            Self::MarkerBehind { .. } => {
                "the cluster was put back to an older state than the checkpoint store: put both back to the same moment, or start the \
                 job under a new name"
                    .into()
            }
            Self::CheckpointLost { .. } | Self::Differs { .. } => {
                "the store was put back to an older state, or another copy of the job runs elsewhere: end that copy, or put the \
                 checkpoint store back as it was; from any other checkpoint the job would lose records or put them out twice. Or \
                 start the job under a new name with new outputs"
                    .into()
            }
        }
    }
}

/// Decides where a job starts. `manifests`: the newest two at least, and the marker's if it is there.
///
/// # Errors
/// [`DecisionRefused`] if that isn't known for certain.
pub fn resolve(
    uid: &JobUid,
    manifests: &BTreeMap<Epoch, Published>,
    decider: Option<&DeciderFacts>,
) -> Result<Decided, DecisionRefused> {
    let newest = manifests.last_key_value().map(|(epoch, published)| (*epoch, published));
    let Some(DeciderFacts { place: here, marker }) = decider else {
        return match newest {
            Some((epoch, Published { decision: Some(place), .. })) => {
                Err(DecisionRefused::DeciderGone { epoch, place: Box::new(place.clone()) })
            }
            other => Ok(Decided { epoch: other.map(|(epoch, _)| epoch), withdraw: None, adopt: false }),
        };
    };
    if let Some(other) = marker.as_ref().filter(|marker| marker.job_uid != *uid) {
        let (found, expected) = (other.job_uid.clone(), uid.clone());
        return Err(DecisionRefused::OtherJob { place: Box::new(here.clone()), found, expected });
    }
    let marked = marker.as_ref().map(|marker| marker.decided);
    match newest {
        None => match marked {
            None => Ok(Decided { epoch: None, withdraw: None, adopt: true }),
            Some(None) => Ok(Decided { epoch: None, withdraw: None, adopt: false }),
            Some(Some((epoch, _))) => {
                Err(DecisionRefused::CheckpointLost { epoch, newest: None, place: Box::new(here.clone()) })
            }
        },
        Some((epoch, published)) => match &published.decision {
            Some(other) if other != here => {
                let (place, now) = (Box::new(other.clone()), Box::new(here.clone()));
                Err(DecisionRefused::DeciderMoved { epoch, place, now })
            }
            Some(_) => by_marker(manifests, (epoch, published.digest), marked, here),
            None => by_publish((epoch, published.digest), marked.flatten(), here),
        },
    }
}

/// The store may know that a later epoch was decided than the marker says: then the cluster has lost the newest marker.
///
/// # Errors
/// [`DecisionRefused::MarkerBehind`].
pub fn check_noted(decided: &Decided, noted: Option<Epoch>, place: &DecisionPlace) -> Result<(), DecisionRefused> {
    match noted.filter(|noted| Some(*noted) > decided.epoch) {
        Some(epoch) => {
            Err(DecisionRefused::MarkerBehind { epoch, marker: decided.epoch, place: Box::new(place.clone()) })
        }
        None => Ok(()),
    }
}

/// The newest manifest counts; the marker may be older, from before the job decided by publishing alone.
fn by_publish(
    (newest, digest): (Epoch, Digest),
    marked: Option<(Epoch, Digest)>,
    here: &DecisionPlace,
) -> Result<Decided, DecisionRefused> {
    let place = || Box::new(here.clone());
    match marked {
        Some((epoch, _)) if epoch > newest => {
            Err(DecisionRefused::CheckpointLost { epoch, newest: Some(newest), place: place() })
        }
        Some((epoch, decided)) if epoch == newest && decided != digest => {
            Err(DecisionRefused::Differs { epoch, found: digest, decided, place: place() })
        }
        marked => {
            Ok(Decided { epoch: Some(newest), withdraw: None, adopt: marked.is_none_or(|(epoch, _)| epoch < newest) })
        }
    }
}

/// The newest manifest counts if the marker names it; otherwise the one before it does, if the marker names that.
fn by_marker(
    manifests: &BTreeMap<Epoch, Published>,
    (newest, digest): (Epoch, Digest),
    marked: Option<Option<(Epoch, Digest)>>,
    here: &DecisionPlace,
) -> Result<Decided, DecisionRefused> {
    let before = manifests.range(..newest).next_back().map(|(epoch, published)| (*epoch, published));
    let place = || Box::new(here.clone());
    match marked {
        None => Err(DecisionRefused::MarkerLost { epoch: newest, place: place() }),
        Some(None) => match before {
            None => Ok(Decided { epoch: None, withdraw: Some(newest), adopt: false }),
            // It was decided, or the newest would not have been published.
            Some((epoch, _)) => Err(DecisionRefused::MarkerBehind { epoch, marker: None, place: place() }),
        },
        Some(Some((epoch, decided))) => {
            let found = manifests.get(&epoch).map(|published| published.digest);
            match (found, before) {
                (None, _) if epoch < newest && before.is_some_and(|(before, _)| before > epoch) => {
                    let (later, _) = before.expect("just looked at");
                    Err(DecisionRefused::MarkerBehind { epoch: later, marker: Some(epoch), place: place() })
                }
                (None, _) => Err(DecisionRefused::CheckpointLost { epoch, newest: Some(newest), place: place() }),
                (Some(found), _) if found != decided => {
                    Err(DecisionRefused::Differs { epoch, found, decided, place: place() })
                }
                (Some(_), _) if epoch == newest => {
                    debug_assert_eq!(decided, digest, "the same manifest");
                    Ok(Decided { epoch: Some(epoch), withdraw: None, adopt: false })
                }
                (Some(_), Some((before, _))) if before > epoch => {
                    Err(DecisionRefused::MarkerBehind { epoch: before, marker: Some(epoch), place: place() })
                }
                (Some(_), _) => Ok(Decided { epoch: Some(epoch), withdraw: Some(newest), adopt: false }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
