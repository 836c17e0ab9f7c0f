//! Rules for `metadata` of every kind, and the name formats that all rules share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::Value;

use crate::field::{Error, Errors, Path};

/// What upstream says when a field may not change.
pub const IMMUTABLE: &str = "field is immutable";
/// What upstream says when a number may not be negative.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

const DNS1123_LABEL_BYTES_MAX: usize = 63;
const DNS1123_SUBDOMAIN_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
const FIELD_MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const UNDERSCORE_SUBDOMAIN: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const DNS1123_LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
                                  or '-', and must start and end with an alphanumeric character";
const DNS1123_SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                                      characters, '-' or '.', and must start and end with an alphanumeric character";
const UNDERSCORE_SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
     start and end with an alphanumeric character";
const DNS1035_LABEL_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
                                  with an alphabetic character, and end with an alphanumeric character";
const LABEL_KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                              an alphanumeric character";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
                                '_' or '.', and must start and end with an alphanumeric character";

/// What is wrong with `value` as a DNS label of RFC 1123; empty when fine.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut wrong = longer_than(value, DNS1123_LABEL_BYTES_MAX, "characters");
    if is_dns_label(value) {
        return wrong;
    }
    if is_dns_subdomain(value) {
        wrong.push("must not contain dots".to_owned());
    } else {
        wrong.push(pattern_text(DNS1123_LABEL_TEXT, DNS1123_LABEL, &["my-name", "123-abc"]));
    }
    wrong
}

/// What is wrong with `value` as a DNS subdomain of RFC 1123; empty when fine.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_counting_in(value, "characters")
}

/// What is wrong with `value` as a subdomain whose labels may also hold underscores; empty when fine.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut wrong = longer_than(value, DNS1123_SUBDOMAIN_BYTES_MAX, "characters");
    // An underscore may stand first or inside, not last.
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        !label.starts_with('_') && !label.ends_with('_') && is_dns_label(&label.replace('_', "-"))
    };
    if !value.split('.').all(is_label) {
        wrong.push(pattern_text(UNDERSCORE_SUBDOMAIN_TEXT, UNDERSCORE_SUBDOMAIN, &["example.com"]));
    }
    wrong
}

// Upstream has the same rule twice, once counting characters and once (inside label keys) bytes.
fn subdomain_counting_in(value: &str, unit: &str) -> Vec<String> {
    let mut wrong = longer_than(value, DNS1123_SUBDOMAIN_BYTES_MAX, unit);
    if !is_dns_subdomain(value) {
        wrong.push(pattern_text(DNS1123_SUBDOMAIN_TEXT, DNS1123_SUBDOMAIN, &["example.com"]));
    }
    wrong
}

/// What is wrong with `value` as a DNS label of RFC 1035; empty when fine.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut wrong = longer_than(value, DNS1123_LABEL_BYTES_MAX, "characters");
    if !is_dns_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        wrong.push(pattern_text(DNS1035_LABEL_TEXT, DNS1035_LABEL, &["my-name", "abc-123"]));
    }
    wrong
}

/// What is wrong with `value` as a label key (`name` or `prefix/name`); empty when fine.
pub fn qualified_name(value: &str) -> Vec<String> {
    let pattern = || pattern_text(LABEL_KEY_TEXT, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
    let mut wrong = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern()
            )];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let texts = subdomain_counting_in(prefix, "bytes");
            wrong.extend(texts.into_iter().map(|text| format!("prefix part {text}")));
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        wrong.push(format!("name part must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !is_label_word(name) {
        wrong.push(format!("name part {}", pattern()));
    }
    wrong
}

/// What is wrong with `value` as the value of a label; empty when fine.
pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = longer_than(value, LABEL_BYTES_MAX, "bytes");
    if !value.is_empty() && !is_label_word(value) {
        wrong.push(pattern_text(LABEL_VALUE_TEXT, LABEL_VALUE, &["MyValue", "my_value", "12345"]));
    }
    wrong
}

/// `text (e.g. 'a',  or 'b', regex used for validation is '...')`, with upstream's punctuation.
pub fn pattern_text(text: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{pattern}')");
    }
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", quoted.join(" or "))
}

