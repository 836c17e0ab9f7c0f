//! Features that are switched off: their fields are dropped, and Jobs behave as they did before.

use serde_json::{Value, json};

use crate::support::{BACKOFF_LIMIT, failed, job, run_manifest};

#[test]
fn without_failure_policies_every_failure_counts() {
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]});
    let manifest = job("x", json!({"backoffLimit": 2, "podFailurePolicy": policy}), "exit 3");
    let args = ["-o", "json", "--backoff-base", "10ms"];
    let with = run_manifest(&args, &manifest);
    let message =
        "Container main for pod default/x-????? failed with exit code 3 matching FailJob rule at index 0";
    assert_eq!(with.status(), failed("PodFailurePolicy", message, json!({"failed": 1})), "{}", with.stderr);

    let args = [&args[..], &["--feature-gates", "JobPodFailurePolicy=false"]].concat();
    let without = run_manifest(&args, &manifest);
    let expected = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 3}));
    assert_eq!((without.code, without.status()), (Some(1), expected), "{}", without.stderr);
    assert_eq!(without.json()["spec"]["podFailurePolicy"], Value::Null);
}

#[test]
fn without_limits_per_index_the_backoff_limit_is_that_of_the_job() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 2, "parallelism": 1, "backoffLimitPerIndex": 0, "backoffLimit": 0,
    });
    let manifest = job("x", spec, "exit 1");
    let with = run_manifest(&["-o", "json"], &manifest);
    let rest = json!({"failed": 1, "failedIndexes": "0"});
    assert_eq!(with.status(), failed("BackoffLimitExceeded", BACKOFF_LIMIT, rest), "{}", with.stderr);

    let without =
        run_manifest(&["-o", "json", "--feature-gates", "JobBackoffLimitPerIndex=false"], &manifest);
    let rest = json!({"failed": 1});
    assert_eq!(without.status(), failed("BackoffLimitExceeded", BACKOFF_LIMIT, rest), "{}", without.stderr);
    assert_eq!(without.json()["spec"]["backoffLimitPerIndex"], Value::Null);
}

#[test]
fn without_replacement_policies_terminating_pods_are_not_reported() {
    let manifest = job("x", json!({"podReplacementPolicy": "Failed"}), "true");
    let ran = run_manifest(&["-o", "json", "--feature-gates", "JobPodReplacementPolicy=false"], &manifest);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.json()["spec"]["podReplacementPolicy"], Value::Null);
    assert_eq!(ran.status()["terminating"], Value::Null);
}
