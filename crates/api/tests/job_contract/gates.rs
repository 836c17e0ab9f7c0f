//! Features switched off: new Jobs lose the field, stored Jobs that use it keep it, and switching on again brings
//! everything back.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::strategy::{default_and_prepare_for_create, prepare_for_update};
use windlass_api::validation::job::validate_create;
use windlass_api::validation::job_update::validate_update;

use crate::support::{changed, sent_spec, texts};

fn gates(text: &str) -> Gates {
    text.parse().expect("gates of the test")
}

fn full() -> Value {
    json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "podReplacementPolicy": "Failed", "backoffLimitPerIndex": 1, "maxFailedIndexes": 2,
        "podFailurePolicy": {"rules": [
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]},
    })
}

fn created(spec: Value, gates: &Gates) -> Job {
    let mut job = sent_spec(spec);
    default_and_prepare_for_create(&mut job, gates);
    assert_eq!(texts(&validate_create(&job, gates)), [""; 0]);
    changed(&job, json!({"metadata": {"resourceVersion": "1"}}))
}

fn updated(old: &Job, patch: Value, gates: &Gates) -> Job {
    let mut job = changed(old, patch);
    prepare_for_update(&mut job, old, gates);
    job
}

/// The gated fields of a Job.
fn fields(job: &Job) -> Value {
    let spec = serde_json::to_value(job.spec.as_ref()).expect("a spec is plain data");
    let rules = spec["podFailurePolicy"]["rules"].as_array();
    let actions: Option<Vec<&Value>> = rules.map(|rules| rules.iter().map(|rule| &rule["action"]).collect());
    json!({
        "actions": actions, "perIndex": spec["backoffLimitPerIndex"], "max": spec["maxFailedIndexes"],
        "replacement": spec["podReplacementPolicy"], "limit": spec["backoffLimit"],
    })
}

#[test]
fn with_all_gates_on_a_new_job_keeps_everything() {
    let want = json!({
        "actions": ["FailIndex", "Ignore"], "perIndex": 1, "max": 2, "replacement": "Failed", "limit": 2_147_483_647,
    });
    assert_eq!(fields(&created(full(), &Gates::default())), want);
}

#[test]
fn each_gate_that_is_off_takes_its_fields_from_a_new_job() {
    let rows = [
        (
            "JobPodFailurePolicy=false",
            json!({"actions": null, "perIndex": 1, "max": 2, "replacement": "Failed", "limit": 2_147_483_647}),
        ),
        (
            "JobPodReplacementPolicy=false",
            json!({
                "actions": ["FailIndex", "Ignore"], "perIndex": 1, "max": 2, "replacement": null,
                "limit": 2_147_483_647,
            }),
        ),
        (
            "JobBackoffLimitPerIndex=false",
            json!({"actions": ["Ignore"], "perIndex": null, "max": null, "replacement": "Failed", "limit": 6}),
        ),
        (
            "PodDisruptionConditions=false",
            json!({
                "actions": ["FailIndex", "Ignore"], "perIndex": 1, "max": 2, "replacement": "Failed",
                "limit": 2_147_483_647,
            }),
        ),
        (
            "JobPodFailurePolicy=false,JobPodReplacementPolicy=false,JobBackoffLimitPerIndex=false",
            json!({"actions": null, "perIndex": null, "max": null, "replacement": null, "limit": 6}),
        ),
    ];
    for (text, want) in rows {
        assert_eq!(fields(&created(full(), &gates(text))), want, "{text}");
    }
}

#[test]
fn a_policy_of_nothing_but_fail_index_rules_stays_without_rules() {
    let mut spec = full();
    spec["podFailurePolicy"]["rules"].as_array_mut().expect("rules").truncate(1);
    let job = created(spec, &gates("JobBackoffLimitPerIndex=false"));
    assert_eq!(fields(&job)["actions"], json!([]));
}

#[test]
fn a_stored_job_keeps_what_it_uses_through_off_and_on_again() {
    for text in
        ["JobPodFailurePolicy=false", "JobPodReplacementPolicy=false", "JobBackoffLimitPerIndex=false"]
    {
        let stored = created(full(), &Gates::default());
        let off = gates(text);
        let while_off = updated(&stored, json!({"spec": {"activeDeadlineSeconds": 5}}), &off);
        assert_eq!(fields(&while_off), fields(&stored), "{text}");
        assert_eq!(texts(&validate_update(&while_off, &stored, &off)), [""; 0], "{text}");
        let again = updated(&while_off, json!({"spec": {"activeDeadlineSeconds": 6}}), &Gates::default());
        assert_eq!(fields(&again), fields(&stored), "{text}");
        assert_eq!(texts(&validate_update(&again, &while_off, &Gates::default())), [""; 0], "{text}");
    }
}

#[test]
fn a_field_that_a_stored_job_does_not_use_can_not_be_added_while_its_gate_is_off() {
    let rows = [
        ("JobPodFailurePolicy=false", json!({"podFailurePolicy": full()["podFailurePolicy"]})),
        ("JobPodReplacementPolicy=false", json!({"podReplacementPolicy": "TerminatingOrFailed"})),
        ("JobBackoffLimitPerIndex=false", json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1})),
    ];
    for (text, patch) in rows {
        let off = gates(text);
        let stored = created(json!({"completionMode": "Indexed", "completions": 3}), &off);
        let new = updated(&stored, json!({"spec": patch}), &off);
        assert_eq!(new, stored, "{text}: not even a new generation");
    }
}

#[test]
fn fields_of_one_gate_are_kept_one_by_one() {
    let off = gates("JobBackoffLimitPerIndex=false");
    let mut spec = full();
    spec.as_object_mut().expect("a spec").remove("maxFailedIndexes");
    let stored = created(spec, &Gates::default());
    let new = updated(&stored, json!({"spec": {"maxFailedIndexes": 1}}), &off);
    assert_eq!((&fields(&new)["perIndex"], &fields(&new)["max"]), (&json!(1), &json!(null)));
}

#[test]
fn switched_on_again_a_new_value_is_taken() {
    let stored = created(json!({}), &gates("JobPodReplacementPolicy=false"));
    assert_eq!(fields(&stored)["replacement"], json!(null));
    let new = updated(&stored, json!({"spec": {"podReplacementPolicy": "Failed"}}), &Gates::default());
    assert_eq!(fields(&new)["replacement"], json!("Failed"));
    assert_eq!(new.metadata.generation, Some(2));
    assert_eq!(texts(&validate_update(&new, &stored, &Gates::default())), [""; 0]);
}
