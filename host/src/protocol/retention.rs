//! What may be removed from the checkpoint store.
//!
//! A file goes when no manifest that stays reaches it, and it can't be part of a checkpoint that is still being made:
//! - the newest manifests up to the committed one, as many as are to be retained, and all that are newer stay;
//! - so do those of checkpoints that a user keeps, however old they are;
//! - a file of the running attempt (or of a newer one) that no manifest reaches may belong to a snapshot whose manifest
//!   isn't written yet, so it stays. If it never gets into a manifest, the next attempt removes it.
//!
//! What snapshots owe for this to be safe: they refer to new files and to those of the manifest before, never to a file
//! that only an older manifest has.
//!
//! Invariant: everything is classified before anything is deleted. Nothing that a manifest reaches that stays is in a
//! [`Deletions`], and neither is the committed epoch's manifest nor one that a user keeps.

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
    /// The checkpoints that a user keeps. One without a manifest means nothing.
    pub kept: BTreeSet<Epoch>,
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
    /// To go on would be to lose the job's state: put the manifest back before the job is started again.
    #[error("the manifest of epoch {epoch} is committed but not in the checkpoint store any more; nothing was removed")]
    CommittedManifestMissing { epoch: Epoch },
}

/// Lists everything that may go if the `keep` newest committed manifests are to stay.
///
/// # Errors
/// [`RetentionRefused`] if what was found can't be true of a sound store.
pub fn plan(facts: &RetentionFacts, keep: NonZeroU32) -> Result<Deletions, RetentionRefused> {
    if !facts.manifests.contains_key(&facts.committed) {
        return Err(RetentionRefused::CommittedManifestMissing { epoch: facts.committed });
    }
    let committed = facts.manifests.range(..=facts.committed).map(|(&epoch, _)| epoch).collect::<Vec<_>>();
    let old = committed.len().saturating_sub(keep.get() as usize);
    let going = committed[..old].iter().copied().filter(|epoch| !facts.kept.contains(epoch)).collect::<BTreeSet<_>>();

    let paths_of = |goes: bool| {
        let manifests = facts.manifests.iter().filter(|(epoch, _)| going.contains(epoch) == goes);
        manifests.flat_map(|(_, paths)| paths).collect::<BTreeSet<_>>()
    };
    let (needed, released) = (paths_of(false), paths_of(true));
    let may_be_in_the_making = |path: &String, attempt: Attempt| attempt >= facts.attempt && !released.contains(path);
    let goes = |(path, attempt): &(&String, &Attempt)| !needed.contains(path) && !may_be_in_the_making(path, **attempt);
    let files = facts.files.iter().filter(goes).map(|(path, _)| path.clone()).collect();
    Ok(Deletions { manifests: going.into_iter().collect(), files })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Attempt = Attempt(2);

    fn facts(manifests: &[(u64, &[&str])], files: &[(&str, u64)], committed: u64) -> RetentionFacts {
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        RetentionFacts {
            files: files.iter().map(|&(name, attempt)| (name.to_owned(), Attempt(attempt))).collect(),
            manifests: manifests.iter().map(|&(epoch, names)| (Epoch(epoch), named(names))).collect(),
            kept: BTreeSet::new(),
            committed: Epoch(committed),
            attempt: RUNNING,
        }
    }

    fn keep(manifests: u32) -> NonZeroU32 {
        NonZeroU32::new(manifests).expect("at least one")
    }

    #[test]
    fn what_a_kept_manifest_shares_with_one_that_goes_stays() {
        let manifests: &[(u64, &[&str])] = &[(3, &["old", "shared"]), (5, &["shared", "new"])];
        let facts = facts(manifests, &[("old", 2), ("shared", 2), ("new", 2)], 5);
        let deletions = Deletions { manifests: vec![Epoch(3)], files: vec!["old".to_owned()] };
        assert_eq!(plan(&facts, keep(1)), Ok(deletions));
        assert_eq!(plan(&facts, keep(2)), Ok(Deletions::default()));
    }

    #[test]
    fn a_checkpoint_that_a_user_keeps_stays_with_all_its_files_until_it_is_released() {
        let manifests: &[(u64, &[&str])] = &[(1, &["a", "shared"]), (2, &["b", "shared"]), (3, &["c"])];
        let files = [("a", 2), ("b", 2), ("c", 2), ("shared", 2)];
        let mut facts = facts(manifests, &files, 3);
        facts.kept = BTreeSet::from([Epoch(1), Epoch(99)]);
        let deletions = Deletions { manifests: vec![Epoch(2)], files: vec!["b".to_owned()] };
        assert_eq!(plan(&facts, keep(1)), Ok(deletions));
        facts.kept.clear();
        let all =
            Deletions { manifests: vec![Epoch(1), Epoch(2)], files: ["a", "b", "shared"].map(str::to_owned).into() };
        assert_eq!(plan(&facts, keep(1)), Ok(all));
    }

    #[test]
    fn a_file_that_no_manifest_names_goes_unless_the_running_attempt_may_be_about_to_name_it() {
        let facts = facts(&[(7, &["a"])], &[("a", 1), ("of-dead", 1), ("uploading", 2), ("of-newer", 3)], 7);
        let deletions = Deletions { manifests: vec![], files: vec!["of-dead".to_owned()] };
        assert_eq!(plan(&facts, keep(3)), Ok(deletions));
    }

    #[test]
    fn a_manifest_that_is_not_committed_yet_counts_for_nothing_and_stays() {
        let facts = facts(&[(1, &["a"]), (2, &["b"]), (3, &["c"])], &[("a", 2), ("b", 2), ("c", 2)], 2);
        let deletions = Deletions { manifests: vec![Epoch(1)], files: vec!["a".to_owned()] };
        assert_eq!(plan(&facts, keep(1)), Ok(deletions));
    }

    #[test]
    fn nothing_goes_if_the_committed_manifest_is_missing() {
        let facts = facts(&[(1, &["a"])], &[("a", 1), ("b", 1)], 2);
        assert_eq!(plan(&facts, keep(1)), Err(RetentionRefused::CommittedManifestMissing { epoch: Epoch(2) }));
    }

    /// Deletes the first `steps` of a plan, in its order.
    fn delete(facts: &mut RetentionFacts, deletions: &Deletions, steps: usize) {
        let manifests = deletions.manifests.len();
        for epoch in deletions.manifests.iter().take(steps) {
            facts.manifests.remove(epoch);
        }
        for file in deletions.files.iter().take(steps.saturating_sub(manifests)) {
            facts.files.remove(file);
        }
    }

    /// Four manifests, of which a user keeps one or none, and three files, each of either attempt and named by any run of
    /// manifests or by none.
    fn every_store(mut check: impl FnMut(&RetentionFacts)) {
        let runs = (1..=4u64).flat_map(|first| (first..=4).map(move |last| first..=last)).chain([5..=5]);
        let file = runs.flat_map(|run| [(run.clone(), Attempt(1)), (run, RUNNING)]).collect::<Vec<_>>();
        for a in &file {
            for b in &file {
                for c in &file {
                    let files = [("a", a), ("b", b), ("c", c)];
                    let names = |epoch: u64| {
                        let named = files.iter().filter(|(_, (run, _))| run.contains(&epoch));
                        named.map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>()
                    };
                    for (committed, kept) in [(3, None), (4, None), (3, Some(1)), (4, Some(1)), (4, Some(2))] {
                        check(&RetentionFacts {
                            files: files.iter().map(|(name, (_, attempt))| ((*name).to_owned(), *attempt)).collect(),
                            manifests: (1..=4).map(|epoch| (Epoch(epoch), names(epoch))).collect(),
                            kept: kept.map(Epoch).into_iter().collect(),
                            committed: Epoch(committed),
                            attempt: RUNNING,
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn in_every_small_store_manifests_stay_whole_at_each_step_and_garbage_goes_at_last() {
        every_store(|facts| {
            for kept in 1..=3 {
                let deletions = plan(facts, keep(kept)).expect("the store is sound");
                let all = deletions.manifests.len() + deletions.files.len();
                for steps in 0..=all {
                    let mut left = facts.clone();
                    delete(&mut left, &deletions, steps);
                    let whole = |names: &BTreeSet<String>| names.iter().all(|name| left.files.contains_key(name));
                    assert!(left.manifests.values().all(whole), "{facts:?} {deletions:?} after {steps}");
                    let committed = left.manifests.range(..=facts.committed).count();
                    assert!(committed >= kept as usize && left.manifests.contains_key(&Epoch(4)), "{facts:?}");
                    assert!(facts.kept.iter().all(|epoch| left.manifests.contains_key(epoch)), "{facts:?}");

                    // After a crash here, the next attempt removes whatever nobody needs.
                    left.attempt = Attempt(RUNNING.0 + 1);
                    let rest = plan(&left, keep(kept)).expect("the store is sound");
                    delete(&mut left, &rest, usize::MAX);
                    let named = left.manifests.values().flatten().cloned().collect::<BTreeSet<_>>();
                    assert!(left.files.keys().eq(&named), "{facts:?} {deletions:?} after {steps}");
                }
            }
        });
    }
}
