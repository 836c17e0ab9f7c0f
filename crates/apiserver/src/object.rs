//! An object while a request works on it: its JSON, with the parts of `metadata` that every kind has.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::resources::Resource;
use crate::status::{Result, Status};

/// The JSON of an object. Fields that we do not know stay in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(pub Map<String, Value>);

/// What objects are selected by, computed once a write.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The values of the kind's selectable fields that are not empty.
    pub fields: Vec<(&'static str, String)>,
}

impl Object {
    /// Reads the JSON of an object.
    pub fn from_slice(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes).map(Self)
    }

    /// Reads what the store holds.
    pub fn from_stored(bytes: &[u8]) -> Result<Self> {
        Self::from_slice(bytes).map_err(|error| Status::internal(&format!("decode a stored object: {error}")))
    }

    /// `metadata`, or nothing.
    pub fn meta(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata").and_then(Value::as_object)
    }

    /// `metadata`, made when it is not there.
    pub fn meta_mut(&mut self) -> &mut Map<String, Value> {
        map_at(&mut self.0, "metadata")
    }

    /// A text in `metadata`; empty when it is not there.
    pub fn meta_text(&self, field: &str) -> &str {
        self.meta().and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets a field of `metadata`.
    pub fn set_meta(&mut self, field: &str, value: impl Into<Value>) {
        self.meta_mut().insert(field.to_owned(), value.into());
    }

    /// Sets a field of `metadata` to what it is in another object, or removes it.
    pub fn copy_meta(&mut self, from: &Self, field: &str) {
        match from.meta().and_then(|meta| meta.get(field)) {
            Some(value) => self.set_meta(field, value.clone()),
            None => {
                self.meta_mut().remove(field);
            }
        }
    }

    /// Sets a top-level field to what it is in another object, or removes it.
    pub fn copy_section(&mut self, from: &Self, field: &str) {
        match from.0.get(field) {
            Some(value) => self.0.insert(field.to_owned(), value.clone()),
            None => self.0.remove(field),
        };
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.meta_text("name")
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> &str {
        self.meta_text("namespace")
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.meta_text("uid")
    }

    /// `metadata.generation`, 0 when the kind has none.
    pub fn generation(&self) -> i64 {
        self.meta().and_then(|meta| meta.get("generation")).and_then(Value::as_i64).unwrap_or(0)
    }

    /// Adds one to `metadata.generation` if the kind has one.
    pub fn bump_generation(&mut self) {
        let generation = self.generation();
        if generation > 0 {
            self.set_meta("generation", generation + 1);
        }
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> Vec<&str> {
        let list = self.meta().and_then(|meta| meta.get("finalizers")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Whether a delete has been accepted.
    pub fn is_deleting(&self) -> bool {
        !self.meta_text("deletionTimestamp").is_empty()
    }

    /// `metadata.deletionGracePeriodSeconds`.
    pub fn grace(&self) -> Option<i64> {
        self.meta().and_then(|meta| meta.get("deletionGracePeriodSeconds")).and_then(Value::as_i64)
    }

    /// A text at `section.field`; empty when it is not there.
    pub fn text_at(&self, section: &str, field: &str) -> &str {
        self.0.get(section).and_then(|value| value.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// A top-level map, made when it is not there.
    pub fn section_mut(&mut self, section: &str) -> &mut Map<String, Value> {
        map_at(&mut self.0, section)
    }

    /// What this object can be selected by.
    pub fn attributes(&self, resource: &Resource) -> Attributes {
        let labels = self.meta().and_then(|meta| meta.get("labels")).and_then(Value::as_object);
        let labels = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let fields =
            resource.fields.iter().filter_map(|field| Some((field.name, field.value(self)?))).collect();
        Attributes { labels, fields }
    }

    /// Makes the JSON, but for the revision.
    pub fn draft(&self, resource: &'static Resource) -> Draft {
        let mut tail = Vec::with_capacity(2048);
        tail.push(b'"');
        for (field, value) in
            self.meta().into_iter().flatten().filter(|(field, _)| *field != "resourceVersion")
        {
            write_field(&mut tail, field, value);
        }
        tail.push(b'}');
        for (field, value) in &self.0 {
            if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
                write_field(&mut tail, field, value);
            }
        }
        tail.push(b'}');
        Draft { resource, tail }
    }
}

fn map_at<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(field.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object above")
}

fn write_field(out: &mut Vec<u8>, field: &str, value: &Value) {
    out.push(b',');
    serde_json::to_writer(&mut *out, field).expect("a string is always JSON");
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect("a value is always JSON");
}

/// The JSON of an object without its revision. Every stored object begins with the same bytes up to the revision, so
/// that stamping, and leaving the type out of list items, needs no decoding.
#[derive(Debug)]
pub struct Draft {
    resource: &'static Resource,
    tail: Vec<u8>,
}

impl Draft {
    /// The JSON with its revision.
    pub fn stamp(&self, revision: u64) -> Bytes {
        stamped(self.resource, &self.tail, revision)
    }

    /// The JSON of an object that is not stored.
    pub fn unstamped(&self) -> Bytes {
        let text = String::from_utf8_lossy(&self.tail);
        let rest = text.strip_prefix("\",").map_or_else(|| text[1..].to_owned(), str::to_owned);
        Bytes::from(format!("{}\"metadata\":{{{rest}", self.resource.type_prefix))
    }
}

fn stamped(resource: &Resource, tail: &[u8], revision: u64) -> Bytes {
    let prefix = resource.version_prefix;
    let mut out = Vec::with_capacity(prefix.len() + tail.len() + 20);
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(tail);
    Bytes::from(out)
}

/// Stored bytes with another revision.
pub fn restamp(resource: &Resource, stored: &Bytes, revision: u64) -> Bytes {
    let after = &stored[resource.version_prefix.len()..];
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    stamped(resource, &after[digits..], revision)
}

/// Stored bytes without `apiVersion` and `kind` and without the opening brace, as they stand in a list.
pub fn list_item<'a>(resource: &Resource, stored: &'a Bytes) -> &'a [u8] {
    &stored[resource.type_prefix.len()..]
}

/// Removes fields that are null: to Kubernetes they are not there.
pub fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
