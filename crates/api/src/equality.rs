//! Equality as the API server decides it: a field that is absent equals one that holds its type's zero value,
//! wherever the API gives the field no way to tell the two apart.

use serde::Serialize;
use serde_json::Value;

use crate::quantity::Quantity;
use crate::validation::meta::json;

// Objects that are maps, and so hold user keys: never looked into, and absent when empty.
const MAPS: [&str; 8] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "overhead",
    "requests",
    "volumeAttributes",
];
// Structs that are always there in the API. Of every other struct an empty one means something (`emptyDir: {}`).
const ALWAYS_THERE: [&str; 3] = ["metadata", "resources", "spec"];
// Texts whose absence means something else than the empty text.
const OPTIONAL_TEXTS: [&str; 3] = ["containerName", "storageClassName", "succeededIndexes"];
// Flags and numbers that are always there in the API; of all others `false` and 0 differ from absence.
const PLAIN_FLAGS: [&str; 7] = ["hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty"];
const PLAIN_NUMBERS: [&str; 2] = ["hostPort", "initialDelaySeconds"];

/// Whether two objects mean the same.
pub(crate) fn same<T: PartialEq + Serialize>(left: &T, right: &T) -> bool {
    left == right || normal_form(left) == normal_form(right)
}

fn normal_form<T: Serialize>(value: &T) -> Value {
    let mut value = json(value);
    normalise(&mut value);
    value
}

fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match key.as_str() {
                    "limits" | "overhead" | "requests" => normalise_quantities(field),
                    key if MAPS.contains(&key) => {}
                    _ => normalise(field),
                }
            }
            fields.retain(|key, field| !is_zero(key, field));
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// `1000m` of something is `1` of it. A sum is printed in the suffixes of its first term, so equal amounts get equal texts.
fn normalise_quantities(value: &mut Value) {
    for quantity in value.as_object_mut().into_iter().flat_map(|amounts| amounts.values_mut()) {
        if let Some(amount) = quantity.as_str().and_then(|text| text.parse::<Quantity>().ok()) {
            *quantity = (Quantity::from_value(1) + amount).to_string().into();
        }
    }
}

fn is_zero(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && (MAPS.contains(&key) || ALWAYS_THERE.contains(&key)),
        Value::String(text) => text.is_empty() && !OPTIONAL_TEXTS.contains(&key),
        Value::Bool(flag) => !flag && PLAIN_FLAGS.contains(&key),
        Value::Number(number) => number.as_i64() == Some(0) && PLAIN_NUMBERS.contains(&key),
    }
}
