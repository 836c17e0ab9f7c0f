//! What is printed, and where; and what pods get to see of their manifest.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, complete, job, run_manifest};

#[test]
fn in_a_pipe_every_change_worth_a_line_is_a_line() {
    let ran = run_manifest(&["--backoff-base", "10ms"], &job("x", json!({"backoffLimit": 1}), "exit 3"));
    let failed = "job/x: pod x-????? failed, no rule matches: counted (container main: exit code 3)";
    assert_eq!(
        ran.lines("x"),
        [
            "job/x: started: 1 completion, 1 at a time",
            failed,
            failed,
            "job/x: the Job fails (BackoffLimitExceeded): 2 failures and 0 restarts, backoffLimit 1",
            "job/x: Failed (BackoffLimitExceeded): Job has reached the specified backoff limit",
            "job/x: because of 2 failures and 0 restarts, backoffLimit 1; the last: pod x-?????, container main: exit code 3",
            "job/x: 0 succeeded, 2 failed, 0 ignored; took ?",
        ]
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
}

#[test]
fn a_long_wait_is_announced() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.json");
    std::fs::write(&file, job("x", json!({}), "exit 1")).expect("written");
    let mut run = Running::start(&["--backoff-base", "600s", "--backoff-max", "600s"], &file);
    let line = run.wait_for_nth("job/x: retry in ", 1);
    run.signal(Signal::INT);
    let ran = run.finish();
    let told =
        line.strip_prefix("job/x: retry in ").and_then(|told| told.split_once("s: back-off after 1 failure"));
    let seconds = told.and_then(|(seconds, _)| seconds.parse::<u32>().ok());
    assert!(seconds.is_some_and(|seconds| (300..=600).contains(&seconds)), "{line}");
    assert_eq!((ran.code, ran.count("retry in ")), (Some(130), 1), "{}", ran.stderr);
}

#[test]
fn one_job_is_printed_as_it_is_and_several_as_a_list_in_the_order_of_the_file() {
    let one = run_manifest(&["-o", "json"], &job("x", json!({}), "true"));
    let job_json = one.json();
    assert_eq!((&job_json["apiVersion"], &job_json["kind"]), (&json!("batch/v1"), &json!("Job")));
    assert_eq!(one.status(), complete(json!({"succeeded": 1})));
    assert!(one.stdout.starts_with("{\n    \"apiVersion\": \"batch/v1\",\n") && one.stdout.ends_with("}\n"));

    let manifest = format!("{}\n{}", job("slow", json!({}), "sleep 0.3"), job("fast", json!({}), "true"));
    let several = run_manifest(&["-o", "json"], &manifest);
    let list = several.json();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&json!("v1"), &json!("List")));
    assert_eq!(list["metadata"], json!({"resourceVersion": ""}));
    let items = list["items"].as_array().expect("a list");
    let names: Vec<&Value> = items.iter().map(|job| &job["metadata"]["name"]).collect();
    assert_eq!(names, ["slow", "fast"]);
    assert!(items.iter().all(|job| job["status"]["succeeded"] == 1), "{list}");
}

#[test]
fn a_manifest_of_many_objects_gives_pods_what_they_ask_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let manifest = format!(
        "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {{name: settings, namespace: lab}}
  data: {{colour: blue}}
- apiVersion: v1
  kind: Secret
  metadata: {{name: keys, namespace: lab}}
  data: {{token: czNjcjN0}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: high}}
value: 1000
---
apiVersion: batch/v1
kind: Job
metadata: {{name: x, namespace: lab}}
spec:
  completionMode: Indexed
  completions: 2
  template:
    spec:
      priorityClassName: high
      restartPolicy: Never
      initContainers:
      - {{name: first, image: host, command: [sh, -c, 'echo init $JOB_COMPLETION_INDEX >> {out}']}}
      containers:
      - name: main
        image: host
        envFrom: [{{configMapRef: {{name: settings}}}}]
        env:
        - {{name: TOKEN, valueFrom: {{secretKeyRef: {{name: keys, key: token}}}}}}
        command: [sh, -c, 'echo main $JOB_COMPLETION_INDEX $colour $TOKEN $0 >> {out}']
        args: [argument]
