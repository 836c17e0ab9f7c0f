//! Each user story of the design documents, as the example that shows it, with its whole final status.

use serde_json::{Value, json};

use crate::support::{BACKOFF_LIMIT, Ran, complete, examples, failed, run};

/// Which test runs an example.
const EXAMPLES: [&str; 19] = [
    "lint-me.yaml",
    "pattern-deadline.yaml",
    "pattern-fan-out.yaml",
    "pattern-first-success.yaml",
    "pattern-run-once.yaml",
    "pattern-work-queue.yaml",
    "retry-and-ignore.yaml",
    "story-backoff-limit-per-index-1-test-suites.yaml",
    "story-backoff-limit-per-index-2-fail-index.yaml",
    "story-backoff-limit-per-index-3-too-many.yaml",
    "story-draft-policy-1-exit-code-ranges.yaml",
    "story-draft-policy-2-status-reasons.yaml",
    "story-pod-failure-policy-1-bugs.yaml",
    "story-pod-failure-policy-2-disruptions.yaml",
    "story-pod-failure-policy-3-broken-cluster.yaml",
    "story-pod-replacement-policy-1-no-twins.yaml",
    "story-pod-replacement-policy-2-exact-number.yaml",
    "story-pod-replacement-policy-3-terminating.yaml",
    "story-tracking-exact-counts.yaml",
];

/// Runs an example as its header says.
fn example(name: &str) -> Ran {
    assert!(EXAMPLES.contains(&name));
    let path = examples().join(name);
    let text = std::fs::read_to_string(&path).expect("an example");
    let header =
        text.lines().take_while(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let header = header.collect::<Vec<_>>().join(" ").replace('\\', "");
    let file = format!("examples/{name}");
    let (_, command) = header.split_once("windlass run ").expect("the header says how to run it");
    let (flags, _) = command.split_once(&file).expect("the command names the example");
    let path = path.to_str().expect("UTF-8");
    let args = ["run", "-o", "json"]
        .into_iter()
        .chain(flags.split_whitespace().filter(|flag| !["-o", "json"].contains(flag)));
    let ran = run(&args.chain([path]).collect::<Vec<_>>());
    assert!(!ran.stderr.contains("WARN") && !ran.stderr.contains("ERROR"), "{}", ran.stderr);
    ran
}

fn assert_ends(ran: &Ran, code: i32, status: &Value) {
    assert_eq!((ran.code, &ran.status()), (Some(code), status), "{}", ran.stderr);
}

#[test]
fn every_example_is_run_by_a_test() {
    let mut found: Vec<String> = std::fs::read_dir(examples())
        .expect("examples")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    found.sort();
    assert_eq!(found, EXAMPLES);
    let tests = include_str!("stories.rs");
    for name in EXAMPLES {
        assert!(tests.contains(&format!("example(\"{name}\")")), "{name} is not run");
    }
}

#[test]
fn the_first_example_retries_one_index_and_ignores_disruptions() {
    let ran = example("retry-and-ignore.yaml");
    assert_ends(
        &ran,
        0,
        &complete(json!({"succeeded": 6, "failed": 1, "completedIndexes": "0-5", "failedIndexes": ""})),
    );
    assert_eq!(ran.count(": evicting pod"), 2, "{}", ran.stderr);
    assert_eq!(
        ran.count("rule 0 (Ignore) matches condition DisruptionTarget: not counted"),
        2,
        "{}",
        ran.stderr
    );
    assert_eq!(
        ran.count("(index 1) failed, no rule matches: counted (container test: exit code 1)"),
        1,
        "{}",
        ran.stderr
    );
}

// Pod failure policy, story 1
#[test]
fn a_bug_ends_the_job_at_once_and_known_exit_codes_are_retried() {
    let ran = example("story-pod-failure-policy-1-bugs.yaml");
    let message = "Container program for pod default/weekend-1-????? failed with exit code 1 matching FailJob rule at index 0";
    let rest = json!({"succeeded": 1, "failed": 2, "completedIndexes": "0"});
    assert_ends(&ran, 1, &failed("PodFailurePolicy", message, rest));
    let cause = "job/weekend: because of pod weekend-1-?????, rule 0 (FailJob) matches exit code 1 of container program";
    assert!(ran.lines("weekend").contains(&cause.to_owned()), "{}", ran.stderr);
}

// Pod failure policy, story 2
#[test]
fn more_disruptions_than_the_backoff_limit_are_ignored() {
    let ran = example("story-pod-failure-policy-2-disruptions.yaml");
    assert_ends(&ran, 0, &complete(json!({"succeeded": 4})));
    assert_eq!(ran.count("(Ignore) matches condition DisruptionTarget: not counted"), 4, "{}", ran.stderr);
}

// Pod failure policy, story 3
#[test]
fn disruptions_that_count_end_at_the_backoff_limit() {
    let ran = example("story-pod-failure-policy-3-broken-cluster.yaml");
    assert_ends(&ran, 1, &failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 4})));
    assert_eq!(ran.count("rule 0 (Count) matches condition DisruptionTarget: counted"), 4, "{}", ran.stderr);
}

