//! The checks of a job's shape, in the order in which their errors help most.
//!
//! Invariant: what passes has nodes in an order in which every edge goes forward, every operator and sink is reached from a
//! source, and every source and operator reaches a sink.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{
    Edge, Exchange, Graph, GraphError, InputRef, Node, NodeId, NodeKind, OperatorFacts, Warning, nearest,
};
use crate::id::Name;

pub(super) struct Checked {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub warnings: Vec<Warning>,
}

/// A node with what the job file says of it.
struct Draft<'a> {
    node: Node,
    inputs: &'a [InputRef],
    exchange: Option<Exchange>,
}

impl Draft<'_> {
    fn kind(&self) -> &'static str {
        match self.node.kind {
            NodeKind::Source => "source",
            NodeKind::Operator => "operator",
            NodeKind::Sink => "sink",
        }
    }
}

/// Checks all that can be told without knowing the operators.
pub(super) fn check_shape(graph: &Graph) -> Result<(), GraphError> {
    shape(graph).map(drop)
}

/// Checks everything.
pub(super) fn check(graph: &Graph, facts: &BTreeMap<Name, OperatorFacts>) -> Result<Checked, GraphError> {
    let mut drafts = shape(graph)?;
    for draft in &mut drafts {
        if draft.node.kind == NodeKind::Operator {
            let name = draft.node.name.clone();
            let facts = facts.get(&name).ok_or(GraphError::NoFacts { name })?;
            draft.node.outputs.clone_from(&facts.outputs);
            draft.node.keyed = facts.keyed;
        }
    }
    let mut edges = Vec::new();
    for (place, draft) in drafts.iter().enumerate() {
        for input in draft.inputs {
            edges.push(edge(&drafts, NodeId(place), input)?);
        }
    }
    edges.sort_unstable();
    check_doubles(&drafts, &edges)?;
    let warnings = unread_ports(&drafts, &edges);
    Ok(Checked { nodes: drafts.into_iter().map(|draft| draft.node).collect(), edges, warnings })
}

/// The nodes in the order of the stream, with nothing filled in of what operators say themselves.
fn shape(graph: &Graph) -> Result<Vec<Draft<'_>>, GraphError> {
    if graph.sources.is_empty() {
        return Err(GraphError::NoSource);
    }
    if graph.sinks.is_empty() {
        return Err(GraphError::NoSink);
    }
    let drafts = drafts(graph);
    check_names(&drafts)?;
    check_parallelism(&drafts, graph.max_parallelism.key_groups())?;
    check_inputs(&drafts)?;
    let drafts = in_stream_order(drafts)?;
    check_read(&drafts)?;
    Ok(drafts)
}

/// Sources, operators and sinks as one list, ordered by kind and name.
fn drafts(graph: &Graph) -> Vec<Draft<'_>> {
    fn node(name: &Name, kind: NodeKind, parallelism: u32) -> Node {
        Node { name: name.clone(), kind, parallelism, outputs: Vec::new(), keyed: false }
    }
    let sources = graph.sources.iter().map(|source| {
        let node = Node { outputs: vec![String::new()], ..node(&source.name, NodeKind::Source, source.parallelism) };
        Draft { node, inputs: &[], exchange: None }
    });
    let operators = graph.operators.iter().map(|operator| {
        let node = node(&operator.name, NodeKind::Operator, operator.parallelism);
        Draft { node, inputs: &operator.inputs, exchange: operator.exchange }
    });
    let sinks = graph.sinks.iter().map(|sink| {
        let node = node(&sink.name, NodeKind::Sink, sink.parallelism);
        Draft { node, inputs: &sink.inputs, exchange: None }
    });
    let mut drafts = sources.chain(operators).chain(sinks).collect::<Vec<_>>();
    drafts.sort_by(|a, b| (a.node.kind, &a.node.name).cmp(&(b.node.kind, &b.node.name)));
    drafts
}

