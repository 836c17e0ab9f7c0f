//! Whether a configuration is of its type, with upstream's texts.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::decode::go_text;
use crate::fields::{Relation, Scalar, Type};
use crate::managed::set::element_text;
use crate::managed::walk::item_element;

/// What is wrong with a configuration; `None` when nothing is.
pub(crate) fn check(ty: &Type, config: &Value) -> Option<String> {
    let mut errors = Vec::new();
    walk(ty, config, "", &mut errors);
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn walk(ty: &Type, value: &Value, path: &str, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let mut wrong = |expected: &str, shown: String| {
        errors.push(format!("{path}: expected {expected}, got {shown}"));
    };
    match (ty, value) {
        (Type::Any, Value::Object(map)) => walk_map(ty, map, path, errors),
        (Type::Any, _) => {}
        (Type::Scalar(Scalar::String), Value::String(_))
        | (Type::Scalar(Scalar::Numeric), Value::Number(_))
        | (Type::Scalar(Scalar::Boolean), Value::Bool(_))
        | (Type::Scalar(Scalar::Untyped), Value::String(_) | Value::Number(_) | Value::Bool(_)) => {}
        (Type::Scalar(Scalar::String), _) => {
            wrong("string", format!("&value.valueUnstructured{{Value:{}}}", go_syntax(value)));
        }
        (Type::Scalar(Scalar::Numeric), _) => wrong("numeric (int or float)", go_type(value).to_owned()),
        (Type::Scalar(Scalar::Boolean), _) => wrong("boolean", format!("&{{{}}}", go_text(value))),
        (Type::Scalar(Scalar::Untyped), _) => wrong("any scalar", format!("&{{{}}}", go_text(value))),
        (Type::List { element, relation }, Value::Array(items)) => {
            walk_items(relation, element, items, path, errors);
        }
        (Type::List { .. }, _) => wrong("list", format!("&{{{}}}", go_text(value))),
        (Type::Struct(_) | Type::Map { .. }, Value::Object(map)) => walk_map(ty, map, path, errors),
        (Type::Struct(_) | Type::Map { .. }, _) => wrong("map", format!("&{{{}}}", go_text(value))),
    }
}

fn walk_map(ty: &Type, map: &Map<String, Value>, path: &str, errors: &mut Vec<String>) {
    for (name, value) in map {
        let (member, field) = ty.member(name);
        let path = format!("{path}.{name}");
        // A field of Jobs that only we know.
        let is_known = field.is_some() || !matches!(ty, Type::Struct(_)) || path == ".spec.backoffPolicy";
        if !is_known {
            // upstream: the rest of the map is not looked at
            return errors.push(format!("{path}: field not declared in schema"));
        }
        walk(member, value, &path, errors);
    }
}

fn walk_items(relation: &Relation, element: &Type, items: &[Value], path: &str, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (place, item) in items.iter().enumerate() {
        if *relation == Relation::Atomic {
            walk(element, item, &format!("{path}[{place}]"), errors);
            continue;
        }
        if let Some(why) = item_error(relation, item) {
            return errors.push(format!("{path}: element {place}: {why}"));
        }
        let Some(name) = item_element(relation, element, item) else {
            let Relation::Keyed(keys) = relation else { continue };
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return errors.push(format!(
                "{path}: element {place}: associative list with keys has an element that omits all key fields \
                 [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        };
        let text = element_text(&name);
        if !seen.insert(name) {
            errors.push(format!("{path}: duplicate entries for key {text}"));
        }
        walk(element, item, &format!("{path}{text}"), errors);
    }
}

fn item_error(relation: &Relation, item: &Value) -> Option<&'static str> {
    match (relation, item) {
        (Relation::Atomic, _) | (Relation::Keyed(_), Value::Object(_)) => None,
        (Relation::Keyed(_), Value::Null) => Some("associative list with keys may not have a null element"),
        (Relation::Keyed(_), _) => Some("associative list with keys may not have non-map elements"),
        (Relation::Set, Value::Object(_)) => {
            Some("associative list without keys has an element that's a map type")
        }
        (Relation::Set, Value::Array(_)) => Some("not supported: associative list with lists as elements"),
        (Relation::Set, Value::Null) => {
            Some("associative list without keys has an element that's an explicit null")
        }
        (Relation::Set, Value::Bool(_) | Value::Number(_) | Value::String(_)) => None,
    }
}

/// The name of the Go type that a JSON value becomes.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The value as Go source.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<String> =
                map.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}
