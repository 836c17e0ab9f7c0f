//! From a draft `backoffPolicy` to a `podFailurePolicy` that says the same, or the reasons why there is none.

use k8s_openapi::api::batch::v1::PodFailurePolicy;
use serde_json::{Value, json};
use windlass_api::draft::{Action, Condition, ExitCodeRanges, Note, Operator, Policy, Rule};

fn policy(rules: Value) -> Policy {
    let value = json!({ "rules": rules });
    Policy::from_value(&value).unwrap_or_else(|errors| panic!("{value}: {errors:?}"))
}

/// What a `podFailurePolicy` with exit codes only does about a pod: the action of its first matching rule.
fn reference<'p>(policy: &'p PodFailurePolicy, containers: &[(&str, i32)]) -> Option<&'p str> {
    policy.rules.iter().find_map(|rule| {
        let on = rule.on_exit_codes.as_ref().expect("only exit codes");
        let is_match = containers.iter().any(|(name, code)| {
            *code != 0
                && on.container_name.as_ref().is_none_or(|wanted| wanted == name)
                && match on.operator.as_str() {
                    "In" => on.values.contains(code),
                    "NotIn" => !on.values.contains(code),
                    other => panic!("operator {other}"),
                }
        });
        is_match.then_some(rule.action.as_str())
    })
}

/// The limits that the validation of a `podFailurePolicy` sets.
fn assert_valid(policy: &PodFailurePolicy) {
    assert!(policy.rules.len() <= 20);
    for rule in &policy.rules {
        let on = rule.on_exit_codes.as_ref().expect("only exit codes");
        assert!((1..=255).contains(&on.values.len()), "{} values", on.values.len());
        assert!(on.values.is_sorted_by(|a, b| a < b), "ordered: {:?}", on.values);
        assert!(on.operator == "NotIn" || !on.values.contains(&0), "0 for In");
    }
}

#[test]
fn a_translated_policy_does_the_same_for_every_exit_code() {
    let everything = "-2147483648--1,1-2147483647";
    for rules in [
        json!([]),
        json!([{ "containerExitCodeNotIn": "40-50", "action": "Terminate" }]),
        json!([{ "containerExitCodeIn": "1-12,100-127", "containerName": "main", "action": "Terminate" }]),
        json!([
            { "containerExitCodeIn": "137,143", "action": "Ignore" },
            { "containerExitCodeNotIn": "0-5", "containerName": "side", "action": "Terminate" },
            { "containerExitCodeIn": "-100--1", "action": "Terminate" },
        ]),
        json!([{ "containerExitCodeIn": "1-255", "action": "Ignore" }]),
        json!([{ "containerExitCodeIn": "1-256", "action": "Ignore" }]),
        json!([{ "containerExitCodeIn": "-290--1,1-290", "action": "Ignore" }]),
        json!([{ "containerExitCodeNotIn": "0-255", "action": "Ignore" }]),
        json!([{ "containerExitCodeNotIn": 0, "action": "Ignore" }]),
        json!([{ "containerExitCodeIn": everything, "action": "Ignore" }]),
        json!([{ "containerExitCodeNotIn": "-2147483648-7,9-2147483647", "action": "Terminate" }]),
        json!([{ "containerExitCodeNotIn": "-2147483648-2147483647", "action": "Terminate" }]),
        json!([
            { "onContainerExitCode": { "valueExpressions": [
                { "operator": "In", "values": ["1-100"] }, { "operator": "NotIn", "values": [7, "40-50"] },
            ] }, "action": "Terminate" },
            { "onContainerExitCode": { "valueNotIn": "7", "containerName": "main" }, "action": "Ignore" },
        ]),
    ] {
        let draft = policy(rules.clone());
        let translation = draft.translate();
        assert_eq!(translation.notes, [], "{rules}");
        let translated = translation.policy.expect("no notes, so a policy");
        assert_valid(&translated);
        for code in -300..=300 {
            for containers in [
                &[("main", code)][..],
                &[("side", code)],
                &[("main", 1), ("side", code)],
                &[("side", 45), ("main", code)],
            ] {
                let want = draft.evaluate(containers.iter().copied(), "").map(|found| match found.action {
                    Action::Terminate => "FailJob",
                    Action::Ignore => "Ignore",
                });
                assert_eq!(reference(&translated, containers), want, "{rules}: {containers:?}");
            }
        }
    }
}

#[test]
fn a_translated_policy_reads_as_one_would_write_it() {
    let translation = policy(json!([
        { "containerExitCodeIn": "1-3,42", "containerName": "main", "action": "Terminate" },
        { "containerExitCodeNotIn": "40-42", "action": "Ignore" },
    ]))
    .translate();
    assert_eq!(
        serde_json::to_value(translation.policy).expect("serialises"),
        json!({ "rules": [
            {
                "action": "FailJob",
                "onExitCodes": { "containerName": "main", "operator": "In", "values": [1, 2, 3, 42] },
            },
            { "action": "Ignore", "onExitCodes": { "operator": "NotIn", "values": [40, 41, 42] } },
        ] })
    );
}

