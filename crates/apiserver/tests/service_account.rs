//! Tokens of ServiceAccounts: how they are asked for, what they say, whom they let in, and when they end.

mod common;

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Answer, Cluster, failure, pod, shared_cluster};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::Accounts;
use windlass_apiserver::auth::tokens::Tokens;
use windlass_apiserver::auth::{Guard, Limits, Peer};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const CORE: &str = "/api/v1/namespaces/default";

struct World {
    cluster: Cluster,
    guard: Guard,
}

fn world() -> World {
    let cluster = shared_cluster(Accounts::Checked);
    let guard = Guard::new(&cluster.server, Tokens::none(), Limits::default()).expect("a guard");
    World { cluster, guard }
}

impl World {
    async fn ask(&self, token: &str, method: Method, path: &str, body: Value) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .expect("a request");
        let response = self.guard.answer(&Peer::default(), request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        Answer { code, body: serde_json::from_slice(&bytes).expect("JSON"), warnings: vec![] }
    }

    async fn whoami(&self, token: &str) -> Answer {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        self.ask(token, Method::POST, path, json!({})).await
    }

    async fn token(&self, spec: Value) -> String {
        let answer = self.cluster.post(TOKEN, json!({"spec": spec})).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body["status"]["token"].as_str().expect("a token").to_owned()
    }

    async fn uid(&self, path: &str) -> String {
        self.cluster.get(path).await.body["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    async fn review(&self, token: &str, audiences: Value) -> Value {
        let admin = self.cluster.get("/version").await;
        assert_eq!(admin.code, 200);
        let binding = json!({
            "metadata": {"name": "reviewer"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "default"}],
        });
        self.cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        let own = self
            .cluster
            .post("/api/v1/namespaces/kube-system/serviceaccounts/default/token", json!({}))
            .await;
        let own = own.body["status"]["token"].as_str().expect("a token").to_owned();
        let body = json!({"spec": {"token": token, "audiences": audiences}});
        let answer = self.ask(&own, Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", body).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body["status"].clone()
    }
}

fn claims(token: &str) -> Value {
    let body = token.split('.').nth(1).expect("a body");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).expect("base64")).expect("JSON")
}

#[tokio::test]
async fn a_request_is_answered_with_a_token_and_what_it_says() {
    let w = world();
    let account = w.uid(&format!("{CORE}/serviceaccounts/default")).await;
    let answer = w
        .cluster
        .post(TOKEN, json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}))
        .await;
    let token = answer.body["status"]["token"].as_str().expect("a token").to_owned();
    let want = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": "default", "namespace": "default", "uid": account, "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": "2026-01-02T04:04:05Z"},
    });
    assert_eq!((answer.code, answer.body), (201, want));
    let said = claims(&token);
    let jti = said["jti"].as_str().expect("an id").to_owned();
    let want = json!({
        "aud": [ISSUER], "exp": common::START + 3600, "iat": common::START, "iss": ISSUER, "jti": jti,
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "default", "uid": account}},
        "nbf": common::START, "sub": "system:serviceaccount:default:default",
    });
    assert_eq!(said, want);

    let who = w.whoami(&token).await;
    let want = json!({
        "username": "system:serviceaccount:default:default", "uid": account,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [format!("JTI={jti}")]},
    });
    assert_eq!((who.code, &who.body["status"]["userInfo"]), (201, &want));
    let denied = w.ask(&token, Method::GET, &format!("{CORE}/pods"), Value::Null).await;
    assert_eq!(
        denied.body["message"],
        "pods is forbidden: User \"system:serviceaccount:default:default\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    for path in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
        assert_eq!(w.ask(&token, Method::GET, path, Value::Null).await.code, 200, "{path}");
    }
}

#[tokio::test]
async fn a_role_bound_to_an_account_counts_for_its_token() {
    let w = world();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
    });
    assert_eq!(w.cluster.post(rbac, binding).await.code, 201);
    let token = w.token(json!({})).await;
    assert_eq!(w.ask(&token, Method::GET, &format!("{CORE}/pods"), Value::Null).await.code, 200);
    assert_eq!(w.ask(&token, Method::GET, &format!("{CORE}/secrets"), Value::Null).await.code, 403);
}

