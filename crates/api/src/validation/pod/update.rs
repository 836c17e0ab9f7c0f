//! What may change of a pod that exists.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use serde_json::{Value, json};

use super::scheduling::validate_tolerations;
use super::{MIRROR_ANNOTATION, containers, list, required, text_of, validate_pod, validate_pod_annotations};
use crate::field::{Error, Errors, Path};
use crate::validation::meta::{self, validate_object_meta_update};

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                          `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                          additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
                          to 1 if it was previously negative)";

/// Checks a pod against what it was, for a write to the pod itself and not to a subresource.
pub fn validate_pod_update(new: &Pod, old: &Pod) -> Errors {
    let (meta_at, at) = (Path::new("metadata"), Path::new("spec"));
    let mut errors = validate_object_meta_update(&new.metadata, &old.metadata, &meta_at);
    errors.extend(validate_pod(new));
    errors.extend(validate_annotation_updates(new, old, &meta_at.child("annotations")));
    let no_spec = PodSpec::default();
    let (new, old) = (new.spec.as_ref().unwrap_or(&no_spec), old.spec.as_ref().unwrap_or(&no_spec));
    errors.extend(validate_spec_update(new, old, &at));
    errors
}

fn validate_annotation_updates(new: &Pod, old: &Pod, path: &Path) -> Errors {
    let mirror =
        |pod: &Pod| pod.metadata.annotations.as_ref().and_then(|a| a.get(MIRROR_ANNOTATION).cloned());
    let (after, before) = (mirror(new), mirror(old));
    let mut errors = Errors::new();
    if after != before {
        let verb = if before.is_some() { "remove or update" } else { "add" };
        let text = format!("may not {verb} mirror pod annotation");
        errors.push(Error::forbidden(&path.key(MIRROR_ANNOTATION), text));
    }
    let node_name = new.spec.as_ref().map_or("", |spec| text_of(&spec.node_name));
    errors.extend(validate_pod_annotations(&new.metadata, node_name, path));
    errors
}

fn validate_spec_update(new: &PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let pairs = [
        ("containers", new.containers.as_slice(), old.containers.as_slice()),
        ("initContainers", list(&new.init_containers), list(&old.init_containers)),
    ];
    for (name, new, old) in pairs {
        let at = path.child(name);
        if new.len() != old.len() {
            errors.push(Error::forbidden(&at, "pod updates may not add or remove containers"));
            return errors;
        }
        errors.extend(validate_new_images(new, &at));
    }
    let (wrong, is_final) = validate_deadline(new, old, &path.child("activeDeadlineSeconds"));
    errors.extend(wrong);
    if is_final {
        return errors;
    }
    let at = path.child("tolerations");
    errors.extend(validate_added_tolerations(list(&new.tolerations), list(&old.tolerations), &at));
    errors.extend(validate_removed_gates(new, old, &path.child("schedulingGates")));
    let (masked, wrong) = mask(new, old, path);
    errors.extend(wrong);
    if fields(&masked) != fields(old) {
        errors.push(Error::forbidden(path, format!("{MAY_CHANGE}\n{}", difference(old, &masked))));
    }
    errors
}

fn validate_new_images(containers: &[Container], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, container) in containers.iter().enumerate() {
        errors.extend(required(&path.index(i).child("image"), text_of(&container.image)));
    }
    errors.extend(containers::validate_images(containers, path));
    errors
}

// From nothing to something, or from something to less. Whether to look no further is the second value.
fn validate_deadline(new: &PodSpec, old: &PodSpec, path: &Path) -> (Errors, bool) {
    match (new.active_deadline_seconds, old.active_deadline_seconds) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            (vec![Error::invalid(path, new, "must be between 0 and 2147483647, inclusive")], true)
        }
        (Some(new), Some(old)) if old < new => {
            (vec![Error::invalid(path, new, "must be less than or equal to previous value")], true)
        }
        (None, Some(_)) => {
            let text = "must not update from a positive integer to nil value";
            (vec![Error::invalid(path, Value::Null, text)], false)
        }
        (Some(_) | None, _) => (Errors::new(), false),
    }
}

fn validate_added_tolerations(new: &[Toleration], old: &[Toleration], path: &Path) -> Errors {
    let is_kept = |old: &Toleration| {
        new.iter().any(|new| Toleration { toleration_seconds: new.toleration_seconds, ..old.clone() } == *new)
    };
    if !old.iter().all(is_kept) {
        let text = "existing toleration can not be modified except its tolerationSeconds";
        return vec![Error::forbidden(path, text)];
    }
    validate_tolerations(new, path)
}

fn validate_removed_gates(new: &PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let (mut errors, old) = (Errors::new(), list(&old.scheduling_gates));
    for (i, gate) in list(&new.scheduling_gates).iter().enumerate().filter(|(_, gate)| !old.contains(gate)) {
        let text = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.name);
        errors.push(Error::forbidden(&path.index(i).child("name"), text));
    }
    errors
}

// The new spec with the old values where a change is allowed, and what is wrong with these changes.
fn mask(new: &PodSpec, old: &PodSpec, path: &Path) -> (PodSpec, Errors) {
    let mut masked = new.clone();
    for (new, old) in masked.containers.iter_mut().zip(&old.containers) {
        new.image.clone_from(&old.image);
    }
    for (new, old) in masked.init_containers.iter_mut().flatten().zip(list(&old.init_containers)) {
        new.image.clone_from(&old.image);
    }
    masked.active_deadline_seconds = old.active_deadline_seconds;
    masked.scheduling_gates.clone_from(&old.scheduling_gates);
    masked.tolerations.clone_from(&old.tolerations);
    let was_negative = old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0);
    if was_negative && masked.termination_grace_period_seconds == Some(1) {
        masked.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
    let mut errors = Errors::new();
    if !list(&old.scheduling_gates).is_empty() {
        errors.extend(mask_gated(&mut masked, old, path));
    }
    (masked, errors)
}

// Where a gated pod may run may still be narrowed.
fn mask_gated(masked: &mut PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let selector = masked.node_selector.clone().unwrap_or_default();
    let is_kept = |(key, value): (&String, &String)| selector.get(key) == Some(value);
    if !old.node_selector.iter().flatten().all(is_kept) {
        let text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(Error::invalid(&path.child("nodeSelector"), meta::json(&selector), text));
    }
    masked.node_selector.clone_from(&old.node_selector);
    let old_affinity = old.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let new_affinity = masked.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    if old_affinity == new_affinity {
        return errors;
    }
    errors.extend(validate_narrower(new_affinity, old_affinity, &path.child("affinity.nodeAffinity")));
    let mut affinity = masked.affinity.clone().unwrap_or_default();
    affinity.node_affinity = old_affinity.cloned();
    let is_nothing = affinity == Default::default() && old.affinity.is_none();
    masked.affinity = (!is_nothing).then_some(affinity);
    errors
}

fn validate_narrower(new: Option<&NodeAffinity>, old: Option<&NodeAffinity>, path: &Path) -> Errors {
    let terms = |affinity: Option<&NodeAffinity>| {
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        required.map(|selector| selector.node_selector_terms.clone()).unwrap_or_default()
    };
    let (new, old) = (terms(new), terms(old));
    let at = path.child("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = if new.is_empty() { Value::Null } else { new.iter().map(shown).collect() };
        return vec![Error::invalid(&at, shown, text)];
    }
    let mut errors = Errors::new();
    for (i, (new, _)) in new.iter().zip(&old).enumerate().filter(|(_, (new, old))| !only_adds(new, old)) {
        let text = "only additions are allowed (no mutations or deletions)";
        errors.push(Error::invalid(&at.index(i), shown(new), text));
    }
    errors
}

// Upstream shows its own form of a term, with its own names.
fn shown(term: &NodeSelectorTerm) -> Value {
    let shown = |requirements: &Option<Vec<NodeSelectorRequirement>>| -> Option<Vec<Value>> {
        let show =
            |r: &NodeSelectorRequirement| json!({"Key": r.key, "Operator": r.operator, "Values": r.values});
        requirements.as_ref().map(|requirements| requirements.iter().map(show).collect())
    };
    json!({"MatchExpressions": shown(&term.match_expressions), "MatchFields": shown(&term.match_fields)})
}

// Requirements of one term are joined by AND: one more is narrower. A term without any matches nothing.
fn only_adds(new: &NodeSelectorTerm, old: &NodeSelectorTerm) -> bool {
    let expressions = (list(&new.match_expressions), list(&old.match_expressions));
    let fields = (list(&new.match_fields), list(&old.match_fields));
    let was_empty = expressions.1.is_empty() && fields.1.is_empty();
    let is_empty = expressions.0.is_empty() && fields.0.is_empty();
    (!was_empty || is_empty) && expressions.0.starts_with(expressions.1) && fields.0.starts_with(fields.1)
}

// The fields of a spec; an empty list is none at all.
fn fields(spec: &PodSpec) -> Value {
    let mut value = meta::json(spec);
    drop_empty_lists(&mut value);
    value
}

fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty_lists);
            fields.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// Upstream prints a difference of Go structs here; this is one of the JSON.
fn difference(old: &PodSpec, new: &PodSpec) -> String {
    let (old, new) = (fields(old), fields(new));
    let mut lines = Vec::new();
    let names = old.as_object().into_iter().chain(new.as_object()).flat_map(|fields| fields.keys());
    let names: BTreeSet<&String> = names.collect();
    for name in names {
        let (old, new) = (old.get(name), new.get(name));
        if old != new {
            lines.extend(old.map(|value| format!("- {name}: {value}\n")));
            lines.extend(new.map(|value| format!("+ {name}: {value}\n")));
        }
    }
    lines.concat()
}
