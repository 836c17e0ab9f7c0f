//! Jobs from creation to their end.

use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use crate::world::{COMPLETE, Fate, World, finished, has, index, is_held, ledger, phase};

#[tokio::test(flavor = "multi_thread")]
async fn a_non_indexed_job_completes_and_its_pods_are_free() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    world.create_job("j", json!({"completions": 5, "parallelism": 2})).await;
    let job = world.until_finished("j").await;
    assert_eq!(ledger(&job), finished(5, 0, None, &COMPLETE));
    let pods = world.until_pods(|pods| pods.len() == 5).await;
    assert!(pods.iter().all(|pod| phase(pod) == "Succeeded" && !is_held(pod)));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexed_job_completes_each_index_once() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    world.create_job("j", json!({"completionMode": "Indexed", "completions": 7, "parallelism": 3})).await;
    let job = world.until_finished("j").await;
    assert_eq!(ledger(&job), finished(7, 0, Some("0-6"), &COMPLETE));
    let mut indexes: Vec<u32> = world.until_pods(|pods| pods.len() == 7).await.iter().map(index).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2, 3, 4, 5, 6]);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_pods_are_replaced_and_counted() {
    let (world, controller) = World::with_controller();
    let failures = std::sync::atomic::AtomicU32::new(0);
    let _kubelet = world.kubelet(move |_| {
        let n = failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Fate::Exit(if n < 2 { 1 } else { 0 })
    });
    world.create_job("j", json!({"completions": 1})).await;
    let job = world.until_finished("j").await;
    assert_eq!(ledger(&job), finished(1, 2, None, &COMPLETE));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_job_ends_its_pods_and_goes_on_when_resumed() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Run);
    world.create_job("j", json!({"completions": 2, "parallelism": 2})).await;
    world.until_job("j", |job| job.status.as_ref().is_some_and(|status| status.ready == Some(2))).await;
    world.patch_job("j", json!({"spec": {"suspend": true}})).await;
    let job = world.until_job("j", |job| has(job, "Suspended") && ledger(job)["terminating"] == 0).await;
    assert_eq!(ledger(&job)["active"], 0);
    assert_eq!(ledger(&job)["failed"], 0, "suspended pods are no failures");
    assert_eq!(ledger(&job)["hasStarted"], false);
    world.until_pods(|pods| pods.is_empty()).await;
    world.patch_job("j", json!({"spec": {"suspend": false}})).await;
    world.until_job("j", |job| !has(job, "Suspended") && ledger(job)["ready"] == 2).await;
    for pod in world.pods().list(&ListParams::default()).await.unwrap() {
        world.exit(&pod, 0).await;
    }
    let job = world.until_finished("j").await;
    let conditions = [COMPLETE[0], COMPLETE[1], "Suspended=False JobResumed"];
    assert_eq!(ledger(&job), finished(2, 0, None, &conditions));
    for reason in ["Suspended", "Resumed", "Completed", "SuccessfulCreate", "SuccessfulDelete"] {
        world.until_event(|event| event.reason.as_deref() == Some(reason)).await;
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_say_what_happened_in_upstreams_words() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    let job = world.create_job("j", json!({})).await;
    let event = world.until_event(|event| event.reason.as_deref() == Some("Completed")).await;
    assert_eq!(event.message.as_deref(), Some("Job completed"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.involved_object.uid, job.uid());
    assert_eq!(event.source.and_then(|source| source.component).as_deref(), Some("job-controller"));
    let event = world.until_event(|event| event.reason.as_deref() == Some("SuccessfulCreate")).await;
    let pods = world.until_pods(|pods| pods.len() == 1).await;
    assert_eq!(event.message, Some(format!("Created pod: {}", pods[0].name_any())));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_too_long_fails_at_its_deadline() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Run);
    world.create_job("j", json!({"activeDeadlineSeconds": 1})).await;
    let job = world.until_finished("j").await;
    let conditions = ["Failed=True DeadlineExceeded", "FailureTarget=True DeadlineExceeded"];
    assert_eq!(ledger(&job), finished(0, 1, None, &conditions));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_job_of_the_same_name_is_another_job() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    let first = world.create_job("j", json!({"completions": 2})).await;
    world.until_finished("j").await;
    world.delete_job("j", kube::api::PropagationPolicy::Background).await;
    let second = world.create_job("j", json!({"completions": 3})).await;
    assert_ne!(first.uid(), second.uid());
    let job = world.until_job("j", |job| job.uid() == second.uid() && has(job, "Complete")).await;
    assert_eq!(ledger(&job), finished(3, 0, None, &COMPLETE));
    let owner = |pod: &k8s_openapi::api::core::v1::Pod| pod.owner_references()[0].uid.clone();
    let pods = world.until_pods(|pods| pods.iter().all(|pod| !is_held(pod))).await;
    assert_eq!(pods.iter().filter(|pod| Some(owner(pod)) == second.uid()).count(), 3);
    controller.stop().await;
}