#[tokio::test]
async fn a_token_is_bound_to_its_object_and_ends_with_it() {
    let w = world();
    w.cluster.post("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    w.cluster.running_pod("p").await;
    w.cluster.post(&format!("{CORE}/secrets"), json!({"metadata": {"name": "s"}})).await;
    let reference =
        |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let pod = w.token(reference("Pod", "p")).await;
    let secret = w.token(reference("Secret", "s")).await;
    let node = w.token(reference("Node", "n1")).await;
    let (pod_uid, node_uid) = (w.uid(&format!("{CORE}/pods/p")).await, w.uid("/api/v1/nodes/n1").await);
    let secret_uid = w.uid(&format!("{CORE}/secrets/s")).await;
    let said = claims(&pod);
    assert_eq!(said["kubernetes.io"]["pod"], json!({"name": "p", "uid": pod_uid}));
    assert_eq!(said["kubernetes.io"]["node"], json!({"name": "n1", "uid": node_uid}));
    assert_eq!(claims(&secret)["kubernetes.io"]["secret"], json!({"name": "s", "uid": secret_uid}));
    assert_eq!(claims(&node)["kubernetes.io"]["node"], json!({"name": "n1", "uid": node_uid}));
    let extra = w.whoami(&pod).await.body["status"]["userInfo"]["extra"].clone();
    for (key, value) in
        [("pod-name", "p"), ("pod-uid", &pod_uid), ("node-name", "n1"), ("node-uid", &node_uid)]
    {
        assert_eq!(extra[format!("authentication.kubernetes.io/{key}")], json!([value]), "{key}");
    }
    let paths = [
        (&pod, format!("{CORE}/pods/p"), "pod"),
        (&secret, format!("{CORE}/secrets/s"), "secret"),
        (&node, "/api/v1/nodes/n1".to_owned(), "node"),
    ];
    for (token, path, kind) in paths {
        assert_eq!(w.whoami(token).await.code, 201, "{path}");
        let mut again = w.cluster.get(&path).await.body;
        assert_eq!(w.cluster.delete(&path, json!({"gracePeriodSeconds": 0})).await.code, 200);
        assert_eq!(w.whoami(token).await.code, 401, "{path} is gone");
        let status = w.review(token, json!([])).await;
        let why = "[invalid bearer token, service account token has been invalidated]";
        assert_eq!(status, json!({"user": {}, "error": why}));
        let old = again["metadata"]["uid"].as_str().expect("a UID").to_owned();
        again["metadata"] = json!({"name": again["metadata"]["name"]});
        let (collection, _) = path.rsplit_once('/').expect("a collection");
        assert_eq!(w.cluster.post(collection, again).await.code, 201);
        let new = w.uid(&path).await;
        let status = w.review(token, json!([])).await;
        let why = format!(
            "[invalid bearer token, {kind} UID ({new}) does not match service account {kind} ref claim ({old})]"
        );
        assert_eq!(status, json!({"user": {}, "error": why}), "another of the same name");
    }
}

#[tokio::test]
async fn a_token_ends_with_its_time_its_account_and_its_audience() {
    let w = world();
    let token = w.token(json!({"expirationSeconds": 600})).await;
    let other = w.token(json!({"audiences": ["vault"]})).await;
    assert_eq!(w.whoami(&other).await.code, 401, "it is for somebody else");
    let status = w.review(&other, json!(["vault", "more"])).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["vault"])));
    let why = format!(
        "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences [{ISSUER:?}]]"
    );
    assert_eq!(w.review(&other, json!([])).await, json!({"user": {}, "error": why}));
    let status = w.review("nonsense", json!([])).await;
    assert_eq!(status, json!({"user": {}, "error": "invalid bearer token"}));

    w.cluster.advance(600 + 60);
    assert_eq!(w.whoami(&token).await.code, 201, "clocks differ by a minute");
    w.cluster.advance(1);
    assert_eq!(w.whoami(&token).await.code, 401);
    let why = "[invalid bearer token, service account token has expired]";
    assert_eq!(w.review(&token, json!([])).await, json!({"user": {}, "error": why}));
    w.cluster.advance(-661 - 61);
    let why = "[invalid bearer token, service account token is not valid yet]";
    assert_eq!(w.review(&token, json!([])).await, json!({"user": {}, "error": why}));
    w.cluster.advance(61);
    let old = w.uid(&format!("{CORE}/serviceaccounts/default")).await;
    w.cluster.delete(&format!("{CORE}/serviceaccounts/default"), Value::Null).await;
    w.cluster.post(&format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let new = w.uid(&format!("{CORE}/serviceaccounts/default")).await;
    let why = format!("[invalid bearer token, service account UID ({new}) does not match claim ({old})]");
    assert_eq!(w.review(&token, json!([])).await, json!({"user": {}, "error": why}));
}

