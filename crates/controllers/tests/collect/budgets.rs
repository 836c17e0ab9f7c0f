//! Disruption budgets, and marks of disruptions that never came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use serde_json::{Value, json};
use tower::{BoxError, Service};
use windlass_controllers::disruption::Config;

use crate::world::{NAMESPACE, World};

/// Two pods that are ready and one that is not, all of the label `app: a`.
async fn three_pods(world: &World) {
    world.create_node("node", json!({})).await;
    for name in ["one", "two", "slow"] {
        world.held_pod_on("node", name, json!([])).await;
    }
    world.run_pod("one").await;
    world.run_pod("two").await;
    world.patch_pod_status("slow", json!({"phase": "Running"})).await;
}

fn status(healthy: i32, desired: i32, allowed: i32, disrupted: Value) -> Value {
    let (is, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({"type": "DisruptionAllowed", "status": is, "reason": reason, "message": "",
                           "observedGeneration": 1});
    let mut status = json!({
        "currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": allowed, "expectedPods": 3,
        "observedGeneration": 1, "conditions": [condition],
    });
    if disrupted.is_object() {
        status["disruptedPods"] = disrupted;
    }
    status
}

#[tokio::test]
async fn a_budget_knows_its_pods_and_allows_one_eviction_at_a_time() {
    let world = World::new();
    world.keep_budgets(Config::default());
    three_pods(&world).await;
    let selector = json!({"matchLabels": {"app": "a"}});
    world.create_budget("budget", json!({"minAvailable": 1, "selector": selector})).await;
    world.until_budget("budget", status(2, 1, 1, json!(null))).await;
    assert_eq!(world.evict("one").await, 201);
    // It is being deleted, so it is neither healthy nor waited for.
    world.until_budget("budget", status(1, 1, 0, json!(null))).await;
    assert_eq!(world.evict("two").await, 429);
    assert!(world.pod("two").await.metadata.deletion_timestamp.is_none());
    assert_eq!(world.evict("slow").await, 201, "it is not healthy, and enough others are");
}

#[tokio::test]
async fn a_pod_that_was_not_deleted_after_its_eviction_counts_again() {
    let world = World::new();
    three_pods(&world).await;
    let selector = json!({"matchLabels": {"app": "a"}});
    world.create_budget("budget", json!({"minAvailable": 1, "selector": selector})).await;
    let disrupted = json!({"one": "2026-01-01T00:00:00Z", "unknown": "2026-01-01T00:00:00Z"});
    world.patch_budget("budget", json!({"status": {"disruptedPods": disrupted}})).await;
    world.keep_budgets(Config::default());
    world.until_budget("budget", status(2, 1, 1, json!(null))).await;
    let said = "Pod was expected by PDB default/default to be deleted but it wasn't";
    world.until_event("NotDeleted", said).await;
}

#[tokio::test]
async fn a_budget_for_no_pods_allows_nothing_and_says_so() {
    let world = World::new();
    world.keep_budgets(Config::default());
    world
        .create_budget("budget", json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}))
        .await;
    let mut expected = status(0, 0, 0, json!(null));
    expected["expectedPods"] = json!(0);
    world.until_budget("budget", expected).await;
    world.until_event("NoPods", "No matching pods found").await;
}

#[tokio::test]
async fn a_share_of_pods_that_nobody_controls_is_a_share_of_none() {
    let world = World::new();
    world.keep_budgets(Config::default());
    three_pods(&world).await;
    let selector = json!({"matchLabels": {"app": "a"}});
    world.create_budget("budget", json!({"maxUnavailable": 1, "selector": selector})).await;
    let mut expected = status(2, 0, 0, json!(null));
    expected["expectedPods"] = json!(0);
    world.until_budget("budget", expected).await;
    world.until_event(
        "UnmanagedPods",
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: a,},\
         MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result, the status of the PDB \
         cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value.",
    )
    .await;
}

#[tokio::test]
async fn a_share_of_the_pods_of_a_job_is_not_known_so_nothing_is_allowed() {
    let world = World::new();
    world.keep_budgets(Config::default());
    world.run_jobs();
    world.create_budget("budget", json!({"maxUnavailable": 1, "selector": {}})).await;
    world.create_job("job", json!({})).await;
    let why = "jobs.batch does not implement the scale subresource";
    world
        .until_event(
            "CalculateExpectedPodCountFailed",
            &format!("Failed to calculate the number of expected pods: {why}"),
        )
        .await;
    let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": why,
                           "observedGeneration": 1});
    let mut expected = status(0, 0, 0, json!(null));
    (expected["expectedPods"], expected["conditions"]) = (json!(0), json!([condition]));
    world.until_budget("budget", expected).await;
}

