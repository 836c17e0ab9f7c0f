//! ConfigMaps and Secrets: text of a Secret becomes its data, and what is immutable stays as it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use windlass_api::field::{self, Errors};

use super::{Context, Warnings};
use crate::object::Object;
use crate::status::{Result, Status};

const IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub(super) fn update_config_map(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let errors = frozen(object, old, &["data", "binaryData"]);
    check("ConfigMap", object, &errors)
}

pub(super) fn create_secret(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    fill(object);
    Ok(Warnings::new())
}

pub(super) fn update_secret(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    fill(object);
    let mut errors = Errors::new();
    let kind = |object: &Object| object.get("type").and_then(Value::as_str).unwrap_or("Opaque").to_owned();
    if kind(object) != kind(old) {
        let path = field::Path::new("type");
        errors.push(field::Error::invalid(&path, kind(object), "field is immutable"));
    }
    errors.extend(frozen(object, old, &["data"]));
    check("Secret", object, &errors)
}

fn check(kind: &str, object: &Object, errors: &Errors) -> Result<Warnings> {
    if errors.is_empty() {
        Ok(Warnings::new())
    } else {
        Err(Status::invalid("", kind, object.name(), errors))
    }
}

/// `stringData` is only ever written: it goes into `data`, over what is there.
fn fill(object: &mut Object) {
    let texts = object.get("stringData").and_then(Value::as_object).cloned().unwrap_or_default();
    object.remove("stringData");
    for (key, text) in texts {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        object.section_mut("data").insert(key, json!(encoded));
    }
    if object.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
        object.insert("type", json!("Opaque"));
    }
}

/// What changed although the old object says that nothing may.
fn frozen(object: &Object, old: &Object, fields: &[&str]) -> Errors {
    let is_immutable = |object: &Object| object.get("immutable").and_then(Value::as_bool).unwrap_or(false);
    let mut errors = Errors::new();
    if !is_immutable(old) {
        return errors;
    }
    if !is_immutable(object) {
        errors.push(field::Error::forbidden(&field::Path::new("immutable"), IMMUTABLE));
    }
    for name in fields.iter().filter(|name| !object.is_same(old, name)) {
        errors.push(field::Error::forbidden(&field::Path::new(name), IMMUTABLE));
    }
    errors
}
