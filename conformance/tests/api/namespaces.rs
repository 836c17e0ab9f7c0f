//! Namespaces: made, ended, and what can be done in one that ends.

use serde_json::{Value, json};
use windlass_conformance::session::{MERGE, Session};

use crate::objects::config_map;

/// From the first to the last.
pub async fn lifecycle(s: &mut Session) {
    let all = "/api/v1/namespaces";
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    s.post("create", all, namespace("made-here")).await;
    s.post("taken", all, namespace("made-here")).await;
    s.post("a bad name", all, namespace("a.b")).await;
    s.post("too long", all, namespace(&"x".repeat(64))).await;
    s.post("generated", all, json!({"metadata": {"generateName": "gen-"}})).await;
    s.patch("labels", "/api/v1/namespaces/made-here", MERGE, json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    s.patch(
        "its own label",
        "/api/v1/namespaces/made-here",
        MERGE,
        json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}}),
    )
    .await;
    s.patch(
        "its status",
        "/api/v1/namespaces/made-here/status",
        MERGE,
        json!({"status": {"phase": "Terminating"}}),
    )
    .await;
    s.patch(
        "finalizers in the main resource",
        "/api/v1/namespaces/made-here",
        MERGE,
        json!({"spec": {"finalizers": []}}),
    )
    .await;
    s.post("an object in it", "/api/v1/namespaces/made-here/configmaps", config_map("m")).await;
    s.delete("delete", "/api/v1/namespaces/made-here", Value::Null).await;
    s.delete("delete again", "/api/v1/namespaces/made-here", Value::Null).await;
    s.get("on its way", "/api/v1/namespaces/made-here").await;
    s.post("create in it", "/api/v1/namespaces/made-here/configmaps", config_map("n")).await;
    s.patch("change in it", "/api/v1/namespaces/made-here/configmaps/m", MERGE, json!({"data": {"x": "y"}}))
        .await;
    s.put(
        "finalize",
        "/api/v1/namespaces/made-here/finalize",
        json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "made-here"}, "spec": {"finalizers": []}}),
    )
    .await;
    s.get("gone", "/api/v1/namespaces/made-here").await;
    for name in ["default", "kube-system", "kube-public"] {
        s.delete(&format!("delete {name}"), &format!("/api/v1/namespaces/{name}"), Value::Null).await;
    }
    s.delete("delete what is not there", "/api/v1/namespaces/nowhere", Value::Null).await;
    s.get("by phase", "/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3Ddefault").await;
    s.get("default", "/api/v1/namespaces/default").await;
}
