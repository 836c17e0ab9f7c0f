//! DELETE: grace periods, finalizers, preconditions, propagation policies and collections.

use http::Method;
use serde_json::{Value, json};
use windlass_conformance::session::{JSON_PATCH, MERGE, Session};

use crate::objects::{config_map, job, pod, with};

/// A pod that a node runs, as far as the server can tell.
pub async fn running(s: &Session, name: &str) {
    let pods = s.core("pods");
    s.prepare(Method::POST, &pods, pod(name)).await.expect("a pod");
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    s.prepare(Method::POST, &format!("{pods}/{name}/binding"), binding).await.expect("bound");
    let status = json!({"status": {"phase": "Running"}});
    s.prepare(Method::PATCH, &format!("{pods}/{name}/status"), status).await.expect("running");
}

/// Pods are given time.
pub async fn pods_with_grace(s: &mut Session) {
    let pods = s.core("pods");
    for name in ["a", "b", "c", "d", "e"] {
        running(s, name).await;
    }
    let path = |name: &str| format!("{pods}/{name}");
    s.delete("with the grace of its spec", &path("a"), Value::Null).await;
    s.delete("once more", &path("a"), Value::Null).await;
    s.delete("with more grace", &path("a"), json!({"gracePeriodSeconds": 60})).await;
    s.delete("with less grace", &path("a"), json!({"gracePeriodSeconds": 10})).await;
    s.get("as it is now", &path("a")).await;
    s.patch("labels of one that goes", &path("a"), MERGE, json!({"metadata": {"labels": {"x": "y"}}})).await;
    s.patch("a finalizer for one that goes", &path("a"), MERGE, json!({"metadata": {"finalizers": ["a/b"]}}))
        .await;
    s.delete("at once", &path("a"), json!({"gracePeriodSeconds": 0})).await;
    s.get("gone", &path("a")).await;
    s.delete("what is gone", &path("a"), Value::Null).await;
    s.delete(
        "with its own grace",
        &path("b"),
        json!({"gracePeriodSeconds": 5, "propagationPolicy": "Background"}),
    )
    .await;
    s.delete("with negative grace", &path("c"), json!({"gracePeriodSeconds": -1})).await;
    s.delete("by the query", &format!("{}?gracePeriodSeconds=3", path("d")), Value::Null).await;
    s.delete("at once by the query", &format!("{}?gracePeriodSeconds=0", path("e")), Value::Null).await;
    s.prepare(Method::POST, &pods, pod("waiting")).await.expect("a pod");
    s.delete("one that no node runs", &path("waiting"), Value::Null).await;
    running(s, "done").await;
    let status = json!({"status": {"phase": "Succeeded"}});
    s.prepare(Method::PATCH, &format!("{}/status", path("done")), status).await.expect("done");
    s.delete("one that is done", &path("done"), Value::Null).await;
}

