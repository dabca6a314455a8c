//! What an operator or sink reads: `"name"`, `"name:output"`, a list of these, or a table of them by the names of the inputs.
//!
//! In a list, each place is an input of its own, and a list within the list is one input that several feed. In a table, each key
//! is the name of an input, and a list is what feeds it together.
//! Invariant: inputs that were given by number are 0 and up, without a gap.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::graph::{InputPlace, InputRef};
use crate::id::Name;

pub(super) struct Inputs {
    pub refs: Vec<InputRef>,
    pub form: Form,
}

/// How they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    One,
    List,
    Table,
}

/// As they are written in a job file.
impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = |InputRef { from, port, .. }: &InputRef| match port {
            Some(port) => format!("\"{from}:{port}\""),
            None => format!("\"{from}\""),
        };
        let feeds = self.refs.chunk_by(|a, b| a.input == b.input).map(|feed| {
            let outputs = feed.iter().map(output).collect::<Vec<_>>().join(", ");
            let outputs = if feed.len() == 1 { outputs } else { format!("[{outputs}]") };
            match &feed[0].input {
                InputPlace::Number(_) => outputs,
                InputPlace::Name(name) => format!("{name} = {outputs}"),
            }
        });
        let feeds = feeds.collect::<Vec<_>>().join(", ");
        match self.form {
            Form::One => f.write_str(&feeds),
            Form::List => write!(f, "[{feeds}]"),
            Form::Table => write!(f, "{{ {feeds} }}"),
        }
    }
}

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Inputs, D::Error> {
        from.deserialize_any(InputsVisitor)
    }
}

struct InputsVisitor;

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = Inputs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, \"name:output\", a list of these, or a table with one of these for each input")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Inputs, E> {
        Ok(Inputs { refs: Feed::One(output(text)?).refs(&InputPlace::Number(0)), form: Form::One })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inputs, A::Error> {
        let mut refs = Vec::new();
        let mut number = 0;
        while let Some(feed) = items.next_element::<Feed>()? {
            refs.extend(feed.refs(&InputPlace::Number(number)));
            number += 1;
        }
        Ok(Inputs { refs, form: Form::List })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Inputs, A::Error> {
        let mut refs = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            refs.extend(entries.next_value::<Feed>()?.refs(&InputPlace::Name(name)));
        }
        Ok(Inputs { refs, form: Form::Table })
    }
}

/// An output of a source or operator.
type Output = (Name, Option<String>);

fn output<E: serde::de::Error>(text: &str) -> Result<Output, E> {
    let (from, port) = text.split_once(':').map_or((text, None), |(from, port)| (from, Some(port)));
    let port = port.map(|port| Name::new(port).map(String::from)).transpose().map_err(E::custom)?;
    Ok((Name::new(from).map_err(E::custom)?, port))
}

/// What feeds one input.
enum Feed {
    One(Output),
    Union(Vec<Output>),
}

impl Feed {
    fn refs(self, input: &InputPlace) -> Vec<InputRef> {
        let outputs = match self {
            Feed::One(output) => vec![output],
            Feed::Union(outputs) => outputs,
        };
        outputs.into_iter().map(|(from, port)| InputRef { from, port, input: input.clone() }).collect()
    }
}

impl<'de> Deserialize<'de> for Feed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Feed, D::Error> {
        from.deserialize_any(FeedVisitor)
    }
}

struct FeedVisitor;

impl<'de> Visitor<'de> for FeedVisitor {
    type Value = Feed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, \"name:output\", or a list of these")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Feed, E> {
        output(text).map(Feed::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Feed, A::Error> {
        let mut outputs = Vec::new();
        while let Some(InUnion(output)) = items.next_element()? {
            outputs.push(output);
        }
        if outputs.is_empty() {
            return Err(A::Error::custom("an input that nobody feeds: the list is empty"));
        }
        Ok(Feed::Union(outputs))
    }
}

struct InUnion(Output);

impl<'de> Deserialize<'de> for InUnion {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<InUnion, D::Error> {
        from.deserialize_any(InUnionVisitor).map(InUnion)
    }
}

struct InUnionVisitor;

impl<'de> Visitor<'de> for InUnionVisitor {
    type Value = Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or \"name:output\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Output, E> {
        output(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Output, A::Error> {
        Err(A::Error::custom("lists of inputs nest no deeper than two levels"))
    }
}
