//! A checked plan: nodes, edges, the chains that run as one task, and the channels between tasks.
//!
//! Invariant: every edge is either inside exactly one chain or carried by channels; every node is in exactly one chain. Nodes are
//! in an order in which every edge goes forward.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::graph::chain::chains;
use crate::graph::check::{check, check_shape};
use crate::graph::guarantee::check_guarantee;
use crate::graph::{Graph, GraphError, InputFacts, OperatorFacts, Warning};
use crate::id::{Name, TaskId};

/// A place in [`Plan::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A place in [`Plan::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub usize);

/// A place in [`Plan::chains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    Source,
    Operator,
    Sink,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeKind::Source => "source",
            NodeKind::Operator => "operator",
            NodeKind::Sink => "sink",
        })
    }
}

/// A source, operator or sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Name,
    pub kind: NodeKind,
    pub parallelism: u32,
    /// The names of its outputs: one without a name for a source, none for a sink.
    pub outputs: Vec<String>,
    /// Its inputs: none for a source, one without a name for a sink.
    pub inputs: Vec<InputFacts>,
    /// Whether it keeps state or timers by key.
    pub keyed: bool,
    /// Which of its outputs takes the records that it couldn't process; the last one, if any.
    pub dead_letters: Option<u32>,
}

impl Node {
    /// What an edge from one of its outputs is told apart by, where there are several.
    pub fn output_name(&self, port: u32) -> Option<&str> {
        self.outputs.get(port as usize).filter(|_| self.outputs.len() > 1).map(String::as_str)
    }

    /// The same for its inputs.
    pub fn input_name(&self, input: u32) -> Option<&str> {
        self.inputs.get(input as usize).filter(|_| self.inputs.len() > 1).map(|input| input.name.as_str())
    }
}

/// How records are dealt to the subtasks of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// Subtask i to subtask i.
    Forward,
    /// To the subtask that owns the key group.
    Hash,
    /// To all subtasks in turn.
    Rebalance,
    /// Everything to every subtask.
    Broadcast,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exchange::Forward => "forward",
            Exchange::Hash => "hash",
            Exchange::Rebalance => "rebalance",
            Exchange::Broadcast => "broadcast",
        })
    }
}

/// What connects an output of one node with an input of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: NodeId,
    pub port: u32,
    pub to: NodeId,
    pub input: u32,
    pub exchange: Exchange,
}

/// Nodes that run in one task, joined by forward edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// In the order of the stream; at least one.
    pub nodes: Vec<NodeId>,
    /// That of each of its nodes, and the number of its tasks.
    pub parallelism: u32,
}

impl Chain {
    pub fn head(&self) -> NodeId {
        self.nodes[0]
    }

    pub fn end(&self) -> NodeId {
        self.nodes[self.nodes.len() - 1]
    }
}

/// One task: the subtasks number `index` of a chain's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub chain: ChainId,
    pub index: u32,
}

/// A link from one task to another, for one edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    pub edge: EdgeId,
    pub from: TaskId,
    pub to: TaskId,
}

/// A job that fits together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub nodes: Vec<Node>,
    /// Ordered by `from`, `port`, `to`, `input`.
    pub edges: Vec<Edge>,
    /// Ordered by their head.
    pub chains: Vec<Chain>,
    pub warnings: Vec<Warning>,
}

impl Plan {
    /// Checks what can be checked before any plugin is loaded: names, parallelism, inputs, cycles.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check_shape(graph: &Graph) -> Result<(), GraphError> {
        check_shape(graph)
    }

    /// Checks a job's shape and plans it. `facts` has an entry for every operator.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn new(graph: &Graph, facts: &BTreeMap<Name, OperatorFacts>) -> Result<Plan, GraphError> {
        let checked = check(graph, facts)?;
        let chains = chains(&checked.nodes, &checked.edges);
        let plan = Plan { nodes: checked.nodes, edges: checked.edges, chains, warnings: checked.warnings };
        check_guarantee(graph, &plan)?;
        Ok(plan)
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    pub fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.0]
    }

    pub fn chain(&self, id: ChainId) -> &Chain {
        &self.chains[id.0]
    }

    pub fn chain_ids(&self) -> impl Iterator<Item = ChainId> + use<> {
        (0..self.chains.len()).map(ChainId)
    }

    /// The chain that a node runs in.
    pub fn chain_of(&self, node: NodeId) -> ChainId {
        let place = self.chains.iter().position(|chain| chain.nodes.contains(&node));
        ChainId(place.expect("every node is in a chain"))
    }

    /// Whether a chain starts with a source, and so reads no channel.
    pub fn is_source(&self, chain: ChainId) -> bool {
        self.node(self.chain(chain).head()).kind == NodeKind::Source
    }

    /// The edges that leave a chain from its end, in the order of their ports and readers. Each is carried by channels.
    pub fn edges_out(&self, chain: ChainId) -> impl Iterator<Item = (EdgeId, &Edge)> {
        let end = self.chain(chain).end();
        self.edges_where(move |edge| edge.from == end)
    }

    /// The edges that enter a chain at its head. Each is carried by channels.
    pub fn edges_in(&self, chain: ChainId) -> impl Iterator<Item = (EdgeId, &Edge)> {
        let head = self.chain(chain).head();
        self.edges_where(move |edge| edge.to == head)
    }

    /// The edge from a node of a chain to the next node of that chain.
    pub fn edge_within(&self, chain: ChainId, position: usize) -> Option<&Edge> {
        let nodes = &self.chain(chain).nodes;
        let (from, to) = (*nodes.get(position)?, *nodes.get(position + 1)?);
        self.edges.iter().find(|edge| edge.from == from && edge.to == to)
    }

    fn edges_where(&self, wanted: impl Fn(&Edge) -> bool) -> impl Iterator<Item = (EdgeId, &Edge)> {
        self.edges.iter().enumerate().filter(move |(_, edge)| wanted(edge)).map(|(id, edge)| (EdgeId(id), edge))
    }

    /// All tasks, numbered from 0, chain by chain.
    pub fn tasks(&self) -> Vec<Task> {
        let places =
            self.chain_ids().flat_map(|chain| (0..self.chain(chain).parallelism).map(move |index| (chain, index)));
        places.zip(0u32..).map(|((chain, index), id)| Task { id: TaskId(id), chain, index }).collect()
    }

    /// The task that runs subtask `index` of a chain.
    pub fn task(&self, chain: ChainId, index: u32) -> TaskId {
        let before = self.chains[..chain.0].iter().map(|chain| chain.parallelism).sum::<u32>();
        TaskId(before + index)
    }

    /// All links between tasks, edge by edge: subtask i to i for forward edges, all to all for the others.
    pub fn channels(&self) -> Vec<Channel> {
        let carried = self.chain_ids().flat_map(|chain| self.edges_out(chain));
        let mut channels = Vec::new();
        for (id, edge) in carried {
            let (from, to) = (self.chain_of(edge.from), self.chain_of(edge.to));
            for writer in 0..self.chain(from).parallelism {
                for reader in 0..self.chain(to).parallelism {
                    if edge.exchange != Exchange::Forward || writer == reader {
                        channels.push(Channel { edge: id, from: self.task(from, writer), to: self.task(to, reader) });
                    }
                }
            }
        }
        channels
    }
}
