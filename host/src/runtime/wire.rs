//! Makes the tasks of a plan, joins them with channels, and starts them.
//!
//! Opening operators and taking up their state happens in each task's own thread, side by side.
//!
//! Invariant: every channel of the plan has exactly one sender and one receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::guards::Guards;
use super::opener::Opener;
use super::pump::Running;
use super::recover::Recovered;
use super::take_up::{Reader, TakingUp};
use super::{Job, RunError, keyed, progress};
use crate::channel::{Announce, Capacity, Inputs, Receiver, Sender, link};
use crate::connector::open_source;
use crate::element::Barrier;
use crate::graph::{self, NodeId, NodeKind, Plan};
use crate::guest::{InstanceContext, OperatorFactory, OperatorInstance};
use crate::id::{Name, SubtaskId, TaskId};
use crate::protocol::in_flight::Place;
use crate::protocol::{Aligner, OnError};
use crate::state::{BlockCache, StateOptions};
use crate::store::{CheckpointStore, SubtaskSnapshot};
use crate::task::{
    Chain, Exchange, Head, InputLabel, OperatorSlot, Outlet, Pace, SharedEpoch, SourceTime, SwapBoard, Swaps, Tail,
    Task, TaskError, TaskEvent, TaskStatus, Traced, Wires, WithoutKey,
};
use crate::telemetry::JobCounters;

/// Starts all tasks of a job.
///
/// # Errors
/// If a source or sink can't be opened. Then none is left running.
pub fn start(
    job: &Job,
    recovered: &Recovered,
    counters: &Arc<JobCounters>,
    guards: &Guards,
    board: &SwapBoard,
) -> Result<Running, RunError> {
    let plan = &job.plan;
    let announce = if job.alignment.overtakes() { Announce::Barriers } else { Announce::Never };
    let (mut senders, mut receivers) = channels(plan, announce);
    let (events_in, events) = mpsc::unbounded_channel::<TaskEvent>();
    let block_cache = BlockCache::new(BLOCK_CACHE_BYTES_MAX);
    let wiring = Wiring { job, recovered, counters, guards, board, plan, block_cache };
    let mut ready = Vec::new();
    let (mut statuses, mut sources) = (BTreeMap::new(), BTreeSet::new());
    let (mut barriers, mut others) = (Vec::new(), Vec::new());
    for task in plan.tasks() {
        let (barrier_in, barrier_out) = mpsc::channel::<Barrier>(job.checkpoints.concurrent_max.get() as usize);
        if plan.is_source(task.chain) {
            barriers.push(barrier_in);
            sources.insert(task.id);
        } else {
            others.push(barrier_in);
        }
        let senders = senders.remove(&task.id).unwrap_or_default();
        let receivers = receivers.remove(&task.id).unwrap_or_default();
        let labels = receivers.iter().map(|from| wiring.label(from.edge, from.index)).map(Arc::new).collect::<Vec<_>>();
        let status = Arc::new(TaskStatus::new(wiring.chain_name(&task), labels.clone()));
        statuses.insert(task.id, Arc::clone(&status));
        let wires = Wires { events: events_in.clone(), barriers: barrier_out, status };
        ready.push((task.id, wiring.task(&task, senders, receivers, labels, wires)?));
    }
    let mut tasks = JoinSet::new();
    let handle = Handle::current();
    for (id, open) in ready {
        let handle = handle.clone();
        tasks.spawn_blocking(move || {
            let outcome = open().and_then(|task| handle.block_on(task.run()));
            (id, outcome)
        });
    }
    Ok(Running { tasks, statuses, sources, barriers, others, events })
}

/// The senders of a task, by edge, each in the order of the readers' index.
type Senders = BTreeMap<graph::EdgeId, Vec<Sender>>;
/// The receivers of a task.
type Receivers = Vec<From>;

/// One channel into a task.
struct From {
    edge: graph::EdgeId,
    /// The number of the subtask that sends.
    index: u32,
    receiver: Receiver,
}

