//! Builds an attempt from a checkpoint, or from nothing.
//!
//! Invariant: whatever an attempt starts with comes from one manifest and the files that it names.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lockgate_host::id::{Attempt as AttemptNumber, Epoch, TaskId};
use lockgate_host::protocol::{Aligner, Coordinator, Watermarks};

use crate::attempt::{Attempt, Shared};
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::parts::{Counter, Sink, Source};
use crate::scenario::Scenario;
use crate::task::Task;
use crate::world::{State, TaskSnapshot, World};

impl Attempt {
    pub fn start(number: AttemptNumber, from: Option<Epoch>, shared: &mut Shared<'_>) -> Result<Attempt, Violation> {
        let scenario = shared.scenario;
        let snapshots = from.map(|epoch| shared.world.manifests[&epoch].tasks.clone()).unwrap_or_default();
        let (mut tasks, channels) = wire(scenario);
        let old_state = std::mem::take(&mut shared.world.live_state);
        for (index, task) in tasks.iter_mut().enumerate() {
            let snapshot = snapshots.get(&task.id).cloned().unwrap_or_default();
            if index < scenario.sources as usize {
                let positions = positions(index as u32, scenario, &snapshot, shared.world);
                // One source stays open, or else no barrier would get past the sources any more.
                task.source = Some(Source::new(positions, scenario.closes_early && index > 0));
            } else if index < (scenario.sources + scenario.counters) as usize {
                let mut state = restore(&snapshot, shared.world)?;
                if scenario.mutation == Some(Mutation::ResumesLiveState) {
                    state = old_state.get(&task.id).cloned().unwrap_or(state);
                }
                shared.world.live_state.insert(task.id, state.clone());
                task.counter = Some(Counter::new(state, snapshot.files.clone()));
                task.sink = (scenario.sinks == 0).then(Sink::default);
            } else {
                task.sink = Some(Sink::default());
            }
        }
        let ids = tasks.iter().map(|task| task.id).collect();
        let sources = (0..scenario.sources).map(TaskId).collect::<Vec<_>>();
        let last_published = from.filter(|_| scenario.mutation != Some(Mutation::ReusesEpochs));
        let injected = sources.iter().map(|&source| (source, VecDeque::new())).collect();
        let mut options = scenario.options;
        if *shared.faults_left == 0 {
            // A timeout that is too short for the job is a fault as well, which must stop at some time.
            options.timeout = Duration::from_secs(60);
        }
        let start = Duration::ZERO;
        Ok(Attempt {
            number,
            now_ms: 0,
            newest: tasks.iter().map(|task| (task.id, snapshots.get(&task.id).cloned().unwrap_or_default())).collect(),
            tasks,
            channels,
            injected,
            coordinator: Coordinator::new(options, ids, sources.into_iter().collect(), last_published, start),
            mailbox: Vec::new(),
            uploads: Vec::new(),
            operations: Vec::new(),
            end: None,
        })
    }
}

/// Sources, counters and sinks, with a channel from each to each of the next kind.
fn wire(scenario: &Scenario) -> (Vec<Task>, Vec<VecDeque<crate::task::Item>>) {
    let kinds = [scenario.sources, scenario.counters, scenario.sinks];
    let mut channels = Vec::new();
    let mut tasks: Vec<Task> = Vec::new();
    let mut before = 0..0;
    for count in kinds {
        let first = tasks.len();
        for _ in 0..count {
            let mut inputs = Vec::new();
            for sender in before.clone() {
                let sender: &mut Task = &mut tasks[sender];
                sender.outputs.push(channels.len());
                inputs.push(channels.len());
                channels.push(VecDeque::new());
            }
            tasks.push(Task {
                id: TaskId(tasks.len() as u32),
                aligner: (!inputs.is_empty()).then(|| Aligner::new(inputs.len())),
                watermarks: Watermarks::new(inputs.len().max(1)),
                inputs,
                outputs: Vec::new(),
                source: None,
                counter: None,
                sink: None,
            });
        }
        before = first..tasks.len();
    }
    (tasks, channels)
}

/// The splits of a source, each from where the checkpoint has it.
fn positions(source: u32, scenario: &Scenario, snapshot: &TaskSnapshot, world: &World) -> BTreeMap<u32, u64> {
    let splits = (0..world.input.len() as u32).filter(|split| split % scenario.sources == source);
    splits.map(|split| (split, snapshot.positions.get(&split).copied().unwrap_or(0))).collect()
}

/// The state that the files of a snapshot hold, newer over older.
fn restore(snapshot: &TaskSnapshot, world: &World) -> Result<State, Violation> {
    let mut state = State::new();
    for name in &snapshot.files {
        let file = world.files.get(name).ok_or_else(|| Violation(format!("{name} is needed and isn't there")))?;
        state.extend(&file.content);
    }
    Ok(state)
}
