//! `lint`, `explain`, `why`, `completions` and `man`: the whole of what they print, and their exit codes.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kubectl::kubectl;
use crate::server::Served;
use crate::support::{Ran, Running, job, windlass};
use crate::terminal::{draws, screen};

/// Runs the command in a directory that holds `job.yaml`.
fn on_file(args: &[&str], manifest: &str) -> (Ran, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("job.yaml"), manifest).expect("written");
    (Running::spawn(windlass(args).current_dir(directory.path())).finish(), directory)
}

const HEAD: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\nspec:\n";
const TEMPLATE: &str = "  template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: main\n        image: busybox\n        command: [\"true\"]\n";

fn with_rules(rules: &str) -> String {
    format!("{HEAD}  activeDeadlineSeconds: 60\n  podFailurePolicy:\n    rules:\n{rules}{TEMPLATE}")
}

const BAD_ORDER: &str = "    - action: FailJob  # a bug\n      onExitCodes:\n        operator: NotIn\n        values: [42]\n    \
                         - action: Ignore\n      onPodConditions:\n      - type: DisruptionTarget\n";

#[track_caller]
fn assert_lints(manifest: &str, code: i32, stdout: &str, stderr: &str) {
    let (ran, _) = on_file(&["lint", "job.yaml"], manifest);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(code), stdout, stderr));
}

#[test]
fn a_fine_job_has_nothing_to_be_said_about() {
    assert_lints(&format!("{HEAD}{TEMPLATE}"), 0, "", "nothing to say in 1 Job of 1 file\n");
}

#[test]
fn a_finding_shows_its_place_its_text_and_what_to_do() {
    assert_lints(
        &with_rules(BAD_ORDER),
        0,
        "job.yaml:9:7: warning[disruption-order]: job/x: rule 0 (FailJob) catches exit codes 137,143 of a pod that is being \
         disrupted, before rule 1 (Ignore) on DisruptionTarget is asked\n   |\n 9 |     - action: FailJob  # a bug\n   |       \
         ^^^^^^^^^^^^^^^\n   help: put rule 1 in front of rule 0\n",
        "1 warning in 1 Job of 1 file\n",
    );
}

#[test]
fn mistakes_of_every_kind_are_errors_with_their_place() {
    let cases: [(&str, String, &str); 6] = [
        ("syntax", "a: [1\nb: 2\n".to_owned(), "error[unreadable]"),
        (
            "a field",
            format!("{HEAD}  paralelism: 3\n{TEMPLATE}"),
            "job.yaml:6:3: error[wrong-field]: job/x: unknown field \"spec.paralelism\"",
        ),
        (
            "a type",
            format!("{HEAD}  completions: \"5\"\n{TEMPLATE}"),
            "job.yaml:6:3: error[wrong-field]: job/x: spec.completions: invalid type: string \"5\", expected i32",
        ),
        (
            "a value",
            format!("{HEAD}  parallelism: -1\n{TEMPLATE}"),
            "job.yaml:6:3: error[invalid]: job/x: spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "a container",
            with_rules(
                "    - action: FailJob\n      onExitCodes: {containerName: mian, operator: In, values: [1]}\n",
            ),
            "job.yaml:10:21: error[invalid]: job/x: spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: \"mian\"",
        ),
        (
            "a kind",
            "apiVersion: v1\nkind: Job\n".to_owned(),
            "job.yaml:1:1: error[unreadable]: no matches for kind \"Job\" in version \"v1\"",
        ),
    ];
    for (what, manifest, told) in cases {
        let (ran, _) = on_file(&["lint", "job.yaml"], &manifest);
        assert_eq!(ran.code, Some(1), "{what}: {}", ran.stdout);
        assert!(ran.stdout.contains(told), "{what}: {}", ran.stdout);
        assert_eq!(ran.stdout.matches("error[").count(), 1, "{what}: {}", ran.stdout);
    }
}

#[test]
fn strict_fails_on_warnings_and_never_on_notes() {
    let code = |args: &[&str], manifest: &str| on_file(args, manifest).0.code;
    let host = format!("{HEAD}{TEMPLATE}").replace("busybox", "host");
    assert_eq!(code(&["lint", "--strict", "job.yaml"], &with_rules(BAD_ORDER)), Some(1));
    assert_eq!(code(&["lint", "--strict", "job.yaml"], &host), Some(0));
    assert_eq!(code(&["lint", "no-such-file.yaml"], &host), Some(2));
    assert_eq!(code(&["lint", "--fix", "-"], &host), Some(2));
    assert_eq!(code(&["lint"], &host), Some(2));
}

