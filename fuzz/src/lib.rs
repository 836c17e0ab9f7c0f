//! One API server in memory for all inputs of a target, and what must hold of each of its answers.

use std::sync::LazyLock;

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;
use windlass_apiserver::{Config, Server};

/// What patches are applied to: one object of each of the kinds that have most rules.
const OBJECTS: [(&str, &str); 3] = [
    (
        "/api/v1/namespaces/default/pods",
        r#"{"metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["a/b"]}, "spec": {
            "restartPolicy": "Never", "tolerations": [{"key": "k", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "host", "env": [{"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}}"#,
    ),
    (
        "/apis/batch/v1/namespaces/default/jobs",
        r#"{"metadata": {"name": "x"}, "spec": {"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
            "podFailurePolicy": {"rules": [{"action": "FailIndex",
                "onExitCodes": {"operator": "In", "values": [1, 2]}}]},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "host"}]}}}}"#,
    ),
    (
        "/api/v1/namespaces/default/configmaps",
        r#"{"metadata": {"name": "x", "annotations": {"a": "b"}}, "data": {"k": "v"}, "binaryData": {"b": "/w=="}}"#,
    ),
];

struct Served {
    runtime: Runtime,
    server: Server,
}

static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let served = Served { runtime, server: Server::new(Config::default()) };
    for (path, object) in OBJECTS {
        let (code, body) = served.send(Method::POST, path, "application/json", object.as_bytes().to_vec());
        assert_eq!(code, 201, "{body}");
    }
    served
});

impl Served {
    fn send(&self, method: Method, uri: &str, media_type: &str, body: Vec<u8>) -> (u16, Value) {
        let request = Request::builder().method(method).uri(uri).header("content-type", media_type);
        let request = request.body(Body::from(body)).expect("a request");
        self.runtime.block_on(async {
            let response = self.server.router().oneshot(request).await.expect("infallible");
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            (code, serde_json::from_slice(&bytes).expect("every answer is JSON"))
        })
    }
}

/// Sends a request that changes nothing. The answer is JSON, says what it says once, and is never a fault of the server.
pub fn send(method: Method, uri: &str, media_type: &str, body: &[u8]) -> (u16, Value) {
    let (code, answer) = SERVED.send(method, uri, media_type, body.to_vec());
    assert_ne!(answer["reason"], "InternalError", "{answer}");
    if code >= 400 {
        assert_eq!(answer["kind"], "Status", "{answer}");
        assert_eq!(answer["code"], code, "{answer}");
        assert!(!answer["message"].as_str().unwrap_or_default().is_empty(), "{answer}");
    }
    (code, answer)
}

/// The collection and the object that the first byte chooses, and the other bytes.
pub fn choose(data: &[u8]) -> Option<(&'static str, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((OBJECTS[usize::from(*first) % OBJECTS.len()].0, rest))
}

/// A patch of each kind of object, and of its status. `query` says more about it.
pub fn patch(media_type: &str, query: &str, data: &[u8]) {
    let Some((path, patch)) = choose(data) else { return };
    let is_status = data[0] >= 128 && !path.ends_with("configmaps");
    let part = if is_status { "/status" } else { "" };
    let uri = format!("{path}/x{part}?dryRun=All&fieldManager=fuzz{query}");
    let (code, answer) = send(Method::PATCH, &uri, media_type, patch);
    if code == 200 {
        assert_eq!(answer["metadata"]["name"], json!("x"), "a patch cannot change what an object is");
        assert_eq!(
            answer["metadata"]["namespace"],
            json!("default"),
            "a patch cannot change where an object is"
        );
    }
}
