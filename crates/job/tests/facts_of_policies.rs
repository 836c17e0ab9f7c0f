//! Which rule of a policy matches which pod.

mod common;

use common::{Bench, PodBuilder, job, on_condition, on_exit, pod};
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::indexes::IndexSet;
use windlass_job::policy::failure::{Action, Evidence, RuleMatch};
use windlass_job::policy::success::{SuccessRule, first_met};
use windlass_job::{JobFacts, PodFacts};

fn evaluate(rules: Vec<Value>, pod: &PodBuilder) -> Option<RuleMatch> {
    let job = JobFacts::from_job(&job().policy(rules).build(), None, &Gates::default());
    PodFacts::from_pod(&pod.build(), &job).rule.map(|rule| *rule)
}

fn exit(rule: usize, action: Action, name: &'static str, container: &str, code: i32) -> Option<RuleMatch> {
    let evidence = Evidence::ExitCode { container: container.to_owned(), code };
    Some(RuleMatch { rule, action, evidence, action_name: name })
}

fn state(code: i32) -> Value {
    json!({ "terminated": { "exitCode": code } })
}

#[test]
fn exit_codes_are_matched_by_operator_container_and_order() {
    let of = |container: &str, rule: Value| {
        let mut rule = rule;
        rule["onExitCodes"]["containerName"] = container.into();
        rule
    };
    let failed = |code| pod("p").phase("Failed").container("main", 0, state(code));
    let two = || failed(0).container("side", 0, state(7));
    let init =
        || pod("p").phase("Failed").init_container("setup", 0, state(9)).container("main", 0, state(8));
    let ignore = |container: &str, code| exit(0, Action::Ignore, "Ignore", container, code);
    let rule = |operator: &str, codes: &[i32]| vec![on_exit("Ignore", operator, codes)];
    let cases: Vec<(&str, Vec<Value>, PodBuilder, Option<RuleMatch>)> = vec![
        ("in", rule("In", &[3, 1, 2]), failed(2), ignore("main", 2)),
        ("not in the list", rule("In", &[3, 1, 2]), failed(4), None),
        ("NotIn", rule("NotIn", &[3, 1, 2]), failed(4), ignore("main", 4)),
        ("NotIn, listed", rule("NotIn", &[3, 1, 2]), failed(2), None),
        (
            "a negative code",
            rule("In", &[-1_073_741_510, 137]),
            failed(-1_073_741_510),
            ignore("main", -1_073_741_510),
        ),
        ("code 0 never matches In", rule("In", &[0]), failed(0), None),
        ("code 0 never matches NotIn", rule("NotIn", &[5]), failed(0), None),
        ("the container that failed", rule("NotIn", &[5]), two(), ignore("side", 7)),
        ("of that container", vec![of("side", on_exit("Ignore", "In", &[7]))], two(), ignore("side", 7)),
        ("of another container", vec![of("main", on_exit("Ignore", "In", &[7]))], two(), None),
        ("containers before init containers", rule("NotIn", &[1]), init(), ignore("main", 8)),
        ("an init container", rule("In", &[9]), init(), ignore("setup", 9)),
        (
            "a container that still runs",
            rule("NotIn", &[1]),
            pod("p").phase("Failed").container("main", 0, json!({ "running": {} })),
            None,
        ),
        (
            "a container without a state",
            rule("NotIn", &[1]),
            pod("p").phase("Failed").container("main", 0, json!(null)),
            None,
        ),
        ("an unknown operator", rule("Near", &[2]), failed(2), None),
        (
            "an unknown action is passed over",
            vec![on_exit("Explode", "In", &[2]), on_exit("Count", "In", &[2])],
            failed(2),
            exit(1, Action::Count, "Count", "main", 2),
        ),
        (
            "the first that matches",
            vec![on_exit("Ignore", "In", &[9]), on_exit("FailJob", "In", &[2]), on_exit("Count", "In", &[2])],
            failed(2),
            exit(1, Action::FailJob, "FailJob", "main", 2),
        ),
        (
            "FailIndex",
            vec![on_exit("FailIndex", "In", &[2])],
            failed(2),
            exit(0, Action::FailIndex, "FailIndex", "main", 2),
        ),
        ("a rule without a requirement", vec![json!({ "action": "FailJob" })], failed(2), None),
        ("no rules", vec![], failed(2), None),
        ("a pod that succeeded", rule("NotIn", &[1]), two().phase("Succeeded"), None),
        ("a pod without a status", rule("NotIn", &[1]), pod("p").with(json!({ "status": null })), None),
    ];
    for (what, rules, pod, want) in cases {
        assert_eq!(evaluate(rules, &pod), want, "{what}");
    }
}

