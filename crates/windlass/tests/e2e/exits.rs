//! Exit codes, and what becomes of pods when somebody interrupts.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{BACKOFF_LIMIT, Running, complete, failed, job, run, run_manifest, wait_for_file};

#[test]
fn a_complete_job_exits_with_0() {
    let ran = run_manifest(&["-o", "json"], &job("x", json!({}), "true"));
    assert_eq!((ran.code, ran.status()), (Some(0), complete(json!({"succeeded": 1}))), "{}", ran.stderr);
}

#[test]
fn a_failed_job_exits_with_1() {
    let ran = run_manifest(&["-o", "json"], &job("x", json!({"backoffLimit": 0}), "exit 7"));
    let expected = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 1}));
    assert_eq!((ran.code, ran.status()), (Some(1), expected), "{}", ran.stderr);
}

#[test]
fn one_failed_job_of_several_makes_it_1() {
    let manifest =
        format!("{}\n{}", job("good", json!({}), "true"), job("bad", json!({"backoffLimit": 0}), "false"));
    let ran = run_manifest(&[], &manifest);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.count("job/good: Complete (CompletionsReached)"), 1, "{}", ran.stderr);
    assert_eq!(ran.count("job/bad: Failed (BackoffLimitExceeded)"), 1, "{}", ran.stderr);
}

#[test]
fn a_deadline_ends_the_pods_and_the_job() {
    let ran = run_manifest(&["-o", "json"], &job("x", json!({"activeDeadlineSeconds": 1}), "exec sleep 60"));
    let expected =
        failed("DeadlineExceeded", "Job was active longer than specified deadline", json!({"failed": 1}));
    assert_eq!((ran.code, ran.status()), (Some(1), expected), "{}", ran.stderr);
}

#[test]
fn a_job_with_nothing_to_do_is_complete_even_when_suspended() {
    let ran = run_manifest(&["-o", "json"], &job("x", json!({"suspend": true, "completions": 0}), "true"));
    let mut expected = complete(json!({}));
    expected.as_object_mut().expect("a map").remove("startTime");
    assert_eq!((ran.code, ran.status()), (Some(0), expected), "{}", ran.stderr);
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for args in [
        &["run"][..],
        &["run", "--no-such-flag", "x"],
        &["run", "--backoff-base", "10", "x"],
        &["run", "--feature-gates", "NoSuchGate=true", "x"],
        &["run", "-o", "xml", "x"],
        &["run", "--runtime", "vm", "x"],
        &["fly"],
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with("error: ") || ran.stderr.contains("Usage:"),
            "{args:?}: {}",
            ran.stderr
        );
    }
}

fn interrupted_gracefully(signal: Signal) {
    let directory = tempfile::tempdir().expect("a directory");
    let (ready, ended) = (directory.path().join("ready"), directory.path().join("ended"));
    let script = format!(
        "trap 'echo bye > {}; exit 0' TERM; : > {}; while :; do sleep 0.05; done",
        ended.display(),
        ready.display()
    );
    let file = directory.path().join("job.json");
    std::fs::write(&file, job("x", json!({}), &script)).expect("written");
    let running = Running::start(&["-o", "json"], &file);
    wait_for_file(&ready);
    running.signal(signal);
    let ran = running.finish();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&ended).expect("the trap ran"), "bye\n");
    assert_eq!(
        ran.lines("x"),
        [
            "job/x: started: 1 completion, 1 at a time",
            "interrupted: pods are being ended; interrupt again to end them at once",
            "job/x: interrupted before it finished",
        ]
    );
    assert_eq!(ran.json()["kind"], "Job");
}

#[test]
fn sigint_ends_pods_gracefully_and_exits_with_130() {
    interrupted_gracefully(Signal::INT);
}

#[test]
fn sigterm_ends_pods_gracefully_and_exits_with_130() {
    interrupted_gracefully(Signal::TERM);
}

#[test]
fn a_second_sigint_does_not_wait_for_pods() {
    let directory = tempfile::tempdir().expect("a directory");
    let ready = directory.path().join("ready");
    let script = format!("trap '' TERM; : > {}; while :; do sleep 0.05; done", ready.display());
    let file = directory.path().join("job.json");
    let mut manifest: serde_json::Value = serde_json::from_str(&job("x", json!({}), &script)).expect("JSON");
    manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(3600);
    std::fs::write(&file, manifest.to_string()).expect("written");
    let mut running = Running::start(&[], &file);
    wait_for_file(&ready);
    running.signal(Signal::INT);
    running.wait_for_lines(&["interrupted: pods are being ended"]);
    running.signal(Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
}
