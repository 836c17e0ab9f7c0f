//! upstream: admission plugin NodeRestriction. A node changes its own Node, its own lease and the status of its own pods.

use http::Method;
use serde_json::Value;
use windlass_store::Key;

use super::admitted_name;
use crate::Shared;
use crate::auth::action::{self, Action};
use crate::auth::nodes::LEASES;
use crate::auth::{Identity, policy};
use crate::object::Object;
use crate::request::Target;
use crate::resources;
use crate::status::{Result, Status};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels that nodes may not set, so that workloads can be kept away from them.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// upstream: kubeletLabels
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// upstream: kubeletLabelNamespaces
const OWN_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// What can be said of a write before its body is read.
pub(crate) fn request(shared: &Shared, target: &Target, method: &Method) -> Result<()> {
    let Some(node) = &target.node else { return Ok(()) };
    let refuse = |why: String| Err(Status::forbidden(target.resource, &target.name, &why));
    if node.is_empty() {
        return refuse("could not determine node from user \"system:node:\"".to_owned());
    }
    let (group, plural) = (target.resource.group, target.resource.plural);
    match (group, plural, target.subresource.as_str(), method) {
        ("", "pods", "", &Method::PUT | &Method::PATCH) => refuse(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        ("", "pods", "" | "status", _) => Ok(()),
        ("", "pods", "eviction", _) => match node_of_pod(shared, &target.namespace, &target.name)? {
            found if found == *node => Ok(()),
            _ => refuse(format!("node {node} can only evict pods with spec.nodeName set to itself")),
        },
        ("", "pods", other, _) => {
            refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", ..) if *method != Method::POST && target.name != *node => {
            refuse(format!("node {node:?} is not allowed to modify node {:?}", target.name))
        }
        ("coordination.k8s.io", "leases", ..) if target.namespace != LEASES => {
            refuse(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        ("coordination.k8s.io", "leases", ..) if *method != Method::POST && target.name != *node => {
            refuse("can only access node lease with the same name as the requesting node".to_owned())
        }
        _ => Ok(()),
    }
}

/// Refuses a new object that is not one of the node.
pub(super) fn create(target: &Target, object: &Object) -> Result<()> {
    let Some(node) = &target.node else { return Ok(()) };
    let refuse = |why: String| Err(Status::forbidden(target.resource, admitted_name(object), &why));
    match (target.resource.group, target.resource.plural) {
        ("", "pods") if has_annotation(object, MIRROR) => {
            refuse(format!("node {node:?} can not create mirror pods on this server"))
        }
        ("", "pods") => refuse(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        )),
        ("", "nodes") if object.name() != node => {
            refuse(format!("node {node:?} is not allowed to modify node {:?}", object.name()))
        }
        ("", "nodes") => {
            if at(object, "spec", "configSource").is_some() {
                return refuse(format!(
                    "node {node:?} is not allowed to create pods with a non-nil configSource"
                ));
            }
            match forbidden_labels(&labels(object), &[]) {
                labels if labels.is_empty() => Ok(()),
                labels => refuse(format!(
                    "node {node:?} is not allowed to set the following labels: {}",
                    labels.join(", ")
                )),
            }
        }
        ("coordination.k8s.io", "leases") if object.name() != node => {
            refuse("can only access node lease with the same name as the requesting node".to_owned())
        }
        _ => Ok(()),
    }
}

/// Refuses a change that is not one of the node.
pub(crate) fn update(target: &Target, old: &Object, new: &Object) -> Result<()> {
    let Some(node) = &target.node else { return Ok(()) };
    let refuse = |why: String| Err(Status::forbidden(target.resource, old.name(), &why));
    match (target.resource.group, target.resource.plural, target.subresource.as_str()) {
        ("", "pods", "status") => {
            if old.text_at("spec", "nodeName") != node {
                return refuse(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                ));
            }
            if labels(old) != labels(new) {
                return refuse(format!("node {node:?} cannot update labels through pod status"));
            }
            let has_changed = |field| at(old, "status", field) != at(new, "status", field);
            if has_changed("resourceClaimStatuses") {
                return refuse(format!("node {node:?} cannot update resource claim statues"));
            }
            if has_changed("extendedResourceClaimStatus") {
                return refuse(format!("node {node:?} cannot update extended resource claim status"));
            }
            Ok(())
        }
        ("", "nodes", _) => {
            let has_changed = |field| at(old, "spec", field) != at(new, "spec", field);
            if has_changed("configSource") && at(new, "spec", "configSource").is_some() {
                return refuse(format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if has_changed("taints") {
                return refuse(format!("node {node:?} is not allowed to modify taints"));
            }
            let owners =
                |object: &Object| object.meta().and_then(|meta| meta.get("ownerReferences").cloned());
            if owners(old) != owners(new) {
                return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            match forbidden_labels(&labels(new), &labels(old)) {
                labels if labels.is_empty() => Ok(()),
                labels => refuse(format!("is not allowed to modify labels: {}", labels.join(", "))),
            }
        }
        _ => Ok(()),
    }
}

/// Refuses to delete the pod of another node.
pub(crate) fn delete_pod(node: &str, pod: &Object) -> Result<()> {
    if pod.text_at("spec", "nodeName") == node {
        return Ok(());
    }
    let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
    Err(Status::forbidden(resources::core("pods"), pod.name(), &why))
}

/// What a node asks a token for.
#[derive(Debug)]
pub(crate) struct TokenFor<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) audiences: &'a [String],
}

/// Refuses a token that is not one of a pod of the node. `bound`: nothing when it is asked for without a pod.
pub(crate) fn token(shared: &Shared, target: &Target, bound: Option<&TokenFor<'_>>) -> Result<()> {
    let Some(node) = &target.node else { return Ok(()) };
    let refuse = |why: &str| Err(Status::forbidden(target.resource, &target.name, why));
    let Some(bound) = bound.filter(|it| it.api_version == "v1" && it.kind == "Pod" && !it.name.is_empty())
    else {
        return refuse("node requested token not bound to a pod");
    };
    if bound.uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = pod(shared, &target.namespace, bound.name)?;
    if bound.uid != pod.uid() {
        return refuse(&format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            bound.uid
        ));
    }
    if pod.text_at("spec", "nodeName") != node {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match bound.audiences {
        [] => "",
        [one] => one.as_str(),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    let who = Identity::of_node(node);
    // upstream: the audience stands in place of the resource, the account in place of its name
    let wish = Action {
        verb: "request-serviceaccounts-token-audience".to_owned(),
        to: action::Object::Resource(action::Resource {
            resource: audience.to_owned(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            ..action::Resource::default()
        }),
    };
    if has_audience(&pod, audience) || policy::judge(&shared.store, &who, &wish).is_allowed {
        return Ok(());
    }
    refuse(&format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        who.name
    ))
}

/// Whether a volume of a pod has a token for somebody.
fn has_audience(pod: &Object, audience: &str) -> bool {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let volumes = list(at(pod, "spec", "volumes"));
    let sources = volumes.iter().flat_map(|volume| list(volume.pointer("/projected/sources")));
    let tokens = sources.filter_map(|source| source.get("serviceAccountToken").cloned());
    let mut audiences = tokens.map(|token| token["audience"].as_str().unwrap_or_default().to_owned());
    audiences.any(|found| found == audience)
}

fn pod(shared: &Shared, namespace: &str, name: &str) -> Result<Object> {
    let record = shared.store.get(&Key::new("pods", namespace, name));
    let record = record.ok_or_else(|| Status::not_found(resources::core("pods"), name))?;
    Object::from_stored(&record.bytes)
}

fn node_of_pod(shared: &Shared, namespace: &str, name: &str) -> Result<String> {
    Ok(pod(shared, namespace, name)?.text_at("spec", "nodeName").to_owned())
}

/// A field that says something.
fn at<'a>(object: &'a Object, section: &str, field: &str) -> Option<&'a Value> {
    let value = object.get(section)?.get(field)?;
    let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    (!is_empty).then_some(value)
}

fn has_annotation(object: &Object, name: &str) -> bool {
    object.meta().and_then(|meta| meta.get("annotations")).is_some_and(|all| all.get(name).is_some())
}

/// In the order of their keys.
fn labels(object: &Object) -> Vec<(&str, &str)> {
    let labels = object.meta().and_then(|meta| meta.get("labels")).and_then(Value::as_object);
    let mut labels: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    labels.sort_unstable();
    labels
}

/// The keys that were added, changed or removed and that no node may touch, in their order.
fn forbidden_labels<'a>(new: &[(&'a str, &'a str)], old: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let added = new.iter().filter(|label| !old.contains(label));
    let removed = old.iter().filter(|label| !new.contains(label));
    let mut keys: Vec<&str> =
        added.chain(removed).map(|(key, _)| *key).filter(|key| is_forbidden(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn is_forbidden(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_under =
        |above: &str| domain == above || domain.strip_suffix(above).is_some_and(|below| below.ends_with('.'));
    let is_own = OWN_LABELS.contains(&label) || OWN_LABEL_DOMAINS.into_iter().any(is_under);
    is_under(RESTRICTED) || ((is_under("kubernetes.io") || is_under("k8s.io")) && !is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sets_labels_of_its_own_and_none_that_workloads_are_steered_by() {
        for (label, expected) in [
            ("kubernetes.io/hostname", false),
            ("kubernetes.io/arch", false),
            ("topology.kubernetes.io/zone", false),
            ("node.kubernetes.io/anything", false),
            ("x.kubelet.kubernetes.io/anything", false),
            ("example.com/disk", false),
            ("disk", false),
            ("notkubernetes.io/x", false),
            ("kubernetes.io/role", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("example.k8s.io/x", true),
            ("node-restriction.kubernetes.io/x", true),
            ("x.node-restriction.kubernetes.io/x", true),
        ] {
            assert_eq!(is_forbidden(label), expected, "{label}");
        }
        let old = [("a.k8s.io/kept", "1"), ("b.k8s.io/changed", "1"), ("c.k8s.io/removed", "1")];
        let new = [("a.k8s.io/kept", "1"), ("b.k8s.io/changed", "2"), ("d.k8s.io/added", "1")];
        assert_eq!(forbidden_labels(&new, &old), ["b.k8s.io/changed", "c.k8s.io/removed", "d.k8s.io/added"]);
    }
}
