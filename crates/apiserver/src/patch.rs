//! PATCH bodies: JSON patch, merge patch and strategic merge patch.

use http::HeaderMap;
use serde_json::Value;
use windlass_api::field;

use crate::decode::{self, Validation};
use crate::hooks::Warnings;
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
                // By way of a value: of a field that is given twice the last one counts.
                let patch: json_patch::Patch = from_value(parse(body)?)?;
                let count = patch.0.len();
                if count > OPERATIONS_MAX {
                    return Err(Status::patch_too_large(OPERATIONS_MAX, count));
                }
                Ok(Self::Json(patch))
            }
            MERGE_PATCH => Ok(Self::Merge(decode_map(body)?)),
            STRATEGIC_PATCH => Ok(Self::Strategic(decode_map(body)?)),
            _ => Err(Status::unsupported_patch()),
        }
    }

    /// The top-level fields that the patch is about; all of them for one that is about the whole.
    fn touches(&self, field: &str) -> bool {
        match self {
            Self::Json(patch) => patch.0.iter().any(|operation| operation_touches(operation, field)),
            Self::Merge(patch) => patch.get(field).is_some(),
            Self::Strategic(Value::Object(patch)) => {
                patch.contains_key(field) || patch.keys().any(|key| key.starts_with('$'))
            }
            Self::Strategic(_) => true,
        }
    }

    /// Whether the patch is about `metadata.managedFields`, which few are.
    fn touches_managed(&self) -> bool {
        match self {
            Self::Json(patch) => patch.0.iter().any(|operation| {
                let mut tokens = operation.path().tokens();
                let mut is = |name: &str| tokens.next().is_none_or(|token| token.decoded() == name);
                is("metadata") && is("managedFields")
            }),
            Self::Merge(patch) | Self::Strategic(patch) => {
                patch.get("metadata").is_some_and(|meta| meta.get("managedFields").is_some())
            }
        }
    }

    /// The object after the patch. Fields that the patch is not about are not even decoded.
    pub(crate) fn apply(&self, resource: &Resource, old: &Object) -> Result<Object> {
        // The type is that of the path, whatever the patch says.
        let is_type = |field: &str| matches!(field, "apiVersion" | "kind");
        let mut value = old.to_value(|field| self.touches(field));
        let touches_managed = self.touches_managed();
        if touches_managed && let Some(meta) = value.get_mut("metadata") {
            *meta = Value::Object(old.whole_meta());
        }
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
        let mut new = old.clone();
        if touches_managed && let Some(Value::Object(meta)) = map.get_mut("metadata") {
            new.set_managed(meta.remove("managedFields"));
        }
        for field in old.fields().filter(|field| self.touches(field) && !is_type(field)) {
            if !map.contains_key(field) {
                new.remove(field);
            }
        }
        for (field, value) in map {
            if !is_type(&field) && old.get(&field) != Some(&value) {
                new.insert(&field, value);
            }
        }
        if new.meta().is_none() {
            return Err(Status::patch_failed());
        }
        Ok(new)
    }
}

impl Patch {
    /// Looks for fields that the patch gives twice, and for fields that the kind does not have. Texts for warnings,
    /// or the refusal when the client wants to be strict.
    pub(crate) fn check_fields(
        &self,
        resource: &Resource,
        body: &[u8],
        new: &Object,
        old: &Object,
        validation: Validation,
    ) -> Result<Warnings> {
        let refuse = |why: String| {
            let shown = match self {
                Self::Json(_) | Self::Merge(_) => new.to_value(|_| true).to_string(),
                Self::Strategic(patch) => decode::go_text(patch),
            };
            let error = field::Error::invalid(&field::Path::new("patch"), shown, why);
            Status::invalid("", "", "", &[error])
        };
        let unknown = decode::check_change(resource, new, old).map_err(refuse)?;
        if validation == Validation::Ignore {
            return Ok(Warnings::new());
        }
        let prefix = if matches!(self, Self::Json(_)) { "json patch " } else { "" };
        let mut texts: Warnings =
            decode::duplicates(body).into_iter().map(|text| format!("{prefix}{text}")).collect();
        texts.extend(unknown);
        if validation == Validation::Strict && !texts.is_empty() {
            return Err(refuse(decode::strict_error(&texts)));
        }
        Ok(texts)
    }
}

fn operation_touches(operation: &json_patch::PatchOperation, field: &str) -> bool {
    let first =
        |pointer: &json_patch::jsonptr::Pointer| pointer.first().is_none_or(|token| token.decoded() == field);
    let from = match operation {
        json_patch::PatchOperation::Move(operation) => Some(&operation.from),
        json_patch::PatchOperation::Copy(operation) => Some(&operation.from),
        json_patch::PatchOperation::Add(_)
        | json_patch::PatchOperation::Remove(_)
        | json_patch::PatchOperation::Replace(_)
        | json_patch::PatchOperation::Test(_) => None,
    };
    first(operation.path()) || from.is_some_and(|from| first(from))
}

fn parse<T: for<'de> serde::Deserialize<'de>>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Status {
    Status::bad_request(format!("error decoding patch: {error}"))
}

fn from_value<T: for<'de> serde::Deserialize<'de>>(value: Value) -> Result<T> {
    T::deserialize(value).map_err(unreadable)
}

fn decode_map(body: &[u8]) -> Result<Value> {
    let value: Value = parse(body)?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Status::bad_request("error decoding patch: not a JSON object"))
    }
}
