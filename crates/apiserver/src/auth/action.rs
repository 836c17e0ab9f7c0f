//! What a request wants to do, in the words of RBAC.

use http::Method;
use http::request::Parts;
use windlass_api::selector::FieldSelector;
use windlass_streams::wire;

use super::nodes::NODE_FIELD;
use crate::request::{Query, Target};

/// A verb and what it is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// `get`, `list`, `create`, …
    pub verb: String,
    /// What it is done to.
    pub to: Object,
}

/// What an action is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Something of the API.
    Resource(Resource),
    /// A path beside the API.
    Path(String),
}

/// Something of the API. Empty texts are what a path leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The node to which a selector restricts a list of pods.
    pub selected_node: String,
}

impl Resource {
    /// `pods`, or `pods/status`.
    pub(crate) fn with_subresource(&self) -> String {
        let Self { resource, subresource, .. } = self;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }
}

impl Action {
    /// The action of a request. What the table knows is taken as the server itself will take it, so that no spelling
    /// of a path is judged as one thing and served as another.
    pub(crate) fn of(head: &Parts) -> Self {
        let path = head.uri.path();
        let resource = match Target::parse(path) {
            Ok(target) => Some(Resource {
                group: target.resource.group.to_owned(),
                resource: target.resource.plural.to_owned(),
                // upstream: a request about a namespace itself is made in that namespace
                namespace: if target.resource.plural == "namespaces" {
                    target.name.clone()
                } else {
                    target.namespace
                },
                name: target.name,
                subresource: target.subresource,
                selected_node: String::new(),
            }),
            Err(_) => unknown(path),
        };
        match resource {
            Some(resource) => Self::on(resource, head),
            None => {
                Self { verb: head.method.as_str().to_ascii_lowercase(), to: Object::Path(path.to_owned()) }
            }
        }
    }

    fn on(mut resource: Resource, head: &Parts) -> Self {
        let query = Query::parse(&head.uri).unwrap_or_default();
        let is_collection = resource.name.is_empty();
        let verb = match head.method {
            Method::GET | Method::HEAD if !is_collection => "get",
            Method::GET | Method::HEAD if query.flag("watch").unwrap_or(false) => "watch",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if is_collection => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        };
        // What can't be read restricts nothing, and is refused later.
        if matches!(verb, "list" | "watch")
            && let Ok(selector) = FieldSelector::parse(query.text("fieldSelector"))
        {
            // upstream: a selector that demands one name is a request for that name
            let name = selector.exact("metadata.name").filter(|name| is_path_segment(name));
            name.unwrap_or_default().clone_into(&mut resource.name);
            selector.exact(NODE_FIELD).unwrap_or_default().clone_into(&mut resource.selected_node);
        }
        Self { verb: verb.to_owned(), to: Object::Resource(resource) }
    }

    /// Whether it goes on until one side ends it. upstream: long-running requests.
    pub(crate) fn is_stream(&self) -> bool {
        let subresource = match &self.to {
            Object::Resource(target) => target.subresource.as_str(),
            Object::Path(path) => return wire::node_of(path).is_some(),
        };
        self.verb == "watch" || matches!(subresource, "attach" | "exec" | "log" | "portforward")
    }

    /// Whether a line of it stands in the audit file: writes, and what runs commands in pods.
    pub(crate) fn is_audited(&self) -> bool {
        let subresource = match &self.to {
            Object::Resource(target) => target.subresource.as_str(),
            Object::Path(_) => "",
        };
        !self.only_reads() || matches!(subresource, "attach" | "exec" | "portforward")
    }

    /// upstream: who opens a shell with a GET must be one who may with a POST
    /// (AuthorizePodWebsocketUpgradeCreatePermission).
    pub(crate) fn opened(&self) -> Option<Self> {
        let Object::Resource(target) = &self.to else { return None };
        let opens = target.resource == "pods"
            && target.group.is_empty()
            && matches!(target.subresource.as_str(), "attach" | "exec" | "portforward");
        (opens && self.verb == "get").then(|| Self { verb: "create".to_owned(), to: self.to.clone() })
    }

    /// Whether nothing is changed by it.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch" | "head")
    }
}

/// upstream: IsValidPathSegmentName
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

/// A resource that is not in the table. It ends in 404, but only for those who may ask.
fn unknown(path: &str) -> Option<Resource> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, inside @ ..] if !inside.is_empty() => (*namespace, inside),
        _ => ("", rest),
    };
    let part = |i: usize| rest.get(i).copied().unwrap_or_default().to_owned();
    (!rest.is_empty()).then(|| Resource {
        group: group.to_owned(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
        namespace: namespace.to_owned(),
        selected_node: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(method: Method, uri: &str) -> (String, [String; 5]) {
        let (head, ()) =
            http::Request::builder().method(method).uri(uri).body(()).expect("valid").into_parts();
        let Action { verb, to } = Action::of(&head);
        match to {
            Object::Resource(Resource { group, resource, subresource, namespace, name, .. }) => {
                (verb, [group, resource, subresource, namespace, name])
            }
            Object::Path(path) => (verb, [path, String::new(), String::new(), String::new(), String::new()]),
        }
    }

    #[test]
    fn a_request_is_named_as_upstream_names_it() {
        let cases: [(Method, &str, &str, [&str; 5]); 16] = [
            (Method::GET, "/api/v1/namespaces/a/pods", "list", ["", "pods", "", "a", ""]),
            (Method::GET, "/api/v1/pods?watch=1", "watch", ["", "pods", "", "", ""]),
            (Method::GET, "/api/v1/pods?watch=false", "list", ["", "pods", "", "", ""]),
            (Method::GET, "/api/v1/namespaces/a/pods/p", "get", ["", "pods", "", "a", "p"]),
            (Method::GET, "/api/v1/namespaces/a", "get", ["", "namespaces", "", "a", "a"]),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update",
                ["", "namespaces", "finalize", "a", "a"],
            ),
            (Method::POST, "/apis/batch/v1/namespaces/a/jobs", "create", ["batch", "jobs", "", "a", ""]),
            (
                Method::PATCH,
                "/apis/batch/v1/namespaces/a/jobs/j/status",
                "patch",
                ["batch", "jobs", "status", "a", "j"],
            ),
            (Method::DELETE, "/apis/batch/v1/namespaces/a/jobs/j", "delete", ["batch", "jobs", "", "a", "j"]),
            (
                Method::DELETE,
                "/apis/batch/v1/namespaces/a/jobs",
                "deletecollection",
                ["batch", "jobs", "", "a", ""],
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp",
                "list",
                ["", "pods", "", "a", "p"],
            ),
            // One requirement, on a strange name: not one for the name `p`.
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Da%5C,metadata.name%3Dp",
                "list",
                ["", "pods", "", "a", ""],
            ),
            (Method::GET, "/apis/x.io/v1/namespaces/a/things/t", "get", ["x.io", "things", "", "a", "t"]),
            (Method::GET, "/version", "get", ["/version", "", "", "", ""]),
            (Method::GET, "/apis/batch/v1", "get", ["/apis/batch/v1", "", "", "", ""]),
            (Method::GET, "//api//v1//namespaces/a//pods", "list", ["", "pods", "", "a", ""]),
        ];
        for (method, uri, verb, to) in cases {
            let expected = (verb.to_owned(), to.map(str::to_owned));
            assert_eq!(action(method.clone(), uri), expected, "{method} {uri}");
        }
    }
}
