//! Who gets in, and to what: the guard around the router, without a network.

mod common;

use axum::body::Body;
use common::{Answer, cluster};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::auth::certificate::Certified;
use windlass_apiserver::auth::tokens::{self, Tokens};
use windlass_apiserver::auth::{Guard, Identity, Limits, Peer};
use windlass_apiserver::{Server, resources};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn guard() -> (Guard, Server) {
    let server = cluster().server;
    (Guard::new(&server, Tokens::none(), Limits::default()).expect("a guard"), server)
}

fn peer(user: &str, groups: &[&str]) -> Peer {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let certified = Certified { identity: Identity::new(user, groups), not_after: i64::MAX };
    Peer { certified: Some(certified), has_certificate: true, address: None }
}

fn admin() -> Peer {
    peer("root", &["system:masters"])
}

async fn send(guard: &Guard, peer: &Peer, request: Request<Body>) -> Answer {
    let response = guard.answer(peer, request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    Answer { code, body, warnings: Vec::new() }
}

async fn ask(guard: &Guard, peer: &Peer, method: Method, path: &str, body: Value) -> Answer {
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    send(guard, peer, request.body(Body::from(body.to_string())).expect("a request")).await
}

async fn get(guard: &Guard, peer: &Peer, path: &str) -> Answer {
    ask(guard, peer, Method::GET, path, Value::Null).await
}

async fn make(guard: &Guard, path: &str, body: Value) {
    let answer = ask(guard, &admin(), Method::POST, path, body).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name}, "roleRef": {"kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}],
    })
}

fn failure(code: u16, reason: &str, message: &str, details: Option<Value>) -> Answer {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if let Some(details) = details {
        body["details"] = details;
    }
    Answer { code, body, warnings: Vec::new() }
}

fn paths() -> Vec<String> {
    let mut paths =
        ["/", "/api", "/apis", "/version", "/metrics", "/openapi/v3", "/livez/x", "/apis/x.io/v1/things"]
            .map(str::to_owned)
            .to_vec();
    for resource in resources::all() {
        let group =
            if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
        let scope = if resource.namespaced { "namespaces/default/" } else { "" };
        let base = format!("{group}/{}/{scope}{}", resource.version, resource.plural);
        paths.extend([
            base.clone(),
            format!("{base}/x"),
            format!("{base}/x/status"),
            format!("{base}?watch=1"),
        ]);
    }
    paths
}

#[tokio::test]
async fn without_a_credential_every_path_but_health_is_unauthorized() {
    let (guard, _) = guard();
    let unauthorized = failure(401, "Unauthorized", "Unauthorized", None);
    for path in paths() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = ask(&guard, &Peer::default(), method.clone(), &path, json!({})).await;
            assert_eq!(answer, unauthorized, "{method} {path}");
        }
    }
    for path in ["/livez", "/readyz", "/healthz"] {
        let answer = get(&guard, &Peer::default(), path).await;
        assert_eq!((answer.code, answer.body), (200, json!("ok")), "{path}");
        assert_eq!(
            ask(&guard, &Peer::default(), Method::POST, path, json!({})).await,
            unauthorized,
            "{path}"
        );
    }
    guard.set_ready(false);
    assert_eq!(get(&guard, &Peer::default(), "/readyz").await.code, 500);
    assert_eq!(get(&guard, &Peer::default(), "/livez").await.code, 200);
}

#[tokio::test]
async fn a_credential_that_does_not_count_is_unauthorized_even_for_health() {
    let (guard, _) = guard();
    let unauthorized = failure(401, "Unauthorized", "Unauthorized", None);
    let stranger = Peer { certified: None, has_certificate: true, address: None };
    assert_eq!(get(&guard, &stranger, "/livez").await, unauthorized);
    let mut expired = admin();
    expired.certified.as_mut().expect("certified").not_after = common::START - 1;
    assert_eq!(get(&guard, &expired, "/api/v1/pods").await, unauthorized);
    for value in ["Bearer x", "Bearer ", "Bearer", "Basic eDp4", "bearer  x y", ""] {
        let request = Request::get("/livez").header(header::AUTHORIZATION, value).body(Body::empty());
        assert_eq!(
            send(&guard, &Peer::default(), request.expect("a request")).await,
            unauthorized,
            "{value:?}"
        );
    }
}

