//! An object while a request works on it: its JSON by top-level field, and the parts of `metadata` that all kinds have.
//!
//! A field is decoded when it is looked at, shared with the state before until it is changed, and written back as the
//! bytes it came from when it was not: a patch of a finalizer never decodes a pod's spec.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::decode;
use crate::fields::{self, Presence, Type};
use crate::resources::Resource;
use crate::status::{Result, Status};

/// The JSON of an object. Fields that we do not know stay in it.
#[derive(Clone, Debug, Default)]
pub struct Object {
    sections: BTreeMap<String, Arc<Section>>,
    /// `metadata.managedFields`: as large as the rest, and looked at by few, so it is no part of `metadata` here.
    managed: Option<Arc<Section>>,
}

const MANAGED: &str = "managedFields";

/// A top-level field: its bytes while they are good, its value once somebody has looked.
#[derive(Debug)]
struct Section {
    raw: Option<Bytes>,
    value: OnceLock<Value>,
}

impl Section {
    fn new(value: Value) -> Arc<Self> {
        Arc::new(Self { raw: None, value: OnceLock::from(value) })
    }

    fn stored(raw: Bytes) -> Arc<Self> {
        Arc::new(Self { raw: Some(raw), value: OnceLock::new() })
    }

    fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            let raw = self.raw.as_deref().unwrap_or(b"null");
            serde_json::from_slice(raw).expect("the bytes were read as JSON before they were kept")
        })
    }

    /// Writes it as a field; says where its value is.
    fn write(&self, out: &mut Vec<u8>, field: &str) -> Range<usize> {
        write_name(out, field);
        let start = out.len();
        match &self.raw {
            Some(raw) => out.extend_from_slice(raw),
            None => write_value(out, self.value()),
        }
        start..out.len()
    }
}

