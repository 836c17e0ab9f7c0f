//! What a node may do, and what is refused to it: upstream's Node authorizer and NodeRestriction.

mod common;

use axum::body::Body;
use common::shared_cluster;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::Accounts;
use windlass_apiserver::auth::certificate::Certified;
use windlass_apiserver::auth::tokens::Tokens;
use windlass_apiserver::auth::{Guard, Identity, Limits, Peer};

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A server with two nodes, `one` and `two`, and a pod on each with what it needs.
struct Cluster {
    guard: Guard,
}

fn peer(identity: Identity) -> Peer {
    let certified = Certified { identity, not_after: i64::MAX };
    Peer { certified: Some(certified), has_certificate: true, address: None }
}

impl Cluster {
    async fn start() -> Self {
        let server = shared_cluster(Accounts::Checked).server;
        let guard = Guard::new(&server, Tokens::none(), Limits::default()).expect("a guard");
        let cluster = Self { guard };
        for name in ["one", "two"] {
            cluster.admin_makes("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
            cluster.admin_makes(LEASES, json!({"metadata": {"name": name}})).await;
            for plural in ["secrets", "configmaps"] {
                let path = format!("/api/v1/namespaces/default/{plural}");
                cluster.admin_makes(&path, json!({"metadata": {"name": format!("of-{name}")}})).await;
            }
            let container = json!({"name": "c", "image": "host", "envFrom": [
                {"secretRef": {"name": format!("of-{name}")}}, {"configMapRef": {"name": format!("of-{name}")}},
            ]});
            let token = json!({"serviceAccountToken": {"path": "token", "audience": "vault"}});
            let volume = json!({"name": "t", "projected": {"sources": [token]}});
            let spec = json!({"nodeName": name, "containers": [container], "volumes": [volume]});
            cluster
                .admin_makes(PODS, json!({"metadata": {"name": format!("on-{name}")}, "spec": spec}))
                .await;
        }
        cluster
    }

    async fn ask(&self, who: Identity, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let method: Method = method.parse().expect("a method");
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.guard.answer(&peer(who), request.body(body).expect("a request")).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn admin_makes(&self, path: &str, body: Value) -> Value {
        let admin = Identity::new("root", vec!["system:masters".to_owned()]);
        let (code, body) = self.ask(admin, "POST", path, &body).await;
        assert_eq!(code, 201, "{path}: {body}");
        body
    }

    async fn node(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask(Identity::of_node("one"), method, path, &body).await
    }

    /// Demands that node `one` is refused, in these words.
    async fn refuses(&self, method: &str, path: &str, body: Value, message: &str) {
        let (code, answer) = self.node(method, path, body).await;
        let got = (code, answer["reason"].as_str(), answer["message"].as_str());
        assert_eq!(got, (403, Some("Forbidden"), Some(message)), "{method} {path}");
    }
}

#[tokio::test]
async fn a_node_does_what_it_has_to() {
    let cluster = Cluster::start().await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "on-one"},
    });
    let pod = cluster.node("GET", &format!("{PODS}/on-one"), Value::Null).await.1;
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "on-one", "uid": pod["metadata"]["uid"]});
    let token = json!({"spec": {"audiences": ["vault"], "boundObjectRef": bound}});
    let labels = json!({"metadata": {"labels": {"kubernetes.io/arch": "amd64", "disk": "ssd"}}});
    for (method, path, body, code) in [
        ("GET", "/api/v1/nodes/one", Value::Null, 200),
        ("PATCH", "/api/v1/nodes/one", labels, 200),
        ("PATCH", "/api/v1/nodes/one/status", status, 200),
        ("GET", &format!("{LEASES}/one"), Value::Null, 200),
        ("PATCH", &format!("{LEASES}/one"), json!({"spec": {"holderIdentity": "one"}}), 200),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done", Value::Null, 200),
        ("GET", "/api/v1/services", Value::Null, 200),
        ("GET", "/api/v1/namespaces/default/secrets/of-one", Value::Null, 200),
        ("GET", "/api/v1/namespaces/default/configmaps/of-one", Value::Null, 200),
        ("GET", "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dof-one", Value::Null, 200),
        ("POST", "/api/v1/namespaces/default/events", event, 201),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", token, 201),
        ("PATCH", &format!("{PODS}/on-one/status"), json!({"status": {"phase": "Running"}}), 200),
        ("DELETE", &format!("{PODS}/on-one?gracePeriodSeconds=0"), Value::Null, 200),
        ("DELETE", &format!("{LEASES}/one"), Value::Null, 200),
        ("POST", LEASES, json!({"metadata": {"name": "one"}}), 201),
    ] {
        let (got, answer) = cluster.node(method, path, body).await;
        assert_eq!(got, code, "{method} {path}: {answer}");
    }
    let list = cluster.node("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done", Value::Null).await.1;
    assert_eq!(list["items"], json!([]), "its only pod is gone, and it sees no other");
    // A node that is not there yet makes itself.
    let who = || Identity::of_node("three");
    let (code, _) =
        cluster.ask(who(), "POST", "/api/v1/nodes", &json!({"metadata": {"name": "three"}})).await;
    assert_eq!(code, 201);
}

