//! The body of a create or PUT: an object of the kind and the place that the path names, or a refusal.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decode::{self, Validation};
use crate::hooks::Warnings;
use crate::object::{self, Object};
use crate::request::Target;
use crate::resources::Resource;
use crate::status::{Result, Status};

/// Reads the body of a create or PUT. Warnings are about its fields.
pub(crate) fn decode(resource: &Resource, body: &[u8], validation: Validation) -> Result<(Object, Warnings)> {
    let mut value: Value =
        serde_json::from_slice(body).map_err(|error| unreadable(resource, &error.to_string()))?;
    object::strip_nulls(&mut value);
    check_type(resource, &value)?;
    let texts = decode::check_body(resource, body, &value, validation)
        .map_err(|error| unreadable(resource, &error))?;
    if validation == Validation::Strict && !texts.is_empty() {
        return Err(unreadable(resource, &decode::strict_error(&texts)));
    }
    let Value::Object(map) = value else { return Err(unreadable(resource, "the body is not a JSON object")) };
    let mut object = Object::from(map);
    object.insert("apiVersion", json!(resource.api_version));
    object.insert("kind", json!(resource.kind));
    Ok((object, texts))
}

/// Refuses an object of another kind than the path names.
fn check_type(resource: &Resource, object: &Value) -> Result<()> {
    for (field, expected) in [("apiVersion", resource.api_version), ("kind", resource.kind)] {
        let given = object.get(field).and_then(Value::as_str).unwrap_or(expected);
        if given != expected {
            return Err(match field {
                "apiVersion" => Status::bad_request(format!(
                    "the API version in the data ({given}) does not match the expected API version ({expected})"
                )),
                _ => Status::bad_request(format!(
                    "{given} in version {:?} cannot be handled as a {expected}",
                    resource.version
                )),
            });
        }
    }
    if !object.get("metadata").is_none_or(Value::is_object) {
        return Err(unreadable(resource, "metadata is not a JSON object"));
    }
    Ok(())
}

/// A body that is not an object of the kind.
pub(crate) fn unreadable(resource: &Resource, why: &str) -> Status {
    let Resource { kind, version, .. } = resource;
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// `metadata` as a type.
pub(crate) fn typed_meta(resource: &Resource, object: &Object) -> Result<ObjectMeta> {
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    ObjectMeta::deserialize(meta).map_err(|error| unreadable(resource, &error.to_string()))
}

/// Fills the namespace in from the path, and refuses another one.
pub(crate) fn check_place(object: &mut Object, target: &Target) -> Result<()> {
    if !target.resource.namespaced {
        object.remove_meta("namespace");
        return Ok(());
    }
    match object.namespace() {
        "" => {
            object.set_meta("namespace", target.namespace.as_str());
            Ok(())
        }
        given if given == target.namespace => Ok(()),
        _ => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Refuses a name that is not the one in the path.
pub(crate) fn check_name(object: &Object, target: &Target) -> Result<()> {
    if object.name() == target.name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({})",
        object.name(),
        target.name
    )))
}
