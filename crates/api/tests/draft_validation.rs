//! What is wrong with a draft `backoffPolicy`, and where.

use serde_json::{Value, json};
use windlass_api::draft::{Policy, validate};
use windlass_api::field::{ErrorKind, Path};

fn errors(policy: &Value) -> Vec<String> {
    let path = Path::new("spec").child("backoffPolicy");
    validate(policy, &["main", "init"], &path).iter().map(ToString::to_string).collect()
}

/// The errors of a policy with one rule, without the path of the rule.
fn rule_errors(rule: &Value) -> Vec<String> {
    let errors = errors(&json!({ "rules": [rule] }));
    let prefix = "spec.backoffPolicy.rules[0]";
    errors
        .into_iter()
        .map(|error| error.strip_prefix(prefix).unwrap_or_else(|| panic!("path of {error}")).to_owned())
        .collect()
}

#[test]
fn policies_as_in_the_draft_are_valid() {
    for rule in [
        json!({ "containerExitCodeIn": "1-12,100-127", "containerName": "main", "action": "Terminate" }),
        json!({ "containerExitCodeNotIn": "0,40-50", "containerName": "init", "action": "Terminate" }),
        json!({ "podStatusReasonNotIn": [""], "action": "Ignore" }),
        json!({ "onContainerExitCode": { "valueIn": "1-12", "containerName": "main" }, "action": "Ignore" }),
        json!({ "condition": { "onPodStatus": { "reasonIn": ["Preemption"] } }, "action": "Ignore" }),
    ] {
        assert_eq!(errors(&json!({ "rules": [rule] })), [""; 0], "{rule}");
    }
    let rule = json!({ "podStatusReasonNotIn": [""], "action": "Ignore" });
    assert_eq!(errors(&json!({ "rules": vec![rule; 20] })), [""; 0]);
}

#[test]
fn a_policy_is_an_object_with_at_most_twenty_rules() {
    assert_eq!(errors(&json!("x")), ["spec.backoffPolicy: Invalid value: \"x\": must be an object"]);
    assert_eq!(
        errors(&json!({ "rules": 7, "rule": [] })),
        [
            "spec.backoffPolicy.rule: Forbidden: unknown field",
            "spec.backoffPolicy.rules: Invalid value: 7: must be a list",
        ]
    );
    let rule = json!({ "podStatusReasonNotIn": [""], "action": "Ignore" });
    assert_eq!(
        errors(&json!({ "rules": vec![rule; 21] })),
        ["spec.backoffPolicy.rules: Too many: 21: must have at most 20 items"]
    );
    assert_eq!(
        errors(&json!({ "rules": [null] })),
        ["spec.backoffPolicy.rules[0]: Invalid value: null: must be an object"]
    );
}

#[test]
fn a_value_of_the_wrong_type_is_of_that_kind_of_error() {
    let found = validate(&json!([]), &[], &Path::new("spec"));
    assert_eq!(found.iter().map(|error| error.kind).collect::<Vec<_>>(), [ErrorKind::TypeInvalid]);
}

#[test]
fn every_action_must_be_known() {
    let valid = "Required value: valid values: [\"Ignore\" \"Terminate\"]";
    for (action, want) in [
        (json!(null), format!(".action: {valid}")),
        (json!(""), format!(".action: {valid}")),
        (
            json!("FailJob"),
            ".action: Unsupported value: \"FailJob\": supported values: \"Ignore\", \"Terminate\"".to_owned(),
        ),
        (json!(1), ".action: Invalid value: 1: must be a string".to_owned()),
    ] {
        assert_eq!(rule_errors(&json!({ "containerExitCodeIn": "1", "action": action })), [want]);
    }
    assert_eq!(rule_errors(&json!({ "containerExitCodeIn": "1" })), [format!(".action: {valid}")]);
}

