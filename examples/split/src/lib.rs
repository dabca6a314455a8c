//! Splits values into words: sends each word as a key, without a value.
//!
//! A word is a run of letters, digits and apostrophes (not at its ends). Bytes that are not UTF-8 separate words, like any
//! other character. Configuration: `lowercase` (true unless said).

use lockgate::prelude::*;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    lowercase: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { lowercase: true }
    }
}

/// See the crate.
pub struct Split {
    config: Config,
    /// For words that change when lower-cased.
    word: String,
}

impl Operator for Split {
    fn new(_: &mut Declaration) -> Split {
        Split { config: Config::default(), word: String::new() }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        for chunk in record.value().unwrap_or_default().utf8_chunks() {
            let words = chunk.valid().split(|c: char| !(c.is_alphanumeric() || is_apostrophe(c)));
            for word in words.map(|word| word.trim_matches(is_apostrophe)).filter(|word| !word.is_empty()) {
                self.emit(word, ctx);
            }
        }
        Ok(())
    }
}

fn is_apostrophe(c: char) -> bool {
    c == '\'' || c == '\u{2019}'
}

impl Split {
    fn emit(&mut self, word: &str, ctx: &mut Context<'_>) {
        let unchanged = word.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
        if unchanged || !self.config.lowercase {
            return ctx.emit(word, ());
        }
        self.word.clear();
        self.word.extend(word.chars().flat_map(char::to_lowercase));
        ctx.emit(&self.word, ());
    }
}

lockgate::export!(Split);

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::testing::Harness;

    fn words(config: &str, text: &[u8]) -> Vec<String> {
        let mut harness = Harness::<Split>::open_with(config).expect("a configuration");
        harness.process([((), text)]).expect("any bytes will do");
        harness.take_output().iter().map(|record| record.key_str()).collect()
    }

    #[test]
    fn words_are_runs_of_letters_digits_and_apostrophes() {
        assert_eq!(
            words("{}", b"To be, or not to be: that's 1 question."),
            ["to", "be", "or", "not", "to", "be", "that's", "1", "question"]
        );
        assert_eq!(
            words("{}", "'quoted' na\u{ef}ve \u{c4}RGER l\u{2019}eau".as_bytes()),
            ["quoted", "na\u{ef}ve", "\u{e4}rger", "l\u{2019}eau"]
        );
    }

    #[test]
    fn bytes_that_are_not_text_separate_words() {
        assert_eq!(words("{}", b"left\xffright\xc3 end"), ["left", "right", "end"]);
        assert_eq!(words("{}", b" ''--\xfe\t"), [""; 0]);
    }

    #[test]
    fn case_is_kept_if_asked_for() {
        assert_eq!(words(r#"{"lowercase": false}"#, b"To BE"), ["To", "BE"]);
    }

    #[test]
    fn a_misspelt_setting_is_refused() {
        let error = Harness::<Split>::open_with(r#"{"lower_case": true}"#).err().expect("an error");
        assert!(error.to_string().contains("unknown field `lower_case`, expected `lowercase`"), "{error}");
    }

    #[test]
    fn a_record_without_a_value_has_no_words_and_words_keep_the_event_time() {
        let mut harness = Harness::<Split>::open().expect("no configuration");
        harness.process([((), None::<&str>, 7), ((), Some("two words"), 8)]).expect("records");
        assert_eq!(harness.take_output(), [("two", (), 8), ("words", (), 8)]);
    }
}
