//! A TOML document as a tree that remembers where everything stood, so that an error about a value can say its line.
//!
//! Invariant: what the tree holds is what the text said, with nothing rounded: integers of any size up to 128 bits, and datetimes
//! as they were written.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::config::problem::Problem;

/// How many tables and arrays may stand in one another.
const DEPTH_MAX: usize = 64;

/// Keys and what they hold, in alphabetical order.
pub(super) type Table = BTreeMap<String, Node>;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub value: Value,
    /// Bytes of the document; `None` for a default.
    pub span: Option<Range<usize>>,
    /// The same for its key.
    pub key_span: Option<Range<usize>>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float(f64),
    Flag(bool),
    Datetime(String),
    List(Vec<Node>),
    Table(Table),
}

impl Node {
    /// A value that stands nowhere in a document.
    pub fn without_place(value: Value) -> Node {
        Node { value, span: None, key_span: None }
    }
}

impl Value {
    /// What it is, for a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a text",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number with a fraction",
            Value::Flag(_) => "true or false",
            Value::Datetime(_) => "a date or time",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// Reads a document.
pub(super) fn parse(text: &str) -> Result<Table, Problem> {
    refuse_deep(text)?;
    let table = DeTable::parse(text).map_err(|error| Problem::syntax(error.message(), error.span()))?;
    table_from(table.get_ref(), 0)
}

/// A header or dotted key of thousands of parts would be that many tables in one another, each dropped within the one around
/// it: more than the stack holds. The parser itself bounds brackets only.
fn refuse_deep(text: &str) -> Result<(), Problem> {
    const KEY_PARTS_MAX: usize = 1_000;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if key_dots(line) > KEY_PARTS_MAX {
            return Err(Problem::too_deep(DEPTH_MAX).at(Some(start..start + line.len())));
        }
        start += line.len();
    }
    Ok(())
}

/// The dots of a line before its value or comment, quoted ones apart. In the midst of a text of several lines this counts
/// something else, so the limit is far from what people write.
fn key_dots(line: &str) -> usize {
    let mut quote = None;
    let mut dots = 0;
    for byte in line.bytes() {
        match (quote, byte) {
            (None, b'=' | b'#') => break,
            (None, b'.') => dots += 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (None | Some(_), _) => {}
        }
    }
    dots
}

fn table_from(table: &DeTable<'_>, depth: usize) -> Result<Table, Problem> {
    let mut entries = Table::new();
    for (key, value) in table {
        let node =
            node_from(value.get_ref(), value.span(), depth + 1).map_err(|problem| problem.inside(key.get_ref()))?;
        entries.insert(key.get_ref().to_string(), Node { key_span: Some(key.span()), ..node });
    }
    Ok(entries)
}

fn node_from(value: &DeValue<'_>, span: Range<usize>, depth: usize) -> Result<Node, Problem> {
    if depth > DEPTH_MAX {
        return Err(Problem::too_deep(DEPTH_MAX).at(Some(span)));
    }
    let out_of_range = |what: &str| Problem::invalid(format!("{what} is out of range")).at(Some(span.clone()));
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(digits) => {
            let number = i128::from_str_radix(digits.as_str(), digits.radix());
            Value::Integer(number.map_err(|_| out_of_range(&digits.to_string()))?)
        }
        DeValue::Float(digits) => Value::Float(digits.as_str().parse().map_err(|_| out_of_range(digits.as_str()))?),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(datetime) => Value::Datetime(datetime.to_string()),
        DeValue::Array(items) => {
            let items = items.iter().enumerate().map(|(index, item)| {
                let node = node_from(item.get_ref(), item.span(), depth + 1);
                node.map_err(|problem| problem.inside(&format!("[{index}]")))
            });
            Value::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Value::Table(table_from(table, depth)?),
    };
    Ok(Node { value, span: Some(span), key_span: None })
}

/// Adds to `table` what it lacks of `defaults`, at every level.
pub(super) fn fill(table: &mut Table, defaults: &Table) {
    for (key, default) in defaults {
        match (table.get_mut(key), &default.value) {
            (None, _) => {
                table.insert(key.clone(), without_places(default));
            }
            (Some(Node { value: Value::Table(own), .. }), Value::Table(defaults)) => fill(own, defaults),
            (Some(_), _) => {}
        }
    }
}

