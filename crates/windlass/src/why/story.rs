//! The story of a Job: its end, its verdicts in groups, and its counters.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;
use windlass_api::{Gates, names};
use windlass_job::history::{ANNOTATION, Entry, Evidence, Group, History, Meaning};
use windlass_job::pod_facts::Phase;
use windlass_job::policy::failure::Action;
use windlass_job::trace::PodOutcome;
use windlass_job::{JobFacts, PodFacts};

use crate::columns::aligned;
use crate::durations;

/// Everything that is known about the Job.
pub fn tell(job: &Value, pods: &[Pod]) -> Result<String, String> {
    let typed =
        Job::deserialize(job).map_err(|error| format!("read the Job: {error}\nhint: is it a Job?"))?;
    let draft = job["spec"].get("backoffPolicy").filter(|policy| !policy.is_null());
    let gates = Gates { retriable_and_non_retriable_failures: true, ..Gates::default() };
    let facts = JobFacts::from_job(&typed, draft, &gates);
    let kept = typed.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
    let mut history = kept.map(|text| History::parse(text)).unwrap_or_default();
    let pods: Vec<(&Pod, PodFacts)> = pods.iter().map(|pod| (pod, PodFacts::from_pod(pod, &facts))).collect();
    add_pods(&mut history, &pods, &facts, kept.is_some());
    let mut text = heading(&facts);
    let _ = write!(text, "\n{}", groups(&history, &facts));
    let _ = writeln!(text, "  {}", counters(&facts, &history, &pods));
    Ok(text)
}

/// Pods that the history does not have yet: all that have failed, or, where there is a history, those that are still held.
fn add_pods(history: &mut History, pods: &[(&Pod, PodFacts)], job: &JobFacts, is_kept: bool) {
    let mut failed: Vec<&(&Pod, PodFacts)> = pods
        .iter()
        .filter(|(_, pod)| pod.phase == Phase::Failed && (pod.has_finalizer || !is_kept))
        .collect();
    failed.sort_by_key(|(_, pod)| (pod.finished_at, pod.name.clone()));
    let mut counted = history.groups.iter().map(|group| group.failed.1).max().unwrap_or(0);
    for (pod, facts) in failed {
        let rule = facts.rule.as_deref().cloned();
        let outcome = match rule {
            Some(rule) if rule.action == Action::Ignore => PodOutcome::Ignored(rule),
            rule => PodOutcome::Counted(rule),
        };
        let before = counted;
        counted += u32::from(matches!(outcome, PodOutcome::Counted(_)));
        let evidence = Evidence::of_pod(pod);
        let entry = Entry {
            pod: &facts.name,
            index: facts.index.filter(|_| job.is_indexed()),
            outcome: &outcome,
            evidence: &evidence,
            failed: (before, counted),
            at: facts.finished_at,
        };
        history.note(&entry);
    }
}

fn heading(job: &JobFacts) -> String {
    let label = crate::manifest::label("job", &job.namespace, &job.name);
    let ends = [names::condition::FAILED, names::condition::COMPLETE];
    let interim = [
        names::condition::FAILURE_TARGET,
        names::condition::SUCCESS_CRITERIA_MET,
        names::condition::SUSPENDED,
    ];
    let found = ends.iter().chain(&interim).find_map(|kind| job.status.true_condition(kind));
    match found {
        Some(condition) => {
            let took = job
                .status
                .start_time
                .zip(condition.last_transition)
                .map(|(start, end)| end.duration_since(start));
            let took = took.map_or(String::new(), |span| {
                format!(" after {}", durations::text(span.max(SignedDuration::ZERO)))
            });
            format!(
                "{label}: {} ({}){took}\n  {}\n",
                condition.kind,
                condition.reason.as_deref().unwrap_or_default(),
                condition.message.as_deref().unwrap_or_default()
            )
        }
        None => format!("{label}: not finished\n"),
    }
}

