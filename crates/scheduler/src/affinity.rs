//! Pod affinity and anti-affinity: near to or far from pods that a selector finds, where "near" is the same value of a
//! label of the node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, WeightedPodAffinityTerm};
use windlass_api::selector::{Operator, Requirement, Selector};

use crate::cluster::{Cluster, NodeFacts};
use crate::labels::Labels;
use crate::pod::PodFacts;

/// upstream: hardPodAffinityWeight. What a pod's required affinity to another counts for when that other is placed.
const REQUIRED_WEIGHT: i64 = 1;

/// Pods, and a label of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    namespaces: BTreeSet<String>,
    namespace_selector: Selector,
    selector: Selector,
    topology_key: String,
}

/// All terms of a pod.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Terms {
    /// Required affinity: one pod must match all of them.
    pub near: Vec<Term>,
    /// Required anti-affinity: no pod may match any of them.
    pub anti: Vec<Term>,
    /// Preferred affinity, and preferred anti-affinity with negative weights.
    pub preferred: Vec<(Term, i64)>,
}

impl Terms {
    /// The terms of a pod of a namespace, with its labels.
    pub fn of(affinity: &Affinity, namespace: &str, labels: &Labels) -> Self {
        let (near, anti) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let read = |term: &PodAffinityTerm| Term::of(term, namespace, labels);
        let required = |terms: Option<&Vec<PodAffinityTerm>>| terms.into_iter().flatten().map(read).collect();
        let weighted = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| -> Vec<(Term, i64)> {
            let terms = terms.into_iter().flatten();
            terms.map(|term| (read(&term.pod_affinity_term), sign * i64::from(term.weight))).collect()
        };
        let mut preferred = weighted(
            near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()),
            1,
        );
        preferred.extend(weighted(
            anti.and_then(|anti| anti.preferred_during_scheduling_ignored_during_execution.as_ref()),
            -1,
        ));
        Self {
            near: required(
                near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            anti: required(
                anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            preferred,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.anti.is_empty() && self.preferred.is_empty()
    }
}

impl Term {
    /// A term of a pod. One whose selector cannot be read is about no pod.
    fn of(term: &PodAffinityTerm, namespace: &str, labels: &Labels) -> Self {
        let read = |selector| Selector::from_optional(selector).unwrap_or(Selector::Nothing);
        let mut selector = read(term.label_selector.as_ref());
        // An API server merges these keys into the selector when the pod is made; once more does no harm.
        for (keys, operator) in
            [(&term.match_label_keys, Operator::In), (&term.mismatch_label_keys, Operator::NotIn)]
        {
            selector = merged(selector, keys.as_deref().unwrap_or_default(), operator, labels);
        }
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self {
            namespaces,
            namespace_selector: read(term.namespace_selector.as_ref()),
            selector,
            topology_key: term.topology_key.clone(),
        }
    }

    /// Whether it is about a pod of a namespace with such labels.
    pub fn matches(&self, pod: &PodFacts, namespaces: &BTreeMap<String, BTreeMap<String, String>>) -> bool {
        let none = BTreeMap::new();
        let is_selected =
            || self.namespace_selector.matches(namespaces.get(&*pod.namespace).unwrap_or(&none));
        let in_namespace = self.namespaces.contains(&*pod.namespace) || is_selected();
        in_namespace && pod.labels.match_selector(&self.selector)
    }

    /// The value that a node has for its topology.
    pub fn value<'a>(&self, labels: &'a BTreeMap<String, String>) -> Option<&'a String> {
        labels.get(&self.topology_key)
    }
}

/// A selector that also asks for the pod's own values of these labels. Labels that the pod does not have are left out.
pub(crate) fn merged(
    mut selector: Selector,
    keys: &[String],
    operator: Operator,
    labels: &Labels,
) -> Selector {
    for key in keys {
        let value = labels.get(key).map(str::to_owned);
        let requirement = value.and_then(|value| Requirement::new(key, operator, vec![value]).ok());
        if let Some(requirement) = requirement {
            selector = selector.and(requirement);
        }
    }
    selector
}

/// Whether a pod matches all of the terms, and there is one.
pub fn matches_all(
    terms: &[Term],
    pod: &PodFacts,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, namespaces))
}

/// How many matches there are, by the key and the value of a label of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Counts(BTreeMap<String, BTreeMap<String, i64>>);

impl Counts {
    fn change(&mut self, node: &NodeFacts, key: &str, by: i64) {
        let Some(value) = node.labels.get(key) else { return };
        let values = self.0.entry(key.to_owned()).or_default();
        let count = values.entry(value.clone()).or_default();
        *count += by;
        if *count == 0 {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }

    fn get(&self, key: &str, value: &str) -> i64 {
        self.0.get(key).and_then(|values| values.get(value)).copied().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Why a node does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    /// No pod is near that the pod must be near to. Fewer pods do not help.
    NotNear,
    /// A pod is near that it must be far from.
    Near,
    /// A pod is near that must be far from it.
    Unwelcome,
}

/// Who is where, as far as one pod is concerned.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Pods that keep this one away.
    unwelcome: Counts,
    /// Pods that it must be near to.
    near: Counts,
    /// Pods that it must be far from.
    anti: Counts,
    matches_itself: bool,
}

impl State {
    /// Looks at all pods if the pod has required terms, else only at those that have terms of their own.
    pub fn of(pod: &PodFacts, cluster: &Cluster) -> Self {
        let mut state = Self::default();
        let namespaces = &cluster.namespaces;
        for (node, other) in cluster.opinionated() {
            state.count_unwelcome(pod, other, &node.facts, 1, namespaces);
        }
        let terms = &pod.demand.terms;
        if terms.near.is_empty() && terms.anti.is_empty() {
            return state;
        }
        for node in cluster.nodes() {
            for other in node.pods.values() {
                state.count_own(pod, other, &node.facts, 1, namespaces);
            }
        }
        state.matches_itself = matches_all(&terms.near, pod, namespaces);
        state
    }

