//! Every refusal, and the order of the checks.

use super::*;
use crate::id::KeyGroup;

fn name(name: &str) -> Name {
    Name::new(name).expect("a usable name")
}

fn groups(groups: u32) -> MaxParallelism {
    MaxParallelism::new(groups).expect("in range")
}

fn range(first: u16, last: u16) -> KeyGroupRange {
    KeyGroupRange { first: KeyGroup(first), last: KeyGroup(last) }
}

fn job() -> ExpectedJob {
    let tables = BTreeMap::from([("counts".to_owned(), 1), ("new".to_owned(), 1)]);
    ExpectedJob {
        name: name("words"),
        max_parallelism: groups(128),
        operators: [
            (name("text"), ExpectedOperator::Source),
            (name("count"), ExpectedOperator::Operator { tables, migrates: false }),
            (name("out"), ExpectedOperator::Sink),
            (name("fresh"), ExpectedOperator::Sink),
        ]
        .into(),
        edges: [
            (name("count"), [edge("text", "", 0), edge("text", "", 1)].into()),
            (name("out"), [edge("count", "totals", 0)].into()),
        ]
        .into(),
    }
}

fn edge(from: &str, output: &str, input: u32) -> EdgeFacts {
    EdgeFacts { from: name(from), output: output.to_owned(), input }
}

fn manifest() -> ManifestFacts {
    let count = OperatorFacts {
        operator_state: true,
        key_groups: vec![range(64, 127), range(0, 63)],
        tables: [("counts".to_owned(), 1)].into(),
        in_flight: [edge("text", "", 1)].into(),
        ..OperatorFacts::default()
    };
    ManifestFacts {
        job: name("words"),
        uid: JobUid("u1".to_owned()),
        epoch: Epoch(9),
        attempt: Attempt(3),
        max_parallelism: groups(128),
        operators: [
            (name("text"), OperatorFacts { splits: true, ..OperatorFacts::default() }),
            (name("count"), count),
            (name("out"), OperatorFacts { committables: true, ..OperatorFacts::default() }),
            // Had nothing in the checkpoint, so it may be gone.
            (name("split"), OperatorFacts::default()),
        ]
        .into(),
    }
}

fn found(newest: NewestManifest) -> RecoveryFacts {
    RecoveryFacts {
        identity: Identity::Found { job: name("words"), uid: JobUid("u1".to_owned()) },
        attempts: [Attempt(1), Attempt(3)].into(),
        manifests: [Epoch(4), Epoch(9)].into(),
        newest: Some(newest),
    }
}

/// The refusal of a manifest that was changed.
fn refusal(change: impl FnOnce(&mut ManifestFacts)) -> RecoveryRefused {
    let mut manifest = manifest();
    change(&mut manifest);
    refused(&found(NewestManifest::Valid(manifest)))
}

fn refused(facts: &RecoveryFacts) -> RecoveryRefused {
    match decide(facts, &job()) {
        RecoveryDecision::Refuse(refused) => refused,
        decision @ (RecoveryDecision::Fresh | RecoveryDecision::Resume { .. }) => panic!("{decision:?}"),
    }
}

fn nothing() -> RecoveryFacts {
    RecoveryFacts { identity: Identity::Absent, attempts: BTreeSet::new(), manifests: BTreeSet::new(), newest: None }
}

#[test]
fn a_job_whose_checkpoints_fit_resumes_from_the_newest() {
    let facts = found(NewestManifest::Valid(manifest()));
    assert_eq!(decide(&facts, &job()), RecoveryDecision::Resume { epoch: Epoch(9) });
}

#[test]
fn a_job_without_checkpoints_begins() {
    assert_eq!(decide(&nothing(), &job()), RecoveryDecision::Fresh);
    let died_early = RecoveryFacts { manifests: BTreeSet::new(), newest: None, ..found(corrupt()) };
    assert_eq!(decide(&died_early, &job()), RecoveryDecision::Fresh);
}

#[test]
fn attempts_are_numbered_above_all_that_ever_were() {
    assert_eq!(next_attempt(&nothing()), Attempt(1));
    assert_eq!(next_attempt(&found(corrupt())), Attempt(4));
    let mut claims_lost = found(NewestManifest::Valid(manifest()));
    claims_lost.attempts.clear();
    assert_eq!(next_attempt(&claims_lost), Attempt(4));
}

fn corrupt() -> NewestManifest {
    NewestManifest::Corrupt { problem: "it is cut short".to_owned() }
}

#[test]
fn a_corrupt_newest_manifest_is_never_passed_over_for_an_older_one() {
    let refused_manifest = refused(&found(corrupt()));
    assert!(matches!(refused_manifest, RecoveryRefused::ManifestCorrupt { epoch: Epoch(9), .. }));
    let file = NewestManifest::FileCorrupt { file: "f".to_owned(), problem: "it is missing".to_owned() };
    assert!(matches!(refused(&found(file)), RecoveryRefused::FileCorrupt { epoch: Epoch(9), .. }));
    let renamed = refusal(|manifest| manifest.epoch = Epoch(4));
    assert!(matches!(renamed, RecoveryRefused::ManifestCorrupt { epoch: Epoch(9), .. }));
}

