//! What an operator says of itself, checked.
//!
//! Invariant: a [`Descriptor`] that has been constructed has at least one input and one output, no name twice, and a bounded
//! size.

use serde::Serialize;

use crate::graph::{DEAD_LETTERS, InputFacts, OperatorFacts};
use crate::id::Name;
use crate::state::TIMERS_TABLE;
use crate::store::TableRef;

/// The most inputs, outputs and tables each that an operator may declare.
pub const DECLARATIONS_MAX: usize = 64;
const TEXT_CHARS_MAX: usize = 64;

/// What an operator is, without any configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Descriptor {
    pub name: String,
    pub version: String,
    /// `process` is given an index into them.
    pub inputs: Vec<Input>,
    /// `emit` takes an index into them.
    pub outputs: Vec<Name>,
    /// State calls take an index into them.
    pub tables: Vec<Table>,
    /// Whether it sets timers.
    pub timers: bool,
    pub redistribution: Redistribution,
}

/// One input of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    pub name: Name,
    /// Whether every subtask gets all of its records.
    pub broadcast: bool,
}

/// What becomes of non-keyed state when the parallelism changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redistribution {
    /// That of old subtask `j` goes to new subtask `j` modulo the new parallelism.
    #[default]
    Split,
    /// Every new subtask gets that of all old ones.
    Union,
    /// New subtask `k` gets that of old subtask `k` modulo the old parallelism.
    Broadcast,
}

impl Redistribution {
    /// The old subtasks whose state the new subtask `index` of `parallelism` gets.
    pub fn dealt(self, index: u32, parallelism: u32, old_parallelism: u32) -> Vec<u32> {
        match self {
            Redistribution::Split => (0..old_parallelism).filter(|old| old % parallelism == index).collect(),
            Redistribution::Union => (0..old_parallelism).collect(),
            Redistribution::Broadcast => index.checked_rem(old_parallelism).into_iter().collect(),
        }
    }
}

/// One table of keyed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    pub name: Name,
    pub kind: TableKind,
    /// The version of the encoding of user keys and values.
    pub version: u32,
}

/// What a table holds for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    Value,
    Map,
    List,
}

impl TableKind {
    pub fn as_str(self) -> &'static str {
        match self {
            TableKind::Value => "value",
            TableKind::Map => "map",
            TableKind::List => "list",
        }
    }
}

/// What is wrong with what an operator says of itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadDescriptor {
    #[error("its {what} '{text}' is not 1 to {TEXT_CHARS_MAX} printable characters")]
    Text { what: &'static str, text: String },
    #[error("it declares no {what}")]
    None { what: &'static str },
    #[error("its output '{DEAD_LETTERS}' has the name of the output on which the host puts rejected records")]
    ReservedOutput,
    #[error("its input '{input}' is a broadcast one, so what becomes of its state must be 'broadcast' too")]
    Redistribution { input: Name },
    #[error("it declares {count} {what}s; {DECLARATIONS_MAX} is the most")]
    TooMany { what: &'static str, count: usize },
    #[error("its {what} '{name}' has no usable name: take 1 to 64 letters, digits, '_' or '-'")]
    Name { what: &'static str, name: String },
    #[error("it declares the {what} '{name}' twice")]
    Twice { what: &'static str, name: Name },
}

/// A table as it is declared: name, kind, version.
pub type TableDeclaration<'a> = (&'a str, TableKind, u32);

/// What an operator says of itself, before it is checked.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// Name, and whether it is a broadcast one.
    pub inputs: &'a [(&'a str, bool)],
    pub outputs: &'a [&'a str],
    pub tables: &'a [TableDeclaration<'a>],
    pub timers: bool,
    pub redistribution: Redistribution,
}

impl Declared<'_> {
    /// An operator with one input, `in`, and one output, `out`.
    pub const PLAIN: Declared<'static> = Declared {
        name: "operator",
        version: "0",
        inputs: &[("in", false)],
        outputs: &["out"],
        tables: &[],
        timers: false,
        redistribution: Redistribution::Split,
    };
}

