//! PATCH bodies: JSON patch, merge patch and strategic merge patch.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use windlass_api::field;

use crate::body;
use crate::decode::{self, Validation};
use crate::go_json;
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
                let value: Value = parse(body)?;
                let Some(count) = value.as_array().map(Vec::len) else {
                    return Err(unreadable(&go_json::cannot_unmarshal(&value, "[]handlers.jsonPatchOp")));
                };
                if count > OPERATIONS_MAX {
                    return Err(Status::patch_too_large(OPERATIONS_MAX, count));
                }
                // upstream: an operation that is none is found out when it is its turn
                let patch = json_patch::Patch::deserialize(value).map_err(|_| Status::patch_failed())?;
                Ok(Self::Json(patch))
            }
            MERGE_PATCH => Ok(Self::Merge(map(parse(body)?)?)),
            STRATEGIC_PATCH => {
                // upstream: of this type alone it is not said that it is a patch
                let value = serde_json::from_slice::<Value>(body)
                    .map_err(|error| Status::bad_request(go_json::syntax(body, &error)))?;
                Ok(Self::Strategic(map(value)?))
            }
            _ => Err(Status::unsupported_patch()),
        }
    }

    /// Takes out the UID of the object that is meant, if that is all that the patch says about metadata: they stay as they are
    /// then, and are neither copied nor compared.
    pub(crate) fn take_uid(&mut self) -> Option<String> {
        let (Self::Merge(Value::Object(patch)) | Self::Strategic(Value::Object(patch))) = self else {
            return None;
        };
        let meta = patch.get("metadata")?.as_object().filter(|meta| meta.len() == 1)?;
        let uid = meta.get("uid")?.as_str()?.to_owned();
        patch.remove("metadata");
        Some(uid)
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
                strategic::apply(&mut value, patch, strategic::schema(resource)).map_err(|why| {
                    // upstream: of what can be wrong with a patch, these two are not told as the client's fault
                    let is_told = !why.starts_with("map: ") && !why.starts_with("unknown patch type");
                    if is_told { Status::bad_request(why) } else { Status::unexplained(&why) }
                })?;
            }
        }
        object::strip_nulls(&mut value);
        let Value::Object(mut map) = value else { return Err(Status::patch_failed()) };
        check_type(resource, &map)?;
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

/// A patch makes no other kind of an object.
fn check_type(resource: &Resource, patched: &serde_json::Map<String, Value>) -> Result<()> {
    let text =
        |field: &str, own: &'static str| patched.get(field).and_then(Value::as_str).unwrap_or(own).to_owned();
    let (api_version, kind) = (text("apiVersion", resource.api_version), text("kind", resource.kind));
    if (api_version.as_str(), kind.as_str()) == (resource.api_version, resource.kind) {
        return Ok(());
    }
    let shown = Value::Object(patched.clone()).to_string();
    let why = body::conversion(resource, &api_version, &kind);
    let error = field::Error::invalid(&field::Path::new("patch"), shown, why);
    Err(Status::invalid("", "", "", &[error]))
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

fn parse(body: &[u8]) -> Result<Value> {
    serde_json::from_slice(body).map_err(|error| unreadable(&go_json::syntax(body, &error)))
}

fn unreadable(why: &str) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

fn map(value: Value) -> Result<Value> {
    if value.is_object() {
        Ok(value)
    } else {
        Err(unreadable(&go_json::cannot_unmarshal(&value, "map[string]interface {}")))
    }
}
