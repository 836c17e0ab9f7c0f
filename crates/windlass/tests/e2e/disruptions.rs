//! `--disrupt`: evictions, one at a time, and what policies make of them.

use serde_json::{Value, json};

use crate::support::{BACKOFF_LIMIT, complete, failed, job, run_manifest};

/// Pods that run until three of them were ended, or long enough. Each takes a moment to end, and notices when it is not the only
/// one.
fn until_three_were_ended(directory: &std::path::Path) -> String {
    let d = directory.display();
    format!(
        "trap 'mkdir {d}/ending || : > {d}/overlap; sleep 0.1; rmdir {d}/ending; mkdir -p {d}/ended/$HOSTNAME; exit 1' TERM
        mkdir -p {d}/ended
        for i in $(seq 60); do
          [ $(ls {d}/ended | wc -l) -lt 3 ] || exit 0
          sleep 0.05
        done"
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
    for nth in 1..=3 {
        let line = format!("job/x: evicting pod x-????? ({nth} of 3)");
        assert_eq!(lines.iter().filter(|told| **told == line).count(), 1, "{line}: {}", ran.stderr);
    }
    let ignored =
        "job/x: pod x-????? failed, rule 0 (Ignore) matches condition DisruptionTarget: not counted";
    assert_eq!(lines.iter().filter(|told| *told == ignored).count(), 3, "{}", ran.stderr);
    assert!(!directory.path().join("overlap").exists(), "two pods were being ended at once: {}", ran.stderr);
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