impl Descriptor {
    /// # Errors
    /// If a name can't be used or appears twice, if there is no input or output, or too much of anything, or if a broadcast
    /// input and the redistribution of state don't fit.
    pub fn new(declared: Declared<'_>) -> Result<Descriptor, BadDescriptor> {
        let Declared { name, version, inputs, outputs, tables, timers, redistribution } = declared;
        for (what, count) in [("input", inputs.len()), ("output", outputs.len())] {
            if count == 0 {
                return Err(BadDescriptor::None { what });
            }
        }
        if outputs.contains(&DEAD_LETTERS) {
            return Err(BadDescriptor::ReservedOutput);
        }
        let names = unique_names("input", inputs.iter().map(|(name, _)| *name))?;
        let input = |(name, (_, broadcast)): (Name, &(&str, bool))| Input { name, broadcast: *broadcast };
        let inputs = names.into_iter().zip(inputs).map(input).collect::<Vec<_>>();
        if redistribution != Redistribution::Broadcast
            && let Some(input) = inputs.iter().find(|input| input.broadcast)
        {
            return Err(BadDescriptor::Redistribution { input: input.name.clone() });
        }
        let names = unique_names("table", tables.iter().map(|(name, ..)| *name))?;
        let table =
            |(name, (_, kind, version)): (Name, &TableDeclaration<'_>)| Table { name, kind: *kind, version: *version };
        Ok(Descriptor {
            name: printable("name", name)?,
            version: printable("version", version)?,
            inputs,
            outputs: unique_names("output", outputs.iter().copied())?,
            tables: names.into_iter().zip(tables).map(table).collect(),
            timers,
            redistribution,
        })
    }

    /// The index of an output.
    pub fn output(&self, name: &str) -> Option<u32> {
        self.outputs.iter().position(|output| output.as_str() == name).map(|index| index as u32)
    }

    /// Whether its inputs, but for broadcast ones, must be partitioned by key.
    pub fn is_keyed(&self) -> bool {
        !self.tables.is_empty() || self.timers
    }

    /// The tables of its keyed state as a checkpoint lists them: its own in their order, then that of its timers.
    pub fn stored_tables(&self) -> Vec<TableRef> {
        let own = self.tables.iter().map(|table| TableRef { name: table.name.to_string(), version: table.version });
        let timers = self.timers.then(|| TableRef { name: TIMERS_TABLE.to_owned(), version: 1 });
        own.chain(timers).collect()
    }

    /// What the plan needs to know.
    pub fn facts(&self) -> OperatorFacts {
        let input = |input: &Input| InputFacts { name: input.name.to_string(), broadcast: input.broadcast };
        OperatorFacts {
            inputs: self.inputs.iter().map(input).collect(),
            outputs: self.outputs.iter().map(ToString::to_string).collect(),
            keyed: self.is_keyed(),
        }
    }
}

fn printable(what: &'static str, text: &str) -> Result<String, BadDescriptor> {
    let fits = (1..=TEXT_CHARS_MAX).contains(&text.chars().count());
    if fits && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(BadDescriptor::Text { what, text: shortened(text) })
}

fn unique_names<'a>(
    what: &'static str,
    texts: impl ExactSizeIterator<Item = &'a str>,
) -> Result<Vec<Name>, BadDescriptor> {
    if texts.len() > DECLARATIONS_MAX {
        return Err(BadDescriptor::TooMany { what, count: texts.len() });
    }
    let mut names: Vec<Name> = Vec::with_capacity(texts.len());
    for text in texts {
        let name = Name::new(text).map_err(|_| BadDescriptor::Name { what, name: shortened(text) })?;
        if names.contains(&name) {
            return Err(BadDescriptor::Twice { what, name });
        }
        names.push(name);
    }
    Ok(names)
}

