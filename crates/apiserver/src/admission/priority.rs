//! upstream: admission plugin Priority. A class gives a pod its number; the number is never given by hand.

use serde_json::{Value, json};
use windlass_store::{Key, Prefix};

use super::refused;
use crate::Shared;
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;

/// The classes that every server has: name, value and description.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];
const CLASSES: &str = "priorityclasses";
const PREEMPT: &str = "PreemptLowerPriority";

/// What a class says.
struct Class {
    name: String,
    value: i64,
    policy: Option<String>,
}

impl Class {
    fn of(object: &Object) -> Self {
        let policy = object.get("preemptionPolicy").and_then(Value::as_str);
        Self {
            name: object.name().to_owned(),
            value: object.get("value").and_then(Value::as_i64).unwrap_or(0),
            policy: policy.map(str::to_owned),
        }
    }
}

fn is_default(object: &Object) -> bool {
    object.get("globalDefault").and_then(Value::as_bool).unwrap_or(false)
}

/// Whether the record has the text of it somewhere, as it is written by us.
fn is_said_to_be_default(bytes: &[u8]) -> bool {
    const TEXT: &[u8] = br#""globalDefault":true"#;
    bytes.windows(TEXT.len()).any(|window| window == TEXT)
}

/// The class of pods that name none. Of several, which only a race can leave, the one with the lowest value.
fn default_class(shared: &Shared) -> Result<Option<Class>> {
    let mut found: Option<Class> = None;
    for record in shared.store.list(&Prefix::resource_wide(CLASSES)).records {
        // Most classes are not, and every pod asks.
        if !is_said_to_be_default(&record.bytes) {
            continue;
        }
        let object = Object::from_stored(&record.bytes)?;
        if is_default(&object) {
            let class = Class::of(&object);
            if found.as_ref().is_none_or(|found| found.value > class.value) {
                found = Some(class);
            }
        }
    }
    Ok(found)
}

/// Gives a new pod its priority.
pub(super) fn admit(shared: &Shared, object: &mut Object) -> Result<()> {
    let pods = resources::core("pods");
    let name = object.text_at("spec", "priorityClassName").to_owned();
    let class = if name.is_empty() {
        let none = || Class { name: String::new(), value: 0, policy: Some(PREEMPT.to_owned()) };
        default_class(shared)?.unwrap_or_else(none)
    } else {
        let record = shared
            .store
            .get(&Key::new(CLASSES, "", &name))
            .ok_or_else(|| refused(pods, object, &format!("no PriorityClass with name {name} was found")))?;
        Class::of(&Object::from_stored(&record.bytes)?)
    };
    let given = object.get("spec").and_then(|spec| spec.get("priority")).and_then(Value::as_i64);
    if let Some(given) = given.filter(|given| *given != class.value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            class.value
        );
        return Err(refused(pods, object, &why));
    }
    let given = object.text_at("spec", "preemptionPolicy");
    if let Some(policy) = class.policy.as_deref().filter(|policy| !given.is_empty() && given != *policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(refused(pods, object, &why));
    }
    let spec = object.section_mut("spec");
    if !class.name.is_empty() {
        spec.insert("priorityClassName".to_owned(), json!(class.name));
    }
    spec.insert("priority".to_owned(), json!(class.value));
    if let Some(policy) = class.policy {
        spec.insert("preemptionPolicy".to_owned(), json!(policy));
    }
    Ok(())
}

/// Puts back what an update leaves out. Tells whether the pod was admitted, and so has a priority.
pub(super) fn keep(object: &mut Object, old: &Object) -> bool {
    let value = |object: &Object, field: &str| object.get("spec").and_then(|spec| spec.get(field)).cloned();
    for field in ["priority", "preemptionPolicy"] {
        if let (None, Some(before)) = (value(object, field), value(old, field)) {
            object.section_mut("spec").insert(field.to_owned(), before);
        }
    }
    value(old, "priority").is_some()
}

/// There is one default, or none.
pub(super) fn check_default(
    shared: &Shared,
    resource: &Resource,
    object: &Object,
    is_new: bool,
) -> Result<()> {
    if !is_default(object) {
        return Ok(());
    }
    match default_class(shared)? {
        Some(other) if is_new || other.name != object.name() => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                other.name
            );
            Err(refused(resource, object, &why))
        }
        Some(_) | None => Ok(()),
    }
}