/// Finalizers keep an object.
pub async fn finalizers(s: &mut Session) {
    let (maps, pods, jobs) = (s.core("configmaps"), s.core("pods"), s.jobs());
    let held = |name: &str| {
        with(config_map(name), "/metadata/finalizers", json!(["example.com/a", "example.com/b"]))
    };
    s.post("create", &maps, held("m")).await;
    let path = format!("{maps}/m");
    s.delete("marked", &path, Value::Null).await;
    s.delete("marked again", &path, Value::Null).await;
    s.post("its name is taken", &maps, config_map("m")).await;
    s.patch("change it", &path, MERGE, json!({"data": {"a": "2"}})).await;
    s.patch(
        "one more finalizer",
        &path,
        MERGE,
        json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}}),
    )
    .await;
    s.patch(
        "undo the deletion",
        &path,
        JSON_PATCH,
        json!([{"op": "remove", "path": "/metadata/deletionTimestamp"}]),
    )
    .await;
    s.patch("one less", &path, MERGE, json!({"metadata": {"finalizers": ["example.com/b"]}})).await;
    s.patch("none", &path, MERGE, json!({"metadata": {"finalizers": null}})).await;
    s.get("gone", &path).await;
    running(s, "p").await;
    s.patch(
        "hold a pod",
        &format!("{pods}/p"),
        MERGE,
        json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}),
    )
    .await;
    s.delete("mark a pod", &format!("{pods}/p"), json!({"gracePeriodSeconds": 7})).await;
    s.delete("end a pod that is held", &format!("{pods}/p"), json!({"gracePeriodSeconds": 0})).await;
    s.patch("release a pod", &format!("{pods}/p"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    s.get("the pod is gone", &format!("{pods}/p")).await;
    running(s, "q").await;
    s.prepare(Method::PATCH, &format!("{pods}/q"), json!({"metadata": {"finalizers": ["a/b"]}}))
        .await
        .expect("held");
    s.delete("mark another", &format!("{pods}/q"), Value::Null).await;
    s.patch(
        "release it before its time is over",
        &format!("{pods}/q"),
        MERGE,
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    s.get("it is still there", &format!("{pods}/q")).await;
    s.post("a job", &jobs, with(job("j"), "/metadata/finalizers", json!(["example.com/a"]))).await;
    s.delete("mark a job", &format!("{jobs}/j"), json!({"propagationPolicy": "Background"})).await;
    s.put("release by put", &format!("{maps}/none"), config_map("none")).await;
}

/// UID and version.
pub async fn preconditions(s: &mut Session) {
    let (maps, pods) = (s.core("configmaps"), s.core("pods"));
    let made = s.post("create", &maps, config_map("m")).await;
    let path = format!("{maps}/m");
    let (uid, version) = (made["metadata"]["uid"].clone(), made["metadata"]["resourceVersion"].clone());
    let wrong = "00000000-0000-4000-8000-000000000000";
    s.delete("another uid", &path, json!({"preconditions": {"uid": wrong}})).await;
    s.delete("another version", &path, json!({"preconditions": {"resourceVersion": "1"}})).await;
    s.delete(
        "another uid and version",
        &path,
        json!({"preconditions": {"uid": wrong, "resourceVersion": "1"}}),
    )
    .await;
    s.patch("change it", &path, MERGE, json!({"data": {"a": "2"}})).await;
    s.delete("the version before", &path, json!({"preconditions": {"uid": uid, "resourceVersion": version}}))
        .await;
    s.delete("the uid", &path, json!({"preconditions": {"uid": uid}})).await;
    running(s, "p").await;
    s.get("a pod", &format!("{pods}/p")).await;
    s.delete("a pod's uid is another", &format!("{pods}/p"), json!({"preconditions": {"uid": wrong}})).await;
    s.delete(
        "a pod's version is another",
        &format!("{pods}/p"),
        json!({"preconditions": {"resourceVersion": "1"}}),
    )
    .await;
    s.delete("missing", &format!("{maps}/none"), json!({"preconditions": {"uid": wrong}})).await;
}

/// What becomes of dependents.
pub async fn propagation(s: &mut Session) {
    let (jobs, maps, pods) = (s.jobs(), s.core("configmaps"), s.core("pods"));
    for name in ["default", "orphan", "background", "foreground", "twice", "old-orphan", "old-delete"] {
        s.prepare(Method::POST, &jobs, job(name)).await.expect("a job");
        s.prepare(Method::POST, &maps, config_map(name)).await.expect("a config map");
    }
    s.delete("job, default", &format!("{jobs}/default"), Value::Null).await;
    for policy in ["Orphan", "Background", "Foreground"] {
        let name = policy.to_lowercase();
        s.delete(&format!("job, {policy}"), &format!("{jobs}/{name}"), json!({"propagationPolicy": policy}))
            .await;
        s.delete(
            &format!("config map, {policy}"),
            &format!("{maps}/{name}"),
            json!({"propagationPolicy": policy}),
        )
        .await;
    }
    s.delete("job, by the query", &format!("{jobs}/twice?propagationPolicy=Foreground"), Value::Null).await;
    s.delete(
        "job, changed to background",
        &format!("{jobs}/twice"),
        json!({"propagationPolicy": "Background"}),
    )
    .await;
    s.get("job, after that", &format!("{jobs}/twice")).await;
    s.delete("job, orphanDependents", &format!("{jobs}/old-orphan"), json!({"orphanDependents": true})).await;
    s.delete("job, not orphanDependents", &format!("{jobs}/old-delete"), json!({"orphanDependents": false}))
        .await;
    s.delete(
        "config map, orphanDependents",
        &format!("{maps}/old-orphan?orphanDependents=true"),
        Value::Null,
    )
    .await;
    s.get("jobs that are left", &jobs).await;
    s.get("config maps that are left", &maps).await;
    running(s, "p").await;
    s.delete(
        "pod, foreground",
        &format!("{pods}/p"),
        json!({"propagationPolicy": "Foreground", "gracePeriodSeconds": 0}),
    )
    .await;
    s.patch("the collector is done", &format!("{pods}/p"), MERGE, json!({"metadata": {"finalizers": []}}))
        .await;
}

/// Options that make no sense.
pub async fn options(s: &mut Session) {
    let maps = s.core("configmaps");
    s.post("create", &maps, config_map("m")).await;
    let path = format!("{maps}/m");
    s.delete("a policy that is none", &path, json!({"propagationPolicy": "Sometimes"})).await;
    s.delete("two ways to say it", &path, json!({"propagationPolicy": "Orphan", "orphanDependents": true}))
        .await;
    s.delete("a dry run of some", &path, json!({"dryRun": ["Some"]})).await;
    s.delete("a text for a number", &path, json!({"gracePeriodSeconds": "x"})).await;
    s.delete("a list", &path, json!([])).await;
    s.delete("of another kind", &path, json!({"kind": "Pod", "apiVersion": "v1"})).await;
    s.send("not json", Method::DELETE, &path, &[("content-type", "application/json")], "{".to_owned()).await;
    s.send("of no type", Method::DELETE, &path, &[("content-type", "text/plain")], "{}".to_owned()).await;
    s.delete("a number by the query", &format!("{path}?gracePeriodSeconds=x"), Value::Null).await;
    s.delete("an unknown field", &path, json!({"graceperiod": 1, "dryRun": ["All"]})).await;
    s.delete("with its kind", &path, json!({"kind": "DeleteOptions", "apiVersion": "v1"})).await;
    s.post("once more", &maps, config_map("m")).await;
    s.delete(
        "of the group of metadata",
        &path,
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}),
    )
    .await;
}

