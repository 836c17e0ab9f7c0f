//! events.k8s.io/v1: the same Events as those of the core group, under other field names. Requests are put into the words of
//! the core group, and answers back.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use futures::StreamExt;
use http::request::Parts;
use http::{Method, Request, Response, Uri, header};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use windlass_api::field::{Error, Errors, Path};

use crate::request::read_body;
use crate::status::{Result, Status};
use crate::{Shared, route};

/// What stands before the paths of this group, and of the core group.
const HERE: &str = "/apis/events.k8s.io/v1/";
const CORE: &str = "/api/v1/";
const VERSION: &str = "events.k8s.io/v1";

/// The names of fields here, and in the core group.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// Whether a path is about Events of this group.
pub(crate) fn is_path(path: &str) -> bool {
    let inside = path.strip_prefix(HERE).map(|rest| rest.split('/').collect::<Vec<_>>());
    inside.is_some_and(|parts| parts.first() == Some(&"events") || parts.get(2) == Some(&"events"))
}

/// Answers a request about Events of this group.
pub(crate) async fn serve(shared: &Arc<Shared>, request: Request<Body>) -> Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    let mut bytes = read_body(&mut head, body).await?;
    if !bytes.is_empty() && head.method != Method::DELETE {
        bytes = to_core(&head, &bytes)?;
        head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    }
    head.uri = core_uri(&head.uri)?;
    let response = Box::pin(route(shared, Request::from_parts(head, Body::from(bytes)))).await?;
    if response.body().size_hint().exact().is_none() {
        return Ok(response.map(watch_from_core));
    }
    let (mut head, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|error| Status::internal(&error.to_string()))?.to_bytes();
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok(Response::from_parts(head, Body::from(bytes)));
    };
    from_core(&mut value);
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, Body::from(value.to_string())))
}

fn core_uri(uri: &Uri) -> Result<Uri> {
    let path = uri.path().replacen(HERE, CORE, 1);
    let query = uri.query().map(|query| query.replace("regarding.", "involvedObject.")).unwrap_or_default();
    let query = query.replace("reportingController", "reportingComponent");
    let text = if query.is_empty() { path } else { format!("{path}?{query}") };
    text.parse().map_err(|_| Status::no_such_path())
}

fn core_name(name: &str) -> &str {
    NAMES.iter().find(|(here, _)| *here == name).map_or(name, |(_, core)| core)
}

/// An object, or a patch of one, in the words of the core group.
fn to_core(head: &Parts, bytes: &[u8]) -> Result<Bytes> {
    // What is no JSON is refused where all others are.
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(Bytes::copy_from_slice(bytes)) };
    let value = match value {
        Value::Object(map) => {
            if head.method == Method::POST {
                check(&map)?;
            }
            let mut core = Map::new();
            for (field, value) in map {
                let value = if field == "apiVersion" && value == VERSION { json!("v1") } else { value };
                core.insert(core_name(&field).to_owned(), value);
            }
            Value::Object(core)
        }
        Value::Array(operations) => operations.into_iter().map(operation_to_core).collect(),
        other => other,
    };
    Ok(Bytes::from(value.to_string()))
}

/// An operation of a JSON patch.
fn operation_to_core(mut operation: Value) -> Value {
    for field in ["path", "from"] {
        let Some(path) = operation[field].as_str() else { continue };
        let mut parts: Vec<&str> = path.split('/').collect();
        if let Some(first) = parts.get_mut(1) {
            *first = core_name(first);
        }
        operation[field] = json!(parts.join("/"));
    }
    operation
}

/// upstream: what a new Event of this group must have. The fields have their names in the core group.
fn check(event: &Map<String, Value>) -> Result<()> {
    let text = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Errors::new();
    if let Some(series) = event.get("series").filter(|series| !series.is_null()) {
        if series["count"].as_i64().unwrap_or(0) < 2 {
            errors.push(Error::invalid(&Path::new("series.count"), "", "should be at least 2"));
        }
        if series["lastObservedTime"].is_null() {
            errors.push(Error::required(&Path::new("series.lastObservedTime"), ""));
        }
    }
    if text("eventTime").is_empty() {
        errors.push(Error::required(&Path::new("eventTime"), ""));
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text("type"));
        errors.push(Error::invalid(&Path::new("type"), "", why));
    }
    for (here, core) in NAMES.iter().filter(|(here, _)| here.starts_with("deprecated")) {
        let value = event.get(*here).unwrap_or(&Value::Null);
        let is_set = !(value.is_null() || *value == json!(0) || *value == json!({}));
        if is_set {
            errors.push(Error::invalid(&Path::new(core), "", "needs to be unset"));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let name = event.get("metadata").and_then(|meta| meta["name"].as_str()).unwrap_or_default();
    Err(Status::invalid("events.k8s.io", "Event", name, &errors))
}

/// An Event, a list of them or what a watch says of one, in the words of this group.
fn from_core(value: &mut Value) {
    match value["kind"].as_str() {
        Some("Event") => event_from_core(value),
        Some("EventList") => {
            value["apiVersion"] = json!(VERSION);
            value["items"].as_array_mut().into_iter().flatten().for_each(event_from_core);
        }
        _ if value["object"]["kind"] == "Event" => event_from_core(&mut value["object"]),
        _ => {}
    }
}

fn event_from_core(event: &mut Value) {
    let Some(core) = event.as_object_mut() else { return };
    let mut here = Map::new();
    for (field, value) in std::mem::take(core) {
        let name = NAMES.iter().find(|(_, core)| *core == field).map_or(field.as_str(), |(here, _)| here);
        let value = if field == "apiVersion" { json!(VERSION) } else { value };
        here.insert(name.to_owned(), value);
    }
    // upstream: shown also when it is not set
    here.entry("eventTime").or_insert(Value::Null);
    *core = here;
}

/// A stream of lines, each an event of a watch.
fn watch_from_core(body: Body) -> Body {
    let mut rest = Vec::new();
    let lines = body.into_data_stream().map(move |chunk| {
        let mut out = Vec::new();
        for byte in chunk? {
            rest.push(byte);
            if byte == b'\n' {
                out.extend(line_from_core(&std::mem::take(&mut rest)));
            }
        }
        Ok::<_, axum::Error>(Bytes::from(out))
    });
    Body::from_stream(lines)
}

fn line_from_core(line: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(line) {
        Ok(mut value) => {
            from_core(&mut value);
            format!("{value}\n").into_bytes()
        }
        Err(_) => line.to_vec(),
    }
}