/// A default stands nowhere in the user's document.
fn without_places(node: &Node) -> Node {
    let value = match &node.value {
        Value::Table(table) => {
            Value::Table(table.iter().map(|(key, node)| (key.clone(), without_places(node))).collect())
        }
        Value::List(items) => Value::List(items.iter().map(without_places).collect()),
        value @ (Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Flag(_) | Value::Datetime(_)) => {
            value.clone()
        }
    };
    Node::without_place(value)
}

/// Writes a value as JSON. Datetimes become texts, integers keep all their digits.
pub(super) fn write_json(node: &Node, json: &mut String) -> Result<(), Problem> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match &node.value {
        Value::Text(text) | Value::Datetime(text) => json.push_str(&quoted(text)),
        Value::Integer(number) => json.push_str(&number.to_string()),
        Value::Flag(flag) => json.push_str(if *flag { "true" } else { "false" }),
        Value::Float(number) => {
            let finite = serde_json::Number::from_f64(*number);
            let nameless =
                || Problem::invalid(format!("{number} has no form in JSON, in which the operator gets its config"));
            json.push_str(&finite.ok_or_else(nameless).map_err(|problem| problem.at(node.span.clone()))?.to_string());
        }
        Value::List(items) => {
            json.push('[');
            for (index, item) in items.iter().enumerate() {
                json.push_str(if index == 0 { "" } else { "," });
                write_json(item, json).map_err(|problem| problem.inside(&format!("[{index}]")))?;
            }
            json.push(']');
        }
        Value::Table(table) => {
            json.push('{');
            for (index, (key, value)) in table.iter().enumerate() {
                json.push_str(if index == 0 { "" } else { "," });
                json.push_str(&quoted(key));
                json.push(':');
                write_json(value, json).map_err(|problem| problem.inside(key))?;
            }
            json.push('}');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<String, Problem> {
        let mut json = String::new();
        let node = Node::without_place(Value::Table(parse(text)?));
        write_json(&node, &mut json).map(|()| json)
    }

    #[test]
    fn what_toml_can_say_becomes_json() {
        let toml = r#"
            big = 9223372036854775808
            small = -170141183460469231731687303715884105728
            hex = 0xff
            float = 1.5
            whole = 3.0
            flag = true
            day = 1979-05-27
            at = 1979-05-27T07:32:00Z
            text = "a \"quoted\" \u00e9\n"
            list = [1, [2, "x"], {}]
            [a.b]
            c = 1
        "#;
        let expected = concat!(
            r#"{"a":{"b":{"c":1}},"at":"1979-05-27T07:32:00Z","big":9223372036854775808,"day":"1979-05-27","flag":true,"#,
            r#""float":1.5,"hex":255,"list":[1,[2,"x"],{}],"small":-170141183460469231731687303715884105728,"#,
            r#""text":"a \"quoted\" é\n","whole":3.0}"#
        );
        assert_eq!(json(toml).expect("valid"), expected);
    }

    #[test]
    fn what_json_cannot_say_is_refused_at_its_place() {
        let problem = json("a = [1.0, nan]").expect_err("no nan");
        assert_eq!((problem.key_path(), problem.span()), ("a[1]".to_owned(), Some(10..13)));
        let problem = json("a = 170141183460469231731687303715884105728").expect_err("too big");
        assert_eq!(problem.key_path(), "a");
    }

    #[test]
    fn a_document_that_nests_without_end_is_refused_and_not_the_end_of_the_process() {
        let dots = "a.".repeat(200_000);
        let brackets = "[".repeat(200_000);
        let tables = "{a=".repeat(200_000);
        let quoted = format!("\"=\".{dots}a = 1");
        for text in
            [format!("[{dots}a]"), format!("{dots}a = 1"), quoted, format!("a = {brackets}"), format!("a = {tables}")]
        {
            parse(&text).expect_err("too deep");
        }
        parse(&format!("{}a = 1", "a.".repeat(60))).expect("deep enough for anybody");
        parse(&format!("{}a = 1", "a.".repeat(70))).expect_err("too deep");
    }

    #[test]
    fn defaults_fill_what_is_missing_at_every_level() {
        let mut table = parse("[a]\nx = 1").expect("valid");
        fill(&mut table, &parse("b = 2\n[a]\nx = 9\ny = 3").expect("valid"));
        let mut json = String::new();
        write_json(&Node::without_place(Value::Table(table)), &mut json).expect("finite");
        assert_eq!(json, r#"{"a":{"x":1,"y":3},"b":2}"#);
    }
}
