//! What clients read to learn what is served: discovery, the version, health, and the OpenAPI documents. All of it
//! comes from the table of resources.

mod aggregated;
mod legacy;
mod openapi;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::accept;
use crate::answer;
use crate::resources::{self, Resource};
use crate::status::{Result, Status};

/// The release of Kubernetes that this server behaves like.
const RELEASE: (&str, &str, &str) = ("1", "36", "v1.36.4");

/// The verbs of a stored kind.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs of a `status` subresource.
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// upstream: groups are listed by the priority of their API service.
const GROUP_ORDER: [&str; 10] = [
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
];

/// A group in one version, with what is served of it.
struct Group {
    name: &'static str,
    version: &'static str,
    /// By name.
    resources: Vec<Entry>,
}

impl Group {
    /// `batch/v1`, or `v1`.
    fn group_version(&self) -> String {
        if self.name.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.name, self.version) }
    }
}

/// One line of a resource list.
enum Entry {
    /// A kind of the table.
    Stored(&'static Resource),
    /// A question that is answered and never stored.
    Review(&'static Review),
}

impl Entry {
    fn plural(&self) -> &'static str {
        match self {
            Self::Stored(resource) => resource.plural,
            Self::Review(review) => review.plural,
        }
    }
}

/// A kind that can only be created, and is gone with the answer.
struct Review {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
}

const fn review(group: &'static str, plural: &'static str, kind: &'static str, namespaced: bool) -> Review {
    Review { group, plural, kind, namespaced }
}

static REVIEWS: [Review; 7] = [
    review("", "bindings", "Binding", true),
    review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", false),
    review("authentication.k8s.io", "tokenreviews", "TokenReview", false),
    review("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", true),
    review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
    review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", false),
];

/// The verbs that a kind offers.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    let is_offered = |verb: &&str| match *verb {
        "get" | "list" | "watch" => true,
        // upstream: whoever deletes all namespaces does it one by one
        "deletecollection" => !resource.is_read_only && !matches!(resource.plural, "namespaces" | "services"),
        _ => !resource.is_read_only,
    };
    VERBS.into_iter().filter(is_offered).collect()
}

/// All groups, in the order in which they are preferred.
fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let stored = resources::all().iter().map(|r| (r.group, r.version, Entry::Stored(r)));
    let reviews = REVIEWS.iter().map(|r| (r.group, "v1", Entry::Review(r)));
    for (name, version, entry) in stored.chain(reviews) {
        match groups.iter_mut().find(|group| group.name == name && group.version == version) {
            Some(group) => group.resources.push(entry),
            None => groups.push(Group { name, version, resources: vec![entry] }),
        }
    }
    for group in &mut groups {
        group.resources.sort_by_key(Entry::plural);
    }
    let rank = |group: &Group| GROUP_ORDER.iter().position(|name| *name == group.name);
    groups.sort_by_key(|group| rank(group).unwrap_or(GROUP_ORDER.len()));
    groups
}

/// Answers a path that is not about objects, or nothing for one that is.
pub(crate) fn serve(head: &Parts) -> Option<Result<Response<Body>>> {
    let path = head.uri.path().trim_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    let answer: fn(&Parts, &[&str]) -> Result<Response<Body>> = match parts.as_slice() {
        [""] => |_, _| Ok(index()),
        ["api"] => |head, _| Ok(roots(head, true)),
        ["apis"] => |head, _| Ok(roots(head, false)),
        ["api", _] => |_, parts| list("", parts[1]),
        ["apis", _] => |_, parts| group(parts[1]),
        ["apis", name, _] if !name.is_empty() => |_, parts| list(parts[1], parts[2]),
        ["version"] => |_, _| Ok(plain(&version())),
        ["openapi", ..] => openapi::serve,
        _ => return None,
    };
    Some(match head.method {
        Method::GET | Method::HEAD => answer(head, &parts),
        _ => Err(Status::method_not_allowed()),
    })
}

fn plain(value: &Value) -> Response<Body> {
    answer::json(StatusCode::OK, value, &[])
}

/// `/api` and `/apis`, in the form that the client would rather have.
fn roots(head: &Parts, is_core: bool) -> Response<Body> {
    for clause in accept::clauses(&head.headers).iter().filter(|clause| clause.takes_json()) {
        match (clause.kind.as_str(), clause.group.as_str(), clause.version.as_str()) {
            ("", ..) => break,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", version @ ("v2" | "v2beta1")) => {
                let groups = groups().into_iter().filter(|group| group.name.is_empty() == is_core);
                let mut response = plain(&aggregated::list(groups, version));
                let media =
                    format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
                if let Ok(value) = HeaderValue::from_str(&media) {
                    response.headers_mut().insert(header::CONTENT_TYPE, value);
                }
                response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
                return response;
            }
            _ => {}
        }
    }
    let mut response = plain(&if is_core { legacy::versions(&address(head)) } else { legacy::groups() });
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Where the client found us.
fn address(head: &Parts) -> String {
    let host = head.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    host.or(authority).unwrap_or("localhost").to_owned()
}

fn find(name: &str) -> Option<Group> {
    groups().into_iter().find(|group| group.name == name)
}

/// `/apis/{group}`.
fn group(name: &str) -> Result<Response<Body>> {
    let group = find(name).filter(|group| !group.name.is_empty()).ok_or_else(Status::no_such_path)?;
    Ok(plain(&legacy::group(&group, true)))
}

/// `/api/v1` and `/apis/{group}/{version}`.
fn list(name: &str, version: &str) -> Result<Response<Body>> {
    let group = find(name).filter(|group| group.version == version).ok_or_else(Status::no_such_path)?;
    Ok(plain(&legacy::resources(&group)))
}

/// `/`: every path that says something.
fn index() -> Response<Body> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned(), "/apis/".to_owned()];
    for group in groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.push(format!("/apis/{}", group.group_version()));
    }
    let others = [
        "/.well-known/openid-configuration",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ];
    paths.extend(others.map(str::to_owned));
    paths.sort();
    plain(&json!({"paths": paths}))
}

/// `/version`.
fn version() -> Value {
    let (major, minor, release) = RELEASE;
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("{release}+windlass.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{arch}", std::env::consts::OS),
    })
}
