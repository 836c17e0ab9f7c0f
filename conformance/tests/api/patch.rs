//! PATCH: four types, their errors, and the fields they may name.

use http::Method;
use serde_json::{Value, json};
use windlass_conformance::session::{APPLY, JSON_PATCH, MERGE, STRATEGIC, Session};

use crate::objects::{config_map, job, pod};

/// JSON patch.
pub async fn json(s: &mut Session) {
    let maps = s.core("configmaps");
    let path = format!("{maps}/m");
    s.post("create", &maps, config_map("m")).await;
    let one = |op: Value| json!([op]);
    s.patch("add", &path, JSON_PATCH, one(json!({"op": "add", "path": "/data/b", "value": "2"}))).await;
    s.patch("replace", &path, JSON_PATCH, one(json!({"op": "replace", "path": "/data/b", "value": "3"})))
        .await;
    s.patch(
        "test and remove",
        &path,
        JSON_PATCH,
        json!([{"op": "test", "path": "/data/b", "value": "3"}, {"op": "remove", "path": "/data/b"}]),
    )
    .await;
    s.patch("copy and move", &path, JSON_PATCH,
        json!([{"op": "copy", "from": "/data/a", "path": "/data/c"}, {"op": "move", "from": "/data/c", "path": "/data/d"}])).await;
    s.patch(
        "a test that fails",
        &path,
        JSON_PATCH,
        one(json!({"op": "test", "path": "/data/a", "value": "no"})),
    )
    .await;
    s.patch(
        "remove what is not there",
        &path,
        JSON_PATCH,
        one(json!({"op": "remove", "path": "/data/none"})),
    )
    .await;
    s.patch(
        "replace what is not there",
        &path,
        JSON_PATCH,
        one(json!({"op": "replace", "path": "/nope/x", "value": 1})),
    )
    .await;
    s.patch("an operation that is none", &path, JSON_PATCH, one(json!({"op": "twist", "path": "/data/a"})))
        .await;
    s.patch("not a list", &path, JSON_PATCH, json!({"op": "remove"})).await;
    s.patch_text("not json", &path, JSON_PATCH, "[".to_owned()).await;
    s.patch("a wrong type", &path, JSON_PATCH, one(json!({"op": "add", "path": "/data/x", "value": 1})))
        .await;
    s.patch(
        "the name",
        &path,
        JSON_PATCH,
        one(json!({"op": "replace", "path": "/metadata/name", "value": "x"})),
    )
    .await;
    s.patch("an empty list", &path, JSON_PATCH, json!([])).await;
    s.patch(
        "an old version",
        &path,
        JSON_PATCH,
        one(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "1"})),
    )
    .await;
    s.patch("missing", &format!("{maps}/none"), JSON_PATCH, json!([])).await;
}

