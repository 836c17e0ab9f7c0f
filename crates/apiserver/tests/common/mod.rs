//! A server with a clock that stands still and counted randomness, and short ways to talk to it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use axum::body::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_api::Gates;
use windlass_apiserver::{Accounts, Clock, Config, Entropy, Server};
use windlass_store::Limits;

/// 2026-01-02T03:04:05Z
pub const START: i64 = 1_767_323_045;

pub struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).expect("in range")
    }
}

pub struct Counter(AtomicU64);

impl Entropy for Counter {
    fn next(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

pub struct Cluster {
    pub server: Server,
    pub clock: Arc<TestClock>,
}

/// An answer: its code, its JSON and its warnings.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

pub fn cluster() -> Cluster {
    cluster_with(Gates::default(), Limits::default())
}

pub fn cluster_with(gates: Gates, limits: Limits) -> Cluster {
    cluster_as(gates, limits, Accounts::Ignored)
}

/// A server for many users: pods have accounts and priorities.
pub fn shared_cluster(accounts: Accounts) -> Cluster {
    cluster_as(Gates::default(), Limits::default(), accounts)
}

fn cluster_as(gates: Gates, limits: Limits, accounts: Accounts) -> Cluster {
    let clock = Arc::new(TestClock(AtomicI64::new(START)));
    let config = Config {
        gates,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        entropy: Arc::new(Counter(AtomicU64::new(0))),
        limits,
        accounts,
    };
    Cluster { server: Server::new(config), clock }
}

impl Cluster {
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.server.router(), "default")
    }

    pub fn advance(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub async fn raw(&self, method: Method, path: &str, content_type: &str, body: String) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Body::from(body)).expect("a request");
        self.server.router().oneshot(request).await.expect("infallible")
    }

    pub async fn answer(&self, request: Request<Body>) -> Answer {
        answer(self.server.router().oneshot(request).await.expect("infallible")).await
    }

    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: String) -> Answer {
        answer(self.raw(method, path, content_type, body).await).await
    }

    /// GET with an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let request = Request::builder().uri(path).header("accept", accept).body(Body::empty());
        let response = self.server.router().oneshot(request.expect("a request")).await.expect("infallible");
        answer(response).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", String::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub async fn merge(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", body.to_string()).await
    }

    pub async fn strategic(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/strategic-merge-patch+json", body.to_string()).await
    }

    pub async fn json_patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/json-patch+json", body.to_string()).await
    }

    pub async fn delete(&self, path: &str, options: Value) -> Answer {
        self.send(Method::DELETE, path, "application/json", options.to_string()).await
    }

    /// Creates a pod and returns it.
    pub async fn pod(&self, name: &str) -> Value {
        let answer = self.post(PODS, pod(name)).await;
        assert_eq!(answer.code, 201, "{answer:?}");
        answer.body
    }

    /// Creates a pod, binds it and reports it running.
    pub async fn running_pod(&self, name: &str) -> Value {
        self.pod(name).await;
        let bound = self.post(&format!("{PODS}/{name}/binding"), binding(name, "n1")).await;
        assert_eq!(bound.code, 201, "{bound:?}");
        let running =
            self.merge(&format!("{PODS}/{name}/status"), json!({"status": {"phase": "Running"}})).await;
        assert_eq!(running.code, 200, "{running:?}");
        running.body
    }
}

pub async fn answer(response: Response<Body>) -> Answer {
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    Answer { code, body: serde_json::from_slice(&bytes).expect("JSON"), warnings }
}

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "host"}]},
    })
}

pub fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "host", "command": ["true"]}],
        }}},
    })
}

pub fn binding(pod: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"kind": "Node", "name": node},
    })
}

/// The `Status` of a refusal.
pub fn failure(code: u16, reason: &str, message: &str, details: Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code,
    });
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    if !details.is_null() {
        status["details"] = details;
    }
    status
}