fn longer_than(value: &str, max: usize, unit: &str) -> Vec<String> {
    if value.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn is_dns_label(value: &str) -> bool {
    let is_alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = value.as_bytes();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes.iter().all(|b| is_alphanumeric(b) || *b == b'-')
}

fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

fn is_label_word(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// The errors of one text rule at one field.
pub fn each(path: &Path, value: &str, wrong: Vec<String>) -> Errors {
    wrong.into_iter().map(|text| Error::invalid(path, value, text)).collect()
}

/// Checks the metadata of a new object that lives in a namespace.
pub fn validate_object_meta(meta: &ObjectMeta, path: &Path, name_rule: fn(&str) -> Vec<String>) -> Errors {
    let mut errors = validate_names(meta, path, name_rule);
    let at = path.child("namespace");
    match meta.namespace.as_deref().unwrap_or_default() {
        "" => errors.push(Error::required(&at, "")),
        namespace => errors.extend(each(&at, namespace, dns1123_label(namespace))),
    }
    errors.extend(validate_common(meta, path));
    errors
}

/// Checks the metadata of a new object of a kind that lives in no namespace.
pub fn validate_cluster_object_meta(
    meta: &ObjectMeta,
    path: &Path,
    name_rule: fn(&str) -> Vec<String>,
) -> Errors {
    let mut errors = validate_names(meta, path, name_rule);
    if meta.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty()) {
        errors.push(Error::forbidden(&path.child("namespace"), "not allowed on this type"));
    }
    errors.extend(validate_common(meta, path));
    errors
}

fn validate_names(meta: &ObjectMeta, path: &Path, name_rule: fn(&str) -> Vec<String>) -> Errors {
    let mut errors = Errors::new();
    let base = meta.generate_name.as_deref().unwrap_or_default();
    if !base.is_empty() {
        errors.extend(each(&path.child("generateName"), base, name_rule(&mask_trailing_dash(base))));
    }
    let at = path.child("name");
    match meta.name.as_deref().unwrap_or_default() {
        "" => errors.push(Error::required(&at, "name or generateName is required")),
        name => errors.extend(each(&at, name, name_rule(name))),
    }
    errors
}

// A name that more will be appended to may end in a dash. Like upstream, this looks at the base without its
// last two characters.
pub(crate) fn mask_trailing_dash(base: &str) -> String {
    if base.len() > 1
        && base.ends_with('-')
        && let Some(head) = base.get(..base.len() - 2)
    {
        return format!("{head}a");
    }
    base.to_owned()
}

fn validate_common(meta: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(generation) = meta.generation.filter(|generation| *generation < 0) {
        errors.push(Error::invalid(&path.child("generation"), generation, NOT_NEGATIVE));
    }
    errors.extend(validate_maps_and_owners(meta, path));
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let at = path.child("finalizers");
    errors.extend(validate_finalizers(finalizers, &at));
    errors.extend(validate_managed_fields(meta, path));
    errors.extend(validate_finalizers_known(finalizers, &at));
    errors
}

fn validate_maps_and_owners(meta: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(labels) = &meta.labels {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = &meta.annotations {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    errors.extend(validate_owner_references(owners, &path.child("ownerReferences")));
    errors
}

/// Checks the keys and values of a set of labels.
pub fn validate_labels(labels: &BTreeMap<String, String>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (key, value) in labels {
        errors.extend(each(path, key, qualified_name(key)));
        errors.extend(each(path, value, label_value(value)));
    }
    errors
}

/// Checks the keys of a set of annotations, and their size together.
pub fn validate_annotations(annotations: &BTreeMap<String, String>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for key in annotations.keys() {
        errors.extend(each(path, key, qualified_name(&key.to_lowercase())));
    }
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(Error::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
    errors
}

fn validate_owner_references(owners: &[OwnerReference], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut controller: Option<String> = None;
    for owner in owners {
        errors.extend(validate_owner_reference(owner, path));
        if owner.controller != Some(true) {
            continue;
        }
        let this = format!("{}/{}", owner.kind, owner.name);
        match &controller {
            None => controller = Some(this),
            Some(first) => errors.push(Error::invalid(
                path,
                json(&owners),
                format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                ),
            )),
        }
    }
    errors
}

fn validate_owner_reference(owner: &OwnerReference, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let version = match owner.api_version.matches('/').count() {
        0 => owner.api_version.as_str(),
        1 => owner.api_version.split_once('/').map_or("", |(_, version)| version),
        _ => "",
    };
    if version.is_empty() {
        let at = path.child("apiVersion");
        errors.push(Error::invalid(&at, owner.api_version.as_str(), "version must not be empty"));
    }
    for (name, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
        if value.is_empty() {
            errors.push(Error::invalid(&path.child(name), value.as_str(), "must not be empty"));
        }
    }
    // Events are written too often to be waited for by a garbage collector.
    if owner.api_version == "v1" && owner.kind == "Event" {
        errors.push(Error::invalid(path, json(owner), "/v1, Kind=Event is disallowed from being an owner"));
    }
    errors
}

fn validate_finalizers(finalizers: &[String], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for finalizer in finalizers {
        errors.extend(each(path, finalizer, qualified_name(finalizer)));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let text = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(Error::invalid(path, json(&finalizers), text));
    }
    errors
}

// A finalizer without a domain must be one of those that Kubernetes knows.
fn validate_finalizers_known(finalizers: &[String], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, finalizer) in finalizers.iter().enumerate() {
        let is_standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer.as_str());
        if !finalizer.contains('/') && !is_standard {
            let text = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(i), finalizer.as_str(), text));
        }
    }
    errors
}

