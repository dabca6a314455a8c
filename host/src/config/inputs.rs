//! What an operator or sink reads: `"name"`, `"name:output"`, or a list.
//!
//! In a list, each place is an input of its own, and a list within the list is one input that several feed.
//! Invariant: the numbers of the inputs are 0 and up, without a gap.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::graph::InputRef;
use crate::id::Name;

pub(super) struct Inputs {
    pub refs: Vec<InputRef>,
    /// Whether it was written as a list.
    pub is_list: bool,
}

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Inputs, D::Error> {
        let place = from.deserialize_any(PlaceVisitor { in_list: false })?;
        let (refs, is_list) = match place {
            Place::One(one) => (vec![one], false),
            Place::Many(places) => {
                let numbered = places.into_iter().zip(0u32..);
                let refs = numbered.flat_map(|(place, input)| {
                    let refs = match place {
                        Place::One(one) => vec![one],
                        Place::Many(union) => union.into_iter().filter_map(Place::one).collect(),
                    };
                    refs.into_iter().map(move |one| InputRef { input, ..one })
                });
                (refs.collect(), true)
            }
        };
        Ok(Inputs { refs, is_list })
    }
}

/// What stands at one place of the list, or instead of it.
enum Place {
    One(InputRef),
    Many(Vec<Place>),
}

impl Place {
    fn one(self) -> Option<InputRef> {
        match self {
            Place::One(one) => Some(one),
            Place::Many(_) => None,
        }
    }
}

struct PlaceVisitor {
    in_list: bool,
}

impl<'de> Visitor<'de> for PlaceVisitor {
    type Value = Place;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, \"name:output\", or a list of these")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Place, E> {
        let (from, port) = text.split_once(':').map_or((text, None), |(from, port)| (from, Some(port)));
        let from = Name::new(from).map_err(E::custom)?;
        let port = port.map(|port| Name::new(port).map(String::from)).transpose().map_err(E::custom)?;
        Ok(Place::One(InputRef { from, port, input: 0 }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Place, A::Error> {
        let mut places = Vec::new();
        while let Some(item) = items.next_element::<InList>()? {
            if self.in_list && matches!(item.0, Place::Many(_)) {
                return Err(A::Error::custom("lists of inputs nest no deeper than two levels"));
            }
            places.push(item.0);
        }
        if self.in_list && places.is_empty() {
            return Err(A::Error::custom("an input that nobody feeds: the list is empty"));
        }
        Ok(Place::Many(places))
    }
}

struct InList(Place);

impl<'de> Deserialize<'de> for InList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<InList, D::Error> {
        from.deserialize_any(PlaceVisitor { in_list: true }).map(InList)
    }
}