#[tokio::test]
async fn a_node_reads_only_what_is_its_own() {
    let cluster = Cluster::start().await;
    let cannot = |verb: &str, plural: &str, name: &str, place: &str, why: &str| {
        let name = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        format!(
            "{plural}{name} is forbidden: User \"system:node:one\" cannot {verb} resource {plural:?} in API group \"\" {place}{why}"
        )
    };
    let default = "in the namespace \"default\"";
    let all = "at the cluster scope";
    let unrelated = ": no relationship found between node 'one' and this object";
    for (path, message) in [
        (
            "/api/v1/nodes/two",
            cannot("get", "nodes", "two", all, ": node 'one' cannot read 'two', only its own Node object"),
        ),
        (
            "/api/v1/nodes",
            cannot("list", "nodes", "", all, ": node 'one' cannot read all nodes, only its own Node object"),
        ),
        (
            "/api/v1/pods",
            cannot("list", "pods", "", all, ": can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dtwo",
            cannot("list", "pods", "", all, ": can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name!%3Da%5C,spec.nodeName%3Done",
            cannot("list", "pods", "", all, ": can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "/api/v1/pods?watch=1&fieldSelector=spec.nodeName!%3Done",
            cannot("watch", "pods", "", all, ": can only list/watch pods with spec.nodeName field selector"),
        ),
        ("/api/v1/namespaces/default/pods/on-two", cannot("get", "pods", "on-two", default, unrelated)),
        ("/api/v1/namespaces/default/secrets/of-two", cannot("get", "secrets", "of-two", default, unrelated)),
        (
            "/api/v1/namespaces/default/configmaps/of-two",
            cannot("get", "configmaps", "of-two", default, unrelated),
        ),
        (
            "/api/v1/namespaces/kube-system/secrets/of-one",
            cannot("get", "secrets", "of-one", "in the namespace \"kube-system\"", unrelated),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            cannot("list", "secrets", "", default, ": No Object name found"),
        ),
        (
            "/api/v1/secrets",
            cannot("list", "secrets", "", all, ": can only read namespaced object of this type"),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts/default",
            cannot(
                "get",
                "serviceaccounts",
                "default",
                default,
                ": can only create tokens for individual service accounts",
            ),
        ),
        ("/api/v1/namespaces", cannot("list", "namespaces", "", all, "")),
    ] {
        cluster.refuses("GET", path, Value::Null, &message).await;
    }
}

#[tokio::test]
async fn a_node_writes_only_what_is_its_own() {
    let cluster = Cluster::start().await;
    let uid = cluster.node("GET", &format!("{PODS}/on-one"), Value::Null).await.1["metadata"]["uid"].clone();
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "two", "uid": "u"}]);
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = |name: &str, uid: &Value, audiences: &[&str]| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        json!({"spec": {"audiences": audiences, "boundObjectRef": bound}})
    };
    let mirror = json!({"metadata": {"name": "m"}, "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "host"}]}});
    for (method, path, body, message) in [
        (
            "PATCH",
            "/api/v1/nodes/two",
            json!({"metadata": {"labels": {"a": "b"}}}),
            r#"nodes "two" is forbidden: node "one" is not allowed to modify node "two""#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/two/status",
            json!({"status": {"phase": "x"}}),
            r#"nodes "two" is forbidden: node "one" is not allowed to modify node "two""#,
        ),
        (
            "POST",
            "/api/v1/nodes",
            json!({"metadata": {"name": "new"}}),
            r#"nodes "new" is forbidden: node "one" is not allowed to modify node "new""#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/one",
            taint.clone(),
            r#"nodes "one" is forbidden: node "one" is not allowed to modify taints"#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/one/status",
            taint,
            r#"nodes "one" is forbidden: node "one" is not allowed to modify taints"#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/one",
            json!({"metadata": {"ownerReferences": owner}}),
            r#"nodes "one" is forbidden: node "one" is not allowed to modify ownerReferences"#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/one",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/x": "", "a.k8s.io/b": ""}}}),
            r#"nodes "one" is forbidden: is not allowed to modify labels: a.k8s.io/b, node-role.kubernetes.io/x"#,
        ),
        (
            "DELETE",
            "/api/v1/nodes/one",
            Value::Null,
            r#"nodes "one" is forbidden: User "system:node:one" cannot delete resource "nodes" in API group "" at the cluster scope"#,
        ),
        (
            "PATCH",
            &format!("{PODS}/on-two/status"),
            json!({"status": {"phase": "Failed"}}),
            r#"pods "on-two" is forbidden: node "one" can only update pod status for pods with spec.nodeName set to itself"#,
        ),
        (
            "PATCH",
            &format!("{PODS}/on-one/status"),
            json!({"metadata": {"labels": {"a": "b"}}}),
            r#"pods "on-one" is forbidden: node "one" cannot update labels through pod status"#,
        ),
        (
            "DELETE",
            &format!("{PODS}/on-two"),
            Value::Null,
            r#"pods "on-two" is forbidden: node "one" can only delete pods with spec.nodeName set to itself"#,
        ),
        (
            "DELETE",
            PODS,
            Value::Null,
            r#"pods is forbidden: User "system:node:one" cannot deletecollection resource "pods" in API group "" in the namespace "default""#,
        ),
        (
            "PATCH",
            &format!("{PODS}/on-one"),
            json!({"metadata": {"labels": {"a": "b"}}}),
            r#"pods "on-one" is forbidden: User "system:node:one" cannot patch resource "pods" in API group "" in the namespace "default""#,
        ),
        (
            "POST",
            PODS,
            mirror,
            r#"pods is forbidden: User "system:node:one" cannot create resource "pods" in API group "" in the namespace "default""#,
        ),
        (
            "PATCH",
            &format!("{LEASES}/two"),
            json!({"spec": {}}),
            r#"leases.coordination.k8s.io "two" is forbidden: User "system:node:one" cannot patch resource "leases" in API group "coordination.k8s.io" in the namespace "kube-node-lease": can only access node lease with the same name as the requesting node"#,
        ),
        (
            "POST",
            LEASES,
            json!({"metadata": {"name": "new"}}),
            r#"leases.coordination.k8s.io "new" is forbidden: can only access node lease with the same name as the requesting node"#,
        ),
        (
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"metadata": {"name": "one"}}),
            r#"leases.coordination.k8s.io is forbidden: User "system:node:one" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default": can only access leases in the "kube-node-lease" system namespace"#,
        ),
        (
            "POST",
            account,
            json!({"spec": {}}),
            r#"serviceaccounts "default" is forbidden: node requested token not bound to a pod"#,
        ),
        (
            "POST",
            account,
            token("on-one", &json!(""), &[]),
            r#"serviceaccounts "default" is forbidden: node requested token with a pod binding without a uid"#,
        ),
        (
            "POST",
            account,
            token("on-one", &json!("x"), &[]),
            "serviceaccounts \"default\" is forbidden: the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            "POST",
            account,
            token("on-one", &uid, &[]),
            r#"serviceaccounts "default" is forbidden: audience "" not found in pod spec volume, system:node:one is not authorized to request tokens for this audience"#,
        ),
        (
            "POST",
            account,
            token("on-one", &uid, &["a", "b"]),
            r#"serviceaccounts "default" is forbidden: node may only request 0 or 1 audiences"#,
        ),
        (
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/other/token",
            token("on-one", &uid, &[]),
            r#"serviceaccounts "other" is forbidden: User "system:node:one" cannot create resource "serviceaccounts/token" in API group "" in the namespace "default": no relationship found between node 'one' and this object"#,
        ),
    ] {
        cluster.refuses(method, path, body, message).await;
    }
    let admin = || Identity::new("root", vec!["system:masters".to_owned()]);
    let uid = cluster.ask(admin(), "GET", &format!("{PODS}/on-two"), &Value::Null).await.1["metadata"]["uid"]
        .clone();
    let message = r#"serviceaccounts "default" is forbidden: node requested token bound to a pod scheduled on a different node"#;
    cluster.refuses("POST", account, token("on-two", &uid, &["vault"]), message).await;
}

