//! Makes the tasks of a plan, joins them with channels, and starts them.
//!
//! Opening operators and taking up their state happens in each task's own thread, side by side.
//!
//! Invariant: every channel of the plan has exactly one sender and one receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::pump::Running;
use super::recover::Recovered;
use super::{Job, RunError};
use crate::channel::{Capacity, Inputs, Receiver, Sender, link};
use crate::connector::{SplitState, open_sink_writer, open_source};
use crate::element::Barrier;
use crate::graph::{self, NodeId, NodeKind, Plan};
use crate::guest::{Counters, InstanceContext, OperatorFactory, OperatorInstance};
use crate::id::{Name, SubtaskId, TaskId};
use crate::state::{BlockCache, KeyedState, StateOptions, TransferError};
use crate::store::{CheckpointStore, KeyedSnapshot, SubtaskSnapshot};
use crate::task::{Chain, Exchange, Head, OperatorSlot, Outlet, Tail, Task, TaskError, TaskEvent, Wires};
use crate::telemetry::JobCounters;

/// Starts all tasks of a job.
///
/// # Errors
/// If a source or sink can't be opened. Then none is left running.
pub fn start(job: &Job, recovered: &Recovered, counters: &Arc<JobCounters>) -> Result<Running, RunError> {
    let plan = &job.plan;
    let (mut senders, mut receivers) = channels(plan);
    let (events_in, events) = mpsc::unbounded_channel::<TaskEvent>();
    let block_cache = BlockCache::new(BLOCK_CACHE_BYTES_MAX);
    let wiring = Wiring { job, recovered, counters, plan, block_cache };
    let mut ready = Vec::new();
    let (mut names, mut barriers, mut sources) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for task in plan.tasks() {
        let (barrier_in, barrier_out) = mpsc::channel::<Barrier>(1);
        if plan.is_source(task.chain) {
            barriers.push(barrier_in);
            sources.insert(task.id);
        }
        names.insert(task.id, wiring.chain_name(&task));
        let wires = Wires { events: events_in.clone(), barriers: barrier_out };
        let senders = senders.remove(&task.id).unwrap_or_default();
        let receivers = receivers.remove(&task.id).unwrap_or_default();
        ready.push((task.id, wiring.task(&task, senders, receivers, wires)?));
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
    Ok(Running { tasks, names, sources, barriers, events })
}

/// The senders of a task, by edge, each in the order of the readers' index.
type Senders = BTreeMap<graph::EdgeId, Vec<Sender>>;
/// The receivers of a task, each with its edge.
type Receivers = Vec<(graph::EdgeId, Receiver)>;

fn channels(plan: &Plan) -> (BTreeMap<TaskId, Senders>, BTreeMap<TaskId, Receivers>) {
    let mut senders: BTreeMap<TaskId, Senders> = BTreeMap::new();
    let mut receivers: BTreeMap<TaskId, Receivers> = BTreeMap::new();
    for channel in plan.channels() {
        let (to, from) = link(Capacity::default());
        senders.entry(channel.from).or_default().entry(channel.edge).or_default().push(to);
        receivers.entry(channel.to).or_default().push((channel.edge, from));
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

    fn task(&self, task: &graph::Task, senders: Senders, receivers: Receivers, wires: Wires) -> Result<Open, RunError> {
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
            let ports = receivers.iter().map(|(edge, _)| self.plan.edge(*edge).input).collect();
            let inputs = Inputs::new(receivers.into_iter().map(|(_, receiver)| receiver).collect());
            Head::Inputs { inputs, ports }
        });
        let tail = tail.unwrap_or_else(|| Tail::Outlets(self.outlets(senders)));
        let id = task.id;
        Ok(Box::new(move || {
            let operators = operators.into_iter().map(|open| open()).collect::<Result<_, _>>()?;
            Ok(Task { id, head, chain: Chain::new(operators, tail), wires })
        }))
    }

    fn outlets(&self, senders: Senders) -> Vec<Outlet> {
        let outlet = |(edge, senders): (graph::EdgeId, Vec<Sender>)| {
            let edge = self.plan.edge(edge);
            let exchange = match edge.exchange {
                graph::Exchange::Forward => Exchange::Forward,
                graph::Exchange::Hash => Exchange::Hash(self.job.max_parallelism),
                graph::Exchange::Rebalance => Exchange::Rebalance { next: 0 },
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
        let mut reader = open_source(&self.job.sources[name], &context, index).map_err(failed)?;
        if let Some(parts) = self.restored(name) {
            let splits: Vec<SplitState> = parts.iter().flat_map(|part| part.splits.clone()).collect();
            reader.restore(&splits).map_err(failed)?;
        }
        let counters = self.counters.subtask(&subtask);
        Ok(Head::Source { subtask, reader, counters })
    }

    fn sink(&self, node: NodeId, index: u32) -> Result<Tail, RunError> {
        let subtask = self.subtask(node, index);
        let name = &subtask.operator;
        let context = self.recovered.context(self.job, name, self.plan.node(node).parallelism);
        let writer = open_sink_writer(&self.job.sinks[name], &context, index);
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
        let opening = Opening {
            factory: Arc::clone(&operator.factory),
            restored: self.restored(&subtask.operator).map(<[_]>::to_vec).unwrap_or_default(),
            store: self.recovered.store.clone(),
            options: self.state_options(&subtask, chain.parallelism),
            context: InstanceContext {
                job: self.job.name.clone(),
                subtask: subtask.clone(),
                parallelism: chain.parallelism,
                config_json: operator.config_json.clone(),
                limits: operator.limits,
                rejections: false,
                state: None,
                counters: Counters::default(),
            },
        };
        let counters = self.counters.subtask(&subtask);
        let (chained_input, chained_port) = (before.map_or(0, |edge| edge.input), after.map_or(0, |edge| edge.port));
        Box::new(move || {
            let (instance, operator_state) = opening.open()?;
            Ok(OperatorSlot { subtask, instance, chained_input, chained_port, operator_state, counters })
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
struct Opening {
    factory: Arc<dyn OperatorFactory>,
    /// The parts of all subtasks of the checkpoint.
    restored: Vec<SubtaskSnapshot>,
    store: CheckpointStore,
    options: StateOptions,
    context: InstanceContext,
}

impl Opening {
    fn open(mut self) -> Result<(Box<dyn OperatorInstance>, Vec<u8>), TaskError> {
        let subtask = self.context.subtask.clone();
        if !self.options.tables.is_empty() {
            let range = self.options.key_groups;
            let keyed = self.restored.iter().filter_map(|part| part.keyed.clone());
            let own: Vec<KeyedSnapshot> = keyed.filter(|keyed| keyed.key_groups.overlaps(range)).collect();
            let store = self.store.clone();
            let fetch = move |file: &_, to: &Path| store.fetch(file, to).map_err(TransferError::from);
            let state = KeyedState::open(self.options, &own, &fetch);
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
