//! What only the server itself does to pods: it binds them to nodes, when it is told to or while they are made.
//! [`crate::eviction`] is the other.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_api::field;

use crate::admission::topology;
use crate::object::{self, Object};
use crate::request::{Query, Target};
use crate::specs::Spec;
use crate::status::{self, Result, Status};
use crate::write::{self, Answer, Scope};
use crate::{Shared, answer};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    uid: String,
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Binding {
    metadata: Meta,
    target: BindingTarget,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BindingTarget {
    kind: String,
    name: String,
}

/// The pod that a binding is about.
pub(crate) fn bound_name(body: &[u8]) -> Result<String> {
    match decode::<Binding>("Binding", body)?.metadata.name {
        name if name.is_empty() => Err(Status::bad_request("name must be provided")),
        name => Ok(name),
    }
}

/// Puts a pod on a node, once.
pub(crate) fn bind(shared: &Shared, target: &Target, query: &Query, body: &[u8]) -> Result<Answer> {
    let binding: Binding = decode("Binding", body)?;
    if !matches!(binding.metadata.name.as_str(), "") && binding.metadata.name != target.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    check_binding(&binding)?;
    let now = shared.now_text();
    let written =
        write::update(shared, target, Scope::Server, None, query.dry_run("CreateOptions")?, |old| {
            if !binding.metadata.uid.is_empty() && binding.metadata.uid != old.uid() {
                let (asked, found) = (binding.metadata.uid.as_str(), old.uid());
                return Err(Status::another_uid(
                    target.resource,
                    &target.namespace,
                    &target.name,
                    asked,
                    found,
                ));
            }
            let mut pod = bound(old, &binding, &now)?;
            if binding.target.kind == "Node" {
                pod.add_labels(topology::of_node(shared, &binding.target.name));
            }
            Ok(pod)
        })?;
    Ok(written.told(answer::json(StatusCode::CREATED, &status::success(StatusCode::CREATED, None), &[])))
}

/// Finds nodes for pods while they are made.
pub trait Placing: Send + Sync {
    /// A node for a pod that is about to be stored, which counts there from now on; `None`: it is stored without one.
    fn place(&self, pod: &Object) -> Option<String>;
    /// The pod with this UID was not stored after all.
    fn take_back(&self, uid: &str);
}

/// The place of a pod that is being made, given back unless it is kept.
pub(crate) struct Placed<'a> {
    placing: &'a dyn Placing,
    uid: Option<String>,
}

impl Placed<'_> {
    /// The pod is stored.
    pub(crate) fn keep(mut self) {
        self.uid = None;
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        if let Some(uid) = &self.uid {
            self.placing.take_back(uid);
        }
    }
}

/// Puts a pod that is being made on a node, if somebody knows one.
pub(crate) fn place<'a>(
    shared: &'a Shared,
    pod: &mut Object,
    spec: Option<&Spec>,
    now: &str,
) -> Option<Placed<'a>> {
    let placing = shared.placing.get()?;
    let node = placing.place(pod)?;
    let placed = Placed { placing: &**placing, uid: Some(pod.uid().to_owned()) };
    pod.add_labels(topology::of_node(shared, &node));
    if !spec.is_some_and(|spec| spec.is_in(pod) && spec.place(pod, &node)) {
        pod.section_mut("spec").insert("nodeName".to_owned(), json!(node));
    }
    set_scheduled(pod, now);
    Some(placed)
}

/// The namespace of `/api/v1/namespaces/{namespace}/bindings`.
pub(crate) fn bindings_of(path: &str) -> Option<String> {
    match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["api", "v1", "namespaces", namespace, "bindings"] => Some(namespace.to_owned()),
        _ => None,
    }
}

/// The pod that a binding in that collection is about.
pub(crate) fn binding_target(namespace: &str, body: &[u8]) -> Result<Target> {
    let binding: Binding = decode("Binding", body)?;
    Target::parse(&format!("/api/v1/namespaces/{namespace}/pods/{}/binding", binding.metadata.name))
}

fn check_binding(binding: &Binding) -> Result<()> {
    let path = field::Path::new("target");
    let mut errors = Vec::new();
    // upstream: validatePodBinding
    if !matches!(binding.target.kind.as_str(), "" | "Node") {
        errors.push(field::Error::not_supported(
            &path.child("kind"),
            &binding.target.kind,
            &["Node", "<empty>"],
        ));
    }
    if binding.target.name.is_empty() {
        errors.push(field::Error::required(&path.child("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    // upstream: the error is not made one of the client
    let texts: Vec<String> = errors.iter().map(field::Error::to_string).collect();
    Err(Status::unexplained(&texts.join(", ")))
}

fn bound(old: &Object, binding: &Binding, now: &str) -> Result<Object> {
    let name = old.name();
    if old.is_deleting() {
        let why = format!("pod {name} is being deleted, cannot be assigned to a host");
        return Err(Status::binding_conflict(name, &why));
    }
    let node = old.text_at("spec", "nodeName");
    if !node.is_empty() {
        let why = format!("pod {name} is already assigned to node {node:?}");
        return Err(Status::binding_conflict(name, &why));
    }
    let gates = old.get("spec").and_then(|spec| spec.get("schedulingGates")).and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        let why = format!("pod {name} has non-empty .spec.schedulingGates");
        return Err(Status::binding_conflict(name, &why));
    }
    let mut pod = old.clone();
    pod.section_mut("spec").insert("nodeName".to_owned(), json!(binding.target.name));
    for (field, values) in
        [("annotations", &binding.metadata.annotations), ("labels", &binding.metadata.labels)]
    {
        if !values.is_empty() {
            let merged = pod.meta_mut().entry(field).or_insert_with(|| json!({}));
            values.iter().for_each(|(key, value)| merged[key] = value.clone());
        }
    }
    set_scheduled(&mut pod, now);
    Ok(pod)
}

/// The pod has its node.
fn set_scheduled(pod: &mut Object, now: &str) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    let status = pod.section_mut("status");
    status.remove("nominatedNodeName");
    set_condition(status, condition);
}

/// upstream: UpdatePodCondition. A condition that stays what it was keeps the time since when it is.
pub(crate) fn set_condition(status: &mut Map<String, Value>, mut condition: Value) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|old| old["type"] == condition["type"]) {
        None => list.push(condition),
        Some(old) => {
            if old["status"] == condition["status"]
                && let Some(since) = old.get("lastTransitionTime")
            {
                condition["lastTransitionTime"] = since.clone();
            }
            *old = condition;
        }
    }
}

pub(crate) fn decode<T: for<'de> Deserialize<'de>>(kind: &str, body: &[u8]) -> Result<T> {
    let read = serde_json::from_slice::<Value>(body).and_then(|mut value| {
        object::strip_nulls(&mut value);
        serde_json::from_value(value)
    });
    read.map_err(|error| Status::bad_request(format!("decode {kind}: {error}")))
}
