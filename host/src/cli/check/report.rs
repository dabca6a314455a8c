//! What is known of a job that can run, for people and for scripts.
//!
//! Invariant: all forms tell the same facts, in the order of the plan.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::connect::Connected;
use super::policies::{OnErrorReport, PolicyReport};
use super::shape::Shape;
use super::times::TimeReport;
use super::{dot, drawing};
use crate::cli::load::Loaded;
use crate::graph::guarantees;
use crate::protocol::Guarantee;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    job: String,
    /// What the job asks for.
    guarantee: Guarantee,
    state_dir: PathBuf,
    store: PathBuf,
    max_parallelism: u32,
    #[serde(flatten)]
    policies: PolicyReport,
    #[serde(flatten)]
    shape: Shape,
    event_time: Vec<TimeReport>,
    tables: Vec<TableReport>,
    guarantees: Vec<PathReport>,
    /// Whether there are more paths than are told.
    guarantees_truncated: bool,
    warnings: Vec<String>,
    /// What the brokers say; `None`: they weren't asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    kafka: Option<Connected>,
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
    pub fn new(loaded: &Loaded, kafka: Option<Connected>) -> Report {
        let Loaded { file, plan, plugins } = loaded;
        let graph = &file.graph();
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
            guarantee: file.guarantee,
            state_dir: file.state_dir.clone(),
            store: file.checkpoint.store.clone(),
            max_parallelism: file.max_parallelism.key_groups(),
            policies: PolicyReport::new(file),
            shape: Shape::new(graph, plan),
            event_time: file.sources.iter().map(|(name, source)| TimeReport::new(name.as_str(), source)).collect(),
            tables: tables.collect(),
            guarantees: paths.collect(),
            guarantees_truncated,
            warnings: loaded.warnings(),
            kafka,
        }
    }

    /// One JSON object, on several lines.
    pub fn json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("a report has nothing that JSON can't say");
        format!("{json}\n")
    }

    /// The plan, drawn for a terminal.
    pub fn drawing(&self) -> String {
        drawing::text(&self.job, &self.shape)
    }

    /// The plan for Graphviz.
    pub fn dot(&self) -> String {
        dot::dot(&self.job, &self.shape)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {}", self.job)?;
        writeln!(f, "  state        {}", self.state_dir.display())?;
        writeln!(f, "  checkpoints  {}", self.store.display())?;
        writeln!(f, "  barriers     {}", self.policies.alignment)?;
        writeln!(f, "  restarts     {}", self.policies.restart)?;
        writeln!(f, "\ntasks (what shares one needs no channel)")?;
        for chain in &self.shape.chains {
            let nodes = chain.nodes.iter().map(|node| format!("{} {}", node.kind, node.name)).collect::<Vec<_>>();
            writeln!(f, "  {:<9} {}", format!("{} ×", chain.tasks), nodes.join(" → "))?;
        }
        writeln!(f, "\nexchanges")?;
        for edge in &self.shape.exchanges {
            let chained = if edge.chained { ", in one task" } else { "" };
            let exchange = edge.exchange.to_string();
            writeln!(f, "  {exchange:<9} {} → {}  ({}{chained})", edge.writer(), edge.reader(), edge.why)?;
        }
        writeln!(f, "\nevent time")?;
        for TimeReport { source, event_time, watermark } in &self.event_time {
            writeln!(f, "  {source}: {event_time}; watermark {watermark}")?;
        }
        if !self.policies.on_error.is_empty() {
            writeln!(f, "\nrecords that can't be processed")?;
        }
        for OnErrorReport { operator, on_error } in &self.policies.on_error {
            writeln!(f, "  {operator}: {on_error}")?;
        }
        if !self.tables.is_empty() {
            writeln!(f, "\nkeyed state ({} key groups)", self.max_parallelism)?;
        }
        for table in &self.tables {
            writeln!(f, "  {}: table {} ({}, version {})", table.operator, table.name, table.kind, table.version)?;
        }
        writeln!(f, "\nguarantees (the job asks for {})", self.guarantee)?;
        for path in &self.guarantees {
            writeln!(f, "  {}\n    {}: {}", path.path.join(" → "), path.delivers, path.why)?;
        }
        if self.guarantees_truncated {
            writeln!(f, "  and more paths")?;
        }
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}\n"))?;
        self.kafka.iter().try_for_each(|kafka| kafka.fmt(f))?;
        match self.kafka.as_ref().is_some_and(|kafka| kafka.errors().next().is_some()) {
            true => Ok(()),
            false => writeln!(f, "\nok: this job can run"),
        }
    }
}
