//! POST: names, bodies, field validation, dry runs and what the server does to metadata.

use serde_json::json;
use windlass_conformance::session::Session;

use crate::objects::{config_map, job, pod, with};

/// Given and generated names.
pub async fn names(s: &mut Session) {
    let (maps, pods) = (s.core("configmaps"), s.core("pods"));
    s.post("given", &maps, config_map("given")).await;
    s.post("taken", &maps, config_map("given")).await;
    s.post("none", &maps, json!({"metadata": {}})).await;
    s.post("no metadata", &maps, json!({"data": {"a": "b"}})).await;
    s.post("generated", &maps, json!({"metadata": {"generateName": "made-"}})).await;
    s.post("generated from a long base", &maps, json!({"metadata": {"generateName": "x".repeat(70)}})).await;
    s.post("generated from a bad base", &maps, json!({"metadata": {"generateName": "Bad_"}})).await;
    s.post("with capitals", &maps, config_map("Capital")).await;
    s.post("with a slash", &maps, config_map("a/b")).await;
    s.post("too long", &maps, config_map(&"x".repeat(254))).await;
    s.post("as long as can be", &maps, config_map(&"x".repeat(253))).await;
    s.post("pod with a dot", &pods, pod("a.b")).await;
    s.post("to a name", &format!("{maps}/x"), config_map("x")).await;
    s.post("all namespaces", "/api/v1/configmaps", config_map("x")).await;
    s.post("namespace that is not there", "/api/v1/namespaces/nowhere/configmaps", config_map("x")).await;
    s.post("in another namespace", &maps, with(config_map("x"), "/metadata/namespace", json!("default")))
        .await;
}

/// Bodies that can't be read.
pub async fn bad_bodies(s: &mut Session) {
    let (maps, jobs) = (s.core("configmaps"), s.jobs());
    s.post_text("not json", &maps, "application/json", "{".to_owned()).await;
    s.post_text("empty", &maps, "application/json", String::new()).await;
    s.post_text("a list", &maps, "application/json", "[]".to_owned()).await;
    s.post_text("a text", &maps, "application/json", "\"x\"".to_owned()).await;
    s.post_text("two values", &maps, "application/json", "{} {}".to_owned()).await;
    s.post_text("of no type", &maps, "text/plain", config_map("a").to_string()).await;
    s.post_text("yaml", &maps, "application/yaml", "metadata: {name: yaml}\ndata: {a: b}\n".to_owned()).await;
    s.post_text("yaml that is none", &maps, "application/yaml", "a: [".to_owned()).await;
    s.post("another kind", &maps, job("a")).await;
    s.post("a kind that is not known", &maps, with(config_map("a"), "/kind", json!("Gadget"))).await;
    s.post("a version that is not known", &jobs, with(job("a"), "/apiVersion", json!("batch/v9"))).await;
    s.post("a number for a text", &maps, json!({"metadata": {"name": 1}})).await;
    s.post("a text for a number", &jobs, with(job("a"), "/spec/parallelism", json!("two"))).await;
    s.post("a fraction for a number", &jobs, with(job("a"), "/spec/parallelism", json!(1.5))).await;
    s.post("a number out of range", &jobs, with(job("a"), "/spec/parallelism", json!(3_000_000_000_u64)))
        .await;
    s.post("a map for a list", &jobs, with(job("a"), "/spec/template/spec/containers", json!({}))).await;
    s.post("a text for a map", &jobs, with(job("a"), "/spec", json!("x"))).await;
    s.post(
        "a bad quantity",
        &jobs,
        with(job("a"), "/spec/template/spec/containers/0/resources", json!({"limits": {"cpu": "lots"}})),
    )
    .await;
    s.post("labels that are no texts", &maps, json!({"metadata": {"name": "a", "labels": {"x": true}}}))
        .await;
    s.post("a bad time", &maps, json!({"metadata": {"name": "a", "creationTimestamp": "yesterday"}})).await;
    s.post_text(
        "a key twice",
        &maps,
        "application/json",
        r#"{"metadata": {"name": "twice"}, "data": {"a": "1", "a": "2"}}"#.to_owned(),
    )
    .await;
}

