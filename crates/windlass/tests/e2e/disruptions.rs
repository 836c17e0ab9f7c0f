//! `--disrupt`: evictions, one at a time, and what policies make of them.

use serde_json::{Value, json};

use crate::support::{BACKOFF_LIMIT, complete, failed, job, run_manifest};

/// Pods that run until three of them were told to end; each that is leaves a mark.
fn until_three_were_ended(directory: &std::path::Path) -> String {
    let d = directory.display();
    format!(
        "trap 'mkdir -p {d}/marks/$HOSTNAME; exit 1' TERM; mkdir -p {d}/marks; \
         while [ $(ls {d}/marks | wc -l) -lt 3 ]; do sleep 0.05; done"
    )
}

fn policy(action: &str) -> Value {
    json!({"rules": [{"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]}]})
}

#[test]
fn ignored_disruptions_do_not_count_and_happen_one_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let spec =
        json!({"completions": 3, "parallelism": 3, "backoffLimit": 0, "podFailurePolicy": policy("Ignore")});
    let ran = run_manifest(
        &["-o", "json", "--backoff-base", "10ms", "--disrupt", "3"],
        &job("x", spec, &until_three_were_ended(directory.path())),
    );
    assert_eq!((ran.code, ran.status()), (Some(0), complete(json!({"succeeded": 3}))), "{}", ran.stderr);
    let lines = ran.lines("x");
    let told: Vec<&str> = lines[1..7].iter().map(String::as_str).collect();
    let ignored =
        "job/x: pod x-????? failed, rule 0 (Ignore) matches condition DisruptionTarget: not counted";
    assert_eq!(
        told,
        [
            "job/x: evicting pod x-????? (1 of 3)",
            ignored,
            "job/x: evicting pod x-????? (2 of 3)",
            ignored,
            "job/x: evicting pod x-????? (3 of 3)",
            ignored,
        ]
    );
    assert!(lines.contains(&"job/x: 3 succeeded, 0 failed, 3 ignored; took ?".to_owned()), "{}", ran.stderr);
}

#[test]
fn counted_disruptions_use_up_the_backoff_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let spec = json!({"backoffLimit": 1, "podFailurePolicy": policy("Count")});
    let ran = run_manifest(
        &["-o", "json", "--backoff-base", "10ms", "--disrupt", "3"],
        &job("x", spec, &until_three_were_ended(directory.path())),
    );
    let expected = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 2}));
    assert_eq!((ran.code, ran.status()), (Some(1), expected), "{}", ran.stderr);
    assert_eq!(ran.count(": evicting pod"), 2, "{}", ran.stderr);
}

#[test]
fn without_disruption_conditions_an_eviction_is_a_failure_like_any_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let spec = json!({"backoffLimit": 0, "podFailurePolicy": policy("Ignore")});
    let ran = run_manifest(
        &["-o", "json", "--disrupt", "1", "--feature-gates", "PodDisruptionConditions=false"],
        &job("x", spec, &until_three_were_ended(directory.path())),
    );
    let expected = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 1}));
    assert_eq!((ran.code, ran.status()), (Some(1), expected), "{}", ran.stderr);
}
