//! Which pods are a Job's own: the generated labels, the selector, and that the two fit.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use super::Options;
use crate::field::{Error, Errors, Path};
use crate::names::{
    CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL,
};
use crate::selector::{Selector, validate_label_selector};
use crate::validation::meta::json;
use crate::view;

/// Checks the labels and the selector that the strategy generates, which the user may have set otherwise.
pub(super) fn validate_generated(job: &Job, options: &Options) -> Errors {
    let spec = view::spec(job);
    if spec.manual_selector == Some(true) {
        return Errors::new();
    }
    // An absent selector is an error of its own.
    let Some(selector) = &spec.selector else { return Errors::new() };
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut errors = Errors::new();
    if uid.is_empty() {
        errors.push(Error::required(&Path::new("metadata.uid"), ""));
    }
    let mut expected = vec![(LEGACY_CONTROLLER_UID_LABEL, uid), (LEGACY_JOB_NAME_LABEL, name)];
    if options.requires_prefixed_labels {
        expected.extend([(CONTROLLER_UID_LABEL, uid), (JOB_NAME_LABEL, name)]);
    }
    for (key, value) in &expected {
        errors.extend(validate_label(spec, key, value));
    }
    let expected: BTreeMap<String, String> =
        expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    // A selector that is not one is an error of its own.
    if Selector::from_label_selector(selector).is_ok_and(|it| !it.matches(&expected)) {
        errors.push(Error::invalid(
            &Path::new("spec.selector"),
            json(selector),
            "`selector` not auto-generated",
        ));
    }
    errors
}

/// Checks the selector itself, and that it matches the pods of the template.
pub(super) fn validate(spec: &JobSpec, path: &Path, options: &Options) -> Errors {
    let at = path.child("selector");
    let mut errors = match &spec.selector {
        None => vec![Error::required(&at, "")],
        Some(selector) => validate_label_selector(selector, &at, options.allows_invalid_label_value),
    };
    let labels = view::template_labels(spec);
    let is_mismatch = Selector::from_optional(spec.selector.as_ref())
        .is_ok_and(|selector| !selector.matches(labels.unwrap_or(&BTreeMap::new())));
    if is_mismatch {
        let at = path.child("template.metadata.labels");
        errors.push(Error::invalid(&at, json(&labels), "`selector` does not match template `labels`"));
    }
    errors
}

fn validate_label(spec: &JobSpec, key: &str, expected: &str) -> Errors {
    let path = Path::new("spec.template.metadata.labels").key(key);
    let text = format!("must be '{expected}'");
    let labels = view::template_labels(spec);
    match labels.and_then(|labels| labels.get(key)) {
        None => vec![Error::required(&path, text)],
        Some(value) if value != expected => vec![Error::invalid(&path, json(&labels), text)],
        Some(_) => Errors::new(),
    }
}
