//! What a node has to say to people about its pods and itself. Who runs the agent publishes it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod};
use kube::ResourceExt;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// About whom.
    pub about: ObjectReference,
    /// `Warning`, or `Normal`.
    pub is_warning: bool,
    /// `reason`.
    pub reason: String,
    /// `message`.
    pub message: String,
}

/// Takes events. Must not wait.
pub type Publish = Arc<dyn Fn(Report) + Send + Sync>;

/// A pod, or a container of it, as an event names it.
pub(crate) fn about(pod: &Pod, container: Option<&Container>) -> ObjectReference {
    let is_init = |container: &Container| {
        let mut inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        inits.any(|init| init.name == container.name)
    };
    let field_path = container.map(|container| {
        let list = if is_init(container) { "initContainers" } else { "containers" };
        format!("spec.{list}{{{}}}", container.name)
    });
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: pod.namespace(),
        name: pod.metadata.name.clone(),
        uid: pod.uid(),
        resource_version: pod.resource_version(),
        field_path,
    }
}

/// This node, as an event names it; upstream uses its name for the UID.
pub fn about_node(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: Some(name.into()),
        ..ObjectReference::default()
    }
}