fn channels(plan: &Plan, announce: Announce) -> (BTreeMap<TaskId, Senders>, BTreeMap<TaskId, Receivers>) {
    let mut senders: BTreeMap<TaskId, Senders> = BTreeMap::new();
    let mut receivers: BTreeMap<TaskId, Receivers> = BTreeMap::new();
    let indexes = plan.tasks().into_iter().map(|task| (task.id, task.index)).collect::<BTreeMap<_, _>>();
    for channel in plan.channels() {
        let (to, receiver) = link(Capacity::default(), announce);
        senders.entry(channel.from).or_default().entry(channel.edge).or_default().push(to);
        let from = From { edge: channel.edge, index: indexes[&channel.from], receiver };
        receivers.entry(channel.to).or_default().push(from);
    }
    (senders, receivers)
}

/// Opens a task in its own thread.
type Open = Box<dyn FnOnce() -> Result<Task, TaskError> + Send>;
/// Opens an operator in its task's thread.
type OpenOperator = Box<dyn FnOnce() -> Result<OperatorSlot, TaskError> + Send>;

struct Wiring<'a> {
    job: &'a Job,
    recovered: &'a Recovered,
    counters: &'a Arc<JobCounters>,
    guards: &'a Guards,
    board: &'a SwapBoard,
    plan: &'a Plan,
    /// Shared by all operators of the job.
    block_cache: BlockCache,
}

/// What all RocksDBs of a job keep of their files in memory.
const BLOCK_CACHE_BYTES_MAX: usize = 64 << 20;

