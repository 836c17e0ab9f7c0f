//! What there is to say about a pod that failed and a Job that has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use windlass_api::indexes::IndexSet;
use windlass_api::names::condition;

/// How a Job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// `Complete`, not `Failed`.
    pub is_complete: bool,
    /// The reason of the condition.
    pub reason: String,
    /// Its message.
    pub message: String,
}

impl End {
    /// `None` for a Job that has not ended.
    pub fn of(job: &Job) -> Option<Self> {
        let conditions = job.status.as_ref()?.conditions.as_deref()?;
        let ends = [condition::COMPLETE, condition::FAILED];
        let end = conditions.iter().find(|it| it.status == "True" && ends.contains(&it.type_.as_str()))?;
        Some(Self {
            is_complete: end.type_ == condition::COMPLETE,
            reason: end.reason.clone().unwrap_or_default(),
            message: end.message.clone().unwrap_or_default(),
        })
    }
}

/// What a Job has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `status.succeeded`.
    pub succeeded: u64,
    /// `status.failed`.
    pub failed: u64,
    /// `status.active`.
    pub active: u64,
    /// `status.terminating`.
    pub terminating: u64,
    /// Failed pods that a rule did not count.
    pub ignored: u64,
    /// `status.completedIndexes`.
    pub completed_indexes: String,
    /// `status.failedIndexes`.
    pub failed_indexes: String,
}

impl Counts {
    /// Takes over what the status says.
    pub fn update(&mut self, job: &Job) {
        let Some(status) = &job.status else { return };
        let count = |value: Option<i32>| u64::try_from(value.unwrap_or_default()).unwrap_or_default();
        self.succeeded = count(status.succeeded);
        self.failed = count(status.failed);
        self.active = count(status.active);
        self.terminating = count(status.terminating);
        self.completed_indexes = status.completed_indexes.clone().unwrap_or_default();
        self.failed_indexes = status.failed_indexes.clone().unwrap_or_default();
    }
}

/// What made a pod fail, of itself: its first container with an exit code, or the reason that was given to it.
pub fn failure_of(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = [&status.container_statuses, &status.init_container_statuses];
    let failed = containers.into_iter().flatten().flatten().find_map(exit_code);
    failed.or_else(|| status.reason.as_ref().map(|reason| format!("reason {reason}")))
}

/// Longer messages are cut: a line should stay one.
const MESSAGE_CHARS_MAX: usize = 200;

fn exit_code(container: &ContainerStatus) -> Option<String> {
    let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    // `Error` says no more than the exit code does.
    let reason = ended.reason.as_deref().filter(|reason| !matches!(*reason, "" | "Error"));
    let message = ended.message.as_deref().and_then(|message| message.trim().lines().next());
    let message = message.map(|message| message.chars().take(MESSAGE_CHARS_MAX).collect::<String>());
    let details: Vec<&str> = reason.into_iter().chain(message.as_deref()).collect();
    let mut text = format!("container {}: exit code {}", container.name, ended.exit_code);
    if !details.is_empty() {
        text.push_str(&format!(", {}", details.join(": ")));
    }
    Some(text)
}

/// Failed indexes that are explained one by one; the others are only listed.
const INDEXES_EXPLAINED: usize = 10;

/// A line for each failed index: which failure was its last.
pub fn of_failed_indexes(last: &BTreeMap<u32, String>, failed: &IndexSet) -> Vec<String> {
    let failed = last.iter().filter(|(index, _)| failed.contains(**index));
    failed.take(INDEXES_EXPLAINED).map(|(index, why)| format!("index {index} failed: {why}")).collect()
}

/// The last lines about a Job: why it ended, what caused it, and the counters.
pub fn lines(end: &End, causes: &[String], counts: &Counts, took: Duration) -> Vec<String> {
    let word = if end.is_complete { "Complete" } else { "Failed" };
    let mut lines = vec![format!("{word} ({}): {}", end.reason, end.message)];
    if !end.is_complete {
        lines.extend_from_slice(causes);
    }
    let Counts { succeeded, failed, ignored, completed_indexes, failed_indexes, .. } = counts;
    let mut totals = format!("{succeeded} succeeded, {failed} failed, {ignored} ignored");
    for (what, indexes) in [("completed", completed_indexes), ("failed", failed_indexes)] {
        if !indexes.is_empty() {
            totals.push_str(&format!("; {what} indexes {indexes}"));
        }
    }
    lines.push(format!("{totals}; took {:.1}s", took.as_secs_f64()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"status": status})).expect("a pod")
    }

    #[test]
    fn a_failed_pod_is_explained_by_its_first_failed_container_or_its_reason() {
        let ended =
            |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let cases = [
            (json!({"containerStatuses": [ended("a", 0), ended("b", 3)]}), Some("container b: exit code 3")),
            (json!({"initContainerStatuses": [ended("i", 1)]}), Some("container i: exit code 1")),
            (
                json!({"containerStatuses": [{"name": "a", "state": {"terminated": {
                    "exitCode": 128, "reason": "StartError", "message": "exec x: no such file\nmore",
                }}}]}),
                Some("container a: exit code 128, StartError: exec x: no such file"),
            ),
            (
                json!({"containerStatuses": [{"name": "a", "state": {"terminated": {
                    "exitCode": 1, "reason": "Error", "message": "",
                }}}]}),
                Some("container a: exit code 1"),
            ),
            (json!({"reason": "DeadlineExceeded"}), Some("reason DeadlineExceeded")),
            (json!({"containerStatuses": [ended("a", 0)]}), None),
        ];
        for (status, expected) in cases {
            assert_eq!(failure_of(&pod(status.clone())).as_deref(), expected, "{status}");
        }
    }

    #[test]
    fn the_last_lines_say_why_and_what_it_came_to() {
        let counts = Counts {
            succeeded: 3,
            failed: 2,
            ignored: 1,
            completed_indexes: "0-2".to_owned(),
            failed_indexes: "3".to_owned(),
            ..Counts::default()
        };
        let end = End { is_complete: false, reason: "FailedIndexes".to_owned(), message: "m".to_owned() };
        assert_eq!(
            lines(&end, &["because of 1 failed index".to_owned()], &counts, Duration::from_millis(1234)),
            [
                "Failed (FailedIndexes): m",
                "because of 1 failed index",
                "3 succeeded, 2 failed, 1 ignored; completed indexes 0-2; failed indexes 3; took 1.2s",
            ]
        );
    }
}
