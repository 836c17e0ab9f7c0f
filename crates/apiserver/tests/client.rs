//! The server as the client library of our own controllers sees it.

mod common;

use axum::body::Body;
use bytes::Bytes;
use common::{PODS, cluster, job, pod};
use futures::{StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tower::ServiceExt;
use windlass_streams::door;
use windlass_streams::handed::{Handed, Kind, Said, Wanted};

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("typed")
}

#[tokio::test]
async fn a_pod_lives_its_life_through_the_client() {
    let cluster = cluster();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let made = pods.create(&PostParams::default(), &typed(pod("a"))).await.expect("created");
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(made.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Pending"));

    let binding = common::binding("a", "n1");
    let bound: kube::core::Status =
        pods.create_subresource("binding", "a", &PostParams::default(), &binding).await.expect("bound");
    assert!(bound.is_success());

    let patch = Patch::Strategic(
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let running = pods.patch_status("a", &PatchParams::default(), &patch).await.expect("patched");
    let conditions = running.status.expect("status").conditions.expect("conditions");
    let types: Vec<&str> = conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "PodScheduled"]);

    let marked = pods.delete("a", &DeleteParams::default()).await.expect("accepted");
    assert_eq!(marked.left().expect("the pod").metadata.deletion_grace_period_seconds, Some(30));
    let gone = pods.delete("a", &DeleteParams::default().grace_period(0)).await.expect("gone");
    assert!(gone.is_left());
    assert!(pods.get_opt("a").await.expect("an answer").is_none());
}

#[tokio::test]
async fn the_watcher_of_the_library_lists_and_follows() {
    let cluster = cluster();
    let pods: Api<Pod> = Api::all(cluster.client());
    cluster.pod("a").await;
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(pods.clone(), config.labels("app=a")).boxed();
        let mut seen = Vec::new();
        while let Some(event) = events.try_next().await.expect("an event") {
            match event {
                Event::Init => seen.push("init".to_owned()),
                Event::InitApply(pod) => seen.push(format!("has {}", pod.metadata.name.expect("name"))),
                Event::InitDone => {
                    seen.push("done".to_owned());
                    cluster.pod("b").await;
                    cluster.delete("/api/v1/namespaces/default/pods/b", json!({})).await;
                }
                Event::Apply(pod) => seen.push(format!("set {}", pod.metadata.name.expect("name"))),
                Event::Delete(pod) => {
                    seen.push(format!("gone {}", pod.metadata.name.expect("name")));
                    break;
                }
            }
        }
        assert_eq!(seen, ["init", "has a", "done", "set b", "gone b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_over_within_the_process_is_what_is_written_to_others() {
    let cluster = cluster();
    cluster.running_pod("a").await;
    let ask = |is_wanted: bool| {
        let path = "/api/v1/pods?watch=1&fieldSelector=status.phase!%3DFailed&allowWatchBookmarks=1&timeoutSeconds=9";
        let mut request = Request::get(path).body(Body::empty()).expect("a request");
        if is_wanted {
            request.extensions_mut().insert(Wanted);
        }
        cluster.server.router().oneshot(request)
    };
    let (written, handed) = (ask(false).await.expect("infallible"), ask(true).await.expect("infallible"));
    cluster.pod("b").await;
    // To this watch it is gone with its failure.
    cluster.merge(&format!("{PODS}/a/status"), json!({"status": {"phase": "Failed"}})).await;
    cluster.delete(&format!("{PODS}/b"), json!({"gracePeriodSeconds": 0})).await;
    let events = handed.extensions().get::<Handed>().and_then(Handed::take).expect("events");
    let said: Vec<Said> = events.collect().await;
    assert!(handed.into_body().collect().await.expect("a body").to_bytes().is_empty());
    let kinds: Vec<Kind> = said.iter().map(|said| said.kind).collect();
    assert_eq!(kinds, [Kind::Added, Kind::Added, Kind::Deleted, Kind::Deleted, Kind::Bookmark]);
    let line = |said: &Said| {
        let object = std::str::from_utf8(&said.object).expect("text");
        format!("{{\"type\":\"{}\",\"object\":{object}}}\n", said.kind.text())
    };
    let written = written.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(said.iter().map(line).collect::<String>(), String::from_utf8_lossy(&written));
}

#[tokio::test]
async fn a_component_that_means_another_pod_of_the_name_is_refused_as_anybody_is() {
    let cluster = cluster();
    let pod = cluster.pod("a").await;
    let patch = |uid: &str| json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}});
    let (own, other) = (kube::Client::new(cluster.server.own_service(), "default"), cluster.client());
    let sent = async |client: &kube::Client, uid: &str| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        pods.patch_status("a", &PatchParams::default(), &Patch::Strategic(patch(uid))).await
    };
    let refusals = [sent(&own, "another").await, sent(&other, "another").await];
    let [Err(kube::Error::Api(mine)), Err(kube::Error::Api(theirs))] = refusals else {
        panic!("{refusals:?}")
    };
    assert_eq!(mine, theirs);
    let written = sent(&own, pod["metadata"]["uid"].as_str().expect("a UID")).await.expect("it is this one");
    assert_eq!(written.status.and_then(|status| status.phase).as_deref(), Some("Running"));
}