/// Unknown and repeated fields.
pub async fn field_validation(s: &mut Session) {
    let jobs = s.jobs();
    let typo = |name: &str| {
        let mut job = with(job(name), "/spec/paralellism", json!(2));
        job["spec"]["template"]["spec"]["containers"][0]["imagePullpolicy"] = json!("Always");
        job["colour"] = json!("red");
        job
    };
    s.post("default", &jobs, typo("default")).await;
    for mode in ["Strict", "Warn", "Ignore", "Loose"] {
        s.post(mode, &format!("{jobs}?fieldValidation={mode}"), typo(&mode.to_lowercase())).await;
    }
    let twice = |name: &str| {
        let text = job(name).to_string();
        text.replacen("\"spec\":{", "\"spec\":{\"parallelism\":1,\"parallelism\":2,", 1)
    };
    for mode in ["Strict", "Warn"] {
        let step = format!("twice, {mode}");
        let path = format!("{jobs}?fieldValidation={mode}");
        s.post_text(&step, &path, "application/json", twice(&format!("twice-{}", mode.to_lowercase()))).await;
    }
    s.post(
        "case matters",
        &format!("{jobs}?fieldValidation=Strict"),
        with(job("case"), "/spec/Parallelism", json!(2)),
    )
    .await;
    s.put("put, strict", &format!("{jobs}/warn?fieldValidation=Strict"), typo("warn")).await;
    s.put(
        "put, warn",
        &format!("{jobs}/warn?fieldValidation=Warn"),
        with(typo("warn"), "/spec/suspend", json!(true)),
    )
    .await;
}

/// Nothing is stored.
pub async fn dry_run(s: &mut Session) {
    let maps = s.core("configmaps");
    s.post("create", &format!("{maps}?dryRun=All"), config_map("dry")).await;
    s.get("not there", &format!("{maps}/dry")).await;
    s.post("really", &maps, config_map("dry")).await;
    s.post("taken", &format!("{maps}?dryRun=All"), config_map("dry")).await;
    s.post("of some", &format!("{maps}?dryRun=Some"), config_map("b")).await;
    s.post("generated", &format!("{maps}?dryRun=All"), json!({"metadata": {"generateName": "g-"}})).await;
    s.delete("delete", &format!("{maps}/dry?dryRun=All"), json!(null)).await;
    s.delete("delete by the body", &format!("{maps}/dry"), json!({"dryRun": ["All"]})).await;
    s.get("still there", &format!("{maps}/dry")).await;
    s.delete("collection", &format!("{maps}?dryRun=All&labelSelector=none%3Dsuch"), json!(null)).await;
}

/// What metadata may say, and what the server makes of it.
pub async fn metadata(s: &mut Session) {
    let maps = s.core("configmaps");
    let named = |meta: serde_json::Value| {
        let mut all = json!({"name": "m"});
        for (key, value) in meta.as_object().expect("a map") {
            all[key] = value.clone();
        }
        json!({"metadata": all})
    };
    s.post("a bad label", &maps, named(json!({"labels": {"a b": "not ok!"}}))).await;
    s.post("a label of nothing", &maps, named(json!({"labels": {"/": "y"}}))).await;
    s.post("bad annotations", &maps, named(json!({"annotations": {"a b": "c", "ok": "any thing"}}))).await;
    s.post("too many annotations", &maps, named(json!({"annotations": {"a": "x".repeat(262_145)}}))).await;
    s.post("bad finalizers", &maps, named(json!({"finalizers": ["x", "a/b/c"]}))).await;
    s.post("bad owner", &maps, named(json!({"ownerReferences": [{"kind": "Pod"}]}))).await;
    s.post(
        "two controllers",
        &maps,
        named(json!({"ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": true},
        {"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "2", "controller": true}]})),
    )
    .await;
    s.post(
        "an event as owner",
        &maps,
        named(json!({"ownerReferences": [
        {"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}]})),
    )
    .await;
    s.post(
        "the same owner twice",
        &maps,
        json!({"metadata": {"name": "owners", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"},
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}]}}),
    )
    .await;
    s.post("a version", &maps, named(json!({"resourceVersion": "7"}))).await;
    s.post(
        "fields of the server",
        &maps,
        json!({"metadata": {"name": "set", "uid": "x", "generation": 9,
        "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5, "selfLink": "/x"}}),
    )
    .await;
    s.post(
        "nulls",
        &maps,
        json!({"metadata": {"name": "nulls", "labels": null, "annotations": {"a": null}}, "data": null}),
    )
    .await;
}