",
        out = out.display()
    );
    let ran = run_manifest(&["-o", "json"], &manifest);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.json()["metadata"]["namespace"], "lab");
    assert_eq!(ran.count("lab/job/x: Complete"), 1, "{}", ran.stderr);
    let written = std::fs::read_to_string(&out).expect("written");
    let expected = "init 0\nmain 0 blue s3cr3t argument\ninit 1\nmain 1 blue s3cr3t argument\n";
    assert_eq!(written, expected);
}

#[test]
fn logs_are_kept_where_they_are_wanted_and_nowhere_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let (keep, temporary) = (directory.path().join("keep"), directory.path().join("tmp"));
    std::fs::create_dir(&temporary).expect("made");
    let file = directory.path().join("job.json");
    std::fs::write(&file, job("x", json!({}), "echo out; echo err >&2")).expect("written");
    let run = |args: &[&std::ffi::OsStr]| {
        let mut command = crate::support::windlass(&["run"]);
        command.args(args).arg(&file).env("TMPDIR", &temporary);
        crate::support::Running::spawn(&mut command).finish()
    };
    assert_eq!(run(&[]).code, Some(0));
    let ran = run(&["--keep".as_ref(), keep.as_os_str()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.count(&format!("logs are in {}", keep.join("logs").display())), 1, "{}", ran.stderr);
    let pods: Vec<_> = std::fs::read_dir(keep.join("logs"))
        .expect("logs")
        .map(|entry| entry.expect("a pod").path())
        .collect();
    assert_eq!(pods.len(), 1, "{pods:?}");
    let name = pods[0].file_name().and_then(|name| name.to_str()).expect("UTF-8");
    assert!(name.starts_with("default_x-"), "{name}");
    assert_eq!(std::fs::read_to_string(pods[0].join("main/0.log")).expect("a log"), "out\nerr\n");
    let left: Vec<_> = std::fs::read_dir(&temporary).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn pods_that_can_not_start_say_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.json");
    let mut manifest: Value = serde_json::from_str(&job("x", json!({}), "true")).expect("JSON");
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100000"}});
    std::fs::write(&file, manifest.to_string()).expect("written");
    let mut running = crate::support::Running::start(&[], &file);
    running.wait_for_lines(&["job/x: pods can't start: 0/1 nodes are available: 1 Insufficient cpu."]);
    running.signal(rustix::process::Signal::INT);
    assert_eq!(running.finish().code, Some(130));
}

#[test]
fn the_failure_of_an_index_is_told_when_it_happens_and_not_when_it_is_retried() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.json");
    let spec = json!({"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1});
    std::fs::write(&file, job("x", spec, "exit 9")).expect("written");
    let mut running = crate::support::Running::start(&["--backoff-base", "1h", "--backoff-max", "1h"], &file);
    let failed = "(index 0) failed, no rule matches: counted (container main: exit code 9)";
    running.wait_for_lines(&[failed, "job/x: retry in 3"]);
    running.signal(rustix::process::Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(ran.count("(index 0) failed"), 1, "{}", ran.stderr);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let manifest = job("x", json!({"backoffLimit": 0}), "true")
        .replace("[\"sh\",\"-c\",\"true\"]", "[\"/no/such/program\"]");
    let ran = run_manifest(&[], &manifest);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let told = "failed, no rule matches: counted (container main: exit code 128, StartError: ";
    let line =
        ran.stderr.lines().find(|line| line.contains(told)).unwrap_or_else(|| panic!("{}", ran.stderr));
    assert!(line.contains("/no/such/program"), "{line}");
}