#[test]
fn conditions_are_matched_by_type_and_status_in_the_order_of_the_pod() {
    let failed = || pod("p").phase("Failed");
    let found = |kind: &str| {
        let evidence = Evidence::Condition(kind.to_owned());
        Some(RuleMatch { rule: 0, action: Action::Ignore, evidence, action_name: "Ignore" })
    };
    let patterns = |patterns: Value| vec![json!({ "action": "Ignore", "onPodConditions": patterns })];
    let both = || patterns(json!([{ "type": "A", "status": "True" }, { "type": "B", "status": "True" }]));
    let cases: Vec<(&str, Vec<Value>, PodBuilder, Option<RuleMatch>)> = vec![
        ("there", vec![on_condition("Ignore", "A")], failed().condition("A", "True"), found("A")),
        ("false", vec![on_condition("Ignore", "A")], failed().condition("A", "False"), None),
        ("not there", vec![on_condition("Ignore", "A")], failed().condition("B", "True"), None),
        ("any pattern", both(), failed().condition("B", "True"), found("B")),
        ("the pod's first", both(), failed().condition("B", "True").condition("A", "True"), found("B")),
        (
            "a status that is asked for",
            patterns(json!([{ "type": "A", "status": "Unknown" }])),
            failed().condition("A", "Unknown"),
            found("A"),
        ),
        (
            "no status means True",
            patterns(json!([{ "type": "A" }])),
            failed().condition("A", "True"),
            found("A"),
        ),
        ("no patterns", patterns(json!([])), failed().condition("A", "True"), None),
    ];
    for (what, rules, pod, want) in cases {
        assert_eq!(evaluate(rules, &pod), want, "{what}");
    }
}

#[test]
fn a_match_is_told_in_upstreams_words() {
    let exit = exit(2, Action::FailJob, "FailJob", "main", 5).expect("a match");
    let message = "Container main for pod lab/p failed with exit code 5 matching FailJob rule at index 2";
    assert_eq!(exit.message("lab", "p"), message);
    assert_eq!(exit.to_string(), "rule 2 (FailJob) matches exit code 5 of container main");
    let condition =
        RuleMatch { evidence: Evidence::Condition("DisruptionTarget".to_owned()), ..exit.clone() };
    let message = "Pod lab/p has condition DisruptionTarget matching FailJob rule at index 2";
    assert_eq!(condition.message("lab", "p"), message);
    assert_eq!(condition.to_string(), "rule 2 (FailJob) matches condition DisruptionTarget");
    let reason =
        RuleMatch { evidence: Evidence::Reason("Preemption".to_owned()), action_name: "Terminate", ..exit };
    let message = "Pod lab/p has status reason Preemption matching Terminate rule at index 2";
    assert_eq!(reason.message("lab", "p"), message);
    assert_eq!(reason.to_string(), "rule 2 (Terminate) matches status reason Preemption");
    let names: Vec<String> = [Action::FailJob, Action::FailIndex, Action::Ignore, Action::Count]
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["FailJob", "FailIndex", "Ignore", "Count"]);
}

#[test]
fn a_draft_policy_matches_ranges_and_status_reasons() {
    let rules = json!({ "rules": [
        { "podStatusReasonIn": ["Preemption"], "action": "Ignore" },
        { "containerExitCodeNotIn": "40-50", "action": "Terminate" },
    ] });
    let mut bench = Bench::with_draft(job(), rules);
    let failed = |name: &str, code| pod(name).phase("Failed").container("main", 0, state(code));
    bench
        .add(failed("preempted", 143).with(json!({ "status": { "reason": "Preemption" } })))
        .add(failed("retriable", 45))
        .add(failed("broken", 1));
    let rule = |uid: &str| bench.pod_facts(uid).rule.map(|rule| *rule);
    let ignored = RuleMatch {
        rule: 0,
        action: Action::Ignore,
        evidence: Evidence::Reason("Preemption".to_owned()),
        action_name: "Ignore",
    };
    assert_eq!(rule("preempted"), Some(ignored));
    assert_eq!(rule("retriable"), None);
    assert_eq!(rule("broken"), exit(1, Action::FailJob, "Terminate", "main", 1));
}

#[test]
fn success_rules_are_met_by_all_their_indexes_or_by_as_many_as_they_say() {
    let rule = |value: Value| SuccessRule::new(&serde_json::from_value(value).expect("a rule"), Some(10));
    let cases = [
        (json!({ "succeededIndexes": "1-3" }), "1-3", true),
        (json!({ "succeededIndexes": "1-3" }), "0-2,4-9", false),
        (json!({ "succeededIndexes": "1-3", "succeededCount": 2 }), "0-2", true),
        (json!({ "succeededIndexes": "1-3", "succeededCount": 2 }), "0,1,4-9", false),
        (json!({ "succeededIndexes": "1-3", "succeededCount": 9 }), "1-3", true),
        (json!({ "succeededIndexes": "7-20" }), "7-9", true),
        (json!({ "succeededIndexes": "12-20" }), "0-9", false),
        (json!({ "succeededIndexes": "" }), "0-9", false),
        (json!({ "succeededCount": 3 }), "2,5,8", true),
        (json!({ "succeededCount": 3 }), "2,5", false),
        (json!({ "succeededCount": 0 }), "", false),
        (json!({ "succeededCount": -1 }), "0", true),
        (json!({}), "0-9", false),
    ];
    for (value, completed, want) in cases {
        let met = first_met(&[rule(value.clone())], &IndexSet::parse_lenient(completed, 10));
        assert_eq!(met, want.then_some(0), "{value} of {completed:?}");
    }
    let rules =
        [json!({ "succeededIndexes": "5" }), json!({ "succeededCount": 1 }), json!({ "succeededCount": 1 })];
    assert_eq!(
        first_met(&rules.map(rule), &IndexSet::parse_lenient("0", 10)),
        Some(1),
        "the first that is met"
    );
    let lost =
        SuccessRule::new(&serde_json::from_value(json!({ "succeededIndexes": "0" })).expect("a rule"), None);
    assert_eq!(first_met(&[lost], &IndexSet::parse_lenient("0", 10)), None, "a Job without completions");
}
