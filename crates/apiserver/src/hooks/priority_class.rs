//! PriorityClasses: which values users may give, which names are the system's, and what never changes.

use serde_json::{Value, json};
use windlass_api::field::{Error, Errors, Path};

use super::{Context, Warnings, finish, new_meta, same_meta};
use crate::admission::SYSTEM_CLASSES;
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;

/// upstream: HighestUserDefinablePriority.
const VALUE_MAX: i64 = 1_000_000_000;
const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

fn resource() -> &'static Resource {
    resources::find("scheduling.k8s.io", "v1", "priorityclasses").expect("a row of the table")
}

fn default(object: &mut Object) {
    if object.get("preemptionPolicy").is_none() {
        object.insert("preemptionPolicy", json!("PreemptLowerPriority"));
    }
    if object.get("value").is_none() {
        object.insert("value", json!(0));
    }
    if object.get("globalDefault").and_then(Value::as_bool) == Some(false) {
        object.remove("globalDefault");
    }
}

fn value(object: &Object) -> i64 {
    object.get("value").and_then(Value::as_i64).unwrap_or(0)
}

fn policy(object: &Object) -> &str {
    object.get("preemptionPolicy").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn create(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    default(object);
    let mut errors = new_meta(resource(), object)?;
    if object.name().starts_with("system-") {
        if let Err(why) = check_system(object) {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            errors.push(Error::forbidden(&Path::new("metadata").child("name"), why));
        }
    } else if value(object) > VALUE_MAX {
        let why = format!("maximum allowed value of a user defined priority is {VALUE_MAX}");
        errors.push(Error::forbidden(&Path::new("value"), why));
    }
    let path = Path::new("preemptionPolicy");
    match policy(object) {
        "" => errors.push(Error::required(&path, "")),
        known if POLICIES.contains(&known) => {}
        other => errors.push(Error::not_supported(&path, other, &POLICIES)),
    }
    finish(resource(), object, &errors)
}

/// upstream: IsKnownSystemPriorityClass.
fn check_system(object: &Object) -> std::result::Result<(), String> {
    let name = object.name();
    let known = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name);
    let (_, expected, _) = known.ok_or_else(|| format!("{name} is not a known system priority class"))?;
    if value(object) != *expected {
        return Err(format!("value of {name} PriorityClass must be {expected}"));
    }
    if object.get("globalDefault").and_then(Value::as_bool) == Some(true) {
        return Err(format!("globalDefault of {name} PriorityClass must be false"));
    }
    Ok(())
}

pub(super) fn update(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    default(object);
    let mut errors: Errors = same_meta(resource(), object, old)?;
    if value(object) != value(old) {
        errors.push(Error::forbidden(&Path::new("value"), "may not be changed in an update."));
    }
    if policy(object) != policy(old) {
        errors.push(Error::invalid(&Path::new("preemptionPolicy"), policy(object), "field is immutable"));
    }
    finish(resource(), object, &errors)
}
