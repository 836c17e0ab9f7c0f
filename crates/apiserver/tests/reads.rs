//! Lists and watches.

mod common;

use axum::body::BodyDataStream;
use common::{CONFIGMAPS, Cluster, PODS, binding, cluster, cluster_with, configmap, failure, pod};
use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_store::Limits;

/// An open watch, read line by line.
struct Lines {
    body: BodyDataStream,
    rest: Vec<u8>,
}

impl Lines {
    async fn open(cluster: &Cluster, path: &str) -> Self {
        let response = cluster.raw(Method::GET, path, "", String::new()).await;
        assert_eq!(response.status(), 200, "{path}");
        Self { body: response.into_body().into_data_stream(), rest: Vec::new() }
    }

    /// The next event, or the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("JSON"));
            }
            let chunk = self.body.next().await?.expect("infallible");
            self.rest.extend_from_slice(&chunk);
        }
    }

    /// `TYPE name@resourceVersion` of the next event.
    async fn brief(&mut self) -> String {
        let event = self.next().await.expect("an event");
        let meta = &event["object"]["metadata"];
        let name = meta["name"].as_str().unwrap_or("-");
        let (kind, version) =
            (event["type"].as_str().expect("type"), meta["resourceVersion"].as_str().expect("version"));
        format!("{kind} {name}@{version}")
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("name")).collect()
}

async fn labelled(cluster: &Cluster, name: &str, label: &str) {
    let mut body = configmap(name);
    body["metadata"]["labels"] = json!({"l": label});
    assert_eq!(cluster.post(CONFIGMAPS, body).await.code, 201);
}

#[tokio::test]
async fn a_list_has_its_kind_its_revision_and_items_without_type() {
    let cluster = cluster();
    let empty = cluster.get("/api/v1/pods").await;
    let want =
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []});
    assert_eq!((empty.code, empty.body), (200, want));
    let made = cluster.pod("a").await;
    let list = cluster.get(PODS).await.body;
    let mut item = made;
    item.as_object_mut().expect("a map").retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    assert_eq!(list["items"], json!([item]));
    assert_eq!(list["metadata"], json!({"resourceVersion": "6"}));
}

#[tokio::test]
async fn lists_are_selected_by_labels_and_fields() {
    let cluster = cluster();
    cluster.running_pod("a").await;
    cluster.pod("b").await;
    cluster.merge(&format!("{PODS}/b"), json!({"metadata": {"labels": {"app": "b"}}})).await;
    cluster.post("/api/v1/namespaces/kube-system/pods", pod("c")).await;
    for (query, want) in [
        ("labelSelector=app%3Da", vec!["a", "c"]),
        ("labelSelector=app%20in%20(a,b),app!%3Db", vec!["a", "c"]),
        ("labelSelector=!app", vec![]),
        ("fieldSelector=spec.nodeName%3Dn1", vec!["a"]),
        ("fieldSelector=spec.nodeName%3D", vec!["b", "c"]),
        ("fieldSelector=spec.nodeName!%3Dn1,metadata.namespace%3Ddefault", vec!["b"]),
        ("fieldSelector=status.phase%3DPending", vec!["b", "c"]),
        ("fieldSelector=metadata.name%3Dc", vec!["c"]),
    ] {
        assert_eq!(names(&cluster.get(&format!("/api/v1/pods?{query}")).await.body), want, "{query}");
    }
    for (path, text) in [
        ("/api/v1/pods", "field label not supported: x"),
        ("/apis/batch/v1/jobs", "field label \"x\" not supported for Job"),
        (
            "/api/v1/configmaps",
            "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        let refused = cluster.get(&format!("{path}?fieldSelector=x%3Dred")).await;
        assert_eq!((refused.code, refused.body), (400, failure(400, "BadRequest", text, Value::Null)));
    }
    cluster.post("/apis/batch/v1/namespaces/default/jobs", common::job("j")).await;
    let none = cluster.get("/apis/batch/v1/jobs?fieldSelector=status.successful%3D0").await.body;
    assert_eq!(names(&none), ["j"]);
}

#[tokio::test]
async fn pages_show_one_snapshot() {
    let cluster = cluster();
    for name in ["a", "b", "c", "d"] {
        cluster.post(CONFIGMAPS, configmap(name)).await;
    }
    let first = cluster.get(&format!("{CONFIGMAPS}?limit=2")).await.body;
    let token = first["metadata"]["continue"].as_str().expect("more");
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(2)));
    cluster.delete(&format!("{CONFIGMAPS}/c"), json!({})).await;
    cluster.post(CONFIGMAPS, configmap("e")).await;
    let second = cluster.get(&format!("{CONFIGMAPS}?limit=2&continue={token}")).await.body;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"], json!({"resourceVersion": "9"}));
    let exact = cluster.get(&format!("{CONFIGMAPS}?resourceVersion=7&resourceVersionMatch=Exact")).await.body;
    assert_eq!((names(&exact), &exact["metadata"]["resourceVersion"]), (vec!["a", "b"], &json!("7")));
    let text = "invalid continue token: continue key is not valid: illegal base64 data at input byte 0";
    let bad = cluster.get(&format!("{CONFIGMAPS}?continue=zz")).await.body;
    assert_eq!(bad, failure(400, "BadRequest", text, Value::Null));
    let selected = cluster.get(&format!("{CONFIGMAPS}?limit=1&labelSelector=!x")).await.body;
    assert_eq!(selected["metadata"].get("remainingItemCount"), None);
}