fn groups(history: &History, job: &JobFacts) -> String {
    if history.groups.is_empty() {
        return "  No pod of it has failed.\n\n".to_owned();
    }
    let mut header = vec!["PODS", "VERDICT", "EVIDENCE", "NODES", "FAILED", "WHEN"];
    if job.is_indexed() {
        header.insert(3, "INDEXES");
    }
    let mut rows: Vec<Vec<String>> = vec![header.into_iter().map(str::to_owned).collect()];
    for group in &history.groups {
        let mut cells = vec![
            group.pods.to_string(),
            verdict(group),
            dash(&group.what),
            dash(&group.nodes.join(", ")),
            format!("{} → {}", group.failed.0, group.failed.1),
            when(group),
        ];
        if job.is_indexed() {
            cells.insert(3, dash(&group.indexes));
        }
        rows.push(cells);
    }
    let mut text = format!("{}\n", aligned(&rows));
    let words = |group: &&Group| group.message.is_some();
    for group in history.groups.iter().filter(words) {
        let message = group.message.as_deref().unwrap_or_default();
        let _ = writeln!(text, "  {}: {message}", group.pod);
    }
    if history.groups.iter().any(|group| group.message.is_some()) {
        text.push('\n');
    }
    text
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn verdict(group: &Group) -> String {
    let meaning = match group.meaning {
        Meaning::Counted => "counted",
        Meaning::Ignored => "not counted",
        Meaning::EndedWithJob => return "ended with the Job: counted".to_owned(),
    };
    group
        .rule
        .as_ref()
        .map_or_else(|| format!("no rule matches: {meaning}"), |rule| format!("{rule}: {meaning}"))
}

fn when(group: &Group) -> String {
    let time = |second: i64| Timestamp::from_second(second).map_or("-".to_owned(), |time| time.to_string());
    if group.first == group.last {
        time(group.first)
    } else {
        format!("{} to {}", time(group.first), time(group.last))
    }
}

fn counters(job: &JobFacts, history: &History, pods: &[(&Pod, PodFacts)]) -> String {
    let status = &job.status;
    let ignored: u32 =
        history.groups.iter().filter(|group| group.meaning == Meaning::Ignored).map(|group| group.pods).sum();
    let mut text = format!("{} succeeded, {} failed, {ignored} ignored", status.succeeded, status.failed);
    let sets = [("completed", Some(&status.completed_indexes)), ("failed", status.failed_indexes.as_ref())];
    for (what, set) in sets.into_iter().filter_map(|(what, set)| Some((what, set?))) {
        if !set.is_empty() {
            let _ = write!(text, "; {what} indexes {set}");
        }
    }
    let running = pods.iter().filter(|(_, pod)| pod.is_active()).count();
    if running > 0 {
        let _ = write!(text, "; {running} active");
    }
    let limit = match job.per_index {
        Some(limit) => format!("backoffLimitPerIndex {}", limit.backoff_limit),
        None => format!("backoffLimit {}", job.backoff_limit),
    };
    format!("{text}; {limit}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(annotations: Value) -> Value {
        json!({
            "metadata": {"name": "x", "namespace": "default", "uid": "u", "annotations": annotations},
            "spec": {
                "backoffLimit": 3, "completions": 2, "completionMode": "Indexed",
                "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]},
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}},
            },
            "status": {
                "startTime": "2026-01-01T00:00:00Z", "failed": 3, "succeeded": 1, "completedIndexes": "0",
                "conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "because",
                                "lastTransitionTime": "2026-01-01T00:01:30Z"}],
            },
        })
    }

    fn pod(name: &str, code: i32, is_held: bool) -> Pod {
        let finalizers = if is_held { json!(["batch.kubernetes.io/job-tracking"]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "finalizers": finalizers,
                         "annotations": {"batch.kubernetes.io/job-completion-index": "1"}},
            "spec": {"nodeName": "a", "containers": []},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {
                "exitCode": code, "finishedAt": "2026-01-01T00:00:10Z", "message": "no space left"}}}]},
        }))
        .expect("a pod")
    }

    #[test]
    fn pods_that_are_there_are_judged_now() {
        let pods = [pod("x-1-a", 1, false), pod("x-1-b", 42, true)];
        assert_eq!(
            tell(&job(json!({})), &pods).expect("told"),
            "job/x: Failed (PodFailurePolicy) after 1m30s\n  because\n\n\
             \x20 PODS   VERDICT                                                    EVIDENCE                       INDEXES   NODES   FAILED   WHEN\n\
             \x20 1      no rule matches: counted                                   container main: exit code 1    1         a       0 → 1    2026-01-01T00:00:10Z\n\
             \x20 1      rule 0 (FailJob) matches exit code 42 of container main: counted   container main: exit code 42   1         a       1 → 2    2026-01-01T00:00:10Z\n\n\
             \x20 x-1-a: no space left\n\x20 x-1-b: no space left\n\n\
             \x20 1 succeeded, 3 failed, 0 ignored; completed indexes 0; backoffLimit 3\n"
                .replace("VERDICT                                                    EVIDENCE", &format!("VERDICT{}EVIDENCE", " ".repeat(60)))
                .replace("counted                                   container main: exit code 1 ", &format!("counted{}container main: exit code 1 ", " ".repeat(43)))
        );
    }

    #[test]
    fn pods_that_are_gone_are_in_the_history_and_not_told_twice() {
        let mut history = History::default();
        let evidence = Evidence { what: "container main: exit code 1".to_owned(), message: None, node: None };
        let outcome = PodOutcome::Counted(None);
        let at = Timestamp::from_second(0).expect("a time");
        history.note(&Entry {
            pod: "x-1-a",
            index: Some(1),
            outcome: &outcome,
            evidence: &evidence,
            failed: (0, 1),
            at,
        });
        let text = tell(&job(json!({ANNOTATION: history.text()})), &[pod("x-1-a", 1, false)]).expect("told");
        assert_eq!(text.matches("no rule matches").count(), 1, "{text}");
        assert!(text.contains("  1      no rule matches: counted   container main: exit code 1   1         -       0 → 1    1970-01-01T00:00:00Z\n"), "{text}");
    }

    #[test]
    fn a_job_without_failures_says_so() {
        let mut fine = job(json!({}));
        fine["status"] = json!({"active": 1});
        let text = tell(&fine, &[]).expect("told");
        assert_eq!(
            text,
            "job/x: not finished\n\n  No pod of it has failed.\n\n  0 succeeded, 0 failed, 0 ignored; backoffLimit 3\n"
        );
    }
}
