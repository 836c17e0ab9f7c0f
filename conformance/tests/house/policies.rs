//! What Jobs make of pods that were disrupted.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::{list, text};

use crate::place::{JOBS, PODS, Place, is, is_deleted};

/// A Job of one pod that may not fail, with this action for disrupted ones.
async fn job(p: &Place, action: &str) -> Result<String> {
    let rule = json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]});
    let template = json!({"spec": {"restartPolicy": "Never", "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "host"}]}});
    let spec = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}, "template": template});
    p.make(JOBS, json!({"metadata": {"name": "job"}, "spec": spec})).await?;
    let pods = p.until_all(PODS, "a pod", |pods| pods.len() == 1).await?;
    Ok(text(&pods[0], "/metadata/name").to_owned())
}

/// The same, running on node `a`.
async fn runs(p: &mut Place, action: &str) -> Result<String> {
    p.node("a", json!({})).await?;
    let pod = job(p, action).await?;
    p.bind(&pod, "a").await?;
    p.runs(&pod).await?;
    Ok(pod)
}

/// The pod is evicted from its node by a taint, and ended by its kubelet.
async fn evicted_by_taint(p: &mut Place, action: &str) -> Result<()> {
    let pod = runs(p, action).await?;
    p.taint("a", json!([{"key": "k", "effect": "NoExecute"}])).await?;
    let object = p.until_disrupted(&pod).await?;
    p.write_down("pod", object);
    p.ends(&pod, 137).await
}

async fn fails(p: &mut Place) -> Result<()> {
    let job = p.until(JOBS, "job", "to fail", |job| is(job, "Failed")).await?;
    p.write_down("job", job);
    Ok(())
}

/// The failure is not counted, and there is another pod.
async fn goes_on(p: &mut Place) -> Result<()> {
    let is_new =
        |pods: &[Value]| pods.iter().any(|pod| !is_deleted(pod) && text(pod, "/status/phase") == "Pending");
    p.until_all(PODS, "another pod", is_new).await?;
    let counted = |job: &Value| {
        job["status"]["active"] == 1
            && job["status"]["ready"] == 0
            && job["status"].get("terminating").is_none_or(|count| *count == 0)
            && list(job, "/status/uncountedTerminatedPods/failed").is_empty()
    };
    let job = p.until(JOBS, "job", "to go on", counted).await?;
    p.write_down("job", job);
    Ok(())
}

/// `Ignore`.
pub async fn ignore_an_eviction_by_taint(p: &mut Place) -> Result<()> {
    evicted_by_taint(p, "Ignore").await?;
    goes_on(p).await
}

/// `Count`.
pub async fn count_an_eviction_by_taint(p: &mut Place) -> Result<()> {
    evicted_by_taint(p, "Count").await?;
    fails(p).await
}

/// `FailJob`.
pub async fn fail_on_an_eviction_by_taint(p: &mut Place) -> Result<()> {
    evicted_by_taint(p, "FailJob").await?;
    fails(p).await
}

/// Nobody ends the pod, and it is replaced all the same.
pub async fn ignore_a_lost_node(p: &mut Place) -> Result<()> {
    runs(p, "Ignore").await?;
    p.remove_node("a").await?;
    goes_on(p).await
}

/// The eviction API.
pub async fn ignore_an_eviction(p: &mut Place) -> Result<()> {
    let pod = runs(p, "Ignore").await?;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    p.make(&format!("pods/{pod}/eviction"), eviction).await?;
    let object = p.until_disrupted(&pod).await?;
    p.write_down("pod", object);
    p.ends(&pod, 137).await?;
    goes_on(p).await
}

/// Somebody deleted it: that is no disruption, and counts.
pub async fn a_pod_deleted_before_it_was_placed(p: &mut Place) -> Result<()> {
    let pod = job(p, "Ignore").await?;
    p.delete(PODS, &pod, json!({})).await?;
    fails(p).await
}
