//! What disruption budgets say of their pods, and conditions that announce what never came.

use anyhow::Result;
use serde_json::{Value, json};

use crate::place::{BUDGETS, JOBS, PODS, Place, ago, and, condition, owned_by};

/// A budget for pods with the label `app=web`; `more` is merged into its spec.
pub fn budget(name: &str, more: Value) -> Value {
    let spec = and(json!({"selector": {"matchLabels": {"app": "web"}}}), more);
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})
}

pub fn web() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}})
}

/// A Job that nobody looks after.
pub fn foreign_job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
        "managedBy": "example.com/nobody",
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}},
    }})
}

/// Waits until the budget counts so many healthy pods of so many.
pub async fn until_counts(p: &Place, name: &str, healthy: u64, expected: u64) -> Result<Value> {
    p.until(BUDGETS, name, &format!("to count {healthy} of {expected}"), |one| {
        let (status, generation) = (&one["status"], &one["metadata"]["generation"]);
        status["currentHealthy"] == healthy
            && status["expectedPods"] == expected
            && status["observedGeneration"] == *generation
    })
    .await
}

async fn counts(p: &mut Place, step: &str, name: &str, healthy: u64, expected: u64) -> Result<()> {
    let budget = until_counts(p, name, healthy, expected).await?;
    p.write_down(step, budget);
    Ok(())
}

/// A number of pods.
pub async fn at_least_one(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.running("two", "a", web()).await?;
    p.running("other", "a", json!({})).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    counts(p, "both", "keep", 2, 2).await?;
    p.ends("one", 1).await?;
    counts(p, "one is left", "keep", 1, 2).await?;
    p.events(&[]).await
}

/// A part of pods that nobody manages is a part of nothing.
pub async fn at_least_half(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": "50%"}))).await?;
    counts(p, "budget", "keep", 1, 0).await?;
    p.events(&["PodDisruptionBudget keep UnmanagedPods"]).await
}

/// A budget `keep` for a pod `one` of a Job. It counts from how many there should be, which a Job does not tell.
pub async fn that_can_not_be_computed(p: &mut Place) -> Result<Value> {
    p.node("a", json!({})).await?;
    let job = p.make(JOBS, foreign_job("job")).await?;
    let mut owned = owned_by(&job, "Job", true);
    owned["metadata"]["ownerReferences"][0]["controller"] = json!(true);
    p.running("one", "a", and(web(), owned)).await?;
    p.make(BUDGETS, budget("keep", json!({"maxUnavailable": 1}))).await?;
    let failed =
        |one: &Value| condition(one, "DisruptionAllowed").is_some_and(|one| one["reason"] == "SyncFailed");
    p.until(BUDGETS, "keep", "to fail", failed).await
}

/// How many pods a Job should have is not told.
pub async fn at_most_one_of_a_job(p: &mut Place) -> Result<()> {
    let budget = that_can_not_be_computed(p).await?;
    p.write_down("budget", budget);
    p.events(&["PodDisruptionBudget keep CalculateExpectedPodCountFailed"]).await
}

/// There is nothing to keep.
pub async fn without_pods(p: &mut Place) -> Result<()> {
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    counts(p, "budget", "keep", 0, 0).await?;
    p.events(&["PodDisruptionBudget keep NoPods"]).await
}

/// A selector that says nothing means all, and none means none.
pub async fn of_everything(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.running("two", "a", json!({})).await?;
    let all = json!({"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {}}});
    p.make(BUDGETS, all).await?;
    counts(p, "all", "all", 2, 2).await?;
    p.make(BUDGETS, json!({"metadata": {"name": "none"}, "spec": {"minAvailable": 1}})).await?;
    counts(p, "none", "none", 0, 0).await
}

/// Healthy means ready.
pub async fn pods_that_are_not_ready(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.pod("two", and(web(), json!({"spec": {"nodeName": p.on("a")}}))).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 2}))).await?;
    counts(p, "one waits", "keep", 1, 2).await?;
    p.runs("two").await?;
    counts(p, "both", "keep", 2, 2).await
}

/// They are counted, and never healthy.
pub async fn pods_that_have_ended(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.running("two", "a", web()).await?;
    p.ends("two", 0).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    counts(p, "budget", "keep", 1, 2).await
}

/// They are counted, and no longer healthy.
pub async fn pods_that_are_deleted(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.running("two", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    until_counts(p, "keep", 2, 2).await?;
    p.delete(PODS, "two", json!({})).await?;
    counts(p, "on its way", "keep", 1, 2).await?;
    p.ends_and_goes("two", 143).await?;
    counts(p, "gone", "keep", 1, 1).await
}

/// A budget that is changed is looked at again.
pub async fn that_change(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 0}))).await?;
    counts(p, "loose", "keep", 1, 1).await?;
    p.patch(BUDGETS, "keep", json!({"spec": {"minAvailable": 1}})).await?;
    counts(p, "tight", "keep", 1, 1).await
}

/// Both count it.
pub async fn two_for_one_pod(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.make(BUDGETS, budget("first", json!({"minAvailable": 1}))).await?;
    until_counts(p, "first", 0, 0).await?;
    p.running("one", "a", web()).await?;
    counts(p, "first", "first", 1, 1).await?;
    p.make(BUDGETS, budget("second", json!({"minAvailable": 0}))).await?;
    counts(p, "second", "second", 1, 1).await
}

/// A pod that was to be evicted is still there after two minutes.
pub async fn a_disruption_that_never_came(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 0}))).await?;
    until_counts(p, "keep", 1, 1).await?;
    p.patch_status(BUDGETS, "keep", json!({"disruptedPods": {"one": ago(180)}, "disruptionsAllowed": 0}))
        .await?;
    let budget =
        p.until(BUDGETS, "keep", "to give up", |one| one["status"]["disruptionsAllowed"] == 1).await?;
    p.write_down("budget", budget);
    p.events(&["Pod one NotDeleted"]).await
}

fn target(reason: &str, seconds: i64) -> Value {
    json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "so",
        "lastTransitionTime": ago(seconds)}]})
}

async fn until_cleared(p: &Place, pod: &str) -> Result<Value> {
    let is_cleared =
        |pod: &Value| condition(pod, "DisruptionTarget").is_some_and(|one| one["status"] == "False");
    p.until(PODS, pod, "not to be a target", is_cleared).await
}

/// Who wrote the condition died before it could delete the pod.
pub async fn a_stale_condition(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", json!({})).await?;
    p.status("new", target("PreemptionByScheduler", 180)).await?;
    let pod = until_cleared(p, "new").await?;
    p.write_down("cleared", pod);
    Ok(())
}

/// What a kubelet says, what is fresh, and what has happened.
pub async fn conditions_that_are_not_stale(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    for name in ["kubelet", "fresh", "ended", "deleted", "stale"] {
        p.running(name, "a", json!({})).await?;
    }
    p.delete(PODS, "deleted", json!({})).await?;
    p.ends("ended", 137).await?;
    p.status("kubelet", target("TerminationByKubelet", 180)).await?;
    p.status("fresh", target("PreemptionByScheduler", 0)).await?;
    p.status("ended", target("DeletionByTaintManager", 180)).await?;
    p.status("deleted", target("EvictionByEvictionAPI", 180)).await?;
    p.status("stale", target("EvictionByEvictionAPI", 180)).await?;
    until_cleared(p, "stale").await?;
    for name in ["kubelet", "fresh", "ended", "deleted"] {
        p.note(name, PODS, name).await?;
    }
    Ok(())
}