#[test]
fn other_kinds_in_a_file_are_passed_over() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n";
    assert_lints(
        &format!("{HEAD}{TEMPLATE}---\n{service}"),
        0,
        "job.yaml:15:1: note[foreign-kind]: kind \"Service\" of \"v1\" is not looked at\n    |\n 15 | kind: Service\n    | \
         ^^^^^^^^^^^^^\n",
        "1 note in 1 Job of 1 file\n",
    );
}

#[test]
fn fix_changes_the_file_and_keeps_its_comments() {
    let (ran, directory) = on_file(&["lint", "--fix", "--strict", "job.yaml"], &with_rules(BAD_ORDER));
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (
            Some(0),
            "job.yaml: fixed: job/x: rule 1 is put in front of rule 0\n",
            "nothing to say, 1 fixed in 1 Job of 1 file\n"
        )
    );
    let fixed = std::fs::read_to_string(directory.path().join("job.yaml")).expect("read");
    let rules = "    - action: Ignore\n      onPodConditions:\n      - type: DisruptionTarget\n    - action: FailJob  # a bug\n      \
                 onExitCodes:\n        operator: NotIn\n        values: [42]\n";
    assert_eq!(fixed, with_rules(rules));
}

#[test]
fn a_draft_policy_that_has_no_equal_is_told_rule_by_rule() {
    let draft = "  backoffPolicy:\n    rules:\n    - action: Ignore\n      podStatusReasonIn: [Evicted]\n";
    let (ran, directory) = on_file(&["lint", "--fix", "job.yaml"], &format!("{HEAD}{draft}{TEMPLATE}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("warning[draft-policy]: job/x: rule 0 has no equal in a podFailurePolicy"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("warning[stock-cluster]: job/x: a stock cluster drops spec.backoffPolicy"),
        "{}",
        ran.stdout
    );
    let left = std::fs::read_to_string(directory.path().join("job.yaml")).expect("read");
    assert_eq!(left, format!("{HEAD}{draft}{TEMPLATE}"));
}

#[test]
fn machines_get_json_and_sarif() {
    let (ran, _) = on_file(&["lint", "-o", "json", "job.yaml"], &with_rules(BAD_ORDER));
    assert_eq!(
        ran.json(),
        json!([{
            "file": "job.yaml", "line": 9, "column": 7, "document": 1, "object": "job/x", "severity": "warning",
            "id": "disruption-order", "path": "spec.podFailurePolicy.rules[0]", "fixable": true,
            "message": "rule 0 (FailJob) catches exit codes 137,143 of a pod that is being disrupted, before rule 1 (Ignore) \
                        on DisruptionTarget is asked",
            "help": "put rule 1 in front of rule 0",
        }])
    );
    let (ran, _) = on_file(&["lint", "-o", "sarif", "job.yaml"], &with_rules(BAD_ORDER));
    let sarif = ran.json();
    assert_eq!(
        (&sarif["version"], &sarif["runs"][0]["tool"]["driver"]["name"]),
        (&json!("2.1.0"), &json!("windlass lint"))
    );
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!((&result["ruleId"], &result["level"]), (&json!("disruption-order"), &json!("warning")));
    assert_eq!(
        result["locations"][0]["physicalLocation"],
        json!({"artifactLocation": {"uri": "job.yaml"}, "region": {"startLine": 9, "startColumn": 7}})
    );
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(rules.iter().any(|rule| rule["id"] == "disruption-order"));
}

/// Without spaces at the ends of lines, and empty lines: a screen does not show them.
fn without_ends(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[test]
fn on_a_terminal_lint_has_colours_unless_they_are_not_wanted() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("job.yaml"), with_rules(BAD_ORDER)).expect("written");
    let draw = |environment: &[(&str, &str)]| {
        let mut command = windlass(&["lint", "job.yaml"]);
        command.current_dir(directory.path()).envs(environment.iter().copied());
        draws(command, true)
    };
    let (code, drawn) = draw(&[]);
    assert_eq!(code, Some(0), "{drawn}");
    assert!(
        drawn.starts_with("job.yaml:9:7: \x1b[1;33mwarning[disruption-order]:\x1b[0m job/x: rule 0"),
        "{drawn:?}"
    );
    let (piped, _) = on_file(&["lint", "job.yaml"], &with_rules(BAD_ORDER));
    let told = format!("{}{}", piped.stdout, piped.stderr);
    assert_eq!(screen(&drawn).join("\n"), without_ends(&told), "the words are the same");
    let (_, plain) = draw(&[("NO_COLOR", "1")]);
    assert_eq!(plain.replace("\r\n", "\n"), told);
}