#[tokio::test]
async fn what_is_answered_through_the_door_is_what_the_client_of_this_process_is_answered() {
    let cluster = cluster();
    cluster.pod("a").await;
    let one = format!("{PODS}/a");
    let service = cluster.server.own_service();
    let ask = |method: &str, path: &str, body: &serde_json::Value| {
        let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        request.body(Bytes::from(body.to_string())).expect("a request")
    };
    let mut first = ask("GET", &one, &json!(null)).map(Body::from);
    first.extensions_mut().insert(door::Wanted);
    let answer = service.clone().oneshot(first).await.expect("infallible");
    let door = answer.extensions().get::<door::Door>().expect("a door");
    let mut refused = pod("b");
    refused["spec"]["restartPolicy"] = json!("Sometimes");
    for (method, path, body, want) in [
        ("GET", one.as_str(), json!(null), 200),
        ("GET", PODS, json!(null), 200),
        ("GET", "/api/v1/namespaces/default/pods/none", json!(null), 404),
        ("POST", PODS, refused, 422),
        ("POST", PODS, pod("a"), 409),
        ("POST", PODS, json!("no pod"), 400),
        ("GET", "/api/v1/nothing", json!(null), 404),
    ] {
        let by_door = door.send(ask(method, path, &body)).await;
        let by_client = service.clone().oneshot(ask(method, path, &body).map(Body::from));
        let (head, text) = by_client.await.expect("infallible").into_parts();
        let text = text.collect().await.expect("a body").to_bytes();
        assert_eq!(by_door.status(), want, "{method} {path}");
        assert_eq!((by_door.status(), by_door.headers()), (head.status, &head.headers), "{method} {path}");
        assert_eq!(by_door.body(), &text, "{method} {path}");
    }
    let made = door.send(ask("POST", PODS, &pod("c"))).await;
    assert_eq!(made.status(), 201);
    let made: serde_json::Value = serde_json::from_slice(made.body()).expect("a pod");
    assert_eq!(made, cluster.get(&format!("{PODS}/c")).await.body);
}

#[tokio::test]
async fn a_watch_of_the_library_sees_typed_events_and_a_bookmark() {
    let cluster = cluster();
    let jobs: Api<Job> = Api::default_namespaced(cluster.client());
    jobs.create(&PostParams::default(), &typed(job("j"))).await.expect("created");
    let mut events = jobs.watch(&WatchParams::default().initial_events(), "0").await.expect("open").boxed();
    let added = events.try_next().await.expect("an event").expect("not the end");
    assert!(matches!(added, WatchEvent::Added(job) if job.metadata.name.as_deref() == Some("j")));
    let mark = events.try_next().await.expect("an event").expect("not the end");
    let WatchEvent::Bookmark(mark) = mark else { panic!("{mark:?}") };
    assert_eq!(mark.metadata.annotations.get("k8s.io/initial-events-end").map(String::as_str), Some("true"));
}

#[tokio::test]
async fn lists_are_paged_and_errors_are_typed() {
    let cluster = cluster();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for i in 0..5 {
        cluster.pod(&format!("p{i}")).await;
    }
    let first = pods.list(&ListParams::default().limit(2)).await.expect("listed");
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    let token = first.metadata.continue_.expect("more");
    let second = pods.list(&ListParams::default().limit(10).continue_token(&token)).await.expect("listed");
    let names: Vec<_> =
        first.items.iter().chain(&second.items).map(|p| p.metadata.name.clone().expect("name")).collect();
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4"]);
    let missing = pods.get("nope").await.expect_err("missing");
    assert!(matches!(missing, kube::Error::Api(status) if status.is_not_found()));
    let twice = pods.create(&PostParams::default(), &typed(pod("p0"))).await.expect_err("taken");
    assert!(matches!(twice, kube::Error::Api(status) if status.is_already_exists()));
}

