//! What operators see: health, metrics, the audit file, limits, and a store that takes no writes.

mod common;

use axum::body::Body;
use common::{Answer, cluster, configmap, failure};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::auth::audit::{Audit, Settings};
use windlass_apiserver::auth::certificate::Certified;
use windlass_apiserver::auth::tokens::Tokens;
use windlass_apiserver::auth::{Guard, Identity, Limits, Peer};
use windlass_apiserver::{Accounts, Config, Server};
use windlass_store::faults::{Fault, Faults, FaultyLog};

const CONFIGMAPS: &str = common::CONFIGMAPS;

fn peer(user: &str, groups: &[&str]) -> Peer {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let certified = Certified { identity: Identity::new(user, groups), not_after: i64::MAX };
    Peer { certified: Some(certified), has_certificate: true, address: Some([127, 0, 0, 1].into()) }
}

fn admin() -> Peer {
    peer("root", &["system:masters"])
}

async fn text(guard: &Guard, peer: &Peer, method: Method, path: &str, body: &str) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "test/1")
        .header(header::AUTHORIZATION, "Bearer sesame")
        .body(Body::from(body.to_owned()))
        .expect("a request");
    let response = guard.answer(peer, request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, String::from_utf8(bytes.to_vec()).expect("text"))
}

#[tokio::test]
async fn figures_of_other_components_are_shown_beside_the_servers_own() {
    let server = cluster().server;
    server.publish_figures(Box::new(|| "# TYPE others gauge\nothers 7\n# EOF\n".to_owned()));
    let guard = Guard::new(&server, Tokens::none(), Limits::default()).expect("a guard");
    let (code, text) = text(&guard, &admin(), Method::GET, "/metrics", "").await;
    assert_eq!(code, 200);
    assert!(text.contains("\nwindlass_store_writable 1\n"), "{text}");
    assert!(text.ends_with("\nothers 7\n# EOF\n"), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1, "{text}");
}

#[tokio::test]
async fn metrics_count_requests_under_upstreams_names_for_those_who_may_see_them() {
    let server = cluster().server;
    let guard = Guard::new(&server, Tokens::none(), Limits::default()).expect("a guard");
    let map = configmap("c").to_string();
    assert_eq!(text(&guard, &admin(), Method::POST, CONFIGMAPS, &map).await.0, 201);
    assert_eq!(text(&guard, &admin(), Method::POST, CONFIGMAPS, &map).await.0, 409);
    assert_eq!(text(&guard, &peer("nobody", &[]), Method::GET, CONFIGMAPS, "").await.0, 403);
    assert_eq!(text(&guard, &admin(), Method::GET, "/api/v1/pods?watch=1&timeoutSeconds=1", "").await.0, 200);
    assert_eq!(text(&guard, &admin(), Method::GET, "/no/such/path", "").await.0, 404);
    assert_eq!(text(&guard, &peer("nobody", &[]), Method::GET, "/metrics", "").await.0, 403);
    let monitor = peer("prometheus", &["system:monitoring"]);
    let (code, text) = text(&guard, &monitor, Method::GET, "/metrics", "").await;
    assert_eq!(code, 200);
    let configmaps = "group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",scope=\"namespace\",component=\"apiserver\",dry_run=\"\"";
    let pods = "group=\"\",version=\"v1\",resource=\"pods\",subresource=\"\",scope=\"cluster\",component=\"apiserver\",dry_run=\"\"";
    for line in [
        "# TYPE apiserver_request counter".to_owned(),
        format!("apiserver_request_total{{verb=\"POST\",{configmaps},code=\"201\"}} 1"),
        format!("apiserver_request_total{{verb=\"POST\",{configmaps},code=\"409\"}} 1"),
        format!("apiserver_request_total{{verb=\"LIST\",{configmaps},code=\"403\"}} 1"),
        format!("apiserver_request_total{{verb=\"WATCH\",{pods},code=\"200\"}} 1"),
        format!("apiserver_request_duration_seconds_count{{verb=\"POST\",{configmaps}}} 2"),
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1".to_owned(),
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0".to_owned(),
        "apiserver_longrunning_requests 0".to_owned(),
        "apiserver_storage_objects{resource=\"configmaps\"} 1".to_owned(),
        "windlass_store_writable 1".to_owned(),
        format!("windlass_store_revision {}", server.store().revision()),
        "# EOF".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line}\n{text}");
    }
    assert!(!text.contains("such"), "a stranger's path is no label");
    assert!(
        !text.contains(&format!("duration_seconds_count{{verb=\"WATCH\",{pods}}}")),
        "a watch has no duration"
    );
}