#[test]
fn every_example_is_linted_without_an_error() {
    let examples = std::fs::read_dir(crate::support::examples()).expect("examples");
    let files: Vec<PathBuf> = examples.map(|entry| entry.expect("an entry").path()).collect();
    let mut command = windlass(&["lint", "-o", "json"]);
    command.args(&files);
    let ran = Running::spawn(&mut command).finish();
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    let found = ran.json();
    let warned: Vec<(&str, &str)> = found
        .as_array()
        .expect("a list")
        .iter()
        .filter(|it| it["severity"] == "warning")
        .map(|it| {
            let file = Path::new(it["file"].as_str().expect("a file"));
            (
                file.file_name().and_then(|name| name.to_str()).expect("UTF-8"),
                it["id"].as_str().expect("an id"),
            )
        })
        .collect();
    let mut warned = warned;
    warned.sort_unstable();
    // The stories of the documents are as the documents tell them.
    let draft = |name| [(name, "stock-cluster")];
    let expected = [
        vec![("lint-me.yaml", "covered-exit-code"), ("lint-me.yaml", "disruption-order")],
        vec![("story-draft-policy-1-exit-code-ranges.yaml", "disruption-fails-job")],
        draft("story-draft-policy-1-exit-code-ranges.yaml").to_vec(),
        vec![("story-draft-policy-2-status-reasons.yaml", "draft-policy")],
        draft("story-draft-policy-2-status-reasons.yaml").to_vec(),
        vec![("story-pod-failure-policy-1-bugs.yaml", "disruption-fails-job")],
    ];
    assert_eq!(warned, expected.concat());
}

fn explained(args: &[&str], manifest: &str) -> String {
    let args: Vec<&str> = ["explain"].into_iter().chain(args.iter().copied()).chain(["job.yaml"]).collect();
    let (ran, _) = on_file(&args, manifest);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    ran.stdout
}

const GOOD_RULES: &str = "    - action: Ignore\n      onPodConditions:\n      - type: DisruptionTarget\n    - action: FailJob\n      \
                          onExitCodes:\n        operator: In\n        values: [3, 42]\n";

#[test]
fn a_policy_is_explained_as_a_table() {
    assert_eq!(
        explained(&[], &with_rules(GOOD_RULES)),
        "job/x: podFailurePolicy of 2 rules

  A FAILED POD                      RULE        MEANS
  condition DisruptionTarget=True   0 Ignore    does not count; another pod takes its place
  main exits with 3,42              1 FailJob   counts, and the Job fails at once
  main exits with 1-2,4-41,43-255   none        counts; the Job fails after more than 6

  Of several rules that match, the one with the lowest number decides.
  Limits: backoffLimit 6, activeDeadlineSeconds 60. A pod is replaced when it has stopped.
  A retry waits 10s, 20s, 40s, … at most 10m, with each failure of the Job.
"
    );
    let none = explained(&[], &format!("{HEAD}{TEMPLATE}"));
    assert!(none.starts_with("job/x: no failure policy: every failure counts\n"), "{none}");
}

#[test]
fn on_a_terminal_a_policy_is_explained_with_the_same_words() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("job.yaml"), with_rules(GOOD_RULES)).expect("written");
    for question in [&[][..], &["--exit-code", "42"], &["--timeline", "1*2,0"]] {
        let mut command = windlass(&["explain"]);
        command.args(question).arg("job.yaml").current_dir(directory.path());
        let (code, drawn) = draws(command, true);
        let piped = explained(question, &with_rules(GOOD_RULES));
        assert_eq!((code, drawn.replace("\r\n", "\n")), (Some(0), piped), "{question:?}");
    }
}