/// Merge patch.
pub async fn merge(s: &mut Session) {
    let (maps, pods) = (s.core("configmaps"), s.core("pods"));
    let path = format!("{maps}/m");
    s.post("create", &maps, config_map("m")).await;
    s.patch("add and remove", &path, MERGE, json!({"data": {"a": null, "b": "2"}})).await;
    s.patch("nothing", &path, MERGE, json!({})).await;
    s.patch("the same", &path, MERGE, json!({"data": {"b": "2"}})).await;
    s.patch("all of a field", &path, MERGE, json!({"data": null})).await;
    s.patch("labels", &path, MERGE, json!({"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}}))
        .await;
    s.patch("bad labels", &path, MERGE, json!({"metadata": {"labels": {"a": "not ok!"}}})).await;
    s.patch("another name", &path, MERGE, json!({"metadata": {"name": "x"}})).await;
    s.patch("another namespace", &path, MERGE, json!({"metadata": {"namespace": "x"}})).await;
    s.patch("another kind", &path, MERGE, json!({"kind": "Secret"})).await;
    s.patch("an old version", &path, MERGE, json!({"metadata": {"resourceVersion": "1"}})).await;
    s.patch(
        "another uid",
        &path,
        MERGE,
        json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}),
    )
    .await;
    s.patch("a list", &path, MERGE, json!([1])).await;
    s.patch_text("not json", &path, MERGE, "{".to_owned()).await;
    s.patch("a wrong type", &path, MERGE, json!({"data": {"x": 1}})).await;
    s.patch("missing", &format!("{maps}/none"), MERGE, json!({})).await;
    s.patch("dry run", &format!("{path}?dryRun=All"), MERGE, json!({"data": {"dry": "run"}})).await;
    s.patch("force", &format!("{path}?force=true"), MERGE, json!({})).await;
    s.patch(
        "a manager that is too long",
        &format!("{path}?fieldManager={}", "m".repeat(129)),
        MERGE,
        json!({}),
    )
    .await;
    s.post("a pod", &pods, pod("p")).await;
    s.patch(
        "lists are replaced",
        &format!("{pods}/p"),
        MERGE,
        json!({"spec": {"containers": [{"name": "other", "image": "busybox"}]}}),
    )
    .await;
    s.patch(
        "its image",
        &format!("{pods}/p"),
        MERGE,
        json!({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}),
    )
    .await;
}

/// Strategic merge patch.
pub async fn strategic(s: &mut Session) {
    let (maps, jobs, pods) = (s.core("configmaps"), s.jobs(), s.core("pods"));
    let path = format!("{maps}/m");
    s.post("create", &maps, config_map("m")).await;
    s.patch("add and remove", &path, STRATEGIC, json!({"data": {"a": null, "b": "2"}})).await;
    s.patch("replace a map", &path, STRATEGIC, json!({"data": {"$patch": "replace", "c": "3"}})).await;
    s.patch("a directive that is none", &path, STRATEGIC, json!({"data": {"$patch": "twist"}})).await;
    s.patch("delete a map", &path, STRATEGIC, json!({"data": {"$patch": "delete"}})).await;
    s.patch("finalizers", &path, STRATEGIC, json!({"metadata": {"finalizers": ["a/a", "b/b"]}})).await;
    s.patch("one more", &path, STRATEGIC, json!({"metadata": {"finalizers": ["c/c"]}})).await;
    s.patch(
        "one less",
        &path,
        STRATEGIC,
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}}),
    )
    .await;
    s.patch(
        "in another order",
        &path,
        STRATEGIC,
        json!({"metadata": {"$setElementOrder/finalizers": ["c/c", "b/b"], "finalizers": ["b/b"]}}),
    )
    .await;
    s.patch("a list for a map", &path, STRATEGIC, json!({"data": ["a"]})).await;
    s.patch_text("not json", &path, STRATEGIC, "{".to_owned()).await;
    s.patch("missing", &format!("{maps}/none"), STRATEGIC, json!({})).await;
    s.post("a job", &jobs, job("j")).await;
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    s.patch(
        "a container by its name",
        &format!("{jobs}/j"),
        STRATEGIC,
        template(json!({"containers": [{"name": "c", "image": "busybox:2"}]})),
    )
    .await;
    s.patch("suspend", &format!("{jobs}/j"), STRATEGIC, json!({"spec": {"suspend": true}})).await;
    s.post("a suspended job", &jobs, {
        let mut job = job("k");
        job["spec"]["suspend"] = json!(true);
        job
    })
    .await;
    s.patch(
        "a node selector",
        &format!("{jobs}/k"),
        STRATEGIC,
        template(json!({"nodeSelector": {"a": "b"}})),
    )
    .await;
    s.post("a pod", &pods, pod("p")).await;
    let pod_path = format!("{pods}/p");
    s.patch(
        "an element without its key",
        &pod_path,
        STRATEGIC,
        json!({"spec": {"containers": [{"image": "x"}]}}),
    )
    .await;
    s.patch(
        "an image by name",
        &pod_path,
        STRATEGIC,
        json!({"spec": {"containers": [{"name": "c", "image": "busybox:3"}]}}),
    )
    .await;
    s.patch(
        "tolerations",
        &pod_path,
        STRATEGIC,
        json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
    )
    .await;
    s.patch(
        "conditions",
        &format!("{pod_path}/status"),
        STRATEGIC,
        json!({"status": {"conditions": [
        {"type": "Ready", "status": "True"}, {"type": "x.example.com/mine", "status": "False"}]}}),
    )
    .await;
    s.patch(
        "one condition less",
        &format!("{pod_path}/status"),
        STRATEGIC,
        json!({"status": {"conditions": [
        {"type": "Ready", "$patch": "delete"}]}}),
    )
    .await;
    s.patch(
        "order of conditions",
        &format!("{pod_path}/status"),
        STRATEGIC,
        json!({"status": {
        "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "x.example.com/mine"}],
        "conditions": [{"type": "PodScheduled", "status": "True"}]}}),
    )
    .await;
}

/// Types that are not read.
pub async fn refused(s: &mut Session) {
    let maps = s.core("configmaps");
    let path = format!("{maps}/m");
    s.post("create", &maps, config_map("m")).await;
    s.patch("plain json", &path, "application/json", json!({})).await;
    s.send("no type", Method::PATCH, &path, &[], "{}".to_owned()).await;
    s.patch("the collection", &maps, MERGE, json!({})).await;
    s.patch(
        "with a character set",
        &path,
        "application/merge-patch+json; charset=utf-8",
        json!({"data": {"x": "y"}}),
    )
    .await;
    s.patch("a subresource that is not there", &format!("{path}/status"), MERGE, json!({})).await;
}

