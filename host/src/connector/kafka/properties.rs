//! Settings of librdkafka as a user gives them: a table in the job file, lines in a file beside it.
//!
//! Invariant: values are never shown: any may be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Larger files are something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// `properties = { "name" = value }`; values may be texts, whole numbers and true or false.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(items: I) -> Properties {
        Properties(items.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Properties, D::Error> {
        from.deserialize_map(PropertiesVisitor)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = Properties;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of librdkafka's settings: { \"security.protocol\" = \"SSL\" }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Properties, A::Error> {
        let mut properties = BTreeMap::new();
        while let Some(name) = entries.next_key::<String>()? {
            properties.insert(name, entries.next_value::<Setting>()?.0);
        }
        Ok(Properties(properties))
    }
}

/// The value of a setting, as librdkafka takes it.
struct Setting(String);

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Setting, D::Error> {
        from.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl Visitor<'_> for SettingVisitor {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number, or true or false; a name with dots is written in quotes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Setting, E> {
        Ok(Setting(text.to_owned()))
    }

    fn visit_bool<E: serde::de::Error>(self, flag: bool) -> Result<Setting, E> {
        Ok(Setting(flag.to_string()))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Setting, E> {
        Ok(Setting(number.to_string()))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Setting, E> {
        Ok(Setting(number.to_string()))
    }
}

/// Why a file of properties can't be used.
pub struct BadFile {
    pub what: String,
    /// What the system says, if it can't be read at all.
    pub source: Option<io::Error>,
}

/// The settings of a file, in its order. A line is `name=value`, empty, or begins with `#` or `!`; blanks around name and value
/// are not part of them. There are no escapes and no continued lines, so that a password is what it looks like.
///
/// # Errors
/// If the file can't be read, or a line is none of these.
pub fn read_properties_file(path: &Path) -> Result<Vec<(String, String)>, BadFile> {
    let unreadable = |source: io::Error| BadFile { what: String::new(), source: Some(source) };
    let bad = |what: String| BadFile { what, source: None };
    // Asked before it is opened: a pipe or a device may have no end.
    let found = std::fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() {
        return Err(bad("it is not a file".to_owned()));
    }
    let size = found.len();
    if size > FILE_BYTES_MAX {
        return Err(bad(format!("it has {size} bytes, and a file of properties has at most {FILE_BYTES_MAX}")));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| bad("it isn't UTF-8".to_owned()))?;
    parse_properties(&text).map_err(bad)
}

fn parse_properties(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => (name.trim(), value.trim()),
            Some(_) | None => return Err(format!("line {number} isn't name=value")),
        };
        if found.iter().any(|(known, _)| known == name) {
            return Err(format!("line {number} sets '{name}' a second time"));
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_as_they_are_written() {
        let text =
            "\u{feff}# comment\r\n! another\n\n sasl.username = me \nsasl.password=a=b\\n#c\r\nssl.ca.location=\n";
        let found = parse_properties(text).expect("lines");
        let wanted = [("sasl.username", "me"), ("sasl.password", "a=b\\n#c"), ("ssl.ca.location", "")];
        assert_eq!(found, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_line_that_is_no_setting_is_refused_by_its_number_alone() {
        for (text, says) in [
            ("a=1\nhunter2\n", "line 2 isn't name=value"),
            ("=hunter2", "line 1 isn't name=value"),
            ("a=hunter2\n\na=hunter2", "line 3 sets 'a' a second time"),
        ] {
            assert_eq!(parse_properties(text).expect_err(text), says);
        }
    }

    #[test]
    fn what_is_no_file_is_not_read_to_an_end_that_it_hasn_t() {
        let refused = read_properties_file(Path::new("/dev/zero")).expect_err("a device");
        assert_eq!((refused.what.as_str(), refused.source.is_some()), ("it is not a file", false));
    }

    #[test]
    fn values_are_not_shown_for_debugging() {
        let properties = Properties::from_iter([("sasl.password", "hunter2"), ("client.id", "me")]);
        assert_eq!(format!("{properties:?}"), "{\"client.id\", \"sasl.password\"}");
    }

    #[test]
    fn values_may_be_texts_numbers_and_flags() {
        let properties: Properties =
            toml::from_str("'a.b' = 'x'\n'c' = 5\n'd' = true\n'e' = -1").expect("a table of settings");
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("a.b", "x"), ("c", "5"), ("d", "true"), ("e", "-1")]);
        let error = toml::from_str::<Properties>("sasl.password = 'hunter2'").expect_err("a table within").to_string();
        assert!(error.contains("in quotes"), "{error}");
    }
}
