//! Every state that a crash, a loss or a mistake can leave, and what becomes of it.

use super::*;

fn uid() -> JobUid {
    JobUid("uid-1".to_owned())
}

fn place(topic: &str) -> DecisionPlace {
    let [kind, cluster, key] = ["kafka", "c-1", "job/0"].map(str::to_owned);
    DecisionPlace { kind, cluster, topic: topic.to_owned(), key }
}

/// Manifests by epoch; `true`: decided by a marker. The digest is the epoch's number.
fn manifests<const N: usize>(of: [(u64, bool); N]) -> BTreeMap<Epoch, Published> {
    let published = |(epoch, marked): (u64, bool)| {
        let decision = marked.then(|| place("marker"));
        (Epoch(epoch), Published { digest: Digest(epoch), decision })
    };
    of.map(published).into()
}

fn marker(decided: Option<u64>) -> Option<Marker> {
    let decided = decided.map(|epoch| (Epoch(epoch), Digest(epoch)));
    Some(Marker { job_uid: uid(), attempt: Attempt(1), decided })
}

fn resolved(
    manifests: &BTreeMap<Epoch, Published>,
    marker: Option<Marker>,
) -> Result<(Option<u64>, Option<u64>, bool), DecisionRefused> {
    let facts = DeciderFacts { place: place("marker"), marker };
    let Decided { epoch, withdraw, adopt } = resolve(&uid(), manifests, Some(&facts))?;
    Ok((epoch.map(|epoch| epoch.0), withdraw.map(|epoch| epoch.0), adopt))
}

#[test]
fn the_first_run_writes_a_marker_before_anything_is_published() {
    assert_eq!(resolved(&manifests([]), None), Ok((None, None, true)));
    assert_eq!(resolved(&manifests([]), marker(None)), Ok((None, None, false)), "a crash before the first checkpoint");
}

#[test]
fn a_checkpoint_that_was_published_and_not_decided_is_withdrawn() {
    assert_eq!(resolved(&manifests([(1, true)]), marker(None)), Ok((None, Some(1), false)));
    assert_eq!(resolved(&manifests([(1, true), (2, true)]), marker(Some(1))), Ok((Some(1), Some(2), false)));
    assert_eq!(resolved(&manifests([(3, true), (4, true), (9, true)]), marker(Some(4))), Ok((Some(4), Some(9), false)));
}

#[test]
fn a_checkpoint_that_was_decided_is_resumed() {
    assert_eq!(resolved(&manifests([(1, true)]), marker(Some(1))), Ok((Some(1), None, false)));
    assert_eq!(resolved(&manifests([(1, true), (2, true)]), marker(Some(2))), Ok((Some(2), None, false)));
}

#[test]
fn a_job_that_gets_a_deciding_sink_goes_on_from_what_was_decided_by_being_published() {
    assert_eq!(resolved(&manifests([(6, false), (7, false)]), None), Ok((Some(7), None, true)));
    assert_eq!(resolved(&manifests([(7, false)]), marker(Some(7))), Ok((Some(7), None, false)), "adopted");
    assert_eq!(resolved(&manifests([(7, false), (8, true)]), marker(Some(7))), Ok((Some(7), Some(8), false)));
    assert_eq!(
        resolved(&manifests([(6, true), (7, false)]), marker(Some(6))),
        Ok((Some(7), None, true)),
        "had one before"
    );
}

#[test]
fn without_a_deciding_sink_the_newest_manifest_counts_if_it_needs_no_decision() {
    let decided =
        |manifests| resolve(&uid(), &manifests, None).map(|decided| (decided.epoch, decided.withdraw, decided.adopt));
    assert_eq!(decided(manifests([])), Ok((None, None, false)));
    assert_eq!(decided(manifests([(1, true), (2, false)])), Ok((Some(Epoch(2)), None, false)));
    let refused = decided(manifests([(1, false), (2, true)])).expect_err("nobody can be asked");
    assert!(matches!(refused, DecisionRefused::DeciderGone { epoch: Epoch(2), .. }));
}

