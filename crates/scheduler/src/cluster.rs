//! All nodes, what each holds, and what else a decision looks at. Every change costs what it changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as ApiNode, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use windlass_api::selector::Selector;

use crate::pod::{HostPort, PodFacts, Uid};
use crate::resources::{Resources, Weight};

/// What there is to know about a node itself.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.unschedulable`.
    pub is_unschedulable: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What pods may request of it.
    pub allocatable: Resources,
    /// How many pods it takes.
    pub pods_max: i64,
}

impl NodeFacts {
    /// What there is to know about a node.
    pub fn of(node: &ApiNode) -> Self {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let (allocatable, pods_max) = Resources::of_node(allocatable);
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable,
            pods_max,
        }
    }
}

/// What the pods of a node hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Their requests.
    pub requested: Resources,
    /// What they count for when nodes are compared.
    pub weight: Weight,
    /// How many they are.
    pub pods: i64,
    /// Ports of the node, sorted.
    pub ports: Vec<HostPort>,
}

impl Usage {
    /// Counts a pod.
    pub fn add(&mut self, pod: &PodFacts) {
        let demand = &pod.demand;
        self.requested.add(&demand.requests);
        self.weight.cpu += demand.weight.cpu;
        self.weight.memory += demand.weight.memory;
        self.pods += 1;
        self.ports.extend(demand.ports.iter().cloned());
        self.ports.sort();
    }

    /// Counts a pod no longer.
    pub fn remove(&mut self, pod: &PodFacts) {
        let demand = &pod.demand;
        self.requested.remove(&demand.requests);
        self.weight.cpu -= demand.weight.cpu;
        self.weight.memory -= demand.weight.memory;
        self.pods -= 1;
        for port in &demand.ports {
            if let Ok(place) = self.ports.binary_search(port) {
                self.ports.remove(place);
            }
        }
    }
}

/// A node, and what is on it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node itself.
    pub facts: NodeFacts,
    /// What its pods hold.
    pub usage: Usage,
    /// Its pods, those among them that are being bound.
    pub pods: BTreeMap<Uid, Arc<PodFacts>>,
    /// Pods that wait for others to leave it.
    pub nominated: BTreeMap<Uid, Arc<PodFacts>>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Its namespace.
    pub namespace: String,
    /// Which pods it is about.
    pub selector: Selector,
    /// How many may be disrupted.
    pub allowed: i32,
    /// Names of pods whose disruption is counted already.
    pub disrupted: BTreeSet<String>,
}

impl Budget {
    /// What there is to know about a budget. One whose selector cannot be read is about no pod.
    pub fn of(budget: &PodDisruptionBudget) -> Self {
        let (spec, status) = (budget.spec.as_ref(), budget.status.as_ref());
        let selector = Selector::from_optional(spec.and_then(|spec| spec.selector.as_ref()));
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: selector.unwrap_or(Selector::Nothing),
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// Everything that a decision looks at.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    nodes: BTreeMap<String, Node>,
    /// Pods on nodes that are not there (yet), by the name of the node.
    lost: HashMap<String, BTreeMap<Uid, Arc<PodFacts>>>,
    places: HashMap<Uid, String>,
    /// Pods that have a say in where other pods go, and their nodes.
    opinionated: BTreeMap<Uid, (String, Arc<PodFacts>)>,
    nominations: HashMap<Uid, (String, Arc<PodFacts>)>,
    /// How many pods there are on nodes, by priority.
    priorities: BTreeMap<i32, usize>,
    /// Labels of all namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// All budgets, by namespace and name.
    pub budgets: BTreeMap<(String, String), Budget>,
}

impl Cluster {
    /// All nodes, in the order of their names.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.values()
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Adds a node, or brings it up to date. Returns what was known of it before.
    pub fn set_node(&mut self, facts: NodeFacts) -> Option<NodeFacts> {
        if let Some(node) = self.nodes.get_mut(&facts.name) {
            return Some(std::mem::replace(&mut node.facts, facts));
        }
        let pods = self.lost.remove(&facts.name).unwrap_or_default();
        let nominated = self.nominations.iter().filter(|(_, (node, _))| *node == facts.name);
        let nominated = nominated.map(|(uid, (_, pod))| (uid.clone(), pod.clone())).collect();
        let mut usage = Usage::default();
        pods.values().for_each(|pod| usage.add(pod));
        self.nodes.insert(facts.name.clone(), Node { facts, usage, pods, nominated });
        None
    }

