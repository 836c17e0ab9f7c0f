//! The user stories of the five documents that Jobs were designed after, each to its end.

mod common;

use common::{Bench, JobBuilder, conditions, job, on_condition, on_exit, rfc3339};
use serde_json::{Value, json};

const BACKOFF: (&str, &str) = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const REACHED: (&str, &str) = ("CompletionsReached", "Reached expected number of succeeded pods");
const FAILED_INDEXES: (&str, &str) = ("FailedIndexes", "Job has failed indexes");

/// The status of a failed Job of which nothing runs any more.
fn failed(why: (&str, &str), seconds: i64, rest: Value) -> Value {
    let mut status = json!({
        "startTime": rfc3339(0), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
        "conditions": conditions(&["FailureTarget", "Failed"], why.0, why.1, seconds),
    });
    common::merge(&mut status, &rest);
    status
}

/// The status of a complete Job.
fn complete(why: (&str, &str), seconds: i64, rest: Value) -> Value {
    let mut status = json!({
        "startTime": rfc3339(0), "completionTime": rfc3339(seconds), "ready": 0, "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": conditions(&["SuccessCriteriaMet", "Complete"], why.0, why.1, seconds),
    });
    common::merge(&mut status, &rest);
    status
}

fn running(job: JobBuilder, uids: &[&str]) -> Bench {
    let mut bench = Bench::new(job);
    bench.hush().start(uids).hush();
    bench
}

fn name(bench: &Bench, uid: &str) -> String {
    bench.get(uid).and_then(|pod| pod.metadata.name).expect("the pod is there")
}

fn exit_message(bench: &Bench, uid: &str, code: i32, action: &str, rule: usize) -> String {
    let pod = name(bench, uid);
    format!(
        "Container main for pod lab/{pod} failed with exit code {code} matching {action} rule at index {rule}"
    )
}

// 000, story 1
#[test]
fn a_researcher_retries_exit_codes_40_to_42_and_any_other_ends_the_job_early() {
    let mut bench = running(
        job().runs(3, 3).limit(6).policy([on_exit("FailJob", "NotIn", &[40, 41, 42])]),
        &["p0", "p1", "p2"],
    );
    bench.exit("p0", 41).run_all();
    assert_eq!(bench.seconds(), 10, "the known retriable failure is retried");
    bench.start(&["p3"]).hush().advance(5).exit("p1", 1);
    let message = exit_message(&bench, "p1", 1, "FailJob", 0);
    bench.hush();
    assert_eq!(bench.status()["terminating"], 2);
    bench.exit("p2", 143).exit("p3", 143).hush();
    assert_eq!(bench.status(), failed(("PodFailurePolicy", &message), 15, json!({ "failed": 4 })));
}

// 000, story 2
#[test]
fn a_service_provider_ignores_any_number_of_disruptions() {
    let mut bench = running(job().limit(3).policy([on_condition("Ignore", "DisruptionTarget")]), &["p0"]);
    for attempt in 0..5 {
        bench.disrupt(&format!("p{attempt}")).run_all();
    }
    assert_eq!(bench.seconds(), 10 + 20 + 40 + 80 + 160);
    bench.succeed("p5").hush();
    assert_eq!(bench.status(), complete(REACHED, 310, json!({ "succeeded": 1 })));
}

// 000, story 2
#[test]
fn a_service_provider_still_ends_a_job_whose_own_errors_reach_the_limit() {
    let mut bench = running(job().limit(3).policy([on_condition("Ignore", "DisruptionTarget")]), &["p0"]);
    bench.disrupt("p0").run_all();
    for attempt in 1..=4 {
        bench.exit(&format!("p{attempt}"), 137).run_all();
    }
    assert_eq!(bench.status(), failed(BACKOFF, 10 + 20 + 40 + 80, json!({ "failed": 4 })));
}

// 000, story 3
#[test]
fn a_careful_service_provider_counts_disruptions_against_the_limit() {
    let rules = || [on_condition("Count", "DisruptionTarget"), on_exit("FailJob", "NotIn", &[0])];
    let mut bench = running(job().limit(3).policy(rules()), &["p0"]);
    for attempt in 0..4 {
        bench.disrupt(&format!("p{attempt}")).run_all();
    }
    assert_eq!(bench.status(), failed(BACKOFF, 70, json!({ "failed": 4 })));
    let mut bench = running(job().limit(3).policy(rules()), &["p0"]);
    bench.exit("p0", 1);
    let message = exit_message(&bench, "p0", 1, "FailJob", 1);
    bench.hush();
    assert_eq!(bench.status(), failed(("PodFailurePolicy", &message), 0, json!({ "failed": 1 })));
}

