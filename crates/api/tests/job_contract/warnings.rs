//! What the API server accepts but tells the client.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::json;
use windlass_api::warnings::{on_create, on_delete, on_update};

use crate::support::{admitted, admitted_spec, changed};

const BIG: &str = "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
    10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";

#[test]
fn an_ordinary_job_has_no_warnings() {
    assert_eq!(on_create(&admitted(json!({}))), [""; 0]);
}

#[test]
fn a_name_that_is_no_dns_label_is_warned_of_at_creation_only() {
    let job = admitted(json!({"metadata": {"name": "a.b"}}));
    let start = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a \
        DNS label is recommended: ";
    assert_eq!(on_create(&job), [format!("{start}[must not contain dots]")]);
    let long = format!("{}.b", "a".repeat(63));
    assert_eq!(
        on_create(&admitted(json!({"metadata": {"name": long}}))),
        [format!("{start}[must be no more than 63 characters must not contain dots]")]
    );
    let new = changed(&job, json!({"metadata": {"generation": 2}}));
    assert_eq!(on_update(&new, &job), [""; 0]);
}

#[test]
fn a_job_too_big_to_track_is_warned_of_when_its_spec_is_new() {
    let with = |completions: i32, parallelism: i32, mode: &str| {
        admitted_spec(json!({"completionMode": mode, "completions": completions, "parallelism": parallelism}))
    };
    let big = with(100_001, 10_001, "Indexed");
    assert_eq!(on_create(&big), [BIG]);
    assert_eq!(on_create(&with(100_000, 10_001, "Indexed")), [""; 0]);
    assert_eq!(on_create(&with(100_001, 10_000, "Indexed")), [""; 0]);
    assert_eq!(on_create(&with(100_001, 10_001, "NonIndexed")), [""; 0]);
    assert_eq!(on_update(&big, &big), [""; 0], "same generation");
    assert_eq!(on_update(&changed(&big, json!({"metadata": {"generation": 2}})), &big), [BIG]);
}

#[test]
fn a_delete_that_does_not_say_what_becomes_of_the_pods_is_warned_of() {
    assert_eq!(
        on_delete(&DeleteOptions::default()),
        [
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
          or set propagationPolicy=Orphan to suppress this warning"
        ]
    );
    let said = DeleteOptions { propagation_policy: Some("Orphan".to_owned()), ..Default::default() };
    assert_eq!(on_delete(&said), [""; 0]);
    let said = DeleteOptions { orphan_dependents: Some(false), ..Default::default() };
    assert_eq!(on_delete(&said), [""; 0]);
}
