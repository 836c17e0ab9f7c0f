//! An API server that says no, and others who write at the same time.

use std::sync::Arc;

use futures::FutureExt;
use http::Method;
use jiff::SignedDuration;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::json;
use windlass_job::Uid;
use windlass_job::backoff::Backoff;
use windlass_job::pod_names::PodNames;

use crate::tap::{Tap, Verdict};
use crate::world::{COMPLETE, Fate, NAMESPACE, World, finished, has, is_held, ledger, phase, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_status_write_that_meets_a_newer_job_is_done_again() {
    let world = World::new();
    let jobs = world.jobs();
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let tap = Tap::new(&world, move |_, write| {
        let is_status = write.path.ends_with("/status");
        if !is_status || !is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Verdict::Pass;
        }
        let jobs = jobs.clone();
        Verdict::After(Arc::new(move || {
            let jobs = jobs.clone();
            async move {
                let labels = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
                jobs.patch("j", &PatchParams::default(), &labels).await.expect("patched");
            }
            .boxed()
        }))
    });
    let mut config = quick();
    // Time alone would not help: the write is done again because the newer Job is seen.
    let hour = SignedDuration::from_hours(1);
    config.settings.api_retry = Backoff { base: hour, max: hour };
    let controller = world.start(tap.client(), config);
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    world.create_job("j", json!({"completions": 2})).await;
    let job = world.until_finished("j").await;
    assert_eq!(ledger(&job), finished(2, 0, None, &COMPLETE));
    let conflicts = tap.writes().iter().filter(|write| write.code == Some(409)).count();
    assert_eq!(conflicts, 1, "{:#?}", tap.writes());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_creation_is_tried_again_after_a_while() {
    let world = World::new();
    let refused = std::sync::atomic::AtomicU32::new(0);
    let tap = Tap::new(&world, move |_, write| {
        let is_create = write.method == Method::POST;
        if is_create && refused.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3 {
            return Verdict::Refuse(500);
        }
        Verdict::Pass
    });
    let controller = world.start(tap.client(), quick());
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    world.create_job("j", json!({"completions": 4, "parallelism": 4})).await;
    let job = world.until_finished("j").await;
    assert_eq!(ledger(&job), finished(4, 0, None, &COMPLETE));
    let creates: Vec<Option<u16>> =
        tap.writes().iter().filter(|write| write.method == Method::POST).map(|write| write.code).collect();
    let expected: Vec<Option<u16>> = [500, 500, 500, 201, 201, 201, 201].map(Some).to_vec();
    assert_eq!(creates, expected, "one at a time until one succeeds");
    let event = world.until_event(|event| event.reason.as_deref() == Some("FailedCreate")).await;
    assert_eq!(event.message.as_deref(), Some("Error creating: out of order"));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_the_watch_was_broken_is_found_out() {
    let world = World::new();
    let tap = Tap::new(&world, |_, _| Verdict::Pass);
    let controller = world.start(tap.client(), quick());
    let _kubelet = world.kubelet(|_| Fate::Run);
    world.create_job("stays", json!({"completions": 2, "parallelism": 2})).await;
    world.create_job("goes", json!({"completions": 1})).await;
    world.until_job("stays", |job| ledger(job)["ready"] == 2).await;
    world.until_job("goes", |job| ledger(job)["ready"] == 1).await;
    tap.blind();
    world.delete_job("goes", PropagationPolicy::Background).await;
    let mut pods = world.pods().list(&ListParams::default()).await.unwrap().into_iter();
    let victim = pods.find(|pod| pod.name_any().starts_with("stays")).unwrap();
    // Somebody who does not care about finalizers.
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.pods().patch(&victim.name_any(), &PatchParams::default(), &free).await.unwrap();
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    world.pods().delete(&victim.name_any(), &at_once).await.unwrap();
    tap.see();
    let pods = world.until_pods(|pods| {
        let held = pods.iter().filter(|pod| is_held(pod)).count();
        pods.len() == 3 && held == 2 && pods.iter().all(|pod| phase(pod) == "Running")
    });
    let pods = pods.await;
    assert!(!pods.iter().any(|pod| pod.uid() == victim.uid()), "it is replaced");
    let free: Vec<_> = pods.iter().filter(|pod| !is_held(pod)).collect();
    assert!(free[0].name_any().starts_with("goes"), "the pod of the Job that is gone is let go");
    for pod in pods.iter().filter(|pod| is_held(pod)) {
        world.exit(pod, 0).await;
    }
    let job = world.until_finished("stays").await;
    assert_eq!(ledger(&job), finished(2, 0, None, &COMPLETE));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_somebody_else_has_is_left_to_them() {
    let (world, controller) = World::with_controller();
    let job = world.create_job("j", json!({"suspend": true})).await;
    let name = PodNames::new("j", &Uid::new(&job.uid().unwrap())).name(None, 0);
    let squatter = json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "main", "image": "host"}]},
    });
    let squatter = serde_json::from_value(squatter).unwrap();
    let squatter = world.pods().create(&PostParams::default(), &squatter).await.unwrap();
    world.until_job("j", |job| has(job, "Suspended")).await;
    world.patch_job("j", json!({"spec": {"suspend": false}})).await;
    let pods = world.until_pods(|pods| pods.len() == 2).await;
    let ours = pods.iter().find(|pod| pod.name_any() != name).expect("another name");
    world.until_job("j", |job| ledger(job)["active"] == 1 && !has(job, "Suspended")).await;
    world.exit(ours, 0).await;
    let job = world.until_finished("j").await;
    let conditions = [COMPLETE[0], COMPLETE[1], "Suspended=False JobResumed"];
    assert_eq!(ledger(&job), finished(1, 0, None, &conditions));
    let now = world.pods().get(&name).await.unwrap();
    assert_eq!(now.metadata.resource_version, squatter.metadata.resource_version);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_whose_answer_is_lost_makes_no_twin() {
    let world = World::new();
    let tap = Tap::new(&world, |k, _| if k == 0 { Verdict::LoseAnswer } else { Verdict::Pass });
    let controller = world.start(tap.client(), quick());
    world.create_job("j", json!({})).await;
    world.until_job("j", |job| ledger(job)["active"] == 1).await;
    let creations = tap.writes().iter().filter(|write| write.method == Method::POST).count();
    assert_eq!(creations, 1, "never-too-many: the pod is found, not made again");
    controller.stop().await;
}
