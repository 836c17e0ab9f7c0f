//! Rules for `podFailurePolicy`.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};

use super::quoted;
use crate::field::{Error, Errors, Path};
use crate::validation::meta::{each, json, qualified_name};
use crate::view::{self, FAIL_INDEX};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;

// In the order in which the errors show them.
const ACTIONS: [&str; 4] = ["Count", FAIL_INDEX, "FailJob", "Ignore"];
const IN: &str = "In";
const OPERATORS: [&str; 2] = [IN, "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Checks the policy, if there is one. A policy without rules is fine.
pub(super) fn validate(spec: &JobSpec, path: &Path) -> Errors {
    let Some(policy) = &spec.pod_failure_policy else { return Errors::new() };
    let path = path.child("rules");
    let mut errors = validate_count(policy.rules.len(), RULES_MAX, &path);
    for (i, rule) in policy.rules.iter().enumerate() {
        errors.extend(validate_rule(spec, rule, &path.index(i)));
    }
    errors
}

fn validate_rule(spec: &JobSpec, rule: &PodFailurePolicyRule, path: &Path) -> Errors {
    let at = path.child("action");
    let mut errors = match rule.action.as_str() {
        FAIL_INDEX if spec.backoff_limit_per_index.is_none() => {
            vec![Error::invalid(&at, FAIL_INDEX, "requires the backoffLimitPerIndex to be set")]
        }
        action => validate_choice(action, &ACTIONS, &at),
    };
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    if let Some(requirement) = &rule.on_exit_codes {
        let names = view::container_names(spec);
        errors.extend(validate_exit_codes(requirement, &names, &path.child("onExitCodes")));
    }
    errors.extend(validate_patterns(patterns, &path.child("onPodConditions")));
    match (rule.on_exit_codes.is_some(), !patterns.is_empty()) {
        (true, true) => errors.push(Error::invalid_omitted(
            path,
            "specifying both OnExitCodes and OnPodConditions is not supported",
        )),
        (false, false) => errors.push(Error::invalid_omitted(
            path,
            "specifying one of OnExitCodes and OnPodConditions is required",
        )),
        (true, false) | (false, true) => {}
    }
    errors
}

fn validate_exit_codes(
    requirement: &PodFailurePolicyOnExitCodesRequirement,
    containers: &[&str],
    path: &Path,
) -> Errors {
    let mut errors = validate_choice(&requirement.operator, &OPERATORS, &path.child("operator"));
    if let Some(name) = requirement.container_name.as_deref().filter(|name| !containers.contains(name)) {
        errors.push(Error::invalid(
            &path.child("containerName"),
            name,
            "must be one of the container or initContainer names in the pod template",
        ));
    }
    let path = path.child("values");
    let values = &requirement.values;
    if values.is_empty() {
        errors.push(Error::invalid(&path, json(values), "at least one value is required"));
    }
    errors.extend(validate_count(values.len(), EXIT_CODES_MAX, &path));
    let mut seen = BTreeSet::new();
    for (i, &value) in values.iter().enumerate() {
        if value == 0 && requirement.operator == IN {
            errors.push(Error::invalid(&path.index(i), value, "must not be 0 for the In operator"));
        }
        if !seen.insert(value) {
            errors.push(Error::duplicate(&path.index(i), value));
        }
    }
    if !values.is_sorted() {
        errors.push(Error::invalid(&path, json(values), "must be ordered"));
    }
    errors
}

fn validate_patterns(patterns: &[PodFailurePolicyOnPodConditionsPattern], path: &Path) -> Errors {
    let mut errors = validate_count(patterns.len(), PATTERNS_MAX, path);
    for (i, pattern) in patterns.iter().enumerate() {
        let path = path.index(i);
        errors.extend(each(&path.child("type"), &pattern.type_, qualified_name(&pattern.type_)));
        let status = pattern.status.as_deref().unwrap_or_default();
        errors.extend(validate_choice(status, &STATUSES, &path.child("status")));
    }
    errors
}

fn validate_choice(value: &str, supported: &[&str], path: &Path) -> Errors {
    match value {
        "" => vec![Error::required(path, format!("valid values: {}", quoted(supported)))],
        known if supported.contains(&known) => Errors::new(),
        unknown => vec![Error::not_supported(path, unknown, supported)],
    }
}

fn validate_count(count: usize, max: usize, path: &Path) -> Errors {
    if count > max { vec![Error::too_many(path, count, max)] } else { Errors::new() }
}
