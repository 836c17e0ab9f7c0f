//! PATCH bodies: JSON patch, merge patch and strategic merge patch.

use http::HeaderMap;
use serde_json::Value;

use crate::object::{self, Object};
use crate::request::media_type;
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::strategic;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// upstream: the limit of kube-apiserver.
const OPERATIONS_MAX: usize = 10_000;

/// A patch that was read, not yet applied.
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Reads a patch of the type that the headers name.
    pub(crate) fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self> {
        match media_type(headers) {
            JSON_PATCH => {
                let patch: json_patch::Patch = decode(body)?;
                let count = patch.0.len();
                if count > OPERATIONS_MAX {
                    return Err(Status::patch_too_large(OPERATIONS_MAX, count));
                }
                Ok(Self::Json(patch))
            }
            MERGE_PATCH => Ok(Self::Merge(decode_map(body)?)),
            STRATEGIC_PATCH => Ok(Self::Strategic(decode_map(body)?)),
            _ => Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])),
        }
    }

    /// The object after the patch.
    pub(crate) fn apply(&self, resource: &Resource, old: &Object) -> Result<Object> {
        let mut value = Value::Object(old.0.clone());
        match self {
            Self::Json(patch) => {
                json_patch::patch_unsafe(&mut value, &patch.0).map_err(|_| Status::patch_failed())?;
            }
            Self::Merge(patch) => json_patch::merge(&mut value, patch),
            Self::Strategic(patch) => {
                strategic::apply(&mut value, patch, strategic::schema(resource))
                    .map_err(Status::bad_request)?;
            }
        }
        object::strip_nulls(&mut value);
        let Value::Object(mut map) = value else { return Err(Status::patch_failed()) };
        if !map.get("metadata").is_some_and(Value::is_object) {
            return Err(Status::patch_failed());
        }
        // The type is that of the path, whatever the patch says.
        for field in ["apiVersion", "kind"] {
            map.insert(field.to_owned(), old.0.get(field).cloned().unwrap_or_default());
        }
        Ok(Object(map))
    }
}

fn decode<T: for<'de> serde::Deserialize<'de>>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
}

fn decode_map(body: &[u8]) -> Result<Value> {
    let value: Value = decode(body)?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Status::bad_request("error decoding patch: not a JSON object"))
    }
}
