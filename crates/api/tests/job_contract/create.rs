//! The rules for a new Job, by their numbers in the contract.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::field::Path;
use windlass_api::validation::job::{validate_create, validate_template_spec};

use crate::support::{GENERATED, admitted, admitted_spec, changed, texts, times};

#[track_caller]
fn check(rule: &str, job: &Job, wants: &[&str]) {
    assert_eq!(texts(&validate_create(job, &Gates::default())), wants, "{rule}");
}

#[track_caller]
fn check_spec(rule: &str, patch: Value, wants: &[&str]) {
    check(rule, &admitted_spec(patch), wants);
}

fn indexed(mut patch: Value) -> Value {
    patch["completionMode"] = json!("Indexed");
    if patch.get("completions").is_none() {
        patch["completions"] = json!(5);
    }
    patch
}

fn policy(rule: Value) -> Value {
    json!({"podFailurePolicy": {"rules": [rule]}})
}

#[test]
fn plain_jobs_of_every_mode_are_valid() {
    check_spec("defaults only", json!({}), &[]);
    check_spec("work queue", json!({"parallelism": 3}), &[]);
    check_spec("on failure", json!({"template": {"spec": {"restartPolicy": "OnFailure"}}}), &[]);
    check_spec("indexed", indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 5})), &[]);
    check_spec("managed", json!({"managedBy": "windlass.dev/job-controller"}), &[]);
}

#[test]
fn rule_1_metadata_is_checked_as_that_of_every_object() {
    check(
        "name",
        &admitted(json!({"metadata": {"name": "No"}})),
        &["metadata.name: Invalid value: \"No\": a lowercase RFC 1123 subdomain must consist of lower case \
           alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
           'example.com', regex used for validation is \
           '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    check("dots are fine", &admitted(json!({"metadata": {"name": "a.b"}})), &[]);
    check(
        "namespace",
        &admitted(json!({"metadata": {"namespace": null}})),
        &["metadata.namespace: Required value"],
    );
}

#[test]
fn rule_2_the_last_pod_of_an_indexed_job_needs_a_name_that_is_a_dns_label() {
    let name = "a".repeat(61);
    let with = |completions: Value, mode: &str| {
        admitted(
            json!({"metadata": {"name": name}, "spec": {"completionMode": mode, "completions": completions}}),
        )
    };
    check("63 characters fit", &with(json!(10), "Indexed"), &[]);
    let want = format!(
        "metadata.name: Invalid value: \"{name}\": will not able to create pod with invalid DNS label: {name}-10"
    );
    check("64 do not", &with(json!(11), "Indexed"), &[&want]);
    check("no pods, no names", &with(json!(0), "Indexed"), &[]);
    check("other modes draw names", &with(json!(11), "NonIndexed"), &[]);
}

#[test]
fn rule_3_a_generated_selector_needs_a_uid() {
    let job = admitted(json!({"metadata": {"uid": ""}}));
    check("generated", &job, &["metadata.uid: Required value"]);
    let manual = json!({
        "metadata": {"uid": ""},
        "spec": {
            "manualSelector": true,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}},
        },
    });
    check("manual", &admitted(manual), &[]);
}

#[test]
fn rule_4_each_generated_label_must_be_there_and_right() {
    let all = [
        ("controller-uid", "u-1"),
        ("job-name", "demo"),
        ("batch.kubernetes.io/controller-uid", "u-1"),
        ("batch.kubernetes.io/job-name", "demo"),
    ];
    for (key, value) in all {
        let selects = key == "batch.kubernetes.io/controller-uid";
        let labels_without: Value = {
            let mut labels: Value = serde_json::from_str(GENERATED).expect("JSON");
            labels.as_object_mut().expect("an object").remove(key);
            labels
        };
        let mismatch = |labels: &Value| {
            format!(
                "spec.template.metadata.labels: Invalid value: {labels}: `selector` does not match template `labels`"
            )
        };
        let path = format!("spec.template.metadata.labels[{key}]");
        let mut wants = vec![format!("{path}: Required value: must be '{value}'")];
        wants.extend(selects.then(|| mismatch(&labels_without)));
        let patch = json!({"spec": {"template": {"metadata": {"labels": {key: null}}}}});
        let wants: Vec<&str> = wants.iter().map(String::as_str).collect();
        check(&format!("{key} missing"), &changed(&admitted(json!({})), patch), &wants);

        let mut labels = labels_without.clone();
        labels[key] = json!("other");
        let mut wants = vec![format!("{path}: Invalid value: {labels}: must be '{value}'")];
        wants.extend(selects.then(|| mismatch(&labels)));
        let wants: Vec<&str> = wants.iter().map(String::as_str).collect();
        let patch = json!({"template": {"metadata": {"labels": {key: "other"}}}});
        check_spec(&format!("{key} set by the user"), patch, &wants);
    }
}

