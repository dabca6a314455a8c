//! Which topics a source reads. Pure.
//!
//! Invariant: a pattern matches whole names, and never a topic of Kafka's own.

use regex::Regex;

#[derive(Clone, Debug)]
pub enum Selection {
    Names(Vec<String>),
    Pattern(Regex),
}

impl Selection {
    /// # Errors
    /// Says why it is no regular expression.
    pub fn pattern(pattern: &str) -> Result<Selection, String> {
        if pattern.is_empty() {
            return Err("write a regular expression, such as \"orders-.*\"".to_owned());
        }
        let whole = Regex::new(&format!("^(?:{pattern})$"));
        whole.map(Selection::Pattern).map_err(|error| {
            let reason = error.to_string();
            // The last line says it; those before draw the expression as it is put together here.
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("it is no regular expression: {reason}")
        })
    }

    pub fn has(&self, topic: &str) -> bool {
        match self {
            Selection::Names(names) => names.iter().any(|name| name == topic),
            Selection::Pattern(pattern) => !topic.starts_with("__") && pattern.is_match(topic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_the_whole_name_and_not_for_topics_of_kafka_itself() {
        let pattern = Selection::pattern("orders-.*|all").expect("a pattern");
        for topic in ["orders-", "orders-eu", "all"] {
            assert!(pattern.has(topic), "{topic}");
        }
        for topic in ["orders", "my-orders-eu", "all-of-them", "ORDERS-eu"] {
            assert!(!pattern.has(topic), "{topic}");
        }
        let any = Selection::pattern(".*").expect("a pattern");
        assert!(any.has("orders") && !any.has("__consumer_offsets"));
    }

    #[test]
    fn a_name_is_a_name() {
        let names = Selection::Names(vec!["a.b".to_owned()]);
        assert!(names.has("a.b") && !names.has("axb") && !names.has("a"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        let reason = Selection::pattern("orders-(").expect_err("an open group");
        assert!(reason.contains("no regular expression: unclosed group"), "{reason}");
        assert!(Selection::pattern("").is_err());
    }
}