// First draft, story 1
#[test]
fn the_draft_policy_retries_a_range_of_exit_codes_and_ends_the_job_by_any_other() {
    let ran = example("story-draft-policy-1-exit-code-ranges.yaml");
    let message = "Container program for pod default/weekend-1-????? failed with exit code 1 matching Terminate rule at index 0";
    let rest = json!({"succeeded": 1, "failed": 2, "completedIndexes": "0"});
    assert_ends(&ran, 1, &failed("PodFailurePolicy", message, rest));
    let policy = json!({"rules": [{"containerExitCodeNotIn": "40-50", "action": "Terminate"}]});
    assert_eq!(ran.json()["spec"]["backoffPolicy"], policy);
}

// First draft, story 2
#[test]
fn the_draft_policy_ignores_pods_that_were_ended_for_a_listed_reason() {
    let ran = example("story-draft-policy-2-status-reasons.yaml");
    assert_ends(&ran, 0, &complete(json!({"succeeded": 4})));
    assert_eq!(
        ran.count("(Ignore) matches status reason EvictionByEvictionAPI: not counted"),
        4,
        "{}",
        ran.stderr
    );
}

#[test]
fn without_its_gate_the_draft_policy_is_ignored_with_a_warning() {
    let path = examples().join("story-draft-policy-1-exit-code-ranges.yaml");
    let ran = run(&["run", "-o", "json", "--backoff-base", "10ms", path.to_str().expect("UTF-8")]);
    let rest = json!({"succeeded": 1, "failed": 4, "completedIndexes": "0"});
    assert_ends(&ran, 1, &failed("BackoffLimitExceeded", BACKOFF_LIMIT, rest));
    assert_eq!(ran.json()["spec"]["backoffPolicy"], Value::Null);
    assert_eq!(
        ran.stderr.lines().next(),
        Some(
            "warning: job/weekend: spec.backoffPolicy is ignored: switch it on with --feature-gates \
             RetriableAndNonRetriableFailures=true"
        )
    );
}

// Pod replacement policy, story 1
#[test]
fn no_two_pods_of_an_index_run_at_the_same_time() {
    let ran = example("story-pod-replacement-policy-1-no-twins.yaml");
    assert_ends(&ran, 0, &complete(json!({"succeeded": 2, "failed": 2, "completedIndexes": "0,1"})));
    assert_eq!(ran.count(": evicting pod"), 2, "{}", ran.stderr);
}

// Pod replacement policy, story 2
#[test]
fn no_more_pods_than_asked_for_run_while_one_is_being_ended() {
    let ran = example("story-pod-replacement-policy-2-exact-number.yaml");
    assert_ends(&ran, 0, &complete(json!({"succeeded": 4, "failed": 2})));
    assert_eq!(ran.count(": evicting pod"), 2, "{}", ran.stderr);
}

// Pod replacement policy, story 3
#[test]
fn a_job_has_failed_only_when_its_last_pod_has_stopped() {
    let ran = example("story-pod-replacement-policy-3-terminating.yaml");
    assert_ends(&ran, 1, &failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 2})));
    assert_eq!(ran.count("job/quota: wait for 1 pods to stop"), 1, "{}", ran.stderr);
}

