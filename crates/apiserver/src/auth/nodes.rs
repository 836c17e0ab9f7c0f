//! What a node may do: read what its own pods need, and report. upstream: the Node authorizer, with the rules of the role
//! `system:node` for what the agents of this server use.
//!
//! What depends on the body of a write is looked at later, by [`crate::admission`].

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use windlass_store::{Key, Prefix, Store};
use windlass_streams::wire;

use super::action::{Action, Object, Resource};
use super::policy::Verdict;
use crate::Attributes;

/// Where the leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// The field by which the pods of a node are selected.
pub(super) const NODE_FIELD: &str = "spec.nodeName";

const READ: [&str; 3] = ["get", "list", "watch"];

/// What a pod may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Referred {
    Secret,
    ConfigMap,
    ServiceAccount,
}

/// Judges an action of a node. The reason of a refusal is upstream's; empty where that gives none.
pub(super) fn judge(store: &Store<Attributes>, node: &str, action: &Action) -> Verdict {
    let refused = |reason: String| Verdict { is_allowed: false, reason };
    let judged = match &action.to {
        _ if node.is_empty() => Err("unknown node for user \"system:node:\"".to_owned()),
        // Where it waits for what the server asks of it.
        Object::Path(path) if action.verb == "get" && wire::node_of(path) == Some(node) => Ok(()),
        Object::Path(_) => Err(String::new()),
        Object::Resource(target) => of_resource(store, node, &action.verb, target),
    };
    match judged {
        Ok(()) => Verdict { is_allowed: true, reason: String::new() },
        Err(reason) => refused(reason),
    }
}

fn of_resource(store: &Store<Attributes>, node: &str, verb: &str, target: &Resource) -> Result<(), String> {
    let is = |verbs: &[&str]| verbs.contains(&verb);
    let allowed = |is_allowed: bool| if is_allowed { Ok(()) } else { Err(String::new()) };
    match (target.group.as_str(), target.resource.as_str()) {
        ("", "secrets") => read(store, node, verb, target, Referred::Secret),
        ("", "configmaps") => read(store, node, verb, target, Referred::ConfigMap),
        ("", "serviceaccounts") => token(store, node, verb, target),
        ("", "nodes") => own_node(node, verb, target),
        ("", "pods") => pods(store, node, verb, target),
        ("coordination.k8s.io", "leases") => lease(node, verb, target),
        ("", "services") => allowed(is(&READ) && target.subresource.is_empty()),
        ("" | "events.k8s.io", "events") => {
            allowed(is(&["create", "update", "patch"]) && target.subresource.is_empty())
        }
        _ => Err(String::new()),
    }
}

/// upstream: authorizeReadNamespacedObject
fn read(
    store: &Store<Attributes>,
    node: &str,
    verb: &str,
    target: &Resource,
    what: Referred,
) -> Result<(), String> {
    if !READ.contains(&verb) {
        return Err("can only read resources of this type".to_owned());
    }
    if !target.subresource.is_empty() {
        return Err("cannot read subresource".to_owned());
    }
    if target.namespace.is_empty() {
        return Err("can only read namespaced object of this type".to_owned());
    }
    if target.name.is_empty() {
        return Err("No Object name found".to_owned());
    }
    related(refers(store, node, target, what), node)
}

/// upstream: authorizeCreateToken
fn token(store: &Store<Attributes>, node: &str, verb: &str, target: &Resource) -> Result<(), String> {
    if verb != "create" || target.name.is_empty() {
        return Err("can only create tokens for individual service accounts".to_owned());
    }
    if target.subresource != "token" {
        return Err("can only create token subresource of serviceaccount".to_owned());
    }
    related(refers(store, node, target, Referred::ServiceAccount), node)
}

fn related(is_related: bool, node: &str) -> Result<(), String> {
    match is_related {
        true => Ok(()),
        false => Err(format!("no relationship found between node '{node}' and this object")),
    }
}

