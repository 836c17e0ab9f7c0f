//! What is sent to the server: pods and statuses, whole.

mod common;

use common::{at, job, rfc3339};
use jiff::SignedDuration;
use serde_json::{Value, json};
use windlass_api::indexes::IndexSet;
use windlass_job::Uid;
use windlass_job::decision::{CreationReason, NewPod, StatusWrite};
use windlass_job::job_facts::{Condition, Status, Uncounted};
use windlass_job::pod_body::{Mold, NoLabels, owner_reference};
use windlass_job::pod_facts::IndexFailures;
use windlass_job::status_body::status_patch;

fn new_pod(index: Option<u32>, failures: Option<IndexFailures>) -> NewPod {
    let prefix = index.map_or_else(|| "work-".to_owned(), |index| format!("work-{index}-"));
    NewPod {
        name: format!("{prefix}bcdfg"),
        prefix,
        index,
        attempt: 0,
        failures,
        reason: CreationReason::New,
    }
}

fn body(job: &common::JobBuilder, new: &NewPod) -> Value {
    serde_json::from_str(&Mold::of(&job.build()).expect("labels").pod(new)).expect("a pod is JSON")
}

fn owner() -> Value {
    json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-uid", "controller": true,
            "blockOwnerDeletion": true })
}

#[test]
fn a_pod_has_what_the_template_says_the_finalizer_and_its_owner() {
    let job = job().spec(json!({ "template": {
        "metadata": {
            "name": "ignored", "namespace": "ignored", "ownerReferences": [owner()],
            "labels": { "app": "sim" }, "annotations": { "note": "yes" }, "finalizers": ["example.com/mine"],
        },
        "spec": { "nodeSelector": { "disk": "fast" }, "hostname": "host" },
    } }));
    assert_eq!(
        body(&job, &new_pod(None, None)),
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "work-bcdfg", "generateName": "work-", "namespace": "lab",
                "labels": { "app": "sim", "batch.kubernetes.io/controller-uid": "job-uid",
                            "batch.kubernetes.io/job-name": "work" },
                "annotations": { "note": "yes" },
                "finalizers": ["example.com/mine", "batch.kubernetes.io/job-tracking"],
                "ownerReferences": [owner()],
            },
            "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "main", "image": "host" }],
                "nodeSelector": { "disk": "fast" }, "hostname": "host",
            },
        })
    );
}

#[test]
fn a_pod_of_an_index_knows_it_by_label_annotation_hostname_and_environment() {
    let own = json!([{ "name": "JOB_COMPLETION_INDEX", "value": "mine" }]);
    let job = job().indexed(9, 9).spec(json!({ "template": { "spec": {
        "hostname": "overridden",
        "containers": [
            { "name": "main", "image": "host", "env": [{ "name": "A", "value": "1" }] },
            { "name": "own", "image": "host", "env": own },
        ],
        "initContainers": [{ "name": "setup", "image": "host" }],
    } } }));
    let variable = json!({ "name": "JOB_COMPLETION_INDEX", "valueFrom": { "fieldRef": {
        "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']" } } });
    let pod = body(&job, &new_pod(Some(7), None));
    assert_eq!(
        pod["spec"],
        json!({
            "restartPolicy": "Never", "hostname": "work-7",
            "containers": [
                { "name": "main", "image": "host", "env": [{ "name": "A", "value": "1" }, variable] },
                { "name": "own", "image": "host", "env": own },
            ],
            "initContainers": [{ "name": "setup", "image": "host", "env": [variable] }],
        })
    );
    assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], "7");
    assert_eq!(pod["metadata"]["annotations"], json!({ "batch.kubernetes.io/job-completion-index": "7" }));
    assert_eq!(pod["metadata"]["generateName"], "work-7-");
}

