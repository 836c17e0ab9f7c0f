//! Server-side apply and managed fields: the same requests, in the same order, to our server and to kube-apiserver.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use windlass_apiserver::{Config, Server};
use windlass_conformance::Cluster;

/// The namespace of the run.
const NAMESPACE: &str = "apply";

/// One server, and the versions of its objects that were seen last.
struct Side {
    client: kube::Client,
    versions: BTreeMap<String, String>,
}

impl Side {
    async fn new(client: kube::Client) -> Result<Self> {
        let mut side = Self { client, versions: BTreeMap::new() };
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let request = Request::post("/api/v1/namespaces").header("content-type", "application/json");
        let (code, ..) = side.send(request.body(Body::from(body.to_string().into_bytes()))?).await?;
        assert_eq!(code, 201, "the namespace is made");
        // upstream: a controller makes the account that pods need, and it does not run here
        let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        let request = Request::post(path).header("content-type", "application/json");
        let (code, ..) = side.send(request.body(Body::from(body.to_string().into_bytes()))?).await?;
        assert!([201, 409].contains(&code), "there is an account: {code}");
        Ok(side)
    }

    async fn send(&mut self, request: Request<Body>) -> Result<(u16, Value, Vec<String>)> {
        let response = self.client.send(request).await?;
        let (head, body) = response.into_parts();
        let warnings = head.headers.get_all("warning").iter();
        let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        let bytes = body.collect_bytes().await?;
        let value = serde_json::from_slice(&bytes)
            .with_context(|| format!("read {:?}", String::from_utf8_lossy(&bytes)))?;
        Ok((head.status.as_u16(), value, warnings))
    }

    /// What comes of a step, without what must differ.
    async fn perform(&mut self, step: &Value) -> Result<Value> {
        let (code, mut body, warnings) = self.send(request(step)?).await?;
        let version = body.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned);
        let is_new = version.map(|version| {
            let key = format!("{}/{}", body["kind"], body["metadata"]["name"]);
            self.versions.insert(key, version.clone()) != Some(version)
        });
        set_aside(&mut body);
        Ok(json!({"code": code, "body": body, "warnings": warnings, "is_new_version": is_new}))
    }
}

fn request(step: &Value) -> Result<Request<Body>> {
    let (method, path) =
        step["do"].as_str().and_then(|text| text.split_once(' ')).context("do: METHOD path")?;
    let plural = path.split(['/', '?']).next().unwrap_or_default();
    let root = match plural {
        "cronjobs" | "jobs" => "/apis/batch/v1",
        "leases" => "/apis/coordination.k8s.io/v1",
        "roles" => "/apis/rbac.authorization.k8s.io/v1",
        "poddisruptionbudgets" => "/apis/policy/v1",
        _ => "/api/v1",
    };
    let media_type = match (method, step["type"].as_str().unwrap_or("apply")) {
        ("POST" | "PUT", _) => "application/json",
        (_, "apply") => "application/apply-patch+yaml",
        (_, "cbor") => "application/apply-patch+cbor",
        (_, "json") => "application/json-patch+json",
        (_, "merge") => "application/merge-patch+json",
        (_, "strategic") => "application/strategic-merge-patch+json",
        (_, other) => anyhow::bail!("there is no patch of type {other:?}"),
    };
    let body = match (step.get("text").and_then(Value::as_str), step.get("body")) {
        (Some(text), _) => text.to_owned(),
        (None, Some(body)) => body.to_string(),
        (None, None) => String::new(),
    };
    let uri =
        if path.starts_with('/') { path.to_owned() } else { format!("{root}/namespaces/{NAMESPACE}/{path}") };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("user-agent", step["agent"].as_str().unwrap_or("tester/1"));
    let request = if method == "GET" { request } else { request.header("content-type", media_type) };
    Ok(request.body(Body::from(body.into_bytes()))?)
}

/// Removes what must differ, and orders what upstream does not.
fn set_aside(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("resourceVersion");
            map.remove("creationTimestamp");
            // A field without a value: Go writes some of them as null, we leave them out.
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(set_aside);
            for (list, keys) in [
                ("managedFields", &["operation", "manager", "subresource"][..]),
                ("causes", &["message", "field"]),
            ] {
                if let Some(Value::Array(items)) = map.get_mut(list) {
                    items.sort_by_key(|item| {
                        keys.iter().map(|key| item[*key].to_string()).collect::<Vec<_>>()
                    });
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(set_aside),
        Value::String(text) => *text = without_chance(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without UIDs, and a time of this run as a word.
fn without_chance(text: &str) -> String {
    // The volume of a token has a random end.
    if let Some(volume) = text.strip_prefix("kube-api-access-") {
        return format!("kube-api-access-{}", "x".repeat(volume.len()));
    }
    if text.len() == 20 && text.ends_with('Z') && text.starts_with("20") && !text.starts_with("2026-01-01") {
        return "TIME".to_owned();
    }
    let is_uid = |word: &str| {
        let parts: Vec<usize> = word.split('-').map(str::len).collect();
        parts == [8, 4, 4, 4, 12] && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
    };
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        match rest.get(..36).filter(|word| is_uid(word)) {
            Some(uid) => {
                out.push_str("UID");
                rest = &rest[uid.len()..];
            }
            None => {
                let first = rest.chars().next().expect("it is not empty");
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

#[tokio::test]
async fn every_answer_is_that_of_kube_apiserver() -> Result<()> {
    let steps: Vec<Value> = serde_saphyr::from_str(include_str!("apply.yaml"))?;
    assert!(steps.len() >= 125, "the list of steps was read as a whole");
    let cluster = Cluster::start().await?;
    let mut theirs = Side::new(cluster.client().await?).await?;
    let server = Server::new(Config::default());
    let mut ours = Side::new(kube::Client::new(server.router(), NAMESPACE)).await?;
    let mut different = Vec::new();
    for step in &steps {
        let name = step["name"].as_str().context("a step has a name")?;
        let (want, got) = (theirs.perform(step).await?, ours.perform(step).await?);
        if want != got {
            different.push(format!("{name}\n  upstream {want}\n  we       {got}"));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} steps differ:\n{}",
        different.len(),
        steps.len(),
        different.join("\n")
    );
    Ok(())
}
