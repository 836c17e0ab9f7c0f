//! Pods that matter more, and those that have to leave for them.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use windlass_api::Gates;

use crate::world::{Fate, World, condition, node_of, nominated, once, refusal};

fn of_class(class: &str) -> Value {
    json!({"priorityClassName": class})
}

fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// A node that a pod of low priority has for itself.
async fn occupied(world: &World, grace_s: i64) {
    world.classes().await;
    world.node("a", "1", json!({})).await;
    world
        .pod("victim", "1", json!({"priorityClassName": "low", "terminationGracePeriodSeconds": grace_s}))
        .await;
    world.node_of("victim").await;
}

#[tokio::test]
async fn a_pod_leaves_with_its_own_grace_period_and_is_marked_before() {
    let world = World::new();
    world.start();
    occupied(&world, 77).await;
    world.pod("urgent", "1", of_class("high")).await;
    let victim = world.until_pod("victim", "leaving", is_deleting).await;
    assert_eq!(victim.metadata.deletion_grace_period_seconds, Some(77));
    let mark = condition(&victim, "DisruptionTarget").expect("a condition");
    let shown = json!([mark.status, mark.reason, mark.message]);
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    assert_eq!(shown, json!(["True", "PreemptionByScheduler", message]));
    assert_eq!(mark.observed_generation, Some(1));
    let urgent = world.until_pod("urgent", "nominated", |pod| nominated(pod) == Some("a")).await;
    let waits = "False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(refusal(&urgent).as_deref(), Some(waits), "nothing about preemption: it is under way");
    let event = world.event("victim", "Preempted").await;
    let uid = urgent.uid().expect("a UID");
    assert_eq!(
        json!([event.type_, event.action, event.note, event.related]),
        json!(["Normal", "Preempting", format!("Preempted by pod {uid} on node a"), null]),
    );
    let victims: Vec<String> =
        world.writes.lock().iter().filter(|write| write.contains("/victim")).cloned().collect();
    let path = "/api/v1/namespaces/default/pods/victim";
    assert_eq!(
        victims,
        [format!("POST {path}/binding"), format!("PATCH {path}/status"), format!("DELETE {path}")]
    );
    world.remove("victim").await;
    assert_eq!(world.node_of("urgent").await, "a");
    let urgent = world.pods.get("urgent").await.expect("the pod");
    assert_eq!((refusal(&urgent).as_deref(), nominated(&urgent)), (Some("True : "), None));
}

#[tokio::test]
async fn without_the_gate_no_condition_is_added() {
    let world = World::with(Gates { pod_disruption_conditions: false, ..Gates::default() });
    world.start();
    occupied(&world, 30).await;
    world.pod("urgent", "1", of_class("high")).await;
    let victim = world.until_pod("victim", "leaving", is_deleting).await;
    assert_eq!(condition(&victim, "DisruptionTarget"), None);
}

#[tokio::test]
async fn with_the_draft_on_the_reason_of_the_deletion_ends_in_the_status() {
    for (is_on, want) in [(true, Some("PreemptionByScheduler")), (false, None)] {
        let world = World::with(Gates { retriable_and_non_retriable_failures: is_on, ..Gates::default() });
        world.start();
        occupied(&world, 30).await;
        world.pod("urgent", "1", of_class("high")).await;
        let victim = world.until_pod("victim", "leaving", is_deleting).await;
        assert_eq!(victim.status.and_then(|status| status.reason).as_deref(), want, "{is_on}");
    }
}

#[tokio::test]
async fn a_pod_that_never_preempts_is_told_so() {
    let world = World::new();
    world.start();
    occupied(&world, 30).await;
    world.pod("patient", "1", of_class("polite")).await;
    let told = "False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
                preemptionPolicy=Never.";
    world.told("patient", told).await;
    assert!(!is_deleting(&world.pods.get("victim").await.expect("the pod")));
}

#[tokio::test]
async fn a_pod_waits_for_those_that_leave_for_it_and_others_do_not_take_its_place() {
    let world = World::new();
    world.start();
    occupied(&world, 30).await;
    world.pod("urgent", "1", of_class("high")).await;
    world.until_pod("victim", "leaving", is_deleting).await;
    world.until_pod("urgent", "nominated", |pod| nominated(pod) == Some("a")).await;
    // Something happens that may help: it is tried again, and makes nobody else leave.
    world.node("b", "500m", json!({})).await;
    world.pod("bystander", "500m", of_class("low")).await;
    assert_eq!(world.node_of("bystander").await, "b");
    world.remove("bystander").await;
    let told = "False Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to a \
                terminating pod on the nominated node.";
    world.told("urgent", told).await;
    world.pod("greedy", "1", of_class("low")).await;
    world.until_pod("greedy", "refused", |pod| refusal(pod).is_some()).await;
    world.remove("victim").await;
    assert_eq!(world.node_of("urgent").await, "a");
    assert_eq!(node_of(&world.pods.get("greedy").await.expect("the pod")), None);
}