impl Wiring<'_> {
    fn subtask(&self, node: NodeId, index: u32) -> SubtaskId {
        SubtaskId { operator: self.plan.node(node).name.clone(), index }
    }

    fn chain_name(&self, task: &graph::Task) -> String {
        let nodes = &self.plan.chain(task.chain).nodes;
        let names = nodes.iter().map(|&node| self.subtask(node, task.index).to_string());
        names.collect::<Vec<_>>().join(" -> ")
    }

    /// What the channel of an edge is that comes from subtask `index`.
    fn label(&self, edge: graph::EdgeId, index: u32) -> InputLabel {
        let edge = self.plan.edge(edge);
        let output = self.plan.node(edge.from).outputs[edge.port as usize].clone();
        let input = self.plan.node(edge.to).inputs.get(edge.input as usize);
        InputLabel {
            port: edge.input,
            // A sink's one input has no name.
            name: input.map(|input| input.name.clone()).unwrap_or_default(),
            from: self.subtask(edge.from, index),
            output,
            exchange: edge.exchange,
        }
    }

    fn task(
        &self,
        task: &graph::Task,
        senders: Senders,
        receivers: Receivers,
        labels: Vec<Arc<InputLabel>>,
        wires: Wires,
    ) -> Result<Open, RunError> {
        let nodes = &self.plan.chain(task.chain).nodes;
        let mut operators = Vec::<OpenOperator>::new();
        let mut head = None;
        let mut tail = None;
        for (place, &node) in nodes.iter().enumerate() {
            match self.plan.node(node).kind {
                NodeKind::Source => head = Some(self.source(node, task.index)?),
                NodeKind::Operator => operators.push(self.operator(task, place)),
                NodeKind::Sink => tail = Some(self.sink(node, task.index)?),
            }
        }
        let head = head.unwrap_or_else(|| {
            let concurrent_max = self.job.checkpoints.concurrent_max.get() as usize;
            let aligner = Aligner::new(self.job.alignment, receivers.len(), concurrent_max);
            let receivers = receivers.into_iter().map(|from| from.receiver).collect();
            Head::Inputs { inputs: Inputs::new(receivers), labels, aligner }
        });
        let tail = tail.unwrap_or_else(|| Tail::Outlets(self.outlets(senders)));
        let id = task.id;
        let taking_up = self.taking_up(task);
        Ok(Box::new(move || {
            let operators = operators.into_iter().map(|open| open()).collect::<Result<_, _>>()?;
            let restored = taking_up.run()?;
            Ok(Task { id, head, chain: Chain::new(operators, tail, restored), wires })
        }))
    }

    /// What is to be taken up of the records that were in flight to the operators and the sink of a task.
    fn taking_up(&self, task: &graph::Task) -> TakingUp {
        let chain = self.plan.chain(task.chain);
        let place = Place { index: task.index, parallelism: chain.parallelism };
        let readers = chain.nodes.iter().filter(|node| self.plan.node(**node).kind != NodeKind::Source);
        let reader = |&node: &NodeId| {
            let edges = (0..self.plan.edges.len()).map(graph::EdgeId);
            let into = edges.filter(|edge| self.plan.edge(*edge).to == node);
            let parts = self.restored(&self.plan.node(node).name).unwrap_or_default();
            Reader {
                subtask: self.subtask(node, task.index),
                labels: into.map(|edge| self.label(edge, task.index)).collect(),
                in_flight: parts.iter().map(|part| part.in_flight.clone()).collect(),
            }
        };
        TakingUp {
            store: self.recovered.store.clone(),
            max_parallelism: self.job.max_parallelism,
            place,
            readers: readers.map(reader).collect(),
        }
    }

    fn outlets(&self, senders: Senders) -> Vec<Outlet> {
        let outlet = |(edge, senders): (graph::EdgeId, Vec<Sender>)| {
            let edge = self.plan.edge(edge);
            let without_key = match self.plan.node(edge.to).keyed {
                true => WithoutKey::Refused,
                false => WithoutKey::InTurn { next: 0 },
            };
            let exchange = match edge.exchange {
                graph::Exchange::Forward => Exchange::Forward,
                graph::Exchange::Hash => Exchange::Hash(self.job.max_parallelism, without_key),
                graph::Exchange::Rebalance => Exchange::Rebalance { next: 0 },
                graph::Exchange::Broadcast => Exchange::Broadcast,
            };
            Outlet::new(edge.port, self.plan.node(edge.to).name.clone(), exchange, senders)
        };
        senders.into_iter().map(outlet).collect()
    }

    /// The parts of the restored checkpoint that belong to one source, operator or sink.
    fn restored(&self, name: &Name) -> Option<&[SubtaskSnapshot]> {
        let manifest = self.recovered.manifest.as_ref()?;
        manifest.operators.get(name).map(|operator| &operator.subtasks[..])
    }

    fn source(&self, node: NodeId, index: u32) -> Result<Head, RunError> {
        let subtask = self.subtask(node, index);
        let name = &subtask.operator;
        let context = self.recovered.context(self.job, name, self.plan.node(node).parallelism);
        let failed = |source| RunError::Connector { job: self.job.name.clone(), source: Box::new(source) };
        let source = &self.job.sources[name];
        let mut reader = open_source(&source.options, &source.event_time, &context, index).map_err(failed)?;
        let parts = self.restored(name);
        let splits = parts.into_iter().flatten().flat_map(|part| part.splits.clone()).collect::<Vec<_>>();
        let splits = progress::taken_up(self.job, self.recovered, name, splits)?;
        if parts.is_some() || !splits.is_empty() {
            reader.restore(&splits).map_err(failed)?;
        }
        let mut reader = progress::recorded(self.job, self.recovered, &subtask, reader)?;
        if self.job.operators.values().any(|operator| operator.on_error == OnError::DeadLetter) {
            reader = Box::new(Traced(reader));
        }
        let time = SourceTime::new(source.watermarks, &*reader);
        let counters = self.counters.subtask(&subtask);
        Ok(Head::Source { subtask, reader, time, counters })
    }

    fn sink(&self, node: NodeId, index: u32) -> Result<Tail, RunError> {
        let subtask = self.subtask(node, index);
        let writer = self.recovered.sinks.writer(&subtask.operator, index);
        let writer =
            writer.map_err(|source| RunError::Connector { job: self.job.name.clone(), source: Box::new(source) })?;
        let counters = self.counters.subtask(&subtask);
        Ok(Tail::Sink { subtask, writer, counters })
    }

    fn operator(&self, task: &graph::Task, place: usize) -> OpenOperator {
        let chain = self.plan.chain(task.chain);
        let subtask = self.subtask(chain.nodes[place], task.index);
        let before = place.checked_sub(1).and_then(|before| self.plan.edge_within(task.chain, before));
        let after = self.plan.edge_within(task.chain, place);
        let operator = &self.job.operators[&subtask.operator];
        let counters = self.counters.subtask(&subtask);
        let guard = self.guards.guard(self.job, self.recovered.attempt, &subtask, &counters);
        let opener = Opener {
            job: self.job.name.clone(),
            subtask: subtask.clone(),
            parallelism: chain.parallelism,
            config_json: operator.config_json.clone(),
            limits: operator.limits,
            guard,
            examiner: self.guards.examiner(self.job, &subtask),
            epoch: SharedEpoch::behind(self.recovered.manifest.as_ref().map(|manifest| manifest.epoch)),
            counters: Arc::clone(&counters),
        };
        let opening = Opening {
            factory: Arc::clone(&operator.factory),
            restored: self.restored(&subtask.operator).map(<[_]>::to_vec).unwrap_or_default(),
            store: self.recovered.store.clone(),
            options: self.state_options(&subtask, chain.parallelism),
            context: opener.context(None),
        };
        let board = self.board.clone();
        let pace = Pace::new(&operator.limits);
        let (chained_input, chained_port) = (before.map_or(0, |edge| edge.input), after.map_or(0, |edge| edge.port));
        Box::new(move || {
            let (instance, operator_state) = opening.open()?;
            let instance = opener.guarded(instance);
            let swaps = Swaps { board, reopen: Box::new(move |factory, state| opener.reopen(factory, state)) };
            Ok(OperatorSlot { subtask, instance, chained_input, chained_port, operator_state, counters, swaps, pace })
        })
    }

    fn state_options(&self, subtask: &SubtaskId, parallelism: u32) -> StateOptions {
        let operator = &self.job.operators[&subtask.operator];
        let max_parallelism = self.job.max_parallelism;
        StateOptions {
            work_dir: self.recovered.work_folder.join(subtask.operator.as_str()).join(subtask.index.to_string()),
            subtask: subtask.clone(),
            key_groups: max_parallelism.range(subtask.index, parallelism),
            max_parallelism,
            attempt: self.recovered.attempt,
            tables: operator.factory.descriptor().stored_tables(),
            memory_bytes_max: operator.state_memory_bytes_max,
            block_cache: self.block_cache.clone(),
        }
    }
}

