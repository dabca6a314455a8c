//! The document of all requests says what there is, no more and no less.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::routes::ROUTES;
use crate::api::texts::OPENAPI;
use crate::serve::{PROBATION_MS_DEFAULT, PROBATION_MS_MAX};

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

fn document() -> Value {
    serde_json::from_str(OPENAPI).expect("the document is JSON")
}

/// Every object and array in a document.
fn all<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|inner| all(inner, found)),
        Value::Array(items) => items.iter().for_each(|inner| all(inner, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_document_describes_each_route_and_nothing_else() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let described = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("an item").keys().filter(|key| METHODS.contains(&key.as_str()));
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    let described = described.collect::<BTreeSet<_>>();
    let routes = ROUTES.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect::<BTreeSet<_>>();
    assert_eq!(routes.len(), ROUTES.len(), "no route is there twice");
    assert_eq!(described, routes);
}

#[test]
fn each_path_describes_its_names_and_each_operation_has_an_id_of_its_own() {
    let document = document();
    let mut ids = BTreeSet::new();
    for route in &ROUTES {
        let item = &document["paths"][route.path];
        let operation = &item[route.method.as_str().to_lowercase()];
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id.to_owned()), "{id} is there twice");
        let parameters = [&item["parameters"], &operation["parameters"]];
        let parameters = parameters.iter().filter_map(|list| list.as_array()).flatten();
        let named = parameters.map(|parameter| match parameter["$ref"].as_str() {
            Some(reference) => document.pointer(&reference[1..]).expect("it is there")["name"].clone(),
            None => parameter["name"].clone(),
        });
        let named = named.map(|name| name.as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>();
        let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(named, in_path.map(str::to_owned).collect::<BTreeSet<_>>(), "{}", route.path);
    }
}

#[test]
fn whatever_the_document_refers_to_is_there_and_whatever_is_there_is_referred_to() {
    let document = document();
    let mut values = Vec::new();
    all(&document, &mut values);
    let mut referred = BTreeSet::new();
    for reference in values.iter().filter_map(|value| value.get("$ref")?.as_str()) {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} isn't there");
        referred.insert(reference.to_owned());
    }
    for kind in ["schemas", "responses", "parameters"] {
        for name in document["components"][kind].as_object().expect("components").keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(referred.contains(&reference), "nothing refers to {reference}");
        }
    }
}

#[test]
fn the_document_has_the_limits_and_the_version_that_the_code_has() {
    let document = document();
    let probation = &document["components"]["schemas"]["UpgradeRequest"]["properties"]["probation_ms"];
    assert_eq!(probation["maximum"], PROBATION_MS_MAX);
    assert!(probation["description"].as_str().is_some_and(|text| text.contains(&PROBATION_MS_DEFAULT.to_string())));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}
