//! Compares answers with what an OpenAPI document says of them.
//!
//! Invariant: a part of a schema that isn't known here is a panic, not a pass; and an object has no field that isn't described.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A document of all that can be asked.
pub struct OpenApi {
    document: Value,
}

/// What says nothing about values.
const REMARKS: [&str; 4] = ["description", "default", "format", "examples"];

impl OpenApi {
    pub fn new(document: Value) -> OpenApi {
        OpenApi { document }
    }

    /// Compares an answer with what is said of it.
    ///
    /// # Errors
    /// Says where the two differ.
    pub fn check(&self, method: &str, path: &str, status: u16, kind: Option<&str>, body: &str) -> Result<(), String> {
        let place = format!("{method} {path} -> {status}");
        let Some(operation) = self.operation(method, path) else {
            // What isn't described is refused, in the one form of all errors.
            let of_error = Value::from_iter([("$ref", "#/components/schemas/Error")]);
            let body = serde_json::from_str(body).map_err(|error| format!("{place}: {error}: {body}"))?;
            return self.compare(&of_error, &body, &place);
        };
        let response = operation["responses"].get(status.to_string());
        let response = self.follow(response.ok_or_else(|| format!("{place}: the status isn't described; {body}"))?);
        let Some(content) = response.get("content").and_then(Value::as_object) else {
            return if body.is_empty() { Ok(()) } else { Err(format!("{place}: a body that isn't described: {body}")) };
        };
        let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        let schema = content.get(essence).ok_or_else(|| format!("{place}: '{essence}' isn't described"))?;
        if essence != "application/json" {
            return Ok(());
        }
        let body = serde_json::from_str(body).map_err(|error| format!("{place}: {error}: {body}"))?;
        self.compare(&schema["schema"], &body, &place)
    }

    /// The operation of a method and a path with values in it.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap_or_default();
        let fits = |template: &str| {
            let (parts, names) = (path.split('/').collect::<Vec<_>>(), template.split('/').collect::<Vec<_>>());
            let mut pairs = parts.iter().zip(&names);
            parts.len() == names.len()
                && pairs.all(|(part, name)| part == name || name.starts_with('{') && !part.is_empty())
        };
        let paths = self.document["paths"].as_object().expect("paths");
        paths.iter().find(|(template, _)| fits(template))?.1.get(method.to_lowercase())
    }

    fn follow<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.document.pointer(&reference[1..]).expect("what is referred to is there"),
            None => value,
        }
    }

    fn compare(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let schema = self.follow(schema).as_object().expect("a schema is an object");
        for (key, rule) in schema {
            let wrong = || Err(format!("{place} is {value}, against {key}: {rule}"));
            match key.as_str() {
                "type" if !is_of_type(rule, value) => return wrong(),
                "const" if rule != value => return wrong(),
                "enum" if !rule.as_array().expect("values").contains(value) => return wrong(),
                "minimum" if value.as_f64().is_some_and(|number| number < rule.as_f64().expect("a number")) => {
                    return wrong();
                }
                "pattern" if value.as_str().is_some_and(|text| !fits_pattern(rule.as_str().expect("text"), text)) => {
                    return wrong();
                }
                "oneOf" => {
                    let fitting = rule.as_array().expect("schemas").iter();
                    let failures =
                        fitting.filter_map(|schema| self.compare(schema, value, place).err()).collect::<Vec<_>>();
                    if failures.len() + 1 != rule.as_array().map_or(0, Vec::len) {
                        return Err(failures.join("\n"));
                    }
                }
                "items" => {
                    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.compare(rule, item, &format!("{place}[{at}]"))?;
                    }
                }
                "type"
                | "const"
                | "enum"
                | "minimum"
                | "pattern"
                | "required"
                | "properties"
                | "additionalProperties" => {}
                known if REMARKS.contains(&known) => {}
                unknown => panic!("this comparison doesn't know '{unknown}'"),
            }
        }
        match value.as_object() {
            Some(fields) => self.compare_fields(schema, fields, place),
            None => Ok(()),
        }
    }

    fn compare_fields(
        &self,
        schema: &Map<String, Value>,
        fields: &Map<String, Value>,
        place: &str,
    ) -> Result<(), String> {
        let described = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required = required.map(|name| name.as_str().expect("a name")).collect::<BTreeSet<_>>();
        if let Some(missing) = required.iter().find(|name| !fields.contains_key(**name)) {
            return Err(format!("{place} has no '{missing}'"));
        }
        if described.is_none() && others.is_none() {
            return Ok(());
        }
        for (name, value) in fields {
            let schema = described.and_then(|described| described.get(name)).or(others);
            let schema = schema.ok_or_else(|| format!("{place} has a '{name}' that isn't described"))?;
            self.compare(schema, value, &format!("{place}.{name}"))?;
        }
        Ok(())
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type '{other}'"),
    };
    match rule {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().expect("a name"))),
        other => panic!("{other} is no type"),
    }
}

/// The patterns that the document has.
fn fits_pattern(pattern: &str, text: &str) -> bool {
    let is_hex = |text: &str| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match pattern {
        "^[0-9a-f]{64}$" => is_hex(text),
        "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" => {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            (1..=64).contains(&text.len()) && text.bytes().all(fits) && text.as_bytes()[0].is_ascii_alphanumeric()
        }
        other => panic!("this comparison doesn't know the pattern {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> OpenApi {
        let count = json!({ "type": ["integer", "null"], "minimum": 0 });
        let thing =
            json!({ "type": "object", "required": ["n"], "properties": { "n": count, "s": { "enum": ["a"] } } });
        let list = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Thing" } });
        let found = json!({ "content": { "application/json": { "schema": list } } });
        let of_error =
            json!({ "type": "object", "required": ["error"], "properties": { "error": { "type": "string" } } });
        OpenApi::new(json!({
            "paths": { "/things/{name}": { "get": { "responses": { "200": found, "204": {} } } } },
            "components": { "schemas": { "Thing": thing, "Error": of_error } },
        }))
    }

    #[test]
    fn an_answer_that_differs_from_the_document_anywhere_is_found() {
        let check = |status, body: &str| document().check("GET", "/things/x", status, Some("application/json"), body);
        for good in ["[]", r#"[{"n":1},{"n":null,"s":"a"}]"#] {
            assert_eq!(check(200, good), Ok(()), "{good}");
        }
        let bad = [
            "{}",
            "[1]",
            "[{}]",
            r#"[{"n":-1}]"#,
            r#"[{"n":1.5}]"#,
            r#"[{"n":1,"s":"b"}]"#,
            r#"[{"n":1,"more":1}]"#,
            "[",
        ];
        for bad in bad {
            assert!(check(200, bad).is_err(), "{bad}");
        }
        assert!(check(201, "[]").is_err(), "a status that isn't described");
        assert!(check(204, "[]").is_err(), "a body where there is none");
        assert!(document().check("GET", "/things/x", 200, Some("text/plain"), "[]").is_err());
        assert_eq!(document().check("PUT", "/other", 404, Some("application/json"), r#"{"error":"no"}"#), Ok(()));
        assert!(document().check("PUT", "/other", 404, Some("application/json"), "no").is_err());
    }
}
