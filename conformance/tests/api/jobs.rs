//! Jobs: defaults, validation with all its errors at once, updates and status.

use serde_json::{Value, json};
use windlass_conformance::session::{MERGE, Session};

use crate::objects::{job, with};

fn spec(name: &str, spec: Value) -> Value {
    let mut job = job(name);
    for (key, value) in spec.as_object().expect("a map") {
        job["spec"][key] = value.clone();
    }
    job
}

/// What a Job gets when it says little.
pub async fn defaults(s: &mut Session) {
    let jobs = s.jobs();
    s.post("plain", &jobs, job("plain")).await;
    s.post("parallel", &jobs, spec("parallel", json!({"parallelism": 3}))).await;
    s.post(
        "indexed",
        &jobs,
        spec("indexed", json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed"})),
    )
    .await;
    s.post(
        "per index",
        &jobs,
        spec(
            "per-index",
            json!({"completions": 5, "completionMode": "Indexed",
        "backoffLimitPerIndex": 1, "maxFailedIndexes": 2}),
        ),
    )
    .await;
    s.post(
        "with a failure policy",
        &jobs,
        spec(
            "policy",
            json!({"podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}),
        ),
    )
    .await;
    s.post(
        "with a success policy",
        &jobs,
        spec(
            "success",
            json!({"completions": 5, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0-2", "succeededCount": 2}]}}),
        ),
    )
    .await;
    s.post(
        "of another controller",
        &jobs,
        spec("managed", json!({"managedBy": "example.com/ctl", "suspend": true})),
    )
    .await;
    s.post(
        "with everything",
        &jobs,
        spec(
            "all",
            json!({"activeDeadlineSeconds": 10, "backoffLimit": 0,
        "ttlSecondsAfterFinished": 5, "podReplacementPolicy": "Failed"}),
        ),
    )
    .await;
    s.post(
        "with its own selector",
        &jobs,
        spec(
            "manual",
            json!({"manualSelector": true,
        "selector": {"matchLabels": {"x": "y"}},
        "template": {"metadata": {"labels": {"x": "y"}}, "spec": job("x")["spec"]["template"]["spec"]}}),
        ),
    )
    .await;
    s.get("list", &jobs).await;
}

/// Errors, all at once and in order.
pub async fn invalid(s: &mut Session) {
    let jobs = s.jobs();
    let mut post = async |step: &str, body: Value| {
        s.post(step, &jobs, body).await;
    };
    post("no spec", json!({"metadata": {"name": "x"}})).await;
    post("no template", spec("x", json!({"template": null}))).await;
    post("negative numbers", spec("x", json!({"parallelism": -1, "completions": -1, "backoffLimit": -1,
        "activeDeadlineSeconds": -1, "ttlSecondsAfterFinished": -1, "backoffLimitPerIndex": -1, "maxFailedIndexes": -1}))).await;
    post("restart always", with(job("x"), "/spec/template/spec/restartPolicy", json!("Always"))).await;
    post("no restart policy", with(job("x"), "/spec/template/spec/restartPolicy", Value::Null)).await;
    post("no containers", with(job("x"), "/spec/template/spec/containers", json!([]))).await;
    post("a container without anything", with(job("x"), "/spec/template/spec/containers", json!([{}]))).await;
    post("a mode that is none", spec("x", json!({"completionMode": "Random"}))).await;
    post("indexed without completions", spec("x", json!({"completionMode": "Indexed"}))).await;
    post(
        "indexed with too many",
        spec(
            "x",
            json!({"completionMode": "Indexed", "completions": 100_001,
        "parallelism": 100_001, "backoffLimitPerIndex": 1, "maxFailedIndexes": 100_001}),
        ),
    )
    .await;
    post("per index without indexes", spec("x", json!({"backoffLimitPerIndex": 1}))).await;
    post(
        "failed indexes without a limit",
        spec("x", json!({"completions": 2, "completionMode": "Indexed", "maxFailedIndexes": 1})),
    )
    .await;
    post("its own selector", spec("x", json!({"selector": {"matchLabels": {"a": "b"}}}))).await;
    post(
        "a manual selector that does not match",
        spec("x", json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}})),
    )
    .await;
    post("a long name", job(&"x".repeat(64))).await;
    post(
        "a policy with restarts",
        spec(
            "x",
            json!({"podFailurePolicy": {"rules": []},
        "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}}}),
        ),
    )
    .await;
    post("bad rules", spec("x", json!({"podFailurePolicy": {"rules": [
        {"action": "Explode"},
        {"action": "FailJob"},
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0, 2, 2, 1]}},
        {"action": "Ignore", "onExitCodes": {"operator": "Near", "values": []}},
        {"action": "Ignore", "onExitCodes": {"containerName": "none", "operator": "NotIn", "values": [3]}},
        {"action": "Count", "onPodConditions": [{"type": "Bad Type!", "status": "Maybe"}, {"status": "True"}]},
        {"action": "Count", "onPodConditions": [{"type": "A"}], "onExitCodes": {"operator": "In", "values": [1]}}]}}))).await;
    post("a bad success policy", spec("x", json!({"completions": 3, "completionMode": "Indexed", "successPolicy": {"rules": [
        {}, {"succeededIndexes": "5"}, {"succeededIndexes": "0-1", "succeededCount": 3}, {"succeededIndexes": "x"}]}}))).await;
    post(
        "a success policy without indexes",
        spec("x", json!({"successPolicy": {"rules": [{"succeededCount": 1}]}})),
    )
    .await;
    post(
        "an empty success policy",
        spec("x", json!({"completions": 3, "completionMode": "Indexed", "successPolicy": {"rules": []}})),
    )
    .await;
    post("a bad manager", spec("x", json!({"managedBy": "not ok"}))).await;
    post("a replacement policy that is none", spec("x", json!({"podReplacementPolicy": "Never"}))).await;
    post(
        "replacement with a failure policy",
        spec(
            "x",
            json!({"podReplacementPolicy": "TerminatingOrFailed",
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]}}),
        ),
    )
    .await;
    post(
        "labels of the server",
        with(
            job("x"),
            "/spec/template/metadata",
            json!({"labels": {"batch.kubernetes.io/job-name": "other"}}),
        ),
    )
    .await;
    post("many things in a pod", spec("x", json!({"template": {"spec": {"restartPolicy": "Never",
        "volumes": [{"name": "v"}, {"name": "v", "emptyDir": {}}, {"name": "Bad", "emptyDir": {}, "hostPath": {"path": "/"}}],
        "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 70000}], "volumeMounts": [{"name": "none", "mountPath": "/x"}]},
            {"name": "c", "image": "i", "env": [{"name": "", "value": "x"}, {"name": "a", "valueFrom": {}}],
             "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "imagePullPolicy": "Sometimes"}]}}}))).await;
}

/// What may be changed.
pub async fn updates(s: &mut Session) {
    let jobs = s.jobs();
    s.post("create", &jobs, job("j")).await;
    let path = format!("{jobs}/j");
    let mut patch = async |step: &str, path: &str, body: Value| {
        s.patch(step, path, MERGE, body).await;
    };
    patch("parallelism", &path, json!({"spec": {"parallelism": 2}})).await;
    patch("the same again", &path, json!({"spec": {"parallelism": 2}})).await;
    patch("labels do not count", &path, json!({"metadata": {"labels": {"a": "b"}}})).await;
    patch("completions", &path, json!({"spec": {"completions": 2}})).await;
    patch("the template", &path, json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})).await;
    patch("the selector", &path, json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}})).await;
    patch("the mode", &path, json!({"spec": {"completionMode": "Indexed", "completions": 1}})).await;
    patch("a failure policy", &path, json!({"spec": {"podFailurePolicy": {"rules": []}}})).await;
    patch("a manager", &path, json!({"spec": {"managedBy": "example.com/x"}})).await;
    patch(
        "limits",
        &path,
        json!({"spec": {"backoffLimit": 3, "activeDeadlineSeconds": 7, "ttlSecondsAfterFinished": 9}}),
    )
    .await;
    patch("suspend", &path, json!({"spec": {"suspend": true}})).await;
    patch("status in the main resource", &path, json!({"status": {"active": 5}})).await;
    patch(
        "many wrong things",
        &path,
        json!({"spec": {"parallelism": -1, "completions": 9, "backoffLimitPerIndex": 1}}),
    )
    .await;
    s.post(
        "indexed",
        &jobs,
        spec("i", json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"})),
    )
    .await;
    let path = format!("{jobs}/i");
    s.patch("completions alone", &path, MERGE, json!({"spec": {"completions": 5}})).await;
    s.patch(
        "completions and parallelism",
        &path,
        MERGE,
        json!({"spec": {"completions": 5, "parallelism": 5}}),
    )
    .await;
    s.post("suspended", &jobs, spec("s", json!({"suspend": true}))).await;
    let path = format!("{jobs}/s");
    s.patch(
        "directives while suspended",
        &path,
        MERGE,
        json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}},
        "spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}}}}),
    )
    .await;
    s.patch(
        "an image while suspended",
        &path,
        MERGE,
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}}),
    )
    .await;
    s.patch("resources while suspended", &path, MERGE,
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:1.36", "command": ["true"],
            "resources": {"requests": {"cpu": "1"}}}]}}}})).await;
    s.patch("resume", &path, MERGE, json!({"spec": {"suspend": false}})).await;
}

