//! Reading and evaluating the draft `backoffPolicy`, in all its spellings.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_api::draft::{
    Action, Condition, Evidence, ExitCodeRanges, Match, Operator, ParseError, Policy, Rule,
};

fn policy(value: Value) -> Policy {
    Policy::from_value(&value).unwrap_or_else(|errors| panic!("{value}: {errors:?}"))
}

fn ranges(text: &str) -> ExitCodeRanges {
    ExitCodeRanges::parse(text).expect(text)
}

fn codes(action: Action, container: Option<&str>, operator: Operator, text: &str) -> Rule {
    let container = container.map(str::to_owned);
    Rule { action, when: Condition::ExitCodes { container, operator, ranges: ranges(text) } }
}

fn reasons(action: Action, operator: Operator, reasons: &[&str]) -> Rule {
    let reasons: BTreeSet<String> = reasons.iter().map(|&reason| reason.to_owned()).collect();
    Rule { action, when: Condition::Reason { operator, reasons } }
}

fn evaluate(policy: &Policy, containers: &[(&str, i32)], reason: &str) -> Option<Match> {
    policy.evaluate(containers.iter().copied(), reason)
}

fn exit(rule: usize, action: Action, container: &str, code: i32) -> Option<Match> {
    Some(Match { rule, action, evidence: Evidence::Exit { container: container.to_owned(), code } })
}

fn because(rule: usize, action: Action, reason: &str) -> Option<Match> {
    Some(Match { rule, action, evidence: Evidence::Reason(reason.to_owned()) })
}

#[test]
fn all_spellings_of_a_policy_are_the_same_policy() {
    let want = Policy {
        rules: vec![
            codes(Action::Terminate, Some("main-job-container"), Operator::In, "1-12,100-127"),
            reasons(Action::Ignore, Operator::In, &["Preemption", "NodePressureEviction"]),
        ],
    };
    let exit_code = json!({ "valueIn": "1-12,100-127", "containerName": "main-job-container" });
    let status = json!({ "reasonIn": ["Preemption", "NodePressureEviction"] });
    let exit_code_expression = json!({
        "valueExpressions": [{ "operator": "In", "values": ["100-127", "1-11", 12] }],
        "containerName": "main-job-container",
    });
    let status_expression = json!({
        "reasonExpressions": [{ "operator": "In", "values": ["Preemption", "NodePressureEviction"] }],
    });
    for rules in [
        json!([
            {
                "containerExitCodeIn": "1-12,100-127",
                "containerName": "main-job-container",
                "action": "Terminate",
            },
            { "podStatusReasonIn": ["NodePressureEviction", "Preemption"], "action": "Ignore" },
        ]),
        json!([
            { "action": "Terminate", "onContainerExitCode": exit_code },
            { "action": "Ignore", "onPodStatus": status },
        ]),
        json!([
            { "action": "Terminate", "condition": { "onContainerExitCode": exit_code } },
            { "action": "Ignore", "condition": { "onPodStatus": status } },
        ]),
        json!([
            { "action": "Terminate", "onContainerExitCode": exit_code_expression },
            { "action": "Ignore", "onPodStatus": status_expression },
        ]),
        json!([
            { "action": "Terminate", "condition": { "onContainerExitCode": exit_code_expression } },
            { "action": "Ignore", "condition": { "onPodStatus": status_expression } },
        ]),
    ] {
        assert_eq!(policy(json!({ "rules": rules })), want, "{rules}");
    }
}

#[test]
fn the_negative_operators_are_the_same_in_all_spellings() {
    let want = Policy {
        rules: vec![
            codes(Action::Terminate, None, Operator::NotIn, "40-50"),
            reasons(Action::Ignore, Operator::NotIn, &[""]),
        ],
    };
    for rules in [
        json!([
            { "containerExitCodeNotIn": "40-50", "action": "Terminate" },
            { "podStatusReasonNotIn": [""], "action": "Ignore" },
        ]),
        json!([
            { "onContainerExitCode": { "valueNotIn": "40-50" }, "action": "Terminate" },
            { "onPodStatus": { "reasonNotIn": [""] }, "action": "Ignore" },
        ]),
        json!([
            {
                "onContainerExitCode": { "valueExpressions": [{ "operator": "NotIn", "values": ["40-50"] }] },
                "action": "Terminate",
            },
            {
                "onPodStatus": { "reasonExpressions": [{ "operator": "NotIn", "values": [""] }] },
                "action": "Ignore",
            },
        ]),
    ] {
        assert_eq!(policy(json!({ "rules": rules })), want, "{rules}");
    }
}