/// Unknown fields in patches.
pub async fn field_validation(s: &mut Session) {
    let jobs = s.jobs();
    for (kind, content) in [("merge", MERGE), ("strategic", STRATEGIC), ("json", JSON_PATCH)] {
        for mode in ["Strict", "Warn", "Ignore"] {
            let name = format!("{kind}-{}", mode.to_lowercase());
            s.prepare(Method::POST, &jobs, job(&name)).await.expect("a job");
            let body = match kind {
                "json" => json!([{"op": "add", "path": "/spec/paralellism", "value": 1}]),
                _ => json!({"spec": {"paralellism": 1}, "metadata": {"labels": {"mode": mode}}}),
            };
            s.patch(
                &format!("{kind}, {mode}"),
                &format!("{jobs}/{name}?fieldValidation={mode}"),
                content,
                body,
            )
            .await;
        }
    }
    s.prepare(Method::POST, &jobs, job("twice")).await.expect("a job");
    for mode in ["Strict", "Warn"] {
        let text = r#"{"spec": {"suspend": true, "suspend": false}}"#.to_owned();
        s.patch_text(&format!("twice, {mode}"), &format!("{jobs}/twice?fieldValidation={mode}"), MERGE, text)
            .await;
    }
}

/// Server-side apply: who owns what.
pub async fn apply(s: &mut Session) {
    let maps = s.core("configmaps");
    let path = format!("{maps}/m");
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    s.patch("without a manager", &path, APPLY, config(json!({"a": "1"}))).await;
    s.patch("creates", &format!("{path}?fieldManager=one"), APPLY, config(json!({"a": "1", "b": "2"}))).await;
    s.patch("the same", &format!("{path}?fieldManager=one"), APPLY, config(json!({"a": "1", "b": "2"})))
        .await;
    s.patch(
        "drops what is no longer applied",
        &format!("{path}?fieldManager=one"),
        APPLY,
        config(json!({"a": "1"})),
    )
    .await;
    s.patch("another manager adds", &format!("{path}?fieldManager=two"), APPLY, config(json!({"c": "3"})))
        .await;
    s.patch(
        "and is in conflict",
        &format!("{path}?fieldManager=two"),
        APPLY,
        config(json!({"a": "9", "c": "3"})),
    )
    .await;
    s.patch(
        "and forces it",
        &format!("{path}?fieldManager=two&force=true"),
        APPLY,
        config(json!({"a": "9", "c": "3"})),
    )
    .await;
    s.patch(
        "the same value is no conflict",
        &format!("{path}?fieldManager=one"),
        APPLY,
        config(json!({"a": "9"})),
    )
    .await;
    s.patch(
        "an update takes a field",
        &format!("{path}?fieldManager=three"),
        MERGE,
        json!({"data": {"c": "4"}}),
    )
    .await;
    s.patch(
        "a conflict with the update",
        &format!("{path}?fieldManager=two"),
        APPLY,
        config(json!({"a": "9", "c": "5"})),
    )
    .await;
    s.patch("without a kind", &format!("{path}?fieldManager=one"), APPLY, json!({"metadata": {"name": "m"}}))
        .await;
    s.patch(
        "another name",
        &format!("{path}?fieldManager=one"),
        APPLY,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
    )
    .await;
    s.patch("with managed fields", &format!("{path}?fieldManager=one"), APPLY,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "managedFields": [{"manager": "x"}]}})).await;
    s.patch_text(
        "yaml",
        &format!("{path}?fieldManager=one"),
        APPLY,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  text: yaml\n".to_owned(),
    )
    .await;
    s.patch_text("not yaml", &format!("{path}?fieldManager=one"), APPLY, "a: [".to_owned()).await;
    s.patch("dry run", &format!("{path}?fieldManager=one&dryRun=All"), APPLY, config(json!({"dry": "run"})))
        .await;
    let jobs = s.jobs();
    let mut applied = job("j");
    s.patch("a job", &format!("{jobs}/j?fieldManager=one"), APPLY, applied.clone()).await;
    applied["spec"]["parallelism"] = json!(3);
    s.patch("its parallelism", &format!("{jobs}/j?fieldManager=one"), APPLY, applied.clone()).await;
    applied["spec"]["paralellism"] = json!(3);
    s.patch("an unknown field", &format!("{jobs}/j?fieldManager=one"), APPLY, applied.clone()).await;
    s.patch(
        "an unknown field, strict",
        &format!("{jobs}/j?fieldManager=one&fieldValidation=Strict"),
        APPLY,
        applied,
    )
    .await;
    s.patch(
        "its status",
        &format!("{jobs}/j/status?fieldManager=ctl"),
        APPLY,
        json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j"}, "status": {"active": 1, "startTime": "2026-01-01T00:00:00Z"}}),
    )
    .await;
}
