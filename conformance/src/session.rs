//! One conversation with one server: each request that counts is written down with its answer.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// How long an answer may take on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The media types of patches.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// A merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// A strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// What a server said, with all that clients look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The step of the conversation.
    pub step: String,
    /// Code, headers and body as one value, so that one comparison covers them all.
    pub value: Value,
}

/// A conversation in a namespace of its own.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct Session {
    clients: BTreeMap<&'static str, Client>,
    user: &'static str,
    /// The namespace of this conversation.
    pub namespace: String,
    /// What was asked and answered.
    pub transcript: Vec<Answer>,
}

/// A watch that is open.
#[derive(Debug)]
pub struct Watch {
    response: Response<Body>,
    pending: Vec<u8>,
}

impl Session {
    /// Starts a conversation as `admin`, one of the clients.
    pub fn new(clients: BTreeMap<&'static str, Client>, namespace: &str) -> Self {
        Self { clients, user: "admin", namespace: namespace.to_owned(), transcript: Vec::new() }
    }

    /// From now on as another user.
    pub fn become_user(&mut self, user: &'static str) {
        self.user = user;
    }

    /// The path of a collection of the core group in this namespace.
    pub fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// The path of a collection of another group in this namespace.
    pub fn group(&self, group_version: &str, plural: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{plural}", self.namespace)
    }

    /// The path of the Jobs in this namespace.
    pub fn jobs(&self) -> String {
        self.group("batch/v1", "jobs")
    }

    /// Sends one request and writes the answer down. Gives the body.
    pub async fn send(
        &mut self,
        step: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Value {
        let value = match self.exchange(method, path, headers, body).await {
            Ok(value) => value,
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        let given = value["body"].clone();
        self.transcript.push(Answer { step: step.to_owned(), value });
        given
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Response<Body>> {
        let client = self.clients.get(self.user).with_context(|| format!("no client for {}", self.user))?;
        let mut request =
            Request::builder().method(method).uri(path).header("user-agent", "conformance/1.0 (test)");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.into_bytes())).context("make a request")?;
        let sent = tokio::time::timeout(ANSWER_WITHIN, client.send(request)).await;
        Ok(sent.context("no answer in time")??)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Value> {
        let response = self.open(method, path, headers, body).await?;
        let head = head_of(&response);
        let read = tokio::time::timeout(ANSWER_WITHIN, response.into_body().collect()).await;
        let bytes = read.context("the answer did not end in time")??.to_bytes();
        Ok(with_body(head, &bytes))
    }

    /// A request of the preparations, that must succeed and is not compared.
    pub async fn prepare(&self, method: Method, path: &str, body: Value) -> Result<Value> {
        let content = if method == Method::PATCH { MERGE } else { "application/json" };
        self.prepare_as(method, path, content, body).await
    }

    /// The same with a body of any type.
    pub async fn prepare_as(&self, method: Method, path: &str, content: &str, body: Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let value = self.exchange(method.clone(), path, &[("content-type", content)], body).await?;
        let code = value["code"].as_u64().unwrap_or_default();
        anyhow::ensure!((200..300).contains(&code) || code == 409, "{method} {path}: {value}");
        Ok(value["body"].clone())
    }

    /// Writes down what a conversation came to know in another way.
    pub fn note(&mut self, step: &str, value: Value) {
        self.transcript.push(Answer { step: step.to_owned(), value });
    }

    /// Looks at a collection, which may have selectors, until `find` finds something in it. Nothing is written down.
    pub async fn until<T>(
        &self,
        collection: &str,
        what: &str,
        within: Duration,
        find: impl Fn(&[Value]) -> Option<T>,
    ) -> Result<T> {
        let deadline = tokio::time::Instant::now() + within;
        let and = if collection.contains('?') { '&' } else { '?' };
        loop {
            let list = self.prepare(Method::GET, collection, Value::Null).await?;
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let mut items = list["items"].as_array().cloned().unwrap_or_default();
            let path = format!("{collection}{and}watch=true&resourceVersion={version}");
            let mut watch = self.open_watch(&path).await?;
            loop {
                if let Some(found) = find(&items) {
                    return Ok(found);
                }
                let event = match tokio::time::timeout_at(deadline, watch.next()).await {
                    Ok(event) => event,
                    Err(_) => bail!("waited for {what} in vain, there is {}", brief(items)),
                };
                // A watch that broke or ended is begun anew.
                let Ok(Some(event)) = event else { break };
                if !take(&mut items, event) {
                    break;
                }
            }
        }
    }

    /// GET.
    pub async fn get(&mut self, step: &str, path: &str) -> Value {
        self.send(step, Method::GET, path, &[], String::new()).await
    }

    /// GET with an `Accept` header.
    pub async fn get_as(&mut self, step: &str, path: &str, accept: &str) -> Value {
        self.send(step, Method::GET, path, &[("accept", accept)], String::new()).await
    }

    /// POST of JSON.
    pub async fn post(&mut self, step: &str, path: &str, body: Value) -> Value {
        self.post_text(step, path, "application/json", body.to_string()).await
    }

    /// POST of any text.
    pub async fn post_text(&mut self, step: &str, path: &str, content: &str, body: String) -> Value {
        self.send(step, Method::POST, path, &[("content-type", content)], body).await
    }

    /// PUT of JSON.
    pub async fn put(&mut self, step: &str, path: &str, body: Value) -> Value {
        self.send(step, Method::PUT, path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// PATCH of any type.
    pub async fn patch(&mut self, step: &str, path: &str, content: &str, body: Value) -> Value {
        self.patch_text(step, path, content, body.to_string()).await
    }

    /// PATCH with any text.
    pub async fn patch_text(&mut self, step: &str, path: &str, content: &str, body: String) -> Value {
        self.send(step, Method::PATCH, path, &[("content-type", content)], body).await
    }

    /// DELETE with options, or without a body when they are null.
    pub async fn delete(&mut self, step: &str, path: &str, options: Value) -> Value {
        if options.is_null() {
            return self.send(step, Method::DELETE, path, &[], String::new()).await;
        }
        let headers = [("content-type", "application/json")];
        self.send(step, Method::DELETE, path, &headers, options.to_string()).await
    }

    /// Opens a watch; nothing is written down until it is read.
    pub async fn open_watch(&self, path: &str) -> Result<Watch> {
        self.open_watch_as(path, "*/*").await
    }

    async fn open_watch_as(&self, path: &str, accept: &str) -> Result<Watch> {
        let response = self.open(Method::GET, path, &[("accept", accept)], String::new()).await?;
        Ok(Watch { response, pending: Vec::new() })
    }

    /// Reads `count` events of a watch, or fewer when it ends, and writes them down.
    pub async fn read_watch(&mut self, step: &str, watch: Result<Watch>, count: usize) -> Vec<Value> {
        let value = match watch {
            Ok(watch) => {
                events(watch, count).await.unwrap_or_else(|error| json!({"error": format!("{error:#}")}))
            }
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        let given = value["body"].as_array().cloned().unwrap_or_default();
        self.transcript.push(Answer { step: step.to_owned(), value });
        given
    }

    /// Opens a watch in another form and reads it.
    pub async fn watch_as(&mut self, step: &str, path: &str, accept: &str, count: usize) -> Vec<Value> {
        let watch = self.open_watch_as(path, accept).await;
        self.read_watch(step, watch, count).await
    }

    /// Opens a watch and reads it.
    pub async fn watch(&mut self, step: &str, path: &str, count: usize) -> Vec<Value> {
        let watch = self.open_watch(path).await;
        self.read_watch(step, watch, count).await
    }
}

impl Watch {
    /// The next event, or none when the watch has ended.
    async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).context("read an event")?));
            }
            let Some(frame) = self.response.body_mut().frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.pending.extend_from_slice(&data);
            }
        }
    }
}

