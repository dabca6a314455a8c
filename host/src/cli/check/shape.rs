//! The plan of a job as plain data: what shares a task, and what connects the tasks.
//!
//! Invariant: it is in the order of the plan, and every name in it is one that the user chose or an operator declared.

use serde::Serialize;

use crate::graph::{ChainId, Edge, EdgeId, Exchange, Graph, Node, NodeKind, Plan};

#[derive(Debug, Serialize)]
pub(super) struct Shape {
    pub chains: Vec<ChainShape>,
    pub exchanges: Vec<ExchangeShape>,
}

/// Nodes that share a task.
#[derive(Debug, Serialize)]
pub(super) struct ChainShape {
    pub nodes: Vec<NodeShape>,
    pub tasks: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeShape {
    pub name: String,
    pub kind: String,
    /// Where an operator has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ExchangeShape {
    pub from: String,
    /// Where the writer has several outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    pub to: String,
    /// The number of the reader's input.
    pub input: u32,
    /// Where the reader has several inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_name: Option<String>,
    pub exchange: Exchange,
    pub from_parallelism: u32,
    pub to_parallelism: u32,
    /// Whether it stays inside one task.
    pub chained: bool,
    /// Whether it carries what the writer couldn't process.
    pub dead_letters: bool,
    /// The chains at its ends, by their place.
    #[serde(skip)]
    pub chains: (usize, usize),
    pub why: String,
}

impl Shape {
    pub fn new(graph: &Graph, plan: &Plan) -> Shape {
        let chains = plan.chains.iter().map(|chain| ChainShape {
            nodes: chain.nodes.iter().map(|&id| node(plan.node(id))).collect(),
            tasks: chain.parallelism,
        });
        let exchanges = (0..plan.edges.len()).map(|id| exchange(graph, plan, plan.edge(EdgeId(id))));
        Shape { chains: chains.collect(), exchanges: exchanges.collect() }
    }
}

impl ExchangeShape {
    /// `name` or `name:output`.
    pub fn writer(&self) -> String {
        self.output.as_ref().map_or_else(|| self.from.clone(), |output| format!("{}:{output}", self.from))
    }

    /// `name` or `name.input`.
    pub fn reader(&self) -> String {
        self.input_name.as_ref().map_or_else(|| self.to.clone(), |input| format!("{}.{input}", self.to))
    }

    /// The exchange, and how many subtasks it leads from and to.
    pub fn label(&self) -> String {
        format!("{} {}→{}", self.exchange, self.from_parallelism, self.to_parallelism)
    }
}

fn node(node: &Node) -> NodeShape {
    let several = node.kind == NodeKind::Operator && node.inputs.len() > 1;
    let inputs = node.inputs.iter().filter(|_| several).map(|input| input.name.clone()).collect();
    NodeShape { name: node.name.to_string(), kind: node.kind.to_string(), inputs }
}

fn exchange(graph: &Graph, plan: &Plan, edge: &Edge) -> ExchangeShape {
    let (from, to) = (plan.node(edge.from), plan.node(edge.to));
    let (ChainId(from_chain), ChainId(to_chain)) = (plan.chain_of(edge.from), plan.chain_of(edge.to));
    ExchangeShape {
        from: from.name.to_string(),
        output: from.output_name(edge.port).map(str::to_owned),
        to: to.name.to_string(),
        input: edge.input,
        input_name: to.input_name(edge.input).map(str::to_owned),
        exchange: edge.exchange,
        from_parallelism: from.parallelism,
        to_parallelism: to.parallelism,
        chained: from_chain == to_chain,
        dead_letters: from.dead_letters == Some(edge.port),
        chains: (from_chain, to_chain),
        why: why(graph, edge, from, to),
    }
}

fn why(graph: &Graph, edge: &Edge, from: &Node, to: &Node) -> String {
    let asked =
        graph.operators.iter().any(|operator| operator.name == to.name && operator.exchange == Some(edge.exchange));
    let counts = format!("{} → {}", from.parallelism, to.parallelism);
    let broadcast = to.inputs.get(edge.input as usize).is_some_and(|input| input.broadcast);
    match (edge.exchange, asked) {
        (Exchange::Broadcast, _) if broadcast => format!("{counts}, all to each: the input is a broadcast"),
        (Exchange::Hash, _) if to.keyed => format!("{counts}, by key group: {} has keyed state", to.name),
        (Exchange::Forward | Exchange::Rebalance | Exchange::Hash | Exchange::Broadcast, true) => {
            format!("{counts}, as the job file says")
        }
        (Exchange::Hash, false) => format!("{counts}, by key group: a sink behind it keeps the order within each key"),
        (Exchange::Forward, false) => format!("{counts}, each to its own"),
        (Exchange::Rebalance, false) => format!("{counts}, in turn"),
        (Exchange::Broadcast, false) => format!("{counts}, all to each"),
    }
}

/// `1 task`, `2 tasks`.
pub(super) fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
