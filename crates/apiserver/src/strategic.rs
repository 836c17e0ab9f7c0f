//! Strategic merge patch: a merge patch that knows by which field the items of a list are told apart.
//!
//! Rules: `null` removes a field. A list with a merge key is merged item by item, a list of scalars with the merge
//! strategy is a set, any other list is replaced. Directives (`$patch`, `$retainKeys`, `$setElementOrder/f`,
//! `$deleteFromPrimitiveList/f`) say the rest, and are never stored.

mod order;
mod schema;

use serde_json::{Map, Value};

pub(crate) use schema::schema;
use schema::{List, Schema};

use crate::decode::go_text;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// What is wrong with a patch, as upstream says it.
type Result<T> = std::result::Result<T, String>;

/// Applies `patch` to `value`, both JSON objects.
pub(crate) fn apply(value: &mut Value, patch: &Value, schema: Schema) -> Result<()> {
    match (value, patch) {
        (Value::Object(original), Value::Object(patch)) => merge_map(original, patch, schema),
        _ => Err("error decoding patch: not a JSON object".to_owned()),
    }
}

fn merge_map(original: &mut Map<String, Value>, patch: &Map<String, Value>, schema: Schema) -> Result<()> {
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            original.clear();
            let rest = patch.iter().filter(|(field, _)| *field != PATCH);
            original.extend(rest.map(|(field, value)| (field.clone(), without_directives(value))));
            return Ok(());
        }
        Some("delete") => {
            original.clear();
            return Ok(());
        }
        Some(other) => {
            let shown = go_text(&Value::Object(patch.clone()));
            return Err(format!("unknown patch type: {other} in map: {shown}"));
        }
    }
    retain_keys(original, patch)?;
    let has_directives = patch.keys().any(|field| field.starts_with('$'));
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix(DELETE_FROM) {
            delete_from_primitives(original, list, value)?;
        } else if let Some(list) = field.strip_prefix(ORDER) {
            // With the list itself in the patch, the order is applied when the list is merged.
            if !patch.contains_key(list) {
                order_only(original, list, value, schema)?;
            }
        } else if !matches!(field.as_str(), PATCH | RETAIN) {
            let wanted = if has_directives { patch.get(&format!("{ORDER}{field}")) } else { None };
            merge_field(original, field, value, wanted, schema)?;
        }
    }
    Ok(())
}

fn merge_field(
    original: &mut Map<String, Value>,
    field: &str,
    value: &Value,
    wanted: Option<&Value>,
    schema: Schema,
) -> Result<()> {
    let list = schema.list(field);
    let merged = match (original.get_mut(field), value) {
        (_, Value::Null) => {
            original.remove(field);
            return Ok(());
        }
        (Some(Value::Object(old)), Value::Object(new)) if !schema.is_replaced(field) => {
            return merge_map(old, new, schema.child(field));
        }
        (None, Value::Object(new)) if !schema.is_replaced(field) => {
            let mut made = Map::new();
            merge_map(&mut made, new, schema.child(field))?;
            Value::Object(made)
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let old = std::mem::take(old);
            Value::Array(merge_list(old, new, wanted, list)?)
        }
        (None, Value::Array(new)) => Value::Array(merge_list(Vec::new(), new, wanted, list)?),
        (_, value) => without_directives(value),
    };
    original.insert(field.to_owned(), merged);
    Ok(())
}