#[tokio::test]
async fn somebody_without_a_role_is_forbidden_every_resource() {
    let (guard, _) = guard();
    let nobody = peer("nobody", &[]);
    for path in paths().iter().filter(|path| path.contains("/v1/")) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = ask(&guard, &nobody, method.clone(), path, json!({})).await;
            assert_eq!((answer.code, &answer.body["reason"]), (403, &json!("Forbidden")), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_refusal_says_who_may_not_do_what_and_where() {
    let (guard, _) = guard();
    let nobody = peer("nobody", &[]);
    let cases = [
        (
            Method::POST,
            JOBS,
            r#"jobs.batch is forbidden: User "nobody" cannot create resource "jobs" in API group "batch" in the namespace "default""#,
            json!({"group": "batch", "kind": "jobs"}),
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/pods/p",
            r#"pods "p" is forbidden: User "nobody" cannot get resource "pods" in API group "" in the namespace "a""#,
            json!({"name": "p", "kind": "pods"}),
        ),
        (
            Method::PATCH,
            "/api/v1/namespaces/a/pods/p/status",
            r#"pods "p" is forbidden: User "nobody" cannot patch resource "pods/status" in API group "" in the namespace "a""#,
            json!({"name": "p", "kind": "pods"}),
        ),
        (
            Method::GET,
            "/api/v1/nodes?watch=true",
            r#"nodes is forbidden: User "nobody" cannot watch resource "nodes" in API group "" at the cluster scope"#,
            json!({"kind": "nodes"}),
        ),
        (Method::GET, "/metrics", r#"forbidden: User "nobody" cannot get path "/metrics""#, json!({})),
    ];
    for (method, path, message, details) in cases {
        let answer = ask(&guard, &nobody, method.clone(), path, json!({})).await;
        assert_eq!(answer, failure(403, "Forbidden", message, Some(details)), "{method} {path}");
    }
}

#[tokio::test]
async fn a_viewer_may_look_and_not_touch() {
    let (guard, _) = guard();
    make(&guard, &format!("{RBAC}/clusterrolebindings"), binding("v", "ClusterRole", "view", "vera")).await;
    let vera = peer("vera", &[]);
    assert_eq!(get(&guard, &vera, JOBS).await.code, 200);
    assert_eq!(get(&guard, &vera, "/api/v1/pods").await.code, 200);
    assert_eq!(get(&guard, &vera, "/api/v1/secrets").await.code, 403);
    assert_eq!(ask(&guard, &vera, Method::POST, JOBS, json!({})).await.code, 403);
    assert_eq!(ask(&guard, &vera, Method::DELETE, JOBS, json!({})).await.code, 403);
    assert_eq!(get(&guard, &vera, &format!("{RBAC}/clusterroles")).await.code, 403);
}

#[tokio::test]
async fn a_binding_counts_in_its_namespace_until_it_is_taken_away() {
    let (guard, _) = guard();
    let role = json!({
        "metadata": {"name": "r"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"]}],
    });
    make(&guard, &format!("{RBAC}/namespaces/default/roles"), role).await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    make(&guard, &bindings, binding("b", "Role", "r", "bob")).await;
    let bob = peer("bob", &[]);
    let code = async |path: &str| get(&guard, &bob, path).await.code;
    assert_eq!(code("/api/v1/namespaces/default/configmaps/c").await, 404, "may ask, and there is none");
    assert_eq!(code("/api/v1/namespaces/default/configmaps/d").await, 403);
    assert_eq!(code("/api/v1/namespaces/default/configmaps").await, 403);
    assert_eq!(code("/api/v1/namespaces/kube-system/configmaps/c").await, 403);
    let answer = ask(&guard, &admin(), Method::DELETE, &format!("{bindings}/b"), json!({})).await;
    assert_eq!(answer.code, 200);
    assert_eq!(code("/api/v1/namespaces/default/configmaps/c").await, 403);
}

#[tokio::test]
async fn a_binding_to_a_role_that_is_not_there_is_named_in_the_refusal() {
    let (guard, _) = guard();
    make(&guard, &format!("{RBAC}/clusterrolebindings"), binding("b", "ClusterRole", "gone", "bob")).await;
    let message = r#"nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    let expected = failure(403, "Forbidden", message, Some(json!({"kind": "nodes"})));
    assert_eq!(get(&guard, &peer("bob", &[]), "/api/v1/nodes").await, expected);
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let (guard, _) = guard();
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    make(&guard, &bindings, binding("anna", "ClusterRole", "admin", "anna")).await;
    let anna = peer("anna", &[]);
    let post = async |body: Value| ask(&guard, &anna, Method::POST, &bindings, body).await;
    assert_eq!(post(binding("ok", "ClusterRole", "view", "bob")).await.code, 201);
    let message = "rolebindings.rbac.authorization.k8s.io \"no\" is forbidden: user \"anna\" \
                   (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                   {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    let details = json!({"name": "no", "group": "rbac.authorization.k8s.io", "kind": "rolebindings"});
    let expected = failure(403, "Forbidden", message, Some(details));
    assert_eq!(post(binding("no", "ClusterRole", "cluster-admin", "anna")).await, expected);

    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |resource: &str| {
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]);
        json!({"metadata": {"name": resource}, "rules": rules})
    };
    assert_eq!(ask(&guard, &anna, Method::POST, &roles, role("pods")).await.code, 201);
    assert_eq!(ask(&guard, &anna, Method::POST, &roles, role("nodes")).await.code, 403);
    let patch =
        Request::patch(format!("{roles}/pods")).header(header::CONTENT_TYPE, "application/merge-patch+json");
    let patch = patch.body(Body::from(role("nodes").to_string())).expect("a request");
    assert_eq!(send(&guard, &anna, patch).await.code, 403, "what a patch comes to is not known before");
}

#[tokio::test]
async fn the_role_of_a_binding_never_changes_and_rules_say_something() {
    let (guard, _) = guard();
    let path = format!("{RBAC}/clusterrolebindings");
    make(&guard, &path, binding("b", "ClusterRole", "view", "bob")).await;
    let answer =
        ask(&guard, &admin(), Method::PUT, &format!("{path}/b"), binding("b", "ClusterRole", "edit", "bob"))
            .await;
    let cause = &answer.body["details"]["causes"][0];
    assert_eq!((answer.code, &cause["field"]), (422, &json!("roleRef")), "{}", answer.body);
    assert!(cause["message"].as_str().is_some_and(|text| text.ends_with("cannot change roleRef")), "{cause}");

    let role = json!({"metadata": {"name": "a:b"}, "rules": [{}]});
    let answer = ask(&guard, &admin(), Method::POST, &format!("{RBAC}/clusterroles"), role).await;
    let fields: Vec<&Value> = answer.body["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .map(|cause| &cause["field"])
        .collect();
    assert_eq!(
        fields,
        [&json!("rules[0].verbs"), &json!("rules[0].apiGroups"), &json!("rules[0].resources")]
    );
}

#[tokio::test]
async fn nobody_acts_as_somebody_else() {
    let (guard, _) = guard();
    let request = Request::get("/api/v1/pods").header("Impersonate-User", "jane").body(Body::empty());
    let message = r#"users "jane" is forbidden: User "root" cannot impersonate resource "users" in API group "" at the cluster scope"#;
    let expected = failure(403, "Forbidden", message, Some(json!({"name": "jane", "kind": "users"})));
    assert_eq!(send(&guard, &admin(), request.expect("a request")).await, expected);
}

#[tokio::test]
async fn reviews_tell_who_one_is_and_what_one_may() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens.json");
    let token = tokens::issue(&file, "tom", &["dev".to_owned()]).expect("a token");
    let server = cluster().server;
    let guard = Guard::new(&server, Tokens::of_file(&file), Limits::default()).expect("a guard");
    make(&guard, &format!("{RBAC}/clusterrolebindings"), binding("v", "ClusterRole", "view", "vera")).await;
    let vera = peer("vera", &[]);
    let access = |spec: Value| json!({"kind": "x", "spec": spec});
    let review = async |who: &Peer, group: &str, kind: &str, spec: Value| {
        let path = format!("/apis/{group}.k8s.io/v1/{}s", kind.to_ascii_lowercase());
        let mut body = access(spec);
        body["kind"] = json!(kind);
        let answer = ask(&guard, who, Method::POST, &path, body).await;
        (answer.code, answer.body["status"].clone())
    };
    let jobs =
        |verb: &str| json!({"resourceAttributes": {"verb": verb, "group": "batch", "resource": "jobs"}});
    let allowed = json!({
        "allowed": true,
        "reason": r#"RBAC: allowed by ClusterRoleBinding "v" of ClusterRole "view" to User "vera""#,
    });
    let self_access = "SelfSubjectAccessReview";
    assert_eq!(review(&vera, "authorization", self_access, jobs("list")).await, (201, allowed.clone()));
    assert_eq!(
        review(&vera, "authorization", self_access, jobs("create")).await,
        (201, json!({"allowed": false}))
    );
    assert_eq!(
        review(&admin(), "authorization", self_access, jobs("create")).await,
        (201, json!({"allowed": true}))
    );
    assert_eq!(review(&vera, "authorization", self_access, json!({})).await.0, 422);
    let mut other = jobs("list");
    other["user"] = json!("vera");
    assert_eq!(review(&admin(), "authorization", "SubjectAccessReview", other.clone()).await, (201, allowed));
    assert_eq!(
        review(&vera, "authorization", "SubjectAccessReview", other).await.0,
        403,
        "only about oneself"
    );
    let info = json!({"userInfo": {"username": "vera", "groups": ["system:authenticated"]}});
    assert_eq!(review(&vera, "authentication", "SelfSubjectReview", json!({})).await, (201, info));
    let known = json!({
        "authenticated": true, "user": {"username": "tom", "groups": ["dev", "system:authenticated"]},
        "audiences": ["https://kubernetes.default.svc.cluster.local"],
    });
    assert_eq!(
        review(&admin(), "authentication", "TokenReview", json!({"token": token})).await,
        (201, known)
    );
    let unknown = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(
        review(&admin(), "authentication", "TokenReview", json!({"token": "x"})).await,
        (201, unknown)
    );
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let body = json!({"kind": "TokenReview", "spec": {"token": token}});
    let answer = ask(&guard, &admin(), Method::POST, path, body).await;
    assert!(!answer.body.to_string().contains(&token), "a token is never shown");
}

#[tokio::test]
async fn a_token_counts_until_it_is_taken_out_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens.json");
    let server = cluster().server;
    let guard = Guard::new(&server, Tokens::of_file(&file), Limits::default()).expect("a guard");
    let token = tokens::issue(&file, "tom", &["system:masters".to_owned()]).expect("a token");
    assert!(token.len() == 64 && token.chars().all(|c| c.is_ascii_hexdigit()), "it can be typed anywhere");
    tokens::issue(&file, "eve", &[]).expect("another");
    let list = async || {
        let request = Request::get("/api/v1/pods").header(header::AUTHORIZATION, format!("Bearer {token}"));
        send(&guard, &Peer::default(), request.body(Body::empty()).expect("a request")).await.code
    };
    assert_eq!(list().await, 200);
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(!text.contains(&token), "only its hash is kept");
    let mut json: Value = serde_json::from_str(&text).expect("JSON");
    json["tokens"].as_array_mut().expect("tokens").remove(0);
    std::fs::write(&file, json.to_string()).expect("written");
    assert_eq!(list().await, 401);
}

#[tokio::test]
async fn a_server_with_no_room_says_when_to_come_back() {
    let server = cluster().server;
    let limits = Limits { reads: 0, waiting_each: 0, ..Limits::default() };
    let guard = Guard::new(&server, Tokens::none(), limits).expect("a guard");
    let request = Request::get("/api/v1/pods").body(Body::empty()).expect("a request");
    let response = guard.answer(&admin(), request).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
        (429, &"1".parse().expect("a value"))
    );
    let answer = get(&guard, &admin(), "/api/v1/pods").await;
    let message = "Too many requests, please try again later.";
    assert_eq!(answer, failure(429, "TooManyRequests", message, Some(json!({"retryAfterSeconds": 1}))));
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_not_read() {
    let (guard, _) = guard();
    // A body that never comes: whoever reads it waits for ever.
    let body = Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let request = Request::post(JOBS).header(header::CONTENT_LENGTH, (3 << 20) + 1).body(body);
    assert_eq!(send(&guard, &admin(), request.expect("a request")).await.code, 413);
}

#[tokio::test]
async fn watches_are_counted_until_their_body_is_dropped() {
    let server = cluster().server;
    let limits = Limits { watches_each: 1, ..Limits::default() };
    let guard = Guard::new(&server, Tokens::none(), limits).expect("a guard");
    let watch = || Request::get("/api/v1/pods?watch=1").body(Body::empty()).expect("a request");
    let first = guard.answer(&admin(), watch()).await;
    assert_eq!(first.status(), 200);
    assert_eq!(guard.answer(&admin(), watch()).await.status(), 429);
    assert_eq!(guard.answer(&peer("other", &["system:masters"]), watch()).await.status(), 200);
    drop(first);
    assert_eq!(guard.answer(&admin(), watch()).await.status(), 200);
}

#[tokio::test]
async fn an_update_that_creates_needs_leave_to_create() {
    let (guard, _) = guard();
    let rules = json!([{"verbs": ["update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}]);
    make(&guard, &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    make(&guard, &format!("{RBAC}/clusterrolebindings"), binding("b", "ClusterRole", "r", "bob")).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let path = format!("{leases}/l");
    let lease = json!({"metadata": {"name": "l"}, "spec": {}});
    let message = r#"leases.coordination.k8s.io "l" is forbidden: User "bob" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default""#;
    let details = json!({"name": "l", "group": "coordination.k8s.io", "kind": "leases"});
    let bob = peer("bob", &[]);
    let answer = ask(&guard, &bob, Method::PUT, &path, lease.clone()).await;
    assert_eq!(answer, failure(403, "Forbidden", message, Some(details)));
    make(&guard, leases, lease).await;
    let there = get(&guard, &admin(), &path).await.body;
    assert_eq!(ask(&guard, &bob, Method::PUT, &path, there).await.code, 200);
}