#[test]
fn the_store_of_another_job_is_never_taken_up() {
    let with = |identity| refused(&RecoveryFacts { identity, ..found(NewestManifest::Valid(manifest())) });
    let other = Identity::Found { job: name("other"), uid: JobUid("u1".to_owned()) };
    assert!(matches!(with(other), RecoveryRefused::OtherJob { .. }));
    assert_eq!(with(Identity::Absent), RecoveryRefused::IdentityMissing);
    let unreadable = Identity::Unreadable { problem: "it is empty".to_owned() };
    assert!(matches!(with(unreadable), RecoveryRefused::IdentityUnreadable { .. }));
    let uid = refusal(|manifest| manifest.uid = JobUid("u2".to_owned()));
    assert!(matches!(uid, RecoveryRefused::OtherJobsManifest { .. }));
}

#[test]
fn what_the_job_cannot_take_up_is_refused_by_name() {
    let max = refusal(|manifest| manifest.max_parallelism = groups(64));
    assert_eq!(max, RecoveryRefused::MaxParallelismChanged { epoch: Epoch(9), found: 64, expected: 128 });

    let rename = |manifest: &mut ManifestFacts, from: &str, to: &str| {
        let operator = manifest.operators.remove(&name(from)).expect("it is there");
        manifest.operators.insert(name(to), operator);
    };
    for (operator, what) in [("text", Part::Splits), ("count", Part::OperatorState), ("out", Part::Committables)] {
        let gone = refusal(|manifest| rename(manifest, operator, "gone"));
        assert_eq!(gone, RecoveryRefused::OperatorGone { epoch: Epoch(9), operator: name("gone"), what });
    }
    let became_sink = refusal(|manifest| rename(manifest, "text", "fresh"));
    assert!(matches!(became_sink, RecoveryRefused::KindChanged { what: Part::Splits, now: "a sink", .. }));

    let tables = |tables: &[(&str, u32)]| {
        refusal(|manifest| {
            let count = manifest.operators.get_mut(&name("count")).expect("it is there");
            count.tables = tables.iter().map(|&(table, version)| (table.to_owned(), version)).collect();
        })
    };
    assert!(
        matches!(tables(&[("counts", 1), ("gone", 1)]), RecoveryRefused::TableGone { table, .. } if table == "gone")
    );
    assert!(matches!(tables(&[("counts", 2)]), RecoveryRefused::TableNewer { found: 2, expected: 1, .. }));
    assert!(matches!(tables(&[("counts", 0)]), RecoveryRefused::TableNotMigrated { found: 0, expected: 1, .. }));
}

#[test]
fn a_table_of_an_older_version_is_taken_up_by_an_operator_that_migrates_and_a_newer_one_by_none() {
    let decided = |version| {
        let (mut manifest, mut job) = (manifest(), job());
        manifest.operators.get_mut(&name("count")).expect("it is there").tables =
            [("counts".to_owned(), version)].into();
        let Some(ExpectedOperator::Operator { migrates, .. }) = job.operators.get_mut(&name("count")) else {
            panic!("an operator")
        };
        *migrates = true;
        decide(&found(NewestManifest::Valid(manifest)), &job)
    };
    assert_eq!(decided(0), RecoveryDecision::Resume { epoch: Epoch(9) });
    assert!(matches!(decided(2), RecoveryDecision::Refuse(RecoveryRefused::TableNewer { found: 2, .. })));
}

#[test]
fn records_in_flight_are_never_dropped() {
    let in_flight = |reader: &str, edge: EdgeFacts| {
        refusal(|manifest| {
            let reader = manifest.operators.entry(name(reader)).or_default();
            reader.in_flight.insert(edge);
        })
    };
    for edge in [edge("text", "", 2), edge("text", "late", 0), edge("lines", "", 0)] {
        let EdgeFacts { from, output, input } = edge.clone();
        let gone = RecoveryRefused::EdgeGone { epoch: Epoch(9), operator: name("count"), from, output, input };
        assert_eq!(in_flight("count", edge), gone);
    }
    let gone = in_flight("gone", edge("text", "", 0));
    let what = Part::InFlight;
    assert_eq!(gone, RecoveryRefused::OperatorGone { epoch: Epoch(9), operator: name("gone"), what });
    let late = in_flight("out", edge("count", "late", 0)).to_string();
    let message = "the checkpoint of epoch 9 has records in flight from 'count':late to input 0 of 'out', which no longer \
                   reads there";
    assert_eq!(late, message);
}

#[test]
fn keyed_state_must_hold_every_key_group_exactly_once() {
    let torn = |ranges: &[KeyGroupRange]| {
        let refused = refusal(|manifest| {
            let count = manifest.operators.get_mut(&name("count")).expect("it is there");
            count.key_groups = ranges.to_vec();
        });
        match refused {
            RecoveryRefused::KeyGroupsTorn { key_group, .. } => key_group,
            other => panic!("{other}"),
        }
    };
    assert_eq!(torn(&[range(0, 63)]), 64);
    assert_eq!(torn(&[range(1, 127)]), 0);
    assert_eq!(torn(&[range(0, 63), range(65, 127)]), 64);
    assert_eq!(torn(&[range(0, 63), range(63, 127)]), 64);
    assert_eq!(torn(&[range(0, 127), range(0, 127)]), 128);
    assert_eq!(torn(&[range(0, 200)]), 201);
}

#[test]
fn a_refusal_says_what_is_wrong_and_what_to_do() {
    let refused = refusal(|manifest| manifest.max_parallelism = groups(64));
    let message = "the checkpoint of epoch 9 was taken with max_parallelism = 64, and the job says 128";
    assert_eq!(refused.to_string(), message);
    assert_eq!(refused.help(), "set job.max_parallelism = 64: it is fixed for the life of a job's state");
}
