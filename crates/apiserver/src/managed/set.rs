//! Sets of fields in the form that objects carry them, `FieldsV1`, and the algebra of them.
//!
//! ```text
//!  {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}}
//! ```
//!
//! A node that is empty or has a `.` is itself in the set; its other keys are the nodes below it. `f:` is a field of a map,
//! `k:` an item of a list by its keys, `v:` an item by its value, `i:` an item by its index. The set itself is the
//! children of a root that is in no set.

use serde_json::{Map, Value};

/// The children of a node.
pub(crate) type Set = Map<String, Value>;

/// The key by which a node says that it is in the set.
const SELF: &str = ".";

/// Whether a node is itself in the set.
fn is_member(node: &Set) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// A node with these children; `None` when there is nothing to say.
pub(crate) fn node(is_member: bool, mut children: Set) -> Option<Set> {
    match (is_member, children.is_empty()) {
        (false, true) => None,
        (true, false) => {
            children.insert(SELF.to_owned(), Value::Object(Set::new()));
            Some(children)
        }
        (true, true) | (false, false) => Some(children),
    }
}

/// Puts a node below `element`, if there is one.
pub(crate) fn put(set: &mut Set, element: String, node: Option<Set>) {
    if let Some(node) = node {
        set.insert(element, Value::Object(node));
    }
}

fn take_self(node: &mut Set) -> bool {
    let member = is_member(node);
    node.remove(SELF);
    member
}

/// Adds what is in `other`.
pub(crate) fn unite(set: &mut Set, other: Set) {
    for (element, theirs) in other {
        match (set.get_mut(&element), theirs) {
            (Some(Value::Object(ours)), Value::Object(mut theirs)) => {
                let is_member = take_self(ours) | take_self(&mut theirs);
                unite(ours, theirs);
                if is_member && !ours.is_empty() {
                    ours.insert(SELF.to_owned(), Value::Object(Set::new()));
                }
            }
            (_, theirs) => {
                set.insert(element, theirs);
            }
        }
    }
}

/// Removes what is in `other`. A field that is in `other` does not take the fields below it along.
pub(crate) fn subtract(set: &mut Set, other: &Set) {
    let smaller_first =
        other.keys().filter(|element| set.contains_key(*element)).cloned().collect::<Vec<_>>();
    for element in smaller_first {
        let (Some(Value::Object(ours)), Some(Value::Object(theirs))) =
            (set.get_mut(&element), other.get(&element))
        else {
            continue;
        };
        let stays = take_self(ours) && !is_member(theirs);
        subtract(ours, theirs);
        match (stays, ours.is_empty()) {
            (false, true) => {
                set.remove(&element);
            }
            (true, false) => {
                ours.insert(SELF.to_owned(), Value::Object(Set::new()));
            }
            (true, true) | (false, false) => {}
        }
    }
}

/// Removes what is in `other`, and all that is below it.
pub(crate) fn subtract_below(set: &mut Set, other: &Set) {
    for (element, theirs) in other.iter().filter(|(element, _)| *element != SELF) {
        let (Some(Value::Object(ours)), Value::Object(theirs)) = (set.get_mut(element), theirs) else {
            continue;
        };
        if is_member(theirs) {
            set.remove(element);
            continue;
        }
        let stays = take_self(ours);
        subtract_below(ours, theirs);
        match (stays, ours.is_empty()) {
            (false, true) => {
                set.remove(element);
            }
            (true, false) => {
                ours.insert(SELF.to_owned(), Value::Object(Set::new()));
            }
            (true, true) | (false, false) => {}
        }
    }
}

/// What is in both.
pub(crate) fn intersection(a: &Set, b: &Set) -> Set {
    let mut both = Set::new();
    for (element, ours) in a.iter().filter(|(element, _)| *element != SELF) {
        if let (Value::Object(ours), Some(Value::Object(theirs))) = (ours, b.get(element)) {
            let is_member = is_member(ours) && is_member(theirs);
            put(&mut both, element.clone(), node(is_member, intersection(ours, theirs)));
        }
    }
    both
}

