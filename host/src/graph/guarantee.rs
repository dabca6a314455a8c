//! What each path from a source to a sink delivers, and why.
//!
//! Invariant: exactly-once is only claimed where the source can be replayed and the sink shows nothing before it is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::graph::{Graph, NodeId, NodeKind, Plan, SinkCommit};
use crate::id::Name;

/// More paths than this are not told one by one; a ladder of branches has exponentially many.
const PATHS_MAX: usize = 64;

/// How often a record's effect is in the output after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Delivery {
    AtMostOnce,
    ExactlyOnce,
    /// There is no output.
    Nothing,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Delivery::AtMostOnce => "at-most-once",
            Delivery::ExactlyOnce => "exactly-once",
            Delivery::Nothing => "nothing",
        })
    }
}

/// A way from a source to a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGuarantee {
    pub names: Vec<Name>,
    pub delivery: Delivery,
    pub why: &'static str,
}

/// The paths of a plan (64 at most), and whether there are more.
pub fn guarantees(graph: &Graph, plan: &Plan) -> (Vec<PathGuarantee>, bool) {
    let replayable = graph.sources.iter().map(|source| (&source.name, source.replayable)).collect::<BTreeMap<_, _>>();
    let commits = graph.sinks.iter().map(|sink| (&sink.name, sink.commit)).collect::<BTreeMap<_, _>>();
    let mut paths = Vec::new();
    let sources = (0..plan.nodes.len()).map(NodeId).filter(|&id| plan.node(id).kind == NodeKind::Source);
    for source in sources {
        walk(plan, &mut vec![source], &mut paths);
    }
    let more = paths.len() > PATHS_MAX;
    paths.truncate(PATHS_MAX);
    let told = paths.into_iter().map(|path| {
        let names = path.iter().map(|&id| plan.node(id).name.clone()).collect::<Vec<_>>();
        let (delivery, why) = delivery(replayable[&names[0]], commits[&names[names.len() - 1]]);
        PathGuarantee { names, delivery, why }
    });
    (told.collect(), more)
}

/// Extends a path in all ways; stops when there are more than will be told.
fn walk(plan: &Plan, path: &mut Vec<NodeId>, paths: &mut Vec<Vec<NodeId>>) {
    let end = path[path.len() - 1];
    if plan.node(end).kind == NodeKind::Sink {
        paths.push(path.clone());
        return;
    }
    let readers = plan.edges.iter().filter(|edge| edge.from == end).map(|edge| edge.to).collect::<BTreeSet<_>>();
    for reader in readers {
        if paths.len() > PATHS_MAX {
            return;
        }
        path.push(reader);
        walk(plan, path, paths);
        path.pop();
    }
}

fn delivery(replayable: bool, commit: SinkCommit) -> (Delivery, &'static str) {
    match (commit, replayable) {
        (SinkCommit::Discarded, _) => (Delivery::Nothing, "the sink discards what it gets"),
        (SinkCommit::TwoPhase, true) => (
            Delivery::ExactlyOnce,
            "the source is replayed from the checkpoint, and the sink shows an epoch only after its checkpoint is published",
        ),
        (SinkCommit::TwoPhase, false) => {
            (Delivery::AtMostOnce, "the source can't be replayed, so what a failure interrupts is lost")
        }
    }
}
