//! The rules of the API server that a status write must keep.

use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;
use windlass_api::validation::job_status::validate_status_update;

/// Panics if the server would not take this status.
pub fn check(new: &Value, old: &Value) {
    let job = |value: &Value| serde_json::from_value::<Job>(value.clone()).expect("a Job");
    let errors = validate_status_update(&job(new), &job(old));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{texts:#?}\nold: {:#}\nnew: {:#}", old["status"], new["status"]);
}
