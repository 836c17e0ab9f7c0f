//! Pods that nobody would end otherwise.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::text;

use crate::place::{PODS, Place, and, held, is_deleted};

fn is_collected(pod: &Value) -> bool {
    is_deleted(pod)
        && text(pod, "/status/phase") == "Failed"
        && pod["metadata"]["deletionGracePeriodSeconds"] == 0
}

async fn until_collected(p: &mut Place, pod: &str) -> Result<()> {
    let object = p.until(PODS, pod, "to be collected", is_collected).await?;
    p.write_down(pod, object);
    Ok(())
}

/// Its node is no more.
pub async fn an_orphan(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", held()).await?;
    p.remove_node("a").await?;
    until_collected(p, "new").await
}

/// It was placed, and never ran.
pub async fn an_orphan_that_has_not_started(p: &mut Place) -> Result<()> {
    p.pod("new", and(held(), json!({"spec": {"nodeName": p.on("never-there")}}))).await?;
    until_collected(p, "new").await
}

/// It ended well before.
pub async fn an_orphan_that_has_ended(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", held()).await?;
    p.ends("new", 0).await?;
    p.remove_node("a").await?;
    let pod = p.until_deleted(PODS, "new").await?;
    p.write_down("new", pod);
    Ok(())
}

/// Two reasons: the last one is told.
pub async fn an_orphan_that_was_being_evicted(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", held()).await?;
    p.taint("a", json!([{"key": "k", "effect": "NoExecute"}])).await?;
    p.until_disrupted("new").await?;
    p.remove_node("a").await?;
    until_collected(p, "new").await
}

/// Nobody is collected before it is sure that the node is gone.
pub async fn a_node_that_comes_back(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("stays", "a", held()).await?;
    p.running("goes", "b", held()).await?;
    p.remove_node("a").await?;
    p.remove_node("b").await?;
    p.node("a", json!({})).await?;
    p.until(PODS, "goes", "to be collected", is_collected).await?;
    p.note("stays", PODS, "stays").await
}

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Somebody says that the machine is off.
pub async fn out_of_service(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("new", "a", held()).await?;
    p.condition("a", "Ready", "False", "KubeletNotReady").await?;
    p.delete(PODS, "new", json!({})).await?;
    p.taint("a", json!([{"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoSchedule"}])).await?;
    until_collected(p, "new").await
}

/// Only what is deleted is collected there.
pub async fn out_of_service_but_not_deleted(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("stays", "a", held()).await?;
    p.running("goes", "a", held()).await?;
    p.condition("a", "Ready", "False", "KubeletNotReady").await?;
    p.delete(PODS, "goes", json!({})).await?;
    p.taint("a", json!([{"key": OUT_OF_SERVICE, "effect": "NoSchedule"}])).await?;
    p.until(PODS, "goes", "to be collected", is_collected).await?;
    p.note("stays", PODS, "stays").await
}

/// No kubelet ever heard of it.
pub async fn deleted_before_it_was_placed(p: &mut Place) -> Result<()> {
    p.pod("new", held()).await?;
    p.delete(PODS, "new", json!({})).await?;
    until_collected(p, "new").await
}

/// The evicted ones go first, then the oldest.
pub async fn too_many_that_have_ended(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    for name in ["oldest", "older", "evicted"] {
        p.running(name, "a", json!({})).await?;
        until_the_next_second().await;
    }
    p.status("evicted", json!({"phase": "Failed", "reason": "Evicted"})).await?;
    p.ends("older", 0).await?;
    p.ends("oldest", 0).await?;
    p.until_all(PODS, "two pods", |pods| pods.len() == 2).await?;
    p.note_all("without the evicted one", PODS).await?;
    p.running("new", "a", json!({})).await?;
    p.ends("new", 0).await?;
    p.until_gone(PODS, "oldest").await?;
    p.note_all("without the oldest", PODS).await
}

/// Times are told in seconds: what is made in another second is younger.
async fn until_the_next_second() {
    let now = crate::place::ago(0);
    while crate::place::ago(0) == now {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
