//! The id that Kafka gives a topic when it is created: another topic of the same name has another one.
//!
//! As text it is as Kafka's own tools write it (`kafka-topics.sh --describe`): 22 characters of base64 for URLs.
//!
//! Invariant: an id is never zero, which is Kafka's word for none, and has one text.

use std::fmt;

use serde::{Deserialize, Serialize};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters of six bits each; the last has two bits, and four zeros.
const LENGTH: usize = 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicId(u128);

impl TopicId {
    /// `None`: a broker has none for the topic, or is too old to.
    pub fn told(id: u128) -> Option<TopicId> {
        (id != 0).then_some(TopicId(id))
    }

    fn parse(text: &str) -> Option<TopicId> {
        let digits = text.bytes().map(|byte| DIGITS.iter().position(|digit| *digit == byte).map(|value| value as u128));
        let digits = digits.collect::<Option<Vec<_>>>().filter(|digits| digits.len() == LENGTH)?;
        let (last, others) = digits.split_last()?;
        let high = others.iter().fold(0_u128, |sum, digit| (sum << 6) | digit);
        if last & 0b1111 != 0 {
            return None;
        }
        TopicId::told((high << 2) | (last >> 4))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |value: u128| char::from(DIGITS[(value & 0b11_1111) as usize]);
        let mut text = (0..LENGTH - 1).map(|place| digit(self.0 >> (122 - 6 * place))).collect::<String>();
        text.push(digit(self.0 << 4));
        f.write_str(&text)
    }
}

/// A text that is none.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no id of a topic")]
pub struct NoTopicId(String);

impl TryFrom<String> for TopicId {
    type Error = NoTopicId;

    fn try_from(text: String) -> Result<TopicId, NoTopicId> {
        TopicId::parse(&text).ok_or(NoTopicId(text))
    }
}

impl From<TopicId> for String {
    fn from(id: TopicId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_comes_back_as_it_was(number in 1..=u128::MAX) {
            let id = TopicId(number);
            prop_assert_eq!(TopicId::try_from(id.to_string()).expect("an id"), id);
        }
    }

    #[test]
    fn the_text_is_that_of_kafkas_tools() {
        assert_eq!(TopicId(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicId(u128::MAX).to_string(), "_____________________w");
        assert_eq!(TopicId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10).to_string(), "AQIDBAUGBwgJCgsMDQ4PEA");
    }

    #[test]
    fn what_is_no_id_is_refused() {
        assert_eq!(TopicId::told(0), None);
        let long = "A".repeat(23);
        for text in [
            "",
            "AAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAR",
            "AAAAAAAAAAAAAAAAAAAAA+",
            "AAAAAAAAAAAAAAAAAAAAAQ==",
            "ÄÄÄÄÄÄÄÄÄÄÄ",
            long.as_str(),
        ] {
            assert!(TopicId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
