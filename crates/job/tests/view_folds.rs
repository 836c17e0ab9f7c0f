//! Answers to our own writes can be slower than the watch: folding them must not turn the view back.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_job::decision::{Action, PodRef, StatusWrite};
use windlass_job::{JobFacts, JobView, Outcome, PodFacts, Settings, Uid, decide};

fn job(revision: &str, spec: Value, status: Value) -> JobFacts {
    let mut body = json!({
        "metadata": { "name": "j", "namespace": "default", "uid": "job-uid", "resourceVersion": revision },
        "spec": {
            "completions": 1, "parallelism": 1, "selector": { "matchLabels": { "app": "j" } },
            "template": { "metadata": { "labels": { "app": "j" } }, "spec": { "containers": [] } }
        },
        "status": status
    });
    json_patch(&mut body["spec"], spec);
    let job: Job = serde_json::from_value(body).expect("a Job");
    JobFacts::from_job(&job, None, &Gates::default())
}

fn json_patch(into: &mut Value, fields: Value) {
    for (key, value) in fields.as_object().expect("an object") {
        into[key] = value.clone();
    }
}

fn pod(job: &JobFacts, revision: &str, phase: &str) -> PodFacts {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "default", "uid": "pod-uid", "resourceVersion": revision,
            "labels": { "app": "j" }, "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [
                { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": true }
            ]
        },
        "status": { "phase": phase }
    }))
    .expect("a pod");
    PodFacts::from_pod(&pod, job)
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

#[test]
fn an_answer_that_comes_after_a_newer_job_does_not_turn_the_view_back() {
    let mut view = JobView::new(job("5", json!({}), json!({})));
    let write = StatusWrite {
        status: view.job().status.clone(),
        resource_version: "5".to_owned(),
        events: Vec::new(),
        finishes: false,
    };
    view.observe_job(job("7", json!({ "parallelism": 3 }), json!({ "active": 2 })));
    let action = Action::WriteStatus(Box::new(write));
    view.fold(&action, Outcome::Written("6".to_owned()), now(), &Settings::default());
    assert_eq!((view.job().resource_version.as_str(), view.job().status.active), ("7", 2));
}

#[test]
fn an_answer_about_a_pod_that_the_watch_saw_go_does_not_bring_it_back() {
    let mut view = JobView::new(job("1", json!({}), json!({})));
    view.observe_pod(pod(view.job(), "2", "Failed"));
    let answer = Outcome::Pod(Box::new(pod(view.job(), "3", "Failed")));
    view.forget_pod(&Uid::new("pod-uid"));
    let action = Action::Release(PodRef { uid: Uid::new("pod-uid"), name: "p".to_owned() });
    view.fold(&action, answer, now(), &Settings::default());
    assert!(view.pods().is_empty());
}

#[test]
fn a_resumed_job_says_so_also_when_its_pods_finish_before_the_first_write() {
    let suspended = json!({
        "conditions": [
            { "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended" }
        ]
    });
    let mut view = JobView::new(job("1", json!({ "suspend": false }), suspended));
    view.observe_pod(pod(view.job(), "2", "Succeeded"));
    let settings = Settings::default();
    let decision = decide(&view.observation(now(), &settings));
    let [Action::WriteStatus(write)] = decision.stage.as_slice() else { panic!("{:?}", decision.stage) };
    let said: Vec<(&str, &str)> =
        write.status.conditions.iter().map(|c| (c.kind.as_str(), c.status.as_str())).collect();
    assert_eq!(said, [("Suspended", "False"), ("SuccessCriteriaMet", "True")]);
    assert_eq!(write.status.start_time, Some(now()));
    assert_eq!(write.events.iter().map(|e| e.reason.as_str()).collect::<Vec<_>>(), ["Resumed"]);
}