// 001, story 1
#[test]
fn a_researcher_with_the_draft_policy_retries_codes_40_to_50_only() {
    let policy = json!({ "rules": [{ "containerExitCodeNotIn": "40-50", "action": "Terminate" }] });
    let mut bench = Bench::with_draft(job().limit(3), policy);
    bench.hush().exit("p0", 45).run_all();
    assert_eq!((bench.seconds(), &bench.status()["failed"]), (10, &json!(1)));
    bench.exit("p1", 1);
    let message = exit_message(&bench, "p1", 1, "Terminate", 0);
    bench.hush();
    assert_eq!(bench.status(), failed(("PodFailurePolicy", &message), 10, json!({ "failed": 2 })));
}

// 001, story 2
#[test]
fn a_service_provider_with_the_draft_policy_ignores_pods_by_their_status_reason() {
    let listed = json!({ "rules": [{ "podStatusReasonIn": ["Preemption", "NodePressureEviction"], "action": "Ignore" }] });
    let any = json!({ "rules": [{ "podStatusReasonNotIn": [""], "action": "Ignore" }] });
    for policy in [listed, any] {
        let mut bench = Bench::with_draft(job().limit(0), policy);
        bench.hush();
        for (attempt, reason) in ["Preemption", "NodePressureEviction"].into_iter().enumerate() {
            bench.exit(&format!("p{attempt}"), 143);
            bench.pod(&format!("p{attempt}"), |pod| pod.with(json!({ "status": { "reason": reason } })));
            bench.run_all();
        }
        assert_eq!((bench.seconds(), &bench.status()["failed"]), (30, &json!(null)));
        bench.exit("p2", 143).hush();
        assert_eq!(bench.status(), failed(BACKOFF, 30, json!({ "failed": 1 })), "a failure without a reason");
    }
}

// 002, story 1
#[test]
fn a_framework_that_needs_one_pod_an_index_never_has_two() {
    let mut bench = running(job().indexed(2, 2).replaces_failed(), &["0.0", "1.0"]);
    bench.advance(5).delete("0.0").hush().advance(25);
    assert_eq!((bench.writes(), bench.uids()), (vec![], vec!["0.0", "1.0"]), "the old pod has not stopped");
    bench.exit("0.0", 143).run_all();
    assert_eq!((bench.seconds(), bench.uids()), (40, vec!["0.1", "1.0"]), "10 seconds after it stopped");
    bench.succeed("0.1").succeed("1.0").hush();
    assert_eq!(
        bench.status(),
        complete(REACHED, 40, json!({ "succeeded": 2, "failed": 1, "completedIndexes": "0,1" }))
    );
}

// 002, story 2
#[test]
fn a_user_of_scarce_resources_never_pays_for_more_pods_than_asked_for() {
    for (job, most) in [(job().runs(2, 3).replaces_failed(), 2), (job().runs(2, 3), 3)] {
        let mut bench = running(job, &["p0", "p1"]);
        bench.delete("p0").run_all();
        assert_eq!(bench.uids().len(), most, "pods that are active or terminating");
    }
}

// 002, story 3
#[test]
fn a_quota_controller_reads_the_number_of_terminating_pods_until_the_very_end() {
    let mut bench = running(job().runs(3, 3).limit(0), &["p0", "p1", "p2"]);
    bench.delete("p0").hush();
    assert_eq!((&bench.status()["active"], &bench.status()["terminating"]), (&json!(null), &json!(3)));
    assert_eq!(bench.status()["conditions"][1], json!(null), "not finished while pods run");
    bench.exit("p0", 143).hush();
    assert_eq!(bench.status()["terminating"], 2);
    bench.exit("p1", 143).exit("p2", 143).hush();
    assert_eq!(bench.status(), failed(BACKOFF, 0, json!({ "failed": 3 })));
}

fn suites(job: JobBuilder) -> (Bench, Vec<String>) {
    let mut bench = Bench::new(job.indexed(10, 10));
    bench.hush();
    let pods: Vec<String> = (0..10).map(|index| format!("{index}.0")).collect();
    bench.start(&pods.iter().map(String::as_str).collect::<Vec<_>>()).hush();
    (bench, pods)
}

// 003, story 1
#[test]
fn a_failing_test_suite_does_not_interrupt_the_others_and_is_retried_once() {
    let (mut bench, pods) = suites(job().per_index(1));
    for (index, pod) in pods.iter().enumerate() {
        bench.exit(pod, if matches!(index, 3 | 7) { 1 } else { 0 });
    }
    bench.run_all();
    assert_eq!(bench.seconds(), 10);
    bench.fail("3.1").succeed("7.1").hush();
    let rest = json!({ "succeeded": 9, "failed": 3, "completedIndexes": "0-2,4-9", "failedIndexes": "3" });
    assert_eq!(bench.status(), failed(FAILED_INDEXES, 10, rest));
}

