//! What the scheduler has to know about a pod: small facts, made once from the API object.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, NodeSelector, Pod, PodSpec, PodStatus, PreferredSchedulingTerm, Toleration,
};
use windlass_api::names;

use crate::affinity::Terms;
use crate::labels::Labels;
use crate::resources::{Resources, Weight};
use crate::spread::Constraint;

/// The UID of a pod.
pub type Uid = Arc<str>;

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    /// Its UID.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// `metadata.generation`.
    pub generation: i64,
    /// When it was made.
    pub created: Timestamp,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// It has a deletion timestamp.
    pub is_terminating: bool,
    /// Its `DisruptionTarget` condition.
    pub disruption: Option<Disruption>,
    /// What it asks for.
    pub demand: Arc<Demand>,
}

/// A `DisruptionTarget` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disruption {
    /// Its status is `True`.
    pub is_true: bool,
    /// Its reason is `PreemptionByScheduler`.
    pub is_preemption: bool,
    /// When its status last changed.
    pub since: Option<Timestamp>,
}

/// What a pod asks of a node, and how much it matters.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Demand {
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// What all its containers request together.
    pub requests: Resources,
    /// What they count for when nodes are compared.
    pub weight: Weight,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The node affinity that is required.
    pub node_affinity: Option<NodeSelector>,
    /// The node affinity that is preferred.
    pub node_preferences: Vec<PreferredSchedulingTerm>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Ports of the node.
    pub ports: Vec<HostPort>,
    /// Pods that it wants to be near to or far from.
    pub terms: Terms,
    /// How pods like it are to be spread.
    pub spread: Vec<Constraint>,
}

impl Demand {
    /// Whether the pod says on which nodes it may be, and not only where it would rather be.
    pub fn chooses_nodes(&self) -> bool {
        !self.node_selector.is_empty() || self.node_affinity.is_some()
    }
}

/// A port of the node that a container wants for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

/// Every address of the node.
const ANY_ADDRESS: &str = "0.0.0.0";

impl HostPort {
    /// Whether only one of the two can be had.
    pub fn conflicts(&self, other: &Self) -> bool {
        let is_everywhere = [self, other].iter().any(|port| port.ip == ANY_ADDRESS);
        self.port == other.port && self.protocol == other.protocol && (is_everywhere || self.ip == other.ip)
    }
}

impl PodFacts {
    /// What there is to know about a pod; `None` for one without UID or spec, which no API server sends.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (uid, spec) = (pod.metadata.uid.as_deref()?, pod.spec.as_ref()?);
        let meta = &pod.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let labels = Labels::of(meta.labels.as_ref());
        let status = pod.status.as_ref();
        Some(Self {
            uid: uid.into(),
            namespace: namespace.into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0),
            started: started(status),
            is_terminating: meta.deletion_timestamp.is_some(),
            disruption: disruption(status),
            demand: Arc::new(Demand::of(spec, namespace, &labels)),
            labels,
        })
    }

    /// The facts of a newer view of the same pod. Most changes of a pod that runs are of its status: they cost little.
    pub fn renewed(self: &Arc<Self>, pod: &Pod) -> Option<Arc<Self>> {
        let meta = &pod.metadata;
        if self.is_terminating && meta.deletion_timestamp.is_none() {
            // Nobody takes a deletion back: this is an older view, the answer to the deletion was quicker.
            return Some(Arc::clone(self));
        }
        let is_known = meta.generation == Some(self.generation)
            && self.generation > 0
            && self.labels.is_same(meta.labels.as_ref());
        if !is_known {
            return Self::of(pod).map(|new| if new == **self { Arc::clone(self) } else { Arc::new(new) });
        }
        let status = pod.status.as_ref();
        let (started, disruption) = (started(status), disruption(status));
        let is_terminating = meta.deletion_timestamp.is_some();
        let is_same =
            (&started, &disruption, is_terminating) == (&self.started, &self.disruption, self.is_terminating);
        if is_same {
            return Some(Arc::clone(self));
        }
        Some(Arc::new(Self { started, disruption, is_terminating, ..(**self).clone() }))
    }

    /// Its priority.
    pub fn priority(&self) -> i32 {
        self.demand.priority
    }

    /// Whether a scheduler ends it for the sake of another.
    pub fn is_being_preempted(&self) -> bool {
        let is_marked = |mark: &Disruption| mark.is_true && mark.is_preemption;
        self.is_terminating && self.disruption.as_ref().is_some_and(is_marked)
    }
}

fn started(status: Option<&PodStatus>) -> Option<Timestamp> {
    status?.start_time.as_ref().map(|time| time.0)
}

fn disruption(status: Option<&PodStatus>) -> Option<Disruption> {
    let mut conditions = status?.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == names::DISRUPTION_TARGET)?;
    Some(Disruption {
        is_true: condition.status == "True",
        is_preemption: condition.reason.as_deref() == Some(names::disruption::PREEMPTION_BY_SCHEDULER),
        since: condition.last_transition_time.as_ref().map(|time| time.0),
    })
}