fn check_names(drafts: &[Draft<'_>]) -> Result<(), GraphError> {
    let mut seen = BTreeMap::new();
    for draft in drafts {
        let second = article(draft.node.kind);
        if let Some(first) = seen.insert(&draft.node.name, second) {
            let second = if first == second { "another one" } else { second };
            return Err(GraphError::DuplicateName { name: draft.node.name.clone(), first, second });
        }
    }
    Ok(())
}

fn article(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Source => "a source",
        NodeKind::Operator => "an operator",
        NodeKind::Sink => "a sink",
    }
}

fn check_parallelism(drafts: &[Draft<'_>], max: u32) -> Result<(), GraphError> {
    match drafts.iter().find(|draft| !(1..=max).contains(&draft.node.parallelism)) {
        None => Ok(()),
        Some(draft) => {
            let (kind, name) = (draft.kind(), draft.node.name.clone());
            Err(GraphError::Parallelism { kind, name, parallelism: draft.node.parallelism, max })
        }
    }
}

/// Everything that is read exists and has an output; everything but a source reads something.
fn check_inputs(drafts: &[Draft<'_>]) -> Result<(), GraphError> {
    let kinds = drafts.iter().map(|draft| (&draft.node.name, draft.node.kind)).collect::<BTreeMap<_, _>>();
    for draft in drafts {
        let (kind, name) = (draft.kind(), &draft.node.name);
        if draft.node.kind != NodeKind::Source && draft.inputs.is_empty() {
            return Err(GraphError::NotFed { kind, name: name.clone() });
        }
        for input in draft.inputs {
            let (name, input) = (name.clone(), input.from.clone());
            match kinds.get(&input) {
                None => {
                    let others = kinds.iter().filter(|(other, kind)| ***other != name && **kind != NodeKind::Sink);
                    let nearest = nearest(input.as_str(), others.map(|(other, _)| other.as_str())).map(str::to_owned);
                    return Err(GraphError::UnknownInput { kind, name, input, nearest });
                }
                Some(NodeKind::Sink) => return Err(GraphError::ReadsSink { kind, name, input }),
                Some(NodeKind::Source | NodeKind::Operator) if name == input => {
                    return Err(GraphError::SelfLoop { name });
                }
                Some(NodeKind::Source | NodeKind::Operator) => {}
            }
        }
    }
    Ok(())
}

/// The nodes, each after all that it reads; among those that could come next, the first in the order given.
fn in_stream_order(mut drafts: Vec<Draft<'_>>) -> Result<Vec<Draft<'_>>, GraphError> {
    let mut placed = BTreeSet::new();
    let mut ordered = Vec::with_capacity(drafts.len());
    while !drafts.is_empty() {
        let ready = drafts.iter().position(|draft| draft.inputs.iter().all(|input| placed.contains(&input.from)));
        let Some(ready) = ready else { return Err(cycle(&drafts)) };
        let draft = drafts.remove(ready);
        placed.insert(draft.node.name.clone());
        ordered.push(draft);
    }
    Ok(ordered)
}

/// A cycle among nodes of which each reads another one of them.
fn cycle(stuck: &[Draft<'_>]) -> GraphError {
    let by_name = stuck.iter().map(|draft| (&draft.node.name, draft)).collect::<BTreeMap<_, _>>();
    let mut trail = vec![&stuck[0].node.name];
    let start = loop {
        // Upstream until a node comes again; there are finitely many, so one does.
        let draft = by_name[trail[trail.len() - 1]];
        let upstream = draft.inputs.iter().map(|input| &input.from).filter(|from| by_name.contains_key(from)).min();
        let upstream = upstream.expect("a node that can't be placed waits for another one");
        let before = trail.iter().position(|name| *name == upstream);
        trail.push(upstream);
        if let Some(before) = before {
            break before;
        }
    };
    let mut names = trail[start..].iter().rev().map(|name| (*name).clone()).collect::<Vec<_>>();
    names.pop();
    // Whatever node was met first, the cycle is told from the smallest name.
    let smallest = (0..names.len()).min_by_key(|&place| &names[place]).expect("a cycle has nodes");
    names.rotate_left(smallest);
    names.push(names[0].clone());
    GraphError::Cycle { names }
}

/// The edge of one input of node `to`.
fn edge(drafts: &[Draft<'_>], to: NodeId, input: &InputRef) -> Result<Edge, GraphError> {
    let reader = &drafts[to.0];
    let (kind, name, from_name) = (reader.kind(), reader.node.name.clone(), input.from.clone());
    let from = drafts.iter().position(|draft| draft.node.name == input.from).expect("inputs were checked");
    let writer = &drafts[from].node;
    let port = match &input.port {
        None => Some(0),
        // A source's one output has no name, so it isn't found by one.
        Some(port) => writer.outputs.iter().position(|output| output == port && !output.is_empty()),
    };
    let Some(port) = port else {
        let port = input.port.clone().unwrap_or_default();
        let ports = writer.outputs.iter().filter(|output| !output.is_empty()).cloned().collect::<Vec<_>>();
        let nearest = nearest(&port, ports.iter().map(String::as_str)).map(str::to_owned);
        return Err(GraphError::UnknownPort { kind, name, from: from_name, port, ports, nearest });
    };
    let input_number = match reader.node.kind {
        NodeKind::Source | NodeKind::Sink => 0,
        NodeKind::Operator => input.input,
    };
    let exchange = exchange(reader, writer)?;
    Ok(Edge { from: NodeId(from), port: port as u32, to, input: input_number, exchange })
}

/// Hash where there is keyed state; else what the job file asks for; else forward where it is possible.
fn exchange(reader: &Draft<'_>, writer: &Node) -> Result<Exchange, GraphError> {
    let equal = reader.node.parallelism == writer.parallelism;
    let (name, parallelism) = (reader.node.name.clone(), reader.node.parallelism);
    match reader.exchange {
        Some(Exchange::Hash) => Ok(Exchange::Hash),
        Some(asked) if reader.node.keyed => Err(GraphError::KeyedExchange { name, asked }),
        None if reader.node.keyed => Ok(Exchange::Hash),
        Some(Exchange::Forward) if !equal => {
            let (from, from_parallelism) = (writer.name.clone(), writer.parallelism);
            Err(GraphError::UnequalForward { name, parallelism, from, from_parallelism })
        }
        Some(asked) => Ok(asked),
        None if equal => Ok(Exchange::Forward),
        None => Ok(Exchange::Rebalance),
    }
}

/// Every source and operator is read by somebody.
fn check_read(drafts: &[Draft<'_>]) -> Result<(), GraphError> {
    let read = drafts.iter().flat_map(|draft| draft.inputs).map(|input| &input.from).collect::<BTreeSet<_>>();
    match drafts.iter().find(|draft| draft.node.kind != NodeKind::Sink && !read.contains(&draft.node.name)) {
        None => Ok(()),
        Some(draft) => Err(GraphError::NotRead { kind: draft.kind(), name: draft.node.name.clone() }),
    }
}

/// No input reads an output twice. Takes sorted edges.
fn check_doubles(drafts: &[Draft<'_>], edges: &[Edge]) -> Result<(), GraphError> {
    let same = |pair: &&[Edge]| Edge { exchange: pair[1].exchange, ..pair[0] } == pair[1];
    match edges.windows(2).find(same) {
        None => Ok(()),
        Some(pair) => {
            let (reader, from) = (&drafts[pair[0].to.0], drafts[pair[0].from.0].node.name.clone());
            Err(GraphError::ReadsTwice { kind: reader.kind(), name: reader.node.name.clone(), from })
        }
    }
}

fn unread_ports(drafts: &[Draft<'_>], edges: &[Edge]) -> Vec<Warning> {
    let operators = drafts.iter().enumerate().filter(|(_, draft)| draft.node.kind == NodeKind::Operator);
    let unread = operators.flat_map(|(place, draft)| {
        let is_read = move |port| edges.iter().any(|edge| edge.from.0 == place && edge.port == port);
        (0u32..).zip(&draft.node.outputs).filter(move |(port, _)| !is_read(*port)).map(move |(_, port)| (draft, port))
    });
    unread.map(|(draft, port)| Warning::OutputNotRead { name: draft.node.name.clone(), port: port.clone() }).collect()
}
