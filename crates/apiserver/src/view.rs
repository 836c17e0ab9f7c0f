//! Typed views of an object whose record is JSON: what a view changes goes back, what it does not know stays.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::body::unreadable;
use crate::object::Object;
use crate::resources::Resource;
use crate::status::Result;

/// The object as a typed struct; 400 when it is not one.
pub(crate) fn read<T: DeserializeOwned>(resource: &Resource, object: &Object) -> Result<T> {
    object.read().map_err(|error| unreadable(resource, &error.to_string()))
}

/// Changes the typed struct, and the object the same way. Returns the struct for further looks.
pub(crate) fn edit<T: DeserializeOwned + Serialize>(
    resource: &Resource,
    object: &mut Object,
    change: impl FnOnce(&mut T),
) -> Result<T> {
    let (mut view, is_whole): (T, bool) =
        object.read_whole().map_err(|error| unreadable(resource, &error.to_string()))?;
    if is_whole {
        change(&mut view);
        replace(object, to_value(&view));
        return Ok(view);
    }
    let before = to_value(&view);
    change(&mut view);
    let after = to_value(&view);
    if let (Value::Object(before), Value::Object(after)) = (before, after) {
        if let Some(spec) = before.get("spec") {
            write_quantities(object.get_mut("spec"), spec);
        }
        merge_object(object, &before, after);
    }
    Ok(view)
}

/// Puts a view back that has all of its object.
fn replace(object: &mut Object, view: Value) {
    let Value::Object(view) = view else { return };
    let gone: Vec<String> =
        object.fields().filter(|field| !view.contains_key(*field)).map(str::to_owned).collect();
    for field in gone {
        object.remove(&field);
    }
    for (field, value) in view {
        object.insert(&field, value);
    }
}

fn to_value<T: Serialize>(view: &T) -> Value {
    serde_json::to_value(view).expect("an API type is always JSON")
}

/// A quantity may be given as a number, and is always shown as text.
fn write_quantities(raw: &mut Value, view: &Value) {
    match (raw, view) {
        (Value::Object(raw), Value::Object(view)) => {
            for (field, raw) in raw {
                view.get(field).into_iter().for_each(|view| write_quantities(raw, view));
            }
        }
        (Value::Array(raw), Value::Array(view)) if raw.len() == view.len() => {
            raw.iter_mut().zip(view).for_each(|(raw, view)| write_quantities(raw, view));
        }
        (raw @ Value::Number(_), Value::String(_)) => *raw = view.clone(),
        _ => {}
    }
}

fn merge_object(object: &mut Object, before: &Map<String, Value>, after: Map<String, Value>) {
    for field in before.keys().filter(|field| !after.contains_key(*field)) {
        object.remove(field);
    }
    for (field, after) in after {
        match before.get(&field) {
            Some(before) if *before == after => {}
            before => {
                let nothing = Value::Object(Map::new());
                match object.get_mut(&field) {
                    raw @ Value::Null => *raw = after,
                    raw => merge(raw, before.unwrap_or(&nothing), after),
                }
            }
        }
    }
}

/// Makes to `raw` the change that leads from `before` to `after`, and no other.
fn merge(raw: &mut Value, before: &Value, after: Value) {
    match (raw, before, after) {
        (_, before, after) if *before == after => {}
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => merge_map(raw, before, after),
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() && before.len() == after.len() =>
        {
            for ((raw, before), after) in raw.iter_mut().zip(before).zip(after) {
                merge(raw, before, after);
            }
        }
        (raw, _, after) => *raw = after,
    }
}

fn merge_map(raw: &mut Map<String, Value>, before: &Map<String, Value>, after: Map<String, Value>) {
    for field in before.keys().filter(|field| !after.contains_key(*field)) {
        raw.remove(field);
    }
    let nothing = Value::Object(Map::new());
    for (field, after) in after {
        // A map that a view leaves out when it is empty may still be there.
        let before = before.get(&field).unwrap_or(if after.is_object() { &nothing } else { &Value::Null });
        match raw.get_mut(&field) {
            Some(raw) => merge(raw, before, after),
            None if *before == after && *before != nothing => {}
            None => {
                raw.insert(field, after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::resources;

    #[test]
    fn a_change_of_the_view_goes_into_the_object_and_unknown_fields_stay() {
        let raw = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"keep": "1", "drop": "1"}, "newMeta": 1},
            "spec": {
                "containers": [{"name": "c", "image": "i", "newField": {"x": 1}}, {"name": "d", "other": true}],
                "securityContext": {"unknown": 1}, "newSpec": [1, 2],
            },
            "top": {"level": true},
        });
        let mut object = Object::from(raw.as_object().expect("a map").clone());
        let view: Pod = edit(resources::core("pods"), &mut object, |pod: &mut Pod| {
            let spec = pod.spec.as_mut().expect("spec");
            spec.containers[0].image = Some("j".into());
            spec.containers[1].tty = Some(true);
            spec.node_name = Some("n".into());
            spec.tolerations = Some(vec![]);
            pod.metadata.labels.as_mut().expect("labels").remove("drop");
        })
        .expect("a pod");
        assert_eq!(view.spec.expect("spec").node_name.as_deref(), Some("n"));
        let want = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"keep": "1"}, "newMeta": 1},
            "spec": {
                "containers": [
                    {"name": "c", "image": "j", "newField": {"x": 1}},
                    {"name": "d", "other": true, "tty": true},
                ],
                "securityContext": {"unknown": 1}, "newSpec": [1, 2], "nodeName": "n", "tolerations": [],
            },
            "top": {"level": true},
        });
        assert_eq!(object.to_value(|_| true), want);
    }

    #[test]
    fn an_object_of_the_wrong_shape_is_refused() {
        let raw = json!({"apiVersion": "v1", "kind": "Pod", "spec": 5});
        let object = Object::from(raw.as_object().expect("a map").clone());
        let status = read::<Pod>(resources::core("pods"), &object).expect_err("not a pod");
        assert_eq!(status.code(), 400);
    }
}
