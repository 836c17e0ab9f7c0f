//! Watches: history, selectors, initial events, bookmarks and the end of history.

use http::Method;
use serde_json::json;
use windlass_conformance::session::Session;
use windlass_store::Limits;

use crate::objects::{config_map, with};

const COMPACTED_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

/// So little history on our side that the first revision is out of it, as it is with the real server's cache.
pub fn short_history() -> Limits {
    Limits { history_events_max: 64, watch_lag_max: 32, ..Limits::default() }
}

async fn write(s: &Session) {
    let maps = s.core("configmaps");
    let make = async |name: &str| s.prepare(Method::POST, &maps, config_map(name)).await.expect("made");
    make("a").await;
    make("b").await;
    let labelled = json!({"metadata": {"labels": {"l": "x"}}});
    s.prepare(Method::PATCH, &format!("{maps}/a"), labelled.clone()).await.expect("labelled");
    s.prepare(Method::PATCH, &format!("{maps}/b"), labelled).await.expect("labelled");
    s.prepare(Method::PATCH, &format!("{maps}/a"), json!({"data": {"x": "y"}})).await.expect("changed");
    s.prepare(Method::PATCH, &format!("{maps}/b"), json!({"metadata": {"labels": null}}))
        .await
        .expect("unlabelled");
    s.prepare(Method::DELETE, &format!("{maps}/a"), json!({})).await.expect("deleted");
}

async fn start(s: &mut Session) -> String {
    let list = s.get("where it starts", &s.core("configmaps")).await;
    list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Everything since a revision, live and after the fact.
pub async fn history(s: &mut Session) {
    let maps = s.core("configmaps");
    let version = start(s).await;
    let live = s.open_watch(&format!("{maps}?watch=true&resourceVersion={version}")).await;
    write(s).await;
    s.read_watch("as it happens", live, 7).await;
    s.watch("after the fact", &format!("{maps}?watch=1&resourceVersion={version}"), 7).await;
    s.watch(
        "one object",
        &format!("{maps}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3Db"),
        3,
    )
    .await;
    s.watch("with an end", &format!("{maps}?watch=true&resourceVersion={version}&timeoutSeconds=1"), 100)
        .await;
    s.watch(
        "by the older path",
        &format!("/api/v1/watch/namespaces/{}/configmaps?resourceVersion={version}", s.namespace),
        2,
    )
    .await;
    s.watch(
        "one object by the older path",
        &format!("/api/v1/watch/namespaces/{}/configmaps/b?resourceVersion={version}", s.namespace),
        2,
    )
    .await;
}

/// What starts and stops to match.
pub async fn selectors(s: &mut Session) {
    let maps = s.core("configmaps");
    let version = start(s).await;
    write(s).await;
    s.watch("by label", &format!("{maps}?watch=true&resourceVersion={version}&labelSelector=l%3Dx"), 5).await;
    s.watch("without the label", &format!("{maps}?watch=true&resourceVersion={version}&labelSelector=!l"), 5)
        .await;
    s.watch(
        "all namespaces",
        &format!(
            "/api/v1/configmaps?watch=true&resourceVersion={version}&fieldSelector=metadata.namespace%3D{}",
            s.namespace
        ),
        7,
    )
    .await;
}

/// Lists as streams.
pub async fn initial_events(s: &mut Session) {
    let maps = s.core("configmaps");
    s.prepare(Method::POST, &maps, config_map("a")).await.expect("made");
    let made = s.post("create", &maps, with(config_map("b"), "/metadata/labels", json!({"l": "x"}))).await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let not_older = "resourceVersionMatch=NotOlderThan";
    s.watch("all and a bookmark",
        &format!("{maps}?watch=true&sendInitialEvents=true&{not_older}&allowWatchBookmarks=true&resourceVersion={version}"), 3).await;
    s.watch(
        "from anywhere",
        &format!(
            "{maps}?watch=true&sendInitialEvents=true&{not_older}&allowWatchBookmarks=true&resourceVersion=0"
        ),
        3,
    )
    .await;
    s.watch(
        "from the latest",
        &format!("{maps}?watch=true&sendInitialEvents=true&{not_older}&allowWatchBookmarks=true"),
        3,
    )
    .await;
    s.watch(
        "by label",
        &format!(
            "{maps}?watch=true&sendInitialEvents=true&{not_older}&allowWatchBookmarks=true&labelSelector=l"
        ),
        2,
    )
    .await;
    s.watch("no version at all", &format!("{maps}?watch=true&timeoutSeconds=1"), 2).await;
    s.watch("any version", &format!("{maps}?watch=true&resourceVersion=0&timeoutSeconds=1"), 2).await;
    s.watch(
        "no initial events",
        &format!("{maps}?watch=true&sendInitialEvents=false&{not_older}&timeoutSeconds=1"),
        100,
    )
    .await;
    s.watch(
        "without bookmarks",
        &format!(
            "{maps}?watch=true&sendInitialEvents=true&{not_older}&resourceVersion={version}&timeoutSeconds=1"
        ),
        100,
    )
    .await;
}

/// Parameters that make no sense.
pub async fn refused(s: &mut Session) {
    let maps = s.core("configmaps");
    for query in [
        "watch=true&sendInitialEvents=true",
        "watch=true&resourceVersionMatch=NotOlderThan",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
        "watch=true&resourceVersion=x",
        "watch=true&labelSelector=%3D",
        "watch=true&fieldSelector=data.x%3Dy",
        "watch=true&timeoutSeconds=x",
        "watch=maybe&timeoutSeconds=1&resourceVersion=0",
        "watch=true&sendInitialEvents=maybe",
    ] {
        s.watch(query, &format!("{maps}?{query}"), 1).await;
    }
    s.get("watch=false", &format!("{maps}?watch=false")).await;
}

/// Tables and metadata as streams.
pub async fn forms(s: &mut Session) {
    let maps = s.core("configmaps");
    let version = start(s).await;
    s.prepare(Method::POST, &maps, config_map("a")).await.expect("made");
    s.prepare(Method::PATCH, &format!("{maps}/a"), json!({"data": {"a": "2"}})).await.expect("changed");
    let path = format!("{maps}?watch=true&resourceVersion={version}&timeoutSeconds=1");
    s.watch_as("tables", &path, "application/json;as=Table;v=v1;g=meta.k8s.io", 2).await;
    s.watch_as("metadata", &path, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 2).await;
}

/// The end of history. The real server keeps no cache of Leases here, and compacts its store every few seconds.
pub async fn too_old(s: &mut Session) {
    let leases = s.group("coordination.k8s.io/v1", "leases");
    let lease = |count: usize| json!({"metadata": {"name": "l"}, "spec": {"leaseTransitions": count}});
    s.prepare(Method::POST, &leases, lease(0)).await.expect("a lease");
    for count in 1..=short_history().history_events_max {
        s.prepare(Method::PATCH, &format!("{leases}/l"), lease(count)).await.expect("changed");
    }
    let exact = format!("{leases}?resourceVersion=1&resourceVersionMatch=Exact");
    let started = std::time::Instant::now();
    while s.prepare(Method::GET, &exact, json!(null)).await.is_ok() {
        assert!(started.elapsed() < COMPACTED_WITHIN, "the store was not compacted");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    s.get("a list of an old version", &exact).await;
    s.watch("a watch from an old version", &format!("{leases}?watch=true&resourceVersion=1"), 1).await;
    s.get("a page of an old version", &format!("{leases}?resourceVersion=1&limit=1")).await;
}