/// What opening an operator needs.
pub(super) struct Opening {
    pub(super) factory: Arc<dyn OperatorFactory>,
    /// The parts of all subtasks of the checkpoint.
    pub(super) restored: Vec<SubtaskSnapshot>,
    pub(super) store: CheckpointStore,
    pub(super) options: StateOptions,
    pub(super) context: InstanceContext,
}

impl Opening {
    pub(super) fn open(mut self) -> Result<(Box<dyn OperatorInstance>, Vec<u8>), TaskError> {
        let subtask = self.context.subtask.clone();
        if !self.options.tables.is_empty() {
            let all = self.restored.iter().filter_map(|part| part.keyed.clone()).collect();
            let state = keyed::open(&self.store, self.options, all);
            let failed = |source| TaskError::State { subtask: subtask.clone(), source };
            self.context.state = Some(state.map_err(failed)?);
        }
        let redistribution = self.factory.descriptor().redistribution;
        let dealt = redistribution.dealt(subtask.index, self.context.parallelism, self.restored.len() as u32);
        let dealt = dealt.into_iter().map(|old| &self.restored[old as usize]);
        let mut states = Vec::new();
        for file in dealt.filter_map(|part| part.operator_state.as_ref()) {
            let read = Handle::current().block_on(self.store.read(file));
            states.push(read.map_err(|source| TaskError::Restore { subtask: subtask.clone(), source })?.to_vec());
        }
        let mut instance = self.factory.open(self.context)?;
        if !states.is_empty() {
            instance.restore(&states)?;
        }
        // States that are merged from several subtasks give another one at the next snapshot.
        let operator_state = if states.len() == 1 { states.remove(0) } else { Vec::new() };
        Ok((instance, operator_state))
    }
}
