//! The small controllers on a real API server: what is deleted, released and kept, and what is made on schedule.

mod budgets;
mod nodes;
mod taints;
mod world;

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::PropagationPolicy::{Background, Foreground, Orphan};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tower::Service;
use windlass_api::Gates;
use world::{NAMESPACE, World, owner};

#[tokio::test]
async fn dependents_of_an_owner_deleted_in_the_background_are_deleted() {
    let world = World::start();
    let job = world.create_job("job", json!({})).await;
    world.create_pod("pod", json!({"ownerReferences": [owner(&job, true)]})).await;
    world.create_pod("other", json!({})).await;
    world.delete_job("job", Background).await;
    world.until_pods(&["other"]).await;
}

#[tokio::test]
async fn dependents_of_an_owner_deleted_with_orphan_are_released() {
    let world = World::start();
    let job = world.create_job("job", json!({})).await;
    world.create_pod("pod", json!({"ownerReferences": [owner(&job, true)]})).await;
    world.delete_job("job", Orphan).await;
    world.until_no_job("job").await;
    assert_eq!(world.pod("pod").await.owner_references(), []);
}

/// The way to a server of one who is never told about a change of a pod.
#[derive(Clone)]
struct HearsNoPods(Router);

impl Service<Request<kube::client::Body>> for HearsNoPods {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut server = self.0.clone();
        let uri = request.uri();
        let is_deaf =
            uri.path().ends_with("/pods") && uri.query().is_some_and(|of| of.contains("watch=true"));
        Box::pin(
            async move { if is_deaf { std::future::pending().await } else { server.call(request).await } },
        )
    }
}