#[tokio::test]
async fn a_pod_of_two_budgets_is_told_so() {
    let world = World::new();
    world.keep_budgets(Config::default());
    world.create_budget("a", json!({"minAvailable": 0, "selector": {}})).await;
    world.create_budget("b", json!({"minAvailable": 0, "selector": {}})).await;
    world.until_event("NoPods", "No matching pods found").await;
    world.create_pod("pod", json!({})).await;
    world
        .until_event(
            "MultiplePodDisruptionBudgets",
            "Pod \"default\"/\"pod\" matches multiple PodDisruptionBudgets.  Chose \"a\" arbitrarily.",
        )
        .await;
    world.bind_pod("pod", "node").await;
    world.run_pod("pod").await;
    assert_eq!(world.evict("pod").await, 500);
}

fn mark(reason: &str) -> Value {
    json!({"phase": "Running", "conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

#[tokio::test]
async fn the_mark_of_a_disruption_that_never_came_is_taken_back_but_not_that_of_a_node() {
    let world = World::new();
    three_pods(&world).await;
    world.patch_pod_status("one", mark("PreemptionByScheduler")).await;
    world.patch_pod_status("two", mark("TerminationByKubelet")).await;
    world.keep_budgets(Config::default());
    let is_back = |pod: &k8s_openapi::api::core::v1::Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == "DisruptionTarget" && one.status == "False")
    };
    world.until_pod("one", "a mark that is taken back", is_back).await;
    let condition = world.pod_condition("one", "DisruptionTarget").await.expect("it is still there");
    assert_eq!((condition.reason, condition.message, condition.observed_generation), (None, None, Some(1)));
    assert_ne!(
        condition.last_transition_time.map(|time| time.0.to_string()).as_deref(),
        Some("2026-01-01T00:00:00Z")
    );
    let condition = world.pod_condition("two", "DisruptionTarget").await.expect("it is still there");
    assert_eq!((&*condition.status, condition.reason.as_deref()), ("True", Some("TerminationByKubelet")));
}

/// The way to a server of one who dies when it is about to delete something: nothing of it arrives after that.
#[derive(Clone)]
struct DiesAtDeletion(Router, Arc<AtomicBool>);

impl Service<Request<kube::client::Body>> for DiesAtDeletion {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self(mut server, is_dead) = self.clone();
        Box::pin(async move {
            let dies = request.method() == Method::DELETE;
            if is_dead.fetch_or(dies, Ordering::SeqCst) || dies {
                return Err("the connection is cut".into());
            }
            Ok(server.call(request).await?)
        })
    }
}

/// What a Job with this rule for disrupted pods says after its pod was marked, not deleted, and failed much later.
async fn verdict_after_a_death(action: &str) -> (Option<i32>, Vec<(String, String)>) {
    let world = World::new();
    world.run_jobs();
    world.create_node("node", json!({})).await;
    let rules =
        json!([{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]);
    world.create_job("job", json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}})).await;
    let pod = world.until_some_pod().await;
    world.bind_pod(&pod, "node").await;
    world.run_pod(&pod).await;
    // The controller marks the pod, and is gone before it has deleted it.
    let is_dead = Arc::new(AtomicBool::new(false));
    let client = Client::new(DiesAtDeletion(world.server.router(), Arc::clone(&is_dead)), NAMESPACE);
    let death = world.evict_by_taints_through(client);
    world.taint_node("node", &["example.com/out"]).await;
    world.until_pod(&pod, "the loss of its deletion", |_| is_dead.load(Ordering::SeqCst)).await;
    death.cancel();
    world.taint_node("node", &[]).await;
    assert!(world.pod(&pod).await.metadata.deletion_timestamp.is_none());
    assert_eq!(
        world.pod_condition(&pod, "DisruptionTarget").await.map(|one| one.status).as_deref(),
        Some("True")
    );
    world.keep_budgets(Config { stale_after: Duration::ZERO, ..Config::default() });
    let is_back = |pod: &k8s_openapi::api::core::v1::Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "DisruptionTarget" && one.status == "False")
    };
    world.until_pod(&pod, "a mark that is taken back", is_back).await;
    let ended = json!({"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                       "state": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:09Z"}}});
    world.patch_pod_status(&pod, json!({"phase": "Failed", "containerStatuses": [ended]})).await;
    world.until_job_is_over("job").await
}

#[tokio::test]
async fn a_component_that_dies_between_the_mark_and_the_deletion_does_not_mislead_the_job() {
    let failed = (
        Some(1),
        vec![
            ("FailureTarget".to_owned(), "BackoffLimitExceeded".to_owned()),
            ("Failed".to_owned(), "BackoffLimitExceeded".to_owned()),
        ],
    );
    // Taken for disrupted, the first would run again, and the second would fail by its policy.
    for action in ["Ignore", "FailJob", "Count"] {
        assert_eq!(verdict_after_a_death(action).await, failed, "{action}");
    }
}
