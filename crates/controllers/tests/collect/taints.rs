//! Pods on tainted nodes.

use kube::ResourceExt;
use serde_json::{Value, json};
use windlass_api::Gates;

use crate::world::World;

fn tolerates(key: &str, seconds: Value) -> Value {
    json!([{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}])
}

#[tokio::test]
async fn a_pod_that_does_not_tolerate_its_node_is_marked_and_deleted_with_its_own_grace() {
    let world = World::new();
    world.evict_by_taints();
    world.create_node("node", json!({})).await;
    world.held_pod_on("node", "pod", json!([])).await;
    world.run_pod("pod").await;
    world.taint_node("node", &["example.com/out"]).await;
    world.until_pod_is_deleting("pod").await;
    let pod = world.pod("pod").await;
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(30));
    assert_eq!(
        pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        Some("Running"),
        "the node ends it"
    );
    let condition = world.pod_condition("pod", "DisruptionTarget").await.expect("it was marked first");
    assert_eq!(
        (&*condition.status, condition.reason.as_deref(), condition.message.as_deref()),
        ("True", Some("DeletionByTaintManager"), Some("Taint manager: deleting due to NoExecute taint"))
    );
    assert_eq!(condition.observed_generation, Some(1), "of before the deletion");
    world.until_event("TaintManagerEviction", "Marking for deletion Pod default/pod").await;
    assert!(world.metrics.text().contains("taint_eviction_controller_pod_deletions_total 1\n"));
}

#[tokio::test]
async fn a_pod_stays_as_long_as_it_tolerates_its_node() {
    let world = World::new();
    world.evict_by_taints();
    world.create_node("node", json!({})).await;
    world.held_pod_on("node", "brief", tolerates("example.com/out", json!(1))).await;
    world.held_pod_on("node", "long", tolerates("example.com/out", json!(3600))).await;
    world.held_pod_on("node", "forever", tolerates("example.com/out", json!(null))).await;
    world.taint_node("node", &["example.com/out"]).await;
    world.until_pod_is_deleting("brief").await;
    for pod in ["long", "forever"] {
        assert!(world.pod(pod).await.metadata.deletion_timestamp.is_none(), "{pod}");
    }
    world.taint_node("node", &[]).await;
    world.until_event("TaintManagerEviction", "Cancelling deletion of Pod default/long").await;
    assert!(world.pod_condition("long", "DisruptionTarget").await.is_none());
}

#[tokio::test]
async fn a_pod_that_comes_to_a_tainted_node_is_deleted_too_also_if_it_has_ended() {
    let world = World::new();
    world.create_node("node", json!({})).await;
    world.taint_node("node", &["example.com/out"]).await;
    world.held_pod_on("node", "ended", json!([])).await;
    world.patch_pod_status("ended", json!({"phase": "Succeeded"})).await;
    world.evict_by_taints();
    world.until_pod_is_deleting("ended").await;
    world.held_pod_on("node", "late", json!([])).await;
    world.until_pod_is_deleting("late").await;
    for pod in ["ended", "late"] {
        assert!(world.pod_condition(pod, "DisruptionTarget").await.is_some(), "{pod}");
    }
}

#[tokio::test]
async fn with_the_gate_off_a_pod_is_deleted_without_a_mark() {
    let world = World::with(Gates { pod_disruption_conditions: false, ..Gates::default() });
    world.evict_by_taints();
    world.create_node("node", json!({})).await;
    world.held_pod_on("node", "pod", json!([])).await;
    world.taint_node("node", &["example.com/out"]).await;
    world.until_pod_is_deleting("pod").await;
    assert_eq!(world.pod_condition("pod", "DisruptionTarget").await, None);
}

#[tokio::test]
async fn with_the_draft_on_the_reason_of_the_deletion_ends_in_the_status() {
    let world = World::with(Gates { retriable_and_non_retriable_failures: true, ..Gates::default() });
    world.evict_by_taints();
    world.create_node("node", json!({})).await;
    world.held_pod_on("node", "pod", json!([])).await;
    world.taint_node("node", &["example.com/out"]).await;
    world.until_pod_is_deleting("pod").await;
    let pod = world.pod("pod").await;
    assert_eq!(pod.status.and_then(|status| status.reason).as_deref(), Some("DeletionByTaintManager"));
    world.create_pod("orphan", json!({"finalizers": ["example.com/held"]})).await;
    world.bind_pod("orphan", "nowhere").await;
    let clock = world.collect_pods();
    world.until_pods_were_collected_from(2).await;
    clock.advance(40);
    world.until_pod_is_deleting("orphan").await;
    let orphan = world.pod("orphan").await;
    assert_eq!(orphan.name_any(), "orphan");
    assert_eq!(orphan.status.and_then(|status| status.reason).as_deref(), Some("DeletionByPodGC"));
}
