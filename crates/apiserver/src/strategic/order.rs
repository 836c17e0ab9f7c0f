//! The order of a merged list: the items that the patch names in the order it names them, the others where they were.

use std::collections::VecDeque;

use serde_json::Value;

/// Orders `merged`. `wanted` names items by value or, with a key, by their key field; `before` is the list as it was.
///
/// Items that only the server has keep their relative order, and go before the first named item that they stood
/// before; a named item that is new goes as early as the named order lets it.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let id = |item: &Value| match key {
        Some(key) => item.get(key).cloned().unwrap_or_default(),
        None => item.clone(),
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| id(other) == id(item));

    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(wanted, item).is_some());
    named.sort_by_key(|item| place(wanted, item));
    let mut others = VecDeque::from(others);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    for item in named {
        while let Some(other) = others.front() {
            match (place(before, other), place(before, &item)) {
                (Some(other), Some(item)) if other < item => arranged.extend(others.pop_front()),
                _ => break,
            }
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}