/// Many at once.
pub async fn collections(s: &mut Session) {
    let (maps, pods, jobs) = (s.core("configmaps"), s.core("pods"), s.jobs());
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")] {
        let map = with(config_map(name), "/metadata/labels", json!({"l": label}));
        s.prepare(Method::POST, &maps, map).await.expect("prepared");
    }
    s.delete("by label", &format!("{maps}?labelSelector=l%3Dx"), Value::Null).await;
    s.get("left", &maps).await;
    s.delete(
        "by field",
        &format!("{maps}?fieldSelector=metadata.name%3Dc"),
        json!({"propagationPolicy": "Background"}),
    )
    .await;
    s.delete("bad selector", &format!("{maps}?labelSelector=%3D"), Value::Null).await;
    s.delete("all", &maps, Value::Null).await;
    s.delete("none", &maps, Value::Null).await;
    running(s, "p").await;
    s.prepare(Method::POST, &pods, pod("q")).await.expect("prepared");
    s.delete("pods", &pods, json!({"gracePeriodSeconds": 4})).await;
    s.get("pods that are left", &pods).await;
    s.prepare(Method::POST, &jobs, job("j")).await.expect("prepared");
    s.delete("jobs", &jobs, Value::Null).await;
    s.get("jobs that are left", &jobs).await;
    s.delete("namespaces", "/api/v1/namespaces", Value::Null).await;
    s.delete("all namespaces", "/api/v1/configmaps?labelSelector=none%3Dsuch", Value::Null).await;
}
