//! The OpenAPI documents: schemas of the served kinds for `kubectl explain`, and for each kind the PATCH operation
//! that tells kubectl that the server checks fields itself.

use std::sync::OnceLock;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Entry, Group, groups, plain};
use crate::answer;
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::types::{self, Visit};

const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/...`.
pub(super) fn serve(head: &Parts, parts: &[&str]) -> Result<Response<Body>> {
    match parts {
        ["openapi", "v2"] => Ok(empty_v2(head)),
        ["openapi", "v3"] => Ok(plain(&index())),
        ["openapi", "v3", rest @ ..] => {
            let path = rest.join("/");
            let group =
                groups().into_iter().find(|group| path_of(group) == path).ok_or_else(Status::no_such_path)?;
            Ok(cached(document(&group), hash_of(&path)))
        }
        _ => Err(Status::no_such_path()),
    }
}

/// upstream serves a second format there. Who falls back to it takes an empty document for "anything goes".
fn empty_v2(head: &Parts) -> Response<Body> {
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("protobuf") {
        let mut response = answer::object(StatusCode::OK, Bytes::new(), &[]);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_V2));
        return response;
    }
    let (_, _, release) = super::RELEASE;
    plain(&json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": release}, "paths": {}}))
}

/// `api/v1`, or `apis/batch/v1`.
fn path_of(group: &Group) -> String {
    let root = if group.name.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", group.group_version())
}

fn index() -> Value {
    let entry = |(path, hash): &(String, u64)| {
        (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:016X}")}))
    };
    let paths: Map<String, Value> = hashes().iter().map(entry).collect();
    json!({"paths": paths})
}

/// The hash of each document. The documents are large, rarely asked for and quickly made: only this is kept.
fn hashes() -> &'static [(String, u64)] {
    static HASHES: OnceLock<Vec<(String, u64)>> = OnceLock::new();
    HASHES.get_or_init(|| {
        groups().iter().map(|group| (path_of(group), fnv(document(group).to_string().as_bytes()))).collect()
    })
}

fn hash_of(path: &str) -> u64 {
    hashes().iter().find(|(known, _)| known == path).map_or(0, |(_, hash)| *hash)
}

/// FNV-1a: the same in every build, which `std`'s hasher does not promise.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The address has a hash of the document in it, so it may be kept.
fn cached(document: Value, hash: u64) -> Response<Body> {
    let mut response = plain(&document);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if let Ok(value) = HeaderValue::from_str(&format!("\"{hash:016X}\"")) {
        headers.insert(header::ETAG, value);
    }
    response
}

/// Adds the schema of a type, and of all that it is made of.
struct AddSchema<'a>(&'a mut SchemaGenerator);

impl Visit for AddSchema<'_> {
    type Output = String;

    fn visit<T: DeserializeOwned + JsonSchema>(self) -> String {
        self.0.subschema_for::<T>();
        T::schema_name().into_owned()
    }
}

/// The document of one group and version.
fn document(group: &Group) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut paths = Map::new();
    let mut kinds: Vec<(String, Value)> = Vec::new();
    for entry in &group.resources {
        match entry {
            Entry::Stored(resource) => {
                let kind =
                    json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
                if let Some(name) = types::of(resource, AddSchema(&mut generator)) {
                    kinds.push((name, kind.clone()));
                }
                add_paths(&mut paths, resource, &kind);
            }
            Entry::Review(review) => {
                let kind = json!({"group": review.group, "version": group.version, "kind": review.kind});
                let root = format!("/{}", path_of(group));
                let scope = if review.namespaced { "/namespaces/{namespace}" } else { "" };
                let post = json!({"post": operation("post", &kind)});
                paths.insert(format!("{root}{scope}/{}", review.plural), post);
            }
        }
    }
    let mut schemas = generator.take_definitions(true);
    for (name, kind) in kinds {
        if let Some(Value::Object(schema)) = schemas.get_mut(&name) {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([kind]));
            // The struct always has metadata; the API does not ask for it.
            if let Some(Value::Array(required)) = schema.get_mut("required") {
                required.retain(|field| field != "metadata");
            }
        }
    }
    let (_, _, release) = super::RELEASE;
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": release},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, kind: &Value) {
    let root = if resource.group.is_empty() { "/api" } else { "/apis" };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}/{}{scope}/{}", resource.api_version, resource.plural);
    let operations = |methods: &[&str]| -> Value {
        methods.iter().map(|method| ((*method).to_owned(), operation(method, kind))).collect()
    };
    paths.insert(format!("{collection}/{{name}}"), operations(&["get", "put", "patch", "delete"]));
    if resource.has_status {
        paths.insert(format!("{collection}/{{name}}/status"), operations(&["get", "put", "patch"]));
    }
    paths.insert(collection, operations(&["get", "post", "delete"]));
}

/// An operation without the type of its body: with one, `kubectl apply` would also want the patch strategies.
fn operation(method: &str, kind: &Value) -> Value {
    let mut operation = json!({
        "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": kind,
        "responses": {"200": {"description": "OK"}},
    });
    if matches!(method, "post" | "put" | "patch") {
        let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        let names = ["dryRun", "fieldManager", "fieldValidation"];
        operation["parameters"] = names.iter().map(|name| parameter(name)).collect();
    }
    operation
}
