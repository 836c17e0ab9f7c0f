//! The scheduler against the API server: who is bound where, who is told why not, and who has to leave.

mod preemption;
mod world;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use world::{Fate, World, condition, node_of, once, refusal};

const FULL: &str = "False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
                    1 No preemption victims found for incoming pod.";

#[tokio::test]
async fn pods_go_to_the_emptiest_node() {
    let world = World::new();
    world.node("b", "2", json!({})).await;
    world.node("a", "2", json!({})).await;
    world.start();
    for (name, cpu, want) in [("p1", "1", "a"), ("p2", "500m", "b"), ("p3", "500m", "b"), ("p4", "1", "a")] {
        world.pod(name, cpu, json!({})).await;
        assert_eq!(world.node_of(name).await, want, "{name}");
    }
}

#[tokio::test]
async fn a_pod_that_does_not_fit_is_told_why_and_bound_when_a_pod_ends() {
    let world = World::new();
    world.start();
    world.pod("first", "1", json!({})).await;
    world.told("first", "False Unschedulable: no nodes available to schedule pods").await;
    world.node("a", "1", json!({})).await;
    assert_eq!(world.node_of("first").await, "a");
    let bound = world.pods.get("first").await.expect("the pod");
    assert_eq!(refusal(&bound).as_deref(), Some("True : "));
    world.pod("second", "1", json!({})).await;
    world.told("second", FULL).await;
    world.end("first").await;
    assert_eq!(world.node_of("second").await, "a");
    world.pod("third", "1", json!({})).await;
    world.told("third", FULL).await;
    world.remove("second").await;
    assert_eq!(world.node_of("third").await, "a");
}