#[test]
fn a_marker_that_is_gone_is_never_taken_for_one_that_was_never_written() {
    for manifests in [manifests([(1, true)]), manifests([(4, true), (5, true)]), manifests([(4, false), (5, true)])] {
        let newest = *manifests.last_key_value().expect("there is one").0;
        let refused = resolved(&manifests, None).expect_err("the marker is lost");
        assert_eq!(refused, DecisionRefused::MarkerLost { epoch: newest, place: Box::new(place("marker")) });
    }
}

#[test]
fn a_store_that_has_lost_what_was_decided_is_refused() {
    for (manifests, newest) in [(manifests([]), None), (manifests([(1, true), (2, true)]), Some(Epoch(2)))] {
        let refused = resolved(&manifests, marker(Some(3))).expect_err("an older store");
        assert_eq!(
            refused,
            DecisionRefused::CheckpointLost { epoch: Epoch(3), newest, place: Box::new(place("marker")) }
        );
    }
    let refused = resolved(&manifests([(2, false)]), marker(Some(3))).expect_err("an older store");
    assert!(matches!(refused, DecisionRefused::CheckpointLost { epoch: Epoch(3), .. }));
    let refused = resolved(&manifests([(5, true)]), marker(Some(4))).expect_err("only the newest is left");
    assert!(matches!(refused, DecisionRefused::CheckpointLost { epoch: Epoch(4), newest: Some(Epoch(5)), .. }));
}

#[test]
fn a_cluster_that_was_put_back_is_refused() {
    let behind = |manifests, decided, epoch| {
        let refused = resolved(&manifests, marker(decided)).expect_err("an older cluster");
        let marker = decided.map(Epoch);
        assert_eq!(
            refused,
            DecisionRefused::MarkerBehind { epoch: Epoch(epoch), marker, place: Box::new(place("marker")) }
        );
    };
    behind(manifests([(1, true), (2, true)]), None, 1);
    behind(manifests([(2, true), (3, true), (4, true)]), Some(2), 3);
    behind(manifests([(3, true), (4, true)]), Some(1), 3);
}

#[test]
fn another_manifest_of_the_same_epoch_is_refused() {
    let other = Some(Marker { decided: Some((Epoch(2), Digest(77))), ..marker(None).expect("a marker") });
    for manifests in [manifests([(1, true), (2, true)]), manifests([(2, true), (3, true)]), manifests([(2, false)])] {
        let refused = resolved(&manifests, other.clone()).expect_err("another history");
        let (found, decided) = (Digest(2), Digest(77));
        assert_eq!(
            refused,
            DecisionRefused::Differs { epoch: Epoch(2), found, decided, place: Box::new(place("marker")) }
        );
    }
}

#[test]
fn only_what_no_newer_marker_can_mend_is_so_by_any_marker() {
    let by_any = |published, marker| resolved(&published, marker).expect_err("no fit").holds_for_any_marker();
    assert!(by_any(manifests([]), marker(Some(3))), "the store is older");
    assert!(by_any(manifests([(1, true), (2, true)]), marker(Some(3))), "the store is older");
    let other = Some(Marker { decided: Some((Epoch(2), Digest(77))), ..marker(None).expect("a marker") });
    assert!(by_any(manifests([(2, true)]), other), "another copy");
    assert!(!by_any(manifests([(2, true), (3, true)]), marker(Some(1))), "the marker may be an older one");
    assert!(!by_any(manifests([(5, true)]), marker(Some(4))), "retention has removed what it names");
    assert!(!by_any(manifests([(2, true)]), None), "its topic may be made");
}