    /// Forgets a node; its pods stay where they are.
    pub fn remove_node(&mut self, name: &str) -> Option<NodeFacts> {
        let node = self.nodes.remove(name)?;
        if !node.pods.is_empty() {
            self.lost.insert(name.to_owned(), node.pods);
        }
        Some(node.facts)
    }

    /// Where a pod is.
    pub fn place_of(&self, uid: &str) -> Option<&str> {
        self.places.get(uid).map(String::as_str)
    }

    /// A pod that is on a node.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodFacts>> {
        let place = self.places.get(uid)?;
        let pods = self.nodes.get(place).map(|node| &node.pods).or_else(|| self.lost.get(place));
        pods?.get(uid)
    }

    /// The UIDs of all pods that are on a node.
    pub fn placed(&self) -> impl Iterator<Item = &Uid> {
        self.places.keys()
    }

    /// How many pods are on nodes.
    pub fn placed_count(&self) -> usize {
        self.places.len()
    }

    /// Puts a pod on a node, or brings it up to date there. Returns what was known of it on that node before.
    pub fn place(&mut self, pod: Arc<PodFacts>, node: &str) -> Option<Arc<PodFacts>> {
        let before = self.unplace(&pod.uid);
        self.forget_nomination(&pod.uid);
        *self.priorities.entry(pod.priority()).or_default() += 1;
        self.places.insert(pod.uid.clone(), node.to_owned());
        if !pod.demand.terms.is_empty() {
            self.opinionated.insert(pod.uid.clone(), (node.to_owned(), pod.clone()));
        }
        match self.nodes.get_mut(node) {
            Some(node) => {
                node.usage.add(&pod);
                node.pods.insert(pod.uid.clone(), pod);
            }
            None => _ = self.lost.entry(node.to_owned()).or_default().insert(pod.uid.clone(), pod),
        }
        before.filter(|(place, _)| place == node).map(|(_, pod)| pod)
    }

