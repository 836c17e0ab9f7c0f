//! What the Job controller tells people about a Job, as events.

use k8s_openapi::api::core::v1::ObjectReference;
use windlass_api::names;
use windlass_job::JobFacts;
use windlass_job::decision::Event;
use windlass_job::policy::failure::{Action, RuleMatch};

use crate::events::Report;

/// The Job as events refer to it.
pub(super) fn about(job: &JobFacts) -> ObjectReference {
    ObjectReference {
        api_version: Some(names::JOB_API_VERSION.to_owned()),
        kind: Some(names::JOB_KIND.to_owned()),
        namespace: Some(job.namespace.clone()),
        name: Some(job.name.clone()),
        uid: Some(job.uid.to_string()),
        resource_version: Some(job.resource_version.clone()),
        field_path: None,
    }
}

/// An event that was decided.
pub(super) fn decided(about: &ObjectReference, event: &Event) -> Report {
    Report {
        about: about.clone(),
        is_warning: event.is_warning,
        reason: event.reason.clone(),
        message: event.message.clone(),
    }
}

/// A rule of the failure policy decided about a pod. The pod is not named: what is said once holds for all like it.
pub(super) fn verdict(about: &ObjectReference, rule: &RuleMatch) -> Report {
    let (is_warning, reason, so) = match rule.action {
        Action::Ignore => (false, "PodFailureIgnored", "the failure does not count"),
        Action::Count => (false, "PodFailureCounted", "the failure counts"),
        Action::FailIndex => (true, "PodFailureFailsIndex", "the index fails"),
        Action::FailJob => (true, "PodFailureFailsJob", "the Job fails"),
    };
    let RuleMatch { rule, action_name, evidence, .. } = rule;
    let message =
        format!("A pod failed with {evidence}: rule {rule} ({action_name}) of the policy matches, {so}");
    Report { about: about.clone(), is_warning, reason: reason.to_owned(), message }
}

/// What happened to a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum PodEvent<'a> {
    Created(&'a str),
    CreateFailed(&'a str),
    Deleted(&'a str),
    DeleteFailed(&'a str),
}

/// The event for what happened to a pod.
pub(super) fn pod(about: &ObjectReference, event: PodEvent<'_>) -> Report {
    let (is_warning, reason, message) = match event {
        PodEvent::Created(name) => (false, "SuccessfulCreate", format!("Created pod: {name}")),
        PodEvent::CreateFailed(error) => (true, "FailedCreate", format!("Error creating: {error}")),
        PodEvent::Deleted(name) => (false, "SuccessfulDelete", format!("Deleted pod: {name}")),
        PodEvent::DeleteFailed(error) => (true, "FailedDelete", format!("Error deleting: {error}")),
    };
    Report { about: about.clone(), is_warning, reason: reason.to_owned(), message }
}
