//! Taints that end pods.

use anyhow::Result;
use serde_json::{Value, json};

use crate::place::{BUDGETS, PODS, Place, and, held};

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "value": "v", "effect": effect})
}

/// A toleration of a taint, for so long.
fn tolerates(key: &str, seconds: Option<i64>) -> Value {
    let mut one = json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    if let Some(seconds) = seconds {
        one["tolerationSeconds"] = json!(seconds);
    }
    one
}

fn with(tolerations: Value) -> Value {
    json!({"spec": {"tolerations": tolerations}})
}

/// The whole way of a pod: marked, deleted, ended by its kubelet.
pub async fn evicts(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", json!({"spec": {"terminationGracePeriodSeconds": 5}})).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    p.ends("new", 137).await?;
    p.note("ended", PODS, "new").await?;
    p.ends_and_goes("new", 137).await?;
    p.events(&["Pod new TaintManagerEviction"]).await
}

/// Those that may stay stay.
pub async fn tolerated_for_ever(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("stays", "a", with(json!([tolerates("k", None)]))).await?;
    p.running("goes", "a", json!({})).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    p.until_disrupted("goes").await?;
    p.note("stays", PODS, "stays").await?;
    p.events(&["Pod goes TaintManagerEviction"]).await
}

/// Time runs out.
pub async fn tolerated_for_a_while(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", with(json!([tolerates("k", Some(2))]))).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    p.events(&["Pod new TaintManagerEviction"]).await
}

/// The taint is gone before the time is up.
pub async fn taken_away_in_time(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("stays", "a", with(json!([tolerates("k", Some(3600))]))).await?;
    p.running("goes", "a", json!({})).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    p.until_disrupted("goes").await?;
    p.taint("a", json!([])).await?;
    p.events(&["Pod goes TaintManagerEviction", "Pod stays TaintManagerEviction"]).await?;
    p.note("stays", PODS, "stays").await
}

/// Who is there already need not go.
pub async fn that_only_keeps_pods_away(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("stays", "a", with(json!([tolerates("other", None)]))).await?;
    p.running("goes", "a", json!({})).await?;
    p.taint("a", json!([taint("k", "NoSchedule"), taint("other", "NoExecute")])).await?;
    p.until_disrupted("goes").await?;
    p.note("stays", PODS, "stays").await
}

/// One that is not tolerated is enough.
pub async fn two_of_which_one_is_tolerated(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", with(json!([tolerates("k", None)]))).await?;
    p.taint("a", json!([taint("k", "NoExecute"), taint("other", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    Ok(())
}

/// The shortest time counts.
pub async fn two_tolerated_for_different_times(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", with(json!([tolerates("k", Some(3600)), tolerates("other", Some(1))]))).await?;
    p.taint("a", json!([taint("k", "NoExecute"), taint("other", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    Ok(())
}

/// No time at all.
pub async fn tolerated_for_no_time(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", with(json!([tolerates("k", Some(0))]))).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    Ok(())
}

/// The taint was there first.
pub async fn found_on_arrival(p: &mut Place) -> Result<()> {
    p.node("a", json!({"spec": {"taints": [taint("k", "NoExecute")]}})).await?;
    p.pod("new", json!({})).await?;
    p.bind("new", "a").await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    p.events(&["Pod new TaintManagerEviction"]).await
}

/// It was placed and waits for its images.
pub async fn evicts_a_pod_that_has_not_started(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.pod("new", json!({"spec": {"nodeName": p.on("a")}})).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    Ok(())
}

/// Those that have ended go too.
pub async fn evicts_a_pod_that_has_ended(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", held()).await?;
    p.ends("new", 0).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    Ok(())
}

/// Taints do not ask.
pub async fn do_not_ask_budgets(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}});
    p.make(BUDGETS, json!({"metadata": {"name": "keep"}, "spec": spec})).await?;
    p.running("new", "a", and(json!({"metadata": {"labels": {"app": "kept"}}}), json!({}))).await?;
    p.until(BUDGETS, "keep", "to count the pod", |one| one["status"]["currentHealthy"] == 1).await?;
    p.taint("a", json!([taint("k", "NoExecute")])).await?;
    let pod = p.until_disrupted("new").await?;
    p.write_down("evicted", pod);
    let budget =
        p.until(BUDGETS, "keep", "to miss the pod", |one| one["status"]["currentHealthy"] == 0).await?;
    p.write_down("budget", budget);
    Ok(())
}
