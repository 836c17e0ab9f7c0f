//! The form of an answer: the object itself, its metadata alone, or a table for people to read.

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_store::Record;

use crate::accept;
use crate::object::{self, Attributes, Object};
use crate::request::Query;
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::table::{self, Include};

/// What the object or list is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing: it is shown as it is.
    Object,
    /// `PartialObjectMetadata`.
    Partial,
    /// `PartialObjectMetadataList`.
    PartialList,
    /// `Table`.
    Table(Include),
}

/// The part of a stored object that all kinds have.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// The form that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    shape: Shape,
    /// `meta.k8s.io/v1`, or its beta.
    api_version: &'static str,
}

impl Form {
    /// The object as it is.
    pub(crate) const OBJECT: Self = Self { shape: Shape::Object, api_version: "meta.k8s.io/v1" };

    /// Finds the first form that the client accepts and we have.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Self> {
        let clauses = accept::clauses(headers);
        for clause in clauses.iter().filter(|clause| clause.takes_json()) {
            let api_version = match (clause.kind.as_str(), clause.group.as_str(), clause.version.as_str()) {
                ("", ..) => return Ok(Self::OBJECT),
                (_, "meta.k8s.io", "v1") => "meta.k8s.io/v1",
                (_, "meta.k8s.io", "v1beta1") => "meta.k8s.io/v1beta1",
                _ => continue,
            };
            let shape = match clause.kind.as_str() {
                "PartialObjectMetadata" => Shape::Partial,
                "PartialObjectMetadataList" => Shape::PartialList,
                "Table" => Shape::Table(Include::parse(query.text("includeObject"))?),
                _ => continue,
            };
            return Ok(Self { shape, api_version });
        }
        if clauses.iter().any(accept::Clause::is_protobuf) {
            return Ok(Self::OBJECT);
        }
        Err(Status::not_acceptable("only the following media types are accepted: application/json"))
    }

    /// Whether the object is shown as it is.
    pub(crate) fn is_object(&self) -> bool {
        self.shape == Shape::Object
    }

    /// The form of one stored object.
    pub(crate) fn one(&self, resource: &Resource, bytes: &Bytes, now: Timestamp) -> Result<Bytes> {
        match self.shape {
            Shape::Object => Ok(bytes.clone()),
            Shape::Partial => self.partial_bytes(bytes),
            Shape::PartialList => Err(Status::not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(resource)
            ))),
            Shape::Table(include) => self.table(resource, bytes, include, true, now),
        }
    }

    /// The form of the answer to a write. What is not an object of the kind, a `Status` for one, stays as it is.
    pub(crate) async fn convert(
        &self,
        resource: &Resource,
        response: Response<Body>,
        now: Timestamp,
    ) -> Result<Response<Body>> {
        if self.is_object() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|error| Status::internal(&error.to_string()))?.to_bytes();
        let is_of_kind = Object::from_stored(&bytes)?.get("kind").is_some_and(|kind| kind == resource.kind);
        let bytes = if is_of_kind { self.one(resource, &bytes, now)? } else { bytes };
        Ok(Response::from_parts(head, Body::from(bytes)))
    }

    /// The form of an object in a watch. Only the first table has columns.
    pub(crate) fn event(
        &self,
        resource: &Resource,
        bytes: &Bytes,
        is_first: bool,
        now: Timestamp,
    ) -> Result<Bytes> {
        match self.shape {
            Shape::Table(include) => self.table(resource, bytes, include, is_first, now),
            Shape::Object | Shape::Partial | Shape::PartialList => self.one(resource, bytes, now),
        }
    }

    /// What a list begins with, up to its first item.
    pub(crate) fn list_head(&self, resource: &Resource, revision: u64, more: &str) -> Result<String> {
        let (kind, version, items) = match self.shape {
            Shape::Object => (format!("{}List", resource.kind), resource.api_version, "items".to_owned()),
            Shape::PartialList => {
                ("PartialObjectMetadataList".to_owned(), self.api_version, "items".to_owned())
            }
            Shape::Table(_) => {
                let columns = table::columns(resource);
                ("Table".to_owned(), self.api_version, format!("columnDefinitions\":{columns},\"rows"))
            }
            Shape::Partial => {
                return Err(Status::not_acceptable(format!(
                    "you requested PartialObjectMetadata, but the requested object is a list ({}List)",
                    go_type(resource)
                )));
            }
        };
        Ok(format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{{\"resourceVersion\":\"{revision}\"{more}}},\"{items}\":["
        ))
    }

    /// An item of a list.
    pub(crate) fn item(
        &self,
        out: &mut BytesMut,
        resource: &Resource,
        record: &Record<Attributes>,
        now: Timestamp,
    ) -> Result<()> {
        match self.shape {
            Shape::Object => {
                out.put_u8(b'{');
                out.put_slice(object::list_item(resource, &record.bytes));
            }
            Shape::Partial | Shape::PartialList => {
                out.put_slice(&self.partial_bytes(&record.bytes)?);
            }
            Shape::Table(include) => {
                out.put_slice(self.row(resource, &record.bytes, include, now)?.to_string().as_bytes());
            }
        }
        Ok(())
    }

    /// Copied, not decoded: the garbage collector watches every write this way.
    fn partial_bytes(&self, bytes: &[u8]) -> Result<Bytes> {
        let Metadata { metadata } = serde_json::from_slice(bytes)
            .map_err(|error| Status::internal(&format!("decode a stored object: {error}")))?;
        let version = self.api_version;
        Ok(Bytes::from(format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"{version}","metadata":{metadata}}}"#
        )))
    }

    fn partial(&self, object: &Object) -> Value {
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": self.api_version,
            "metadata": object.whole_meta(),
        })
    }

    fn row(&self, resource: &Resource, bytes: &Bytes, include: Include, now: Timestamp) -> Result<Value> {
        let object = Object::from_stored(bytes)?;
        let shown = match include {
            Include::None => Value::Null,
            Include::Metadata => self.partial(&object),
            Include::Object => {
                let mut whole = object.to_value(|_| true);
                whole["metadata"] = Value::Object(object.whole_meta());
                whole
            }
        };
        let table::Row { cells, conditions } = table::row(resource, &object, now);
        let mut row = json!({"cells": cells, "object": shown});
        if let Some(conditions) = conditions {
            row["conditions"] = conditions;
        }
        Ok(row)
    }

    fn table(
        &self,
        resource: &Resource,
        bytes: &Bytes,
        include: Include,
        has_columns: bool,
        now: Timestamp,
    ) -> Result<Bytes> {
        let version = Object::from_stored(bytes)?.meta_text("resourceVersion").to_owned();
        let columns = if has_columns { table::columns(resource) } else { Value::Null };
        let table = json!({
            "kind": "Table", "apiVersion": self.api_version,
            "metadata": {"resourceVersion": version},
            "columnDefinitions": columns,
            "rows": [self.row(resource, bytes, include, now)?],
        });
        Ok(Bytes::from(table.to_string()))
    }
}

/// The name of upstream's type, which shows in two error texts.
fn go_type(resource: &Resource) -> String {
    let package = resource.group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
    format!("*{package}.{}", resource.kind)
}
