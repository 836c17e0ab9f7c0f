//! Jobs for tests: a small valid one, and merge patches that make it another.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::field::Errors;
use windlass_api::strategy::default_and_prepare_for_create;

/// The labels that the strategy puts on the pods of [`manifest`].
pub const GENERATED: &str = r#"{"batch.kubernetes.io/controller-uid":"u-1","batch.kubernetes.io/job-name":"demo","controller-uid":"u-1","job-name":"demo"}"#;

pub fn texts(errors: &Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// A valid Job as a user sends it, with the name and UID that the server gives it.
pub fn manifest() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "demo", "namespace": "default", "uid": "u-1"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox"}],
            "initContainers": [{"name": "setup", "image": "busybox"}],
        }}},
    })
}

/// RFC 7396: objects merge, null removes, all else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().expect("made an object above").remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

pub fn job(value: Value) -> Job {
    serde_json::from_value(value).expect("the test's Job is of the right types")
}

/// The Job of [`manifest`] with a patch, before defaults.
pub fn sent(patch: Value) -> Job {
    let mut value = manifest();
    merge(&mut value, &patch);
    job(value)
}

/// The same with a patch of its spec.
pub fn sent_spec(patch: Value) -> Job {
    sent(json!({"spec": patch}))
}

/// A Job after defaults and strategy, as validation sees it.
pub fn admitted(patch: Value) -> Job {
    let mut job = sent(patch);
    default_and_prepare_for_create(&mut job, &Gates::default());
    job
}

/// The same with a patch of its spec.
pub fn admitted_spec(patch: Value) -> Job {
    admitted(json!({"spec": patch}))
}

/// A Job with a patch.
pub fn changed(old: &Job, patch: Value) -> Job {
    let mut value = serde_json::to_value(old).expect("a Job is plain data");
    merge(&mut value, &patch);
    job(value)
}

/// So many equal items.
pub fn times(count: usize, item: Value) -> Value {
    Value::Array(vec![item; count])
}
