//! Every route that discovery names, and every verb that it offers: closed to nobody, and to somebody without a role.
//! A new route is here without anybody thinking of it.

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

fn guard() -> Guard {
    let server = shared_cluster(Accounts::Checked).server;
    Guard::new(&server, Tokens::none(), Limits::default()).expect("a guard")
}

fn peer(user: &str, groups: &[&str]) -> Peer {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let certified = Certified { identity: Identity::new(user, groups), not_after: i64::MAX };
    Peer { certified: Some(certified), has_certificate: true, address: None }
}

async fn ask(guard: &Guard, peer: &Peer, method: &Method, path: &str) -> (u16, Value) {
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let response = guard.answer(peer, request.body(Body::from("{}")).expect("a request")).await;
    let code = response.status().as_u16();
    // A watch that is let in never ends.
    if response.status().is_success() && path.contains("watch=") {
        return (code, Value::Null);
    }
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// A request for each verb of each resource and subresource: verb, method and path.
async fn routes(guard: &Guard) -> Vec<(String, Method, String)> {
    let admin = peer("root", &["system:masters"]);
    let (_, groups) = ask(guard, &admin, &Method::GET, "/apis").await;
    let mut lists = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().expect("groups") {
        for version in group["versions"].as_array().expect("versions") {
            lists.push(format!("/apis/{}", version["groupVersion"].as_str().expect("a version")));
        }
    }
    let mut routes = Vec::new();
    for base in lists {
        let (_, list) = ask(guard, &admin, &Method::GET, &base).await;
        for resource in list["resources"].as_array().expect("resources") {
            let name = resource["name"].as_str().expect("a name");
            let (plural, subresource) = name.split_once('/').unwrap_or((name, ""));
            let scope = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            let collection = format!("{base}{scope}/{plural}");
            let one = if subresource.is_empty() {
                format!("{collection}/x")
            } else {
                format!("{collection}/x/{subresource}")
            };
            for verb in resource["verbs"].as_array().expect("verbs") {
                let verb = verb.as_str().expect("a verb");
                let (method, path) = match verb {
                    "create" if subresource.is_empty() => (Method::POST, collection.clone()),
                    "create" => (Method::POST, one.clone()),
                    "delete" => (Method::DELETE, one.clone()),
                    "deletecollection" => (Method::DELETE, collection.clone()),
                    "get" => (Method::GET, one.clone()),
                    "list" => (Method::GET, collection.clone()),
                    "patch" => (Method::PATCH, one.clone()),
                    "update" => (Method::PUT, one.clone()),
                    "watch" => (Method::GET, format!("{collection}?watch=1")),
                    other => panic!("{name} has a verb {other} that this test does not know"),
                };
                routes.push((verb.to_owned(), method, path));
            }
        }
    }
    routes
}

/// What everybody may ask about themselves.
fn is_for_all(path: &str) -> bool {
    ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"]
        .iter()
        .any(|review| path.ends_with(review))
}

#[tokio::test]
async fn every_route_is_401_for_nobody_and_403_for_somebody_without_a_role() {
    let guard = guard();
    let routes = routes(&guard).await;
    assert!(routes.len() > 150, "discovery names only {} routes", routes.len());
    for (verb, method, path) in &routes {
        let (code, body) = ask(&guard, &Peer::default(), method, path).await;
        assert_eq!((code, &body["reason"]), (401, &json!("Unauthorized")), "{method} {path}");
        if is_for_all(path) {
            continue;
        }
        let (code, body) = ask(&guard, &peer("nobody", &[]), method, path).await;
        assert_eq!((code, &body["reason"]), (403, &json!("Forbidden")), "{method} {path}");
        let text = format!("User \"nobody\" cannot {verb} resource ");
        let message = body["message"].as_str().expect("a message");
        assert!(message.contains(&text), "{method} {path} is judged as another verb: {message}");
    }
}

#[tokio::test]
async fn no_route_that_is_offered_is_unknown_to_the_server() {
    let guard = guard();
    let admin = peer("root", &["system:masters"]);
    for (_, method, path) in routes(&guard).await {
        let (code, body) = ask(&guard, &admin, &method, &path).await;
        let unknown = "the server could not find the requested resource";
        assert!(code != 405 && body["message"] != unknown, "{method} {path}: {code} {body}");
        // upstream: a binding to no node is told as the server's fault
        let is_binding = body["message"] == "target.name: Required value";
        assert!(code < 500 || is_binding, "{method} {path}: {code} {body}");
    }
}

#[tokio::test]
async fn a_path_beside_the_api_needs_a_role_too() {
    let guard = guard();
    let admin = peer("root", &["system:masters"]);
    let (_, index) = ask(&guard, &admin, &Method::GET, "/").await;
    let listed =
        index["paths"].as_array().expect("paths").iter().filter_map(Value::as_str).map(str::to_owned);
    let others =
        ["/", "/metrics/", "/debug/pprof", "/logs", "/openid/v1/jwks", "/livez/etcd", "/readyz/ping"];
    let open = ["/healthz", "/livez", "/readyz"];
    let discovery = ["/api", "/apis", "/openapi", "/version"];
    for path in listed.chain(others.map(str::to_owned)) {
        let (code, _) = ask(&guard, &Peer::default(), &Method::GET, &path).await;
        assert_eq!(code, if open.contains(&path.as_str()) { 200 } else { 401 }, "{path}");
        let is_open =
            open.contains(&path.as_str()) || discovery.iter().any(|prefix| path.starts_with(prefix));
        let (code, _) = ask(&guard, &peer("nobody", &[]), &Method::GET, &path).await;
        assert_eq!(code == 403, !is_open, "{path}: {code}");
    }
}

#[tokio::test]
async fn a_path_that_is_written_in_an_odd_way_opens_nothing() {
    let guard = guard();
    let reader = peer("reader", &[]);
    let admin = peer("root", &["system:masters"]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]});
    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "reader"}],
    });
    for (plural, body) in [("roles", role), ("rolebindings", binding)] {
        let request =
            Request::post(format!("{rbac}/{plural}")).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_string())).expect("a request");
        assert_eq!(guard.answer(&admin, request).await.status(), 201);
    }
    assert_eq!(ask(&guard, &reader, &Method::GET, "/api/v1/namespaces/default/pods").await.0, 200);
    let long = "a".repeat(254);
    let paths = [
        // Another namespace, seen from the own one.
        "/api/v1/namespaces/default/pods/../../kube-system/pods".to_owned(),
        "/api/v1/namespaces/default/pods/../secrets".to_owned(),
        "/api/v1/namespaces/default/pods/..".to_owned(),
        "/api/v1/namespaces/default/pods/.".to_owned(),
        "/api/v1/namespaces/default/pods/%2e%2e/%2e%2e/kube-system/pods".to_owned(),
        "/api/v1/namespaces/default/pods/..%2f..%2fkube-system%2fpods".to_owned(),
        "/api/v1/namespaces/default%2fpods/x".to_owned(),
        "/api/v1/namespaces/default%2f..%2fkube-system/pods".to_owned(),
        "/api/v1/namespaces/default/pods%2fx".to_owned(),
        "/api/v1/namespaces/default/pods/a%2fb".to_owned(),
        "/api/v1/namespaces/default/pods/a%00b".to_owned(),
        "/api/v1/namespaces/default/pods/%ff".to_owned(),
        "/api/v1/namespaces/default/pods/%".to_owned(),
        // The wrong scope.
        "/api/v1/pods/x".to_owned(),
        "/api/v1/namespaces/default/nodes".to_owned(),
        "/api/v1/namespaces/default/nodes/x".to_owned(),
        "/api/v1/namespaces/default/namespaces/kube-system".to_owned(),
        "/api/v1/namespaces/default/pods/x/y/z".to_owned(),
        "/api/v1/namespaces/default/pods/x/secrets".to_owned(),
        // Names that nothing can have.
        format!("/api/v1/namespaces/default/pods/{long}"),
        format!("/api/v1/namespaces/{long}/pods/x"),
        format!("/api/v1/namespaces/{long}/pods"),
    ];
    for path in paths {
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE, Method::POST] {
            let (code, body) = ask(&guard, &reader, &method, &path).await;
            assert!((400..500).contains(&code), "{method} {path}: {code} {body}");
        }
    }
    // The administrator is let in, and finds nothing there, and breaks nothing.
    for path in [
        "/api/v1/namespaces/default/pods/a%2fb".to_owned(),
        format!("/api/v1/namespaces/default/pods/{long}"),
    ] {
        let (code, _) = ask(&guard, &admin, &Method::GET, &path).await;
        assert_eq!(code, 404, "{path}");
    }
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .header(header::CONTENT_TYPE, "application/json");
    let body = json!({"metadata": {"name": long}}).to_string();
    let response = guard.answer(&admin, request.body(Body::from(body)).expect("a request")).await;
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let status: Value = serde_json::from_slice(&bytes).expect("JSON");
    let why = format!("metadata.name: Invalid value: {long:?}: must be no more than 253 characters");
    assert_eq!(status["message"], format!("ConfigMap {long:?} is invalid: {why}"));
}
