//! The order of a merged list: the items that the patch names in the order it names them, the others where they were.

use std::borrow::Borrow;
use std::collections::VecDeque;

use serde_json::Value;

/// What an item is told apart by: its key field or, without a key, all of it.
pub(super) fn id<'a>(item: &'a Value, key: Option<&str>) -> &'a Value {
    key.map_or(item, |key| item.get(key).unwrap_or(&Value::Null))
}

/// The place of an item in a list of what items are told apart by.
fn place<T: Borrow<Value>>(ids: &[T], id: &Value) -> Option<usize> {
    ids.iter().position(|other| other.borrow() == id)
}

/// Orders `merged`. `wanted` is what the named items are told apart by, `before` the same of the list as it was.
///
/// Items that only the server has keep their relative order, and go before the first named item that they stood
/// before; a named item that is new goes as early as the named order lets it.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[&Value],
    before: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(wanted, id(item, key)).is_some());
    named.sort_by_key(|item| place(wanted, id(item, key)));
    let mut others = VecDeque::from(others);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    for item in named {
        while let Some(other) = others.front() {
            match (place(before, id(other, key)), place(before, id(&item, key))) {
                (Some(other), Some(item)) if other < item => arranged.extend(others.pop_front()),
                _ => break,
            }
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}
