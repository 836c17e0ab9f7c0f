//! The rules for a new state of a Job: the rules for a new Job, and what may not change.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Affinity, Container, PodSpec, PodTemplateSpec};
use serde::Serialize;
use serde_json::Value;

use crate::Gates;
use crate::equality::same;
use crate::field::{Error, Errors, Path};
use crate::names::{CONTROLLER_UID_LABEL, JOB_NAME_LABEL, condition};
use crate::strategy::{self, DRAFT_FIELD};
use crate::validation::job::{self, Options, nullable};
use crate::validation::meta::{IMMUTABLE, json, label_value, validate_object_meta_update};
use crate::view;

/// Checks the new state of a Job against the old one, after defaults and strategy.
///
/// As upstream, the rules of the spec run twice, so their errors stand twice in the list; a message made of it prints
/// equal errors once. No rule depends on a gate (see [`job::validate_create`]).
pub fn validate_update(new: &Job, old: &Job, _gates: &Gates) -> Errors {
    let options = options_for(old);
    let path = Path::new("spec");
    let mut errors = job::validate(new, &options);
    errors.extend(validate_object_meta_update(&new.metadata, &old.metadata, &Path::new("metadata")));
    errors.extend(job::validate_spec(view::spec(new), &path, &options));
    errors.extend(validate_changes(new, old, &path));
    errors
}

/// Checks that the draft policy, which only the raw form of a Job holds, stays as it is.
pub fn validate_draft_update(new_raw: &Value, old_raw: &Value) -> Errors {
    let path = Path::new("spec").child(DRAFT_FIELD);
    validate_immutable(strategy::draft(new_raw), strategy::draft(old_raw), &path)
}

fn options_for(old: &Job) -> Options {
    let spec = view::spec(old);
    let had = |key: &str| view::template_labels(spec).is_some_and(|labels| labels.contains_key(key));
    let expressions =
        spec.selector.iter().flat_map(|selector| selector.match_expressions.as_deref().unwrap_or_default());
    let mut values = expressions.flat_map(|expression| expression.values.as_deref().unwrap_or_default());
    Options {
        requires_prefixed_labels: had(JOB_NAME_LABEL) && had(CONTROLLER_UID_LABEL),
        allows_invalid_label_value: values.any(|value| !label_value(value).is_empty()),
    }
}

fn validate_changes(new: &Job, old: &Job, path: &Path) -> Errors {
    let is_window_open = is_template_window_open(old);
    let (new, old) = (view::spec(new), view::spec(old));
    let mut errors = validate_completions(new, old, &path.child("completions"));
    errors.extend(validate_immutable(new.selector.as_ref(), old.selector.as_ref(), &path.child("selector")));
    errors.extend(validate_template(&new.template, &old.template, is_window_open, &path.child("template")));
    errors.extend(validate_immutable(
        new.completion_mode.as_ref(),
        old.completion_mode.as_ref(),
        &path.child("completionMode"),
    ));
    errors.extend(validate_immutable(
        new.pod_failure_policy.as_ref(),
        old.pod_failure_policy.as_ref(),
        &path.child("podFailurePolicy"),
    ));
    errors.extend(validate_immutable(
        new.backoff_limit_per_index.as_ref(),
        old.backoff_limit_per_index.as_ref(),
        &path.child("backoffLimitPerIndex"),
    ));
    errors.extend(validate_immutable(
        new.managed_by.as_ref(),
        old.managed_by.as_ref(),
        &path.child("managedBy"),
    ));
    errors.extend(validate_immutable(
        new.success_policy.as_ref(),
        old.success_policy.as_ref(),
        &path.child("successPolicy"),
    ));
    errors
}

fn validate_immutable<T: PartialEq + Serialize>(new: Option<&T>, old: Option<&T>, path: &Path) -> Errors {
    if same(&new, &old) { Errors::new() } else { vec![Error::invalid(path, nullable(new), IMMUTABLE)] }
}

// An Indexed Job is elastic: it may grow and shrink while all of its indexes run at once.
fn validate_completions(new: &JobSpec, old: &JobSpec, path: &Path) -> Errors {
    if !view::is_indexed(new) {
        return validate_immutable(new.completions.as_ref(), old.completions.as_ref(), path);
    }
    match new.completions {
        Some(completions) if new.completions != old.completions && new.completions != new.parallelism => {
            vec![Error::invalid(path, completions, "can only be modified in tandem with spec.parallelism")]
        }
        // Absent is an error of its own.
        Some(_) | None => Errors::new(),
    }
}

/// Whether a Job is suspended with nothing of it running, so that a queueing system may still place it.
fn is_template_window_open(old: &Job) -> bool {
    let status = view::status(old);
    view::is_suspended(view::spec(old))
        && (status.start_time.is_none() || view::has_condition(status, condition::SUSPENDED))
        && status.active.unwrap_or_default() == 0
}

fn validate_template(
    new: &PodTemplateSpec,
    old: &PodTemplateSpec,
    is_window_open: bool,
    path: &Path,
) -> Errors {
    if !is_window_open {
        return if same(new, old) { Errors::new() } else { vec![Error::invalid(path, json(new), IMMUTABLE)] };
    }
    // As upstream, an open window leaves the metadata of the template alone: all of it may change.
    let new = new.spec.clone().unwrap_or_default();
    let old = with_mutable_parts(old.spec.clone().unwrap_or_default(), &new);
    let path = path.child("spec");
    if same(&new, &old) { Errors::new() } else { vec![Error::invalid(&path, json(&new), IMMUTABLE)] }
}

/// The old pod spec with whatever may change taken from the new one.
fn with_mutable_parts(mut old: PodSpec, new: &PodSpec) -> PodSpec {
    old.affinity = with_node_affinity(old.affinity, new.affinity.as_ref());
    old.node_selector = new.node_selector.clone();
    old.tolerations = new.tolerations.clone();
    old.scheduling_gates = new.scheduling_gates.clone();
    copy_resources(&mut old.containers, &new.containers);
    let new_init = new.init_containers.as_deref().unwrap_or_default();
    copy_resources(old.init_containers.as_deref_mut().unwrap_or_default(), new_init);
    old
}

fn with_node_affinity(old: Option<Affinity>, new: Option<&Affinity>) -> Option<Affinity> {
    let node_affinity = new.and_then(|new| new.node_affinity.clone());
    match (old, new) {
        (None, None) => None,
        (Some(old), None) => {
            Some(Affinity { node_affinity, ..old }).filter(|rest| *rest != Affinity::default())
        }
        (old, Some(_)) => Some(Affinity { node_affinity, ..old.unwrap_or_default() }),
    }
}

fn copy_resources(old: &mut [Container], new: &[Container]) {
    for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old.name == new.name) {
        old.resources = new.resources.clone();
    }
}