#[tokio::test]
async fn a_snapshot_that_the_history_has_passed_is_expired() {
    let limits = Limits { history_events_max: 2, ..Limits::default() };
    let cluster = cluster_with(Gates::default(), limits);
    for name in ["a", "b", "c", "d"] {
        cluster.post(CONFIGMAPS, configmap(name)).await;
    }
    let exact = cluster.get(&format!("{CONFIGMAPS}?resourceVersion=6&resourceVersionMatch=Exact")).await.body;
    let text = "The resourceVersion for the provided list is too old.";
    assert_eq!(exact, failure(410, "Expired", text, Value::Null));
    // "6:a" in the form of a token
    let page = cluster.get(&format!("{CONFIGMAPS}?continue=363a61")).await;
    assert_eq!((page.code, &page.body["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_a_revision_and_gives_up_when_it_does_not_come() {
    let cluster = cluster();
    let late = cluster.get(&format!("{CONFIGMAPS}?resourceVersion=99")).await.body;
    let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    let details = json!({"retryAfterSeconds": 1, "causes": causes});
    assert_eq!(late, failure(504, "Timeout", "Too large resource version: 99, current: 5", details));
    let path = format!("{CONFIGMAPS}?resourceVersion=6");
    let (list, _) = tokio::join!(cluster.get(&path), cluster.post(CONFIGMAPS, configmap("c")));
    assert_eq!(names(&list.body), ["c"]);
}

#[tokio::test]
async fn the_rules_of_list_options_are_enforced() {
    let cluster = cluster();
    for (query, text) in [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        (
            "watch=1&sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let refused = cluster.get(&format!("{PODS}?{query}")).await;
        let text = format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
        assert_eq!((refused.code, &refused.body["message"]), (422, &json!(text)), "{query}");
    }
}

#[tokio::test]
async fn a_watch_without_a_revision_begins_with_what_is_there() {
    let cluster = cluster();
    cluster.pod("a").await;
    for query in ["watch=true", "watch=1&resourceVersion=0"] {
        let mut watch = Lines::open(&cluster, &format!("{PODS}?{query}")).await;
        assert_eq!(watch.brief().await, "ADDED a@6");
    }
    let mut watch = Lines::open(&cluster, &format!("{PODS}?watch=true&resourceVersion=5")).await;
    assert_eq!(watch.next().await.expect("an event")["object"], cluster.get(&format!("{PODS}/a")).await.body);
    cluster.post(&format!("{PODS}/a/binding"), binding("a", "n1")).await;
    cluster.delete(&format!("{PODS}/a"), json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(watch.brief().await, "MODIFIED a@7");
    let deleted = watch.next().await.expect("an event");
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], "8");
    assert_eq!(deleted["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let cluster = cluster();
    cluster.pod("a").await;
    cluster.pod("b").await;
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Lines::open(&cluster, &format!("{PODS}?{query}")).await;
    assert_eq!((watch.brief().await, watch.brief().await), ("ADDED a@6".into(), "ADDED b@7".into()));
    let mark = json!({"type": "BOOKMARK", "object": {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}},
    }});
    assert_eq!(watch.next().await, Some(mark));
    cluster.pod("c").await;
    assert_eq!(watch.brief().await, "ADDED c@8");
    let query = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = Lines::open(&cluster, &format!("{PODS}?{query}")).await;
    cluster.pod("d").await;
    assert_eq!(watch.brief().await, "ADDED d@9");
}

#[tokio::test]
async fn a_selecting_watch_sees_objects_come_and_go() {
    let cluster = cluster();
    labelled(&cluster, "a", "x").await;
    labelled(&cluster, "b", "y").await;
    let path = format!("{CONFIGMAPS}?watch=true&labelSelector=l%3Dx");
    let mut watch = Lines::open(&cluster, &path).await;
    assert_eq!(watch.brief().await, "ADDED a@6");
    let label = |value: &str| json!({"metadata": {"labels": {"l": value}}});
    cluster.merge(&format!("{CONFIGMAPS}/b"), label("z")).await; // 8: not seen
    cluster.merge(&format!("{CONFIGMAPS}/b"), label("x")).await; // 9
    cluster.merge(&format!("{CONFIGMAPS}/b"), json!({"data": {"k": "v"}})).await; // 10
    cluster.merge(&format!("{CONFIGMAPS}/a"), label("y")).await; // 11
    cluster.delete(&format!("{CONFIGMAPS}/a"), json!({})).await; // 12: not seen
    cluster.delete(&format!("{CONFIGMAPS}/b"), json!({})).await; // 13
    assert_eq!((watch.brief().await, watch.brief().await), ("ADDED b@9".into(), "MODIFIED b@10".into()));
    let left = watch.next().await.expect("an event");
    // as it last matched, at the revision at which it stopped
    assert_eq!((&left["type"], &left["object"]["metadata"]["labels"]["l"]), (&json!("DELETED"), &json!("x")));
    assert_eq!(left["object"]["metadata"]["resourceVersion"], "11");
    assert_eq!(watch.brief().await, "DELETED b@13");
}

#[tokio::test]
async fn a_watch_for_one_node_sees_a_pod_when_it_is_bound() {
    let cluster = cluster();
    let mut watch = Lines::open(&cluster, "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dn1").await;
    cluster.pod("a").await;
    cluster.pod("b").await;
    cluster.post(&format!("{PODS}/b/binding"), binding("b", "n2")).await;
    cluster.post(&format!("{PODS}/a/binding"), binding("a", "n1")).await;
    assert_eq!(watch.brief().await, "ADDED a@9");
}

#[tokio::test]
async fn a_revision_that_is_too_old_is_an_error_event_and_the_end() {
    let limits = Limits { history_events_max: 2, ..Limits::default() };
    let cluster = cluster_with(Gates::default(), limits);
    for name in ["a", "b", "c", "d"] {
        cluster.post(CONFIGMAPS, configmap(name)).await;
    }
    let mut watch = Lines::open(&cluster, &format!("{CONFIGMAPS}?watch=true&resourceVersion=6")).await;
    let status = failure(410, "Expired", "too old resource version: 6 (7)", Value::Null);
    assert_eq!(watch.next().await, Some(json!({"type": "ERROR", "object": status})));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watcher_that_is_too_slow_is_ended_with_a_bookmark_to_resume_from() {
    let limits = Limits { history_events_max: 100, watch_lag_max: 3, ..Limits::default() };
    let cluster = cluster_with(Gates::default(), limits);
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion=5&allowWatchBookmarks=true");
    let mut watch = Lines::open(&cluster, &path).await;
    cluster.post(CONFIGMAPS, configmap("a")).await;
    assert_eq!(watch.brief().await, "ADDED a@6");
    for name in ["b", "c", "d", "e"] {
        cluster.post(CONFIGMAPS, configmap(name)).await;
    }
    assert_eq!(watch.brief().await, "BOOKMARK -@6");
    assert_eq!(watch.next().await, None);
    let mut again = Lines::open(&cluster, &format!("{CONFIGMAPS}?watch=true&resourceVersion=6")).await;
    for want in ["ADDED b@7", "ADDED c@8", "ADDED d@9", "ADDED e@10"] {
        assert_eq!(again.brief().await, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_asked_and_sends_bookmarks_meanwhile() {
    let cluster = cluster();
    let path = format!("{PODS}?watch=true&resourceVersion=5&timeoutSeconds=100&allowWatchBookmarks=true");
    let mut watch = Lines::open(&cluster, &path).await;
    cluster.post(CONFIGMAPS, configmap("c")).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(watch.brief().await, "BOOKMARK -@6");
    assert_eq!(begin.elapsed().as_secs(), 60);
    assert_eq!(watch.brief().await, "BOOKMARK -@6");
    assert_eq!(watch.next().await, None);
    assert_eq!(begin.elapsed().as_secs(), 100);
    let mut plain =
        Lines::open(&cluster, &format!("{PODS}?watch=true&resourceVersion=5&timeoutSeconds=7")).await;
    assert_eq!(plain.next().await, None);
    assert_eq!(begin.elapsed().as_secs(), 107);
}