/// Removes a field and all that is below it.
pub(crate) fn remove_below(set: &mut Set, path: &[&str]) {
    let [first, rest @ ..] = path else { return };
    let element = field(first);
    if rest.is_empty() {
        set.remove(&element);
        return;
    }
    if let Some(Value::Object(below)) = set.get_mut(&element) {
        let is_member = take_self(below);
        remove_below(below, rest);
        match (is_member, below.is_empty()) {
            (false, true) => {
                set.remove(&element);
            }
            (true, false) => {
                below.insert(SELF.to_owned(), Value::Object(Set::new()));
            }
            (true, true) | (false, false) => {}
        }
    }
}

/// Whether the element itself is in the set.
pub(crate) fn has(set: &Set, element: &str) -> bool {
    set.get(element).and_then(Value::as_object).is_some_and(is_member)
}

/// What of the set is below the element; `None` when there is nothing.
pub(crate) fn below<'a>(set: &'a Set, element: &str) -> Option<&'a Set> {
    let node = set.get(element).and_then(Value::as_object)?;
    node.keys().any(|key| key != SELF).then_some(node)
}

/// The element of a field of a map.
pub(crate) fn field(name: &str) -> String {
    ["f:", name].concat()
}

/// The element of an item that is told apart by its value.
pub(crate) fn item(value: &Value) -> String {
    format!("v:{}", go_json(value))
}

/// The element of an item that is told apart by its keys. They come ordered by name.
pub(crate) fn keyed<'a>(keys: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let mut out = String::from("k:{");
    for (name, value) in keys {
        if out.len() > 3 {
            out.push(',');
        }
        out.push('"');
        out.push_str(name);
        out.push_str("\":");
        out.push_str(&go_json(value));
    }
    out.push('}');
    out
}

/// JSON as Go writes it: without characters that mean something to HTML.
pub(crate) fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
        out
    })
}

/// A set as it was read: elements that we write in another way are written so, what we do not know is left out. The
/// error is what is wrong with it.
pub(crate) fn canonical(set: &Map<String, Value>) -> Result<Set, String> {
    let mut out = Set::new();
    for (key, below) in set {
        let Value::Object(below) = below else { return Err(format!("{key:?} is not a map")) };
        if let Some(element) = element(key)? {
            out.insert(element, Value::Object(canonical(below)?));
        }
    }
    Ok(out)
}

/// The element as we write it; `None` for one of a type that we do not know.
fn element(key: &str) -> Result<Option<String>, String> {
    let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    match (key.get(..2), key.get(2..)) {
        _ if key == SELF => Ok(Some(key.to_owned())),
        (Some("f:"), _) => Ok(Some(key.to_owned())),
        (Some("v:"), Some(value)) => Ok(Some(item(&json(value)?))),
        (Some("k:"), Some(keys)) => match json(keys)? {
            Value::Object(keys) => Ok(Some(keyed(keys.iter().map(|(name, value)| (name.as_str(), value))))),
            _ => Err(format!("{key:?} has no keys")),
        },
        (Some("i:"), Some(index)) => {
            let index: i64 = index.parse().map_err(|_| format!("{key:?} has no index"))?;
            Ok(Some(format!("i:{index}")))
        }
        (Some(kind), _) if kind.ends_with(':') => Ok(None),
        _ => Err(format!("missing colon: {key}")),
    }
}

/// The paths of all fields in the set, as upstream prints them: of each node first those in the set, then those below.
pub(crate) fn paths(set: &Set) -> Vec<String> {
    let mut out = Vec::new();
    collect(set, "", &mut out);
    out
}

fn collect(set: &Set, prefix: &str, out: &mut Vec<String>) {
    let nodes = || {
        let nodes = set.iter().filter(|(element, _)| *element != SELF);
        nodes.filter_map(|(element, node)| Some((element, node.as_object()?)))
    };
    for (element, _) in nodes().filter(|(_, node)| is_member(node)) {
        out.push(format!("{prefix}{}", element_text(element)));
    }
    for (element, node) in nodes() {
        collect(node, &format!("{prefix}{}", element_text(element)), out);
    }
}

/// An element as upstream prints it: `.spec`, `[name="c"]`, `[="x"]`, `[0]`.
pub(crate) fn element_text(element: &str) -> String {
    let (kind, rest) = element.split_at(element.len().min(2));
    match kind {
        "f:" => format!(".{rest}"),
        "v:" => format!("[={rest}]"),
        "k:" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{rest}]"),
    }
}