#[test]
fn rule_5_a_generated_selector_selects_nothing_but_generated_labels() {
    check_spec(
        "label of the user",
        json!({
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}},
        }),
        &["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\",\
           \"batch.kubernetes.io/controller-uid\":\"u-1\"}}: `selector` not auto-generated"],
    );
    check_spec(
        "unreadable selectors have another error",
        json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}),
        &[
            "spec.selector.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator",
        ],
    );
}

#[test]
fn rule_6_a_job_has_a_selector() {
    let without = |manual: bool| {
        changed(&admitted_spec(json!({"manualSelector": manual})), json!({"spec": {"selector": null}}))
    };
    let mismatch = |labels: &str| {
        format!(
            "spec.template.metadata.labels: Invalid value: {labels}: `selector` does not match template `labels`"
        )
    };
    check("generated", &without(false), &["spec.selector: Required value", &mismatch(GENERATED)]);
    check("manual", &without(true), &["spec.selector: Required value", &mismatch("null")]);
    check_spec(
        "standard rules",
        json!({"manualSelector": true, "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        &[
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
           'NotIn'",
        ],
    );
}

#[test]
fn rule_7_the_selector_matches_the_template() {
    check_spec(
        "manual",
        json!({
            "manualSelector": true,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "c"}}},
        }),
        &[
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
        ],
    );
}

#[test]
fn rule_8_no_number_is_negative_and_zero_is_fine() {
    let fields =
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    for field in fields {
        let want = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
        check_spec(field, json!({field: -1}), &[&want]);
        check_spec(field, json!({field: 0}), &[]);
    }
    check_spec(
        "all at once, in order",
        indexed(json!({
            "parallelism": -1, "completions": -2, "activeDeadlineSeconds": -3, "backoffLimit": -4,
            "ttlSecondsAfterFinished": -5, "backoffLimitPerIndex": -6, "maxFailedIndexes": -7,
        })),
        &[
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            "spec.completions: Invalid value: -2: must be greater than or equal to 0",
            "spec.activeDeadlineSeconds: Invalid value: -3: must be greater than or equal to 0",
            "spec.backoffLimit: Invalid value: -4: must be greater than or equal to 0",
            "spec.ttlSecondsAfterFinished: Invalid value: -5: must be greater than or equal to 0",
            "spec.backoffLimitPerIndex: Invalid value: -6: must be greater than or equal to 0",
            "spec.maxFailedIndexes: Invalid value: -7: must be greater than or equal to 0",
        ],
    );
    check_spec("zero", indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0})), &[]);
}

#[test]
fn rule_9_max_failed_indexes_needs_a_limit_per_index() {
    check_spec(
        "absent",
        indexed(json!({"maxFailedIndexes": 1})),
        &["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"],
    );
}

