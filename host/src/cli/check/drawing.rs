//! The plan of a job drawn for a terminal: a box for all that shares a task, and below it where its records go.
//!
//! Invariant: every edge of the plan is drawn: one inside a task between its two ends, any other one where it leaves and where
//! it arrives.

use std::fmt::Write as _;

use super::shape::{ChainShape, ExchangeShape, Shape, counted};

/// The boxes, in the order of the stream.
pub(super) fn text(job: &str, shape: &Shape) -> String {
    let mut drawing = format!("job {job}\n");
    for (place, chain) in shape.chains.iter().enumerate() {
        drawing.push('\n');
        draw_box(&mut drawing, &counted(chain.tasks, "task"), &lines(shape, place, chain));
        let leaving = shape.exchanges.iter().filter(|edge| edge.chains.0 == place && !edge.chained);
        draw_arrows(&mut drawing, &leaving.collect::<Vec<_>>());
    }
    drawing
}

/// What stands in the box of a chain.
fn lines(shape: &Shape, place: usize, chain: &ChainShape) -> Vec<String> {
    let mut lines = Vec::new();
    let arriving = shape.exchanges.iter().filter(|edge| edge.chains.1 == place && !edge.chained);
    let mut arriving = arriving.collect::<Vec<_>>();
    arriving.sort_by_key(|edge| edge.input);
    for edge in arriving {
        let input = edge.input_name.as_ref().map(|input| format!("{input} ")).unwrap_or_default();
        lines.push(format!("{input}◀─ {} ({})", edge.writer(), edge.label()));
    }
    for (position, node) in chain.nodes.iter().enumerate() {
        let inside = position.checked_sub(1).and_then(|before| edge_between(shape, chain, before));
        if let Some(edge) = inside {
            let output = edge.output.as_ref().map(|output| format!("{output}, ")).unwrap_or_default();
            lines.push(format!("  │ {output}{}", edge.exchange));
        }
        lines.push(format!("{} {}", node.kind, node.name));
    }
    lines
}

fn edge_between<'a>(shape: &'a Shape, chain: &ChainShape, position: usize) -> Option<&'a ExchangeShape> {
    let (from, to) = (&chain.nodes[position].name, &chain.nodes[position + 1].name);
    shape.exchanges.iter().find(|edge| edge.from == *from && edge.to == *to)
}

fn draw_box(drawing: &mut String, title: &str, lines: &[String]) {
    let width_of = |line: &str| line.chars().count();
    let inner = lines.iter().map(|line| width_of(line)).chain([width_of(title) + 1]).max().unwrap_or_default();
    let rule = |taken: usize| "─".repeat((inner + 2).saturating_sub(taken));
    let _ = writeln!(drawing, "┌ {title} {}┐", rule(width_of(title) + 2));
    for line in lines {
        let _ = writeln!(drawing, "│ {line}{} │", " ".repeat(inner - width_of(line)));
    }
    let _ = writeln!(drawing, "└{}┘", rule(0));
}

fn draw_arrows(drawing: &mut String, leaving: &[&ExchangeShape]) {
    let name_of = |edge: &ExchangeShape| edge.output.clone().unwrap_or_default();
    let outputs = leaving.iter().map(|edge| name_of(edge).chars().count()).max().unwrap_or_default();
    let labels = leaving.iter().map(|edge| edge.label().chars().count()).max().unwrap_or_default();
    for (number, edge) in (1..).zip(leaving) {
        let (corner, output, label) = (if number == leaving.len() { '└' } else { '├' }, name_of(edge), edge.label());
        let gap = if outputs == 0 { "" } else { " " };
        // What couldn't be processed goes a thinner way.
        let (line, head) = if edge.dead_letters { ('┄', "┄▷") } else { ('─', "─▶") };
        let rest = labels - label.chars().count();
        let _ = write!(drawing, "  {corner}─{gap}{output:<outputs$} {label} ");
        drawing.extend(std::iter::repeat_n(line, rest));
        let _ = writeln!(drawing, "{head} {}", edge.reader());
    }
}
