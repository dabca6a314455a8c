//! One field of a JSON document, by its JSON pointer (RFC 6901).
//!
//! Invariant: nothing behind the field is read, and nothing before it is kept. So of two fields of one name the first counts, and
//! an error behind it isn't noticed.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::unit::Number;
use super::{Found, NoTime};

/// A JSON pointer: `/a/b` is the field `b` of the field `a`; `~1` stands for `/`, `~0` for `~`; a number is a place in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
}

/// A text that is no pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no JSON pointer: write /name for a field, /outer/inner for one within another")]
pub struct BadPointer(String);

impl FromStr for Pointer {
    type Err = BadPointer;

    fn from_str(text: &str) -> Result<Pointer, BadPointer> {
        let steps = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
            None if text.is_empty() => Vec::new(),
            None => return Err(BadPointer(text.chars().take(80).collect())),
        };
        Ok(Pointer { text: text.to_owned(), steps })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What stands at the pointer.
pub(super) fn find<'a>(document: &'a [u8], pointer: &Pointer) -> Result<Found<'a>, NoTime> {
    let mut leaf = None;
    let walk = Walk { steps: &pointer.steps, leaf: &mut leaf };
    let walked = walk.deserialize(&mut serde_json::Deserializer::from_slice(document));
    match (leaf, walked) {
        (Some(Leaf::Number(number)), _) => Ok(Found::Number(number)),
        (Some(Leaf::Text(text)), _) => Ok(Found::Text(text)),
        (Some(Leaf::Null), _) => Err(NoTime::Missing(format!("{pointer} is null"))),
        (Some(Leaf::Other(what)), _) => Err(NoTime::Missing(format!("{pointer} is {what}"))),
        (Some(Leaf::Missing), _) | (None, Ok(())) => Err(NoTime::Missing(format!("there is no {pointer}"))),
        (None, Err(error)) => Err(NoTime::Missing(format!("it is no JSON: {error}"))),
    }
}

enum Leaf<'a> {
    Number(Number),
    Text(Cow<'a, str>),
    Null,
    Other(&'static str),
    Missing,
}

/// Goes down the steps; what is found is put into `leaf`, and then an error ends the reading.
struct Walk<'p, 'a> {
    steps: &'p [String],
    leaf: &'p mut Option<Leaf<'a>>,
}

/// The error behind which `leaf` is set. It is never shown.
const FOUND: &str = "";

impl<'a> DeserializeSeed<'a> for Walk<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Walk<'_, 'a> {
    /// A value that nothing is within: it is what was looked for, or nothing is there.
    fn scalar(self, leaf: Leaf<'a>) {
        if self.steps.is_empty() {
            *self.leaf = Some(leaf);
        }
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.scalar(Leaf::Number(Number::Integer(number.into())));
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.scalar(Leaf::Number(Number::Integer(number.into())));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.scalar(Leaf::Number(Number::Fraction(number)));
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.scalar(Leaf::Text(Cow::Borrowed(text)));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.scalar(Leaf::Text(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.scalar(Leaf::Other(if flag { "true" } else { "false" }));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.scalar(Leaf::Null);
        Ok(())
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            *self.leaf = Some(Leaf::Other("an object"));
            return Err(M::Error::custom(FOUND));
        };
        while let Some(is_step) = map.next_key_seed(IsStep(step))? {
            if is_step {
                map.next_value_seed(Walk { steps, leaf: &mut *self.leaf })?;
                // Nothing there is as final as something.
                self.leaf.get_or_insert(Leaf::Missing);
                return Err(M::Error::custom(FOUND));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut items: S) -> Result<(), S::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            *self.leaf = Some(Leaf::Other("a list"));
            return Err(S::Error::custom(FOUND));
        };
        // "01" and "-" are no places of a list.
        let wanted = step.parse::<usize>().ok().filter(|place| place.to_string() == *step);
        let mut place = 0;
        loop {
            if wanted == Some(place) {
                if items.next_element_seed(Walk { steps, leaf: &mut *self.leaf })?.is_none() {
                    return Ok(());
                }
                self.leaf.get_or_insert(Leaf::Missing);
                return Err(S::Error::custom(FOUND));
            }
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
            place += 1;
        }
    }
}

/// Compares a key without keeping it.
struct IsStep<'p>(&'p str);

impl<'a> DeserializeSeed<'a> for IsStep<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for IsStep<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(text: &str) -> Pointer {
        text.parse().expect("a pointer")
    }

    fn integer<'a>(number: i128) -> Result<Found<'a>, NoTime> {
        Ok(Found::Number(Number::Integer(number)))
    }

    #[test]
    fn a_field_is_found_at_any_depth() {
        let document =
            br#"{"type":"bid","a":{"x":[1,{"t":-7},2.5],"t":5},"t":18446744073709551615,"a/b~":9,"":3,"s":"\u0031"}"#;
        let find = |text| find(document, &pointer(text));
        assert_eq!(find("/t"), integer(u64::MAX.into()));
        assert_eq!(find("/a/t"), integer(5));
        assert_eq!(find("/a/x/1/t"), integer(-7));
        assert_eq!(find("/a/x/2"), Ok(Found::Number(Number::Fraction(2.5))));
        assert_eq!(find("/a~1b~0"), integer(9));
        assert_eq!(find("/"), integer(3));
        assert_eq!(find("/type"), Ok(Found::Text("bid".into())));
        assert_eq!(find("/s"), Ok(Found::Text("1".into())));
        assert_eq!(super::find(b"12", &pointer("")), integer(12));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let document = br#"{"a":{"b":null},"list":[1,2],"flag":true}"#;
        for (text, says) in [
            ("/c", "there is no /c"),
            ("/a/b", "/a/b is null"),
            ("/a", "/a is an object"),
            ("/list", "/list is a list"),
            ("/list/2", "there is no /list/2"),
            ("/list/-", "there is no /list/-"),
            ("/list/01", "there is no /list/01"),
            ("/flag", "/flag is true"),
        ] {
            let found = find(document, &pointer(text)).expect_err(text).to_string();
            assert!(found.ends_with(says), "{found}");
        }
        for document in ["", "{", "nothing", "{\"t\" 1}", "\u{1b}"] {
            let found = find(document.as_bytes(), &pointer("/t")).expect_err(document).to_string();
            assert!(found.contains("it is no JSON"), "{found}");
        }
    }

    #[test]
    fn nothing_behind_the_field_is_read() {
        assert_eq!(find(br#"{"a":{"t":1,,,"#, &pointer("/a/t")), integer(1));
        assert_eq!(find(br#"{"t":1,"t":2}"#, &pointer("/t")), integer(1));
    }

    #[test]
    fn a_document_that_nests_without_end_is_refused() {
        let deep = "[".repeat(1_000_000);
        find(deep.as_bytes(), &pointer("/t")).expect_err("too deep");
        let deep = format!("{{\"t\":{deep}");
        find(deep.as_bytes(), &pointer(&"/0".repeat(10_000))).expect_err("too deep");
    }

    #[test]
    fn a_text_that_does_not_begin_with_a_slash_is_no_pointer() {
        assert!("t".parse::<Pointer>().expect_err("no slash").to_string().contains("write /name"));
    }
}
