//! The eviction API, with budgets that somebody keeps.

use anyhow::Result;
use serde_json::{Value, json};

use crate::budgets::{budget, that_can_not_be_computed, until_counts, web};
use crate::place::{BUDGETS, PODS, Place, and, held};

async fn evict(p: &mut Place, step: &str, pod: &str, query: &str) {
    let path = format!("{}/{pod}/eviction{query}", p.path(PODS));
    p.post(step, &path, json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}))
        .await;
}

/// One may go, and the next when another has come.
pub async fn within_the_budget(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.running("two", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    until_counts(p, "keep", 2, 2).await?;
    evict(p, "the first", "one", "").await;
    p.note("evicted", PODS, "one").await?;
    let is_counted =
        |one: &Value| one["status"]["currentHealthy"] == 1 && one["status"].get("disruptedPods").is_none();
    let budget = p.until(BUDGETS, "keep", "to count the eviction", is_counted).await?;
    p.write_down("budget", budget);
    evict(p, "the second is too many", "two", "").await;
    p.ends("one", 137).await?;
    p.note("ended", PODS, "one").await?;
    p.ends_and_goes("one", 137).await?;
    p.running("three", "a", web()).await?;
    until_counts(p, "keep", 2, 2).await?;
    evict(p, "the second", "two", "").await;
    Ok(())
}

/// None may go.
pub async fn beyond_the_budget(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    until_counts(p, "keep", 1, 1).await?;
    evict(p, "refused", "one", "").await;
    p.note("untouched", PODS, "one").await?;
    p.patch(BUDGETS, "keep", json!({"spec": {"minAvailable": 3}})).await?;
    until_counts(p, "keep", 1, 1).await?;
    evict(p, "far from it", "one", "").await;
    Ok(())
}

/// It protects nobody; whether it may go depends on the policy.
pub async fn of_a_pod_that_is_not_ready(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    for name in ["well", "sick", "weak"] {
        p.running(name, "a", web()).await?;
    }
    for name in ["sick", "weak"] {
        p.status(name, json!({"conditions": [{"type": "Ready", "status": "False"}]})).await?;
    }
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 2}))).await?;
    until_counts(p, "keep", 1, 3).await?;
    evict(p, "the budget is not met", "sick", "").await;
    p.patch(BUDGETS, "keep", json!({"spec": {"minAvailable": 1}})).await?;
    until_counts(p, "keep", 1, 3).await?;
    evict(p, "the budget is met", "sick", "").await;
    p.note("sick", PODS, "sick").await?;
    p.patch(
        BUDGETS,
        "keep",
        json!({"spec": {"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}}),
    )
    .await?;
    until_counts(p, "keep", 1, 3).await?;
    evict(p, "always", "weak", "").await;
    evict(p, "but not those that are ready", "well", "").await;
    Ok(())
}

/// Nothing is lost with it.
pub async fn of_a_pod_that_waits(p: &mut Place) -> Result<()> {
    p.pod("new", and(web(), held())).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    until_counts(p, "keep", 0, 1).await?;
    evict(p, "evicted", "new", "").await;
    let pod = p.until_deleted(PODS, "new").await?;
    p.write_down("marked", json!({"conditions": pod["status"]["conditions"]}));
    Ok(())
}

/// Nor with one that has ended.
pub async fn of_a_pod_that_has_ended(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", and(web(), held())).await?;
    p.ends("new", 0).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 1}))).await?;
    until_counts(p, "keep", 0, 1).await?;
    evict(p, "evicted", "new", "").await;
    p.note("new", PODS, "new").await
}

/// Nobody knows which one counts.
pub async fn with_two_budgets(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    for name in ["first", "second"] {
        p.make(BUDGETS, budget(name, json!({"minAvailable": 0}))).await?;
        until_counts(p, name, 1, 1).await?;
    }
    evict(p, "refused", "one", "").await;
    p.note("untouched", PODS, "one").await
}

/// What can't be counted allows nothing, and says why.
pub async fn with_a_budget_that_can_not_be_computed(p: &mut Place) -> Result<()> {
    that_can_not_be_computed(p).await?;
    evict(p, "refused", "one", "").await;
    Ok(())
}

/// A dry run changes nothing.
pub async fn that_are_not_meant(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("one", "a", web()).await?;
    p.make(BUDGETS, budget("keep", json!({"minAvailable": 0}))).await?;
    until_counts(p, "keep", 1, 1).await?;
    evict(p, "dry run", "one", "?dryRun=All").await;
    p.note("untouched", PODS, "one").await?;
    p.note("budget", BUDGETS, "keep").await
}
