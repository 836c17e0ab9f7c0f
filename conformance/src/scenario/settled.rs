//! Whether a Job's controller has nothing left to do, seen from outside.
//!
//! This is no model of the controller: it only says what must hold whenever nothing moves any more. Counts in the status
//! are those of the pods, nothing waits to be counted, and there are as many active pods as the spec wants.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::names::{
    BUILT_IN_CONTROLLER, COMPLETION_INDEX, TRACKING_FINALIZER, WINDLASS_CONTROLLER, condition,
};

use super::{list, number, text};

/// What matters of a pod.
struct Facts<'a> {
    pod: &'a Value,
    is_terminal: bool,
    is_deleted: bool,
    is_held: bool,
    index: Option<u64>,
}

impl<'a> Facts<'a> {
    fn of(pod: &'a Value) -> Self {
        let pointer = format!("/metadata/annotations/{}", COMPLETION_INDEX.replace('/', "~1"));
        Self {
            pod,
            is_terminal: is_terminal(pod),
            is_deleted: is_deleted(pod),
            is_held: is_held(pod),
            index: text(pod, &pointer).parse().ok(),
        }
    }

    fn is_active(&self) -> bool {
        !self.is_terminal && !self.is_deleted
    }

    fn is_terminating(&self) -> bool {
        !self.is_terminal && self.is_deleted
    }
}