#[tokio::test]
async fn dependents_that_no_watch_has_shown_yet_are_released_too() {
    let world = World::new();
    world.collect_owned_through(Client::new(HearsNoPods(world.server.router()), NAMESPACE));
    let job = world.create_job("job", json!({})).await;
    world.create_pod("pod", json!({"ownerReferences": [owner(&job, true)]})).await;
    world.create_pod("other", json!({})).await;
    world.delete_job("job", Orphan).await;
    world.until_no_job("job").await;
    assert_eq!(world.pod("pod").await.owner_references(), []);
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_goes_after_the_last_dependent_that_blocks_it() {
    let world = World::start();
    let job = world.create_job("job", json!({})).await;
    let held = json!({"ownerReferences": [owner(&job, true)], "finalizers": ["example.com/held"]});
    world.create_pod("held", held).await;
    world.create_pod("free", json!({"ownerReferences": [owner(&job, true)]})).await;
    world.delete_job("job", Foreground).await;
    world.until_pods(&["held"]).await;
    world.until_pod_is_deleting("held").await;
    assert!(world.job("job").await.is_some_and(|job| job.metadata.deletion_timestamp.is_some()));
    world.release_pod("held").await;
    world.until_no_job("job").await;
    world.until_pods(&[]).await;
}

#[tokio::test]
async fn a_dependent_that_does_not_block_is_not_waited_for_but_deleted_too() {
    let world = World::start();
    let job = world.create_job("job", json!({})).await;
    let held = json!({"ownerReferences": [owner(&job, false)], "finalizers": ["example.com/held"]});
    world.create_pod("held", held).await;
    world.delete_job("job", Foreground).await;
    world.until_no_job("job").await;
    world.until_pod_is_deleting("held").await;
}

#[tokio::test]
async fn an_object_is_kept_by_one_of_two_owners_and_loses_the_reference_to_the_other() {
    let world = World::start();
    let (first, second) =
        (world.create_job("first", json!({})).await, world.create_job("second", json!({})).await);
    let owners = json!([owner(&first, false), owner(&second, false)]);
    world.create_pod("pod", json!({"ownerReferences": owners})).await;
    world.delete_job("first", Background).await;
    world.until_owners("pod", &["second"]).await;
    world.delete_job("second", Background).await;
    world.until_pods(&[]).await;
}

#[tokio::test]
async fn an_object_whose_owner_never_was_is_deleted() {
    let world = World::start();
    let mut nobody = owner(&world.create_job("job", json!({})).await, false);
    nobody["uid"] = json!("00000000-0000-4000-8000-000000000000");
    world.create_pod("pod", json!({"ownerReferences": [nobody]})).await;
    world.until_pods(&[]).await;
    assert!(world.job("job").await.is_some(), "another object of the owner's name is left alone");
}

#[tokio::test]
async fn what_was_there_before_the_collector_is_collected_too() {
    let world = World::new();
    let job = world.create_job("job", json!({})).await;
    world.create_pod("pod", json!({"ownerReferences": [owner(&job, true)]})).await;
    world.delete_job("job", Background).await;
    assert_eq!(world.pods().await, ["pod"]);
    world.collect();
    world.until_pods(&[]).await;
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_no_owner_and_that_is_said() {
    let world = World::start();
    world.create_namespace("elsewhere").await;
    let job = world.create_job_in("elsewhere", "job", json!({})).await;
    world.create_pod("pod", json!({"ownerReferences": [owner(&job, false)]})).await;
    world.until_pods(&[]).await;
    let uid = job.metadata.uid.unwrap_or_default();
    let said = format!(
        "ownerRef [batch/v1/Job, namespace: default, name: job, uid: {uid}] does not exist in namespace \"default\""
    );
    world.until_event("OwnerRefInvalidNamespace", &said).await;
}

#[tokio::test]
async fn a_finished_job_is_deleted_with_its_pods_when_its_time_is_up() {
    let world = World::start();
    let job = world.create_job("job", json!({"ttlSecondsAfterFinished": 100})).await;
    world.create_pod("pod", json!({"ownerReferences": [owner(&job, true)]})).await;
    world.create_job("forever", json!({})).await;
    world.finish_job("job").await;
    world.finish_job("forever").await;
    world.until_ttl_was_looked_at().await;
    assert!(world.job("job").await.is_some(), "its time is not up");
    world.shorten_ttl("job", 0).await;
    world.until_no_job("job").await;
    world.until_pods(&[]).await;
    assert!(world.job("forever").await.is_some());
}

#[tokio::test]
async fn a_deleted_namespace_goes_after_its_pods_and_then_all_else() {
    let world = World::start();
    world.create_namespace("doomed").await;
    world.create_job_in("doomed", "job", json!({})).await;
    let held = json!({"finalizers": ["example.com/held"]});
    world.create_pod_in("doomed", "held", held).await;
    world.create_pod_in("doomed", "free", json!({})).await;
    world.delete_namespace("doomed").await;
    let message = world.until_condition("doomed", "NamespaceContentRemaining", "True").await;
    assert_eq!(message, "Some resources are remaining: pods. has 1 resource instances");
    let message = world.until_condition("doomed", "NamespaceFinalizersRemaining", "True").await;
    assert_eq!(
        message,
        "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances"
    );
    assert!(world.job_in("doomed", "job").await.is_some(), "other kinds wait for the pods");
    world.release_pod_in("doomed", "held").await;
    world.until_no_namespace("doomed").await;
    assert!(world.job_in("doomed", "job").await.is_none());
}

#[tokio::test]
async fn a_job_is_made_on_schedule_and_what_became_of_it_is_kept_in_the_status() {
    let world = World::start();
    let spec = json!({"schedule": "0 0 1 1 *", "successfulJobsHistoryLimit": 0});
    world.create_cron_job("tick", spec).await;
    world.schedule_from("tick", "2020-06-01T00:00:00Z").await;
    let job = world.until_job_of("tick").await;
    let year = jiff::Timestamp::now().strftime("%Y").to_string();
    let due: jiff::Timestamp = format!("{year}-01-01T00:00:00Z").parse().expect("a time");
    assert_eq!(job.name_any(), format!("tick-{}", due.as_second() / 60));
    assert_eq!(
        job.annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"],
        format!("{year}-01-01T00:00:00Z")
    );
    assert_eq!(job.labels()["from"], "template");
    let owner = &job.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("CronJob", Some(true), Some(true))
    );
    world.until_active("tick", &[&job.name_any()]).await;
    world.finish_job(&job.name_any()).await;
    world.until_active("tick", &[]).await;
    world.until_no_job(&job.name_any()).await;
    world.until_event("SuccessfulDelete", &format!("Deleted job {}", job.name_any())).await;
    let status = world.cron_job("tick").await.status.expect("a status");
    assert_eq!(status.last_schedule_time.map(|time| time.0), Some(due));
    assert!(status.last_successful_time.is_some());
}

#[tokio::test]
async fn a_pod_whose_node_is_gone_for_a_while_is_failed_as_disrupted_and_deleted() {
    let world = World::new();
    world.create_pod("orphan", json!({"finalizers": ["example.com/held"]})).await;
    world.bind_pod("orphan", "nowhere").await;
    let clock = world.collect_pods();
    world.until_pods_were_collected_from(2).await;
    assert!(world.pod("orphan").await.metadata.deletion_timestamp.is_none(), "the node may come back");
    clock.advance(40);
    world.until_pod_is_deleting("orphan").await;
    let status = world.pod("orphan").await.status.expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let condition = status.conditions.iter().flatten().find(|one| one.type_ == "DisruptionTarget");
    let condition = condition.expect("it was disrupted");
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_deref(), condition.message.as_deref()),
        ("True", Some("DeletionByPodGC"), Some("PodGC: node no longer exists"))
    );
    let counted = "pod_gc_collector_force_delete_pods_total{namespace=\"default\",reason=\"orphaned\"} 1\n";
    assert!(world.metrics.text().contains(counted), "{}", world.metrics.text());
}

