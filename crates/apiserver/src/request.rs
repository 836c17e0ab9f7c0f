//! What a request asks for: the path, the query, and the body within its limit.

use axum::body::Body;
use axum::extract::Query as AxumQuery;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use windlass_api::field;
use windlass_api::protobuf::{Envelope, MEDIA_TYPE};

use crate::auth::Identity;
use crate::protobuf;
use crate::resources::{self, Resource};
use crate::status::{Result, Status};
use crate::yaml;

/// upstream: the limit of kube-apiserver on request bodies.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;

const YAML: &str = "application/yaml";

/// The object or collection that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: &'static Resource,
    /// Empty for all namespaces, and for kinds without.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// The node that asks, if it is one: it may change only what is its own.
    pub(crate) node: Option<String>,
}

impl Target {
    /// Reads `/api/v1/...` and `/apis/{group}/{version}/...`.
    pub(crate) fn parse(path: &str) -> Result<Self> {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(percent_decode)
            .collect::<Option<_>>()
            .ok_or_else(Status::no_such_path)?;
        // A slash that was hidden by %2F must not become part of a key.
        if parts.iter().any(|part| part.contains('/')) {
            return Err(Status::no_such_path());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Status::no_such_path()),
        };
        // `namespaces/{name}` and its subresources are about the namespace itself, anything else is inside of it.
        let (namespace, rest) = match rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] if !name.is_empty() => {
                ("", rest)
            }
            ["namespaces", namespace, inside @ ..] if !inside.is_empty() => (*namespace, inside),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            // The collection of bindings: the body says which pod.
            ["bindings"] if group.is_empty() && !namespace.is_empty() => ("pods", "", "binding"),
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return Err(Status::no_such_path()),
        };
        let resource = resources::find(group, version, plural).ok_or_else(Status::no_such_path)?;
        let needs_namespace = resource.namespaced && !name.is_empty();
        if (needs_namespace && namespace.is_empty()) || (!resource.namespaced && !namespace.is_empty()) {
            return Err(Status::no_such_path());
        }
        Ok(Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            node: None,
        })
    }

    /// The same, asked for by the user of a request.
    pub(crate) fn asked_by(self, head: &Parts) -> Self {
        let who = head.extensions.get::<Identity>();
        Self { node: who.and_then(Identity::node).map(str::to_owned), ..self }
    }
}

impl Target {
    /// Whether the kind has the subresource that is named.
    pub(crate) fn has_subresource(&self) -> bool {
        self.resource.subresources.iter().any(|subresource| subresource.name == self.subresource)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.version, self.plural) == (other.group, other.version, other.plural)
    }
}

impl Eq for Resource {}

fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

/// The parameters of a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(uri: &Uri) -> Result<Self> {
        AxumQuery::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|AxumQuery(pairs)| Self(pairs))
            .map_err(|error| Status::bad_request(error.to_string()))
    }

    /// The value of a parameter; empty when it is not there.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// All values of a parameter, in their order.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Whether a parameter has this value, among others.
    pub(crate) fn has(&self, name: &str, wanted: &str) -> bool {
        self.0.iter().any(|(key, value)| key == name && value == wanted)
    }

    /// upstream: everything is true but nothing, `0` and `false`.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        Some(!matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }

    /// A whole number, or nothing; 400 when it is something else.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }

    /// `dryRun=All` of a query for these options.
    pub(crate) fn dry_run(&self, options: &str) -> Result<bool> {
        let values: Vec<&str> =
            self.0.iter().filter(|(key, _)| key == "dryRun").map(|(_, v)| v.as_str()).collect();
        match values.as_slice() {
            [] | [""] => Ok(false),
            values if values.iter().all(|value| *value == "All") => Ok(true),
            values => Err(Status::invalid("meta.k8s.io", options, "", &[bad_dry_run(values)])),
        }
    }
}

/// upstream: all values of a dry run are shown when one of them is not known.
pub(crate) fn bad_dry_run(values: &[&str]) -> field::Error {
    let mut error = field::Error::not_supported(&field::Path::new("dryRun"), "", &["All"]);
    error.value = Some(json!(values));
    error
}

/// The media type of the body, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// Refuses bodies that are not JSON, also when they were protobuf.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<()> {
    match media_type(headers) {
        "" | "application/json" => Ok(()),
        _ => Err(Status::unsupported_media_type(&["application/json", YAML, MEDIA_TYPE])),
    }
}

/// Reads a body within the limit. One that is protobuf is JSON from here on, and the headers say so.
pub(crate) async fn read_body(head: &mut Parts, body: Body) -> Result<Bytes> {
    let bytes = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(Status::body_too_large(BODY_BYTES_MAX)),
        Err(error) => return Err(Status::bad_request(format!("read the request body: {error}"))),
    };
    // upstream: patches are JSON, and a DELETE need not have a body
    if media_type(&head.headers) == YAML && head.method != Method::PATCH {
        return from_yaml(head, &bytes);
    }
    let is_read = head.method != Method::PATCH && !(head.method == Method::DELETE && bytes.is_empty());
    if !is_read || media_type(&head.headers) != MEDIA_TYPE {
        return Ok(bytes);
    }
    let json = from_protobuf(head, &bytes)?;
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(json.len()));
    Ok(Bytes::from(json))
}

/// YAML is JSON from here on too, and the headers say so.
fn from_yaml(head: &mut Parts, bytes: &[u8]) -> Result<Bytes> {
    let value = yaml::to_json(bytes).map_err(|why| match Target::parse(head.uri.path()) {
        Ok(target) => Status::unrecognized(target.resource, &why, bytes),
        Err(_) => Status::bad_request(why),
    })?;
    let json = value.to_string();
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(json.len()));
    Ok(Bytes::from(json))
}

fn from_protobuf(head: &Parts, bytes: &[u8]) -> Result<Vec<u8>> {
    let target = Target::parse(head.uri.path()).ok().filter(|_| head.method != Method::DELETE);
    let resource = target.filter(|target| matches!(target.subresource.as_str(), "" | "status"));
    let resource = resource.map(|target| target.resource);
    let envelope = Envelope::open(bytes).map_err(|error| match resource {
        Some(resource) => Status::unrecognized(resource, &error.to_string(), bytes),
        None => Status::bad_request(error.to_string()),
    })?;
    protobuf::json_of(&envelope, BODY_BYTES_MAX).map_err(|error| match (error, resource) {
        (protobuf::Error::TooLarge { limit }, _) => Status::body_too_large(limit),
        (error, Some(resource)) if !envelope.kind.is_empty() => {
            let Resource { kind, .. } = resource;
            let version = envelope.api_version.rsplit('/').next().unwrap_or_default();
            let given = envelope.kind;
            Status::bad_request(format!(
                "{given} in version {version:?} cannot be handled as a {kind}: {error}"
            ))
        }
        (error, Some(resource)) => Status::unrecognized(resource, &error.to_string(), bytes),
        (error, None) => Status::bad_request(error.to_string()),
    })
}