    /// Whether it has nothing to say.
    pub fn is_idle(&self, pod: &PodFacts) -> bool {
        self.unwelcome.is_empty() && pod.demand.terms.near.is_empty() && pod.demand.terms.anti.is_empty()
    }

    /// Another pod comes to a node (`by` is 1) or leaves it (-1).
    pub fn change(&mut self, pod: &PodFacts, other: &PodFacts, node: &NodeFacts, by: i64, cluster: &Cluster) {
        self.count_unwelcome(pod, other, node, by, &cluster.namespaces);
        self.count_own(pod, other, node, by, &cluster.namespaces);
    }

    fn count_unwelcome(
        &mut self,
        pod: &PodFacts,
        other: &PodFacts,
        node: &NodeFacts,
        by: i64,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    ) {
        for term in &other.demand.terms.anti {
            if term.matches(pod, namespaces) {
                self.unwelcome.change(node, &term.topology_key, by);
            }
        }
    }

    fn count_own(
        &mut self,
        pod: &PodFacts,
        other: &PodFacts,
        node: &NodeFacts,
        by: i64,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    ) {
        let terms = &pod.demand.terms;
        if matches_all(&terms.near, other, namespaces) {
            for term in &terms.near {
                self.near.change(node, &term.topology_key, by);
            }
        }
        for term in &terms.anti {
            if term.matches(other, namespaces) {
                self.anti.change(node, &term.topology_key, by);
            }
        }
    }

    /// Whether a node does, and if not why.
    pub fn check(&self, pod: &PodFacts, node: &NodeFacts) -> Option<Clash> {
        let terms = &pod.demand.terms;
        if !self.is_near(&terms.near, node) {
            return Some(Clash::NotNear);
        }
        let clashes = |term: &Term| {
            let value = term.value(&node.labels);
            value.is_some_and(|value| self.anti.get(&term.topology_key, value) > 0)
        };
        if terms.anti.iter().any(clashes) {
            return Some(Clash::Near);
        }
        let is_unwelcome = |(key, values): (&String, &BTreeMap<String, i64>)| {
            let count = node.labels.get(key).and_then(|value| values.get(value));
            count.is_some_and(|count| *count > 0)
        };
        self.unwelcome.0.iter().any(is_unwelcome).then_some(Clash::Unwelcome)
    }

    fn is_near(&self, near: &[Term], node: &NodeFacts) -> bool {
        let mut is_met = true;
        for term in near {
            // A node must have all the labels, even for the first pod of its kind.
            let Some(value) = term.value(&node.labels) else { return false };
            is_met &= self.near.get(&term.topology_key, value) > 0;
        }
        // The first of pods that want to be near to each other may go anywhere.
        is_met || (self.near.is_empty() && self.matches_itself)
    }
}

/// How much each node is liked: the weights of preferred terms, its own and those of other pods about it.
#[derive(Clone, Debug, Default)]
pub struct Liking(Counts);

impl Liking {
    /// Looks at all pods if the pod has preferred terms, else only at those that have terms.
    pub fn of(pod: &PodFacts, cluster: &Cluster) -> Self {
        let mut counts = Counts::default();
        let namespaces = &cluster.namespaces;
        for (node, other) in cluster.opinionated() {
            let terms = &other.demand.terms;
            let required = terms.near.iter().map(|term| (term, REQUIRED_WEIGHT));
            let preferred = terms.preferred.iter().map(|(term, weight)| (term, *weight));
            for (term, weight) in required.chain(preferred) {
                if term.matches(pod, namespaces) {
                    counts.change(&node.facts, &term.topology_key, weight);
                }
            }
        }
        if !pod.demand.terms.preferred.is_empty() {
            for node in cluster.nodes() {
                for other in node.pods.values() {
                    for (term, weight) in &pod.demand.terms.preferred {
                        if term.matches(other, namespaces) {
                            counts.change(&node.facts, &term.topology_key, *weight);
                        }
                    }
                }
            }
        }
        Self(counts)
    }

    /// Whether all nodes are liked the same.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How much a node is liked.
    pub fn of_node(&self, node: &NodeFacts) -> i64 {
        let of = |(key, values): (&String, &BTreeMap<String, i64>)| {
            node.labels.get(key).and_then(|value| values.get(value)).copied().unwrap_or(0)
        };
        self.0.0.iter().map(of).sum()
    }
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