#[test]
fn one_pod_is_explained_with_rule_counters_and_what_comes_next() {
    let explain = |args: &[&str]| explained(args, &with_rules(GOOD_RULES));
    assert_eq!(
        explain(&["--exit-code", "42"]),
        "job/x: a pod fails: container main exits with 42
  rule 1 (FailJob) matches exit code 42 of container main
  failed 0 → 1
  the Job is Failed (PodFailurePolicy): Container main for pod default/job-bqshs failed with exit code 42 matching FailJob rule at index 1
"
        .replace("job-bqshs", pod_name(&explain(&["--exit-code", "42"])))
    );
    assert_eq!(
        explain(&["--exit-code", "1", "--container", "main"]),
        "job/x: a pod fails: container main exits with 1
  no rule matches: the failure counts
  failed 0 → 1; the Job may have 6
  the next pod starts 10s later
"
    );
    assert_eq!(
        explain(&["--exit-code", "143", "--condition", "DisruptionTarget"]),
        "job/x: a pod fails: container main exits with 143, condition DisruptionTarget=True
  rule 0 (Ignore) matches condition DisruptionTarget
  failed stays 0: the failure does not count
  the next pod starts 10s later
"
    );
}

/// The name of the pod that a message speaks of.
fn pod_name(text: &str) -> &str {
    text.split("default/").nth(1).and_then(|rest| rest.split(' ').next()).expect("a pod")
}

#[test]
fn a_sequence_is_explained_pod_by_pod() {
    assert_eq!(
        explained(&["--timeline", "1,DisruptionTarget,42"], &with_rules(GOOD_RULES)).split("After").next(),
        Some(
            "job/x: each pod runs for 1s

  START   END   OUTCOME                                                         VERDICT            FAILED   SUCCEEDED
  0s      1s    container main exits with 1                                     counts             1        0
  11s     12s   container main exits with 143, condition DisruptionTarget=True   rule 0 (Ignore)    1        0
  32s     33s   container main exits with 42                                    rule 1 (FailJob)   2        0

  "
            .replace("OUTCOME                                                         VERDICT", "OUTCOME                                                          VERDICT")
            .replace("with 1                                     counts", "with 1                                      counts")
            .replace("with 42                                    rule", "with 42                                     rule")
            .as_str()
        )
    );
}

#[test]
fn questions_that_make_no_sense_are_refused_with_a_hint() {
    let manifest = with_rules(GOOD_RULES);
    for (args, told) in [
        (vec!["--exit-code", "0"], "error: job.yaml: job/x: 0 is no exit code of a failure\nhint: "),
        (
            vec!["--exit-code", "1", "--container", "nobody"],
            "error: job.yaml: job/x: there is no container \"nobody\"\nhint: ",
        ),
        (
            vec!["--container", "main"],
            "error: job.yaml: job/x: --container says nothing without an exit code\nhint: ",
        ),
        (vec!["--timeline", "1,,2"], "error: job.yaml: job/x: an outcome is missing\nhint: "),
        (vec!["--timeline", "1*0"], "error: job.yaml: job/x: \"1*0\" is repeated strangely\nhint: "),
        (vec!["--job", "y"], "error: job.yaml: there is no Job \"y\"\nhint: "),
        (
            vec!["--backoff-base", "2s", "--backoff-max", "1s"],
            "error: --backoff-max 1s is shorter than --backoff-base 2s\nhint: ",
        ),
    ] {
        let args: Vec<&str> = ["explain"].into_iter().chain(args).chain(["job.yaml"]).collect();
        let (ran, _) = on_file(&args, &manifest);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.stderr.starts_with(told), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn why_without_a_server_says_how_to_reach_one() {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = windlass(&["why", "x"]);
    for name in ["KUBECONFIG", "XDG_DATA_HOME", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(name);
    }
    let ran = Running::spawn(command.env("HOME", home.path())).finish();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhint: name a file with --kubeconfig"), "{}", ran.stderr);
}

#[test]
fn why_knows_what_became_of_pods_that_are_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let mut manifest: Value =
        serde_json::from_str(&job("x", json!({"backoffLimit": 1}), "echo out of luck >&2; exit 3"))
            .expect("JSON");
    manifest["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"] =
        json!("FallbackToLogsOnError");
    let file = directory.path().join("job.json");
    std::fs::write(&file, manifest.to_string()).expect("written");
    let must = |args: &[&str]| {
        let (is_fine, text) = kubectl(directory.path(), args);
        assert!(is_fine, "{args:?}: {text}");
    };
    must(&["create", "-f", file.to_str().expect("UTF-8")]);
    must(&["wait", "--for=condition=Failed", "job/x", "--timeout=60s"]);
    let kubeconfig = directory.path().join("kubeconfig");
    let why = |name: &str| {
        let kubeconfig = kubeconfig.to_str().expect("UTF-8");
        Running::spawn(&mut windlass(&["why", "--kubeconfig", kubeconfig, name])).finish()
    };
    let told = |ran: Ran| {
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
        // Columns are as wide as the times in them.
        let normal = |line: &str| line.split_whitespace().map(mask_time).collect::<Vec<_>>().join(" ");
        ran.stdout.lines().map(normal).collect::<Vec<_>>()
    };
    let mut on_terminal = windlass(&["why", "x"]);
    on_terminal.env("KUBECONFIG", &kubeconfig);
    let (code, drawn) = draws(on_terminal, true);
    let piped = why("x").stdout;
    assert_eq!((code, drawn.replace("\r\n", "\n")), (Some(0), piped), "a terminal is shown the same");
    let with_pods = told(why("x"));
    must(&["delete", "pods", "--all", "--wait"]);
    let without = told(why("x"));
    assert_eq!(with_pods, without);
    let name = without.iter().find(|line| line.ends_with(": out of luck")).expect("the last words").clone();
    let row = without.iter().find(|line| line.starts_with("2 no rule")).expect("a group");
    assert!(
        row.starts_with("2 no rule matches: counted container main: exit code 3 node-1 0 → 2 TIME"),
        "{without:#?}"
    );
    let start: Vec<&str> = without.iter().take(4).map(String::as_str).collect();
    let heading = "job/x: Failed (BackoffLimitExceeded) after TIME";
    let columns = "PODS VERDICT EVIDENCE NODES FAILED WHEN";
    assert_eq!(start, [heading, "Job has reached the specified backoff limit", "", columns]);
    let end = ["", name.as_str(), "", "0 succeeded, 2 failed, 0 ignored; backoffLimit 1"];
    assert_eq!(without[5..], end, "{without:#?}");
    let nobody = why("y");
    assert_eq!(nobody.code, Some(1));
    assert!(
        nobody.stderr.starts_with("error: there is no Job \"y\" in namespace \"default\"\nhint: "),
        "{}",
        nobody.stderr
    );
    assert_eq!(served.stop(), Some(0));
}

/// Times and spans differ from run to run.
fn mask_time(word: &str) -> &str {
    let is_span = word.ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit());
    if is_span || word.parse::<jiff::Timestamp>().is_ok() { "TIME" } else { word }
}

