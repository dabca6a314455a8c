//! The table of a source or sink, taken apart: its `type`, the keys that every type has, and those of the type.
//!
//! Invariant: every key is in exactly one of the parts.

use serde::Deserialize;

use crate::config::problem::{Problem, ProblemKind};
use crate::config::reader::read;
use crate::config::tree::{Node, Table, Value, fill};
use crate::connector::BadOption;
use crate::graph::nearest;

/// The key that says which type a source or sink is.
const TYPE_KEY: &str = "type";

pub(super) struct Parts {
    pub kind: Kind,
    /// The keys that every type has.
    pub common: Node,
    /// The keys of the type, defaults filled in.
    pub own: Node,
}

impl Parts {
    /// Takes a table apart. `defaults` holds a table for each type.
    pub fn of(node: Node, common_keys: &[&str], defaults: &Table) -> Parts {
        let Value::Table(mut table) = node.value else { unreachable!("only a table is taken apart") };
        let tag = table.remove(TYPE_KEY);
        let (mut common, mut own): (Table, Table) = table
            .into_iter()
            .partition(|(key, node)| common_keys.contains(&key.as_str()) && !is_of_the_type(key, node, tag.as_ref()));
        for key in common_keys {
            if let Some(default) = defaults.get(*key) {
                fill(&mut common, &Table::from([((*key).to_owned(), default.clone())]));
            }
        }
        let misspelt = own.iter().find(|(key, _)| nearest(key, [TYPE_KEY]).is_some());
        let kind = Kind { misspelt: misspelt.map(|(key, node)| (key.clone(), node.clone())), tag };
        if let Some(Value::Text(name)) = kind.tag.as_ref().map(|tag| &tag.value)
            && let Some(Node { value: Value::Table(defaults), .. }) = defaults.get(name)
        {
            fill(&mut own, defaults);
        }
        let of = |table| Node { value: Value::Table(table), span: node.span.clone(), key_span: node.key_span.clone() };
        Parts { common: of(common), own: of(own), kind }
    }

    /// Says where the key stands that the type itself has refused.
    pub fn bad_option(&self, bad: BadOption) -> Problem {
        let Value::Table(own) = &self.own.value else { unreachable!("made from a table") };
        let span = own.get(bad.key).and_then(|node| node.span.clone()).or(self.own.span.clone());
        let problem = Problem::invalid(format!("{} can't be used: {}", bad.value, bad.reason)).at(span).inside(bad.key);
        bad.help.iter().fold(problem, |problem, help| problem.with_help(help))
    }
}

/// Records of a generator may have event times of its own making, which a text says; a table says where any source has them.
fn is_of_the_type(key: &str, node: &Node, tag: Option<&Node>) -> bool {
    let is_generator = tag.is_some_and(|tag| matches!(&tag.value, Value::Text(name) if name == "generator"));
    is_generator && key == "event_time" && matches!(node.value, Value::Text(_))
}

/// What a table says of its type.
pub(super) struct Kind {
    tag: Option<Node>,
    /// A key that was perhaps meant to be `type`.
    misspelt: Option<(String, Node)>,
}

impl Kind {
    /// The name of the type, which may still be an unknown one.
    pub fn require(&self, known: &[&str]) -> Result<&str, Problem> {
        match (&self.tag, &self.misspelt) {
            (Some(Node { value: Value::Text(name), .. }), _) => Ok(name),
            (Some(other), _) => {
                let problem = Problem::wrong_type(other.value.kind(), format!("one of {}", known.join(", ")));
                Err(problem.at(other.span.clone()).inside(TYPE_KEY))
            }
            (None, Some((key, node))) => Err(Problem::unknown_key(key, &[TYPE_KEY]).at(node.key_span.clone())),
            (None, None) => Err(Problem::missing_key(TYPE_KEY, known)),
        }
    }

    pub fn unknown(&self, name: &str, known: &[&str]) -> Problem {
        let span = self.tag.as_ref().and_then(|tag| tag.span.clone());
        Problem::unknown_value(name, known).at(span).inside(TYPE_KEY)
    }
}

/// Reads the options of a type. They know only their own keys, and the table has others too.
pub(super) fn read_own<T: for<'de> Deserialize<'de>>(own: &Node, common_keys: &[&str]) -> Result<T, Problem> {
    read(own).map_err(|mut problem| {
        if let (true, ProblemKind::UnknownKey { known, .. }) = (problem.key_path().is_empty(), &mut problem.kind) {
            let others = common_keys.iter().chain(&[TYPE_KEY]).filter(|key| !known.iter().any(|known| known == *key));
            let others = others.map(|key| (*key).to_owned()).collect::<Vec<_>>();
            known.extend(others);
        }
        problem
    })
}
