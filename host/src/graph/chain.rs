//! Which nodes run in one task.
//!
//! Two nodes are chained if a forward edge joins them, and it is the only one out of the first and the only one into the second.
//! Invariant: every node is in exactly one chain, and the nodes of a chain have the same parallelism.

use crate::graph::{Chain, Edge, Exchange, Node, NodeId};

/// The chains, ordered by their head.
pub(super) fn chains(nodes: &[Node], edges: &[Edge]) -> Vec<Chain> {
    let next_of = |node: NodeId| -> Option<NodeId> {
        let edge = only(edges.iter().filter(|edge| edge.from == node))?;
        only(edges.iter().filter(|other| other.to == edge.to))?;
        (edge.exchange == Exchange::Forward).then_some(edge.to)
    };
    let next = (0..nodes.len()).map(|node| next_of(NodeId(node))).collect::<Vec<_>>();
    let mut chains = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let head = NodeId(place);
        if next.contains(&Some(head)) {
            continue;
        }
        // A chain can't come back to one of its nodes: edges go forward in the order of nodes.
        let members = std::iter::successors(Some(head), |node| next[node.0]).collect();
        chains.push(Chain { nodes: members, parallelism: node.parallelism });
    }
    chains
}

fn only<'a>(mut edges: impl Iterator<Item = &'a Edge>) -> Option<&'a Edge> {
    let first = edges.next()?;
    edges.next().is_none().then_some(first)
}