#[tokio::test]
async fn an_injected_token_outlives_its_hour_for_clients_that_read_it_once() {
    let w = world();
    w.cluster.pod("p").await;
    let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
    let body = json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": reference}});
    let answer = w.cluster.post(TOKEN, body).await.body;
    let said = claims(answer["status"]["token"].as_str().expect("a token"));
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-02T04:04:12Z");
    assert_eq!(said["exp"], common::START + 365 * 24 * 3600);
    assert_eq!(said["kubernetes.io"]["warnafter"], common::START + 3607);
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused() {
    let w = world();
    w.cluster.post(&format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "own"}})).await;
    let mut other = pod("other");
    other["spec"]["serviceAccountName"] = json!("own");
    w.cluster.post(common::PODS, other).await;
    w.cluster.pod("p").await;
    let reference = |value: Value| json!({"spec": {"boundObjectRef": value}});
    let invalid = |name: &str, field: &str, why: &str| {
        let message = format!("TokenRequest.authentication.k8s.io {name:?} is invalid: {field}: {why}");
        (422, json!(message))
    };
    let own = w.uid(&format!("{CORE}/serviceaccounts/default")).await;
    let cases = [
        (
            json!({"spec": {"expirationSeconds": 599}}),
            invalid(
                "",
                "spec.expirationSeconds",
                "Invalid value: 599: may not specify a duration less than 10 minutes",
            ),
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            invalid(
                "",
                "spec.expirationSeconds",
                "Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ),
        ),
        (
            json!({"metadata": {"name": "x"}}),
            invalid(
                "default",
                "metadata.name",
                "Invalid value: \"x\": must match the service account name if specified",
            ),
        ),
        (
            json!({"metadata": {"namespace": "x"}}),
            invalid(
                "default",
                "metadata.namespace",
                "Invalid value: \"x\": must match the service account namespace if specified",
            ),
        ),
        (
            json!({"metadata": {"uid": "x"}}),
            (
                409,
                json!(format!(
                    "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"default\": the UID in the token request (x) does not match the UID of the service account ({own})"
                )),
            ),
        ),
        (
            reference(json!({"kind": "Pod", "apiVersion": "v1", "name": "no"})),
            (404, json!("pods \"no\" not found")),
        ),
        (
            reference(json!({"kind": "Pod", "apiVersion": "v1", "name": "other"})),
            (
                400,
                json!(
                    "cannot bind token for serviceaccount \"default\" to pod running with different serviceaccount name."
                ),
            ),
        ),
        (
            reference(json!({"kind": "Job", "apiVersion": "batch/v1", "name": "p"})),
            (400, json!("cannot bind token to object of type batch/v1, Kind=Job")),
        ),
        (
            reference(json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"})),
            (
                409,
                json!(
                    "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated"
                ),
            ),
        ),
    ];
    for (body, want) in cases {
        let answer = w.cluster.post(TOKEN, body.clone()).await;
        assert_eq!((answer.code, answer.body["message"].clone()), want, "{body}");
    }
    let missing = w.cluster.post(&format!("{CORE}/serviceaccounts/no/token"), json!({})).await;
    let details = json!({"name": "no", "kind": "serviceaccounts"});
    assert_eq!(missing.body, failure(404, "NotFound", "serviceaccounts \"no\" not found", details));
    assert_eq!(w.cluster.get(TOKEN).await.code, 405);
}
