//! The plan of a job in the language of Graphviz.
//!
//! Invariant: whatever names hold, they are quoted so that they stay names.

use std::fmt::Write as _;

use super::shape::{ExchangeShape, Shape, counted};
use crate::graph::Exchange;

/// A graph with a box around each task. Dead letters are dashed, broadcasts bold.
pub(super) fn dot(job: &str, shape: &Shape) -> String {
    let mut dot = format!("digraph {} {{\n  rankdir=LR;\n  node [shape=box];\n", quoted(job));
    for (number, chain) in shape.chains.iter().enumerate() {
        let tasks = quoted(&counted(chain.tasks, "task"));
        let _ = write!(dot, "  subgraph cluster_{number} {{\n    label={tasks};\n");
        for node in &chain.nodes {
            let label = quoted(&format!("{}\n{}", node.name, node.kind));
            let _ = writeln!(dot, "    {} [label={label}];", quoted(&node.name));
        }
        dot.push_str("  }\n");
    }
    for edge in &shape.exchanges {
        let (from, to, label) = (quoted(&edge.from), quoted(&edge.to), quoted(&label(edge)));
        let _ = writeln!(dot, "  {from} -> {to} [label={label}{}];", style(edge));
    }
    dot.push_str("}\n");
    dot
}

fn label(edge: &ExchangeShape) -> String {
    let output = edge.output.as_ref().map(|output| format!("{output}\n")).unwrap_or_default();
    let input = edge.input_name.as_ref().map(|input| format!("\nto {input}")).unwrap_or_default();
    format!("{output}{}{input}", edge.label())
}

fn style(edge: &ExchangeShape) -> &'static str {
    match (edge.dead_letters, edge.exchange) {
        (true, _) => ", style=dashed",
        (false, Exchange::Broadcast) => ", style=bold",
        (false, Exchange::Forward | Exchange::Hash | Exchange::Rebalance) => "",
    }
}

/// A quoted identifier: only `"` and `\` mean something in it, and a line end is written `\n`.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
