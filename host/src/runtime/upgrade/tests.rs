//! Upgrades of one operator, from the request to the answer, without anything that runs.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::*;
use crate::graph::{Graph, InputPlace, InputRef, OperatorSpec, Plan, SinkCommit, SinkSpec, SourceSpec, SourceTime};
use crate::guest::{Declared, Descriptor, InstanceContext, Limits, OperatorError, OperatorInstance, Redistribution};
use crate::protocol::restart::RestartStrategy;
use crate::protocol::{Alignment, CoordinatorOptions, Guarantee, MaxParallelism, OnError};
use crate::store::sample::{manifest, name};

/// A component that is never opened, known by its hash.
struct Named(&'static str, Descriptor);

impl OperatorFactory for Named {
    fn descriptor(&self) -> &Descriptor {
        &self.1
    }

    fn component(&self) -> Option<&str> {
        Some(self.0)
    }

    fn open(&self, _: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError> {
        unreachable!("nothing runs here")
    }
}

fn component(hash: &'static str) -> Arc<dyn OperatorFactory> {
    let declared = Declared {
        name: "count",
        version: "1",
        inputs: &[("in", false)],
        outputs: &["out"],
        tables: &[],
        timers: false,
        redistribution: Redistribution::Split,
    };
    Arc::new(Named(hash, Descriptor::new(declared).expect("sensible")))
}

/// `text` to `count` to `out`; `count` has the component `old`.
fn job() -> Job {
    let max_parallelism = MaxParallelism::new(128).expect("in range");
    let from = |name: Name| vec![InputRef { from: name, port: None, input: InputPlace::Number(0) }];
    let (text, count, out) = (name("text"), name("count"), name("out"));
    let event_time = SourceTime { watermarks: false, falls_idle: false, silent_splits: false };
    let graph = Graph {
        max_parallelism,
        guarantee: Guarantee::ExactlyOnce,
        sources: vec![SourceSpec { name: text.clone(), parallelism: 1, replayable: true, event_time }],
        operators: vec![OperatorSpec {
            name: count.clone(),
            parallelism: 1,
            inputs: from(text),
            exchange: None,
            on_error: OnError::Fail,
        }],
        sinks: vec![SinkSpec {
            name: out,
            parallelism: 1,
            inputs: from(count.clone()),
            commit: SinkCommit::TwoPhase,
            ordered: false,
        }],
    };
    let old = component("old");
    let plan = Plan::new(&graph, &BTreeMap::from([(count.clone(), old.descriptor().facts())])).expect("it fits");
    let operator = Operator {
        factory: old,
        candidate: None,
        config_json: String::new(),
        limits: Limits::default(),
        state_memory_bytes_max: 1,
        on_error: OnError::Fail,
        capsules_max: 0,
    };
    let one = NonZeroU32::MIN;
    Job {
        name: name("words"),
        state_dir: "state".into(),
        store: "store".into(),
        max_parallelism,
        checkpoints: CoordinatorOptions {
            interval: Duration::from_secs(1),
            min_pause: Duration::ZERO,
            timeout: Duration::from_secs(60),
            concurrent_max: one,
        },
        alignment: Alignment::Aligned,
        retain: one,
        restart: RestartStrategy::None,
        guarantee: Guarantee::ExactlyOnce,
        plan,
        sources: BTreeMap::new(),
        operators: BTreeMap::from([(count, operator)]),
        sinks: BTreeMap::new(),
    }
}

type Answer = oneshot::Receiver<Result<Upgraded, UpgradeFailed>>;

fn ask(upgrades: &mut Upgrades, job: &Job, operator: &str, hash: &'static str, probation: Duration) -> Answer {
    let (reply, answer) = oneshot::channel();
    let request = UpgradeRequest { operator: name(operator), factory: component(hash), probation };
    assert_eq!(
        upgrades.request(job, request, reply).is_some(),
        upgrades.ongoing.as_ref().is_some_and(|it| it.probation == probation)
    );
    answer
}

#[track_caller]
fn refusal(mut answer: Answer) -> String {
    match answer.try_recv().expect("it is answered") {
        Err(UpgradeFailed::Refused { why }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn in_force_of(upgrades: &Upgrades, job: &Job) -> String {
    upgrades.components(job)[&name("count")].clone()
}

fn manifest_of(epoch: u64, component: &str) -> Manifest {
    let mut manifest = manifest(Epoch(epoch));
    manifest.operators.get_mut(&name("count")).expect("the sample has it").component = Some(component.to_owned());
    manifest
}

fn figures() -> SwapFigures {
    SwapFigures { subtasks: 1, paused_max: Duration::from_millis(3), migrated_entries: 5 }
}

const NO_TIME: Duration = Duration::ZERO;

#[test]
fn what_can_not_be_is_refused_with_the_reason() {
    let (mut upgrades, job) = (Upgrades::default(), job());
    let too_long = ask(&mut upgrades, &job, "count", "new", PROBATION_MAX + Duration::from_nanos(1));
    assert!(refusal(too_long).contains("longer than 24 h"));
    assert!(refusal(ask(&mut upgrades, &job, "out", "new", NO_TIME)).contains("no operator 'out'"));
    assert!(refusal(ask(&mut upgrades, &job, "count", "old", NO_TIME)).contains("has this component already"));
    let mut taken = ask(&mut upgrades, &job, "count", "new", PROBATION_MAX);
    taken.try_recv().expect_err("it is under way");
    assert!(refusal(ask(&mut upgrades, &job, "count", "third", NO_TIME)).contains("is under way"));
}

#[test]
fn the_new_component_takes_what_is_behind_the_swap_and_is_in_force_when_it_is_adopted() {
    let (mut upgrades, mut job) = (Upgrades::default(), job());
    let mut answer = ask(&mut upgrades, &job, "count", "new", NO_TIME);
    assert_eq!(upgrades.begin_attempt(), Some(NO_TIME), "the next attempt would take it up");
    assert_eq!(upgrades.on_trial(), None);
    assert_eq!(upgrades.swap(&job, Epoch(4)).epoch, Epoch(4));
    let taken_by = |upgrades: &Upgrades, epoch| upgrades.component(&job, &name("count"), Epoch(epoch)).expect("one");
    assert_eq!([4, 5].map(|epoch| taken_by(&upgrades, epoch)), ["old", "new"]);
    assert_eq!(
        (in_force_of(&upgrades, &job), upgrades.on_trial()),
        ("old".to_owned(), Some((&name("count"), Epoch(4))))
    );
    upgrades.adopt(&job, Adopted { swapped_at: Epoch(4), adopted_at: Epoch(5) }, figures());
    let upgraded = answer.try_recv().expect("answered").expect("adopted");
    let expected =
        Upgraded { swapped_at: Epoch(4), adopted_at: Epoch(5), paused: Duration::from_millis(3), migrated_entries: 5 };
    assert_eq!(upgraded, expected);
    assert_eq!(in_force_of(&upgrades, &job), "new");
    assert!(refusal(ask(&mut upgrades, &job, "count", "new", NO_TIME)).contains("has this component already"));
    // Back again within the attempt, and so on.
    ask(&mut upgrades, &job, "count", "old", NO_TIME);
    upgrades.swap(&job, Epoch(7));
    assert_eq!([5, 7, 8].map(|epoch| taken_by(&upgrades, epoch)), ["new", "new", "old"]);
    assert_eq!(in_force_of(&upgrades, &job), "new");
    upgrades.attempt_ended(&mut job, Some("it broke"), figures());
    upgrades.settle(&mut job, Some(&manifest_of(7, "new")));
    assert_eq!(
        (in_force_of(&upgrades, &job), job.operators[&name("count")].factory.component()),
        ("new".to_owned(), Some("new"))
    );
}

#[test]
fn after_a_failure_the_checkpoint_that_the_job_goes_on_from_says_which_it_is() {
    for (decided, expected) in [(Some((5, "new")), "new"), (Some((4, "old")), "old"), (None, "old")] {
        let (mut upgrades, mut job) = (Upgrades::default(), job());
        let mut answer = ask(&mut upgrades, &job, "count", "new", NO_TIME);
        upgrades.swap(&job, Epoch(4));
        upgrades.attempt_ended(&mut job, Some("it broke"), figures());
        answer.try_recv().expect_err("nobody knows yet");
        let manifest = decided.map(|(epoch, component)| manifest_of(epoch, component));
        upgrades.settle(&mut job, manifest.as_ref());
        assert_eq!((in_force_of(&upgrades, &job).as_str(), upgrades.on_trial()), (expected, None));
        assert!(job.operators[&name("count")].candidate.is_none());
        match answer.try_recv().expect("answered") {
            Ok(upgraded) => {
                assert_eq!((expected, upgraded.adopted_at, upgraded.migrated_entries), ("new", Epoch(5), 5))
            }
            Err(failed) => {
                assert_eq!((expected, failed), ("old", UpgradeFailed::Reverted { why: "it broke".to_owned() }));
            }
        }
        assert_eq!(upgrades.begin_attempt(), None, "it isn't tried again");
    }
}

#[test]
fn one_that_was_never_swapped_is_taken_up_by_the_next_attempt() {
    let (mut upgrades, mut job) = (Upgrades::default(), job());
    let mut answer = ask(&mut upgrades, &job, "count", "new", NO_TIME);
    upgrades.attempt_ended(&mut job, Some("it broke before"), SwapFigures::default());
    upgrades.settle(&mut job, Some(&manifest_of(3, "old")));
    assert_eq!(upgrades.begin_attempt(), Some(NO_TIME));
    answer.try_recv().expect_err("it is still to come");
    upgrades.swap(&job, Epoch(4));
    assert_eq!(upgrades.on_trial(), Some((&name("count"), Epoch(4))));
}

#[test]
fn a_candidate_of_another_process_counts_only_at_a_checkpoint_that_names_it() {
    for (decided, expected) in [(Some("new"), "new"), (Some("old"), "old"), (Some("third"), "old"), (None, "old")] {
        let (mut upgrades, mut job) = (Upgrades::default(), job());
        let count = name("count");
        job.operators.get_mut(&count).expect("there").candidate = Some(component("new"));
        let manifest = decided.map(|component| manifest_of(9, component));
        assert_eq!(job.operators[&count].at(&count, manifest.as_ref()).component(), Some(expected));
        upgrades.settle(&mut job, manifest.as_ref());
        assert_eq!(in_force_of(&upgrades, &job), expected);
    }
}
