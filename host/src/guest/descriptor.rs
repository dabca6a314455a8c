//! What an operator says of itself, checked.
//!
//! Invariant: a [`Descriptor`] that has been constructed has at least one output, no name twice, and a bounded size.

use serde::Serialize;

use crate::graph::OperatorFacts;
use crate::id::Name;

/// The most outputs, and the most tables, that an operator may declare.
pub const DECLARATIONS_MAX: usize = 64;
const TEXT_CHARS_MAX: usize = 64;

/// What an operator is, without any configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Descriptor {
    pub name: String,
    pub version: String,
    /// `emit` takes an index into them.
    pub outputs: Vec<Name>,
    /// State calls take an index into them. If there are any, input is partitioned by key.
    pub tables: Vec<Table>,
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
    #[error("it declares no output")]
    NoOutput,
    #[error("it declares {count} {what}s; {DECLARATIONS_MAX} is the most")]
    TooMany { what: &'static str, count: usize },
    #[error("its {what} '{name}' has no usable name: take 1 to 64 letters, digits, '_' or '-'")]
    Name { what: &'static str, name: String },
    #[error("it declares the {what} '{name}' twice")]
    Twice { what: &'static str, name: Name },
}

/// A table as it is declared: name, kind, version.
pub type TableDeclaration<'a> = (&'a str, TableKind, u32);

impl Descriptor {
    /// # Errors
    /// If a name can't be used or appears twice, if there is no output, or too much of anything.
    pub fn new(
        name: &str,
        version: &str,
        outputs: &[&str],
        tables: &[TableDeclaration<'_>],
    ) -> Result<Descriptor, BadDescriptor> {
        if outputs.is_empty() {
            return Err(BadDescriptor::NoOutput);
        }
        let table_names = tables.iter().map(|(name, ..)| *name).collect::<Vec<_>>();
        let names = unique_names("table", &table_names)?;
        let table =
            |(name, (_, kind, version)): (Name, &TableDeclaration<'_>)| Table { name, kind: *kind, version: *version };
        Ok(Descriptor {
            name: printable("name", name)?,
            version: printable("version", version)?,
            outputs: unique_names("output", outputs)?,
            tables: names.into_iter().zip(tables).map(table).collect(),
        })
    }

    /// The index of an output.
    pub fn output(&self, name: &str) -> Option<u32> {
        self.outputs.iter().position(|output| output.as_str() == name).map(|index| index as u32)
    }

    /// Whether its input must be partitioned by key.
    pub fn is_keyed(&self) -> bool {
        !self.tables.is_empty()
    }

    /// What the plan needs to know.
    pub fn facts(&self) -> OperatorFacts {
        let outputs = self.outputs.iter().map(ToString::to_string).collect();
        OperatorFacts { outputs, keyed: self.is_keyed() }
    }
}

fn printable(what: &'static str, text: &str) -> Result<String, BadDescriptor> {
    let fits = (1..=TEXT_CHARS_MAX).contains(&text.chars().count());
    if fits && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(BadDescriptor::Text { what, text: shortened(text) })
}

fn unique_names(what: &'static str, texts: &[&str]) -> Result<Vec<Name>, BadDescriptor> {
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
        Descriptor::new("op", "1.0.0", names, &[])
    }

    fn tables(tables: &[TableDeclaration<'_>]) -> Result<Descriptor, BadDescriptor> {
        Descriptor::new("op", "1.0.0", &["out"], tables)
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
        assert_eq!(outputs(&[]), Err(BadDescriptor::NoOutput));
        assert!(matches!(outputs(&["a", "a"]), Err(BadDescriptor::Twice { what: "output", .. })));
        assert!(matches!(outputs(&[""]), Err(BadDescriptor::Name { what: "output", .. })));
        assert!(matches!(outputs(&["../../etc"]), Err(BadDescriptor::Name { .. })));
        let many = (0..65).map(|index| format!("o{index}")).collect::<Vec<_>>();
        let many = many.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(outputs(&many), Err(BadDescriptor::TooMany { what: "output", count: 65 }));
        let twice = [("t", TableKind::Value, 1), ("t", TableKind::List, 1)];
        assert!(matches!(tables(&twice), Err(BadDescriptor::Twice { what: "table", .. })));
        assert!(matches!(tables(&[("a b", TableKind::Value, 1)]), Err(BadDescriptor::Name { what: "table", .. })));
        let text = |name: &str, version: &str| Descriptor::new(name, version, &["out"], &[]);
        assert!(matches!(text("", "1"), Err(BadDescriptor::Text { what: "name", .. })));
        assert!(matches!(text("op", "1\n2"), Err(BadDescriptor::Text { what: "version", .. })));
        assert!(matches!(text(&"x".repeat(1 << 20), "1"), Err(BadDescriptor::Text { .. })));
        let long = text(&"\u{1b}".repeat(1 << 20), "1").expect_err("too long").to_string();
        assert!(long.len() < 1000 && !long.contains('\u{1b}'), "{long}");
    }
}