#[test]
fn several_expressions_must_all_hold() {
    for (expressions, operator, want) in [
        (json!([["In", "1-10"], ["In", "5-20"]]), Operator::In, "5-10"),
        (json!([["In", "1-10"], ["NotIn", "4-6"]]), Operator::In, "1-3,7-10"),
        (json!([["NotIn", "4-6"], ["In", "1-10"]]), Operator::In, "1-3,7-10"),
        (json!([["NotIn", "4-6"], ["NotIn", "7,9"]]), Operator::NotIn, "4-7,9"),
        (json!([["NotIn", 0], ["In", "1-10"], ["NotIn", "-5-8"]]), Operator::In, "9-10"),
    ] {
        let expressions: Vec<Value> = expressions
            .as_array()
            .expect("a list")
            .iter()
            .map(|pair| json!({ "operator": pair[0], "values": [pair[1]] }))
            .collect();
        let rule = json!({ "action": "Ignore", "onContainerExitCode": { "valueExpressions": expressions } });
        assert_eq!(
            policy(json!({ "rules": [rule] })).rules,
            [codes(Action::Ignore, None, operator, want)],
            "{rule}"
        );
    }
    let rule = json!({ "action": "Ignore", "onPodStatus": { "reasonExpressions": [
        { "operator": "In", "values": ["A", "B", "C"] },
        { "operator": "NotIn", "values": ["B"] },
    ] } });
    assert_eq!(
        policy(json!({ "rules": [rule] })).rules,
        [reasons(Action::Ignore, Operator::In, &["A", "C"])]
    );
}

#[test]
fn a_policy_may_have_no_rules_and_a_null_is_no_value() {
    for value in [json!({}), json!({ "rules": [] }), json!({ "rules": null })] {
        assert_eq!(policy(value), Policy::default());
    }
    let rule = json!({
        "action": "Ignore", "containerExitCodeIn": 42, "containerName": null, "podStatusReasonIn": null,
        "onPodStatus": null, "condition": null,
    });
    assert_eq!(policy(json!({ "rules": [rule] })).rules, [codes(Action::Ignore, None, Operator::In, "42")]);
}

#[test]
fn a_policy_is_written_in_the_main_spelling_and_read_again_as_itself() {
    let all = Policy {
        rules: vec![
            codes(Action::Terminate, Some("main"), Operator::In, "1-12,100-127"),
            codes(Action::Ignore, None, Operator::NotIn, "-5--1,40"),
            reasons(Action::Ignore, Operator::In, &["Preemption"]),
            reasons(Action::Terminate, Operator::NotIn, &["", "Evicted"]),
        ],
    };
    let value = serde_json::to_value(&all).expect("serialises");
    assert_eq!(
        value,
        json!({ "rules": [
            { "containerExitCodeIn": "1-12,100-127", "containerName": "main", "action": "Terminate" },
            { "containerExitCodeNotIn": "-5--1,40", "action": "Ignore" },
            { "podStatusReasonIn": ["Preemption"], "action": "Ignore" },
            { "podStatusReasonNotIn": ["", "Evicted"], "action": "Terminate" },
        ] })
    );
    assert_eq!(serde_json::from_value::<Policy>(value).expect("deserialises"), all);
}

#[test]
fn a_policy_that_cannot_be_read_says_why() {
    let error = serde_json::from_value::<Policy>(json!({ "rules": [{}] })).expect_err("nothing in the rule");
    assert_eq!(
        error.to_string(),
        "rules[0].action: Required value: valid values: [\"Ignore\" \"Terminate\"], \
         rules[0]: Invalid value: specifying one of containerExitCodeIn, containerExitCodeNotIn, \
         podStatusReasonIn, podStatusReasonNotIn, onContainerExitCode, onPodStatus, condition is required"
    );
    assert!(serde_json::from_str::<Policy>("{").is_err());
}

#[test]
fn story_1_terminates_on_every_code_but_the_retriable_ones() {
    let story = policy(json!({ "rules": [{ "containerExitCodeNotIn": "40-50", "action": "Terminate" }] }));
    for code in -300..=300 {
        let want = if code == 0 || (40..=50).contains(&code) {
            None
        } else {
            exit(0, Action::Terminate, "job-container", code)
        };
        assert_eq!(evaluate(&story, &[("job-container", code)], ""), want);
    }
}

#[test]
fn story_2_ignores_the_named_reasons_or_any() {
    let named = policy(
        json!({ "rules": [{ "podStatusReasonIn": ["Preemption", "NodePressureEviction"], "action": "Ignore" }] }),
    );
    let any = policy(json!({ "rules": [{ "podStatusReasonNotIn": [""], "action": "Ignore" }] }));
    let failed = [("main-job-container", 1)];
    for (reason, by_named, by_any) in [
        ("", false, false),
        ("Preemption", true, true),
        ("NodePressureEviction", true, true),
        ("Other", false, true),
    ] {
        let ignored = because(0, Action::Ignore, reason);
        assert_eq!(evaluate(&named, &failed, reason), ignored.clone().filter(|_| by_named), "{reason:?}");
        assert_eq!(evaluate(&any, &failed, reason), ignored.filter(|_| by_any), "{reason:?}");
    }
}

