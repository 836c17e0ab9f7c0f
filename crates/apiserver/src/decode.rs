//! Field validation: fields that the kind does not have, and fields that are given twice.
//!
//! ```text
//!  bytes ──► Value ──► fits the table ──► no unknown paths ───────────┐
//!    │         └──────► typed (serde_ignored) ──► unknown paths ──────┤
//!    └──────────────────────────────────────────► scan in order ◄─────┘──► texts, in the order of the document
//! ```

mod parse;
mod scan;

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_ignored::Path;
use serde_json::Value;
use windlass_api::field;

use crate::fields;
use crate::object::Object;
use crate::request::Query;
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::types::{self, Visit};

pub(crate) use parse::value;
pub(crate) use scan::duplicates;

/// What to do about fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    /// Nothing.
    Ignore,
    /// Tell the client.
    Warn,
    /// Refuse.
    Strict,
}

impl Validation {
    /// `fieldValidation` of a query for these options. upstream: Warn for those who do not say.
    pub(crate) fn parse(query: &Query, options: &str) -> Result<Self> {
        match query.text("fieldValidation") {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => {
                let path = field::Path::new("fieldValidation");
                let error = field::Error::not_supported(&path, other, &["", "Ignore", "Strict", "Warn"]);
                Err(Status::invalid("meta.k8s.io", options, "", &[error]))
            }
        }
    }
}

/// Reads the object as its type and tells which fields the type does not have. The error is why it cannot be read.
pub(crate) fn unknown(resource: &Resource, value: &Value) -> std::result::Result<Vec<String>, String> {
    if is_plain(resource, value) {
        return Ok(Vec::new());
    }
    decoded(resource, value)
}

/// The same without the table.
pub(crate) fn decoded(resource: &Resource, value: &Value) -> std::result::Result<Vec<String>, String> {
    types::of(resource, Unknown(value)).unwrap_or_else(|| Ok(Vec::new()))
}

/// Whether the table of fields tells already that the object can be read and has no other fields.
pub(crate) fn is_plain(resource: &Resource, value: &Value) -> bool {
    // The table takes bytes for text.
    let has_bytes = matches!(resource.kind, "ConfigMap" | "Secret");
    !has_bytes
        && fields::of_kind(resource.api_version, resource.kind).is_some_and(|ty| fields::fits(&ty, value))
}

struct Unknown<'a>(&'a Value);

impl Visit for Unknown<'_> {
    type Output = std::result::Result<Vec<String>, String>;

    fn visit<T: DeserializeOwned>(self) -> Self::Output {
        let mut paths = Vec::new();
        let read = noting_unknown::<T, _>(self.0, &mut |path| {
            let path = text(&path);
            if !is_draft(&path) {
                paths.push(path);
            }
        });
        read.map(|_| paths).map_err(|error| error.to_string())
    }
}

/// Reads a type and notes fields that it does not have. Who notes is not part of the type of the reader: what Pods, Jobs
/// and all other kinds have in common is in the program once, not once for each of them.
pub(crate) fn noting_unknown<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    note: &mut dyn FnMut(Path<'_>),
) -> std::result::Result<T, D::Error> {
    serde_ignored::deserialize(from, note)
}

/// A field of Jobs that the typed struct does not know and we do: the first draft of the failure policy.
fn is_draft(path: &str) -> bool {
    path == "spec.backoffPolicy"
}

/// `spec.containers[0].name`.
fn text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", text(parent)),
        Path::Map { parent, key } => join(&text(parent), key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            text(parent)
        }
    }
}

fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

/// What is wrong with the fields of a whole body, in the order of the document. `has_twice` says whether it has any field
/// more than once.
pub(crate) fn check_body(
    resource: &Resource,
    body: &[u8],
    (value, has_twice): (&Value, bool),
    validation: Validation,
) -> std::result::Result<Vec<String>, String> {
    let unknown = unknown(resource, value)?;
    if validation == Validation::Ignore || (unknown.is_empty() && !has_twice) {
        return Ok(Vec::new());
    }
    Ok(scan::scan(body, &unknown))
}

/// The fields of a changed object that its type does not have, and that were not there before. Only what the change
/// is about is looked at.
pub(crate) fn check_change(
    resource: &Resource,
    new: &Object,
    old: &Object,
) -> std::result::Result<Vec<String>, String> {
    let is_changed = |field: &str| !new.is_same(old, field);
    let found = unknown(resource, &new.to_value(is_changed))?;
    if found.is_empty() {
        return Ok(found);
    }
    let before: HashSet<String> =
        unknown(resource, &old.to_value(is_changed)).unwrap_or_default().into_iter().collect();
    let fresh = found.into_iter().filter(|path| !before.contains(path)).take(scan::TEXTS_MAX);
    Ok(fresh.map(|path| format!("unknown field {path:?}")).collect())
}

/// upstream: the text of a refusal.
pub(crate) fn strict_error(texts: &[String]) -> String {
    format!("strict decoding error: {}", texts.join(", "))
}

/// A JSON value as Go prints a map: what upstream shows of a strategic patch.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => {
            let mut fields: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
    }
}
