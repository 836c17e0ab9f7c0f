//! Manifests that can't be run: the whole of what a user reads, and exit code 2.

use serde_json::json;

use crate::support::{job, run, run_manifest, run_manifest_without_programs};

#[track_caller]
fn assert_rejected(manifest: &str, expected: &[&str]) {
    let ran = run_manifest(&[], manifest);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!((ran.code, ran.stdout.as_str(), lines.as_slice()), (Some(2), "", expected));
}

const HEAD: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\nspec:\n";

#[test]
fn a_file_that_is_not_there() {
    let ran = run(&["run", "no/such/file.yaml"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (
            Some(2),
            "error: no/such/file.yaml: read: No such file or directory (os error 2)\n\
             hint: name a manifest, or - to read it from standard input\n"
        )
    );
}

#[test]
fn a_manifest_without_a_job() {
    assert_rejected(
        "# nothing here\n",
        &[
            "error: <stdin>: there is no Job in it",
            "hint: windlass run needs at least one Job; see examples/ for Jobs that run",
        ],
    );
}

#[test]
fn unknown_fields_and_wrong_types_in_several_documents() {
    let second = HEAD.replace("name: x", "name: other");
    assert_rejected(
        &format!("{HEAD}  paralelism: 3\n---\n{second}  completions: \"5\"\n"),
        &[
            "error: <stdin>:6:3: document 1: job/x: unknown field \"spec.paralelism\"",
            "error: <stdin>:13:3: document 2: job/other: spec.completions: invalid type: string \"5\", expected i32",
            "hint: check the spelling and the type of the fields above; field names are case-sensitive",
        ],
    );
}

#[test]
fn everything_that_validation_finds_with_its_place() {
    let spec = "  parallelism: -1\n  backoffLimitPerIndex: 1\n  template:\n    spec:\n      restartPolicy: Always\n      \
                containers:\n      - name: A\n        image: host\n        command: [x]\n";
    assert_rejected(
        &format!("{HEAD}{spec}"),
        &[
            "error: <stdin>:6:3: document 1: job/x: spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            "error: <stdin>:7:3: document 1: job/x: spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            "error: <stdin>:12:9: document 1: job/x: spec.template.spec.containers[0].name: Invalid value: \"A\": a lowercase \
             RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
             alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "error: <stdin>:10:7: document 1: job/x: spec.template.spec.restartPolicy: Required value: valid values: \
             \"OnFailure\", \"Never\"",
            "hint: the rules are those of Kubernetes v1.36; correct the fields above and run again",
        ],
    );
}

#[test]
fn a_policy_that_breaks_a_rule() {
    let spec = "  podFailurePolicy:\n    rules:\n    - action: Explode\n      onExitCodes:\n        operator: In\n        \
                values: [0]\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: a\n        \
                image: host\n        command: [x]\n";
    assert_rejected(
        &format!("{HEAD}{spec}"),
        &[
            "error: <stdin>:8:7: document 1: job/x: spec.podFailurePolicy.rules[0].action: Unsupported value: \"Explode\": \
             supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
            "error: <stdin>:11:18: document 1: job/x: spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: \
             must not be 0 for the In operator",
            "hint: the rules are those of Kubernetes v1.36; correct the fields above and run again",
        ],
    );
}

#[test]
fn a_draft_policy_that_breaks_a_rule() {
    let spec = "  backoffPolicy:\n    rules:\n    - containerExitCodeIn: 1-\n      action: Terminate\n  template:\n    spec:\n      \
                restartPolicy: Never\n      containers:\n      - name: a\n        image: host\n        command: [x]\n";
    let manifest = format!("{HEAD}{spec}");
    let ran = run_manifest(&["--feature-gates", "RetriableAndNonRetriableFailures=true"], &manifest);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let place = "error: <stdin>:8:7: document 1: job/x: spec.backoffPolicy.rules[0].containerExitCodeIn: Invalid value: \"1-\"";
    assert!(ran.stderr.starts_with(place), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
}

#[test]
fn an_image_that_is_not_this_machine() {
    let manifest = job("x", json!({}), "true").replace("\"host\"", "\"busybox\"");
    let column = manifest.find("\"image\"").expect("an image") + 1;
    let ran = run_manifest_without_programs(&manifest);
    let want = format!(
        "error: <stdin>:1:{column}: document 1: job/x: spec.template.spec.containers[0].image: \"busybox\" can't be run: this \
         machine has no OCI runtime\nhint: install crun, runc or youki (and run as root where users may not make user namespaces), set image: host \
         to run the command on this machine, or use --runtime host for every image\n"
    );
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (Some(2), "", want));
    let ran = run_manifest(&["--runtime", "host"], &manifest);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_name_that_is_there_twice() {
    let one = job("x", json!({}), "true");
    assert_rejected(
        &format!("{one}\n{one}"),
        &[
            "error: <stdin>: document 2: job/x: jobs.batch \"x\" already exists",
            "hint: the rules are those of Kubernetes v1.36; correct the fields above and run again",
        ],
    );
}

#[test]
fn a_kind_that_can_not_be_run() {
    assert_rejected(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
        &[
            "error: <stdin>:2:1: document 1: kind \"Deployment\" of \"apps/v1\" can't be run here",
            "hint: windlass run takes Job, ConfigMap, Secret, PriorityClass, and List of these; take other objects out of the \
             file",
        ],
    );
}

#[test]
fn a_backoff_that_shrinks() {
    let ran = run_manifest(&["--backoff-base", "1m"], &job("x", json!({}), "true"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = run_manifest(&["--backoff-base", "1m", "--backoff-max", "1s"], &job("x", json!({}), "true"));
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (
            Some(2),
            "error: --backoff-max 1s is shorter than --backoff-base 60s\nhint: give a longer --backoff-max\n"
        )
    );
}