#[test]
fn a_marker_of_another_job_of_this_name_is_refused() {
    let other = Marker { job_uid: JobUid("uid-2".to_owned()), ..marker(Some(2)).expect("a marker") };
    for manifests in [manifests([]), manifests([(2, true)])] {
        let refused = resolved(&manifests, Some(other.clone())).expect_err("another job");
        assert!(matches!(refused, DecisionRefused::OtherJob { .. }));
    }
}

#[test]
fn a_job_that_decides_elsewhere_now_is_refused() {
    let facts = DeciderFacts { place: place("other"), marker: None };
    let refused = resolve(&uid(), &manifests([(2, true)]), Some(&facts)).expect_err("moved");
    assert!(matches!(refused, DecisionRefused::DeciderMoved { epoch: Epoch(2), .. }));
}

/// Whatever was lost, a job resumes only what is certainly the newest that was decided: the histories of a sound job, of which
/// every prefix of either side may be left.
#[test]
fn no_loss_of_either_side_leads_back_to_an_older_checkpoint_or_forward_to_an_undecided_one() {
    // Epochs 1 to 4 were decided, 5 perhaps.
    for decided in [4u64, 5] {
        for kept_from in 1..=4u64 {
            for lost_after in 0..=5u64 {
                for marker_at in [None, Some(None), Some(Some(2)), Some(Some(3)), Some(Some(4)), Some(Some(5))] {
                    let all = (kept_from..=5).filter(|epoch| *epoch <= lost_after).map(|epoch| (epoch, true));
                    let all = all.collect::<Vec<_>>();
                    let manifests = all.iter().flat_map(|one| manifests([*one])).collect::<BTreeMap<_, _>>();
                    let found = marker_at.and_then(marker);
                    // A marker that is newer than any that was written can't be.
                    if matches!(marker_at, Some(Some(at)) if at > decided) {
                        continue;
                    }
                    let Ok((resumed, _, _)) = resolved(&manifests, found) else { continue };
                    let marker_lost = marker_at != Some(Some(decided));
                    // Both sides put back to the same older moment look like that moment.
                    let both_older = marker_lost && lost_after < 5;
                    let nothing_left = manifests.is_empty();
                    // If the cluster lost the newest marker and nothing else, that looks like a decision that was never made.
                    let last_marker_lost = lost_after == 5 && marker_at == Some(Some(decided - 1));
                    assert!(
                        resumed == Some(decided) || both_older || nothing_left || last_marker_lost,
                        "decided {decided}, manifests {kept_from}..={lost_after}, marker {marker_at:?}: resumed {resumed:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_marker_that_goes_back_is_refused_where_the_store_has_noted_the_decision() {
    let decided = |epoch: Option<u64>| Decided { epoch: epoch.map(Epoch), withdraw: None, adopt: false };
    let check = |epoch, noted: Option<u64>| check_noted(&decided(epoch), noted.map(Epoch), &place("marker"));
    for (epoch, noted) in [(None, None), (Some(3), None), (Some(3), Some(2)), (Some(3), Some(3))] {
        assert_eq!(check(epoch, noted), Ok(()));
    }
    for (epoch, noted) in [(None, 1), (Some(2), 3)] {
        let (marker, place) = (epoch.map(Epoch), Box::new(place("marker")));
        assert_eq!(
            check(epoch, Some(noted)),
            Err(DecisionRefused::MarkerBehind { epoch: Epoch(noted), marker, place })
        );
    }
}

#[test]
fn a_digest_is_written_as_sixteen_digits_and_nothing_else_is_read() {
    let digest = Digest(0xab);
    let json = serde_json::to_string(&digest).expect("JSON");
    assert_eq!(json, "\"00000000000000ab\"");
    assert_eq!(serde_json::from_str::<Digest>(&json).expect("its own text"), digest);
    for bad in ["\"ab\"", "\"00000000000000AB\"", "\"+0000000000000ab\"", "\"0000000000000000ab\"", "171"] {
        assert!(serde_json::from_str::<Digest>(bad).is_err(), "{bad}");
    }
}