#[test]
fn codes_that_are_too_many_for_one_rule_become_several() {
    let translation = policy(json!([{ "containerExitCodeIn": "1-300", "action": "Ignore" }])).translate();
    let rules = translation.policy.expect("two rules").rules;
    let values: Vec<Vec<i32>> =
        rules.into_iter().filter_map(|rule| rule.on_exit_codes).map(|on| on.values).collect();
    assert_eq!(values, [(1..=255).collect::<Vec<_>>(), (256..=300).collect()]);
}

#[test]
fn codes_that_are_too_many_for_twenty_rules_are_a_note_for_the_rule_that_has_no_room() {
    let why = |ranges: &str| {
        format!(
            "the exit codes {ranges} are too many to list: a podFailurePolicy has at most 20 rules of at most 255 values"
        )
    };
    let fits = json!({ "containerExitCodeIn": "1-5100", "action": "Ignore" });
    assert_eq!(policy(json!([fits])).translate().policy.map(|policy| policy.rules.len()), Some(20));

    for (rules, rule, ranges) in [
        (json!([{ "containerExitCodeIn": "1-5101", "action": "Ignore" }]), 0, "1-5101"),
        (json!([fits, { "containerExitCodeIn": "7", "action": "Ignore" }]), 1, "7"),
        (json!([fits, { "containerExitCodeNotIn": "7", "action": "Ignore" }]), 1, "7"),
        (json!([{ "containerExitCodeNotIn": "1-1000000", "action": "Ignore" }]), 0, "1-1000000"),
    ] {
        let translation = policy(rules).translate();
        assert_eq!(translation.policy, None);
        assert_eq!(translation.notes, [Note { rule, why: why(ranges), nearest: None }]);
    }
}

#[test]
fn a_rule_made_by_hand_without_codes_still_becomes_a_valid_one() {
    let rule = |operator| Rule {
        action: Action::Ignore,
        when: Condition::ExitCodes { container: None, operator, ranges: ExitCodeRanges::default() },
    };
    let values = |operator| {
        let rules = Policy { rules: vec![rule(operator)] }.translate().policy.expect("no notes").rules;
        rules.into_iter().filter_map(|rule| rule.on_exit_codes).map(|on| on.values).collect::<Vec<_>>()
    };
    assert_eq!(values(Operator::In), [[0; 0]; 0], "never matches");
    assert_eq!(values(Operator::NotIn), [[0]], "matches every failure");
}

#[test]
fn a_rule_about_reasons_has_no_equal_and_the_note_says_what_comes_nearest() {
    let sees = "a podFailurePolicy does not see status.reason";
    let nearest = format!("{sees}; the nearest is the condition DisruptionTarget, which");
    let on_disruption = |action: &str| json!({ "action": action, "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] });
    for (rule, why, rule_nearest) in [
        (
            json!({ "podStatusReasonIn": ["Preemption", "NodePressureEviction"], "action": "Ignore" }),
            format!(
                "{nearest} is set for every disruption and not only for \"NodePressureEviction\", \"Preemption\""
            ),
            on_disruption("Ignore"),
        ),
        (
            json!({ "podStatusReasonIn": ["Evicted"], "action": "Terminate" }),
            format!("{nearest} is set for every disruption and not only for \"Evicted\""),
            on_disruption("FailJob"),
        ),
        (
            json!({ "podStatusReasonIn": ["Evicted", "Budget"], "action": "Ignore" }),
            format!(
                "{nearest} is set for every disruption and not only for \"Evicted\", and not for \"Budget\""
            ),
            on_disruption("Ignore"),
        ),
        (
            json!({ "podStatusReasonNotIn": [""], "action": "Ignore" }),
            format!("{nearest} is not set for every reason and may be set without one"),
            on_disruption("Ignore"),
        ),
        (
            json!({ "podStatusReasonIn": ["Budget"], "action": "Ignore" }),
            format!("{sees}, and nothing else stands for \"Budget\""),
            json!(null),
        ),
        (
            json!({ "podStatusReasonNotIn": ["", "Evicted"], "action": "Ignore" }),
            format!("{sees}, and nothing else stands for all but \"\", \"Evicted\""),
            json!(null),
        ),
    ] {
        let first = json!({ "containerExitCodeIn": "1-12", "action": "Terminate" });
        let translation = policy(json!([first, rule])).translate();
        assert_eq!(translation.policy, None, "{rule}");
        let [note] = &translation.notes[..] else { panic!("one note for {rule}: {:?}", translation.notes) };
        assert_eq!((note.rule, &note.why), (1, &why));
        assert_eq!(note.to_string(), format!("rules[1]: {why}"));
        assert_eq!(serde_json::to_value(&note.nearest).expect("serialises"), rule_nearest);
    }
}

#[test]
fn every_rule_without_an_equal_is_named() {
    let translation = policy(json!([
        { "podStatusReasonIn": ["A"], "action": "Ignore" },
        { "containerExitCodeIn": "1", "action": "Ignore" },
        { "podStatusReasonIn": ["B"], "action": "Ignore" },
    ]))
    .translate();
    assert_eq!(translation.notes.iter().map(|note| note.rule).collect::<Vec<_>>(), [0, 2]);
}