#[test]
fn a_rule_has_exactly_one_condition() {
    for (rule, want) in [
        (
            json!({ "action": "Ignore" }),
            ": Invalid value: specifying one of containerExitCodeIn, containerExitCodeNotIn, podStatusReasonIn, \
             podStatusReasonNotIn, onContainerExitCode, onPodStatus, condition is required",
        ),
        (
            json!({ "action": "Ignore", "containerExitCodeIn": "1", "containerExitCodeNotIn": "2" }),
            ": Invalid value: specifying more than one of containerExitCodeIn, containerExitCodeNotIn is not supported",
        ),
        (
            json!({
                "action": "Ignore", "containerExitCodeIn": "1", "podStatusReasonIn": ["A"],
                "podStatusReasonNotIn": ["B"], "containerName": "main",
            }),
            ": Invalid value: specifying more than one of containerExitCodeIn, podStatusReasonIn, \
             podStatusReasonNotIn is not supported",
        ),
        (
            json!({
                "action": "Ignore",
                "onPodStatus": { "reasonIn": ["A"] },
                "condition": { "onPodStatus": { "reasonIn": ["A"] } },
            }),
            ": Invalid value: specifying more than one of onPodStatus, condition is not supported",
        ),
        (
            json!({ "action": "Ignore", "condition": {} }),
            ".condition: Invalid value: specifying one of onContainerExitCode, onPodStatus is required",
        ),
        (
            json!({ "action": "Ignore", "onContainerExitCode": {} }),
            ".onContainerExitCode: Invalid value: specifying one of valueIn, valueNotIn, valueExpressions is required",
        ),
        (
            json!({ "action": "Ignore", "onContainerExitCode": { "valueIn": "1", "valueNotIn": "2" } }),
            ".onContainerExitCode: Invalid value: specifying more than one of valueIn, valueNotIn is not supported",
        ),
        (
            json!({ "action": "Ignore", "condition": { "onPodStatus": {} } }),
            ".condition.onPodStatus: Invalid value: specifying one of reasonIn, reasonNotIn, reasonExpressions is \
             required",
        ),
    ] {
        assert_eq!(rule_errors(&rule), [want], "{rule}");
    }
}

#[test]
fn a_container_name_stands_only_beside_exit_codes_and_exists_in_the_template() {
    let unknown = "must be one of the container or initContainer names in the pod template";
    let alone =
        ".containerName: Forbidden: may only be used with containerExitCodeIn or containerExitCodeNotIn";
    for (rule, want) in [
        (
            json!({ "action": "Ignore", "podStatusReasonIn": ["A"], "containerName": "main" }),
            alone.to_owned(),
        ),
        (
            json!({ "action": "Ignore", "onPodStatus": { "reasonIn": ["A"] }, "containerName": "main" }),
            alone.to_owned(),
        ),
        (
            json!({ "action": "Ignore", "onContainerExitCode": { "valueIn": "1" }, "containerName": "main" }),
            alone.to_owned(),
        ),
        (
            json!({ "action": "Ignore", "onPodStatus": { "reasonIn": ["A"], "containerName": "main" } }),
            ".onPodStatus.containerName: Forbidden: unknown field".to_owned(),
        ),
        (
            json!({ "action": "Ignore", "containerExitCodeIn": "1", "containerName": "other" }),
            format!(".containerName: Invalid value: \"other\": {unknown}"),
        ),
        (
            json!({ "action": "Ignore", "containerExitCodeNotIn": "1", "containerName": "" }),
            format!(".containerName: Invalid value: \"\": {unknown}"),
        ),
        (
            json!({ "action": "Ignore", "onContainerExitCode": { "valueIn": "1", "containerName": "other" } }),
            format!(".onContainerExitCode.containerName: Invalid value: \"other\": {unknown}"),
        ),
        (
            json!({ "action": "Ignore", "containerExitCodeIn": "1", "containerName": 1 }),
            ".containerName: Invalid value: 1: must be a string".to_owned(),
        ),
    ] {
        assert_eq!(rule_errors(&rule), [want], "{rule}");
    }
}

#[test]
fn without_a_template_any_container_name_is_read() {
    let rule = json!({ "action": "Ignore", "containerExitCodeIn": "1", "containerName": "other" });
    assert!(Policy::from_value(&json!({ "rules": [rule] })).is_ok());
}

#[test]
fn exit_codes_are_well_formed_and_never_0_for_in() {
    let piece = |piece: &str| {
        format!("the piece {piece:?} must be an exit code or a range of exit codes such as 40-50")
    };
    for (field, value, want) in [
        ("containerExitCodeIn", json!(""), "at least one value is required".to_owned()),
        ("containerExitCodeIn", json!("1-x"), piece("1-x")),
        ("containerExitCodeNotIn", json!("3, 4"), piece(" 4")),
        ("containerExitCodeNotIn", json!(1.5), piece("1.5")),
        ("containerExitCodeNotIn", json!(4_294_967_296_u64), piece("4294967296")),
        (
            "containerExitCodeNotIn",
            json!("3,9-4"),
            "the piece \"9-4\" must not end before it starts".to_owned(),
        ),
        ("containerExitCodeIn", json!("0"), "must not be 0 for the In operator".to_owned()),
        ("containerExitCodeIn", json!(0), "must not be 0 for the In operator".to_owned()),
        ("containerExitCodeIn", json!("3,-1-1"), "must not be 0 for the In operator".to_owned()),
        ("containerExitCodeIn", json!([1]), "must be a string".to_owned()),
    ] {
        let rule = json!({ "action": "Ignore", field: value });
        assert_eq!(rule_errors(&rule), [format!(".{field}: Invalid value: {value}: {want}")], "{rule}");
        let (section, field) = ("onContainerExitCode", field.replace("containerExitCode", "value"));
        let rule = json!({ "action": "Ignore", section: { &field: value } });
        assert_eq!(
            rule_errors(&rule),
            [format!(".{section}.{field}: Invalid value: {value}: {want}")],
            "{rule}"
        );
    }
}

