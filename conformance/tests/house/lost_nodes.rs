//! Nodes that are silent, unwell or closed, and what becomes of their pods.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::{list, text};

use crate::place::{NODES, PODS, Place, condition, has_taint, is_deleted};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn is_ready(node: &Value, status: &str) -> bool {
    condition(node, "Ready").is_some_and(|ready| text(ready, "/status") == status)
}

fn is_tainted(node: &Value, key: &str) -> bool {
    has_taint(node, &format!("{key}:NoSchedule")) && has_taint(node, &format!("{key}:NoExecute"))
}

/// A pod that may stay on a node that is not well for no longer than this.
fn impatient(key: &str) -> Value {
    let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
    json!({"spec": {"tolerations": [toleration]}})
}

async fn until_lost(p: &Place, node: &str) -> Result<Value> {
    let is_lost = |node: &Value| is_ready(node, "Unknown") && is_tainted(node, UNREACHABLE);
    p.until(NODES, &p.on(node), "to be lost", is_lost).await
}

/// Its kubelet says nothing any more.
pub async fn silent_node(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("new", "a", json!({})).await?;
    p.lose("a");
    let node = until_lost(p, "a").await?;
    p.write_down("node", node);
    let pod = p.until(PODS, "new", "not to be ready", |pod| is_ready(pod, "False")).await?;
    p.write_down("pod", pod);
    p.events(&[
        "Node a RegisteredNode",
        "Node b RegisteredNode",
        "Node a NodeNotReady",
        "Pod new NodeNotReady",
    ])
    .await
}

/// The pods of a silent node are marked and deleted, and nobody ends them.
pub async fn silent_with_a_pod_that_may_not_stay(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("new", "a", impatient(UNREACHABLE)).await?;
    p.lose("a");
    let is_over = |pod: &Value| {
        is_deleted(pod) && condition(pod, "DisruptionTarget").is_some() && is_ready(pod, "False")
    };
    let pod = p.until(PODS, "new", "to be disrupted and not to be ready", is_over).await?;
    p.write_down("pod", pod);
    p.events(&["Pod new NodeNotReady", "Pod new TaintManagerEviction"]).await
}

/// Its kubelet never said anything.
pub async fn never_heard_of(p: &mut Place) -> Result<()> {
    p.node("a", json!({"status": {"conditions": []}})).await?;
    p.lose("a");
    let node = until_lost(p, "a").await?;
    p.write_down("node", node);
    Ok(())
}

/// Its kubelet says that it is not ready.
pub async fn not_ready(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("new", "a", json!({})).await?;
    p.condition("a", "Ready", "False", "KubeletNotReady").await?;
    let node = p.until(NODES, &p.on("a"), "to be tainted", |node| is_tainted(node, NOT_READY)).await?;
    p.write_down("node", node);
    // What its kubelet says of its pods is up to the kubelet.
    p.note("pod", PODS, "new").await
}

/// It was silent for a while.
pub async fn back_again(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.lose("a");
    until_lost(p, "a").await?;
    p.revive("a");
    for (kind, status, reason) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ] {
        p.condition("a", kind, status, reason).await?;
    }
    let node = p.until(NODES, &p.on("a"), "to be well", |node| list(node, "/spec/taints").is_empty()).await?;
    p.write_down("node", node);
    Ok(())
}

/// Every kind of pressure keeps pods away.
pub async fn under_pressure(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"] {
        p.condition("a", kind, "True", "SoItIs").await?;
    }
    let has_all = |node: &Value| list(node, "/spec/taints").len() == 4;
    let node = p.until(NODES, &p.on("a"), "to be tainted", has_all).await?;
    p.write_down("node", node);
    p.condition("a", "DiskPressure", "False", "BetterNow").await?;
    let has_less = |node: &Value| list(node, "/spec/taints").len() == 3;
    let node = p.until(NODES, &p.on("a"), "to have less pressure", has_less).await?;
    p.write_down("less", node);
    Ok(())
}

/// It is closed, and opened.
pub async fn cordoned(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.patch(NODES, &p.on("a"), json!({"spec": {"unschedulable": true}})).await?;
    let is_tainted = |node: &Value| has_taint(node, "node.kubernetes.io/unschedulable:NoSchedule");
    let node = p.until(NODES, &p.on("a"), "to be closed", is_tainted).await?;
    p.write_down("closed", node);
    p.patch(NODES, &p.on("a"), json!({"spec": {"unschedulable": null}})).await?;
    let node = p.until(NODES, &p.on("a"), "to be open", |node| list(node, "/spec/taints").is_empty()).await?;
    p.write_down("open", node);
    Ok(())
}

/// Pods may stay for five minutes, if they do not say otherwise.
pub async fn default_tolerations(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    p.running("stays", "a", json!({})).await?;
    p.running("goes", "a", impatient(NOT_READY)).await?;
    p.condition("a", "Ready", "False", "KubeletNotReady").await?;
    p.until_disrupted("goes").await?;
    p.note("stays", PODS, "stays").await
}
