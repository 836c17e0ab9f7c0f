//! What a Job has when its author does not say.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::defaults::job::{apply, apply_with};

use crate::support::{sent, sent_spec};

fn defaulted(patch: Value) -> Value {
    let mut job = sent_spec(patch);
    apply(&mut job);
    serde_json::to_value(job.spec).expect("a spec is plain data")
}

#[test]
fn a_job_that_says_nothing_is_one_pod_tried_seven_times() {
    let mut spec = defaulted(json!({}));
    let template = spec["template"].take();
    assert_eq!(
        spec,
        json!({
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed", "template": null,
        })
    );
    assert_eq!(template["spec"]["terminationGracePeriodSeconds"], json!(30), "pods have their defaults too");
}

#[test]
fn what_is_said_stays() {
    let said = json!({
        "parallelism": 2, "completions": 3, "backoffLimit": 0, "completionMode": "Indexed", "suspend": true,
        "manualSelector": true, "podReplacementPolicy": "Failed", "backoffLimitPerIndex": 1,
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "X", "status": "False"}]},
        ]},
    });
    let mut spec = defaulted(said.clone());
    spec.as_object_mut().expect("a spec is an object").remove("template");
    assert_eq!(spec, said);
}

#[test]
fn completions_and_parallelism_depend_on_each_other() {
    let rows = [
        (json!({}), json!([1, 1])),
        (json!({"completions": 5}), json!([1, 5])),
        (json!({"parallelism": 5}), json!([5, null])),
        (json!({"parallelism": 0, "completions": 0}), json!([0, 0])),
    ];
    for (patch, want) in rows {
        let spec = defaulted(patch.clone());
        assert_eq!(json!([spec.get("parallelism"), spec.get("completions")]), want, "{patch}");
    }
}

#[test]
fn a_limit_per_index_leaves_the_whole_job_unlimited() {
    assert_eq!(defaulted(json!({"backoffLimitPerIndex": 1}))["backoffLimit"], json!(2_147_483_647));
    assert_eq!(defaulted(json!({"backoffLimitPerIndex": 1, "backoffLimit": 3}))["backoffLimit"], json!(3));
}

#[test]
fn with_a_failure_policy_only_failed_pods_are_replaced() {
    assert_eq!(
        defaulted(json!({"podFailurePolicy": {"rules": []}}))["podReplacementPolicy"],
        json!("Failed")
    );
}

#[test]
fn a_condition_pattern_means_true() {
    let spec = defaulted(json!({"podFailurePolicy": {"rules": [
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
        {"action": "Ignore", "onPodConditions": [
            {"type": "A"}, {"type": "B", "status": ""}, {"type": "C", "status": "Unknown"},
        ]},
    ]}}));
    let patterns = &spec["podFailurePolicy"]["rules"][1]["onPodConditions"];
    let statuses: Vec<&Value> = patterns.as_array().expect("a list").iter().map(|it| &it["status"]).collect();
    assert_eq!(statuses, ["True", "True", "Unknown"]);
}

#[test]
fn a_job_without_labels_takes_those_of_its_template() {
    let labels = |job: &Value, template: &Value| {
        let mut job = sent(json!({
            "metadata": {"labels": job},
            "spec": {"template": {"metadata": {"labels": template}}},
        }));
        apply(&mut job);
        json!(job.metadata.labels)
    };
    assert_eq!(labels(&json!(null), &json!({"a": "b"})), json!({"a": "b"}));
    assert_eq!(labels(&json!({}), &json!({"a": "b"})), json!({"a": "b"}));
    assert_eq!(labels(&json!({"c": "d"}), &json!({"a": "b"})), json!({"c": "d"}));
    assert_eq!(labels(&json!(null), &json!(null)), json!(null));
    assert_eq!(labels(&json!(null), &json!({})), json!({}));
    assert_eq!(labels(&json!({}), &json!(null)), json!({}));
}

#[test]
fn a_job_without_a_spec_gets_one() {
    let mut job = Job::default();
    apply(&mut job);
    assert_eq!(job.spec.expect("made").parallelism, Some(1));
}

#[test]
fn applying_twice_is_applying_once() {
    let mut once = sent_spec(json!({"podFailurePolicy": {"rules": []}, "backoffLimitPerIndex": 2}));
    apply(&mut once);
    let mut twice = once.clone();
    apply(&mut twice);
    assert_eq!(twice, once);
}

#[test]
fn a_field_whose_gate_is_off_neither_gets_nor_gives_a_default() {
    let gates: Gates = "JobPodReplacementPolicy=false,JobBackoffLimitPerIndex=false".parse().expect("gates");
    let mut job = sent_spec(json!({"podFailurePolicy": {"rules": []}, "backoffLimitPerIndex": 2}));
    apply_with(&mut job, &gates);
    let spec = job.spec.expect("made");
    assert_eq!((spec.pod_replacement_policy, spec.backoff_limit), (None, Some(6)));
}
