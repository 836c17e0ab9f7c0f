//! The first draft of the failure policy, `spec.backoffPolicy`, which only the raw Job holds.

use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::strategy::drop_disabled_draft;
use windlass_api::validation::job::validate_draft;
use windlass_api::validation::job_update::validate_draft_update;

use crate::support::{job, manifest, merge, texts};

fn on() -> Gates {
    "RetriableAndNonRetriableFailures=true".parse().expect("a gate")
}

fn raw(patch: Value) -> Value {
    let mut raw = manifest();
    let policy =
        json!({"rules": [{"action": "Terminate", "containerName": "main", "containerExitCodeIn": "1-12"}]});
    merge(&mut raw, &json!({"spec": {"backoffPolicy": policy}}));
    merge(&mut raw, &patch);
    raw
}

fn without() -> Value {
    manifest()
}

#[test]
fn with_the_gate_off_a_new_job_loses_it_and_a_stored_one_keeps_it() {
    let dropped = |mut new: Value, old: Option<&Value>, gates: Gates| {
        drop_disabled_draft(&mut new, old, &gates);
        new
    };
    let off = Gates::default();
    assert_eq!(dropped(raw(json!({})), None, off), without(), "create");
    assert_eq!(dropped(raw(json!({})), Some(&without()), off), without(), "not in use before");
    let null = raw(json!({"spec": {"backoffPolicy": null}}));
    assert_eq!(dropped(raw(json!({})), Some(&null), off), without(), "null is not in use");
    assert_eq!(dropped(raw(json!({})), Some(&raw(json!({}))), off), raw(json!({})), "in use");
    assert_eq!(dropped(raw(json!({})), None, on()), raw(json!({})), "on");
    assert_eq!(dropped(json!({}), None, off), json!({}), "no spec at all");
}

#[test]
fn with_the_gate_on_it_is_checked_and_with_the_gate_off_it_is_not_looked_at() {
    let check = |patch: Value, gates: Gates| {
        let raw = raw(patch);
        texts(&validate_draft(&raw, &job(raw.clone()), &gates))
    };
    assert_eq!(check(json!({}), on()), [""; 0]);
    assert_eq!(
        check(json!({"spec": {"backoffPolicy": null, "podFailurePolicy": {"rules": []}}}), on()),
        [""; 0]
    );
    assert_eq!(
        check(json!({"spec": {"podFailurePolicy": {"rules": []}}}), on()),
        ["spec.backoffPolicy: Forbidden: may not be specified together with podFailurePolicy"]
    );
    let on_failure = json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}});
    assert_eq!(
        check(on_failure, on()),
        ["spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when \
          backoffPolicy is specified"]
    );
    let other = json!({"spec": {"backoffPolicy": {"rules": [
        {"action": "Ignore", "containerName": "setup", "containerExitCodeIn": "1"},
        {"action": "Ignore", "containerName": "other", "containerExitCodeIn": "1"},
    ]}}});
    let paths: Vec<String> = {
        let raw = raw(other.clone());
        validate_draft(&raw, &job(raw.clone()), &on()).iter().map(|error| error.path.to_string()).collect()
    };
    assert_eq!(
        paths,
        ["spec.backoffPolicy.rules[1].containerName"],
        "only containers of the template have names"
    );
    assert_eq!(check(other, Gates::default()), [""; 0]);
}

#[test]
fn it_may_not_change() {
    assert_eq!(texts(&validate_draft_update(&raw(json!({})), &raw(json!({})))), [""; 0]);
    assert_eq!(texts(&validate_draft_update(&without(), &without())), [""; 0]);
    assert_eq!(
        texts(&validate_draft_update(&without(), &raw(json!({})))),
        ["spec.backoffPolicy: Invalid value: null: field is immutable"]
    );
    assert_eq!(
        texts(&validate_draft_update(
            &raw(json!({"spec": {"backoffPolicy": {"rules": []}}})),
            &raw(json!({}))
        )),
        ["spec.backoffPolicy: Invalid value: {\"rules\":[]}: field is immutable"]
    );
}