fn validate_managed_fields(meta: &ObjectMeta, path: &Path) -> Errors {
    let entries = meta.managed_fields.as_deref().unwrap_or_default();
    let at = path.child("managedFields");
    entries.iter().enumerate().flat_map(|(i, entry)| validate_managed_entry(entry, &at.index(i))).collect()
}

fn validate_managed_entry(entry: &ManagedFieldsEntry, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let operation = entry.operation.as_deref().unwrap_or_default();
    if !["Apply", "Update"].contains(&operation) {
        errors.push(Error::invalid(&path.child("operation"), operation, "must be `Apply` or `Update`"));
    }
    let kind = entry.fields_type.as_deref().unwrap_or_default();
    if !["", "FieldsV1"].contains(&kind) {
        errors.push(Error::invalid(&path.child("fieldsType"), kind, "must be `FieldsV1`"));
    }
    let manager = entry.manager.as_deref().unwrap_or_default();
    errors.extend(validate_field_manager(manager, &path.child("manager")));
    if entry.subresource.as_deref().is_some_and(|name| name.len() > SUBRESOURCE_BYTES_MAX) {
        errors.push(Error::too_long(&path.child("subresource"), SUBRESOURCE_BYTES_MAX));
    }
    errors
}

/// Checks the name of a field manager: at most 128 bytes, all printable.
pub fn validate_field_manager(manager: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(Error::too_long(path, FIELD_MANAGER_BYTES_MAX));
    }
    for (i, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let text = format!("invalid character U+{:04X} (at position {i})", u32::from(c));
        errors.push(Error::invalid(path, manager, text));
    }
    errors
}

/// Checks new metadata of an object against the old, whichever kind it is.
pub fn validate_object_meta_update(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if old.deletion_timestamp.is_some() {
        errors.extend(validate_no_new_finalizers(new, old, path));
    }
    if new.resource_version.as_deref().unwrap_or_default().is_empty() {
        errors.push(Error::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = new.generation.unwrap_or_default();
    if generation < old.generation.unwrap_or_default() {
        errors.push(Error::invalid(&path.child("generation"), generation, "must not be decremented"));
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    errors.extend(validate_immutable(&text(&new.name), &text(&old.name), &path.child("name")));
    errors.extend(validate_immutable(&text(&new.namespace), &text(&old.namespace), &path.child("namespace")));
    errors.extend(validate_immutable(&text(&new.uid), &text(&old.uid), &path.child("uid")));
    errors.extend(validate_immutable(
        &new.creation_timestamp,
        &old.creation_timestamp,
        &path.child("creationTimestamp"),
    ));
    errors.extend(validate_immutable(
        &new.deletion_timestamp,
        &old.deletion_timestamp,
        &path.child("deletionTimestamp"),
    ));
    errors.extend(validate_immutable(
        &new.deletion_grace_period_seconds,
        &old.deletion_grace_period_seconds,
        &path.child("deletionGracePeriodSeconds"),
    ));
    errors.extend(validate_maps_and_owners(new, path));
    errors.extend(validate_managed_fields(new, path));
    errors.extend(validate_finalizers_known(
        new.finalizers.as_deref().unwrap_or_default(),
        &path.child("finalizers"),
    ));
    errors
}

fn validate_no_new_finalizers(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Errors {
    let before = old.finalizers.as_deref().unwrap_or_default();
    let mut added: Vec<&String> =
        new.finalizers.iter().flatten().filter(|finalizer| !before.contains(finalizer)).collect();
    added.sort();
    added.dedup();
    if added.is_empty() {
        return Errors::new();
    }
    let quoted: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
    let text = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        quoted.join(", ")
    );
    vec![Error::forbidden(&path.child("finalizers"), text)]
}

/// One error when `new` differs from `old`, none otherwise.
pub fn validate_immutable<T: PartialEq + Serialize>(new: &T, old: &T, path: &Path) -> Errors {
    if new == old { Errors::new() } else { vec![Error::invalid(path, json(new), IMMUTABLE)] }
}

/// The JSON of a typed value, for the text of an error.
pub fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("API types are plain data and always become JSON")
}
