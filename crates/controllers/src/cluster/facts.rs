//! What is kept of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition, PodStatus, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use windlass_api::names;

use super::table::{Key, Row};
use crate::wire;

/// What the controllers that end pods know of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFact {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) generation: i64,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) is_deleting: bool,
    /// Succeeded or Failed.
    pub(crate) is_terminal: bool,
    /// Neither Pending, Running nor Unknown.
    pub(crate) has_stopped: bool,
    /// Failed because a node evicted it.
    pub(crate) is_evicted: bool,
    /// Whether there is a condition `Ready`, and whether it is true.
    pub(crate) ready: Option<bool>,
    /// It has the condition `DisruptionTarget`, and that is true.
    pub(crate) disrupted: Option<Disrupted>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) controller: Option<Arc<OwnerReference>>,
    pub(crate) tolerations: Arc<[Toleration]>,
}

impl PodFact {
    /// The pod as events name it.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.key.namespace.to_string()),
            name: Some(self.key.name.to_string()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

#[cfg(test)]
impl PodFact {
    /// A pod of that name that waits for a node.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            key: Key::new("ns", name),
            uid: name.to_owned(),
            created: None,
            generation: 1,
            node: None,
            is_deleting: false,
            is_terminal: false,
            has_stopped: false,
            is_evicted: false,
            ready: None,
            disrupted: None,
            labels: BTreeMap::new(),
            controller: None,
            tolerations: Arc::from([]),
        }
    }
}

/// A `DisruptionTarget` that is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disrupted {
    pub(crate) reason: String,
    pub(crate) since: Option<Timestamp>,
}

impl Row for PodFact {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    /// The node it is on.
    fn group(&self) -> Option<&Arc<str>> {
        self.node.as_ref()
    }
}

/// The condition of a type.
pub(crate) fn condition<'a>(status: Option<&'a PodStatus>, type_: &str) -> Option<&'a PodCondition> {
    status?.conditions.as_ref()?.iter().find(|one| one.type_ == type_)
}

/// Makes facts of pods. Neighbours of the same Job say much in the same words: those are kept once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    drops_labels: bool,
    namespace: Option<Arc<str>>,
    node: Option<Arc<str>>,
    controller: Option<Arc<OwnerReference>>,
    tolerations: Option<Arc<[Toleration]>>,
}

impl Reader {
    pub(crate) fn without_labels() -> Self {
        Self { drops_labels: true, ..Self::default() }
    }

    pub(crate) fn read(&mut self, pod: &Pod) -> PodFact {
        let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let reason = status.and_then(|status| status.reason.as_deref());
        let namespace = text(&mut self.namespace, meta.namespace.as_deref().unwrap_or_default());
        let node = spec.and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let disrupted = condition(status, names::DISRUPTION_TARGET).filter(|one| one.status == "True");
        PodFact {
            key: Key { namespace, name: meta.name.as_deref().unwrap_or_default().into() },
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            generation: meta.generation.unwrap_or_default(),
            node: node.map(|node| text(&mut self.node, node)),
            is_deleting: meta.deletion_timestamp.is_some(),
            is_terminal: matches!(phase, "Succeeded" | "Failed"),
            has_stopped: !matches!(phase, "Pending" | "Running" | "Unknown"),
            is_evicted: phase == "Failed" && reason == Some("Evicted"),
            ready: condition(status, "Ready").map(|one| one.status == "True"),
            disrupted: disrupted.map(|one| Disrupted {
                reason: one.reason.clone().unwrap_or_default(),
                since: one.last_transition_time.as_ref().map(|time| time.0),
            }),
            labels: meta.labels.clone().filter(|_| !self.drops_labels).unwrap_or_default(),
            controller: wire::controller(meta).map(|owner| {
                same(&mut self.controller, |known| **known == *owner, || Arc::new(owner.clone()))
            }),
            tolerations: same(&mut self.tolerations, |known| **known == *tolerations, || tolerations.into()),
        }
    }
}

fn text(last: &mut Option<Arc<str>>, text: &str) -> Arc<str> {
    same(last, |known| **known == *text, || text.into())
}

/// The last value again, if it is the one.
fn same<T: ?Sized>(
    last: &mut Option<Arc<T>>,
    is_it: impl FnOnce(&Arc<T>) -> bool,
    make: impl FnOnce() -> Arc<T>,
) -> Arc<T> {
    match last {
        Some(known) if is_it(known) => Arc::clone(known),
        other => Arc::clone(other.insert(make())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::SlimPod;

    #[test]
    fn what_is_read_of_a_slim_pod_is_all_that_is_kept() {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
        let toleration =
            json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3});
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "1", "generation": 4, "labels": {"a": "b"},
                         "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]},
            "spec": {"nodeName": "node", "containers": [], "tolerations": [toleration]},
            "status": {"phase": "Failed", "reason": "Evicted", "conditions": [
                {"type": "Ready", "status": "False"},
                {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
                 "lastTransitionTime": "2026-01-01T00:00:05Z"},
            ]},
        });
        let SlimPod(pod) = serde_json::from_value(pod).expect("a pod");
        let mut reader = Reader::default();
        let (fact, again) = (reader.read(&pod), reader.read(&pod));
        assert_eq!(fact, again);
        assert!(Arc::ptr_eq(&fact.tolerations, &again.tolerations), "what is the same is kept once");
        let expected = PodFact {
            key: Key::new("n", "p"),
            uid: "1".to_owned(),
            created: "2026-01-01T00:00:00Z".parse().ok(),
            generation: 4,
            node: Some("node".into()),
            is_deleting: false,
            is_terminal: true,
            has_stopped: true,
            is_evicted: true,
            ready: Some(false),
            disrupted: Some(Disrupted {
                reason: "TerminationByKubelet".to_owned(),
                since: "2026-01-01T00:00:05Z".parse().ok(),
            }),
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            controller: serde_json::from_value(owner).ok().map(Arc::new),
            tolerations: Arc::from([serde_json::from_value(toleration).expect("a toleration")]),
        };
        assert_eq!(fact, expected);
        let without = Reader::without_labels().read(&pod);
        assert_eq!(without, PodFact { labels: BTreeMap::new(), ..expected });
    }
}