/// The phase is `Succeeded` or `Failed`.
pub fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// It is being deleted.
pub fn is_deleted(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// It has the tracking finalizer.
pub fn is_held(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").iter().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

/// The status of a condition, if it is there.
pub fn condition_of<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = list(object, "/status/conditions").iter();
    conditions.filter(|c| text(c, "/type") == kind).map(|c| text(c, "/status")).next()
}

/// The Job is complete or has failed.
pub fn is_finished(job: &Value) -> bool {
    [condition::COMPLETE, condition::FAILED].iter().any(|kind| condition_of(job, kind) == Some("True"))
}

/// Somebody whom nobody here knows looks after the Job.
pub fn is_foreign(job: &Value) -> bool {
    !matches!(text(job, "/spec/managedBy"), "" | BUILT_IN_CONTROLLER | WINDLASS_CONTROLLER)
}

/// The Job is the controller of the pod.
pub fn owns(job: &Value, pod: &Value) -> bool {
    let uid = text(job, "/metadata/uid");
    list(pod, "/metadata/ownerReferences").iter().any(|owner| text(owner, "/uid") == uid)
}

/// Nothing holds the pod any more, and nobody waits for a kubelet: it will be gone at any moment.
fn is_leaving(pod: &Value) -> bool {
    let has_no_kubelet = is_terminal(pod) || text(pod, "/spec/nodeName").is_empty();
    is_deleted(pod) && has_no_kubelet && list(pod, "/metadata/finalizers").is_empty()
}

/// Nothing is left to do for the Job, or for the pods of a Job that is gone.
pub fn is_settled(job: Option<&Value>, pods: &[&Value]) -> bool {
    if pods.iter().any(|pod| is_leaving(pod)) {
        return false;
    }
    let Some(job) = job else { return !pods.iter().any(|pod| is_held(pod)) };
    if is_foreign(job) {
        return true;
    }
    let pods: Vec<Facts<'_>> = pods.iter().filter(|pod| owns(job, pod)).map(|pod| Facts::of(pod)).collect();
    if is_finished(job) {
        return pods.iter().all(|pod| pod.is_terminal && !pod.is_held);
    }
    gauges_are_right(job, &pods) && nothing_waits(job, &pods) && fleet_is_right(job, &pods)
}

fn gauges_are_right(job: &Value, pods: &[Facts<'_>]) -> bool {
    let count = |which: &dyn Fn(&Facts<'_>) -> bool| pods.iter().filter(|pod| which(pod)).count() as u64;
    let is_ready = |pod: &Facts<'_>| pod.is_active() && condition_of(pod.pod, "Ready") == Some("True");
    number(job, "/status/active") == count(&|pod| pod.is_active())
        && number(job, "/status/ready") == count(&is_ready)
        && job.pointer("/status/terminating").is_none_or(|told| {
            // Null: the feature that tells it is off.
            told.is_null() || told.as_u64() == Some(count(&|pod| pod.is_terminating()))
        })
        && list(job, "/status/uncountedTerminatedPods/succeeded").is_empty()
        && list(job, "/status/uncountedTerminatedPods/failed").is_empty()
}

fn is_ending(job: &Value) -> bool {
    let ends = [condition::FAILURE_TARGET, condition::SUCCESS_CRITERIA_MET];
    ends.iter().any(|kind| condition_of(job, kind) == Some("True"))
}

/// No pod that could be counted and let go is still held.
fn nothing_waits(job: &Value, pods: &[Facts<'_>]) -> bool {
    let mut held = pods.iter().filter(|pod| pod.is_held);
    if is_ending(job) || is_deleted(job) {
        return held.next().is_none();
    }
    held.all(|pod| !has_ended(job, pod) || is_kept_for_later(job, pods, pod))
}

fn has_ended(job: &Value, pod: &Facts<'_>) -> bool {
    pod.is_terminal || (pod.is_deleted && !replaces_only_failed(job))
}

/// A failed pod that holds the number of failures of its index, which has no other pod and can't have one now.
fn is_kept_for_later(job: &Value, pods: &[Facts<'_>], pod: &Facts<'_>) -> bool {
    job.pointer("/spec/backoffLimitPerIndex").is_some()
        && text(pod.pod, "/status/phase") != "Succeeded"
        && !pods.iter().any(|other| other.is_active() && other.index == pod.index)
}

fn replaces_only_failed(job: &Value) -> bool {
    text(job, "/spec/podReplacementPolicy") == "Failed" || job.pointer("/spec/podFailurePolicy").is_some()
}

fn fleet_is_right(job: &Value, pods: &[Facts<'_>]) -> bool {
    let active = pods.iter().filter(|pod| pod.is_active()).count() as u64;
    let terminating = pods.iter().filter(|pod| pod.is_terminating()).count() as u64;
    if is_ending(job) {
        return active == 0 && (terminating > 0 || cannot_end(job));
    }
    if is_deleted(job) {
        return true;
    }
    let suspended = condition_of(job, condition::SUSPENDED);
    if job.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        let has_work = job.pointer("/spec/completions").and_then(Value::as_u64) != Some(0);
        return active == 0 && suspended == Some("True") && has_work;
    }
    if suspended == Some("True") || text(job, "/status/startTime").is_empty() {
        return false;
    }
    let occupied = active + if replaces_only_failed(job) { terminating } else { 0 };
    // All are there, and it is not finished: it will be.
    let Some(wanted) = wanted(job, active) else { return false };
    active <= wanted && (occupied >= wanted || free_indexes(job, pods) == Some(0))
}

/// A suspended Job has no start, and without one it can't be declared failed. When it is resumed it gets one.
fn cannot_end(job: &Value) -> bool {
    condition_of(job, condition::FAILURE_TARGET) == Some("True")
        && text(job, "/status/startTime").is_empty()
        && job.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

/// How many pods there should be; `None` if the Job has all that it wanted.
fn wanted(job: &Value, active: u64) -> Option<u64> {
    let (parallelism, succeeded) = (number(job, "/spec/parallelism"), number(job, "/status/succeeded"));
    match job.pointer("/spec/completions").and_then(Value::as_u64) {
        None if succeeded > 0 => Some(active.max(1)),
        None => Some(parallelism),
        Some(completions) if completions <= succeeded => None,
        Some(completions) => Some(parallelism.min(completions - succeeded)),
    }
}

/// Indexes that could get a pod; `None` if the Job is not Indexed.
fn free_indexes(job: &Value, pods: &[Facts<'_>]) -> Option<u64> {
    if text(job, "/spec/completionMode") != "Indexed" {
        return None;
    }
    let completions = number(job, "/spec/completions");
    let mut taken = indexes(text(job, "/status/completedIndexes"));
    taken.append(&mut indexes(text(job, "/status/failedIndexes")));
    let holds = |pod: &&Facts<'_>| pod.is_active() || (pod.is_terminating() && replaces_only_failed(job));
    taken.extend(pods.iter().filter(holds).filter_map(|pod| pod.index));
    Some((0..completions).filter(|index| !taken.contains(index)).count() as u64)
}

fn indexes(text: &str) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for piece in text.split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            found.extend(first..=last);
        }
    }
    found
}