#[test]
fn every_command_has_help_with_examples_and_a_page() {
    let commands =
        ["run", "lint", "explain", "why", "server", "node", "controller", "token", "completions", "man"];
    for command in commands {
        let (ran, _) = on_file(&[command, "--help"], "");
        assert_eq!(ran.code, Some(0), "{command}");
        assert!(ran.stdout.contains("\nExamples:\n"), "{command}: {}", ran.stdout);
    }
    let (ran, directory) = on_file(&["man", "pages"], "");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    for command in commands {
        let page = directory.path().join(format!("pages/windlass-{command}.1"));
        assert!(std::fs::read_to_string(page).is_ok_and(|page| page.contains(".TH")), "{command}");
    }
}

#[test]
fn a_terminal_is_told_what_a_pipe_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().to_str().expect("UTF-8");
    for args in [
        &["completions", "bash"][..],
        &["man", place],
        &["lint", "/nowhere.yaml"],
        &["run", "/nowhere.yaml"],
        &["explain", "/nowhere.yaml"],
        &["why", "--kubeconfig", "/nowhere", "x"],
        &["server", "--data-dir", "/proc/nowhere"],
        &["node", "--kubeconfig", "/nowhere", "--data-dir", place],
        &["controller", "--kubeconfig", "/nowhere"],
        &["token", "--data-dir", "/proc/nowhere", "--user", "x"],
    ] {
        let piped = Running::spawn(&mut windlass(args)).finish();
        let (code, drawn) = draws(windlass(args), true);
        let told = without_ends(&format!("{}\n{}", piped.stdout, piped.stderr));
        assert_eq!((code, screen(&drawn).join("\n")), (piped.code, told), "{args:?}");
    }
}

#[test]
fn shells_are_told_of_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (ran, _) = on_file(&["completions", shell], "");
        assert_eq!(ran.code, Some(0), "{shell}");
        for command in ["run", "lint", "explain", "why"] {
            assert!(ran.stdout.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn json_is_linted_too() {
    let manifest = job("x", json!({"completions": -1}), "true");
    let (ran, _) = on_file(&["lint", "-o", "json", "job.yaml"], &manifest);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let errors: Vec<Value> = ran
        .json()
        .as_array()
        .expect("a list")
        .iter()
        .filter(|it| it["severity"] == "error")
        .cloned()
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["path"], "spec.completions");
}
