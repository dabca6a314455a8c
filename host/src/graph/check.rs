//! The checks of a job's shape, in the order in which their errors help most.
//!
//! Invariant: what passes has nodes in an order in which every edge goes forward, every operator and sink is reached from a
//! source, and every source and operator reaches a sink.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::edges::edges;
use crate::graph::warnings::warnings;
use crate::graph::{
    DEAD_LETTERS, Edge, Exchange, Graph, GraphError, InputFacts, InputRef, Node, NodeKind, OperatorFacts, SinkCommit,
    Warning, nearest,
};
use crate::id::Name;
use crate::protocol::OnError;

pub(super) struct Checked {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub warnings: Vec<Warning>,
}

/// A node with what the job file says of it.
pub(super) struct Draft<'a> {
    pub node: Node,
    pub inputs: &'a [InputRef],
    pub exchange: Option<Exchange>,
    /// Whether the order of the records of a key counts behind it.
    pub ordered: bool,
    on_error: OnError,
}

impl Draft<'_> {
    pub fn kind(&self) -> &'static str {
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
            fill_in(draft, facts)?;
        }
    }
    let edges = edges(&drafts)?;
    let nodes = drafts.into_iter().map(|draft| draft.node).collect::<Vec<_>>();
    let warnings = warnings(graph, &nodes, &edges);
    Ok(Checked { nodes, edges, warnings })
}

/// Fills in what an operator says of itself, and the output for what it can't process.
fn fill_in(draft: &mut Draft<'_>, facts: &OperatorFacts) -> Result<(), GraphError> {
    let node = &mut draft.node;
    if facts.outputs.iter().any(|output| output == DEAD_LETTERS) {
        return Err(GraphError::ReservedOutput { name: node.name.clone() });
    }
    node.outputs.clone_from(&facts.outputs);
    node.inputs.clone_from(&facts.inputs);
    node.keyed = facts.keyed;
    node.dead_letters = match draft.on_error {
        OnError::Fail | OnError::Skip => None,
        OnError::DeadLetter => {
            node.outputs.push(DEAD_LETTERS.to_owned());
            Some(facts.outputs.len() as u32)
        }
    };
    Ok(())
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
    let mut drafts = in_stream_order(drafts)?;
    check_read(&drafts)?;
    order_upstream(&mut drafts);
    check_deciders(graph)?;
    Ok(drafts)
}

/// What decides over a checkpoint is one transaction.
fn check_deciders(graph: &Graph) -> Result<(), GraphError> {
    let mut deciders = graph.sinks.iter().filter_map(|sink| match &sink.commit {
        SinkCommit::Deciding { place } => Some((&sink.name, place)),
        SinkCommit::TwoPhase | SinkCommit::Plain | SinkCommit::Discarded => None,
    });
    let Some((first, first_place)) = deciders.next() else { return Ok(()) };
    match deciders.find(|(_, place)| *place != first_place) {
        None => Ok(()),
        Some((second, second_place)) => Err(GraphError::TwoDeciders {
            first: first.clone(),
            first_place: first_place.clone(),
            second: second.clone(),
            second_place: second_place.clone(),
        }),
    }
}

/// An order that counts at a sink counts all the way to it. Takes drafts in the order of the stream.
fn order_upstream(drafts: &mut [Draft<'_>]) {
    for place in (0..drafts.len()).rev() {
        if !drafts[place].ordered {
            continue;
        }
        let inputs = drafts[place].inputs;
        let is_read = |draft: &Draft<'_>| inputs.iter().any(|input| input.from == draft.node.name);
        drafts[..place].iter_mut().filter(|draft| is_read(draft)).for_each(|draft| draft.ordered = true);
    }
}

/// Sources, operators and sinks as one list, ordered by kind and name.
fn drafts(graph: &Graph) -> Vec<Draft<'_>> {
    fn node(name: &Name, kind: NodeKind, parallelism: u32) -> Node {
        let (outputs, inputs) = (Vec::new(), Vec::new());
        Node { name: name.clone(), kind, parallelism, outputs, inputs, keyed: false, dead_letters: None }
    }
    let on_error = OnError::Fail;
    let sources = graph.sources.iter().map(|source| {
        let node = Node { outputs: vec![String::new()], ..node(&source.name, NodeKind::Source, source.parallelism) };
        Draft { node, inputs: &[], exchange: None, ordered: false, on_error }
    });
    let operators = graph.operators.iter().map(|operator| {
        let node = node(&operator.name, NodeKind::Operator, operator.parallelism);
        let on_error = operator.on_error;
        Draft { node, inputs: &operator.inputs, exchange: operator.exchange, ordered: false, on_error }
    });
    let sinks = graph.sinks.iter().map(|sink| {
        let inputs = vec![InputFacts { name: String::new(), broadcast: false }];
        let node = Node { inputs, ..node(&sink.name, NodeKind::Sink, sink.parallelism) };
        Draft { node, inputs: &sink.inputs, exchange: None, ordered: sink.ordered, on_error }
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

/// Every source and operator is read by somebody.
fn check_read(drafts: &[Draft<'_>]) -> Result<(), GraphError> {
    let read = drafts.iter().flat_map(|draft| draft.inputs).map(|input| &input.from).collect::<BTreeSet<_>>();
    match drafts.iter().find(|draft| draft.node.kind != NodeKind::Sink && !read.contains(&draft.node.name)) {
        None => Ok(()),
        Some(draft) => Err(GraphError::NotRead { kind: draft.kind(), name: draft.node.name.clone() }),
    }
}
