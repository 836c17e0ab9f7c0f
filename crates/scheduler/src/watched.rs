//! A pod as the watch shows it to a scheduler, who asks where it may go and not what it runs: everything else is passed
//! over when it is read.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, Pod, PodCondition, PodSchedulingGate, PodSpec, PodStatus,
    ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};
use windlass_watch::Object;

/// A pod with the fields that matter here, and no others. Boxed, for it goes from hand to hand.
#[derive(Clone, Debug)]
pub struct WatchedPod(pub(crate) Box<Pod>);

#[derive(Deserialize)]
struct Slim {
    metadata: Meta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
    priority: Option<i32>,
    preemption_policy: Option<String>,
    containers: Vec<Part>,
    init_containers: Option<Vec<Part>>,
    resources: Option<ResourceRequirements>,
    overhead: Option<BTreeMap<String, Quantity>>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
    topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
}

/// A container.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    restart_policy: Option<String>,
    ports: Option<Vec<ContainerPort>>,
    resources: Option<ResourceRequirements>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    start_time: Option<Time>,
    conditions: Option<Vec<PodCondition>>,
    nominated_node_name: Option<String>,
}

impl<'de> Deserialize<'de> for WatchedPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Slim { metadata, spec, status } = Slim::deserialize(from)?;
        let (spec, status) = (spec.map(PodSpec::from), status.map(PodStatus::from));
        Ok(Self(Box::new(Pod { metadata: metadata.into(), spec, status })))
    }
}

impl Object for WatchedPod {
    const KIND: &'static str = "Pod";

    fn from_json(object: &Bytes) -> serde_json::Result<Self> {
        serde_json::from_slice(object)
    }

    /// Of a pod that is gone, or has ended, it is asked only which one it was.
    fn from_json_deleted(object: &Bytes) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Gone {
            metadata: GoneMeta,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct GoneMeta {
            uid: Option<String>,
            resource_version: Option<String>,
        }
        let Gone { metadata: GoneMeta { uid, resource_version } } = serde_json::from_slice(object)?;
        let metadata = ObjectMeta { uid, resource_version, ..ObjectMeta::default() };
        Ok(Self(Box::new(Pod { metadata, ..Pod::default() })))
    }

    fn version(&self) -> Option<&str> {
        self.0.metadata.resource_version.as_deref()
    }
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            labels: meta.labels,
            ..Self::default()
        }
    }
}

impl From<Spec> for PodSpec {
    fn from(spec: Spec) -> Self {
        let all = |parts: Vec<Part>| parts.into_iter().map(Container::from).collect();
        Self {
            node_name: spec.node_name,
            scheduler_name: spec.scheduler_name,
            scheduling_gates: spec.scheduling_gates,
            priority: spec.priority,
            preemption_policy: spec.preemption_policy,
            containers: all(spec.containers),
            init_containers: spec.init_containers.map(all),
            resources: spec.resources,
            overhead: spec.overhead,
            node_selector: spec.node_selector,
            affinity: spec.affinity,
            tolerations: spec.tolerations,
            topology_spread_constraints: spec.topology_spread_constraints,
            ..Self::default()
        }
    }
}

impl From<Part> for Container {
    fn from(Part { restart_policy, ports, resources }: Part) -> Self {
        Self { restart_policy, ports, resources, ..Self::default() }
    }
}

impl From<Status> for PodStatus {
    fn from(Status { start_time, conditions, nominated_node_name }: Status) -> Self {
        Self { start_time, conditions, nominated_node_name, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodFacts;

    #[test]
    fn the_facts_of_a_watched_pod_are_those_of_the_whole_pod() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi", "example.com/gpu": "1"}});
        let selector = json!({"matchLabels": {"app": "a"}});
        let term = json!({"topologyKey": "zone", "labelSelector": selector});
        let wanted =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "9", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"app": "a"}, "annotations": {"x": "y"}, "finalizers": ["f"],
            },
            "spec": {
                "nodeName": "node", "schedulerName": "s", "schedulingGates": [{"name": "g"}], "priority": 7,
                "preemptionPolicy": "Never", "overhead": {"cpu": "10m"}, "nodeSelector": {"os": "linux"},
                "resources": requests("3"),
                "containers": [{"name": "c", "image": "i", "command": ["true"], "resources": requests("1"),
                                "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1",
                                           "protocol": "UDP"}]}],
                "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always",
                                    "resources": requests("2"), "ports": [{"containerPort": 1, "hostPort": 1}]}],
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted},
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                },
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector,
                                               "whenUnsatisfiable": "DoNotSchedule"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:01Z", "nominatedNodeName": "other",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"},
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                     "lastTransitionTime": "2026-01-01T00:00:02Z"},
                ],
            },
        });
        let WatchedPod(watched) = serde_json::from_str(&pod.to_string()).expect("a pod");
        let whole: Pod = serde_json::from_value(pod).expect("a typed pod");
        let facts = PodFacts::of(&whole).expect("facts");
        assert_eq!(PodFacts::of(&watched).expect("facts"), facts);
        // They say something, so that it would be missed.
        assert!(facts.is_terminating && facts.started.is_some() && facts.disruption.is_some());
        assert!(
            facts.demand.ports.len() == 2
                && !facts.demand.spread.is_empty()
                && !facts.demand.terms.is_empty()
        );
        assert_eq!(watched.status.expect("a status").nominated_node_name.as_deref(), Some("other"));
        let (watched, whole) = (watched.spec.expect("a spec"), whole.spec.expect("a spec"));
        assert_eq!(
            (watched.node_name, watched.scheduler_name, watched.scheduling_gates),
            (whole.node_name, whole.scheduler_name, whole.scheduling_gates)
        );
    }
}
