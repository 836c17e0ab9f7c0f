//! Numbers of a Job spec and how they go together, the completion mode, and who manages the Job.

use k8s_openapi::api::batch::v1::JobSpec;

use super::not_negative;
use crate::field::{Error, Errors, Path};
use crate::validation::meta::{dns1123_subdomain, each, pattern_text};
use crate::view::{HIGH_COMPLETIONS, HIGH_COMPLETIONS_PARALLELISM_MAX, INDEXED, NON_INDEXED};

const PARALLELISM_MAX: i32 = 100_000;
const FAILED_INDEXES_MAX: i32 = 100_000;
const HIGH_COMPLETIONS_FAILED_INDEXES_MAX: i32 = 10_000;
const MANAGED_BY_BYTES_MAX: usize = 63;

// The characters of a path in RFC 3986, as upstream's text shows them.
const URL_PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
const URL_PATH_PUNCTUATION: &str = "/-._~%!$&'()*+,;=:";

pub(super) fn validate(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = validate_not_negative(spec, path);
    if spec.max_failed_indexes.is_some() && spec.backoff_limit_per_index.is_none() {
        let at = path.child("backoffLimitPerIndex");
        errors.push(Error::required(&at, "when maxFailedIndexes is specified"));
    }
    if let Some(manager) = &spec.managed_by {
        errors.extend(validate_managed_by(manager, &path.child("managedBy")));
    }
    match spec.completion_mode.as_deref() {
        Some(INDEXED) => errors.extend(validate_indexed(spec, path)),
        Some(NON_INDEXED) | None => errors.extend(validate_not_indexed(spec, path)),
        Some(unknown) => {
            let at = path.child("completionMode");
            errors.push(Error::not_supported(&at, unknown, &[NON_INDEXED, INDEXED]));
        }
    }
    errors
}

fn validate_not_negative(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = not_negative(spec.parallelism, &path.child("parallelism"));
    errors.extend(not_negative(spec.completions, &path.child("completions")));
    errors.extend(not_negative(spec.active_deadline_seconds, &path.child("activeDeadlineSeconds")));
    errors.extend(not_negative(spec.backoff_limit, &path.child("backoffLimit")));
    errors.extend(not_negative(spec.ttl_seconds_after_finished, &path.child("ttlSecondsAfterFinished")));
    errors.extend(not_negative(spec.backoff_limit_per_index, &path.child("backoffLimitPerIndex")));
    errors.extend(not_negative(spec.max_failed_indexes, &path.child("maxFailedIndexes")));
    errors
}

fn validate_managed_by(manager: &str, path: &Path) -> Errors {
    let mut errors = validate_domain_prefixed_path(manager, path);
    if manager.len() > MANAGED_BY_BYTES_MAX {
        errors.push(Error::too_long(path, MANAGED_BY_BYTES_MAX));
    }
    errors
}

fn validate_domain_prefixed_path(value: &str, path: &Path) -> Errors {
    if value.is_empty() {
        return vec![Error::required(path, "")];
    }
    let parts = value.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty());
    let Some((domain, rest)) = parts else {
        let text = r#"must be a domain-prefixed path (such as "acme.io/foo")"#;
        return vec![Error::invalid(path, value, text)];
    };
    let mut errors = each(path, domain, dns1123_subdomain(domain));
    if !rest.chars().all(|c| c.is_ascii_alphanumeric() || URL_PATH_PUNCTUATION.contains(c)) {
        errors.push(Error::invalid(path, rest, pattern_text("Invalid path", URL_PATH, &[])));
    }
    errors
}

fn validate_indexed(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if spec.completions.is_none() {
        errors.push(Error::required(&path.child("completions"), "when completion mode is Indexed"));
    }
    let text = format!("must be less than or equal to {PARALLELISM_MAX} when completion mode is Indexed");
    errors.extend(at_most(spec.parallelism, PARALLELISM_MAX, &path.child("parallelism"), &text));
    let at = path.child("maxFailedIndexes");
    if let Some(completions) = spec.completions {
        let text = "must be less than or equal to completions";
        errors.extend(at_most(spec.max_failed_indexes, completions, &at, text));
    }
    let text = format!("must be less than or equal to {FAILED_INDEXES_MAX}");
    errors.extend(at_most(spec.max_failed_indexes, FAILED_INDEXES_MAX, &at, &text));
    if spec.completions.is_some_and(|it| it > HIGH_COMPLETIONS) && spec.backoff_limit_per_index.is_some() {
        errors.extend(validate_high_completions(spec, path));
    }
    errors
}

// The list of failed indexes must fit in the object.
fn validate_high_completions(spec: &JobSpec, path: &Path) -> Errors {
    let text = |max: i32| {
        format!(
            "must be less than or equal to {max} when completions are above {HIGH_COMPLETIONS} and used with \
             backoff limit per index"
        )
    };
    let at = path.child("maxFailedIndexes");
    let mut errors = Errors::new();
    if spec.max_failed_indexes.is_none() {
        let text = format!("must be specified when completions is above {HIGH_COMPLETIONS}");
        errors.push(Error::required(&at, text));
    }
    let max = HIGH_COMPLETIONS_PARALLELISM_MAX;
    errors.extend(at_most(spec.parallelism, max, &path.child("parallelism"), &text(max)));
    let max = HIGH_COMPLETIONS_FAILED_INDEXES_MAX;
    errors.extend(at_most(spec.max_failed_indexes, max, &at, &text(max)));
    errors
}

fn validate_not_indexed(spec: &JobSpec, path: &Path) -> Errors {
    let fields = [
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("maxFailedIndexes", spec.max_failed_indexes),
    ];
    let set = fields.into_iter().filter_map(|(name, value)| Some((path.child(name), value?)));
    set.map(|(at, value)| Error::invalid(&at, value, "requires indexed completion mode")).collect()
}

fn at_most(value: Option<i32>, max: i32, path: &Path, text: &str) -> Errors {
    value.filter(|&value| value > max).map(|value| Error::invalid(path, value, text)).into_iter().collect()
}
