//! Objects as upstream shows them: it decodes what it is sent into structs, and writes these.
//!
//! A field that a struct always writes is there with its zero, one that it leaves out when it is empty is not there. A
//! time that nobody gave is null; lists and maps that would be null we leave out.

use serde_json::{Map, Value, json};

use super::{Field, Presence, Scalar, Type};

/// Whether a value is as upstream would show it.
pub(crate) fn is_tidy(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Struct(of), Value::Object(map)) => {
            let is_whole =
                of.get().always().all(|field| map.contains_key(&field.name) || zero(field).is_none());
            is_whole
                && map.iter().all(|(name, value)| match of.get().field(name) {
                    Some(field) => !is_left_out(field, value) && is_tidy(&field.ty, value),
                    None => true,
                })
        }
        (Type::Map { element, .. }, Value::Object(map)) => map.values().all(|value| is_tidy(element, value)),
        (Type::List { element, .. }, Value::Array(items)) => items.iter().all(|item| is_tidy(element, item)),
        _ => true,
    }
}

/// Makes a value what upstream would show.
pub(crate) fn tidy(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Struct(of), Value::Object(map)) => {
            map.retain(|name, value| of.get().field(name).is_none_or(|field| !is_left_out(field, value)));
            for field in of.get().always().filter(|field| !map.contains_key(&field.name)).collect::<Vec<_>>()
            {
                map.extend(zero(field).map(|zero| (field.name.clone(), zero)));
            }
            tidy_fields(of.get(), map);
        }
        (Type::Map { element, .. }, Value::Object(map)) => {
            map.values_mut().for_each(|value| tidy(element, value));
        }
        (Type::List { element, .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|item| tidy(element, item));
        }
        _ => {}
    }
}

fn tidy_fields(of: &super::Struct, map: &mut Map<String, Value>) {
    for (name, value) in map {
        if let Some(field) = of.field(name) {
            tidy(&field.ty, value);
        }
    }
}

fn is_left_out(field: &Field, value: &Value) -> bool {
    field.presence == Presence::Filled && is_empty(value)
}

/// Whether a value is what Go leaves out when it is told to leave out what is empty.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// What a field that is always there shows when nobody gave it. Nothing for lists and maps, which would be null.
pub(crate) fn zero(field: &Field) -> Option<Value> {
    match &field.ty {
        Type::Scalar(Scalar::String) => Some(json!("")),
        Type::Scalar(Scalar::Numeric) => Some(json!(0)),
        Type::Scalar(Scalar::Boolean) => Some(json!(false)),
        Type::Struct(_) => Some(json!({})),
        Type::Scalar(Scalar::Untyped) if is_time(&field.name) => Some(Value::Null),
        Type::Scalar(Scalar::Untyped) | Type::Any | Type::Map { .. } | Type::List { .. } => None,
    }
}

/// The schema does not tell times from ports and quantities; their names do.
pub(super) fn is_time(name: &str) -> bool {
    ["Time", "Timestamp", "At"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::of_kind;

    #[test]
    fn what_is_empty_goes_and_what_is_always_there_comes() {
        let ty = of_kind("v1", "Pod").expect("a kind");
        let mut pod = json!({
            "metadata": {"name": "a", "labels": {}, "annotations": {"a": ""}},
            "spec": {
                "hostNetwork": false, "nodeName": "", "priority": 0, "unknown": "",
                "containers": [{"name": "c", "env": [{"name": "E", "value": ""}], "args": []}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        });
        let want = json!({
            "metadata": {"name": "a", "annotations": {"a": ""}},
            "spec": {
                "priority": 0, "unknown": "",
                "containers": [{"name": "c", "env": [{"name": "E"}], "resources": {}}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            "status": {},
        });
        assert!(!is_tidy(&ty, &pod));
        tidy(&ty, &mut pod);
        assert_eq!(pod, want);
        assert!(is_tidy(&ty, &pod));
    }
}
