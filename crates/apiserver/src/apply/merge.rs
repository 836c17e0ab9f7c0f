//! What comes of laying a configuration over an object, and of taking fields out of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::fields::{Relation, Type};
use crate::managed::set::{self, Set};
use crate::managed::walk::item_element;

/// The object with the configuration laid over it. Nothing goes away.
pub(crate) fn merge(ty: &Type, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let (Some(old), Some(new)) = (live, config) else { return config.or(live).cloned() };
    if ty.is_leaf() {
        return Some(new.clone());
    }
    match (ty, old, new) {
        (Type::List { .. }, Value::Array(_), Value::Null) => Some(old.clone()),
        (Type::List { element, relation }, Value::Array(old), Value::Array(new))
            if !(old.is_empty() && new.is_empty()) =>
        {
            let items = merge_items(relation, element, old, new);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        (Type::Struct(_) | Type::Map { .. } | Type::Any, Value::Object(_), Value::Null) => Some(old.clone()),
        (Type::Struct(_) | Type::Map { .. } | Type::Any, Value::Object(old), Value::Object(new))
            if !(old.is_empty() && new.is_empty()) =>
        {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let fields = names.into_iter().filter_map(|name| {
                Some((name.clone(), merge(ty.member(name).0, old.get(name), new.get(name))?))
            });
            Some(Value::Object(fields.collect()))
        }
        _ => Some(new.clone()),
    }
}

/// upstream: items that both have stand in the order of the configuration, those of the object alone stay before the
/// one they stood before.
fn merge_items(relation: &Relation, element: &Type, old: &[Value], new: &[Value]) -> Vec<Value> {
    let name = |item: &Value| item_element(relation, element, item).unwrap_or_default();
    let (old_names, new_names): (Vec<String>, Vec<String>) =
        (old.iter().map(name).collect(), new.iter().map(name).collect());
    // An item that the object has twice is not merged with.
    let mut in_old: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (name, item) in old_names.iter().zip(old) {
        in_old.entry(name).and_modify(|found| *found = None).or_insert(Some(item));
    }
    let in_new: BTreeSet<&str> = new_names.iter().map(String::as_str).collect();
    let mut shared = new_names.iter().filter(|name| in_old.contains_key(name.as_str()));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&str> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < old.len() || r < new.len() {
        if l < old.len() && r < new.len() && old_names[l] != new_names[r] {
            let is_other_shared = next_shared.is_some_and(|next| *next != old_names[l]);
            if in_new.contains(old_names[l].as_str()) && is_other_shared {
                l += 1;
                continue;
            }
        }
        let is_pair = l < old.len() && r < new.len() && old_names[l] == new_names[r];
        if l < old.len() && !is_pair {
            if !in_new.contains(old_names[l].as_str()) {
                out.push(old[l].clone());
                l += 1;
                continue;
            }
            if merged.contains(old_names[l].as_str()) {
                l += 1;
            }
        }
        if r < new.len() {
            let name = new_names[r].as_str();
            merged.insert(name);
            out.extend(merge(element, in_old.get(name).copied().flatten(), Some(&new[r])));
            r += 1;
            l += usize::from(is_pair);
            if next_shared.is_some_and(|next| next == name) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The value without the fields and items in the set. What is left empty is null. upstream: RemoveItems.
pub(crate) fn remove(ty: &Type, value: &Value, gone: &Set) -> Value {
    match (ty, value) {
        (Type::Scalar(_), _) => value.clone(),
        _ if ty.is_leaf() => Value::Null,
        (Type::List { element, relation }, Value::Array(items)) => {
            let left: Vec<Value> =
                items.iter().filter_map(|item| remove_item(relation, element, item, gone)).collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (_, Value::Object(map)) => {
            let left: Map<String, Value> = map
                .iter()
                .filter_map(|(name, value)| {
                    let part = set::field(name);
                    let left = match (set::has(gone, &part), set::below(gone, &part)) {
                        (true, _) => return None,
                        (false, Some(below)) => remove(ty.member(name).0, value, below),
                        (false, None) => value.clone(),
                    };
                    Some((name.clone(), left))
                })
                .collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Type::Any, _) => value.clone(),
        _ => Value::Null,
    }
}

fn remove_item(relation: &Relation, element: &Type, item: &Value, gone: &Set) -> Option<Value> {
    let Some(name) = item_element(relation, element, item) else { return Some(item.clone()) };
    match (set::has(gone, &name), set::below(gone, &name)) {
        (true, _) => None,
        (false, Some(below)) => Some(remove(element, item, below)),
        (false, None) => Some(item.clone()),
    }
}
