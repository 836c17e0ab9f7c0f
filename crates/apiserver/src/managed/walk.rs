//! Which fields differ between two values, and which fields a value has.
//!
//! Upstream compares typed objects, which always have some fields and never have others when they are empty; we compare
//! JSON, and take a field for what its [`Presence`] makes of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::set::{self, Set};
use crate::fields::{self, Field, Presence, Relation, Scalar, Type};

/// Which of two values are typed objects, as they are stored, and which are JSON as it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    is_old_typed: bool,
    is_new_typed: bool,
}

impl Sides {
    /// Two objects.
    pub(crate) const OBJECTS: Self = Self { is_old_typed: true, is_new_typed: true };
    /// An object, and what comes of an apply to it.
    pub(crate) const APPLY: Self = Self { is_old_typed: true, is_new_typed: false };
    /// A configuration, and an object.
    pub(crate) const CONFIG: Self = Self { is_old_typed: false, is_new_typed: true };
}

/// What became of a node: what is new or another value, and what is gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Diff {
    pub(crate) changed: Option<Set>,
    pub(crate) removed: Option<Set>,
}

impl Diff {
    const NONE: Self = Self { changed: None, removed: None };

    fn leaf() -> Self {
        Self { changed: Some(Set::new()), removed: None }
    }

    fn below(changed: Set, removed: Set) -> Self {
        Self { changed: set::node(false, changed), removed: set::node(false, removed) }
    }
}

/// The differences of a field that may be there or not.
pub(crate) fn field_diff(
    sides: Sides,
    ty: &Type,
    field: Option<&Field>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Diff {
    if old.is_none() && new.is_none() {
        return Diff::NONE;
    }
    match (seen(sides.is_old_typed, field, old), seen(sides.is_new_typed, field, new)) {
        (None, None) => Diff::NONE,
        (None, Some(new)) => Diff { changed: Some(whole(sides.is_new_typed, ty, &new)), removed: None },
        (Some(old), None) => Diff { changed: None, removed: Some(whole(sides.is_old_typed, ty, &old)) },
        (Some(old), Some(new)) => diff(sides, ty, &old, &new),
    }
}

/// The value that a typed object has where this JSON is.
fn seen<'a>(is_typed: bool, field: Option<&Field>, value: Option<&'a Value>) -> Option<Cow<'a, Value>> {
    let Some(field) = field.filter(|_| is_typed) else { return value.map(Cow::Borrowed) };
    match (field.presence, value) {
        (Presence::Always, None) => Some(Cow::Owned(zero(&field.ty))),
        (Presence::Filled, Some(value)) if fields::is_empty(value) => None,
        (_, value) => value.map(Cow::Borrowed),
    }
}

fn zero(ty: &Type) -> Value {
    match ty {
        Type::Scalar(Scalar::String) => json!(""),
        Type::Scalar(Scalar::Numeric) => json!(0),
        Type::Scalar(Scalar::Boolean) => json!(false),
        Type::Scalar(Scalar::Untyped) | Type::Any | Type::Map { .. } | Type::List { .. } => Value::Null,
        Type::Struct(_) => json!({}),
    }
}

