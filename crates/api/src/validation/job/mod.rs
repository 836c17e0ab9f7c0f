//! The rules for a new Job.
//!
//! The order of errors is upstream's: metadata, the generated selector, the spec, the selector itself, and at last the
//! names of an Indexed Job's pods.

mod failure_policy;
mod limits;
mod selector;
mod success_policy;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use serde::Serialize;
use serde_json::Value;

use crate::Gates;
use crate::draft;
use crate::field::{Error, Errors, Path};
use crate::strategy::{self, DRAFT_FIELD};
use crate::validation::meta::{NOT_NEGATIVE, dns1123_label, dns1123_subdomain, json, validate_object_meta};
use crate::validation::pod::validate_pod_template;
use crate::view::{self, REPLACE_FAILED, REPLACE_TERMINATING_OR_FAILED};

const ON_FAILURE: &str = "OnFailure";
const NEVER: &str = "Never";

/// Rules that are softer for Jobs that were stored under softer rules.
pub(crate) struct Options {
    /// The template must carry the labels `batch.kubernetes.io/job-name` and `.../controller-uid`.
    pub(crate) requires_prefixed_labels: bool,
    /// The selector may hold label values that are none.
    pub(crate) allows_invalid_label_value: bool,
}

/// Checks a new Job, after defaults and strategy.
///
/// No rule depends on a gate: what a gate forbids is gone before validation, and what is left on an existing Job must
/// stay valid.
pub fn validate_create(job: &Job, _gates: &Gates) -> Errors {
    validate(job, &Options { requires_prefixed_labels: true, allows_invalid_label_value: false })
}

/// Checks the draft policy of a Job, which only its raw form holds; nothing while the gate is off.
pub fn validate_draft(raw: &Value, job: &Job, gates: &Gates) -> Errors {
    let Some(policy) = strategy::draft(raw).filter(|_| gates.retriable_and_non_retriable_failures) else {
        return Errors::new();
    };
    let spec = view::spec(job);
    let path = Path::new("spec").child(DRAFT_FIELD);
    let mut errors = draft::validate(policy, &view::container_names(spec), &path);
    if spec.pod_failure_policy.is_some() {
        errors.push(Error::forbidden(&path, "may not be specified together with podFailurePolicy"));
    }
    let at = Path::new("spec.template.spec.restartPolicy");
    if view::pod(spec).restart_policy.as_deref() == Some(ON_FAILURE) {
        errors.push(only_never(&at, DRAFT_FIELD));
    }
    errors
}

pub(crate) fn validate(job: &Job, options: &Options) -> Errors {
    let spec = view::spec(job);
    let mut errors = validate_object_meta(&job.metadata, &Path::new("metadata"), dns1123_subdomain);
    errors.extend(selector::validate_generated(job, options));
    errors.extend(validate_spec(spec, &Path::new("spec"), options));
    errors.extend(validate_pod_names(job));
    errors
}

pub(crate) fn validate_spec(spec: &JobSpec, path: &Path, options: &Options) -> Errors {
    let mut errors = validate_all_but_selector(spec, path);
    errors.extend(selector::validate(spec, path, options));
    errors
}

/// Checks the spec of the Jobs that another object makes (a CronJob): their selectors are always generated.
pub fn validate_template_spec(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = validate_all_but_selector(spec, path);
    if let Some(selector) = &spec.selector {
        let text = "`selector` will be auto-generated";
        errors.push(Error::invalid(&path.child("selector"), json(selector), text));
    }
    if spec.manual_selector == Some(true) {
        let error = Error::not_supported(&path.child("manualSelector"), "", &["nil", "false"]);
        errors.push(Error { value: Some(Value::Bool(true)), ..error });
    }
    errors
}

fn validate_all_but_selector(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = limits::validate(spec, path);
    errors.extend(failure_policy::validate(spec, &path.child("podFailurePolicy")));
    errors.extend(success_policy::validate(spec, &path.child("successPolicy")));
    errors.extend(validate_pod_replacement_policy(spec, &path.child("podReplacementPolicy")));
    errors.extend(validate_pod_template(&spec.template, &path.child("template")));
    errors.extend(validate_restart_policy(spec, &path.child("template.spec.restartPolicy")));
    errors
}

fn validate_pod_replacement_policy(spec: &JobSpec, path: &Path) -> Errors {
    // A failure policy can only judge pods that have ended.
    let supported: &[&str] = if spec.pod_failure_policy.is_some() {
        &[REPLACE_FAILED]
    } else {
        &[REPLACE_FAILED, REPLACE_TERMINATING_OR_FAILED]
    };
    match spec.pod_replacement_policy.as_deref() {
        Some(policy) if !supported.contains(&policy) => vec![Error::not_supported(path, policy, supported)],
        Some(_) | None => Errors::new(),
    }
}

fn validate_restart_policy(spec: &JobSpec, path: &Path) -> Errors {
    match view::pod(spec).restart_policy.as_deref().unwrap_or_default() {
        // `Always` is what the default makes of an absent policy.
        "" | "Always" => vec![Error::required(path, r#"valid values: "OnFailure", "Never""#)],
        NEVER => Errors::new(),
        ON_FAILURE if spec.pod_failure_policy.is_some() => vec![only_never(path, "podFailurePolicy")],
        ON_FAILURE => Errors::new(),
        unknown => vec![Error::not_supported(path, unknown, &[ON_FAILURE, NEVER])],
    }
}

fn only_never(path: &Path, field: &str) -> Error {
    Error::invalid(path, ON_FAILURE, format!("only {NEVER:?} is supported when {field} is specified"))
}

// The pods of an Indexed Job have its name and their index as host name, which must be a DNS label.
fn validate_pod_names(job: &Job) -> Errors {
    let spec = view::spec(job);
    let Some(completions) = spec.completions.filter(|&count| count > 0 && view::is_indexed(spec)) else {
        return Errors::new();
    };
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let longest = format!("{name}-{}", completions - 1);
    if dns1123_label(&longest).is_empty() {
        return Errors::new();
    }
    let text = format!("will not able to create pod with invalid DNS label: {longest}");
    vec![Error::invalid(&Path::new("metadata.name"), name, text)]
}

pub(crate) fn not_negative(value: Option<impl Into<i64>>, path: &Path) -> Errors {
    match value.map(Into::into) {
        Some(value) if value < 0 => vec![Error::invalid(path, value, NOT_NEGATIVE)],
        Some(_) | None => Errors::new(),
    }
}

/// A value that may be absent, as upstream prints it.
pub(crate) fn nullable<T: Serialize>(value: Option<&T>) -> Value {
    value.map_or(Value::Null, json)
}

/// A closed set in the form `["A" "B"]`.
fn quoted(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