#[tokio::test]
async fn each_write_is_a_line_of_the_audit_file_and_no_secret_is_in_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.log");
    let cluster = cluster();
    let audit = Audit::open(Settings::new(&path)).expect("a file");
    let guard =
        Guard::new(&cluster.server, Tokens::none(), Limits::default()).expect("a guard").with_audit(audit);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hunter2"}}).to_string();
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(
        text(&guard, &admin(), Method::POST, &format!("{secrets}?fieldManager=m"), &secret).await.0,
        201
    );
    assert_eq!(text(&guard, &admin(), Method::GET, secrets, "").await.0, 200);
    let nobody = peer("nobody", &["dev"]);
    assert_eq!(text(&guard, &nobody, Method::DELETE, &format!("{secrets}/s"), "").await.0, 403);
    drop(guard);
    let read = || std::fs::read_to_string(&path).expect("a file");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while read().lines().count() < 2 && std::time::Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    let text = read();
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg") && !text.contains("sesame"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let line = |i: usize, user: Value, verb: &str, uri: &str, code: u16, name: &str, decision: &str| {
        let mut object = json!({"resource": "secrets", "namespace": "default", "apiVersion": "v1"});
        if !name.is_empty() {
            object["name"] = json!(name);
        }
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
            "auditID": lines[i]["auditID"], "requestURI": uri, "verb": verb, "user": user, "userAgent": "test/1",
            "sourceIPs": ["127.0.0.1"], "objectRef": object,
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z",
            "stageTimestamp": "2026-01-02T03:04:05.000000Z",
            "annotations": {
                "authorization.k8s.io/decision": decision,
                "authorization.k8s.io/reason": lines[i]["annotations"]["authorization.k8s.io/reason"],
            },
        })
    };
    let root = json!({"username": "root", "groups": ["system:masters", "system:authenticated"]});
    let dev = json!({"username": "nobody", "groups": ["dev", "system:authenticated"]});
    let want = vec![
        line(0, root, "create", &format!("{secrets}?fieldManager=m"), 201, "", "allow"),
        line(1, dev, "delete", &format!("{secrets}/s"), 403, "s", "forbid"),
    ];
    assert_eq!(lines, want);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_nothing_is_told_and_makes_the_server_unhealthy() {
    let dir = tempfile::tempdir().expect("a directory");
    let faults = Faults::default();
    let log = FaultyLog::open(dir.path(), faults.clone()).expect("a log");
    let config = Config { accounts: Accounts::Ignored, ..Config::default() };
    let server = Server::open_log(config, Box::new(log)).expect("a server");
    let send = |method: Method, path: String, body: String| {
        let request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let router = server.router();
        async move {
            let response =
                router.oneshot(request.body(Body::from(body)).expect("a request")).await.expect("infallible");
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            let body =
                serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
            Answer { code, body, warnings: vec![] }
        }
    };
    let create = |name: &str| send(Method::POST, CONFIGMAPS.to_owned(), configmap(name).to_string());
    let next = faults.calls().1 + 1;
    faults.fail_sync(next, Fault::Full);
    let full = create("a").await;
    let message = "write to the store: no space left: injected fault";
    assert_eq!((full.code, full.body), (507, failure(507, "InsufficientStorage", message, json!({}))));
    assert_eq!(create("a").await.code, 201, "there is room again");
    assert_eq!(send(Method::GET, "/readyz".to_owned(), String::new()).await.code, 200);

    faults.fail_sync(faults.calls().1 + 1, Fault::Before);
    let failed = create("b").await;
    assert_eq!((failed.code, &failed.body["reason"]), (503, &json!("ServiceUnavailable")));
    for (method, path, body) in [
        (Method::POST, CONFIGMAPS.to_owned(), configmap("c").to_string()),
        (
            Method::PUT,
            format!("{CONFIGMAPS}/a"),
            json!({"metadata": {"name": "a"}, "data": {"b": "2"}}).to_string(),
        ),
        (Method::DELETE, format!("{CONFIGMAPS}/a"), String::new()),
    ] {
        let refused = send(method.clone(), path, body).await;
        assert_eq!((refused.code, &refused.body["reason"]), (503, &json!("ServiceUnavailable")), "{method}");
        let message = refused.body["message"].as_str().expect("a message").to_owned();
        assert!(message.starts_with("the store takes no writes until it is restarted"), "{message}");
    }
    assert_eq!(send(Method::GET, format!("{CONFIGMAPS}/a"), String::new()).await.code, 200, "reads go on");
    for endpoint in ["livez", "readyz", "healthz"] {
        let answer = send(Method::GET, format!("/{endpoint}"), String::new()).await;
        let shutdown = if endpoint == "readyz" { "[+]shutdown ok\n" } else { "" };
        let want = format!(
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n{shutdown}{endpoint} check failed\n"
        );
        assert_eq!((answer.code, answer.body), (500, json!(want)));
        assert_eq!(send(Method::GET, format!("/{endpoint}?exclude=etcd"), String::new()).await.code, 200);
        assert_eq!(send(Method::GET, format!("/{endpoint}/etcd"), String::new()).await.code, 500);
        assert_eq!(send(Method::GET, format!("/{endpoint}/ping"), String::new()).await.code, 200);
    }
}

#[tokio::test]
async fn an_object_that_is_too_large_to_be_stored_is_refused() {
    let c = cluster();
    let half = "x".repeat(900 << 10);
    let body = json!({"metadata": {"name": "c"}, "data": {"a": half}});
    assert_eq!(c.post(CONFIGMAPS, body).await.code, 201);
    let mut lease = json!({"metadata": {"name": "l"}, "spec": {}});
    lease["spec"]["holderIdentity"] = json!("x".repeat(1600 << 10));
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let answer = c.post(path, lease).await;
    let message = "Request entity too large: the object is larger than 1572864 bytes";
    assert_eq!(
        (answer.code, answer.body),
        (413, failure(413, "RequestEntityTooLarge", message, Value::Null))
    );
    c.post(path, json!({"metadata": {"name": "l"}, "spec": {}})).await;
    let patch = json!({"spec": {"holderIdentity": "x".repeat(1600 << 10)}});
    assert_eq!(c.merge(&format!("{path}/l"), patch).await.code, 413);
}