impl Demand {
    /// What a pod of a namespace, with its labels, asks for.
    pub fn of(spec: &PodSpec, namespace: &str, labels: &Labels) -> Self {
        let affinity = spec.affinity.as_ref();
        let on_nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            on_nodes.and_then(|node| node.required_during_scheduling_ignored_during_execution.clone());
        let preferred =
            on_nodes.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.clone());
        Self {
            priority: spec.priority.unwrap_or(0),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            requests: Resources::of_pod(spec),
            weight: Weight::of_pod(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            node_affinity: required,
            node_preferences: preferred.unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            ports: ports(spec),
            terms: affinity.map(|affinity| Terms::of(affinity, namespace, labels)).unwrap_or_default(),
            spread: Constraint::all(spec.topology_spread_constraints.as_deref().unwrap_or_default(), labels),
        }
    }

    /// Whether where it may go depends on nothing but the node: pods with equal demands then fit on the same nodes.
    pub fn is_of_node_only(&self) -> bool {
        self.terms.is_empty() && self.spread.is_empty()
    }
}

/// upstream: GetHostPorts. Of the containers that initialise only sidecars go on to run.
fn ports(spec: &PodSpec) -> Vec<HostPort> {
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let containers = spec.init_containers.iter().flatten().filter(is_sidecar).chain(&spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let text = |text: &Option<String>, or: &str| {
        text.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| or.to_owned())
    };
    let wanted = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        Some(HostPort {
            ip: text(&port.host_ip, ANY_ADDRESS),
            protocol: text(&port.protocol, "TCP"),
            port: number,
        })
    });
    wanted.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{merged, pod};

    #[test]
    fn ports_conflict_on_the_same_address_or_on_all() {
        let port =
            |ip: &str, protocol: &str, port: i32| HostPort { ip: ip.into(), protocol: protocol.into(), port };
        for (a, b, want) in [
            (port("0.0.0.0", "TCP", 80), port("0.0.0.0", "TCP", 80), true),
            (port("0.0.0.0", "TCP", 80), port("127.0.0.1", "TCP", 80), true),
            (port("127.0.0.1", "TCP", 80), port("127.0.0.1", "TCP", 80), true),
            (port("127.0.0.1", "TCP", 80), port("127.0.0.2", "TCP", 80), false),
            (port("0.0.0.0", "TCP", 80), port("0.0.0.0", "UDP", 80), false),
            (port("0.0.0.0", "TCP", 80), port("0.0.0.0", "TCP", 81), false),
        ] {
            assert_eq!((a.conflicts(&b), b.conflicts(&a)), (want, want), "{a:?} {b:?}");
        }
    }

    #[test]
    fn host_ports_are_those_of_containers_that_go_on_to_run() {
        let container = |name: &str, port: Value| json!({"name": name, "ports": [port]});
        let mut sidecar = container("s", json!({"containerPort": 1, "hostPort": 3, "protocol": "UDP"}));
        sidecar["restartPolicy"] = json!("Always");
        let facts = pod(json!({"spec": {
            "initContainers": [container("i", json!({"containerPort": 1, "hostPort": 1})), sidecar],
            "containers": [
                container("c", json!({"containerPort": 1})),
                container("d", json!({"containerPort": 1, "hostPort": 2, "hostIP": "::1"})),
            ],
        }}));
        let want = [("0.0.0.0", "UDP", 3), ("::1", "TCP", 2)];
        let want =
            want.map(|(ip, protocol, port)| HostPort { ip: ip.into(), protocol: protocol.into(), port });
        assert_eq!(facts.demand.ports, want);
    }

    #[test]
    fn a_newer_view_changes_what_has_changed() {
        let base = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1, "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}]},
        });
        let seen =
            |more: Value| -> Pod { serde_json::from_value(merged(base.clone(), more)).expect("a pod") };
        let facts = Arc::new(PodFacts::of(&seen(json!({}))).expect("facts"));
        assert!(Arc::ptr_eq(&facts.renewed(&seen(json!({}))).expect("facts"), &facts));
        let condition =
            json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
        for (more, want) in [
            (
                json!({"status": {"startTime": "2026-01-02T03:04:05Z"}}),
                PodFacts { started: "2026-01-02T03:04:05Z".parse().ok(), ..(*facts).clone() },
            ),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}, "status": {"conditions": [condition]}}),
                PodFacts {
                    is_terminating: true,
                    disruption: Some(Disruption { is_true: true, is_preemption: true, since: None }),
                    ..(*facts).clone()
                },
            ),
            (
                json!({"metadata": {"labels": {"a": "c"}}}),
                PodFacts { labels: Labels::of(Some(&[("a".into(), "c".into())].into())), ..(*facts).clone() },
            ),
            (
                json!({"metadata": {"generation": 2}, "spec": {"priority": 7}}),
                PodFacts {
                    generation: 2,
                    demand: Arc::new(Demand { priority: 7, ..(*facts.demand).clone() }),
                    ..(*facts).clone()
                },
            ),
        ] {
            let renewed = facts.renewed(&seen(more.clone())).expect("facts");
            assert_eq!(*renewed, want, "{more}");
            assert_eq!(renewed.is_being_preempted(), want.is_terminating, "{more}");
            let again = renewed.renewed(&seen(json!({}))).expect("facts");
            assert_eq!(again == facts, !want.is_terminating, "{more}: a deletion is not taken back");
        }
    }
}
