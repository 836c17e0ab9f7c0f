//! The body of a create or PUT: an object of the kind and the place that the path names, or a refusal.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decode::{self, Validation};
use crate::go_json;
use crate::hooks::Warnings;
use crate::object::{self, Object};
use crate::request::Target;
use crate::resources::{self, Resource};
use crate::status::{Result, Status};

/// Reads the body of a create or PUT. Warnings are about its fields.
pub(crate) fn decode(resource: &Resource, body: &[u8], validation: Validation) -> Result<(Object, Warnings)> {
    let (mut value, has_twice) =
        go_json::parse(body).map_err(|why| Status::unrecognized(resource, &why, body))?;
    object::null_texts(&mut value);
    object::strip_nulls(&mut value);
    check_type(resource, &value)?;
    let texts = decode::check_body(resource, body, (&value, has_twice), validation)
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
    let text = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let api_version = text("apiVersion").unwrap_or(resource.api_version);
    let kind = text("kind").unwrap_or(resource.kind);
    if (api_version, kind) != (resource.api_version, resource.kind) {
        return Err(another_kind(resource, api_version, kind));
    }
    if !object.get("metadata").is_none_or(Value::is_object) {
        return Err(unreadable(resource, "metadata is not a JSON object"));
    }
    Ok(())
}

/// upstream: what is known is not converted, and what is not known is not decoded.
fn another_kind(resource: &Resource, api_version: &str, kind: &str) -> Status {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let why = conversion(resource, api_version, kind);
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {why}",
        resource.kind
    ))
}

/// Why an object of another kind can't become one of this.
pub(crate) fn conversion(resource: &Resource, api_version: &str, kind: &str) -> String {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let group = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    let is_known =
        resources::all().iter().any(|other| (other.api_version, other.kind) == (api_version, kind));
    if is_known {
        format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", resource.kind)
    } else {
        go_json::unregistered(kind, api_version)
    }
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
    if object.name().is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    Err(Status::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({})",
        object.name(),
        target.name
    )))
}
