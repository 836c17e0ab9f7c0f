//! What the API server does to a Job between decoding and validation: generated selectors, resets, generations, and
//! fields of features that are switched off.

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use serde_json::Value;

use crate::Gates;
use crate::defaults::job::{apply_with, has_labels, inherit_labels};
use crate::equality::same;
use crate::names::{
    CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL,
};
use crate::view::{FAIL_INDEX, spec};

/// The field of the first draft of the failure policy. The typed Job does not know it.
pub(crate) const DRAFT_FIELD: &str = "backoffPolicy";

/// What a DELETE does with the pods when it does not say.
pub const DEFAULT_PROPAGATION_POLICY: &str = "Orphan";

/// The fields of a Job that a field selector may name, with their values.
pub fn selectable_fields(job: &Job) -> [(&'static str, String); 3] {
    let succeeded = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
    [
        ("metadata.name", job.metadata.name.clone().unwrap_or_default()),
        ("metadata.namespace", job.metadata.namespace.clone().unwrap_or_default()),
        ("status.successful", succeeded.to_string()),
    ]
}

/// Refuses a field that a selector may not name, with upstream's text.
pub fn check_field_label(label: &str) -> Result<(), String> {
    match label {
        "metadata.name" | "metadata.namespace" | "status.successful" => Ok(()),
        unknown => Err(format!("field label {unknown:?} not supported for Job")),
    }
}

/// Defaults and then prepares a new Job; its UID and name are set.
///
/// Upstream lets a Job without labels share the map of its template's labels, so that the generated labels stand on
/// both. Only this function knows which labels were inherited: after [`apply_with`] they look like the user's own.
pub fn default_and_prepare_for_create(job: &mut Job, gates: &Gates) {
    let shares_labels = !has_labels(job);
    apply_with(job, gates);
    prepare_for_create(job, gates);
    if shares_labels {
        job.metadata.labels = None;
        inherit_labels(job);
    }
}

/// Prepares a new Job that has its defaults, its UID and its name.
pub fn prepare_for_create(job: &mut Job, gates: &Gates) {
    if spec(job).manual_selector != Some(true) {
        generate_selector(job);
    }
    job.status = Some(JobStatus::default());
    job.metadata.generation = Some(1);
    let spec = job.spec.get_or_insert_default();
    drop_disabled(spec, None, gates);
    if !gates.job_backoff_limit_per_index {
        drop_fail_index_rules(spec);
    }
    inherit_labels(job);
}

/// Prepares the new state of a Job: the status stays, and a changed spec is a new generation.
pub fn prepare_for_update(new: &mut Job, old: &Job, gates: &Gates) {
    new.status = old.status.clone();
    // Rules with FailIndex stay, because the policy of an existing Job may not change.
    drop_disabled(new.spec.get_or_insert_default(), Some(spec(old)), gates);
    let generation = old.metadata.generation;
    let is_changed = !same(spec(new), spec(old));
    new.metadata.generation = if is_changed { Some(generation.unwrap_or_default() + 1) } else { generation };
}

/// Prepares the new status of a Job: the spec stays; labels and annotations may change.
pub fn prepare_for_status_update(new: &mut Job, old: &Job) {
    new.spec = old.spec.clone();
    new.metadata.generation = old.metadata.generation;
}

/// Removes the draft policy when its gate is off, unless the stored Job already has one.
pub fn drop_disabled_draft(new_raw: &mut Value, old_raw: Option<&Value>, gates: &Gates) {
    if gates.retriable_and_non_retriable_failures || old_raw.is_some_and(|old| draft(old).is_some()) {
        return;
    }
    if let Some(spec) = new_raw.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove(DRAFT_FIELD);
    }
}

/// The draft policy of a raw Job, if it has one.
pub(crate) fn draft(raw: &Value) -> Option<&Value> {
    raw.get("spec")?.get(DRAFT_FIELD).filter(|policy| !policy.is_null())
}

// Labels that a user set stay, and are refused by validation when they are wrong.
fn generate_selector(job: &mut Job) {
    let name = job.metadata.name.clone().unwrap_or_default();
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let spec = job.spec.get_or_insert_default();
    let labels = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    for key in [LEGACY_JOB_NAME_LABEL, JOB_NAME_LABEL] {
        labels.entry(key.to_owned()).or_insert_with(|| name.clone());
    }
    for key in [LEGACY_CONTROLLER_UID_LABEL, CONTROLLER_UID_LABEL] {
        labels.entry(key.to_owned()).or_insert_with(|| uid.clone());
    }
    let selected = spec.selector.get_or_insert_default().match_labels.get_or_insert_default();
    selected.entry(CONTROLLER_UID_LABEL.to_owned()).or_insert(uid);
}

fn drop_disabled(new: &mut JobSpec, old: Option<&JobSpec>, gates: &Gates) {
    let is_unused = |uses: fn(&JobSpec) -> bool| !old.is_some_and(uses);
    if !gates.job_pod_failure_policy && is_unused(|old| old.pod_failure_policy.is_some()) {
        new.pod_failure_policy = None;
    }
    if !gates.job_backoff_limit_per_index {
        if is_unused(|old| old.backoff_limit_per_index.is_some()) {
            new.backoff_limit_per_index = None;
        }
        if is_unused(|old| old.max_failed_indexes.is_some()) {
            new.max_failed_indexes = None;
        }
    }
    if !gates.job_pod_replacement_policy && is_unused(|old| old.pod_replacement_policy.is_some()) {
        new.pod_replacement_policy = None;
    }
}

fn drop_fail_index_rules(spec: &mut JobSpec) {
    if let Some(policy) = &mut spec.pod_failure_policy {
        policy.rules.retain(|rule| rule.action != FAIL_INDEX);
    }
}