/// Enough of a text to recognise it, without control characters.
fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(names: &[&str]) -> Result<Descriptor, BadDescriptor> {
        Descriptor::new(Declared { outputs: names, ..Declared::PLAIN })
    }

    fn tables(tables: &[TableDeclaration<'_>]) -> Result<Descriptor, BadDescriptor> {
        Descriptor::new(Declared { tables, ..Declared::PLAIN })
    }

    #[test]
    fn a_sensible_descriptor_is_taken() {
        let descriptor = tables(&[("counts", TableKind::Value, 1), ("seen", TableKind::Map, 2)]).expect("sensible");
        assert!(descriptor.is_keyed());
        assert_eq!(descriptor.output("out"), Some(0));
        assert_eq!(descriptor.output("late"), None);
        assert_eq!(descriptor.tables[1].version, 2);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        assert_eq!(outputs(&[]), Err(BadDescriptor::None { what: "output" }));
        assert_eq!(outputs(&["out", DEAD_LETTERS]), Err(BadDescriptor::ReservedOutput));
        assert!(matches!(outputs(&["a", "a"]), Err(BadDescriptor::Twice { what: "output", .. })));
        assert!(matches!(outputs(&[""]), Err(BadDescriptor::Name { what: "output", .. })));
        assert!(matches!(outputs(&["../../etc"]), Err(BadDescriptor::Name { .. })));
        let many = (0..65).map(|index| format!("o{index}")).collect::<Vec<_>>();
        let many = many.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(outputs(&many), Err(BadDescriptor::TooMany { what: "output", count: 65 }));
        let twice = [("t", TableKind::Value, 1), ("t", TableKind::List, 1)];
        assert!(matches!(tables(&twice), Err(BadDescriptor::Twice { what: "table", .. })));
        assert!(matches!(tables(&[("a b", TableKind::Value, 1)]), Err(BadDescriptor::Name { what: "table", .. })));
        let text = |name: &str, version: &str| Descriptor::new(Declared { name, version, ..Declared::PLAIN });
        assert!(matches!(text("", "1"), Err(BadDescriptor::Text { what: "name", .. })));
        assert!(matches!(text("op", "1\n2"), Err(BadDescriptor::Text { what: "version", .. })));
        assert!(matches!(text(&"x".repeat(1 << 20), "1"), Err(BadDescriptor::Text { .. })));
        let long = text(&"\u{1b}".repeat(1 << 20), "1").expect_err("too long").to_string();
        assert!(long.len() < 1000 && !long.contains('\u{1b}'), "{long}");
    }

    #[test]
    fn inputs_are_checked_and_a_broadcast_one_needs_state_that_is_the_same_everywhere() {
        let inputs = |inputs: &[(&str, bool)], redistribution| {
            Descriptor::new(Declared { inputs, redistribution, ..Declared::PLAIN })
        };
        assert_eq!(inputs(&[], Redistribution::Split), Err(BadDescriptor::None { what: "input" }));
        let twice = inputs(&[("a", false), ("a", true)], Redistribution::Broadcast);
        assert!(matches!(twice, Err(BadDescriptor::Twice { what: "input", .. })));
        for redistribution in [Redistribution::Split, Redistribution::Union] {
            let error = inputs(&[("a", false), ("rules", true)], redistribution).expect_err("it doesn't fit");
            assert!(error.to_string().contains("'rules'"), "{error}");
        }
        let good = inputs(&[("a", false), ("rules", true)], Redistribution::Broadcast).expect("it fits");
        assert_eq!(good.facts().inputs[1], InputFacts { name: "rules".to_owned(), broadcast: true });
        assert!(!good.is_keyed());
    }

    #[test]
    fn timers_are_keyed_state_with_a_table_of_their_own_behind_the_others() {
        let tables = [("counts", TableKind::Value, 2)];
        let descriptor = Descriptor::new(Declared { tables: &tables, timers: true, ..Declared::PLAIN }).expect("good");
        let stored = descriptor.stored_tables().into_iter().map(|table| (table.name, table.version));
        assert_eq!(stored.collect::<Vec<_>>(), [("counts".to_owned(), 2), ("$timers".to_owned(), 1)]);
        assert!(Descriptor::new(Declared { timers: true, ..Declared::PLAIN }).expect("good").is_keyed());
    }

    #[test]
    fn state_is_dealt_as_the_redistribution_says() {
        let dealt = |redistribution: Redistribution, parallelism, old| {
            (0..parallelism).map(|index| redistribution.dealt(index, parallelism, old)).collect::<Vec<_>>()
        };
        assert_eq!(dealt(Redistribution::Split, 2, 3), [vec![0, 2], vec![1]]);
        assert_eq!(dealt(Redistribution::Split, 3, 2), [vec![0], vec![1], vec![]]);
        assert_eq!(dealt(Redistribution::Union, 2, 3), [vec![0, 1, 2], vec![0, 1, 2]]);
        assert_eq!(dealt(Redistribution::Broadcast, 3, 2), [vec![0], vec![1], vec![0]]);
        assert!(dealt(Redistribution::Broadcast, 1, 0)[0].is_empty());
    }
}
