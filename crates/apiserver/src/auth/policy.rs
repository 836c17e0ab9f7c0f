//! RBAC: roles say what may be done, bindings say by whom. Read from the store for each request, so that a binding that
//! is taken away counts no more from that moment on.

use serde::{Deserialize, Serialize};
use windlass_store::{Key, Prefix, Store};

use super::action::{Action, Object, Resource};
use super::identity::{Identity, MASTERS};
use super::nodes;
use crate::Attributes;

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
}

/// The role of a binding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RoleRef {
    pub(crate) api_group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// One whom a binding is for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) api_group: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Role {
    rules: Vec<Rule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Binding {
    role_ref: RoleRef,
    subjects: Vec<Subject>,
}

/// Whether somebody may do something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether they may.
    pub is_allowed: bool,
    /// By which binding they may, or what was wrong with the bindings.
    pub reason: String,
}

/// Judges an action.
pub(crate) fn judge(store: &Store<Attributes>, who: &Identity, action: &Action) -> Verdict {
    if who.is_in(MASTERS) {
        return Verdict { is_allowed: true, reason: String::new() };
    }
    let Some(node) = who.node() else { return by_roles(store, who, action) };
    let as_node = nodes::judge(store, node, action);
    if as_node.is_allowed {
        return as_node;
    }
    // upstream: the reasons of all who were asked, one a line
    let by_roles = by_roles(store, who, action);
    match (by_roles.is_allowed, as_node.reason.as_str(), by_roles.reason.as_str()) {
        (true, ..) | (false, "", _) => by_roles,
        (false, _, "") => as_node,
        (false, one, other) => Verdict { is_allowed: false, reason: format!("{one}\n{other}") },
    }
}

fn by_roles(store: &Store<Attributes>, who: &Identity, action: &Action) -> Verdict {
    let mut allowed = None;
    let problems = visit(store, who, namespace_of(action), |rule, by| {
        if allowed.is_none() && rule.allows(action) {
            allowed = Some(format!("RBAC: allowed by {by}"));
        }
        allowed.is_none()
    });
    match (allowed, problems.as_slice()) {
        (Some(reason), _) => Verdict { is_allowed: true, reason },
        (None, []) => Verdict::default(),
        (None, [one]) => Verdict { is_allowed: false, reason: format!("RBAC: {one}") },
        (None, many) => Verdict { is_allowed: false, reason: format!("RBAC: [{}]", many.join(", ")) },
    }
}

/// All rules that hold for somebody in a namespace.
pub(crate) fn rules_of(store: &Store<Attributes>, who: &Identity, namespace: &str) -> Vec<Rule> {
    if who.is_in(MASTERS) {
        let all = || vec!["*".to_owned()];
        return vec![
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
        ];
    }
    let mut rules = Vec::new();
    visit(store, who, namespace, |rule, _| {
        rules.push(rule.clone());
        true
    });
    rules
}

fn namespace_of(action: &Action) -> &str {
    match &action.to {
        Object::Resource(resource) => &resource.namespace,
        Object::Path(_) => "",
    }
}

/// Shows each rule that holds for `who` together with how they come by it, until `see` has seen enough. Returns what is
/// wrong with the bindings.
fn visit(
    store: &Store<Attributes>,
    who: &Identity,
    namespace: &str,
    mut see: impl FnMut(&Rule, &str) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut scopes = vec![("clusterrolebindings", "")];
    if !namespace.is_empty() {
        scopes.push(("rolebindings", namespace));
    }
    for (plural, namespace) in scopes {
        let prefix = if namespace.is_empty() {
            Prefix::resource_wide(plural)
        } else {
            Prefix::namespaced(plural, namespace)
        };
        for record in store.list(&prefix).records {
            let Ok(binding) = serde_json::from_slice::<Binding>(&record.bytes) else {
                continue;
            };
            let Some(subject) = binding.subjects.iter().find(|subject| subject.is(who, namespace)) else {
                continue;
            };
            let rules = match rules(store, &binding.role_ref, namespace) {
                Ok(rules) => rules,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let by = describe(record.key.name(), namespace, &binding.role_ref, subject);
            if !rules.iter().all(|rule| see(rule, &by)) {
                return problems;
            }
        }
    }
    problems
}

pub(super) fn rules(store: &Store<Attributes>, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, String> {
    let key = match role.kind.as_str() {
        "Role" => Key::new("roles", namespace, &role.name),
        _ => Key::new("clusterroles", "", &role.name),
    };
    let record = store
        .get(&key)
        .ok_or_else(|| format!("{}.{GROUP} {:?} not found", role.kind.to_ascii_lowercase(), role.name))?;
    serde_json::from_slice::<Role>(&record.bytes)
        .map(|role| role.rules)
        .map_err(|error| format!("read {} {:?}: {error}", role.kind, role.name))
}

fn describe(binding: &str, namespace: &str, role: &RoleRef, subject: &Subject) -> String {
    let (kind, binding) = if namespace.is_empty() {
        ("ClusterRoleBinding", binding.to_owned())
    } else {
        ("RoleBinding", format!("{binding}/{namespace}"))
    };
    let name = match subject.kind.as_str() {
        "ServiceAccount" => format!("{}/{}", subject.name, subject.namespace),
        _ => subject.name.clone(),
    };
    format!("{kind} {binding:?} of {} {:?} to {} {name:?}", role.kind, role.name, subject.kind)
}

impl Subject {
    fn is(&self, who: &Identity, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == who.name,
            "Group" => who.is_in(&self.name),
            "ServiceAccount" => {
                let namespace =
                    if self.namespace.is_empty() { binding_namespace } else { self.namespace.as_str() };
                !namespace.is_empty()
                    && who.name == format!("system:serviceaccount:{namespace}:{}", self.name)
            }
            _ => false,
        }
    }
}

impl Rule {
    /// Whether an action is what this rule allows.
    pub(crate) fn allows(&self, action: &Action) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|item| item == "*" || item == value);
        has(&self.verbs, &action.verb)
            && match &action.to {
                Object::Path(path) => self.non_resource_urls.iter().any(|rule| path_matches(rule, path)),
                Object::Resource(resource) => {
                    has(&self.api_groups, &resource.group)
                        && self.resources.iter().any(|rule| resource_matches(rule, resource))
                        && (self.resource_names.is_empty() || self.resource_names.contains(&resource.name))
                }
            }
    }
}

fn resource_matches(rule: &str, resource: &Resource) -> bool {
    rule == "*"
        || rule == resource.with_subresource()
        || (!resource.subresource.is_empty()
            && rule.strip_prefix("*/") == Some(resource.subresource.as_str()))
}

fn path_matches(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix.trim_end_matches('*')),
        None => rule == path,
    }
}
