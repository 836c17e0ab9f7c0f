//! A typed Job read as the API server reads it: structs that are absent are empty ones.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::PodSpec;

pub(crate) const INDEXED: &str = "Indexed";
pub(crate) const NON_INDEXED: &str = "NonIndexed";
pub(crate) const FAIL_INDEX: &str = "FailIndex";
pub(crate) const REPLACE_FAILED: &str = "Failed";
pub(crate) const REPLACE_TERMINATING_OR_FAILED: &str = "TerminatingOrFailed";

/// Above this many completions an Indexed Job with a back-off limit per index has tighter limits.
pub(crate) const HIGH_COMPLETIONS: i32 = 100_000;
/// The parallelism up to which a Job of [`HIGH_COMPLETIONS`] can be tracked whatever fails.
pub(crate) const HIGH_COMPLETIONS_PARALLELISM_MAX: i32 = 10_000;

static NO_SPEC: LazyLock<JobSpec> = LazyLock::new(JobSpec::default);
static NO_STATUS: LazyLock<JobStatus> = LazyLock::new(JobStatus::default);
static NO_POD: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);

pub(crate) fn spec(job: &Job) -> &JobSpec {
    job.spec.as_ref().unwrap_or(&NO_SPEC)
}

pub(crate) fn status(job: &Job) -> &JobStatus {
    job.status.as_ref().unwrap_or(&NO_STATUS)
}

/// The spec of the pods that the Job makes.
pub(crate) fn pod(spec: &JobSpec) -> &PodSpec {
    spec.template.spec.as_ref().unwrap_or(&NO_POD)
}

/// The names that a policy may call a container by: containers first, then init containers.
pub(crate) fn container_names(spec: &JobSpec) -> Vec<&str> {
    let pod = pod(spec);
    pod.containers.iter().chain(pod.init_containers.iter().flatten()).map(|it| it.name.as_str()).collect()
}

pub(crate) fn template_labels(spec: &JobSpec) -> Option<&BTreeMap<String, String>> {
    spec.template.metadata.as_ref()?.labels.as_ref()
}

pub(crate) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some(INDEXED)
}

pub(crate) fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend == Some(true)
}

/// Whether a condition of this type stands at `True`.
pub(crate) fn has_condition(status: &JobStatus, type_: &str) -> bool {
    status.conditions.iter().flatten().any(|it| it.type_ == type_ && it.status == "True")
}