#[test]
fn reasons_are_a_list_with_at_least_one_text() {
    for field in ["podStatusReasonIn", "podStatusReasonNotIn"] {
        for (value, want) in [
            (json!([]), ": Invalid value: []: at least one value is required"),
            (json!("A"), ": Invalid value: \"A\": must be a list"),
            (json!(["A", 1]), "[1]: Invalid value: 1: must be a string"),
        ] {
            let rule = json!({ "action": "Ignore", field: value });
            assert_eq!(rule_errors(&rule), [format!(".{field}{want}")], "{rule}");
            let (section, field) = ("onPodStatus", field.replace("podStatusReason", "reason"));
            let rule = json!({ "action": "Ignore", section: { &field: value } });
            assert_eq!(rule_errors(&rule), [format!(".{section}.{field}{want}")], "{rule}");
        }
    }
}

#[test]
fn expressions_have_a_known_operator_and_values_that_can_be_met() {
    for (expressions, want) in [
        (json!([]), &[": Invalid value: []: at least one expression is required"][..]),
        (json!({}), &[": Invalid value: {}: must be a list"]),
        (json!([7]), &["[0]: Invalid value: 7: must be an object"]),
        (json!([{ "values": [1] }]), &["[0].operator: Required value: valid values: [\"In\" \"NotIn\"]"]),
        (
            json!([{ "operator": "Gt", "values": [1] }]),
            &["[0].operator: Unsupported value: \"Gt\": supported values: \"In\", \"NotIn\""],
        ),
        (json!([{ "operator": "In" }]), &["[0].values: Invalid value: []: at least one value is required"]),
        (json!([{ "operator": "In", "values": "1" }]), &["[0].values: Invalid value: \"1\": must be a list"]),
        (
            json!([{ "operator": "In", "values": [1, 0, "x"] }, { "operator": "NotIn", "values": [true] }]),
            &[
                "[0].values[1]: Invalid value: 0: must not be 0 for the In operator",
                "[0].values[2]: Invalid value: \"x\": the piece \"x\" must be an exit code or a range of exit codes such \
                 as 40-50",
                "[1].values[0]: Invalid value: true: must be a string",
            ],
        ),
        (json!([{ "operator": "In", "values": [1], "value": 1 }]), &["[0].value: Forbidden: unknown field"]),
        (
            json!([{ "operator": "In", "values": ["1-5"] }, { "operator": "NotIn", "values": ["1-9"] }]),
            &[": Invalid value: no value satisfies all expressions"],
        ),
    ] {
        let rule = json!({ "action": "Ignore", "onContainerExitCode": { "valueExpressions": expressions } });
        let want: Vec<String> =
            want.iter().map(|want| format!(".onContainerExitCode.valueExpressions{want}")).collect();
        assert_eq!(rule_errors(&rule), want, "{rule}");
    }
    let rule = json!({ "action": "Ignore", "onPodStatus": { "reasonExpressions": [
        { "operator": "In", "values": ["A"] }, { "operator": "In", "values": ["B"] },
    ] } });
    assert_eq!(
        rule_errors(&rule),
        [".onPodStatus.reasonExpressions: Invalid value: no value satisfies all expressions"]
    );
}

#[test]
fn all_errors_of_all_rules_are_told_at_once() {
    let policy = json!({ "rules": [
        { "action": "Count", "containerExitCodeIn": "x", "onExitCodes": {} },
        { "action": "Ignore", "podStatusReasonIn": ["A"] },
        { "condition": { "onContainerExitCode": { "valueIn": "1", "name": "main" }, "other": 1 } },
    ] });
    let want = [
        "rules[0].onExitCodes: Forbidden: unknown field",
        "rules[0].action: Unsupported value: \"Count\": supported values: \"Ignore\", \"Terminate\"",
        "rules[0].containerExitCodeIn: Invalid value: \"x\": the piece \"x\" must be an exit code or a range of exit \
         codes such as 40-50",
        "rules[2].action: Required value: valid values: [\"Ignore\" \"Terminate\"]",
        "rules[2].condition.other: Forbidden: unknown field",
        "rules[2].condition.onContainerExitCode.name: Forbidden: unknown field",
    ];
    let found = Policy::from_value(&policy).expect_err("wrong in many ways");
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
}
