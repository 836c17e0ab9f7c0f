//! Whether a value is plainly of its type, by the table alone: what is, need not be decoded to know it.

use serde_json::Value;

use super::{Scalar, Type, tidy};

/// Whether a value has only fields that its type has, each of its kind. `false` says nothing: a decoder has to look.
pub(crate) fn fits(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Struct(of), Value::Object(map)) => {
            !of.get().always().any(|field| tidy::is_time(&field.name))
                && map.iter().all(|(name, value)| {
                    let field = of.get().field(name);
                    field.is_some_and(|field| !tidy::is_time(name) && fits(&field.ty, value))
                })
        }
        (Type::Map { element, .. }, Value::Object(map)) => map.values().all(|value| fits(element, value)),
        (Type::List { element, .. }, Value::Array(items)) => items.iter().all(|item| fits(element, item)),
        (Type::Scalar(Scalar::String | Scalar::Untyped), Value::String(_))
        | (Type::Scalar(Scalar::Boolean), Value::Bool(_)) => true,
        // The table does not say how wide a number is.
        (Type::Scalar(Scalar::Numeric), Value::Number(number)) => {
            number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::of_kind;

    #[test]
    fn only_what_needs_no_decoder_fits() {
        let ty = of_kind("v1", "Pod").expect("a kind");
        let pod = |meta: Value, container: Value| json!({"kind": "Pod", "metadata": meta, "spec": {"containers": [container]}});
        let plain =
            json!({"name": "c", "image": "i", "command": ["a"], "resources": {"requests": {"cpu": "1"}}});
        let cases = [
            (pod(json!({"name": "a", "labels": {"b": "c"}}), plain), true),
            (pod(json!({"name": 5}), json!({"name": "c"})), false),
            (pod(json!({"labels": {"b": 1}}), json!({"name": "c"})), false),
            (pod(json!({"creationTimestamp": "now"}), json!({"name": "c"})), false),
            (pod(json!({"managedFields": [{"fieldsV1": {"f:a": {}}}]}), json!({"name": "c"})), false),
            (pod(json!({}), json!({"name": "c", "odd": 1})), false),
            (pod(json!({}), json!({"name": "c", "tty": "true"})), false),
            (pod(json!({}), json!({"name": "c", "ports": [{"containerPort": 1}]})), true),
            (pod(json!({}), json!({"name": "c", "ports": [{"containerPort": 1.5}]})), false),
            (pod(json!({}), json!({"name": "c", "ports": [{"containerPort": 1_u64 << 33}]})), false),
            (pod(json!({}), json!({"name": "c", "ports": {}})), false),
            (pod(json!({}), json!({"name": "c", "resources": {"requests": {"cpu": 1}}})), false),
            (json!({"status": {"containerStatuses": [{"state": {"running": {}}}]}}), false),
            (json!([]), false),
        ];
        for (value, want) in cases {
            assert_eq!(fits(&ty, &value), want, "{value}");
        }
    }
}