#[tokio::test]
async fn conditions_and_events_are_those_of_kube_scheduler() {
    let world = World::new();
    world.node("a", "1", json!({})).await;
    world.start();
    world.pod("small", "1", json!({})).await;
    world.node_of("small").await;
    world.pod("large", "1", json!({})).await;
    world.told("large", FULL).await;
    let large = world.pods.get("large").await.expect("the pod");
    let refused = condition(&large, "PodScheduled").expect("a condition");
    assert_eq!(refused.observed_generation, large.metadata.generation);
    assert!(refused.last_transition_time.is_some());
    let shown = |event: &k8s_openapi::api::events::v1::Event| {
        json!([event.type_, event.reason, event.action, event.note, event.reporting_controller])
    };
    let scheduled = world.event("small", "Scheduled").await;
    let want = json!([
        "Normal",
        "Scheduled",
        "Binding",
        "Successfully assigned default/small to a",
        "default-scheduler"
    ]);
    assert_eq!(shown(&scheduled), want);
    let failed = world.event("large", "FailedScheduling").await;
    let note = FULL.trim_start_matches("False Unschedulable: ");
    assert_eq!(
        shown(&failed),
        json!(["Warning", "FailedScheduling", "Scheduling", note, "default-scheduler"])
    );
    let text = world.metrics.text();
    for line in [
        "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1\n",
        "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"default-scheduler\"} 1\n",
        "scheduler_pending_pods{queue=\"unschedulable\"} 1\n",
        "scheduler_cache_size{type=\"nodes\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn the_highest_priority_comes_first_and_gated_and_foreign_pods_do_not_come() {
    let world = World::new();
    world.classes().await;
    world.pod("low", "1", json!({"priorityClassName": "low"})).await;
    world.pod("high", "1", json!({"priorityClassName": "high"})).await;
    world.pod("gated", "0", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
    world.pod("foreign", "0", json!({"schedulerName": "another"})).await;
    world.node("a", "1", json!({})).await;
    world.start();
    assert_eq!(world.node_of("high").await, "a");
    world.told("low", FULL).await;
    world.pod("last", "0", json!({})).await;
    assert_eq!(world.node_of("last").await, "a");
    for name in ["gated", "foreign"] {
        assert_eq!(node_of(&world.pods.get(name).await.expect("there")), None, "{name}");
    }
    let gated = "False SchedulingGated: Scheduling is blocked due to non-empty scheduling gates";
    assert_eq!(refusal(&world.pods.get("gated").await.expect("there")).as_deref(), Some(gated));
    let free = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    world.pods.patch("gated", &PatchParams::default(), &free).await.expect("patched");
    assert_eq!(world.node_of("gated").await, "a");
}

#[tokio::test]
async fn a_node_never_gets_more_pods_than_it_holds() {
    let world = World::new();
    world.node("a", "1000", json!({"pods": "30"})).await;
    world.node("b", "1000", json!({"pods": "20"})).await;
    for i in 0..100 {
        world.pod(&format!("p{i}"), "1", json!({})).await;
    }
    world.start();
    world.until("bound pods", 50, |pod| node_of(pod).is_some()).await;
    let full = "False Unschedulable: 0/2 nodes are available: 2 Too many pods. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No \
                preemption victims found for incoming pod.";
    world.until("refused pods", 50, |pod| refusal(pod).as_deref() == Some(full)).await;
    let pods = world.pods.list(&Default::default()).await.expect("listed").items;
    let count = |node: &str| pods.iter().filter(|pod| node_of(pod) == Some(node)).count();
    assert_eq!((count("a"), count("b")), (30, 20));
}

#[tokio::test]
async fn a_thousand_pods_are_all_bound_and_spread() {
    let world = World::new();
    for i in 0..10 {
        world.node(&format!("n{i}"), "1000", json!({})).await;
    }
    for i in 0..1000 {
        world.pod(&format!("p{i}"), "1", json!({})).await;
    }
    world.start();
    world.until("bound pods", 1000, |pod| node_of(pod).is_some()).await;
    let pods = world.pods.list(&Default::default()).await.expect("listed").items;
    for i in 0..10 {
        let name = format!("n{i}");
        assert_eq!(pods.iter().filter(|pod| node_of(pod) == Some(&name)).count(), 100, "{name}");
    }
}

#[tokio::test]
async fn a_pod_waits_for_its_kind_of_node_and_is_bound_when_one_comes() {
    let world = World::new();
    world.node("cordoned", "4", json!({"spec": {"unschedulable": true}})).await;
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    world.node("tainted", "4", json!({"spec": {"taints": [taint]}})).await;
    world.node("plain", "4", json!({})).await;
    world.start();
    world.pod("picky", "1", json!({"nodeSelector": {"disk": "ssd"}})).await;
    let told = "False Unschedulable: 0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 \
                node(s) had untolerated taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: 3 \
                Preemption is not helpful for scheduling.";
    world.told("picky", told).await;
    world.patch_node("cordoned", json!({"spec": {"unschedulable": null}})).await;
    let told = "False Unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match \
                Pod's node affinity/selector. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for \
                scheduling.";
    world.told("picky", told).await;
    world.patch_node("cordoned", json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    assert_eq!(world.node_of("picky").await, "cordoned");
}

#[tokio::test]
async fn ports_affinity_and_spread_are_kept_through_the_api() {
    let world = World::new();
    world.node("a", "4", json!({"labels": {"zone": "1"}})).await;
    world.node("b", "4", json!({"labels": {"zone": "2"}})).await;
    world.start();
    world.pod("p1", "0", json!({"port": 80})).await;
    world.pod("p2", "0", json!({"port": 80})).await;
    assert_ne!(world.node_of("p1").await, world.node_of("p2").await);
    world.pod("p3", "0", json!({"port": 80})).await;
    let told = "False Unschedulable: 0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod \
                ports. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";
    world.told("p3", told).await;
    let selector = json!({"matchLabels": {"app": "web"}});
    let term = json!({"labelSelector": selector, "topologyKey": "zone"});
    let near =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    world.labelled("near", "0", json!({"app": "x"}), near).await;
    let told = "False Unschedulable: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. no new claims to deallocate, preemption: 0/2 \
                nodes are available: 2 Preemption is not helpful for scheduling.";
    world.told("near", told).await;
    world.labelled("web", "0", json!({"app": "web"}), json!({})).await;
    assert_eq!(world.node_of("near").await, world.node_of("web").await, "a pod that comes draws it");
    let anti =
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    world.labelled("far", "0", json!({"app": "web"}), anti).await;
    assert_ne!(world.node_of("far").await, world.node_of("web").await);
    world.labelled("unwelcome", "0", json!({"app": "web"}), json!({})).await;
    assert_eq!(world.node_of("unwelcome").await, world.node_of("web").await, "far keeps it away");
    let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "even"}}});
    for name in ["even1", "even2", "even3", "even4"] {
        let spec = json!({"topologySpreadConstraints": [spread]});
        world.labelled(name, "0", json!({"app": "even"}), spec).await;
        world.node_of(name).await;
    }
    let pods =
        world.pods.list(&kube::api::ListParams::default().labels("app=even")).await.expect("listed").items;
    assert_eq!(pods.iter().filter(|pod| node_of(pod) == Some("a")).count(), 2);
}