/// The answer to a deletion counts as much as the watch: whichever comes first.
#[tokio::test]
async fn nobody_else_leaves_though_the_watch_is_late() {
    let world = World::new();
    let hold = world.holds_pods.clone();
    let mark = "PATCH /api/v1/namespaces/default/pods/victim/status";
    let judge = move |write: &str| {
        if write == mark {
            hold.send_replace(true);
        }
        Fate::Passes
    };
    world.start_with(|_| {}, judge);
    occupied(&world, 30).await;
    let tainted = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    world.node("b", "1", tainted("forbidding")).await;
    world.pod("other", "1", json!({"priorityClassName": "low", "nodeName": "b"})).await;
    let tolerations = json!([{"key": "tolerated", "operator": "Exists"}]);
    world.pod("urgent", "1", json!({"priorityClassName": "high", "tolerations": tolerations})).await;
    world.until_pod("victim", "leaving", is_deleting).await;
    world.patch_node("b", tainted("tolerated")).await;
    let told = "False Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to a \
                terminating pod on the nominated node.";
    world.told("urgent", told).await;
    // Older views of the victim come now, and change nothing.
    world.holds_pods.send_replace(false);
    world.remove("victim").await;
    assert_eq!(world.node_of("urgent").await, "a");
    let writes = world.writes.lock();
    assert_eq!(writes.iter().filter(|write| *write == mark).count(), 1, "it was told once");
    assert!(!writes.iter().any(|write| write.ends_with("/other")), "{writes:?}");
}

#[tokio::test]
async fn budgets_decide_between_nodes_but_do_not_forbid() {
    let world = World::new();
    world.classes().await;
    world.node("a", "1", json!({})).await;
    world.node("b", "1", json!({})).await;
    world.budget("guard", "web", 0).await;
    world.start();
    world.labelled("guarded", "1", json!({"app": "web"}), of_class("low")).await;
    assert_eq!(world.node_of("guarded").await, "a");
    world.labelled("free", "1", json!({"app": "other"}), of_class("high")).await;
    assert_eq!(world.node_of("free").await, "b");
    world.pod("first", "1", of_class("higher")).await;
    world.until_pod("free", "leaving", is_deleting).await;
    assert!(!is_deleting(&world.pods.get("guarded").await.expect("the pod")), "though it matters less");
    world.pod("second", "1", of_class("higher")).await;
    world.until_pod("guarded", "leaving", is_deleting).await;
}

#[tokio::test]
async fn a_pod_of_lower_priority_loses_the_node_that_was_kept_for_it() {
    let world = World::new();
    world.start();
    occupied(&world, 30).await;
    world.pod("urgent", "1", of_class("high")).await;
    world.until_pod("urgent", "nominated", |pod| nominated(pod) == Some("a")).await;
    world.pod("most-urgent", "1", of_class("higher")).await;
    world.until_pod("most-urgent", "nominated", |pod| nominated(pod) == Some("a")).await;
    world
        .until_pod("urgent", "not nominated", |pod| nominated(pod).is_none() && refusal(pod).is_some())
        .await;
    world.remove("victim").await;
    assert_eq!(world.node_of("most-urgent").await, "a");
}

#[tokio::test]
async fn a_delete_that_fails_is_tried_again() {
    let world = World::new();
    world.start_with(|_| {}, once(Fate::Fails, "DELETE /api/v1/namespaces/default/pods/victim"));
    occupied(&world, 30).await;
    world.pod("urgent", "1", of_class("high")).await;
    world.until_pod("victim", "leaving", is_deleting).await;
}

#[tokio::test]
async fn a_pod_that_gives_up_frees_the_node_that_was_kept_for_it() {
    let world = World::new();
    world.start();
    occupied(&world, 30).await;
    world.pod("urgent", "1", of_class("high")).await;
    world.until_pod("urgent", "nominated", |pod| nominated(pod) == Some("a")).await;
    world.pod("greedy", "1", of_class("low")).await;
    world.until_pod("greedy", "refused", |pod| refusal(pod).is_some()).await;
    world.pods.delete("urgent", &DeleteParams::default()).await.expect("deleted");
    world.remove("victim").await;
    assert_eq!(world.node_of("greedy").await, "a");
}