/// `metadata` without what it says about managed fields, and that.
fn split_meta(bytes: &Bytes, raw: &RawValue) -> Option<(Arc<Section>, Option<Arc<Section>>)> {
    if !raw.get().contains("\"managedFields\"") {
        return None;
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let managed = fields.get(MANAGED)?;
    let managed = Section::stored(bytes.slice_ref(managed.get().as_bytes()));
    let mut rest = Map::new();
    for (field, raw) in fields.into_iter().filter(|(field, _)| field != MANAGED) {
        rest.insert(field, serde_json::from_str(raw.get()).ok()?);
    }
    Some((Section::new(Value::Object(rest)), Some(managed)))
}

fn is_same(a: &Arc<Section>, b: &Arc<Section>) -> bool {
    Arc::ptr_eq(a, b) || a.value() == b.value()
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        let managed = match (&self.managed, &other.managed) {
            (Some(a), Some(b)) => is_same(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        managed && self.is_same_but_managed(other)
    }
}

impl From<Map<String, Value>> for Object {
    fn from(mut map: Map<String, Value>) -> Self {
        let managed =
            map.get_mut("metadata").and_then(Value::as_object_mut).and_then(|meta| meta.remove(MANAGED));
        let sections = map.into_iter().map(|(field, value)| (field, Section::new(value))).collect();
        Self { sections, managed: managed.map(Section::new) }
    }
}

/// What objects are selected by, computed once a write.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// `metadata.labels`, shared by all states of an object that have the same.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The values of the kind's selectable fields that are not empty.
    pub fields: Vec<(&'static str, String)>,
}

impl Attributes {
    /// The value of a selectable field, unless it is empty.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }
}

impl Object {
    /// Reads what the store holds, without decoding more than the names of its fields.
    pub fn from_stored(bytes: &Bytes) -> Result<Self> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes)
            .map_err(|error| Status::internal(&format!("decode a stored object: {error}")))?;
        let mut object = Self::default();
        for (field, raw) in fields {
            let split = if field == "metadata" { split_meta(bytes, raw) } else { None };
            let (section, managed) =
                split.unwrap_or_else(|| (Section::stored(bytes.slice_ref(raw.get().as_bytes())), None));
            object.sections.insert(field, section);
            object.managed = object.managed.or(managed);
        }
        Ok(object)
    }

    /// `metadata.managedFields`.
    pub fn managed(&self) -> Option<&Value> {
        self.managed.as_ref().map(|section| section.value())
    }

    /// Whether both are the same, but for `metadata.managedFields`.
    pub(crate) fn is_same_but_managed(&self, other: &Self) -> bool {
        self.sections.len() == other.sections.len()
            && self.sections.iter().all(|(field, a)| other.sections.get(field).is_some_and(|b| is_same(a, b)))
    }

    /// Sets `metadata.managedFields`.
    pub fn set_managed(&mut self, managed: Option<Value>) {
        self.managed = managed.map(Section::new);
    }

    /// Whether `metadata.managedFields` has not been touched since the one object was made from the other.
    pub(crate) fn shares_managed(&self, other: &Self) -> bool {
        match (&self.managed, &other.managed) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Sets `metadata.managedFields` to what it is in another object.
    pub fn copy_managed(&mut self, from: &Self) {
        self.managed.clone_from(&from.managed);
    }

    /// `metadata` as it is shown, with what it says about managed fields.
    pub fn whole_meta(&self) -> Map<String, Value> {
        let mut meta = self.meta().cloned().unwrap_or_default();
        meta.extend(self.managed().map(|managed| (MANAGED.to_owned(), managed.clone())));
        meta
    }

    /// A top-level field.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.sections.get(field).map(|section| section.value())
    }

    /// Sets a top-level field.
    pub fn insert(&mut self, field: &str, value: Value) {
        self.sections.insert(field.to_owned(), Section::new(value));
    }

    /// Removes a top-level field.
    pub fn remove(&mut self, field: &str) {
        self.sections.remove(field);
    }

    /// A top-level field to change, made when it is not there.
    pub fn get_mut(&mut self, field: &str) -> &mut Value {
        let section = self.sections.entry(field.to_owned()).or_insert_with(|| Section::new(Value::Null));
        if section.raw.is_some() || Arc::get_mut(section).is_none() {
            *section = Section::new(section.value().clone());
        }
        let section =
            Arc::get_mut(section).expect("nobody else has it: it was just made, or found to be alone");
        section.value.get_mut().expect("sections without bytes have a value")
    }

    /// The names of the top-level fields.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }

    /// Whether a top-level field is the same in both. Cheap when neither has been changed since one was the other.
    pub fn is_same(&self, other: &Self, field: &str) -> bool {
        match (self.sections.get(field), other.sections.get(field)) {
            (Some(a), Some(b)) => is_same(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Makes the object what upstream would show, where it is not what it was before.
    pub(crate) fn tidy(&mut self, resource: &Resource, before: Option<&Self>) {
        let Some(ty) = fields::of_kind(resource.api_version, resource.kind) else { return };
        let Type::Struct(of) = &ty else { return };
        for field in
            of.get().always().filter(|field| !self.sections.contains_key(&field.name)).collect::<Vec<_>>()
        {
            let zero = fields::zero(field).map(|zero| (field.name.clone(), Section::new(zero)));
            self.sections.extend(zero);
        }
        let is_new = |name: &&str| !before.is_some_and(|before| self.is_shared(before, name));
        let names: Vec<String> = self.fields().filter(is_new).map(str::to_owned).collect();
        for name in &names {
            let (ty, field) = ty.member(name);
            let is_empty = field.is_some_and(|field| field.presence == Presence::Filled)
                && self.get(name).is_some_and(fields::is_empty);
            if is_empty {
                self.remove(name);
            } else if !self.get(name).is_none_or(|value| fields::is_tidy(ty, value)) {
                fields::tidy(ty, self.get_mut(name));
            }
        }
    }

    /// Reads the object as a type.
    pub fn read<T: for<'de> Deserialize<'de>>(&self) -> serde_json::Result<T> {
        let fields = self.sections.iter().map(|(field, section)| (field.as_str(), section.value()));
        T::deserialize(MapDeserializer::new(fields))
    }

    /// As a type, and whether the type has all of its fields.
    pub(crate) fn read_whole<T: for<'de> Deserialize<'de>>(&self) -> serde_json::Result<(T, bool)> {
        let fields = self.sections.iter().map(|(field, section)| (field.as_str(), section.value()));
        let mut is_whole = true;
        let view = decode::noting_unknown(MapDeserializer::new(fields), &mut |_| is_whole = false)?;
        Ok((view, is_whole))
    }

    /// The object, or some of its fields, as one JSON value.
    pub fn to_value(&self, select: impl Fn(&str) -> bool) -> Value {
        let selected = self.sections.iter().filter(|(field, _)| select(field));
        selected.map(|(field, section)| (field.clone(), section.value().clone())).collect()
    }

    /// `metadata`, or nothing.
    pub fn meta(&self) -> Option<&Map<String, Value>> {
        self.get("metadata").and_then(Value::as_object)
    }

    /// `metadata`, made when it is not there.
    pub fn meta_mut(&mut self) -> &mut Map<String, Value> {
        self.section_mut("metadata")
    }

    /// `metadata.labels`, or nothing.
    fn labels(&self) -> Option<&Map<String, Value>> {
        self.meta()?.get("labels")?.as_object()
    }

    /// A text in `metadata`; empty when it is not there.
    pub fn meta_text(&self, field: &str) -> &str {
        self.meta().and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets a field of `metadata`.
    pub fn set_meta(&mut self, field: &str, value: impl Into<Value>) {
        self.meta_mut().insert(field.to_owned(), value.into());
    }

    /// Adds to `metadata.labels`, over what is there.
    pub(crate) fn add_labels(&mut self, labels: Vec<(&'static str, String)>) {
        if labels.is_empty() {
            return;
        }
        let map = self.meta_mut().entry("labels").or_insert_with(|| Value::Object(Map::new()));
        let Some(map) = map.as_object_mut() else { return };
        map.extend(labels.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))));
    }

    /// Removes a field of `metadata`.
    pub fn remove_meta(&mut self, field: &str) {
        if self.meta().is_some_and(|meta| meta.contains_key(field)) {
            self.meta_mut().remove(field);
        }
    }

    /// Sets a field of `metadata` to what it is in another object, or removes it.
    pub fn copy_meta(&mut self, from: &Self, field: &str) {
        let theirs = from.meta().and_then(|meta| meta.get(field));
        if self.meta().and_then(|meta| meta.get(field)) == theirs {
            return;
        }
        match theirs {
            Some(value) => self.set_meta(field, value.clone()),
            None => self.remove_meta(field),
        }
    }

    /// Sets a top-level field to what it is in another object, or removes it.
    pub fn copy_section(&mut self, from: &Self, field: &str) {
        match from.sections.get(field) {
            Some(section) => self.sections.insert(field.to_owned(), Arc::clone(section)),
            None => self.sections.remove(field),
        };
    }

    /// Leaves out owners that are named twice. Texts for warnings.
    ///
    /// upstream: dedupOwnerReferencesAndAddWarning.
    pub(crate) fn dedup_owners(&mut self) -> Vec<String> {
        let owners = self.meta().and_then(|meta| meta.get("ownerReferences")).and_then(Value::as_array);
        let Some(owners) = owners.filter(|owners| owners.len() > 1) else { return Vec::new() };
        let mut kept: Vec<&Value> = Vec::new();
        let mut twice: Vec<&str> = Vec::new();
        for owner in owners {
            if kept.contains(&owner) {
                twice.push(owner.get("uid").and_then(Value::as_str).unwrap_or_default());
            } else {
                kept.push(owner);
            }
        }
        if twice.is_empty() {
            return Vec::new();
        }
        let text = format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        );
        let kept: Vec<Value> = kept.into_iter().cloned().collect();
        self.set_meta("ownerReferences", kept);
        vec![text]
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
        self.get(section).and_then(|value| value.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// A top-level map, made when it is not there.
    pub fn section_mut(&mut self, section: &str) -> &mut Map<String, Value> {
        let value = self.get_mut(section);
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        value.as_object_mut().expect("made an object above")
    }

    /// What this object can be selected by. `before` is the state it was made from: what did not change is not looked at.
    pub fn attributes(&self, resource: &Resource, before: Option<(&Self, &Attributes)>) -> Attributes {
        let labels = match before.filter(|(old, _)| self.labels() == old.labels()) {
            Some((_, old)) => Arc::clone(&old.labels),
            None => {
                let all = self.labels().into_iter().flatten();
                Arc::new(
                    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
                )
            }
        };
        let mut fields = Vec::new();
        for field in resource.fields {
            let unchanged = before.filter(|(old, _)| self.is_shared(old, field.section()));
            let value = match unchanged {
                Some((_, old)) => old.field(field.name).map(str::to_owned),
                None => field.value(self),
            };
            fields.extend(value.map(|value| (field.name, value)));
        }
        Attributes { labels, fields }
    }

    /// Whether a field has not been touched since the one object was made from the other.
    pub(crate) fn is_shared(&self, other: &Self, field: &str) -> bool {
        match (self.sections.get(field), other.sections.get(field)) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
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
        let managed = self.managed.as_ref().map(|managed| managed.write(&mut tail, MANAGED));
        tail.push(b'}');
        let sections = self.sections.iter().filter(|(field, _)| is_written_whole(field));
        let spans = sections.map(|(field, section)| section.write(&mut tail, field)).collect();
        tail.push(b'}');
        Draft { resource, tail, managed, spans }
    }

    /// The object as it is stored now that its draft is: what had to be written need not be written again.
    pub(crate) fn stored_as(mut self, draft: &Draft, bytes: &Bytes, revision: u64) -> Self {
        let before = bytes.len() - draft.tail.len();
        let sections = self.sections.iter_mut().filter(|(field, _)| is_written_whole(field));
        let sections = sections.map(|(_, section)| section).zip(&draft.spans);
        for (section, span) in sections.chain(self.managed.iter_mut().zip(&draft.managed)) {
            // One that others have as well came from bytes, or is written again: both are good.
            if let Some(section) = Arc::get_mut(section) {
                section.raw = Some(bytes.slice(before + span.start..before + span.end));
            }
        }
        self.set_meta("resourceVersion", revision.to_string());
        self
    }
}

/// Whether a top-level field is written as it is: the type comes from the resource, and metadata have the revision.
fn is_written_whole(field: &str) -> bool {
    !matches!(field, "apiVersion" | "kind" | "metadata")
}

fn write_name(out: &mut Vec<u8>, field: &str) {
    out.push(b',');
    serde_json::to_writer(&mut *out, field).expect("a string is always JSON");
    out.push(b':');
}

fn write_field(out: &mut Vec<u8>, field: &str, value: &Value) {
    write_name(out, field);
    write_value(out, value);
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("a value is always JSON");
}

/// The JSON of an object without its revision. Every stored object begins with the same bytes up to the revision, so
/// that stamping, and leaving the type out of list items, needs no decoding.
#[derive(Debug)]
pub struct Draft {
    resource: &'static Resource,
    tail: Vec<u8>,
    /// Where the managed fields are in it, and the top-level fields that are written whole, in their order.
    managed: Option<Range<usize>>,
    spans: Vec<Range<usize>>,
}

impl Draft {
    /// How many bytes it has, without the revision.
    pub fn size(&self) -> usize {
        self.resource.version_prefix.len() + self.tail.len()
    }

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

/// upstream: to a map of texts, null is an empty text.
pub fn null_texts(value: &mut Value) {
    for place in ["/metadata/labels", "/metadata/annotations"] {
        let map = value.pointer_mut(place).and_then(Value::as_object_mut);
        for text in map.into_iter().flat_map(|map| map.values_mut()).filter(|text| text.is_null()) {
            *text = Value::from("");
        }
    }
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