// Back-off limit per index, story 1
#[test]
fn a_failed_index_does_not_stop_the_others() {
    let ran = example("story-backoff-limit-per-index-1-test-suites.yaml");
    let rest = json!({"succeeded": 9, "failed": 3, "completedIndexes": "0-2,4-9", "failedIndexes": "3"});
    assert_ends(&ran, 1, &failed("FailedIndexes", "Job has failed indexes", rest));
    let cause = "job/suites: index 3 failed: pod suites-3-?????, container runner: exit code 1";
    assert!(ran.lines("suites").contains(&cause.to_owned()), "{}", ran.stderr);
}

// Back-off limit per index, story 2
#[test]
fn an_index_is_given_up_by_its_exit_code() {
    let ran = example("story-backoff-limit-per-index-2-fail-index.yaml");
    let rest = json!({"succeeded": 9, "failed": 2, "completedIndexes": "0-2,4-9", "failedIndexes": "3"});
    assert_ends(&ran, 1, &failed("FailedIndexes", "Job has failed indexes", rest));
    let cause = "job/suites: index 3 failed: pod suites-3-?????, rule 0 (FailIndex) matches exit code 42 of container runner";
    assert!(ran.lines("suites").contains(&cause.to_owned()), "{}", ran.stderr);
}

// Back-off limit per index, story 3
#[test]
fn too_many_failed_indexes_end_the_job() {
    let ran = example("story-backoff-limit-per-index-3-too-many.yaml");
    let message = "Job has exceeded the specified maximal number of failed indexes";
    let rest = json!({"failed": 12, "failedIndexes": "0-5"});
    assert_ends(&ran, 1, &failed("MaxFailedIndexesExceeded", message, rest));
}

// Tracking with finalizers
#[test]
fn every_pod_counts_exactly_once() {
    let ran = example("story-tracking-exact-counts.yaml");
    let rest = json!({"succeeded": 40, "failed": 20, "completedIndexes": "0-39", "failedIndexes": ""});
    assert_ends(&ran, 0, &complete(rest));
    assert_eq!(ran.count(": evicting pod"), 3, "{}", ran.stderr);
}

#[test]
fn a_job_that_runs_can_still_have_a_policy_to_warn_of() {
    assert_ends(&example("lint-me.yaml"), 0, &complete(json!({"succeeded": 1})));
}

#[test]
fn a_deadline_ends_a_job_whatever_its_limit() {
    let message = "Job was active longer than specified deadline";
    let status = failed("DeadlineExceeded", message, json!({"failed": 1}));
    assert_ends(&example("pattern-deadline.yaml"), 1, &status);
}

#[test]
fn a_fan_out_gets_its_settings_and_shows_what_it_prints() {
    let ran = example("pattern-fan-out.yaml");
    assert_ends(&ran, 0, &complete(json!({"succeeded": 4, "completedIndexes": "0-3"})));
    for index in 0..4 {
        let printed = format!("| part {index} is blue, token of 6 characters");
        assert_eq!(ran.count(&printed), 1, "{}", ran.stderr);
    }
}

#[test]
fn the_first_success_is_enough() {
    let ran = example("pattern-first-success.yaml");
    let status = ran.status();
    assert_eq!(
        (ran.code, &status["succeeded"], &status["completedIndexes"]),
        (Some(0), &json!(1), &json!("2"))
    );
    assert_eq!(status["conditions"][1]["reason"], "SuccessPolicy", "{status}");
}

#[test]
fn a_job_that_runs_once_runs_once() {
    assert_ends(&example("pattern-run-once.yaml"), 0, &complete(json!({"succeeded": 1})));
}

#[test]
fn a_work_queue_is_complete_when_its_workers_are_done() {
    let ran = example("pattern-work-queue.yaml");
    let succeeded = ran.status()["succeeded"].clone();
    assert!((1..=3).any(|workers| succeeded == workers), "{succeeded}");
    assert_ends(&ran, 0, &complete(json!({"succeeded": succeeded})));
}