// 003, story 1: all is well in the end
#[test]
fn a_test_suite_that_passes_at_the_second_try_lets_the_job_complete() {
    let (mut bench, pods) = suites(job().per_index(1));
    pods.iter().for_each(|pod| _ = bench.exit(pod, i32::from(pod == "5.0")));
    bench.run_all().succeed("5.1").hush();
    let rest = json!({ "succeeded": 10, "failed": 1, "completedIndexes": "0-9", "failedIndexes": "" });
    assert_eq!(bench.status(), complete(REACHED, 10, rest));
}

// 003, story 2
#[test]
fn a_test_suite_that_exits_with_42_is_not_retried() {
    let (mut bench, pods) = suites(job().per_index(1).policy([on_exit("FailIndex", "In", &[42])]));
    for (index, pod) in pods.iter().enumerate() {
        bench.exit(pod, [42, 1, 0, 0, 0, 0, 0, 0, 0, 0][index]);
    }
    bench.run_all();
    assert_eq!(bench.get("0.1"), None);
    bench.succeed("1.1").hush();
    let rest = json!({ "succeeded": 9, "failed": 2, "completedIndexes": "1-9", "failedIndexes": "0" });
    assert_eq!(bench.status(), failed(FAILED_INDEXES, 10, rest));
}

// 003, story 3
#[test]
fn more_failed_test_suites_than_half_end_the_job() {
    let (mut bench, pods) = suites(job().per_index(1).max_failed(5));
    pods[..6].iter().for_each(|pod| _ = bench.fail(pod));
    bench.run_all();
    (0..5).for_each(|index| _ = bench.fail(&format!("{index}.1")));
    bench.hush();
    assert_eq!(
        (&bench.status()["failedIndexes"], &bench.status()["conditions"]),
        (&json!("0-4"), &json!(null))
    );
    bench.fail("5.1").hush();
    pods[6..].iter().for_each(|pod| _ = bench.exit(pod, 143));
    bench.hush();
    let why = ("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
    assert_eq!(bench.status(), failed(why, 10, json!({ "failed": 16, "failedIndexes": "0-5" })));
}

// 004, motivation
#[test]
fn a_job_completes_although_its_finished_pods_are_collected_all_along() {
    let mut bench = Bench::new(job().runs(1, 5));
    bench.hush();
    for number in 0..5 {
        bench.succeed(&format!("p{number}")).hush().delete(&format!("p{number}")).hush();
    }
    assert_eq!(bench.uids(), Vec::<&str>::new());
    assert_eq!(bench.status(), complete(REACHED, 0, json!({ "succeeded": 5 })));
}

// 004: a pod that is collected before it was counted waits for its finalizer
#[test]
fn a_finished_pod_that_is_deleted_before_it_was_counted_stays_until_it_is() {
    let mut bench = Bench::new(job().runs(1, 2));
    bench.hush().succeed("p0").delete("p0");
    assert_eq!(bench.held(), ["p0"]);
    bench.hush();
    assert_eq!((bench.uids(), &bench.status()["succeeded"]), (vec!["p1"], &json!(1)));
}

// 004, "Deleted Pods"
#[test]
fn a_pod_that_a_user_deletes_is_a_failure_and_one_that_we_remove_is_none() {
    let mut bench = running(job().runs(2, 2), &["p0", "p1"]);
    bench.delete("p0").hush();
    assert_eq!(bench.status()["failed"], 1);
    bench.edit(|job| job.runs(0, 2)).hush();
    assert_eq!(bench.status()["failed"], 1);
}

// 004, "Algorithm": stopped at any point and started again from the first step
#[test]
fn a_controller_that_dies_after_every_write_counts_the_same() {
    for crash in [false, true] {
        let mut bench = Bench::new(job().runs(3, 4).limit(1));
        let run = |bench: &mut Bench| _ = if crash { bench.run_crashing() } else { bench.run_all() };
        run(&mut bench);
        bench.start(&["p0", "p1", "p2"]).fail("p0").succeed("p1");
        run(&mut bench);
        bench.start(&["p3"]).fail("p2");
        run(&mut bench);
        assert_eq!(bench.uids(), ["p0", "p1", "p2", "p3"], "p4 never ran and is gone");
        bench.exit("p3", 143);
        run(&mut bench);
        let want = failed(BACKOFF, 0, json!({ "succeeded": 1, "failed": 4 }));
        assert_eq!((bench.status(), bench.held()), (want, vec![]), "crashing: {crash}");
    }
}
