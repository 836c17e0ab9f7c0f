//! Jobs and pods in a few words.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};
use windlass_api::names;

/// The zero of all tests' clocks: 2026-01-01T00:00:00Z.
const EPOCH: i64 = 1_767_225_600;

/// So many seconds after the start.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(EPOCH).expect("in range") + SignedDuration::from_secs(seconds)
}

/// The same, as the API writes it.
pub fn rfc3339(seconds: i64) -> Value {
    at(seconds).to_string().into()
}

/// A JSON merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("just made one");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Conditions that all have the same reason, message and time, as they stand in a status.
pub fn conditions(types: &[&str], reason: &str, message: &str, seconds: i64) -> Value {
    let condition = |kind: &&str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": message,
                "lastProbeTime": rfc3339(seconds), "lastTransitionTime": rfc3339(seconds) })
    };
    types.iter().map(condition).collect()
}

/// A rule of a pod failure policy that looks at exit codes.
pub fn on_exit(action: &str, operator: &str, values: &[i32]) -> Value {
    json!({ "action": action, "onExitCodes": { "operator": operator, "values": values } })
}

/// A rule of a pod failure policy that looks at a condition which is true.
pub fn on_condition(action: &str, kind: &str) -> Value {
    json!({ "action": action, "onPodConditions": [{ "type": kind, "status": "True" }] })
}

/// A Job in the making; what is not said is as the API defaults it.
#[derive(Clone)]
pub struct JobBuilder(pub Value);

/// A NonIndexed Job of one pod.
pub fn job() -> JobBuilder {
    let labels = json!({ names::CONTROLLER_UID_LABEL: "job-uid", names::JOB_NAME_LABEL: "work" });
    JobBuilder(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "work", "namespace": "lab", "uid": "job-uid", "resourceVersion": "1", "generation": 1 },
        "spec": {
            "parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "backoffLimit": 6, "suspend": false,
            "podReplacementPolicy": "TerminatingOrFailed",
            "selector": { "matchLabels": { names::CONTROLLER_UID_LABEL: "job-uid" } },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "host" }] },
            },
        },
    }))
}

impl JobBuilder {
    /// Merges `spec` into the spec.
    pub fn spec(mut self, spec: Value) -> Self {
        merge(&mut self.0, &json!({ "spec": spec }));
        self
    }

    /// `parallelism` and `completions`.
    pub fn runs(self, parallelism: i32, completions: i32) -> Self {
        self.spec(json!({ "parallelism": parallelism, "completions": completions }))
    }

    /// No `completions`.
    pub fn work_queue(self, parallelism: i32) -> Self {
        self.spec(json!({ "parallelism": parallelism, "completions": null }))
    }

    /// Indexed, with `parallelism` and `completions`.
    pub fn indexed(self, parallelism: i32, completions: i32) -> Self {
        self.runs(parallelism, completions).spec(json!({ "completionMode": "Indexed" }))
    }

    /// `backoffLimit`.
    pub fn limit(self, limit: i32) -> Self {
        self.spec(json!({ "backoffLimit": limit }))
    }

    /// `backoffLimitPerIndex`, which leaves the Job without a limit of its own.
    pub fn per_index(self, limit: i32) -> Self {
        self.spec(json!({ "backoffLimitPerIndex": limit, "backoffLimit": i32::MAX }))
    }

    /// `maxFailedIndexes`.
    pub fn max_failed(self, max: i32) -> Self {
        self.spec(json!({ "maxFailedIndexes": max }))
    }

    /// `activeDeadlineSeconds`.
    pub fn deadline(self, seconds: i64) -> Self {
        self.spec(json!({ "activeDeadlineSeconds": seconds }))
    }

    /// `suspend`.
    pub fn suspended(self, suspend: bool) -> Self {
        self.spec(json!({ "suspend": suspend }))
    }

    /// `restartPolicy: OnFailure`.
    pub fn on_failure(self) -> Self {
        self.spec(json!({ "template": { "spec": { "restartPolicy": "OnFailure" } } }))
    }

    /// `podFailurePolicy`.
    pub fn policy(self, rules: impl IntoIterator<Item = Value>) -> Self {
        let rules: Vec<Value> = rules.into_iter().collect();
        self.spec(json!({ "podFailurePolicy": { "rules": rules }, "podReplacementPolicy": "Failed" }))
    }

    /// `successPolicy`.
    pub fn success(self, rules: impl IntoIterator<Item = Value>) -> Self {
        let rules: Vec<Value> = rules.into_iter().collect();
        self.spec(json!({ "successPolicy": { "rules": rules } }))
    }

    /// `podReplacementPolicy: Failed`.
    pub fn replaces_failed(self) -> Self {
        self.spec(json!({ "podReplacementPolicy": "Failed" }))
    }

    /// `managedBy`.
    pub fn managed_by(self, name: &str) -> Self {
        self.spec(json!({ "managedBy": name }))
    }

    /// Being deleted.
    pub fn deleted(mut self) -> Self {
        merge(&mut self.0, &json!({ "metadata": { "deletionTimestamp": rfc3339(0) } }));
        self
    }

    /// Merges `status` into the status.
    pub fn status(mut self, status: Value) -> Self {
        merge(&mut self.0, &json!({ "status": status }));
        self
    }

    /// The Job.
    pub fn build(&self) -> Job {
        serde_json::from_value(self.0.clone()).expect("a Job")
    }
}

