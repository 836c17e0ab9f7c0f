//! ConfigMaps and Secrets: keys that can be files, text of a Secret as data, and what is immutable stays as it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use windlass_api::field::{Error, Errors, Path};
use windlass_api::validation::pod::config_key;

use super::{Context, Warnings, finish, new_meta, same_meta};
use crate::object::Object;
use crate::resources;
use crate::status::Result;

const IMMUTABLE: &str = "field is immutable when `immutable` is set";
/// upstream: MaxSecretSize, of both kinds.
const BYTES_MAX: usize = 1 << 20;

pub(super) fn create_config_map(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("configmaps");
    let mut errors = new_meta(resource, object)?;
    errors.extend(check_config_map(object));
    finish(resource, object, &errors)
}

pub(super) fn update_config_map(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("configmaps");
    let mut errors = same_meta(resource, object, old)?;
    errors.extend(frozen(object, old, &["data", "binaryData"]));
    errors.extend(check_config_map(object));
    finish(resource, object, &errors)
}

fn map<'a>(object: &'a Object, field: &str) -> impl Iterator<Item = (&'a String, &'a str)> + use<'a> {
    let values = object.get(field).and_then(Value::as_object).into_iter().flat_map(Map::iter);
    values.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

/// How many bytes a value in base64 stands for.
fn decoded_length(value: &str) -> usize {
    STANDARD.decode(value).map_or(0, |bytes| bytes.len())
}

fn check_config_map(object: &Object) -> Errors {
    let mut errors = Errors::new();
    let mut total = 0;
    let binary = object.get("binaryData");
    for (key, value) in map(object, "data") {
        let path = Path::new("data").key(key);
        errors.extend(config_key(key).into_iter().map(|why| Error::invalid(&path, key.as_str(), why)));
        if binary.is_some_and(|binary| binary.get(key).is_some()) {
            errors.push(Error::invalid(&path, key.as_str(), "duplicate of key present in binaryData"));
        }
        total += value.len();
    }
    for (key, value) in map(object, "binaryData") {
        let path = Path::new("binaryData").key(key);
        errors.extend(config_key(key).into_iter().map(|why| Error::invalid(&path, key.as_str(), why)));
        total += decoded_length(value);
    }
    if total > BYTES_MAX {
        // upstream: the path of the whole object
        errors.push(Error::too_long(&Path::new("[]"), BYTES_MAX));
    }
    errors
}

pub(super) fn create_secret(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    fill(object);
    let resource = resources::core("secrets");
    let mut errors = new_meta(resource, object)?;
    errors.extend(check_secret(object));
    finish(resource, object, &errors)
}

pub(super) fn update_secret(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    fill(object);
    let resource = resources::core("secrets");
    let mut errors = same_meta(resource, object, old)?;
    let kind = |object: &Object| object.get("type").and_then(Value::as_str).unwrap_or("Opaque").to_owned();
    if kind(object) != kind(old) {
        errors.push(Error::invalid(&Path::new("type"), kind(object), "field is immutable"));
    }
    errors.extend(frozen(object, old, &["data"]));
    errors.extend(check_secret(object));
    finish(resource, object, &errors)
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

fn check_secret(object: &Object) -> Errors {
    let path = Path::new("data");
    let mut errors = Errors::new();
    let mut total = 0;
    for (key, value) in map(object, "data") {
        let at = path.key(key);
        errors.extend(config_key(key).into_iter().map(|why| Error::invalid(&at, key.as_str(), why)));
        total += decoded_length(value);
    }
    if total > BYTES_MAX {
        errors.push(Error::too_long(&path, BYTES_MAX));
    }
    errors.extend(check_type(object, &path));
    errors
}

/// What a Secret of a known type must hold.
fn check_type(object: &Object, path: &Path) -> Errors {
    let value = |key: &str| object.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let required = |key: &str| Error::required(&path.key(key), "");
    let document = |key: &str| match value(key) {
        None => vec![required(key)],
        Some(text) => {
            let bytes = STANDARD.decode(text).unwrap_or_default();
            match serde_json::from_slice::<Map<String, Value>>(&bytes) {
                Ok(_) => Errors::new(),
                Err(why) => {
                    vec![Error::invalid(&path.key(key), "<secret contents redacted>", go_text(&bytes, &why))]
                }
            }
        }
    };
    match object.get("type").and_then(Value::as_str).unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            let annotations = object.meta().and_then(|meta| meta.get("annotations"));
            let given = annotations.and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default();
            if given.is_empty() {
                vec![Error::required(&Path::new("metadata").child("annotations").key(name), "")]
            } else {
                Errors::new()
            }
        }
        "kubernetes.io/dockercfg" => document(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => document(".dockerconfigjson"),
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            vec![required("username"), required("password")]
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").is_none_or(str::is_empty) => {
            vec![required("ssh-privatekey")]
        }
        "kubernetes.io/tls" => {
            let missing = ["tls.crt", "tls.key"].into_iter().filter(|key| value(key).is_none());
            missing.map(required).collect()
        }
        _ => Errors::new(),
    }
}

/// Go's text for the common case of a document that ends too early, else our own: its contents are not shown.
fn go_text(bytes: &[u8], why: &serde_json::Error) -> String {
    match why.classify() {
        serde_json::error::Category::Eof => "unexpected end of JSON input".to_owned(),
        _ => match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(first) if why.is_syntax() && why.column() <= 1 => {
                format!("invalid character '{}' looking for beginning of value", char::from(*first))
            }
            _ => "the value is no JSON object".to_owned(),
        },
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
        errors.push(Error::forbidden(&Path::new("immutable"), IMMUTABLE));
    }
    for name in fields.iter().filter(|name| !object.is_same(old, name)) {
        errors.push(Error::forbidden(&Path::new(name), IMMUTABLE));
    }
    errors
}
