//! Which output feeds which input, and how records get there.
//!
//! Invariant: every input of an operator is fed, no input reads an output twice, and a keyed operator is given all records of a
//! key by one subtask, whatever the job file asks for. So is a sink with an order, and all before it, unless the job file asks
//! for something else.

use std::collections::BTreeSet;

use crate::graph::check::Draft;
use crate::graph::{
    DEAD_LETTERS, Edge, Exchange, GraphError, InputFacts, InputPlace, InputRef, Node, NodeId, NodeKind, nearest,
};

/// The edges of nodes that are in the order of the stream, with all that operators say of themselves filled in.
pub(super) fn edges(drafts: &[Draft<'_>]) -> Result<Vec<Edge>, GraphError> {
    let mut edges = Vec::new();
    for (place, draft) in drafts.iter().enumerate() {
        for input in draft.inputs {
            edges.push(edge(drafts, NodeId(place), input)?);
        }
        check_fed(&draft.node, edges.iter().filter(|edge| edge.to.0 == place))?;
    }
    edges.sort_unstable();
    check_doubles(drafts, &edges)?;
    check_dead_letters(drafts, &edges)?;
    Ok(edges)
}

/// The edge of one input of node `to`.
fn edge(drafts: &[Draft<'_>], to: NodeId, input: &InputRef) -> Result<Edge, GraphError> {
    let reader = &drafts[to.0];
    let from = drafts.iter().position(|draft| draft.node.name == input.from).expect("inputs were checked");
    let writer = &drafts[from].node;
    let port = port(reader, writer, input)?;
    let input = input_number(reader, input)?;
    let exchange = exchange(reader, writer, &reader.node.inputs[input as usize])?;
    Ok(Edge { from: NodeId(from), port, to, input, exchange })
}

/// The number of the output that is read.
fn port(reader: &Draft<'_>, writer: &Node, input: &InputRef) -> Result<u32, GraphError> {
    let Some(port) = &input.port else { return Ok(0) };
    // A source's one output has no name, so it isn't found by one.
    if let Some(found) = writer.outputs.iter().position(|output| output == port && !output.is_empty()) {
        return Ok(found as u32);
    }
    let (kind, name, from) = (reader.kind(), reader.node.name.clone(), input.from.clone());
    if port == DEAD_LETTERS && writer.kind == NodeKind::Operator {
        return Err(GraphError::NoDeadLetters { kind, name, from });
    }
    let ports = writer.outputs.iter().filter(|output| !output.is_empty()).cloned().collect::<Vec<_>>();
    let nearest = nearest(port, ports.iter().map(String::as_str)).map(str::to_owned);
    Err(GraphError::UnknownPort { kind, name, from, port: port.clone(), ports, nearest })
}

/// The number of the input that is fed.
fn input_number(reader: &Draft<'_>, input: &InputRef) -> Result<u32, GraphError> {
    let names = || reader.node.inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>();
    let name = reader.node.name.clone();
    match (reader.node.kind, &input.input) {
        (NodeKind::Source | NodeKind::Sink, _) => Ok(0),
        (NodeKind::Operator, InputPlace::Number(number)) if (*number as usize) < reader.node.inputs.len() => {
            Ok(*number)
        }
        (NodeKind::Operator, InputPlace::Number(_)) => {
            let places = reader.inputs.iter().filter_map(|input| match input.input {
                InputPlace::Number(number) => Some(number + 1),
                InputPlace::Name(_) => None,
            });
            Err(GraphError::TooManyInputs { name, given: places.max().unwrap_or_default(), inputs: names() })
        }
        (NodeKind::Operator, InputPlace::Name(wanted)) => {
            match reader.node.inputs.iter().position(|input| input.name == *wanted) {
                Some(number) => Ok(number as u32),
                None => {
                    let inputs = names();
                    let nearest = nearest(wanted, inputs.iter().map(String::as_str)).map(str::to_owned);
                    Err(GraphError::NoSuchInput { name, input: wanted.clone(), inputs, nearest })
                }
            }
        }
    }
}

/// Broadcast and hash where the reader needs them; else what the job file asks for; else forward where it is possible; else by key
/// where the order within keys counts.
fn exchange(reader: &Draft<'_>, writer: &Node, input: &InputFacts) -> Result<Exchange, GraphError> {
    if input.broadcast {
        return broadcast(reader, input);
    }
    let equal = reader.node.parallelism == writer.parallelism;
    let single = equal && writer.parallelism == 1;
    let (name, parallelism) = (reader.node.name.clone(), reader.node.parallelism);
    match reader.exchange {
        Some(Exchange::Hash) => Ok(Exchange::Hash),
        // From one subtask to one subtask every record takes the same way, whatever its key.
        Some(Exchange::Forward) if reader.node.keyed && single => Ok(Exchange::Forward),
        Some(asked) if reader.node.keyed => Err(GraphError::KeyedExchange { name, asked }),
        None if reader.node.keyed => Ok(Exchange::Hash),
        Some(Exchange::Forward) if !equal => {
            let (from, from_parallelism) = (writer.name.clone(), writer.parallelism);
            Err(GraphError::UnequalForward { name, parallelism, from, from_parallelism })
        }
        Some(asked) => Ok(asked),
        None if equal => Ok(Exchange::Forward),
        None if reader.ordered => Ok(Exchange::Hash),
        None => Ok(Exchange::Rebalance),
    }
}

/// What the job file asks for is about the other inputs of the reader, if it has any.
fn broadcast(reader: &Draft<'_>, input: &InputFacts) -> Result<Exchange, GraphError> {
    let others = reader.node.inputs.iter().any(|input| !input.broadcast);
    match reader.exchange {
        None | Some(Exchange::Broadcast) => Ok(Exchange::Broadcast),
        Some(Exchange::Forward | Exchange::Hash | Exchange::Rebalance) if others => Ok(Exchange::Broadcast),
        Some(asked @ (Exchange::Forward | Exchange::Hash | Exchange::Rebalance)) => {
            Err(GraphError::BroadcastExchange { name: reader.node.name.clone(), input: input.name.clone(), asked })
        }
    }
}

/// Every input of an operator is fed. That others are fed at all was checked before.
fn check_fed<'a>(node: &Node, edges: impl Iterator<Item = &'a Edge>) -> Result<(), GraphError> {
    let fed = edges.map(|edge| edge.input).collect::<BTreeSet<_>>();
    match (0u32..).zip(&node.inputs).find(|(number, _)| !fed.contains(number)) {
        None => Ok(()),
        Some((_, unfed)) => Err(GraphError::InputNotFed {
            name: node.name.clone(),
            input: unfed.name.clone(),
            inputs: node.inputs.iter().map(|input| input.name.clone()).collect(),
        }),
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

/// Dead letters that nobody reads would be records that are lost without a word.
fn check_dead_letters(drafts: &[Draft<'_>], edges: &[Edge]) -> Result<(), GraphError> {
    let is_read = |node, port| edges.iter().any(|edge| edge.from == NodeId(node) && edge.port == port);
    let unread = drafts
        .iter()
        .enumerate()
        .find(|(place, draft)| draft.node.dead_letters.is_some_and(|port| !is_read(*place, port)));
    unread.map_or(Ok(()), |(_, draft)| Err(GraphError::DeadLettersNotRead { name: draft.node.name.clone() }))
}