    /// Takes a pod off its node.
    pub fn unplace(&mut self, uid: &str) -> Option<(String, Arc<PodFacts>)> {
        let place = self.places.remove(uid)?;
        self.opinionated.remove(uid);
        let pod = match self.nodes.get_mut(&place) {
            Some(node) => {
                let pod = node.pods.remove(uid)?;
                node.usage.remove(&pod);
                pod
            }
            None => {
                let pods = self.lost.get_mut(&place)?;
                let pod = pods.remove(uid)?;
                if pods.is_empty() {
                    self.lost.remove(&place);
                }
                pod
            }
        };
        if let Some(count) = self.priorities.get_mut(&pod.priority()) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&pod.priority());
            }
        }
        Some((place, pod))
    }

    /// Pods that have terms about other pods, with their nodes. Those on nodes that are not there count for nothing.
    pub fn opinionated(&self) -> impl Iterator<Item = (&Node, &Arc<PodFacts>)> {
        self.opinionated.values().filter_map(|(node, pod)| Some((self.nodes.get(node)?, pod)))
    }

    /// Whether some pod keeps others away.
    pub fn has_required_anti_affinity(&self) -> bool {
        self.opinionated.values().any(|(_, pod)| !pod.demand.terms.anti.is_empty())
    }

    /// Whether some pod on a node has a lower priority.
    pub fn has_below(&self, priority: i32) -> bool {
        self.priorities.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }

    /// A pod that waits is to go on this node, or on no particular one.
    pub fn nominate(&mut self, pod: &Arc<PodFacts>, node: Option<&str>) {
        self.forget_nomination(&pod.uid);
        let Some(name) = node else { return };
        self.nominations.insert(pod.uid.clone(), (name.to_owned(), pod.clone()));
        if let Some(node) = self.nodes.get_mut(name) {
            node.nominated.insert(pod.uid.clone(), pod.clone());
        }
    }

    /// A pod does not wait any more.
    pub fn forget_nomination(&mut self, uid: &str) {
        let Some((name, _)) = self.nominations.remove(uid) else { return };
        if let Some(node) = self.nodes.get_mut(&name) {
            node.nominated.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{node, sized};

    #[test]
    fn pods_count_on_their_node_whether_it_is_there_before_or_after_them() {
        let mut cluster = Cluster::default();
        let port =
            json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]}});
        let (early, late) =
            (Arc::new(sized("early", "1", 1, json!({}))), Arc::new(sized("late", "1", 2, port)));
        assert_eq!(cluster.place(early.clone(), "n"), None);
        assert_eq!(cluster.set_node(node("n", json!({}))), None);
        assert_eq!(cluster.place(late.clone(), "n"), None);
        let usage = |cluster: &Cluster| {
            let usage = &cluster.node("n").expect("a node").usage;
            (usage.requested.cpu, usage.weight.cpu, usage.pods, usage.ports.len())
        };
        assert_eq!(usage(&cluster), (1000, 1100, 2, 1));
        assert_eq!((cluster.has_below(1), cluster.has_below(2)), (false, true));
        assert_eq!(cluster.place(late.clone(), "n"), Some(late.clone()), "known");
        assert_eq!(usage(&cluster), (1000, 1100, 2, 1), "counted once");
        assert_eq!(cluster.unplace("late"), Some(("n".into(), late)));
        assert_eq!(usage(&cluster), (1000, 1000, 1, 0));
        assert!(cluster.remove_node("n").is_some());
        assert_eq!((cluster.place_of("early"), cluster.pod("early")), (Some("n"), Some(&early)));
        assert_eq!(cluster.set_node(node("n", json!({}))), None);
        assert_eq!(usage(&cluster), (1000, 1000, 1, 0), "pods outlive the view of their node");
        assert_eq!(cluster.place(early.clone(), "other"), None, "it was on another");
        assert_eq!(usage(&cluster), (0, 0, 0, 0));
        assert!(cluster.unplace("early").is_some());
        assert_eq!((cluster.placed_count(), cluster.unplace("early")), (0, None));
        assert!(cluster.lost.is_empty() && cluster.priorities.is_empty());
    }

    #[test]
    fn a_nomination_ends_when_the_pod_is_placed_or_nominated_elsewhere() {
        let mut cluster = Cluster::default();
        let pod = Arc::new(sized("p", "1", 0, json!({})));
        cluster.nominate(&pod, Some("b"));
        cluster.set_node(node("a", json!({})));
        cluster.set_node(node("b", json!({})));
        let nominated =
            |cluster: &Cluster| -> Vec<usize> { cluster.nodes().map(|node| node.nominated.len()).collect() };
        assert_eq!(nominated(&cluster), [0, 1]);
        cluster.nominate(&pod, Some("a"));
        assert_eq!(nominated(&cluster), [1, 0]);
        cluster.place(pod.clone(), "b");
        assert_eq!(nominated(&cluster), [0, 0]);
        cluster.nominate(&pod, Some("a"));
        cluster.nominate(&pod, None);
        assert_eq!(nominated(&cluster), [0, 0]);
    }

    #[test]
    fn a_budget_is_read_and_one_without_selector_is_about_nothing() {
        let budget = |value| Budget::of(&serde_json::from_value(value).expect("a budget"));
        let read = budget(json!({
            "metadata": {"name": "b", "namespace": "n"}, "spec": {"selector": {"matchLabels": {"a": "b"}}},
            "status": {"disruptionsAllowed": 2, "disruptedPods": {"x": "2026-01-01T00:00:00Z"},
                       "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
        }));
        assert_eq!((read.namespace.as_str(), read.allowed), ("n", 2));
        assert_eq!((read.selector.to_string().as_str(), read.disrupted), ("a=b", ["x".to_owned()].into()));
        assert_eq!(budget(json!({"metadata": {"name": "b"}, "spec": {}})).selector, Selector::Nothing);
    }
}