#[test]
fn rule_10_managed_by_is_a_domain_prefixed_path() {
    let form = |value: &str| {
        format!(
            "spec.managedBy: Invalid value: \"{value}\": must be a domain-prefixed path (such as \"acme.io/foo\")"
        )
    };
    check_spec("empty", json!({"managedBy": ""}), &["spec.managedBy: Required value"]);
    for value in ["acme.io", "/foo", "acme.io/"] {
        check_spec(value, json!({"managedBy": value}), &[&form(value)]);
    }
    let domain = "spec.managedBy: Invalid value: \"Acme\": a lowercase RFC 1123 subdomain must consist of lower case \
        alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
        'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let path = "spec.managedBy: Invalid value: \"a b\": Invalid path (regex used for validation is \
        '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    check_spec("domain", json!({"managedBy": "Acme/foo"}), &[domain]);
    check_spec("path", json!({"managedBy": "acme.io/a b"}), &[path]);
    check_spec("both", json!({"managedBy": "Acme/a b"}), &[domain, path]);
    check_spec("more slashes", json!({"managedBy": "acme.io/a/b:c"}), &[]);
    let long = format!("acme.io/{}", "a".repeat(55));
    check_spec("63 bytes", json!({"managedBy": long}), &[]);
    check_spec(
        "64 bytes",
        json!({"managedBy": format!("{long}a")}),
        &["spec.managedBy: Too long: may not be more than 63 bytes"],
    );
    let word = "a".repeat(64);
    check_spec(
        "64 bytes of no path",
        json!({"managedBy": word}),
        &[&form(&word), "spec.managedBy: Too long: may not be more than 63 bytes"],
    );
}

#[test]
fn rule_11_there_are_two_completion_modes() {
    check_spec(
        "unknown",
        json!({"completionMode": "Random", "backoffLimitPerIndex": 1}),
        &[
            "spec.completionMode: Unsupported value: \"Random\": supported values: \"NonIndexed\", \"Indexed\"",
        ],
    );
}

#[test]
fn rule_12_an_indexed_job_has_completions() {
    check_spec(
        "absent",
        json!({"completionMode": "Indexed", "parallelism": 2}),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
}

#[test]
fn rule_13_an_indexed_job_runs_at_most_100000_at_once() {
    check_spec("at the limit", indexed(json!({"parallelism": 100_000})), &[]);
    check_spec(
        "above",
        indexed(json!({"parallelism": 100_001})),
        &[
            "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is \
           Indexed",
        ],
    );
    check_spec("other mode", json!({"parallelism": 100_001}), &[]);
}

#[test]
fn rule_14_max_failed_indexes_is_limited() {
    check_spec(
        "above completions",
        indexed(json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 6})),
        &["spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions"],
    );
    check_spec(
        "above the limit as well",
        indexed(json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 100_001})),
        &[
            "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to completions",
            "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000",
        ],
    );
    check_spec(
        "without completions",
        json!({"completionMode": "Indexed", "parallelism": 2, "backoffLimitPerIndex": 1, "maxFailedIndexes": 7}),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
}

#[test]
fn rules_15_and_16_above_100000_completions_a_limit_per_index_has_tighter_limits() {
    let high = |mut patch: Value, completions: i32| {
        patch["completions"] = json!(completions);
        patch["backoffLimitPerIndex"] = json!(1);
        indexed(patch)
    };
    check_spec("not yet", high(json!({"parallelism": 10_001}), 100_000), &[]);
    check_spec(
        "required",
        high(json!({}), 100_001),
        &["spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"],
    );
    check_spec(
        "at the limits",
        high(json!({"parallelism": 10_000, "maxFailedIndexes": 10_000}), 100_001),
        &[],
    );
    check_spec(
        "above both",
        high(json!({"parallelism": 10_001, "maxFailedIndexes": 10_002}), 100_001),
        &[
            "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above \
             100000 and used with backoff limit per index",
            "spec.maxFailedIndexes: Invalid value: 10002: must be less than or equal to 10000 when completions are \
             above 100000 and used with backoff limit per index",
        ],
    );
    check_spec(
        "only with a limit per index",
        indexed(json!({"completions": 100_001, "parallelism": 10_001})),
        &[],
    );
}

#[test]
fn rule_17_limits_per_index_need_indexes() {
    let wants = [
        "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        "spec.maxFailedIndexes: Invalid value: 2: requires indexed completion mode",
    ];
    let patch = json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 2});
    check_spec("not indexed", patch.clone(), &wants);
    let without_mode = changed(&admitted_spec(patch), json!({"spec": {"completionMode": null}}));
    check("no mode", &without_mode, &wants);
}

#[test]
fn rule_18_a_failure_policy_has_at_most_20_rules_and_may_have_none() {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    let with = |count| json!({"podFailurePolicy": {"rules": times(count, rule.clone())}});
    check_spec("none", with(0), &[]);
    check_spec("20", with(20), &[]);
    check_spec("21", with(21), &["spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"]);
}