/// What a controller writes.
pub async fn status(s: &mut Session) {
    let jobs = s.jobs();
    s.post("create", &jobs, job("j")).await;
    let path = format!("{jobs}/j/status");
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "r", "message": "m",
        "lastProbeTime": time, "lastTransitionTime": time})
    };
    let mut patch = async |step: &str, path: &str, body: Value| {
        s.patch(step, path, MERGE, body).await;
    };
    patch("active", &path, json!({"status": {"active": 1, "ready": 1, "startTime": time, "terminating": 0}}))
        .await;
    patch("spec in the status", &path, json!({"spec": {"parallelism": 9}, "status": {"active": 2}})).await;
    patch(
        "annotations in the status",
        &path,
        json!({"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}}),
    )
    .await;
    patch("negative", &path, json!({"status": {"active": -1, "succeeded": -1, "failed": -1}})).await;
    patch("more ready than active", &path, json!({"status": {"ready": 5}})).await;
    patch(
        "complete without its criteria",
        &path,
        json!({"status": {"active": 0, "ready": 0, "conditions": [condition("Complete")]}}),
    )
    .await;
    patch("complete and failed", &path, json!({"status": {"active": 0, "ready": 0, "completionTime": time,
        "conditions": [condition("Complete"), condition("SuccessCriteriaMet"), condition("Failed"), condition("FailureTarget")]}})).await;
    patch(
        "failed without a target",
        &path,
        json!({"status": {"active": 0, "ready": 0, "conditions": [condition("Failed")]}}),
    )
    .await;
    patch(
        "completed indexes without indexes",
        &path,
        json!({"status": {"completedIndexes": "0-2", "failedIndexes": "1"}}),
    )
    .await;
    patch("completed before it started", &path, json!({"status": {"active": 0, "ready": 0,
        "completionTime": "2025-01-01T00:00:00Z", "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}})).await;
    patch(
        "uncounted",
        &path,
        json!({"status": {"uncountedTerminatedPods": {"succeeded": ["a", "a"], "failed": ["a", ""]}}}),
    )
    .await;
    patch("succeeded", &path, json!({"status": {"active": 0, "ready": 0, "succeeded": 1, "uncountedTerminatedPods": {}, "completionTime": time,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}})).await;
    patch(
        "take it back",
        &path,
        json!({"status": {"succeeded": 0, "conditions": null, "completionTime": null}}),
    )
    .await;
    s.get("as it is", &path).await;
    let job = s.get("the Job", &format!("{jobs}/j")).await;
    s.put("put of the status", &path, with(job, "/metadata/labels", json!({"put": "it"}))).await;
    s.get("finished", &format!("{jobs}?fieldSelector=status.successful%3D1")).await;
    s.delete("delete the status", &path, Value::Null).await;
}