fn merge_list(old: Vec<Value>, patch: &[Value], wanted: Option<&Value>, list: List) -> Result<Vec<Value>> {
    match list {
        List::Replaced => Ok(patch.iter().map(without_directives).collect()),
        List::Set => {
            let before = old.clone();
            let mut merged = old;
            for item in patch {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            let wanted = wanted.and_then(Value::as_array).map_or(patch, Vec::as_slice);
            Ok(order::arrange(merged, &ids(wanted, None), &before, None))
        }
        List::Keyed(key, item_schema) => merge_keyed(old, patch, wanted, key, item_schema),
    }
}

fn merge_keyed<'a>(
    old: Vec<Value>,
    patch: &'a [Value],
    wanted: Option<&'a Value>,
    key: &str,
    item_schema: Schema,
) -> Result<Vec<Value>> {
    let directive = |item: &'a Value| item.get(PATCH).and_then(Value::as_str);
    if patch.iter().any(|item| directive(item) == Some("replace")) {
        let rest = patch.iter().filter(|item| item.get(PATCH).is_none());
        return Ok(rest.map(without_directives).collect());
    }
    let before: Vec<Value> = ids(&old, Some(key)).into_iter().cloned().collect();
    let mut merged = old;
    let mut kept: Vec<&Value> = Vec::new();
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(format!("expected a map with merge key {key:?} in a list, got {item}"));
        };
        let Some(id) = fields.get(key) else {
            return Err(format!("map: {} does not contain declared merge key: {key}", go_text(item)));
        };
        match directive(item) {
            Some("delete") => {
                merged.retain(|old| old.get(key) != Some(id));
                continue;
            }
            None | Some("merge") => {}
            Some(other) => return Err(format!("unknown patch type: {other} in map: {}", go_text(item))),
        }
        kept.push(id);
        match merged.iter_mut().find(|old| old.get(key) == Some(id)) {
            Some(Value::Object(old)) => merge_map(old, fields, item_schema)?,
            _ => {
                let mut made = Map::new();
                merge_map(&mut made, fields, item_schema)?;
                merged.push(Value::Object(made));
            }
        }
    }
    let wanted = wanted.and_then(Value::as_array).map_or(kept, |wanted| ids(wanted, Some(key)));
    Ok(order::arrange(merged, &wanted, &before, Some(key)))
}

/// What the items of a list are told apart by.
fn ids<'a>(items: &'a [Value], key: Option<&str>) -> Vec<&'a Value> {
    items.iter().map(|item| order::id(item, key)).collect()
}

/// `$setElementOrder/f` without `f`: the items stay what they are.
fn order_only(original: &mut Map<String, Value>, field: &str, wanted: &Value, schema: Schema) -> Result<()> {
    let Some(Value::Array(items)) = original.get_mut(field) else { return Ok(()) };
    let Value::Array(wanted) = wanted else {
        return Err(format!("{ORDER}{field} is not a list"));
    };
    let key = match schema.list(field) {
        List::Keyed(key, _) => Some(key),
        List::Set => None,
        List::Replaced => return Ok(()),
    };
    let before: Vec<Value> = ids(items, key).into_iter().cloned().collect();
    *items = order::arrange(std::mem::take(items), &ids(wanted, key), &before, key);
    Ok(())
}

fn delete_from_primitives(original: &mut Map<String, Value>, field: &str, values: &Value) -> Result<()> {
    let Value::Array(values) = values else {
        return Err(format!("{DELETE_FROM}{field} is not a list"));
    };
    if let Some(Value::Array(items)) = original.get_mut(field) {
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

/// `$retainKeys` names all the fields that may be left.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<()> {
    let Some(Value::Array(keys)) = patch.get(RETAIN) else { return Ok(()) };
    let is_retained = |field: &str| keys.iter().any(|key| key.as_str() == Some(field));
    if patch.keys().any(|field| !field.starts_with('$') && !is_retained(field)) {
        return Err("the retainKeys list must contain all fields present in the patch".to_owned());
    }
    original.retain(|field, _| is_retained(field));
    Ok(())
}

/// A new value without directives and nulls.
fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(field, value)| {
                !value.is_null()
                    && !matches!(field.as_str(), PATCH | RETAIN)
                    && !field.starts_with(ORDER)
                    && !field.starts_with(DELETE_FROM)
            })
            .map(|(field, value)| (field.clone(), without_directives(value)))
            .collect(),
        Value::Array(items) => items
            .iter()
            .filter(|item| item.get(PATCH).is_none_or(|directive| directive == "merge"))
            .map(without_directives)
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests;