#[test]
fn rule_19_a_rule_has_a_known_action() {
    let with = |action: &str| policy(json!({"action": action, "onPodConditions": [{"type": "X"}]}));
    for action in ["Count", "FailJob", "Ignore"] {
        check_spec(action, with(action), &[]);
    }
    check_spec(
        "empty",
        with(""),
        &["spec.podFailurePolicy.rules[0].action: Required value: valid values: \
           [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"],
    );
    check_spec(
        "unknown",
        with("Explode"),
        &[
            "spec.podFailurePolicy.rules[0].action: Unsupported value: \"Explode\": supported values: \"Count\", \
           \"FailIndex\", \"FailJob\", \"Ignore\"",
        ],
    );
    check_spec(
        "FailIndex alone",
        with("FailIndex"),
        &[
            "spec.podFailurePolicy.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to \
           be set",
        ],
    );
    let mut patch = indexed(with("FailIndex"));
    patch["backoffLimitPerIndex"] = json!(1);
    check_spec("FailIndex with a limit", patch, &[]);
}

#[test]
fn rule_20_a_rule_looks_at_exit_codes_or_conditions() {
    let codes = json!({"operator": "In", "values": [1]});
    check_spec(
        "both",
        policy(json!({"action": "Count", "onExitCodes": codes, "onPodConditions": [{"type": "X"}]})),
        &[
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying both OnExitCodes and OnPodConditions is not \
           supported",
        ],
    );
    for neither in [json!({"action": "Count"}), json!({"action": "Count", "onPodConditions": []})] {
        check_spec(
            "neither",
            policy(neither),
            &[
                "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is \
               required",
            ],
        );
    }
}

fn codes(requirement: Value) -> Value {
    policy(json!({"action": "FailJob", "onExitCodes": requirement}))
}

#[test]
fn rule_21_exit_codes_have_a_known_operator() {
    check_spec("NotIn", codes(json!({"operator": "NotIn", "values": [1]})), &[]);
    check_spec(
        "empty",
        codes(json!({"operator": "", "values": [1]})),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.operator: Required value: valid values: [\"In\" \"NotIn\"]",
        ],
    );
    check_spec(
        "unknown",
        codes(json!({"operator": "Near", "values": [1]})),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.operator: Unsupported value: \"Near\": supported values: \
           \"In\", \"NotIn\"",
        ],
    );
}

#[test]
fn rule_22_exit_codes_are_those_of_a_container_that_exists() {
    for name in ["main", "setup"] {
        check_spec(name, codes(json!({"operator": "In", "values": [1], "containerName": name})), &[]);
    }
    check_spec(
        "unknown",
        codes(json!({"operator": "In", "values": [1], "containerName": "other"})),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: \"other\": must be one of the \
           container or initContainer names in the pod template",
        ],
    );
}

#[test]
fn rule_23_exit_codes_are_some_not_many_and_in_order() {
    let with = |values: Value| codes(json!({"operator": "In", "values": values}));
    let path = "spec.podFailurePolicy.rules[0].onExitCodes.values";
    check_spec(
        "none",
        with(json!([])),
        &[&format!("{path}: Invalid value: []: at least one value is required")],
    );
    check_spec("255", with((1..=255).collect()), &[]);
    check_spec(
        "256",
        with((1..=256).collect()),
        &[&format!("{path}: Too many: 256: must have at most 255 items")],
    );
    check_spec("order", with(json!([2, 1])), &[&format!("{path}: Invalid value: [2,1]: must be ordered")]);
    check_spec("negative codes exist on Windows", with(json!([-5, 7])), &[]);
}

#[test]
fn rule_24_an_exit_code_stands_once_and_success_is_no_failure() {
    let with = |operator: &str, values: Value| codes(json!({"operator": operator, "values": values}));
    let path = "spec.podFailurePolicy.rules[0].onExitCodes.values";
    let zero = format!("{path}[0]: Invalid value: 0: must not be 0 for the In operator");
    check_spec("0 in", with("In", json!([0, 1])), &[&zero]);
    check_spec("0 not in", with("NotIn", json!([0, 1])), &[]);
    check_spec("repeated", with("In", json!([3, 3])), &[&format!("{path}[1]: Duplicate value: 3")]);
    check_spec(
        "repeated and unordered",
        with("In", json!([3, 1, 3])),
        &[
            &format!("{path}[2]: Duplicate value: 3"),
            &format!("{path}: Invalid value: [3,1,3]: must be ordered"),
        ],
    );
}