/// A pod in the making.
#[derive(Clone)]
pub struct PodBuilder(pub Value);

/// A pending pod of the Job, with its finalizer; its UID is its name.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "lab", "uid": name, "resourceVersion": "1", "creationTimestamp": rfc3339(0),
            "labels": { names::CONTROLLER_UID_LABEL: "job-uid" },
            "finalizers": [names::TRACKING_FINALIZER],
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-uid",
                                  "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "host" }] },
        "status": { "phase": "Pending" },
    }))
}

impl PodBuilder {
    /// Merges `patch` into the pod.
    pub fn with(mut self, patch: Value) -> Self {
        merge(&mut self.0, &patch);
        self
    }

    /// The annotation of an index.
    pub fn index(self, index: impl ToString) -> Self {
        self.annotation(names::COMPLETION_INDEX, &index.to_string())
    }

    /// An annotation.
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.with(json!({ "metadata": { "annotations": { key: value } } }))
    }

    /// Failures of its index before it, as its annotations say.
    pub fn failures(self, counted: u32, ignored: u32) -> Self {
        let counted = self.annotation(names::INDEX_FAILURE_COUNT, &counted.to_string());
        if ignored == 0 {
            return counted;
        }
        counted.annotation(names::INDEX_IGNORED_FAILURE_COUNT, &ignored.to_string())
    }

    /// `status.phase`.
    pub fn phase(self, phase: &str) -> Self {
        self.with(json!({ "status": { "phase": phase } }))
    }

    /// On a node, and running.
    pub fn running(self) -> Self {
        self.phase("Running").with(json!({ "spec": { "nodeName": "node-1" } }))
    }

    /// Ready, since then.
    pub fn ready(self, seconds: i64) -> Self {
        self.condition_at("Ready", "True", seconds)
    }

    /// Its only container ended with this code, at that time.
    pub fn exited(self, code: i32, seconds: i64) -> Self {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.phase(phase).terminated("main", code, seconds)
    }

    /// Phase Succeeded.
    pub fn succeeded(self, seconds: i64) -> Self {
        self.exited(0, seconds)
    }

    /// Phase Failed, with exit code 1.
    pub fn failed(self, seconds: i64) -> Self {
        self.exited(1, seconds)
    }

    /// Adds the status of a container that ended.
    pub fn terminated(self, container: &str, code: i32, seconds: i64) -> Self {
        let state = json!({ "terminated": { "exitCode": code, "finishedAt": rfc3339(seconds) } });
        self.container(container, 0, state)
    }

    /// Adds a container's status.
    pub fn container(self, name: &str, restarts: i32, state: Value) -> Self {
        self.push("/status", "containerStatuses", container_status(name, restarts, state))
    }

    /// Adds an init container's status.
    pub fn init_container(self, name: &str, restarts: i32, state: Value) -> Self {
        self.push("/status", "initContainerStatuses", container_status(name, restarts, state))
    }

    /// Adds an init container that goes on running.
    pub fn sidecar(self, name: &str) -> Self {
        self.push(
            "/spec",
            "initContainers",
            json!({ "name": name, "image": "host", "restartPolicy": "Always" }),
        )
    }

    /// Adds a condition.
    pub fn condition(self, kind: &str, status: &str) -> Self {
        self.push("/status", "conditions", json!({ "type": kind, "status": status }))
    }

    /// Adds a condition that changed at that time.
    pub fn condition_at(self, kind: &str, status: &str, seconds: i64) -> Self {
        let condition = json!({ "type": kind, "status": status, "lastTransitionTime": rfc3339(seconds) });
        self.push("/status", "conditions", condition)
    }

    /// Being deleted: asked to go at that time, with 30 seconds of grace.
    pub fn deleted(self, seconds: i64) -> Self {
        self.with(json!({ "metadata": { "deletionTimestamp": rfc3339(seconds + 30), "deletionGracePeriodSeconds": 30 } }))
    }

    /// Created at that time.
    pub fn created(self, seconds: i64) -> Self {
        self.with(json!({ "metadata": { "creationTimestamp": rfc3339(seconds) } }))
    }

    /// Without the tracking finalizer.
    pub fn free(self) -> Self {
        self.with(json!({ "metadata": { "finalizers": null } }))
    }

    /// Of nobody.
    pub fn orphan(self) -> Self {
        self.with(json!({ "metadata": { "ownerReferences": null } }))
    }

    /// With other labels.
    pub fn labels(mut self, labels: Value) -> Self {
        self.0["metadata"]["labels"] = labels;
        self
    }

    fn push(mut self, at: &str, list: &str, item: Value) -> Self {
        let object = self.0.pointer_mut(at).expect("a part of a pod").as_object_mut().expect("an object");
        let list = object.entry(list).or_insert_with(|| json!([])).as_array_mut().expect("a list");
        let same = |old: &Value| old.get("type").is_some() && old["type"] == item["type"];
        list.retain(|old| !same(old));
        list.push(item);
        self
    }

    /// The pod.
    pub fn build(&self) -> Pod {
        serde_json::from_value(self.0.clone()).expect("a Pod")
    }
}

fn container_status(name: &str, restarts: i32, state: Value) -> Value {
    json!({ "name": name, "image": "host", "imageID": "", "ready": false, "restartCount": restarts, "state": state })
}