/// The differences of two values that are both there.
fn diff(sides: Sides, ty: &Type, old: &Value, new: &Value) -> Diff {
    // Most of an object stays as it is, and to compare is much cheaper than to name what there is.
    if sides.is_old_typed == sides.is_new_typed && old == new {
        return Diff::NONE;
    }
    if ty.is_leaf() {
        return if old == new { Diff::NONE } else { Diff::leaf() };
    }
    match (ty, old, new) {
        (Type::List { element, relation }, Value::Array(_) | Value::Null, Value::Array(_) | Value::Null) => {
            diff_items(sides, relation, element, items(old), items(new))
        }
        (Type::Any, Value::Array(_), _) | (Type::Any, _, Value::Array(_)) if old != new => Diff::leaf(),
        (_, Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) => {
            let empty = Map::new();
            let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
            diff_maps(sides, ty, old, new, |_| false)
        }
        _ if old == new => Diff::NONE,
        _ => Diff::leaf(),
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The differences of two maps, but for the fields to skip.
pub(crate) fn diff_maps(
    sides: Sides,
    ty: &Type,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    skip: impl Fn(&str) -> bool,
) -> Diff {
    let (mut changed, mut removed) = (Set::new(), Set::new());
    let mut add = |name: &str, diff: Diff| {
        if diff.changed.is_some() {
            set::put(&mut changed, set::field(name), diff.changed);
        }
        if diff.removed.is_some() {
            set::put(&mut removed, set::field(name), diff.removed);
        }
    };
    for (name, old) in old.iter().filter(|(name, _)| !skip(name)) {
        let (ty, field) = ty.member(name);
        add(name, field_diff(sides, ty, field, Some(old), new.get(name)));
    }
    for (name, new) in new.iter().filter(|(name, _)| !old.contains_key(*name) && !skip(name)) {
        let (ty, field) = ty.member(name);
        add(name, field_diff(sides, ty, field, None, Some(new)));
    }
    Diff::below(changed, removed)
}

fn diff_items(sides: Sides, relation: &Relation, element: &Type, old: &[Value], new: &[Value]) -> Diff {
    let mut pairs: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Some(name) = item_element(relation, element, item) {
            pairs.entry(name).or_default().0.push(item);
        }
    }
    for item in new {
        if let Some(name) = item_element(relation, element, item) {
            pairs.entry(name).or_default().1.push(item);
        }
    }
    let (mut changed, mut removed) = (Set::new(), Set::new());
    for (name, (old, new)) in pairs {
        let diff = diff_item(sides, element, &old, &new);
        set::put(&mut changed, name.clone(), diff.changed);
        set::put(&mut removed, name, diff.removed);
    }
    Diff::below(changed, removed)
}

/// Items of one name. upstream: several of them count as one that is atomic.
fn diff_item(sides: Sides, element: &Type, old: &[&Value], new: &[&Value]) -> Diff {
    let added = |new: &Value| whole(sides.is_new_typed, element, new);
    let gone = |old: &Value| whole(sides.is_old_typed, element, old);
    match (old, new) {
        ([], []) => Diff::NONE,
        ([], [new]) => Diff { changed: Some(added(new)), removed: None },
        ([old], []) => Diff { changed: None, removed: Some(gone(old)) },
        ([old], [new]) => diff(sides, element, old, new),
        ([_, _, ..], [_, _, ..]) if old == new => Diff::NONE,
        ([_, _, ..], [_, _, ..]) => Diff::leaf(),
        ([_, _, ..], new) => Diff { changed: new.first().map(|new| added(new)), removed: Some(Set::new()) },
        (old, [_, _, ..]) => Diff { changed: Some(Set::new()), removed: old.first().map(|old| gone(old)) },
    }
}

/// The element by which an item is found; `None` for an item without its keys.
pub(crate) fn item_element(relation: &Relation, element: &Type, item: &Value) -> Option<String> {
    match relation {
        Relation::Atomic => None,
        Relation::Set => Some(set::item(item)),
        Relation::Keyed(keys) => {
            let map = item.as_object()?;
            let given = keys.iter().filter_map(|key| {
                let default = || element.member(key).1.and_then(|field| field.default.as_ref());
                Some((key.as_str(), map.get(key).or_else(default)?))
            });
            let name = set::keyed(given);
            (name != "k:{}").then_some(name)
        }
    }
}

/// The node of a value that is new, or gone, as a whole: itself and every field in it.
fn whole(is_typed: bool, ty: &Type, value: &Value) -> Set {
    if ty.is_leaf() {
        return Set::new();
    }
    let mut children = Set::new();
    match (ty, value) {
        (Type::List { element, relation }, Value::Array(items)) => {
            for item in items {
                let Some(name) = item_element(relation, element, item) else { continue };
                // upstream: an item that is there twice is a leaf
                let node =
                    if children.contains_key(&name) { Set::new() } else { whole(is_typed, element, item) };
                children.insert(name, Value::Object(node));
            }
        }
        (_, Value::Object(map)) => whole_map(is_typed, ty, map, &mut children),
        (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {}
    }
    set::node(true, children).unwrap_or_default()
}

fn whole_map(is_typed: bool, ty: &Type, map: &Map<String, Value>, children: &mut Set) {
    for (name, value) in map {
        let (ty, field) = ty.member(name);
        if let Some(value) = seen(is_typed, field, Some(value)) {
            children.insert(set::field(name), Value::Object(whole(is_typed, ty, &value)));
        }
    }
    if let (Type::Struct(of), true) = (ty, is_typed) {
        for field in of.get().always().filter(|field| !map.contains_key(&field.name)) {
            children.insert(set::field(&field.name), Value::Object(whole(true, &field.ty, &zero(&field.ty))));
        }
    }
}

/// The fields that a configuration gives. upstream: ToFieldSet.
pub(crate) fn given(ty: &Type, value: &Value) -> Set {
    given_below(ty, value).1
}

/// Whether the node itself is in the set, and what is below it.
fn given_below(ty: &Type, value: &Value) -> (bool, Set) {
    let mut children = Set::new();
    if ty.is_leaf() {
        return (true, children);
    }
    match (ty, value) {
        (Type::List { element, relation }, Value::Array(items)) => {
            for item in items {
                let Some(name) = item_element(relation, element, item) else { continue };
                let below = if children.contains_key(&name) { Set::new() } else { given(element, item) };
                set::put(&mut children, name, set::node(true, below));
            }
            (false, children)
        }
        (_, Value::Object(map)) => {
            for (name, value) in map {
                let (ty, field) = ty.member(name);
                let (is_leaf, below) = given_below(ty, value);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                let is_member = is_leaf || is_empty || field.is_none();
                set::put(&mut children, set::field(name), set::node(is_member, below));
            }
            (false, children)
        }
        (_, Value::Null) => (false, children),
        (_, Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => (true, children),
    }
}

/// The set, and with it every field of a struct that has something below it. upstream: EnsureNamedFieldsAreMembers.
pub(crate) fn with_parents(ty: &Type, set: &Set) -> Set {
    let mut out = Set::new();
    for (name, node) in set.iter().filter(|(name, _)| *name != ".") {
        let Value::Object(node) = node else { continue };
        let (is_named, below) = match (name.strip_prefix("f:"), ty) {
            (Some(name), _) => {
                let (ty, field) = ty.member(name);
                (field.is_some(), with_parents(ty, node))
            }
            (None, Type::List { element, .. }) => (false, with_parents(element, node)),
            (None, _) => (false, with_parents(&Type::Any, node)),
        };
        let is_member = is_named || node.is_empty() || node.contains_key(".");
        set::put(&mut out, name.clone(), set::node(is_member, below));
    }
    out
}
