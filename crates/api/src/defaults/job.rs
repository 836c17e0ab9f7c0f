//! The defaults of a Job. They are filled in on every decode: of requests and of what the store holds.

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use crate::Gates;
use crate::defaults::pod::default_pod_template;
use crate::view::{NON_INDEXED, REPLACE_FAILED, REPLACE_TERMINATING_OR_FAILED};

const BACKOFF_LIMIT: i32 = 6;

/// Fills in what a user left out, with all gates at their defaults.
pub fn apply(job: &mut Job) {
    apply_with(job, &Gates::default());
}

/// Fills in what a user left out. A field whose gate is off gets no default, and gives none to others: otherwise a
/// discarded `podReplacementPolicy` would be back at the next decode and look like one in use.
pub fn apply_with(job: &mut Job, gates: &Gates) {
    let spec = job.spec.get_or_insert_default();
    default_counts(spec, gates);
    spec.completion_mode.get_or_insert_with(|| NON_INDEXED.to_owned());
    spec.suspend.get_or_insert(false);
    spec.manual_selector.get_or_insert(false);
    if gates.job_pod_replacement_policy {
        default_pod_replacement_policy(spec);
    }
    default_condition_patterns(spec);
    default_pod_template(&mut spec.template);
    inherit_labels(job);
}

fn default_counts(spec: &mut JobSpec, gates: &Gates) {
    // Only completions absent is a work queue, which ends when its pods say so: it stays absent.
    if spec.parallelism.is_none() {
        spec.completions.get_or_insert(1);
        spec.parallelism = Some(1);
    }
    let has_limit_per_index = gates.job_backoff_limit_per_index && spec.backoff_limit_per_index.is_some();
    spec.backoff_limit.get_or_insert(if has_limit_per_index { i32::MAX } else { BACKOFF_LIMIT });
}

fn default_pod_replacement_policy(spec: &mut JobSpec) {
    let policy =
        if spec.pod_failure_policy.is_some() { REPLACE_FAILED } else { REPLACE_TERMINATING_OR_FAILED };
    spec.pod_replacement_policy.get_or_insert_with(|| policy.to_owned());
}

fn default_condition_patterns(spec: &mut JobSpec) {
    let rules = spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for pattern in rules.flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        if pattern.status.as_deref().unwrap_or_default().is_empty() {
            pattern.status = Some("True".to_owned());
        }
    }
}

/// A Job without labels takes those of its pods.
pub(crate) fn inherit_labels(job: &mut Job) {
    if !has_labels(job) {
        let inherited = job.spec.as_ref().and_then(crate::view::template_labels).cloned();
        job.metadata.labels = inherited.or(job.metadata.labels.take());
    }
}

pub(crate) fn has_labels(job: &Job) -> bool {
    job.metadata.labels.as_ref().is_some_and(|labels| !labels.is_empty())
}
