//! A pod as the watch of a node shows it, and the node's own object. To read all of it costs more than most changes are worth: of a pod that has ended
//! only a few fields of its metadata are looked at.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_watch::Object;

use crate::shutdown;

/// A pod that is read when somebody asks for it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedPod {
    /// Which pod it is, and how far on its way out; nothing else.
    pub(crate) metadata: ObjectMeta,
    /// Its JSON.
    whole: Bytes,
}

#[derive(Deserialize)]
struct Part {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize)]
struct Whole<'a> {
    metadata: ObjectMeta,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

impl Object for WatchedPod {
    const KIND: &'static str = "Pod";

    fn from_json(object: &Bytes) -> serde_json::Result<Self> {
        let Part { metadata: meta } = serde_json::from_slice(object)?;
        let metadata = ObjectMeta {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, whole: object.clone() })
    }

    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

/// The Node of this agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedNode {
    metadata: NodeMeta,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMeta {
    resource_version: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
    #[serde(default)]
    taints: Vec<Taint>,
}

impl WatchedNode {
    /// Whether the scheduler sends nothing there: it was cordoned, or others have seen that it is not ready.
    pub(crate) fn is_closed_to_pods(&self) -> bool {
        let is_not_ready = |taint: &Taint| taint.key == "node.kubernetes.io/not-ready";
        self.spec.unschedulable || self.spec.taints.iter().any(is_not_ready)
    }

    pub(crate) fn is_asked_to_shut_down(&self) -> bool {
        self.metadata.annotations.get(shutdown::ANNOTATION).is_some_and(|value| value == "true")
    }
}

impl Object for WatchedNode {
    const KIND: &'static str = "Node";

    fn from_json(object: &Bytes) -> serde_json::Result<Self> {
        serde_json::from_slice(object)
    }

    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

/// The spec that was read last. The pods of a Job have the same, which need not be read again.
#[derive(Debug, Default)]
pub(crate) struct LastSpec(Option<(Box<RawValue>, PodSpec)>);

impl LastSpec {
    fn read(&mut self, raw: &RawValue) -> serde_json::Result<PodSpec> {
        if let Some((_, spec)) = self.0.as_ref().filter(|(text, _)| text.get() == raw.get()) {
            return Ok(spec.clone());
        }
        let spec: PodSpec = serde_json::from_str(raw.get())?;
        self.0 = Some((raw.to_owned(), spec.clone()));
        Ok(spec)
    }
}

impl WatchedPod {
    /// All of it.
    pub(crate) fn read(&self, last: &mut LastSpec) -> serde_json::Result<Pod> {
        let Whole { metadata, spec, status } = serde_json::from_slice(&self.whole)?;
        Ok(Pod {
            metadata,
            spec: spec.map(|raw| last.read(raw)).transpose()?,
            status: status.map(|raw| serde_json::from_str(raw.get())).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_of_a_watch_is_the_pod_that_was_written() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3,
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "host", "command": ["true"]}]},
            "status": {"phase": "Running"},
        });
        let read = |json: String| WatchedPod::from_json(&Bytes::from(json)).expect("a pod");
        let watched = read(pod.to_string());
        let whole: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(watched.metadata, ObjectMeta { labels: None, ..whole.metadata.clone() });
        let mut last = LastSpec::default();
        assert_eq!(watched.read(&mut last).expect("a pod"), whole);
        assert_eq!(watched.read(&mut last).expect("a pod"), whole, "its spec is the last one");
        let other = read(r#"{"metadata": {}, "spec": {"containers":[]}}"#.to_owned());
        let spec = other.read(&mut last).expect("a pod").spec.expect("a spec");
        assert_eq!(spec, PodSpec::default(), "another one is not taken for it");
        let watched = read(r#"{"metadata": {}, "spec": {"containers": 5}}"#.to_owned());
        assert!(watched.read(&mut last).is_err());
    }
}
