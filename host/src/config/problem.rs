//! One thing that is wrong in a job file, while it is read: what, under which key, at which place.
//!
//! Invariant: the path grows from the inside out, as the readers around the value each add their key.

use std::fmt;
use std::ops::Range;

use serde::de::{Expected, Unexpected};

#[derive(Clone, Debug)]
pub(super) struct Problem {
    /// From the innermost key outwards.
    path: Vec<String>,
    span: Option<Range<usize>>,
    pub kind: ProblemKind,
    /// What to do, where the kind doesn't say it.
    pub help: Option<Box<str>>,
}

/// Between a message and what to do about it, where both have to pass through serde as one text.
const HELP_MARK: &str = "\u{1f}";

/// The text of an error for serde's `custom` that says what to do.
pub(super) fn with_help(message: &str, help: &str) -> String {
    format!("{message}{HELP_MARK}{help}")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// Not TOML.
    Syntax {
        message: String,
    },
    /// The path is that of the table around the key.
    UnknownKey {
        key: String,
        known: Vec<String>,
    },
    /// The path is that of the table that lacks it. `known`: what its value can be, where that is a list.
    MissingKey {
        key: String,
        known: Vec<String>,
    },
    /// A value that isn't one of a list.
    UnknownValue {
        value: String,
        known: Vec<String>,
    },
    WrongType {
        found: String,
        expected: String,
    },
    Invalid {
        message: String,
    },
}

impl Problem {
    fn new(kind: ProblemKind) -> Problem {
        Problem { path: Vec::new(), span: None, kind, help: None }
    }

    pub fn syntax(message: &str, span: Option<Range<usize>>) -> Problem {
        Problem::new(ProblemKind::Syntax { message: message.to_owned() }).at(span)
    }

    pub fn invalid(message: String) -> Problem {
        Problem::new(ProblemKind::Invalid { message })
    }

    pub fn too_deep(depth_max: usize) -> Problem {
        Problem::invalid(format!("tables and lists nest deeper than {depth_max} levels"))
    }

    pub fn unknown_key(key: &str, known: &[&str]) -> Problem {
        Problem::new(ProblemKind::UnknownKey { key: key.to_owned(), known: owned(known) })
    }

    pub fn missing_key(key: &str, known: &[&str]) -> Problem {
        Problem::new(ProblemKind::MissingKey { key: key.to_owned(), known: owned(known) })
    }

    pub fn unknown_value(value: &str, known: &[&str]) -> Problem {
        Problem::new(ProblemKind::UnknownValue { value: value.to_owned(), known: owned(known) })
    }

    pub fn wrong_type(found: impl fmt::Display, expected: impl fmt::Display) -> Problem {
        Problem::new(ProblemKind::WrongType { found: found.to_string(), expected: expected.to_string() })
    }

    /// Sets the place, unless a more exact one is known.
    #[must_use]
    pub fn at(mut self, span: Option<Range<usize>>) -> Problem {
        self.span = self.span.or(span);
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn with_help(self, help: &str) -> Problem {
        Problem { help: Some(help.into()), ..self }
    }

    /// The problem is in what `key` holds.
    #[must_use]
    pub fn inside(mut self, key: &str) -> Problem {
        self.path.push(key.to_owned());
        self
    }

    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// As it would be written: `operator.count.inputs[1]`.
    pub fn key_path(&self) -> String {
        let mut path = String::new();
        for key in self.path.iter().rev() {
            if !path.is_empty() && !key.starts_with('[') {
                path.push('.');
            }
            path.push_str(key);
        }
        path
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// What serde names by its Rust type, for people.
fn expected_for_people(expected: &dyn Expected) -> String {
    let name = expected.to_string();
    match name.as_str() {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => format!("a whole number from 0 to {}", i64::MAX),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "a borrowed string" | "path string" => "a text in quotes".to_owned(),
        _ if name.starts_with("struct ") || name.starts_with("a map") => "a table".to_owned(),
        _ if name.starts_with("a sequence") => "a list".to_owned(),
        _ => name,
    }
}

fn found_for_people(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(flag) => flag.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) => format!("the text \"{}\"", text.chars().take(80).collect::<String>()),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Other(what) => what.to_owned(),
        // Nothing else comes out of TOML.
        other => other.to_string(),
    }
}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Problem {
        let text = message.to_string();
        match text.split_once(HELP_MARK) {
            Some((message, help)) => Problem::invalid(message.to_owned()).with_help(help),
            None => Problem::invalid(text),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Problem {
        Problem::wrong_type(found_for_people(found), expected_for_people(expected))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Problem {
        Problem::wrong_type(found_for_people(found), expected_for_people(expected))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Problem {
        Problem::unknown_value(variant, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Problem {
        Problem::unknown_key(field, expected)
    }

    fn missing_field(field: &'static str) -> Problem {
        Problem::missing_key(field, &[])
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.key_path(), self.kind)
    }
}

impl std::error::Error for Problem {}
