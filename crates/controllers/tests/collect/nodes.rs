//! Nodes that are silent or not well.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};
use windlass_controllers::node_lifecycle::Config;

use crate::world::World;

/// Quick, so that no test waits.
fn quick() -> Config {
    Config {
        monitor_period: Duration::from_millis(20),
        // Much longer than any test takes.
        monitor_grace: Duration::from_secs(1000),
        startup_grace: Duration::from_secs(1200),
        eviction_rate: 1000.0,
        secondary_eviction_rate: 1000.0,
        ..Config::default()
    }
}

fn conditions(ready: &str) -> Value {
    json!({"status": {"conditions": [
        {"type": "Ready", "status": ready, "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}})
}

/// `key:effect` without the prefix, in order.
fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let shown =
        |key: &str, effect: &str| format!("{}:{effect}", key.trim_start_matches("node.kubernetes.io/"));
    let mut taints: Vec<_> = taints.into_iter().flatten().map(|one| shown(&one.key, &one.effect)).collect();
    taints.sort();
    taints
}

fn is_tainted(wanted: &'static [&str]) -> impl FnMut(&Node) -> bool {
    move |node| taints(node) == wanted
}

#[tokio::test]
async fn a_silent_node_becomes_unknown_and_its_pods_are_not_ready_and_leave() {
    let world = World::new();
    world.create_node("silent", conditions("True")).await;
    world.held_pod_on("silent", "pod", json!([])).await;
    world.run_pod("pod").await;
    let clock = world.look_after_nodes(quick(), 0);
    let said = |name: &str| format!("Node {name} event: Registered Node {name} in Controller");
    world.until_event("RegisteredNode", &said("silent")).await;
    world.until_nodes_were_looked_at().await;
    clock.advance(600);
    world.create_node("well", conditions("True")).await;
    world.until_event("RegisteredNode", &said("well")).await;
    world.until_nodes_were_looked_at().await;
    clock.advance(600);
    world
        .until_node("silent", "both taints", is_tainted(&["unreachable:NoExecute", "unreachable:NoSchedule"]))
        .await;
    let node = world.node("silent").await;
    let told: Vec<_> = node
        .status
        .and_then(|status| status.conditions)
        .into_iter()
        .flatten()
        .map(|one| [one.type_, one.status, one.reason.unwrap_or_default(), one.message.unwrap_or_default()])
        .collect();
    let silent = "Kubelet stopped posting node status.";
    let never = "Kubelet never posted node status.";
    assert_eq!(
        told,
        [
            ["Ready", "Unknown", "NodeStatusUnknown", silent],
            ["MemoryPressure", "Unknown", "NodeStatusUnknown", silent],
            ["DiskPressure", "Unknown", "NodeStatusNeverUpdated", never],
            ["PIDPressure", "Unknown", "NodeStatusNeverUpdated", never],
        ]
        .map(|row| row.map(str::to_owned))
    );
    assert_eq!(taints(&world.node("well").await), Vec::<String>::new());
    world
        .until_pod("pod", "that it is not ready", |pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "False")
        })
        .await;
    world.until_event("NodeNotReady", "Node silent status is now: NodeNotReady").await;
    world.until_event("NodeNotReady", "Node is not ready").await;
    let given_up = "node_collector_evictions_total{zone=\"\"} ";
    let metrics = world.metrics.text();
    let given_up = metrics.lines().find_map(|line| line.strip_prefix(given_up)?.parse::<u64>().ok());
    assert!(given_up.is_some_and(|count| count > 0), "{metrics}");
    // It comes back.
    let mut back = conditions("True");
    back["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:00:09Z");
    world.patch_node_status("silent", back).await;
    world.until_node("silent", "no taints", is_tainted(&[])).await;
}

#[tokio::test]
async fn a_node_that_renews_its_lease_is_heard_of_also_if_it_never_said_anything() {
    let world = World::new();
    world.create_node("quiet", json!({})).await;
    world.create_node("renews", json!({})).await;
    world.create_lease("renews").await;
    world.look_after_nodes(quick(), 2000);
    let is_unknown = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "Unknown")
    };
    world.until_node("quiet", "that it is unknown", is_unknown).await;
    world.until_nodes_were_looked_at().await;
    let conditions = world.node("renews").await.status.and_then(|status| status.conditions);
    assert_eq!(conditions.unwrap_or_default(), []);
}

#[tokio::test]
async fn when_every_node_is_silent_none_is_given_up() {
    let world = World::new();
    world.create_node("only", conditions("True")).await;
    let clock = world.look_after_nodes(quick(), 0);
    world.until_event("RegisteredNode", "Node only event: Registered Node only in Controller").await;
    world.until_nodes_were_looked_at().await;
    clock.advance(1001);
    world.until_node("only", "the taint of its condition", is_tainted(&["unreachable:NoSchedule"])).await;
    let is_counted =
        |_: &Node| world.metrics.text().contains("node_collector_unhealthy_nodes_in_zone{zone=\"\"} 1\n");
    world.until_node("only", "a zone in full disruption", is_counted).await;
    world.until_nodes_were_looked_at().await;
    assert_eq!(taints(&world.node("only").await), ["unreachable:NoSchedule"]);
}

#[tokio::test]
async fn conditions_and_cordons_become_taints_and_old_labels_follow() {
    let world = World::new();
    world.look_after_nodes(quick(), 0);
    world
        .create_node(
            "node",
            json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}, "spec": {"unschedulable": true}}),
        )
        .await;
    let mut pressed = conditions("False");
    pressed["status"]["conditions"][1]["status"] = json!("True");
    world.patch_node_status("node", pressed).await;
    let all = &["memory-pressure:NoSchedule", "not-ready:NoSchedule", "unschedulable:NoSchedule"];
    world.until_node("node", "its taints", is_tainted(all)).await;
    world
        .until_node("node", "its label", |node| {
            node.labels().get("beta.kubernetes.io/os").map(String::as_str) == Some("linux")
        })
        .await;
    let times = world.node("node").await.spec.and_then(|spec| spec.taints).into_iter().flatten();
    assert!(times.clone().count() == 3 && times.into_iter().all(|one| one.time_added.is_some()));
}