#[tokio::test]
async fn cluster_wide_kinds_have_no_namespace() {
    let cluster = cluster();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let names: Vec<_> = namespaces
        .list(&ListParams::default())
        .await
        .expect("listed")
        .items
        .into_iter()
        .map(|n| n.metadata.name.expect("name"))
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = typed(json!({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "2"}}}));
    let made = nodes.create(&PostParams::default(), &node).await.expect("created");
    assert_eq!((made.metadata.namespace, made.metadata.generation), (None, None));
    let status = Patch::Merge(json!({"status": {"capacity": {"cpu": "2"}}}));
    let patched = nodes.patch_status("n1", &PatchParams::default(), &status).await.expect("patched");
    assert_eq!(patched.status.expect("status").capacity.expect("capacity")["cpu"].0, "2");
}

#[tokio::test]
async fn the_library_discovers_the_same_from_either_form() {
    use kube::discovery::{Discovery, Scope, verbs};
    let cluster = cluster();
    let mut found = Vec::new();
    for discovery in [
        Discovery::new(cluster.client()).run().await.expect("legacy"),
        Discovery::new(cluster.client()).run_aggregated().await.expect("aggregated"),
    ] {
        let mut kinds: Vec<String> = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let scope = if capabilities.scope == Scope::Namespaced { "namespaced" } else { "cluster" };
                let can_watch = capabilities.supports_operation(verbs::WATCH);
                let subresources = capabilities.subresources.len();
                kinds.push(format!(
                    "{}/{} {scope} {can_watch} {subresources}",
                    resource.group, resource.plural
                ));
            }
        }
        kinds.sort();
        found.push(kinds);
    }
    assert_eq!(found[0], found[1]);
    assert!(found[0].contains(&"batch/jobs namespaced true 1".to_owned()), "{:?}", found[0]);
    assert!(found[0].contains(&"/pods namespaced true 6".to_owned()), "{:?}", found[0]);
    assert!(found[0].contains(&"/namespaces cluster true 2".to_owned()), "{:?}", found[0]);
    let version = cluster.client().apiserver_version().await.expect("a version");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
}

#[tokio::test(start_paused = true)]
async fn the_library_reads_metadata_alone() {
    let cluster = cluster();
    let made = cluster.pod("a").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let one = pods.get_metadata("a").await.expect("metadata");
    assert_eq!(one.metadata.uid.as_deref(), made["metadata"]["uid"].as_str());
    let list = pods.list_metadata(&ListParams::default()).await.expect("a list");
    assert_eq!(list.items.len(), 1);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let patched = pods.patch_metadata("a", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(patched.metadata.labels.expect("labels")["x"], "y");
    let stream = pods.watch_metadata(&WatchParams::default().timeout(1), "0").await.expect("a watch");
    let events: Vec<WatchEvent<_>> = stream.try_collect().await.expect("events");
    let [WatchEvent::Added(event), WatchEvent::Bookmark(_)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(event.metadata.name.as_deref(), Some("a"));
}

#[tokio::test]
async fn the_library_applies_and_learns_of_conflicts() {
    let cluster = cluster();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let config = |label: &str| {
        let mut config = pod("a");
        config["metadata"]["labels"] = json!({"l": label});
        config
    };
    let made = pods.patch("a", &PatchParams::apply("m1"), &Patch::Apply(config("1"))).await.expect("created");
    let again =
        pods.patch("a", &PatchParams::apply("m1"), &Patch::Apply(config("1"))).await.expect("the same");
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version);
    let refused = pods.patch("a", &PatchParams::apply("m2"), &Patch::Apply(config("2"))).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert!(status.is_conflict());
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"m1\": .metadata.labels.l");
    let forced =
        pods.patch("a", &PatchParams::apply("m2").force(), &Patch::Apply(config("2"))).await.expect("forced");
    let managers: Vec<_> = forced
        .metadata
        .managed_fields
        .expect("managers")
        .into_iter()
        .filter_map(|entry| entry.manager)
        .collect();
    assert_eq!(managers, ["m1", "m2"]);
    let status = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"phase": "Running"},
    });
    let running =
        pods.patch_status("a", &PatchParams::apply("m3"), &Patch::Apply(status)).await.expect("applied");
    assert_eq!(running.status.and_then(|status| status.phase).as_deref(), Some("Running"));
}