/// upstream: authorizeNode. Whose object is written, admission looks at.
fn own_node(node: &str, verb: &str, target: &Resource) -> Result<(), String> {
    match (target.subresource.as_str(), verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match target.name.as_str() {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Err(String::new()),
    }
}

/// upstream: authorizePod, without what is for mirror pods and evictions: our agents make none.
fn pods(store: &Store<Attributes>, node: &str, verb: &str, target: &Resource) -> Result<(), String> {
    let is_ours = || {
        let record = store.get(&Key::new("pods", &target.namespace, &target.name));
        record.is_some_and(|record| record.attributes.field(NODE_FIELD) == Some(node))
    };
    match (target.subresource.as_str(), verb) {
        ("", "get") => related(is_ours(), node),
        ("", "list" | "watch") if target.selected_node == node => Ok(()),
        ("", "list" | "watch") if !target.name.is_empty() => related(is_ours(), node),
        ("", "list" | "watch") => Err(format!("can only list/watch pods with {NODE_FIELD} field selector")),
        // Which pods, admission looks at.
        ("", "delete") | ("status", "update" | "patch") => Ok(()),
        _ => Err(String::new()),
    }
}

/// upstream: authorizeLease. The name of a new one is in its body, which admission looks at.
fn lease(node: &str, verb: &str, target: &Resource) -> Result<(), String> {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if target.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    if verb != "create" && target.name != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

/// Whether a pod of the node refers to the object. Looks through the pods of its namespace: nodes ask once for each
/// object of a pod, and those inside the server's process do not ask here.
fn refers(store: &Store<Attributes>, node: &str, target: &Resource, what: Referred) -> bool {
    let pods = store.list(&Prefix::namespaced("pods", &target.namespace)).records;
    pods.iter().filter(|record| record.attributes.field(NODE_FIELD) == Some(node)).any(|record| {
        let pod: Option<Pod> = serde_json::from_slice(&record.bytes).ok();
        pod.and_then(|pod| pod.spec).is_some_and(|spec| spec_refers(&spec, what, &target.name))
    })
}

fn spec_refers(spec: &PodSpec, what: Referred, name: &str) -> bool {
    if what == Referred::ServiceAccount {
        return spec.service_account_name.as_deref() == Some(name);
    }
    let is_pull = |secret: &k8s_openapi::api::core::v1::LocalObjectReference| secret.name == name;
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    (what == Referred::Secret && spec.image_pull_secrets.iter().flatten().any(is_pull))
        || containers.into_iter().any(|container| container_refers(container, what, name))
        || spec.volumes.iter().flatten().any(|volume| volume_refers(volume, what, name))
}

fn container_refers(container: &Container, what: Referred, name: &str) -> bool {
    let mut from = container.env_from.iter().flatten().map(|source| match what {
        Referred::Secret => source.secret_ref.as_ref().map(|found| &found.name),
        Referred::ConfigMap => source.config_map_ref.as_ref().map(|found| &found.name),
        Referred::ServiceAccount => None,
    });
    let values = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let mut keys = values.map(|source| match what {
        Referred::Secret => source.secret_key_ref.as_ref().map(|found| &found.name),
        Referred::ConfigMap => source.config_map_key_ref.as_ref().map(|found| &found.name),
        Referred::ServiceAccount => None,
    });
    from.any(|found| found.is_some_and(|found| found == name))
        || keys.any(|found| found.is_some_and(|found| found == name))
}

fn volume_refers(volume: &Volume, what: Referred, name: &str) -> bool {
    let own = match what {
        Referred::Secret => volume.secret.as_ref().and_then(|found| found.secret_name.as_ref()),
        Referred::ConfigMap => volume.config_map.as_ref().map(|found| &found.name),
        Referred::ServiceAccount => None,
    };
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let mut projected = sources.map(|source| match what {
        Referred::Secret => source.secret.as_ref().map(|found| &found.name),
        Referred::ConfigMap => source.config_map.as_ref().map(|found| &found.name),
        Referred::ServiceAccount => None,
    });
    own.is_some_and(|own| own == name) || projected.any(|found| found.is_some_and(|found| found == name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_to_refer_to_an_object_is_found_and_its_kind_counts() {
        let spec: PodSpec = serde_json::from_value(json!({
            "serviceAccountName": "account",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"name": "i", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "init", "key": "k"}}}]}],
            "containers": [{
                "name": "c",
                "env": [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "k"}}}],
                "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "map"}}],
            }],
            "volumes": [
                {"name": "s", "secret": {"secretName": "volume"}},
                {"name": "m", "configMap": {"name": "files"}},
                {"name": "p", "projected": {"sources": [
                    {"secret": {"name": "part"}}, {"configMap": {"name": "piece"}},
                ]}},
            ],
        }))
        .expect("a spec");
        let names =
            ["pull", "init", "all", "volume", "part", "key", "map", "files", "piece", "account", "other"];
        let found =
            |what| -> Vec<&str> { names.into_iter().filter(|name| spec_refers(&spec, what, name)).collect() };
        assert_eq!(found(Referred::Secret), ["pull", "init", "all", "volume", "part"]);
        assert_eq!(found(Referred::ConfigMap), ["key", "map", "files", "piece"]);
        assert_eq!(found(Referred::ServiceAccount), ["account"]);
    }
}