#[test]
fn failures_of_an_index_are_written_and_ignored_ones_only_if_there_are_any() {
    let annotations = |counted, ignored| {
        let pod = body(&job().indexed(1, 1), &new_pod(Some(0), Some(IndexFailures { counted, ignored })));
        pod["metadata"]["annotations"].clone()
    };
    let index = |rest: Value| {
        let mut all = json!({ "batch.kubernetes.io/job-completion-index": "0" });
        common::merge(&mut all, &rest);
        all
    };
    assert_eq!(annotations(0, 0), index(json!({ "batch.kubernetes.io/job-index-failure-count": "0" })));
    assert_eq!(
        annotations(2, 3),
        index(json!({
            "batch.kubernetes.io/job-index-failure-count": "2",
            "batch.kubernetes.io/job-index-ignored-failure-count": "3",
        }))
    );
}

#[test]
fn the_finalizer_is_not_added_twice() {
    let job = job().spec(json!({ "template": { "metadata": {
        "finalizers": ["batch.kubernetes.io/job-tracking", "b"] } } }));
    let finalizers = body(&job, &new_pod(None, None))["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["batch.kubernetes.io/job-tracking", "b"]));
}

#[test]
fn a_template_without_labels_makes_no_pod() {
    for template in [json!({ "metadata": { "labels": null } }), json!({ "metadata": null })] {
        let job = job().spec(json!({ "template": template })).build();
        assert_eq!(Mold::of(&job).err(), Some(NoLabels));
    }
    assert_eq!(Mold::of(&Default::default()).err(), Some(NoLabels));
    assert_eq!(NoLabels.to_string(), "unable to create pods, no labels");
}

#[test]
fn the_owner_of_a_pod_is_its_job() {
    assert_eq!(serde_json::to_value(owner_reference(&job().build())).expect("JSON"), owner());
    assert_eq!(owner_reference(&Default::default()).uid, "");
}

fn write(status: Status) -> Value {
    status_patch(&StatusWrite { status, resource_version: "42".to_owned(), events: vec![], finishes: false })
}

#[test]
fn a_status_is_written_whole_and_what_is_nothing_is_removed() {
    let nothing = json!({
        "metadata": { "resourceVersion": "42" },
        "status": {
            "active": null, "succeeded": null, "failed": null, "ready": null, "terminating": null,
            "startTime": null, "completionTime": null, "completedIndexes": null, "failedIndexes": null,
            "uncountedTerminatedPods": { "succeeded": null, "failed": null }, "conditions": null,
        },
    });
    assert_eq!(write(Status::default()), nothing);
}

#[test]
fn a_status_is_written_as_the_api_spells_it() {
    let half = SignedDuration::from_millis(900);
    let set = |text: &str| IndexSet::parse_lenient(text, 99);
    let bare = Condition {
        kind: "Custom".to_owned(),
        status: "Unknown".to_owned(),
        reason: None,
        message: None,
        last_probe: None,
        last_transition: None,
    };
    let full = Status {
        start_time: Some(at(1) + half),
        completion_time: Some(at(9) + half),
        active: 1,
        ready: Some(0),
        terminating: Some(2),
        succeeded: 3,
        failed: 4,
        completed_indexes: set("0,2,3,5-8"),
        failed_indexes: Some(set("")),
        uncounted: Some(Uncounted {
            succeeded: vec![Uid::new("a")],
            failed: vec![Uid::new("b"), Uid::new("c")],
        }),
        conditions: vec![bare, Condition::new("Suspended", false, "JobResumed", "Job resumed", at(3) + half)],
    };
    assert_eq!(
        write(full),
        json!({
            "metadata": { "resourceVersion": "42" },
            "status": {
                "active": 1, "succeeded": 3, "failed": 4, "ready": 0, "terminating": 2,
                "startTime": rfc3339(1), "completionTime": rfc3339(9),
                "completedIndexes": "0,2,3,5-8", "failedIndexes": "",
                "uncountedTerminatedPods": { "succeeded": ["a"], "failed": ["b", "c"] },
                "conditions": [
                    { "type": "Custom", "status": "Unknown" },
                    { "type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed",
                      "lastProbeTime": rfc3339(3), "lastTransitionTime": rfc3339(3) },
                ],
            },
        })
    );
}
