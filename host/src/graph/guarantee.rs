//! What each path from a source to a sink delivers, and why.
//!
//! Invariant: exactly-once is only claimed where the source can be replayed and the sink shows nothing before it is decided, to
//! readers that ask for that.

use std::collections::BTreeSet;
use std::fmt;

use crate::graph::{Graph, GraphError, NodeId, NodeKind, Plan, SinkCommit};
use crate::id::Name;
use crate::protocol::Guarantee;

/// More paths than this are not told one by one; a ladder of branches has exponentially many.
const PATHS_MAX: usize = 64;

/// How often a record's effect is in the output after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Delivery {
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
    /// There is no output.
    Nothing,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Delivery::AtMostOnce => "at-most-once",
            Delivery::AtLeastOnce => "at-least-once",
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
    let mut paths = Vec::new();
    for source in sources(plan) {
        walk(plan, &mut vec![source], &mut paths);
    }
    let more = paths.len() > PATHS_MAX;
    paths.truncate(PATHS_MAX);
    (paths.iter().map(|path| guarantee(graph, plan, path)).collect(), more)
}

/// No path gives less than the job asks for.
pub(super) fn check_guarantee(graph: &Graph, plan: &Plan) -> Result<(), GraphError> {
    let asked = graph.guarantee;
    for source in sources(plan) {
        // What a path gives depends on its two ends alone, so that one path to each sink tells all.
        let mut seen = BTreeSet::new();
        let mut paths = vec![vec![source]];
        while let Some(path) = paths.pop() {
            let end = path[path.len() - 1];
            if !seen.insert(end) {
                continue;
            }
            if plan.node(end).kind == NodeKind::Sink {
                let PathGuarantee { names, delivery: given, why } = guarantee(graph, plan, &path);
                if given < Delivery::from(asked) {
                    return Err(GraphError::Guarantee { asked, given, path: names, why });
                }
            }
            paths.extend(readers(plan, end).into_iter().map(|reader| [&path[..], &[reader]].concat()));
        }
    }
    Ok(())
}

impl From<Guarantee> for Delivery {
    fn from(guarantee: Guarantee) -> Delivery {
        match guarantee {
            Guarantee::AtMostOnce => Delivery::AtMostOnce,
            Guarantee::AtLeastOnce => Delivery::AtLeastOnce,
            Guarantee::ExactlyOnce => Delivery::ExactlyOnce,
        }
    }
}

fn sources(plan: &Plan) -> impl Iterator<Item = NodeId> {
    (0..plan.nodes.len()).map(NodeId).filter(|&id| plan.node(id).kind == NodeKind::Source)
}

fn readers(plan: &Plan, node: NodeId) -> BTreeSet<NodeId> {
    plan.edges.iter().filter(|edge| edge.from == node).map(|edge| edge.to).collect()
}

fn guarantee(graph: &Graph, plan: &Plan, path: &[NodeId]) -> PathGuarantee {
    let names = path.iter().map(|&id| plan.node(id).name.clone()).collect::<Vec<_>>();
    let (first, last) = (&names[0], &names[names.len() - 1]);
    let source = graph.sources.iter().find(|source| source.name == *first).expect("a path begins at a source");
    let sink = graph.sinks.iter().find(|sink| sink.name == *last).expect("a path ends at a sink");
    let (delivery, why) = delivery(graph.guarantee, source.replayable, &sink.commit);
    PathGuarantee { names, delivery, why }
}

/// Extends a path in all ways; stops when there are more than will be told.
fn walk(plan: &Plan, path: &mut Vec<NodeId>, paths: &mut Vec<Vec<NodeId>>) {
    let end = path[path.len() - 1];
    if plan.node(end).kind == NodeKind::Sink {
        paths.push(path.clone());
        return;
    }
    for reader in readers(plan, end) {
        if paths.len() > PATHS_MAX {
            return;
        }
        path.push(reader);
        walk(plan, path, paths);
        path.pop();
    }
}

fn delivery(asked: Guarantee, replayable: bool, commit: &SinkCommit) -> (Delivery, &'static str) {
    match (commit, asked) {
        (SinkCommit::Discarded, _) => (Delivery::Nothing, "the sink discards what it gets"),
        (_, Guarantee::AtMostOnce) => {
            (Delivery::AtMostOnce, "progress is recorded before records are processed, so that none is processed again")
        }
        (_, _) if !replayable => {
            (Delivery::AtMostOnce, "the source can't be replayed, so what a failure interrupts is lost")
        }
        (SinkCommit::TwoPhase | SinkCommit::Deciding { .. }, Guarantee::AtLeastOnce) => (
            Delivery::AtLeastOnce,
            "the source is replayed from the checkpoint, and barriers hold no input: what came behind one may come again",
        ),
        (SinkCommit::Plain, Guarantee::AtLeastOnce | Guarantee::ExactlyOnce) => (
            Delivery::AtLeastOnce,
            "the source is replayed from the checkpoint, and the sink shows records as they come: what came after it comes again",
        ),
        (SinkCommit::TwoPhase, Guarantee::ExactlyOnce) => (
            Delivery::ExactlyOnce,
            "the source is replayed from the checkpoint, and the sink shows an epoch only after its checkpoint is published",
        ),
        (SinkCommit::Deciding { .. }, Guarantee::ExactlyOnce) => (
            Delivery::ExactlyOnce,
            "the source is replayed from the checkpoint, and the transaction that shows an epoch decides over it (to readers with \
             isolation.level=read_committed)",
        ),
    }
}