#[tokio::test]
async fn namespaces_are_selected_by_their_labels() {
    let world = World::new();
    world.node("a", "4", json!({})).await;
    world.node("b", "4", json!({})).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = json!({"metadata": {"name": "other", "labels": {"team": "a"}}});
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    world.start();
    world.labelled("here", "1", json!({"app": "web"}), json!({})).await;
    assert_eq!(world.node_of("here").await, "a");
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname",
                      "namespaceSelector": {"matchLabels": {"team": "a"}}});
    let near =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    world.pod("near", "0", near).await;
    world
        .until_pod("near", "refused", |pod| refusal(pod).is_some_and(|text| text.contains("2 node(s)")))
        .await;
    let there: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(world.client.clone(), "other");
    let pod = json!({"metadata": {"name": "there", "labels": {"app": "web"}}, "spec": {"nodeName": "b",
                     "containers": [{"name": "c", "image": "host"}]}});
    there
        .create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod"))
        .await
        .expect("created");
    assert_eq!(world.node_of("near").await, "b");
}

#[tokio::test]
async fn a_bind_that_fails_is_told_and_tried_again() {
    let world = World::new();
    world.node("a", "1", json!({})).await;
    world.start_with(|_| {}, once(Fate::Fails, "/binding"));
    world.pod("p", "1", json!({})).await;
    world.told("p", "False SchedulerError: running Bind plugin \"DefaultBinder\": out of order").await;
    assert_eq!(world.node_of("p").await, "a");
    let pod = world.pods.get("p").await.expect("the pod");
    assert_eq!(refusal(&pod).as_deref(), Some("True : "));
}

#[tokio::test]
async fn a_bind_whose_answer_is_lost_is_done_and_not_done_again() {
    let world = World::new();
    world.node("a", "1", json!({})).await;
    world.start_with(|_| {}, once(Fate::LosesAnswer, "/binding"));
    world.pod("p", "1", json!({})).await;
    world.event("p", "Scheduled").await;
    let pod = world.pods.get("p").await.expect("the pod");
    assert_eq!((node_of(&pod), refusal(&pod).as_deref()), (Some("a"), Some("True : ")));
    world.pod("q", "1", json!({})).await;
    world.told("q", FULL).await;
    let binds = world.writes.lock().iter().filter(|write| write.ends_with("/binding")).count();
    assert_eq!(binds, 1);
}

#[tokio::test]
async fn a_pod_has_its_node_from_the_start_when_somebody_places_it_while_it_is_made() {
    let world = World::new();
    world.start_placing();
    world.node("a", "2", json!({"labels": {"topology.kubernetes.io/zone": "z"}})).await;
    // One is placed in the old way: from then on the scheduler knows the node.
    world.pod("known", "500m", json!({})).await;
    assert_eq!(world.node_of("known").await, "a");
    world.writes.lock().clear();
    let made = world.made("at-once", "1", json!({}), json!({})).await.expect("made");
    assert_eq!(node_of(&made), Some("a"));
    assert_eq!(refusal(&made).as_deref(), Some("True : "));
    assert_eq!(made.metadata.labels.expect("labels")["topology.kubernetes.io/zone"], "z");
    assert_eq!(*world.writes.lock(), Vec::<String>::new(), "nobody binds it");
    assert_eq!(
        world.event("at-once", "Scheduled").await.note.expect("a note"),
        "Successfully assigned default/at-once to a"
    );

    // It counts: the next one does not fit, and waits for its turn.
    world.made("at-once", "500m", json!({}), json!({})).await.expect_err("the name is taken");
    let fits = world.made("fits", "500m", json!({}), json!({})).await.expect("made");
    assert_eq!(node_of(&fits), Some("a"), "the one that was not stored has given its place back");
    let waits = world.made("waits", "500m", json!({}), json!({})).await.expect("made");
    assert_eq!(node_of(&waits), None);
    world.told("waits", FULL).await;
    // Somebody waits: whoever comes now must not be quicker.
    let later = world.made("later", "0", json!({}), json!({})).await.expect("made");
    assert_eq!(node_of(&later), None);
    assert_eq!(world.node_of("later").await, "a");
    world.end("at-once").await;
    assert_eq!(world.node_of("waits").await, "a");

    for spec in [json!({"schedulingGates": [{"name": "g"}]}), json!({"schedulerName": "other"})] {
        let name = format!(
            "not-ours-{}",
            spec.as_object().map_or(0, |spec| spec.contains_key("schedulerName") as u8)
        );
        let made = world.made(&name, "0", json!({}), spec).await.expect("made");
        assert_eq!(node_of(&made), None, "{name}");
    }
}