#[tokio::test]
async fn an_orphaned_pod_that_was_marked_before_keeps_the_time_of_that() {
    let world = World::new();
    world.create_pod("orphan", json!({"finalizers": ["example.com/held"]})).await;
    world.bind_pod("orphan", "nowhere").await;
    let mark = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                       "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    world.patch_pod_status("orphan", json!({"conditions": mark})).await;
    let clock = world.collect_pods();
    world.until_pods_were_collected_from(2).await;
    clock.advance(40);
    world.until_pod_is_deleting("orphan").await;
    let condition = world.pod_condition("orphan", "DisruptionTarget").await.expect("it was disrupted");
    let time = condition.last_transition_time.map(|time| time.0.to_string());
    assert_eq!(
        (condition.reason.as_deref(), time.as_deref()),
        (Some("DeletionByPodGC"), Some("2026-01-01T00:00:00Z"))
    );
}

#[tokio::test]
async fn an_orphaned_pod_is_marked_as_the_gates_of_conditions_and_of_replacement_say() {
    for (pod_disruption_conditions, job_pod_replacement_policy, phase, has_condition) in [
        (true, true, "Failed", true),
        (true, false, "Failed", true),
        (false, true, "Failed", false),
        (false, false, "Pending", false),
    ] {
        let gates = Gates { pod_disruption_conditions, job_pod_replacement_policy, ..Gates::default() };
        let world = World::with(gates);
        world.create_pod("orphan", json!({"finalizers": ["example.com/held"]})).await;
        world.bind_pod("orphan", "nowhere").await;
        let clock = world.collect_pods();
        world.until_pods_were_collected_from(2).await;
        clock.advance(40);
        world.until_pod_is_deleting("orphan").await;
        let status = world.pod("orphan").await.status.expect("a status");
        let marked = status.conditions.iter().flatten().any(|one| one.type_ == "DisruptionTarget");
        assert_eq!((status.phase.as_deref(), marked), (Some(phase), has_condition), "{gates:?}");
    }
}

#[tokio::test]
async fn a_deleted_pod_that_never_had_a_node_is_failed_without_a_condition() {
    let world = World::new();
    world.create_pod("never", json!({"finalizers": ["example.com/held"]})).await;
    world.delete_pod("never").await;
    world.collect_pods();
    world.until_phase("never", "Failed").await;
    let status = world.pod("never").await.status.expect("a status");
    assert!(!status.conditions.iter().flatten().any(|one| one.type_ == "DisruptionTarget"));
    world.release_pod("never").await;
    world.until_pods(&[]).await;
}

#[tokio::test]
async fn every_namespace_has_an_account_and_a_certificate_and_gets_them_back() {
    let world = World::new();
    world.fill_namespaces("pem");
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(world.client.clone(), "new");
    let accounts: kube::Api<ServiceAccount> = kube::Api::namespaced(world.client.clone(), "new");
    world.create_namespace("new").await;
    let right = json!({"ca.crt": "pem"});
    world.until_certificate("new", right.clone()).await;
    let uid = world.until_account("new", None).await;
    accounts.delete("default", &DeleteParams::default()).await.expect("it is deleted");
    world.until_account("new", Some(&uid)).await;
    let wrong = Patch::Merge(json!({"data": {"ca.crt": "other", "more": "x"}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &wrong).await.expect("it is changed");
    world.until_certificate("new", right.clone()).await;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.expect("it is deleted");
    world.until_certificate("new", right).await;
    assert!(world.metrics.text().contains("root_ca_cert_publisher_sync_total{code=\"200\"}"));
}
