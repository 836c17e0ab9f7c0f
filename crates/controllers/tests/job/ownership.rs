//! Whose pods are whose: adoption, release, deletion, orphans.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};
use windlass_job::observation::Manages;

use crate::tap::{Tap, Verdict, Write};
use crate::world::{COMPLETE, FINALIZER, Fate, NAMESPACE, World, finished, is_held, ledger, phase, quick};

async fn bare_pod(world: &World, name: &str, labels: Value, finalizers: Value) -> Pod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "finalizers": finalizers},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]},
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    world.pods().create(&PostParams::default(), &pod).await.expect("created")
}

fn manual_selector(spec: Value) -> Value {
    let mut spec = spec;
    spec["manualSelector"] = json!(true);
    spec["selector"] = json!({"matchLabels": {"app": "x"}});
    spec["template"] = json!({"metadata": {"labels": {"app": "x"}}});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_nobody_that_matches_is_adopted_and_counted() {
    let (world, controller) = World::with_controller();
    // One that is there before the Job, and one that comes after it.
    let early = bare_pod(&world, "early", json!({"app": "x"}), json!([])).await;
    let job = world
        .create_job("j", manual_selector(json!({"completions": 3, "parallelism": 3, "suspend": false})))
        .await;
    let adopted = |name: &'static str| {
        let uid = job.uid();
        move |pods: &[&Pod]| {
            pods.iter().any(|pod| {
                let owner = pod.owner_references().first();
                pod.name_any() == name && is_held(pod) && owner.map(|owner| owner.uid.clone()) == uid
            })
        }
    };
    world.until_pods(adopted("early")).await;
    let pods = world.until_pods(|pods| pods.len() == 3).await;
    for pod in &pods {
        world.exit(pod, 0).await;
    }
    let done = world.until_finished("j").await;
    assert_eq!(ledger(&done), finished(3, 0, None, &COMPLETE));
    assert!(pods.iter().any(|pod| pod.uid() == early.uid()), "it took the place of a new pod");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_labels_do_not_match_any_more_is_let_go_and_replaced() {
    let (world, controller) = World::with_controller();
    world.create_job("j", manual_selector(json!({"completions": 1}))).await;
    let pods = world.until_pods(|pods| pods.len() == 1).await;
    let labels = json!({"metadata": {"labels": {"app": "y"}}});
    world
        .pods()
        .patch(&pods[0].name_any(), &PatchParams::default(), &Patch::Merge(labels))
        .await
        .expect("patched");
    let both = world.until_pods(|pods| {
        let is_free = |pod: &&&Pod| pod.owner_references().is_empty() && !is_held(pod);
        pods.len() == 2 && pods.iter().filter(is_free).count() == 1
    });
    let both = both.await;
    let stray = both.iter().find(|pod| pod.uid() == pods[0].uid()).expect("it is still there");
    assert!(stray.owner_references().is_empty() && !is_held(stray));
    let other = both.iter().find(|pod| pod.uid() != pods[0].uid()).expect("a replacement");
    world.exit(stray, 1).await;
    world.exit(other, 0).await;
    let job = world.until_finished("j").await;
    assert_eq!(ledger(&job), finished(1, 0, None, &COMPLETE), "the stray does not count");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_deleted_in_the_foreground_lets_its_pods_go() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Run);
    world.create_job("j", json!({"completions": 2, "parallelism": 2})).await;
    world.until_pods(|pods| pods.iter().filter(|pod| phase(pod) == "Running").count() == 2).await;
    world.delete_job("j", PropagationPolicy::Foreground).await;
    let pods = world.until_pods(|pods| pods.len() == 2 && !pods.iter().any(|pod| is_held(pod))).await;
    for pod in &pods {
        // The garbage collector's part.
        world.pods().delete(&pod.name_any(), &DeleteParams::default()).await.expect("deleted");
    }
    world.until_pods(|pods| pods.is_empty()).await;
    let job = world.until_job("j", |job| ledger(job)["active"] == 0).await;
    assert!(job.metadata.deletion_timestamp.is_some());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_let_go_when_their_job_is_gone() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Run);
    world.create_job("j", json!({"completions": 2, "parallelism": 2})).await;
    world.until_pods(|pods| pods.iter().filter(|pod| phase(pod) == "Running").count() == 2).await;
    world.delete_job("j", PropagationPolicy::Background).await;
    world.until_pods(|pods| pods.len() == 2 && !pods.iter().any(|pod| is_held(pod))).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_whose_job_went_while_nobody_watched_are_let_go() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Run);
    world.create_job("j", json!({"completions": 2, "parallelism": 2})).await;
    world.until_pods(|pods| pods.iter().filter(|pod| phase(pod) == "Running").count() == 2).await;
    controller.stop().await;
    world.delete_job("j", PropagationPolicy::Background).await;
    let controller = world.start(world.client.clone(), quick());
    world.until_pods(|pods| pods.len() == 2 && !pods.iter().any(|pod| is_held(pod))).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pod_of_nobody_is_let_go_and_one_of_somebody_else_is_not() {
    let (world, controller) = World::with_controller();
    bare_pod(&world, "nobodys", json!({"app": "z"}), json!([FINALIZER])).await;
    world.until_pods(|pods| pods.iter().any(|pod| pod.name_any() == "nobodys" && !is_held(pod))).await;
    let owner = json!({"metadata": {"finalizers": [FINALIZER], "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": true},
    ]}});
    let pod =
        world.pods().patch("nobodys", &PatchParams::default(), &Patch::Merge(owner)).await.expect("patched");
    // A later deed of the controller shows that it had its chance.
    bare_pod(&world, "last", json!({"app": "z"}), json!([FINALIZER])).await;
    world.until_pods(|pods| pods.iter().any(|pod| pod.name_any() == "last" && !is_held(pod))).await;
    let now = world.pods().get("nobodys").await.expect("still there");
    assert_eq!(now.metadata.resource_version, pod.metadata.resource_version);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_never_share_a_pod() {
    let (world, controller) = World::with_controller();
    let spec = || manual_selector(json!({"completions": 1}));
    // Both would take it. One gets it, the other makes its own.
    bare_pod(&world, "wanted", json!({"app": "x"}), json!([])).await;
    world.create_job("a", spec()).await;
    world.create_job("b", spec()).await;
    let pods = world.until_pods(|pods| pods.len() == 2 && pods.iter().all(|pod| is_held(pod))).await;
    let owners = pods.iter().map(|pod| {
        let owners = pod.owner_references();
        assert_eq!(owners.len(), 1);
        owners[0].name.clone()
    });
    assert_eq!(owners.collect::<BTreeSet<_>>(), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    for pod in &pods {
        world.exit(pod, 0).await;
    }
    for name in ["a", "b"] {
        assert_eq!(ledger(&world.until_finished(name).await), finished(1, 0, None, &COMPLETE));
    }
    controller.stop().await;
}

/// A Job of another controller, with a pod that holds the finalizer.
async fn their_job(world: &World) -> Pod {
    let theirs = world.create_job("theirs", json!({"managedBy": "example.com/other"})).await;
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": theirs.uid(), "controller": true});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "theirs-1", "namespace": NAMESPACE, "finalizers": [FINALIZER], "ownerReferences": [owner]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]},
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    world.pods().create(&PostParams::default(), &pod).await.expect("created")
}

/// A Job of ours from start to end shows that the controller had its chance.
async fn run_our_job(world: &World, name: &str) {
    let managed = json!({"managedBy": "windlass.dev/job-controller"});
    world.create_job(name, managed).await;
    let pods = world.until_pods(|pods| pods.iter().any(|pod| pod.name_any().starts_with(name))).await;
    world.exit(pods.iter().find(|pod| pod.name_any().starts_with(name)).unwrap(), 0).await;
    world.until_finished(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_controller_is_left_alone_but_its_pods_are_let_go_when_it_is_gone() {
    let (world, controller) = World::with_controller();
    let pod = their_job(&world).await;
    run_our_job(&world, "ours").await;
    let now = world.pods().get("theirs-1").await.unwrap();
    assert_eq!(now.metadata.resource_version, pod.metadata.resource_version);
    world.delete_job("theirs", PropagationPolicy::Background).await;
    world.until_pods(|pods| pods.iter().any(|pod| pod.name_any() == "theirs-1" && !is_held(pod))).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_another_controller_only_jobs_that_ask_for_us_are_touched() {
    let world = World::new();
    let tap = Tap::new(&world, |_, _| Verdict::Pass);
    let mut config = quick();
    config.settings.manages = Manages::OptedIn;
    let controller = world.start(tap.client(), config);
    world.create_job("unclaimed", json!({})).await;
    their_job(&world).await;
    run_our_job(&world, "first").await;
    world.delete_job("theirs", PropagationPolicy::Background).await;
    let ending = json!({"metadata": {"labels": {"touched": "yes"}}});
    world.pods().patch("theirs-1", &PatchParams::default(), &Patch::Merge(ending)).await.unwrap();
    run_our_job(&world, "second").await;
    let named = |write: &Write| ["first", "second"].iter().any(|name| write.path.contains(name));
    let creates = |write: &Write| write.path.ends_with("/pods");
    let others: Vec<Write> =
        tap.writes().into_iter().filter(|write| !named(write) && !creates(write)).collect();
    assert!(others.is_empty(), "own-only: {others:#?}");
    assert_eq!(tap.writes().iter().filter(|write| creates(write)).count(), 2, "no pod for the others");
    controller.stop().await;
}
