//! What is probably a mistake in a job that can run.
//!
//! Invariant: a warning says which part of the job it is about, and what to change.

use std::collections::BTreeSet;

use crate::graph::{Edge, Exchange, Graph, Node, NodeId, NodeKind, Warning};
use crate::id::Name;

/// The warnings of a checked graph, in the order of the stream.
pub(super) fn warnings(graph: &Graph, nodes: &[Node], edges: &[Edge]) -> Vec<Warning> {
    let mut warnings = unread_outputs(nodes, edges);
    warnings.extend(multiplied(nodes, edges));
    warnings.extend(held_back(graph, nodes, edges));
    warnings.extend(silent_splits(graph));
    warnings
}

fn unread_outputs(nodes: &[Node], edges: &[Edge]) -> Vec<Warning> {
    let operators = nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Operator);
    let unread = operators.flat_map(|(place, node)| {
        let is_read = move |port| edges.iter().any(|edge| edge.from.0 == place && edge.port == port);
        (0u32..).zip(&node.outputs).filter(move |(port, _)| !is_read(*port)).map(move |(_, port)| (node, port))
    });
    unread.map(|(node, port)| Warning::OutputNotRead { name: node.name.clone(), port: port.clone() }).collect()
}

/// Inputs that are broadcast because the job file says so.
fn multiplied(nodes: &[Node], edges: &[Edge]) -> Vec<Warning> {
    let asked = edges.iter().filter(|edge| {
        let reader = &nodes[edge.to.0];
        edge.exchange == Exchange::Broadcast && reader.parallelism > 1 && !reader.inputs[edge.input as usize].broadcast
    });
    let reader_and_writer = |edge: &Edge| {
        let (reader, writer) = (&nodes[edge.to.0], &nodes[edge.from.0]);
        (reader.name.clone(), writer.name.clone(), reader.parallelism)
    };
    let all = asked.map(reader_and_writer).collect::<BTreeSet<_>>();
    all.into_iter().map(|(name, from, times)| Warning::Multiplied { name, from, times }).collect()
}

/// Where a source with watermarks meets one without, which holds the watermark back until it ends.
fn held_back(graph: &Graph, nodes: &[Node], edges: &[Edge]) -> Vec<Warning> {
    let time_of =
        |name: &Name| graph.sources.iter().find(|source| source.name == *name).map(|source| source.event_time);
    let mut upstream: Vec<BTreeSet<usize>> = Vec::with_capacity(nodes.len());
    let mut said = BTreeSet::new();
    let mut warnings = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let mut sources = BTreeSet::new();
        if node.kind == NodeKind::Source {
            sources.insert(place);
        }
        for edge in edges.iter().filter(|edge| edge.to == NodeId(place)) {
            sources.extend(&upstream[edge.from.0]);
        }
        let times = || sources.iter().filter_map(|&source| Some((source, time_of(&nodes[source].name)?)));
        if node.kind == NodeKind::Operator && times().any(|(_, time)| time.watermarks) {
            for (source, _) in times().filter(|(_, time)| !time.watermarks && !time.falls_idle) {
                if said.insert(source) {
                    warnings.push(Warning::NoWatermark { name: node.name.clone(), silent: nodes[source].name.clone() });
                }
            }
        }
        upstream.push(sources);
    }
    warnings
}

fn silent_splits(graph: &Graph) -> Vec<Warning> {
    let silent = graph.sources.iter().filter(|source| {
        let time = source.event_time;
        time.watermarks && time.silent_splits && !time.falls_idle
    });
    silent.map(|source| Warning::SilentSplits { name: source.name.clone() }).collect()
}
