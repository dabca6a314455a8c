//! The plan of a job for people, for scripts and for Graphviz.
//!
//! Invariant: all three forms tell the same facts, in the order of the plan.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;

use crate::cli::load::Loaded;
use crate::graph::{Edge, Exchange, Graph, Node, Plan, guarantees};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    job: String,
    state_dir: PathBuf,
    store: PathBuf,
    max_parallelism: u32,
    chains: Vec<ChainReport>,
    exchanges: Vec<ExchangeReport>,
    tables: Vec<TableReport>,
    guarantees: Vec<PathReport>,
    /// Whether there are more paths than are told.
    guarantees_truncated: bool,
    warnings: Vec<String>,
}

/// Nodes that share a task.
#[derive(Debug, Serialize)]
struct ChainReport {
    nodes: Vec<NodeReport>,
    tasks: u32,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    name: String,
    kind: String,
}

#[derive(Debug, Serialize)]
struct ExchangeReport {
    from: String,
    /// Where the writer has several outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    to: String,
    input: u32,
    exchange: Exchange,
    /// Whether it stays inside one task.
    chained: bool,
    why: String,
}

#[derive(Debug, Serialize)]
struct TableReport {
    operator: String,
    name: String,
    kind: &'static str,
    version: u32,
}

#[derive(Debug, Serialize)]
struct PathReport {
    path: Vec<String>,
    delivers: String,
    why: &'static str,
}

impl Report {
    pub fn new(loaded: &Loaded) -> Report {
        let Loaded { file, plan, plugins } = loaded;
        let graph = &file.graph();
        let chains = plan.chains.iter().map(|chain| {
            let node = |node: &Node| NodeReport { name: node.name.to_string(), kind: node.kind.to_string() };
            ChainReport { nodes: chain.nodes.iter().map(|&id| node(plan.node(id))).collect(), tasks: chain.parallelism }
        });
        let tables = plugins.iter().flat_map(|(operator, plugin)| {
            let descriptor = plugin.descriptor();
            descriptor.tables.iter().map(move |table| TableReport {
                operator: operator.to_string(),
                name: table.name.to_string(),
                kind: table.kind.as_str(),
                version: table.version,
            })
        });
        let (paths, guarantees_truncated) = guarantees(graph, plan);
        let paths = paths.into_iter().map(|path| PathReport {
            path: path.names.iter().map(ToString::to_string).collect(),
            delivers: path.delivery.to_string(),
            why: path.why,
        });
        Report {
            job: file.job.to_string(),
            state_dir: file.state_dir.clone(),
            store: file.checkpoint.store.clone(),
            max_parallelism: file.max_parallelism.key_groups(),
            chains: chains.collect(),
            exchanges: plan.edges.iter().map(|edge| exchange(graph, plan, edge)).collect(),
            tables: tables.collect(),
            guarantees: paths.collect(),
            guarantees_truncated,
            warnings: plan.warnings.iter().map(ToString::to_string).collect(),
        }
    }

    /// One JSON object, on several lines.
    pub fn json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("a report has nothing that JSON can't say");
        format!("{json}\n")
    }

    /// A graph with a box around each task.
    pub fn dot(&self) -> String {
        let mut dot = format!("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box];\n", self.job);
        for (number, chain) in self.chains.iter().enumerate() {
            let tasks = counted(chain.tasks, "task");
            let _ = write!(dot, "  subgraph cluster_{number} {{\n    label=\"{tasks}\";\n");
            for node in &chain.nodes {
                let _ = writeln!(dot, "    \"{0}\" [label=\"{0}\\n{1}\"];", node.name, node.kind);
            }
            dot.push_str("  }\n");
        }
        for edge in &self.exchanges {
            let output = edge.output.as_ref().map(|output| format!(" of {output}")).unwrap_or_default();
            let _ = writeln!(dot, "  \"{}\" -> \"{}\" [label=\"{}{output}\"];", edge.from, edge.to, edge.exchange);
        }
        dot.push_str("}\n");
        dot
    }
}

fn exchange(graph: &Graph, plan: &Plan, edge: &Edge) -> ExchangeReport {
    let (from, to) = (plan.node(edge.from), plan.node(edge.to));
    let asked =
        graph.operators.iter().any(|operator| operator.name == to.name && operator.exchange == Some(edge.exchange));
    let counts = format!("{} → {}", from.parallelism, to.parallelism);
    let why = match (edge.exchange, asked) {
        (Exchange::Hash, _) if to.keyed => format!("{counts}, by key group: {} has keyed state", to.name),
        (Exchange::Forward | Exchange::Rebalance | Exchange::Hash, true) => format!("{counts}, as the job file says"),
        (Exchange::Hash, false) => format!("{counts}, by key group"),
        (Exchange::Forward, false) => format!("{counts}, each to its own"),
        (Exchange::Rebalance, false) => format!("{counts}, in turn"),
    };
    let output = from.outputs.get(edge.port as usize).filter(|_| from.outputs.len() > 1).cloned();
    let chained = plan.chain_of(edge.from) == plan.chain_of(edge.to);
    let (from, to) = (from.name.to_string(), to.name.to_string());
    ExchangeReport { from, output, to, input: edge.input, exchange: edge.exchange, chained, why }
}

fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {}", self.job)?;
        writeln!(f, "  state        {}", self.state_dir.display())?;
        writeln!(f, "  checkpoints  {}", self.store.display())?;
        writeln!(f, "\ntasks (what shares one needs no channel)")?;
        for chain in &self.chains {
            let nodes = chain.nodes.iter().map(|node| format!("{} {}", node.kind, node.name)).collect::<Vec<_>>();
            writeln!(f, "  {:<9} {}", format!("{} ×", chain.tasks), nodes.join(" → "))?;
        }
        writeln!(f, "\nexchanges")?;
        for edge in &self.exchanges {
            let output = edge.output.as_ref().map(|output| format!(":{output}")).unwrap_or_default();
            let chained = if edge.chained { ", in one task" } else { "" };
            let exchange = edge.exchange.to_string();
            writeln!(f, "  {exchange:<9} {}{output} → {}  ({}{chained})", edge.from, edge.to, edge.why)?;
        }
        if !self.tables.is_empty() {
            writeln!(f, "\nkeyed state ({} key groups)", self.max_parallelism)?;
        }
        for table in &self.tables {
            writeln!(f, "  {}: table {} ({}, version {})", table.operator, table.name, table.kind, table.version)?;
        }
        writeln!(f, "\nguarantees")?;
        for path in &self.guarantees {
            writeln!(f, "  {}\n    {}: {}", path.path.join(" → "), path.delivers, path.why)?;
        }
        if self.guarantees_truncated {
            writeln!(f, "  and more paths")?;
        }
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}\n"))?;
        writeln!(f, "\nok: this job can run")
    }
}