#[test]
fn the_first_matching_rule_decides_and_the_first_matching_container_is_the_evidence() {
    let policy = policy(json!({ "rules": [
        { "containerExitCodeIn": "1-12,100-127", "containerName": "main", "action": "Terminate" },
        { "podStatusReasonNotIn": [""], "action": "Ignore" },
        { "containerExitCodeNotIn": "40-50", "action": "Ignore" },
    ] }));
    for (containers, reason, want) in [
        (&[("main", 12)][..], "Preemption", exit(0, Action::Terminate, "main", 12)),
        (&[("main", 13)], "Preemption", because(1, Action::Ignore, "Preemption")),
        (&[("side", 12)], "", exit(2, Action::Ignore, "side", 12)),
        (&[("side", 12), ("main", 127)], "", exit(0, Action::Terminate, "main", 127)),
        (&[("main", 40), ("side", 45), ("init", 7), ("last", 8)], "", exit(2, Action::Ignore, "init", 7)),
        (&[("main", 40), ("side", 50)], "", None),
        (&[], "", None),
        (&[("main", 0)], "", None),
        (&[], "Preemption", because(1, Action::Ignore, "Preemption")),
    ] {
        assert_eq!(evaluate(&policy, containers, reason), want, "{containers:?} {reason:?}");
    }
}

#[test]
fn a_reason_outside_of_the_list_may_be_the_empty_one() {
    let policy = policy(json!({ "rules": [{ "podStatusReasonNotIn": ["Evicted"], "action": "Terminate" }] }));
    assert_eq!(evaluate(&policy, &[], ""), because(0, Action::Terminate, ""));
    assert_eq!(evaluate(&policy, &[], "Evicted"), None);
}

#[test]
fn ranges_are_sorted_and_merged() {
    for (text, want) in [
        ("42", "42"),
        ("1-12,100-127", "1-12,100-127"),
        ("100-127,1-12", "1-12,100-127"),
        ("1,2,3,5", "1-3,5"),
        ("1-10,3-4,8-12", "1-12"),
        ("7-7", "7"),
        ("007", "7"),
        ("-5", "-5"),
        ("-5--1", "-5--1"),
        ("-5-3", "-5-3"),
        ("-2147483648-2147483647", "-2147483648-2147483647"),
        ("5-2147483647,1-2147483647", "1-2147483647"),
    ] {
        assert_eq!(ranges(text).to_string(), want, "{text}");
    }
}

#[test]
fn a_text_that_is_no_ranges_is_refused_with_the_piece() {
    assert_eq!(ExitCodeRanges::parse(""), Err(ParseError::Empty));
    for (text, piece) in [
        ("x", "x"),
        ("1,", ""),
        (",1", ""),
        ("1, 2", " 2"),
        ("1-2-3", "1-2-3"),
        ("4,1-", "1-"),
        ("-", "-"),
        ("--", "--"),
        ("--5", "--5"),
        ("+5", "+5"),
        ("1-+5", "1-+5"),
        ("1.5", "1.5"),
        ("2147483648", "2147483648"),
        ("1-2147483648", "1-2147483648"),
        ("é-1", "é-1"),
        ("1-é", "1-é"),
    ] {
        assert_eq!(ExitCodeRanges::parse(text), Err(ParseError::Malformed(piece.to_owned())), "{text:?}");
    }
    for (text, piece) in [("12-1", "12-1"), ("1,-1--5", "-1--5")] {
        assert_eq!(ExitCodeRanges::parse(text), Err(ParseError::Reversed(piece.to_owned())), "{text:?}");
    }
}

#[test]
fn ranges_answer_as_the_plain_set_of_their_codes_does() {
    let texts = ["1", "1-12,100-127", "-200--100,0,5-9,11", "-300-300", "2,4,6,8", "7-2147483647"];
    for a in texts {
        let a_ranges = ranges(a);
        assert!(!a_ranges.is_empty());
        for b in texts {
            let b_ranges = ranges(b);
            for code in -310..=310 {
                let (in_a, in_b) = (a_ranges.contains(code), b_ranges.contains(code));
                assert_eq!((&a_ranges | &b_ranges).contains(code), in_a || in_b, "{a} | {b}: {code}");
                assert_eq!((&a_ranges & &b_ranges).contains(code), in_a && in_b, "{a} & {b}: {code}");
                assert_eq!((&a_ranges - &b_ranges).contains(code), in_a && !in_b, "{a} - {b}: {code}");
            }
        }
        assert_eq!(a_ranges.complement().complement(), a_ranges);
    }
    assert_eq!(ranges("2,4-6").codes().collect::<Vec<_>>(), [2, 4, 5, 6]);
    assert_eq!(ranges("2,4-6").ranges(), [2..=2, 4..=6]);
    assert_eq!(ExitCodeRanges::default().complement(), ranges("-2147483648-2147483647"));
    assert_eq!(ranges("-2147483648-2147483647").complement(), ExitCodeRanges::default());
    assert!(ExitCodeRanges::default().is_empty());
}
