//! The roles and bindings that every server has: what upstream calls bootstrap policy, for the resources served here.

use serde_json::{Value, json};

use super::policy::GROUP;
use crate::status::Result;
use crate::{Shared, bootstrap};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Creates what is not there. What is there stays: somebody may have changed it.
pub(crate) fn install(shared: &Shared) -> Result<()> {
    let place = |plural: &str| format!("/apis/{GROUP}/v1/{plural}");
    let wanted = roles().into_iter().chain(bindings()).map(|(plural, body)| (place(plural), body));
    bootstrap::create_all(shared, wanted.collect())
}

fn object(name: &str, field: &str, value: &Value) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        field: value,
    })
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn roles() -> Vec<(&'static str, Value)> {
    let role = |name: &str, rules: Vec<Value>| ("clusterroles", object(name, "rules", &json!(rules)));
    let everything = vec![
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
    ];
    let paths =
        ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"];
    let paths: Vec<&str> = paths.into_iter().chain(["/version", "/version/"]).collect();
    let discovery = vec![json!({"nonResourceURLs": paths, "verbs": ["get"]})];
    let issuer = [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
    ];
    let monitoring =
        ["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"];
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let basic = vec![
        rule("authorization.k8s.io", &reviews, &["create"]),
        rule("authentication.k8s.io", &["selfsubjectreviews"], &["create"]),
    ];
    let edit: Vec<Value> = view().into_iter().chain(edit()).collect();
    let admin = edit.iter().cloned().chain(admin()).collect();
    vec![
        role("cluster-admin", everything),
        role("admin", admin),
        role("edit", edit),
        role("view", view()),
        role("system:discovery", discovery),
        role("system:basic-user", basic),
        role(
            "system:service-account-issuer-discovery",
            vec![json!({"nonResourceURLs": issuer, "verbs": ["get"]})],
        ),
        role("system:node", node()),
        role("system:monitoring", vec![json!({"nonResourceURLs": monitoring, "verbs": ["get"]})]),
    ]
}

/// What a node does. Nobody is bound to it: nodes may do it anyway, and only to what is theirs ([`super::nodes`]).
fn node() -> Vec<Value> {
    let events = json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]});
    vec![
        rule("", &["services"], &READ),
        rule("", &["nodes"], &["create", "get", "list", "watch"]),
        rule("", &["nodes/status"], &["update", "patch"]),
        rule("", &["nodes"], &["update", "patch"]),
        events,
        rule("", &["pods"], &READ),
        rule("", &["pods"], &["delete"]),
        rule("", &["pods/status"], &["update", "patch"]),
        rule("", &["secrets", "configmaps"], &READ),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch", "delete"]),
        rule("", &["serviceaccounts/token"], &["create"]),
    ]
}

/// Everything in a namespace but Secrets and who may do what.
fn view() -> Vec<Value> {
    let core = [
        "configmaps",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    vec![
        rule("", &core, &READ),
        rule("batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], &READ),
        rule("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"], &READ),
        rule("events.k8s.io", &["events"], &READ),
    ]
}

/// What `edit` has besides `view`.
fn edit() -> Vec<Value> {
    let core =
        ["configmaps", "events", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"];
    vec![
        rule("", &["pods/attach", "pods/exec", "pods/portforward", "secrets"], &READ),
        rule("", &core, &WRITE),
        rule("", &["pods/attach", "pods/exec", "pods/portforward"], &WRITE),
        rule("", &["pods/eviction", "serviceaccounts/token"], &["create"]),
        rule("batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], &WRITE),
        rule("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"], &WRITE),
        rule("coordination.k8s.io", &["leases"], &[READ.as_slice(), &WRITE].concat()),
    ]
}

/// What `admin` has besides `edit`.
fn admin() -> Vec<Value> {
    vec![
        rule("authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]),
        rule(GROUP, &["rolebindings", "roles"], &[READ.as_slice(), &WRITE].concat()),
    ]
}

fn bindings() -> Vec<(&'static str, Value)> {
    let binding = |role: &str, group: &str| {
        let mut body =
            object(role, "subjects", &json!([{"kind": "Group", "apiGroup": GROUP, "name": group}]));
        body["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": role});
        ("clusterrolebindings", body)
    };
    vec![
        binding("cluster-admin", super::identity::MASTERS),
        binding("system:discovery", super::identity::AUTHENTICATED),
        binding("system:basic-user", super::identity::AUTHENTICATED),
        binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
        binding("system:monitoring", "system:monitoring"),
    ]
}
