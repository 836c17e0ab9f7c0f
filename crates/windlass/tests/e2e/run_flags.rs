//! Flags of `windlass run`, each with what it changes.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Running, finish, job, run_manifest, windlass_in_shell};

#[test]
fn a_timeout_ends_pods_gracefully_and_exits_with_3() {
    let script = "trap 'echo ended; exit 0' TERM; while :; do sleep 0.02; done";
    let ran = run_manifest(&["--timeout", "1s", "--logs", "all"], &job("x", json!({}), script));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(
        ran.count("timed out: pods are being ended; interrupt to end them at once"),
        1,
        "{}",
        ran.stderr
    );
    assert_eq!(ran.count("job/x: timed out before it finished"), 1, "{}", ran.stderr);
}

/// As with `nohup windlass run job.yaml &`, in a script.
#[test]
fn pods_of_a_command_that_ignores_signals_get_them_all_the_same() {
    // Those above 31 the C library keeps to itself.
    let look = "while read -r name value; do \
                test $name != SigIgn: || echo ignores $((0x$value & 0x7fffffff)); done < /proc/self/status";
    for (number, isolation) in ["none", "pid"].into_iter().enumerate() {
        let name = format!("x{number}");
        let args = ["run", "--isolation", isolation, "--logs", "all", "-"];
        let mut command = windlass_in_shell("trap '' HUP INT QUIT TERM USR1", &args);
        let ran = finish(command.stdin(Stdio::piped()), &job(&name, json!({}), look));
        assert_eq!(ran.count("| ignores 0"), 1, "{isolation}: {}", ran.stderr);
    }
}

#[test]
fn logs_of_failed_pods_are_shown_with_the_pod_in_front_and_others_are_not() {
    let spec =
        json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0});
    let script =
        "echo out $JOB_COMPLETION_INDEX; echo err $JOB_COMPLETION_INDEX >&2; exit $JOB_COMPLETION_INDEX";
    let manifest = job("x", spec, script);
    let logs = |which: &str| {
        let ran = run_manifest(&["--logs", which], &manifest);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let mut shown: Vec<String> = ran.lines("x").into_iter().filter(|line| line.contains(" | ")).collect();
        shown.sort();
        shown
    };
    let of = |index: u32| ["err", "out"].map(|word| format!("x-{index}-????? | {word} {index}"));
    assert_eq!(logs("none"), [""; 0]);
    assert_eq!(logs("failed"), of(1));
    assert_eq!(logs("all"), [of(0), of(1)].concat());
}

#[test]
fn yaml_says_the_same_as_json() {
    let ran = run_manifest(&["-o", "yaml"], &job("x", json!({}), "true"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let job: Value = serde_saphyr::from_str(&ran.stdout).expect("YAML");
    assert_eq!((&job["kind"], &job["status"]["succeeded"]), (&json!("Job"), &json!(1)), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("apiVersion: batch/v1\nkind: Job\n"), "{}", ran.stdout);
}

#[test]
fn parallelism_of_the_command_line_goes_before_that_of_the_manifest() {
    let ran =
        run_manifest(&["--parallelism", "3", "-o", "json"], &job("x", json!({"completions": 3}), "true"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.lines("x")[0], "job/x: started: 3 completions, 3 at a time");
    assert_eq!(ran.json()["spec"]["parallelism"], 3);
}

#[test]
fn what_a_job_writes_stays_unless_it_is_isolated() {
    let place = tempfile::tempdir().expect("a directory");
    let results = place.path().join("results");
    let manifest = job("x", json!({}), &format!("echo done > {0}; grep -q done {0}", results.display()));
    for (isolation, stays) in [("pid,files", false), ("none", true)] {
        let ran = run_manifest(&["--isolation", isolation], &manifest);
        assert_eq!((ran.code, results.exists()), (Some(0), stays), "{isolation}: {}", ran.stderr);
    }
    let ran = run_manifest(&["--isolation", "network"], &manifest);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("it is none, auto, pid, files or pid,files"), "{}", ran.stderr);
}

#[test]
fn pods_are_spread_over_nodes() {
    let directory = tempfile::tempdir().expect("a directory");
    let keep = directory.path().to_str().expect("UTF-8");
    let manifest = job("x", json!({"completions": 4, "parallelism": 4}), "echo out; sleep 0.5");
    let ran = run_manifest(&["--nodes", "2", "--keep", keep], &manifest);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let logs =
        |node: &str| std::fs::read_dir(directory.path().join(node).join("logs")).expect("logs").count();
    assert_eq!(logs("node-1") + logs("node-2"), 4, "{}", ran.stderr);
}

#[test]
fn a_dry_run_checks_everything_and_runs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = format!(": > {}", directory.path().join("ran").display());
    let ran = run_manifest(&["--dry-run", "-o", "json"], &job("x", json!({"completions": 2}), &script));
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), "job/x: fine: 2 completions, 1 at a time; not run\n")
    );
    assert_eq!(ran.json()["spec"]["backoffLimit"], 6, "with its defaults");
    assert!(!directory.path().join("ran").exists());
    let wrong = run_manifest(&["--dry-run"], &job("x", json!({"completions": -1}), &script));
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
}

#[test]
fn several_jobs_are_summed_up() {
    let manifest =
        format!("{}\n{}", job("good", json!({}), "true"), job("bad", json!({"backoffLimit": 0}), "exit 1"));
    let ran = run_manifest(&[], &manifest);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().last(), Some("2 Jobs: 1 Complete, 1 Failed"), "{}", ran.stderr);
}

#[test]
fn an_interrupt_in_the_middle_of_several_jobs_says_how_far_they_came() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("jobs.json");
    let manifest = format!("{}\n{}", job("short", json!({}), "true"), job("long", json!({}), "sleep 1000"));
    std::fs::write(&file, manifest).expect("written");
    let mut running = Running::start(&[], &file);
    running.wait_for_lines(&["job/short: Complete"]);
    running.signal(rustix::process::Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(
        ran.stderr.lines().last(),
        Some("2 Jobs: 1 Complete, 0 Failed, 1 not finished"),
        "{}",
        ran.stderr
    );
}