#[tokio::test]
async fn no_role_lets_a_node_at_what_is_not_its_own() {
    let cluster = Cluster::start().await;
    let binding = json!({
        "metadata": {"name": "too-much"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": "system:nodes"}],
    });
    cluster.admin_makes("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "host"}]}});
    let bound = json!({"metadata": {"name": "on-one"}, "target": {"kind": "Node", "name": "one"}});
    for (method, path, body, message) in [
        (
            "POST",
            PODS,
            pod,
            r#"pods "p" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "one" can only create mirror pods"#,
        ),
        (
            "PATCH",
            &format!("{PODS}/on-one"),
            json!({"metadata": {"labels": {"a": "b"}}}),
            r#"pods "on-one" is forbidden: unexpected operation "UPDATE", node "one" can only create and delete mirror pods"#,
        ),
        (
            "POST",
            &format!("{PODS}/on-one/binding"),
            bound.clone(),
            r#"pods "on-one" is forbidden: unexpected pod subresource "binding", only 'status' and 'eviction' are allowed"#,
        ),
        (
            "POST",
            "/api/v1/namespaces/default/bindings",
            bound,
            r#"pods "on-one" is forbidden: unexpected pod subresource "binding", only 'status' and 'eviction' are allowed"#,
        ),
        (
            "POST",
            &format!("{PODS}/on-two/eviction"),
            json!({"metadata": {"name": "on-two"}}),
            r#"pods "on-two" is forbidden: node one can only evict pods with spec.nodeName set to itself"#,
        ),
        (
            "DELETE",
            PODS,
            Value::Null,
            r#"pods "on-two" is forbidden: node "one" can only delete pods with spec.nodeName set to itself"#,
        ),
        (
            "PUT",
            &format!("{LEASES}/two"),
            json!({"metadata": {"name": "two"}}),
            r#"leases.coordination.k8s.io "two" is forbidden: can only access node lease with the same name as the requesting node"#,
        ),
        (
            "DELETE",
            "/api/v1/nodes/two",
            Value::Null,
            r#"nodes "two" is forbidden: node "one" is not allowed to modify node "two""#,
        ),
    ] {
        cluster.refuses(method, path, body, message).await;
    }
    // Who has only the name of a node, or only its group, is none.
    for (name, groups, code) in
        [("system:node:one", vec![], 403), ("somebody", vec!["system:nodes".to_owned()], 200)]
    {
        let who = Identity::new(name, groups);
        let path = format!("{PODS}/on-two");
        assert_eq!(cluster.ask(who, "GET", &path, &Value::Null).await.0, code, "{name}");
    }
}

#[tokio::test]
async fn a_node_waits_for_calls_under_its_own_name_only() {
    let cluster = Cluster::start().await;
    let path = |node: &str| format!("/windlass.dev/v1/nodes/{node}/streams");
    let message = r#"forbidden: User "system:node:one" cannot get path "/windlass.dev/v1/nodes/two/streams""#;
    cluster.refuses("GET", &path("two"), Value::Null, message).await;
    // Only the connection is missing.
    let (code, answer) = cluster.node("GET", &path("one"), Value::Null).await;
    assert_eq!((code, &answer["message"]), (400, &json!("Upgrade request required")));
    for who in [Identity::new("somebody", vec![]), Identity::new("system:node:two", vec![])] {
        assert_eq!(cluster.ask(who.clone(), "GET", &path("two"), &Value::Null).await.0, 403, "{who:?}");
    }
    let (code, _) = cluster.node("POST", &path("one"), json!({})).await;
    assert_eq!(code, 403);
}
