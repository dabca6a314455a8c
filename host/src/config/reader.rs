//! Serde's reader of a [`Node`]: fills typed options and gives structured [`Problem`]s with path and place.
//!
//! Invariant: no problem leaves here without the path of its value. Where serde keeps a value in a buffer of its own (flattened
//! structs, enums with an inner tag) that can't be held, so options have neither.

use std::collections::btree_map;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use crate::config::problem::Problem;
use crate::config::tree::{Node, Value};

/// Reads options from a node.
pub(super) fn read<'de, T: Deserialize<'de>>(node: &'de Node) -> Result<T, Problem> {
    T::deserialize(Reader { node })
}

struct Reader<'de> {
    node: &'de Node,
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let span = || self.node.span.clone();
        let result = match &self.node.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_i64(number),
                (Err(_), Ok(number)) => visitor.visit_u64(number),
                (Err(_), Err(_)) => Err(Problem::wrong_type(number, "a number of at most 64 bits")),
            },
            Value::Datetime(_) => Err(serde::de::Error::invalid_type(Unexpected::Other("a date or time"), &visitor)),
            Value::List(items) => visitor.visit_seq(Items { items: items.iter(), index: 0 }),
            Value::Table(table) => visitor.visit_map(Entries { entries: table.iter(), current: None }),
        };
        result.map_err(|problem| problem.at(span()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        let span = self.node.span.clone();
        visitor.visit_newtype_struct(self).map_err(|problem| problem.at(span))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let span = self.node.span.clone();
        let name: StrDeserializer<'_, Problem> = match &self.node.value {
            Value::Text(text) => text.as_str().into_deserializer(),
            other => return Err(Problem::wrong_type(other.kind(), format!("one of {}", variants.join(", "))).at(span)),
        };
        visitor.visit_enum(name).map_err(|problem| problem.at(span))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de> {
    items: std::slice::Iter<'de, Node>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let item = seed.deserialize(Reader { node });
        let index = self.index;
        self.index += 1;
        item.map(Some).map_err(|problem| problem.at(node.span.clone()).inside(&format!("[{index}]")))
    }
}

struct Entries<'de> {
    entries: btree_map::Iter<'de, String, Node>,
    current: Option<(&'de str, &'de Node)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        self.current = self.entries.next().map(|(key, node)| (key.as_str(), node));
        let Some((key, node)) = self.current else { return Ok(None) };
        let key =
            seed.deserialize(key.into_deserializer()).map_err(|problem: Problem| problem.at(node.key_span.clone()))?;
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let (key, node) = self.current.expect("a key was read before its value");
        let value = seed.deserialize(Reader { node });
        // An error that was made after the value was read, as one of its range, knows no place yet.
        value.map_err(|problem| problem.at(node.span.clone()).inside(key))
    }
}
