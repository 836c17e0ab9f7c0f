//! Who asks and what they may.

use serde_json::{Value, json};
use windlass_conformance::session::Session;

use crate::objects::config_map;

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

/// Access reviews.
pub async fn access(s: &mut Session) {
    let own = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    let other = format!("{AUTHORIZATION}/subjectaccessreviews");
    let review = |kind: &str, spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let attributes = json!({"namespace": s.namespace, "verb": "get", "resource": "pods"});
    s.post("may I", &own, review("SelfSubjectAccessReview", json!({"resourceAttributes": attributes}))).await;
    s.post(
        "may I a path",
        &own,
        review("SelfSubjectAccessReview", json!({"nonResourceAttributes": {"path": "/x", "verb": "get"}})),
    )
    .await;
    s.post("may I nothing", &own, review("SelfSubjectAccessReview", json!({}))).await;
    s.post(
        "may they",
        &other,
        review("SubjectAccessReview", json!({"user": "powerless", "resourceAttributes": attributes})),
    )
    .await;
    s.post("may nobody", &other, review("SubjectAccessReview", json!({"resourceAttributes": attributes})))
        .await;
    let local = s.group("authorization.k8s.io/v1", "localsubjectaccessreviews");
    s.post(
        "may they here",
        &local,
        review("LocalSubjectAccessReview", json!({"user": "powerless", "resourceAttributes": attributes})),
    )
    .await;
    s.post("elsewhere", &local, review("LocalSubjectAccessReview",
        json!({"user": "powerless", "resourceAttributes": {"namespace": "elsewhere", "verb": "get", "resource": "pods"}}))).await;
    s.get("reviews can't be read", &own).await;
    s.become_user("powerless");
    s.post(
        "may I, without power",
        &own,
        review("SelfSubjectAccessReview", json!({"resourceAttributes": attributes})),
    )
    .await;
    s.post(
        "may they, without power",
        &other,
        review("SubjectAccessReview", json!({"user": "x", "resourceAttributes": attributes})),
    )
    .await;
}

/// Identities and refusals.
pub async fn identity(s: &mut Session) {
    let (pods, maps, jobs) = (s.core("pods"), s.core("configmaps"), s.jobs());
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    s.post("who am I", whoami, body.clone()).await;
    s.post(
        "a token that is none",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}),
    )
    .await;
    s.post(
        "no token",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}),
    )
    .await;
    s.become_user("powerless");
    s.post("who am I, without power", whoami, body).await;
    s.get("list", &pods).await;
    s.get("list everywhere", "/api/v1/pods").await;
    s.get("get", &format!("{pods}/a")).await;
    s.get("watch", &format!("{jobs}?watch=true")).await;
    s.post("create", &maps, config_map("a")).await;
    s.put("update", &format!("{maps}/a"), config_map("a")).await;
    s.delete("delete", &format!("{jobs}/a"), Value::Null).await;
    s.delete("delete all", &jobs, Value::Null).await;
    s.get("a subresource", &format!("{pods}/a/status")).await;
    s.get("nodes", "/api/v1/nodes/a").await;
    s.get("a path", "/metrics").await;
    s.get("discovery", "/apis/policy").await;
    s.become_user("nobody");
    s.get("without a name", &pods).await;
    s.get("a path without a name", "/version").await;
}