/// Objects for a message, without what nobody wants to read there.
fn brief(mut items: Vec<Value>) -> Value {
    for item in &mut items {
        if let Some(meta) = item.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
    }
    Value::Array(items)
}

/// Takes an event into the items of a collection; no if the watch can't go on.
fn take(items: &mut Vec<Value>, mut event: Value) -> bool {
    let object = event["object"].take();
    let place = items.iter().position(|item| item["metadata"]["uid"] == object["metadata"]["uid"]);
    match (event["type"].as_str(), place) {
        (Some("ADDED" | "MODIFIED"), Some(place)) => items[place] = object,
        (Some("ADDED" | "MODIFIED"), None) => items.push(object),
        (Some("DELETED"), Some(place)) => _ = items.remove(place),
        (Some("DELETED" | "BOOKMARK"), _) => {}
        _ => return false,
    }
    true
}

fn head_of(response: &Response<Body>) -> Value {
    let texts = |name: &str| -> Vec<String> {
        let all = response.headers().get_all(name);
        all.iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let mut head = json!({"code": response.status().as_u16(), "type": texts("content-type")});
    for name in ["warning", "retry-after", "allow"] {
        if response.headers().contains_key(name) {
            head[name] = json!(texts(name));
        }
    }
    head
}

fn with_body(mut head: Value, bytes: &[u8]) -> Value {
    head["body"] = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(_) => json!(String::from_utf8_lossy(bytes)),
    };
    head
}

async fn events(mut watch: Watch, count: usize) -> Result<Value> {
    let head = head_of(&watch.response);
    if head["code"] != 200 {
        let bytes = watch.response.into_body().collect().await?.to_bytes();
        return Ok(with_body(head, &bytes));
    }
    let mut seen = Vec::new();
    let deadline = tokio::time::Instant::now() + ANSWER_WITHIN;
    while seen.len() < count {
        let event = tokio::time::timeout_at(deadline, watch.next()).await;
        match event.with_context(|| format!("{} of {count} events in time", seen.len()))?? {
            Some(event) => seen.push(event),
            None => break,
        }
    }
    let mut value = head;
    value["body"] = Value::Array(seen);
    Ok(value)
}
