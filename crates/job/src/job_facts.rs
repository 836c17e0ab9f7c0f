//! A Job as a decision sees it: the spec with its gates applied, and the status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use windlass_api::indexes::IndexSet;
use windlass_api::selector::Selector;
use windlass_api::{Gates, draft, names};

use crate::pod_names::PodNames;
use crate::policy::failure::FailurePolicy;
use crate::policy::success::SuccessRule;
use crate::uid::Uid;

/// How completions are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Any pod is as good as any other.
    NonIndexed,
    /// Each index from 0 to completions − 1 needs one success.
    Indexed,
    /// A mode that this version does not know: hands off.
    Unknown,
}

/// When a pod is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceWhen {
    /// As soon as it is being deleted or has failed.
    TerminatingOrFailed,
    /// Only when it has fully stopped.
    Failed,
}

/// `backoffLimitPerIndex` and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerIndex {
    /// Counted failures that an index may have and still be retried.
    pub backoff_limit: u32,
    /// Failed indexes that the Job may have and still go on.
    pub max_failed_indexes: Option<u32>,
}

/// Everything about a Job that a decision may look at.
#[derive(Clone, Debug)]
pub struct JobFacts {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`: the precondition of status writes.
    pub resource_version: String,
    /// The same as a number: which of two views of this Job is newer.
    pub revision: u64,
    /// Has `metadata.deletionTimestamp`.
    pub is_deleted: bool,
    /// `spec.managedBy`.
    pub managed_by: Option<String>,
    /// `spec.completionMode`.
    pub mode: Mode,
    /// `spec.parallelism`.
    pub parallelism: u32,
    /// `spec.completions`; `None` is a work queue.
    pub completions: Option<u32>,
    /// `spec.backoffLimit`.
    pub backoff_limit: u32,
    /// `spec.backoffLimitPerIndex`, if the gate is on.
    pub per_index: Option<PerIndex>,
    /// `spec.activeDeadlineSeconds`.
    pub active_deadline: Option<SignedDuration>,
    /// `spec.suspend`.
    pub is_suspended: bool,
    /// The template's `restartPolicy` is `OnFailure`.
    pub restarts_in_place: bool,
    /// `spec.podFailurePolicy`, or the draft's `spec.backoffPolicy`, as far as their gates are on.
    pub failure_policy: Option<FailurePolicy>,
    /// `spec.successPolicy.rules`.
    pub success_rules: Vec<SuccessRule>,
    /// When to replace pods, after `podReplacementPolicy`, `podFailurePolicy` and the gates.
    pub replace_when: ReplaceWhen,
    /// `spec.podReplacementPolicy` is `Failed`: only a label of a metric.
    pub replacement_policy_is_failed: bool,
    /// `status.terminating` is kept (gate `JobPodReplacementPolicy`).
    pub tracks_terminating: bool,
    /// `spec.selector`; `None` when it can't be read: then nothing matches.
    pub selector: Option<Selector>,
    /// What this Job's pods are called.
    pub pod_names: PodNames,
    /// The status, with index sets clamped to the present completions.
    pub status: Status,
    /// The stored index texts say what `status` says. A scale-down or a foreign writer can leave them otherwise.
    pub index_texts_are_current: bool,
}

/// `status` of a Job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// When the Job was first seen unsuspended.
    pub start_time: Option<Timestamp>,
    /// When the Job was completed; never for a failed one.
    pub completion_time: Option<Timestamp>,
    /// Pods that are neither finished nor being deleted.
    pub active: u32,
    /// Active pods that are ready.
    pub ready: Option<u32>,
    /// Pods that are being deleted and have not stopped.
    pub terminating: Option<u32>,
    /// Succeeded pods, or completed indexes.
    pub succeeded: u32,
    /// Failed pods.
    pub failed: u32,
    /// Indexes that have succeeded.
    pub completed_indexes: IndexSet,
    /// Indexes that have failed for good; `None` without `backoffLimitPerIndex`.
    pub failed_indexes: Option<IndexSet>,
    /// Finished pods that hold their finalizer and are not in the counters yet; `None` before the first write.
    pub uncounted: Option<Uncounted>,
    /// Conditions, also those of others.
    pub conditions: Vec<Condition>,
}

/// Pods on their way into the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    /// Succeeded pods.
    pub succeeded: Vec<Uid>,
    /// Failed pods.
    pub failed: Vec<Uid>,
}

impl Uncounted {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One condition of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `type`, for example `FailureTarget`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Machine-readable reason.
    pub reason: Option<String>,
    /// Text for people.
    pub message: Option<String>,
    /// When it was last looked at.
    pub last_probe: Option<Timestamp>,
    /// When `status` last changed.
    pub last_transition: Option<Timestamp>,
}

impl Condition {
    /// A condition that becomes true now.
    pub fn now_true(kind: &str, reason: &str, message: &str, now: Timestamp) -> Self {
        Self::new(kind, true, reason, message, now)
    }

    /// A condition that takes this status now.
    pub fn new(kind: &str, is_true: bool, reason: &str, message: &str, now: Timestamp) -> Self {
        Self {
            kind: kind.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe: Some(now),
            last_transition: Some(now),
        }
    }

    /// `status` is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

impl Status {
    /// The condition of this type, if it is true.
    pub fn true_condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind && c.is_true())
    }

    /// `Complete` or `Failed`: nothing will change any more.
    pub fn is_finished(&self) -> bool {
        self.true_condition(names::condition::COMPLETE).is_some()
            || self.true_condition(names::condition::FAILED).is_some()
    }

    /// The index has failed for good.
    pub fn has_failed_index(&self, index: u32) -> bool {
        self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index))
    }

    /// No pod was counted, nor is one on its way into the counters.
    pub(crate) fn counts_none(&self) -> bool {
        (self.succeeded, self.failed) == (0, 0)
            && self.completed_indexes.is_empty()
            && self.uncounted.as_ref().is_none_or(Uncounted::is_empty)
    }

    /// Sets a condition in place, or appends it. Says whether anything changed; a condition that says the same
    /// already keeps its times.
    pub fn set_condition(&mut self, condition: Condition) -> bool {
        match self.conditions.iter_mut().find(|c| c.kind == condition.kind) {
            Some(old)
                if (&old.status, &old.reason, &old.message)
                    == (&condition.status, &condition.reason, &condition.message) =>
            {
                false
            }
            Some(old) => {
                *old = condition;
                true
            }
            // A False condition is never appended: a Job that was never suspended has no Suspended condition.
            None if !condition.is_true() => false,
            None => {
                self.conditions.push(condition);
                true
            }
        }
    }
}

impl JobFacts {
    /// The facts of `job`, with gates applied. `draft` is the raw `spec.backoffPolicy`, which typed Jobs do not have.
    pub fn from_job(job: &Job, draft: Option<&Value>, gates: &Gates) -> Self {
        let spec = job.spec.as_ref();
        let meta = &job.metadata;
        let uid = Uid::new(meta.uid.as_deref().unwrap_or_default());
        let name = meta.name.clone().unwrap_or_default();
        let completions = spec.and_then(|s| s.completions).map(clamp);
        let mode = mode(spec.and_then(|s| s.completion_mode.as_deref()));
        let per_index = per_index(job, gates);
        let failure_policy = failure_policy(job, draft, gates);
        let (status, index_texts_are_current) = status(job.status.as_ref(), &mode, completions, per_index);
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            revision: revision(meta.resource_version.as_deref().unwrap_or_default()),
            is_deleted: meta.deletion_timestamp.is_some(),
            managed_by: spec.and_then(|s| s.managed_by.clone()),
            parallelism: spec.and_then(|s| s.parallelism).map_or(1, clamp),
            backoff_limit: spec.and_then(|s| s.backoff_limit).map_or(6, clamp),
            active_deadline: spec.and_then(|s| s.active_deadline_seconds).map(SignedDuration::from_secs),
            is_suspended: spec.and_then(|s| s.suspend).unwrap_or(false),
            restarts_in_place: restart_policy(job) == Some("OnFailure"),
            success_rules: spec.and_then(|s| s.success_policy.as_ref()).map_or_else(Vec::new, |p| {
                p.rules.iter().map(|r| SuccessRule::new(r, completions)).collect()
            }),
            replace_when: replace_when(job, failure_policy.is_some(), gates),
            replacement_policy_is_failed: asks_for_failed(job),
            tracks_terminating: gates.job_pod_replacement_policy,
            selector: spec
                .and_then(|s| s.selector.as_ref())
                .and_then(|selector| Selector::from_label_selector(selector).ok()),
            pod_names: PodNames::new(&name, &uid),
            uid,
            name,
            mode,
            completions,
            per_index,
            failure_policy,
            status,
            index_texts_are_current,
        }
    }

    /// The Job is Indexed.
    pub fn is_indexed(&self) -> bool {
        self.mode == Mode::Indexed
    }

    /// `index` is one of this Job's.
    pub fn has_index(&self, index: Option<u32>) -> bool {
        index.is_some_and(|index| self.completions.is_some_and(|completions| index < completions))
    }

    /// A pod is replaced, and counted, only when it has fully stopped.
    pub fn only_replaces_failed(&self) -> bool {
        self.replace_when == ReplaceWhen::Failed
    }
}

fn restart_policy(job: &Job) -> Option<&str> {
    job.spec.as_ref()?.template.spec.as_ref()?.restart_policy.as_deref()
}

fn mode(text: Option<&str>) -> Mode {
    match text {
        None | Some("NonIndexed") => Mode::NonIndexed,
        Some("Indexed") => Mode::Indexed,
        Some(_) => Mode::Unknown,
    }
}

fn per_index(job: &Job, gates: &Gates) -> Option<PerIndex> {
    let spec = job.spec.as_ref()?;
    let backoff_limit = clamp(spec.backoff_limit_per_index.filter(|_| gates.job_backoff_limit_per_index)?);
    Some(PerIndex { backoff_limit, max_failed_indexes: spec.max_failed_indexes.map(clamp) })
}

fn failure_policy(job: &Job, draft: Option<&Value>, gates: &Gates) -> Option<FailurePolicy> {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    if let Some(policy) = policy.filter(|_| gates.job_pod_failure_policy) {
        return Some(FailurePolicy::new(policy, gates.job_backoff_limit_per_index));
    }
    let draft = draft.filter(|_| gates.retriable_and_non_retriable_failures)?;
    draft::Policy::from_value(draft).ok().map(FailurePolicy::from_draft)
}

fn asks_for_failed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.pod_replacement_policy.as_deref()) == Some("Failed")
}

/// A failure policy needs the pod's final state, so it implies waiting for it, unless neither gate that makes the node
/// write a final phase is on (KEP-3939, "Pods are not guaranteed to transition to a terminal phase").
fn replace_when(job: &Job, has_failure_policy: bool, gates: &Gates) -> ReplaceWhen {
    let asked = gates.job_pod_replacement_policy && asks_for_failed(job);
    let phases_are_final = gates.deleted_pods_end();
    if asked || (has_failure_policy && phases_are_final) {
        ReplaceWhen::Failed
    } else {
        ReplaceWhen::TerminatingOrFailed
    }
}

fn status(
    status: Option<&JobStatus>,
    mode: &Mode,
    completions: Option<u32>,
    per_index: Option<PerIndex>,
) -> (Status, bool) {
    let Some(status) = status else { return (Status::default(), true) };
    let completed_text = status.completed_indexes.as_deref().unwrap_or_default();
    let failed_text = status.failed_indexes.as_deref();
    let limit = completions.and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    let is_indexed = *mode == Mode::Indexed;
    let parse = |text: &str| if is_indexed { IndexSet::parse_lenient(text, limit) } else { IndexSet::new() };
    let completed = parse(completed_text);
    let failed = failed_text.map(parse);
    // Without a per-index limit an Indexed Job's failedIndexes is null, whatever is stored (the gate was switched off).
    let failed = if per_index.is_some() || !is_indexed { failed } else { None };
    let texts_are_current = !is_indexed
        || (completed.to_string() == completed_text
            && failed.as_ref().map(ToString::to_string).as_deref() == failed_text);
    let facts = Status {
        start_time: status.start_time.as_ref().map(|t| t.0),
        completion_time: status.completion_time.as_ref().map(|t| t.0),
        active: status.active.map_or(0, clamp),
        ready: status.ready.map(clamp),
        terminating: status.terminating.map(clamp),
        succeeded: status.succeeded.map_or(0, clamp),
        failed: status.failed.map_or(0, clamp),
        completed_indexes: completed,
        failed_indexes: failed,
        uncounted: status.uncounted_terminated_pods.as_ref().map(|pods| Uncounted {
            succeeded: pods.succeeded.iter().flatten().map(|uid| Uid::new(uid)).collect(),
            failed: pods.failed.iter().flatten().map(|uid| Uid::new(uid)).collect(),
        }),
        conditions: status.conditions.iter().flatten().map(condition).collect(),
    };
    (facts, texts_are_current)
}

fn condition(condition: &JobCondition) -> Condition {
    let time = |time: &Option<Time>| time.as_ref().map(|t| t.0);
    Condition {
        kind: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_probe: time(&condition.last_probe_time),
        last_transition: time(&condition.last_transition_time),
    }
}

/// Resource versions are numbers that grow, on every server we know; one that is not counts as oldest.
pub(crate) fn revision(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

/// Validation keeps negative numbers out; a stored one counts as nothing.
fn clamp(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