fn conditions(patterns: Value) -> Value {
    policy(json!({"action": "Ignore", "onPodConditions": patterns}))
}

#[test]
fn rule_25_a_rule_has_at_most_20_condition_patterns() {
    check_spec("20", conditions(times(20, json!({"type": "X"}))), &[]);
    check_spec(
        "21",
        conditions(times(21, json!({"type": "X"}))),
        &["spec.podFailurePolicy.rules[0].onPodConditions: Too many: 21: must have at most 20 items"],
    );
}

#[test]
fn rule_26_a_condition_type_is_a_qualified_name() {
    check_spec("prefixed", conditions(json!([{"type": "example.com/Broken"}])), &[]);
    check_spec(
        "spaces",
        conditions(json!([{"type": "a b"}])),
        &[
            "spec.podFailurePolicy.rules[0].onPodConditions[0].type: Invalid value: \"a b\": name part must consist of \
           alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
           'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
           '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    );
}

#[test]
fn rule_27_a_condition_has_one_of_three_statuses() {
    let path = "spec.podFailurePolicy.rules[0].onPodConditions[0].status";
    for status in ["False", "True", "Unknown"] {
        check_spec(status, conditions(json!([{"type": "X", "status": status}])), &[]);
    }
    let want =
        format!("{path}: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"");
    check_spec("unknown", conditions(json!([{"type": "X", "status": "Maybe"}])), &[&want]);
    let mut job = admitted_spec(conditions(json!([{"type": "X"}])));
    let spec = job.spec.as_mut().expect("a Job of the test");
    let policy = spec.pod_failure_policy.as_mut().expect("a policy of the test");
    policy.rules[0].on_pod_conditions.as_mut().expect("patterns of the test")[0].status = None;
    let want = format!("{path}: Required value: valid values: [\"False\" \"True\" \"Unknown\"]");
    check("absent, had it no default", &job, &[&want]);
}

fn success(rules: Value) -> Value {
    indexed(json!({"successPolicy": {"rules": rules}}))
}

#[test]
fn rule_28_a_success_policy_needs_indexes() {
    check_spec(
        "its rules are not looked at",
        json!({"successPolicy": {"rules": [{"succeededCount": -1}]}}),
        &[
            "spec.successPolicy: Invalid value: {\"rules\":[{\"succeededCount\":-1}]}: requires indexed completion mode",
        ],
    );
}

#[test]
fn rule_29_a_success_policy_has_1_to_20_rules() {
    check_spec(
        "none",
        success(json!([])),
        &[
            "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is \
           specified",
        ],
    );
    check_spec("20", success(times(20, json!({"succeededCount": 1}))), &[]);
    check_spec(
        "21",
        success(times(21, json!({"succeededCount": 1}))),
        &["spec.successPolicy.rules: Too many: 21: must have at most 20 items"],
    );
}

#[test]
fn rule_30_a_success_rule_says_something() {
    check_spec(
        "nothing",
        success(json!([{}])),
        &[
            "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be \
           specified",
        ],
    );
}

#[test]
fn rule_31_succeeded_indexes_are_an_index_set_of_limited_size() {
    let path = "spec.successPolicy.rules[0].succeededIndexes";
    let with = |text: &str| success(json!([{"succeededIndexes": text}]));
    check_spec("empty", with(""), &[]);
    check_spec("all", with("0-2,3,4"), &[]);
    let rows = [
        ("5", "too large index: \"5\""),
        ("0-5", "too large index: \"5\""),
        ("a", "cannot convert string to integer for index: \"a\""),
        ("0-a", "cannot convert string to integer for index: \"a\""),
        ("2,1", "non-increasing order, previous: 2, current: 1"),
        ("2-1", "non-increasing order, previous: 2, current: 1"),
        (
            "0-1-2",
            "the fragment \"0-1-2\" violates the requirement that an index interval can have at most two parts \
             separated by '-'",
        ),
    ];
    for (text, error) in rows {
        let want = format!("{path}: Invalid value: \"{text}\": error parsing succeededIndexes: {error}");
        check_spec(text, with(text), &[&want]);
    }
    let many = |first: &str| {
        let listed = (10_000..32_000).step_by(2).take(10_922).map(|index| format!(",{index}"));
        let text: String = [first.to_owned()].into_iter().chain(listed).collect();
        (
            text.len(),
            indexed(json!({"completions": 50_000, "successPolicy": {"rules": [{"succeededIndexes": text}]}})),
        )
    };
    let (len, patch) = many("1000");
    check_spec(&format!("{len} of 65536 bytes"), patch, &[]);
    let (len, patch) = many("1,100");
    let want = format!("{path}: Too long: may not be more than 65536 bytes");
    check_spec(&format!("{len} of 65536 bytes"), patch, &[&want]);
    assert_eq!(len, 65_537);
}

#[test]
fn rule_32_succeeded_count_can_be_reached() {
    let path = "spec.successPolicy.rules[0].succeededCount";
    check_spec("0", success(json!([{"succeededCount": 0}])), &[]);
    check_spec("all", success(json!([{"succeededCount": 5, "succeededIndexes": "0-4"}])), &[]);
    check_spec(
        "negative",
        success(json!([{"succeededCount": -1, "succeededIndexes": "0"}])),
        &[&format!("{path}: Invalid value: -1: must be greater than or equal to 0")],
    );
    let above_completions = format!(
        "{path}: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)"
    );
    let above_listed = |n: u32, value: i32| {
        format!(
            "{path}: Invalid value: {value}: must be less than or equal to {n} (the number of indexes in the \
             specified succeededIndexes field)"
        )
    };
    check_spec("above completions", success(json!([{"succeededCount": 6}])), &[&above_completions]);
    check_spec(
        "above the listed",
        success(json!([{"succeededCount": 3, "succeededIndexes": "0,2"}])),
        &[&above_listed(2, 3)],
    );
    check_spec(
        "above both",
        success(json!([{"succeededCount": 6, "succeededIndexes": "0,2"}])),
        &[&above_completions, &above_listed(2, 6)],
    );
    check_spec(
        "an unreadable list lists none",
        success(json!([{"succeededCount": 1, "succeededIndexes": "x"}])),
        &[
            "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"x\": error parsing succeededIndexes: \
             cannot convert string to integer for index: \"x\"",
            &above_listed(0, 1),
        ],
    );
    check_spec(
        "without completions there is nothing to compare with",
        json!({
            "completionMode": "Indexed", "parallelism": 1,
            "successPolicy": {"rules": [{"succeededCount": 6, "succeededIndexes": "9"}]},
        }),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
}

#[test]
fn rule_33_pods_are_replaced_when_failed_or_also_when_terminating() {
    let path = "spec.podReplacementPolicy";
    for policy in ["Failed", "TerminatingOrFailed"] {
        check_spec(policy, json!({"podReplacementPolicy": policy}), &[]);
    }
    check_spec(
        "unknown",
        json!({"podReplacementPolicy": "Never"}),
        &[&format!(
            "{path}: Unsupported value: \"Never\": supported values: \"Failed\", \"TerminatingOrFailed\""
        )],
    );
    let with = |policy: &str| json!({"podReplacementPolicy": policy, "podFailurePolicy": {"rules": []}});
    check_spec("Failed with a failure policy", with("Failed"), &[]);
    check_spec(
        "nothing else with a failure policy",
        with("TerminatingOrFailed"),
        &[&format!("{path}: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"")],
    );
    let absent = changed(&admitted_spec(json!({})), json!({"spec": {"podReplacementPolicy": null}}));
    check("absent", &absent, &[]);
}

#[test]
fn rule_34_the_template_is_checked_as_a_pod() {
    check_spec(
        "no containers",
        json!({"template": {"spec": {"containers": []}}}),
        &["spec.template.spec.containers: Required value"],
    );
}

#[test]
fn rule_35_pods_of_a_job_are_not_restarted_for_ever() {
    let path = "spec.template.spec.restartPolicy";
    let with = |policy: Value| json!({"template": {"spec": {"restartPolicy": policy}}});
    let required = format!("{path}: Required value: valid values: \"OnFailure\", \"Never\"");
    check_spec("Always", with(json!("Always")), &[&required]);
    check_spec("absent", with(Value::Null), &[&required]);
    let mut patch = with(json!("OnFailure"));
    patch["podFailurePolicy"] = json!({"rules": []});
    check_spec(
        "OnFailure with a failure policy",
        patch,
        &[&format!(
            "{path}: Invalid value: \"OnFailure\": only \"Never\" is supported when podFailurePolicy is specified"
        )],
    );
    check_spec(
        "unknown, to pods as well as to Jobs",
        with(json!("Sometimes")),
        &[
            &format!(
                "{path}: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\""
            ),
            &format!("{path}: Unsupported value: \"Sometimes\": supported values: \"OnFailure\", \"Never\""),
        ],
    );
    let patch =
        indexed(json!({"backoffLimitPerIndex": 1, "template": {"spec": {"restartPolicy": "OnFailure"}}}));
    check_spec("a limit per index does not need Never", patch, &[]);
}

#[test]
fn a_job_without_a_spec_is_told_all_that_it_lacks() {
    let job = Job { metadata: admitted(json!({})).metadata, spec: None, status: None };
    let errors = texts(&validate_create(&job, &Gates::default()));
    assert!(errors.contains(&"spec.selector: Required value".to_owned()), "{errors:?}");
    assert!(errors.contains(&"spec.template.spec.containers: Required value".to_owned()), "{errors:?}");
}

#[test]
fn all_errors_are_collected_in_the_order_of_upstream() {
    let job = admitted(json!({
        "metadata": {"name": "Demo", "uid": ""},
        "spec": {
            "parallelism": -1,
            "completions": 1,
            "maxFailedIndexes": 2,
            "managedBy": "",
            "completionMode": "Indexed",
            "podFailurePolicy": {"rules": [{"action": "", "onExitCodes": {"operator": "", "values": []}}]},
            "successPolicy": {"rules": []},
            "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": []}},
        },
    }));
    check(
        "all",
        &job,
        &[
            "metadata.name: Invalid value: \"Demo\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "metadata.uid: Required value",
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\",\
             \"batch.kubernetes.io/controller-uid\":\"\"}}: `selector` not auto-generated",
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            "spec.managedBy: Required value",
            "spec.maxFailedIndexes: Invalid value: 2: must be less than or equal to completions",
            "spec.podFailurePolicy.rules[0].action: Required value: valid values: \
             [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            "spec.podFailurePolicy.rules[0].onExitCodes.operator: Required value: valid values: [\"In\" \"NotIn\"]",
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: []: at least one value is required",
            "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is \
             specified",
            "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
            "spec.template.spec.containers: Required value",
            "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when \
             podFailurePolicy is specified",
            "spec.template.metadata.labels: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"\",\
             \"batch.kubernetes.io/job-name\":\"Demo\",\"controller-uid\":\"\",\"job-name\":\"Demo\"}: \
             `selector` does not match template `labels`",
            "metadata.name: Invalid value: \"Demo\": will not able to create pod with invalid DNS label: Demo-0",
        ],
    );
}

#[test]
fn the_spec_of_a_job_to_be_made_later_has_no_selector() {
    let path = Path::new("spec.jobTemplate.spec");
    let check = |job: &Job| texts(&validate_template_spec(job.spec.as_ref().expect("a spec"), &path));
    let mut job = admitted_spec(json!({"backoffLimit": -1}));
    assert_eq!(
        check(&job),
        [
            "spec.jobTemplate.spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
            "spec.jobTemplate.spec.selector: Invalid value: \
             {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"u-1\"}}: `selector` will be auto-generated",
        ]
    );
    job = changed(&job, json!({"spec": {"backoffLimit": 1, "selector": null, "manualSelector": true}}));
    assert_eq!(
        check(&job),
        [
            "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\""
        ]
    );
    assert_eq!(check(&changed(&job, json!({"spec": {"manualSelector": false}}))), [""; 0]);
}
