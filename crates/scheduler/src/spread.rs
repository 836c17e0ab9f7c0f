//! Topology spread: pods that a selector finds are to be shared out evenly among the values of a label of nodes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use windlass_api::selector::{Operator, Selector};

use crate::affinity::merged;
use crate::cluster::{Cluster, Node, NodeFacts};
use crate::fit;
use crate::labels::Labels;
use crate::pod::PodFacts;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// One rule about pods like one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    topology_key: String,
    max_skew: i64,
    /// `DoNotSchedule`, or `ScheduleAnyway`.
    is_hard: bool,
    selector: Selector,
    domains_min: usize,
    /// Only nodes count that the pod's node selector and node affinity allow.
    honors_affinity: bool,
    /// Only nodes count whose taints the pod tolerates.
    honors_taints: bool,
}

impl Constraint {
    /// The rules of a pod with these labels. A selector that cannot be read is about no pod.
    pub fn all(constraints: &[TopologySpreadConstraint], labels: &Labels) -> Vec<Self> {
        let read = |constraint: &TopologySpreadConstraint| {
            let selector = Selector::from_optional(constraint.label_selector.as_ref());
            let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
            let at_least = constraint.min_domains.and_then(|domains| usize::try_from(domains).ok());
            Self {
                topology_key: constraint.topology_key.clone(),
                max_skew: i64::from(constraint.max_skew),
                is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
                selector: merged(selector.unwrap_or(Selector::Nothing), keys, Operator::In, labels),
                domains_min: at_least.unwrap_or(1),
                honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
                honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            }
        };
        constraints.iter().map(read).collect()
    }

    /// Whether it forbids, rather than advises.
    pub fn is_hard(&self) -> bool {
        self.is_hard
    }

    /// Whether taints of nodes matter to it.
    pub fn honors_taints(&self) -> bool {
        self.honors_taints
    }

    /// Whether it is about pods with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        labels.match_selector(&self.selector)
    }

    /// The value that a node has for its topology.
    pub fn value<'a>(&self, node: &'a NodeFacts) -> Option<&'a String> {
        node.labels.get(&self.topology_key)
    }

    fn counts_node(&self, pod: &PodFacts, node: &NodeFacts) -> bool {
        let is_allowed = !self.honors_affinity || fit::is_selected(&pod.demand, node);
        is_allowed && (!self.honors_taints || fit::is_tolerated(&pod.demand, node))
    }

    /// Pods on a node that it is about. Those that are ending count no more. An empty selector counts nothing.
    fn count(&self, pod: &PodFacts, node: &Node) -> i64 {
        if self.selector.is_empty() {
            return 0;
        }
        let is_counted = |other: &&std::sync::Arc<PodFacts>| {
            !other.is_terminating && other.namespace == pod.namespace && self.matches(&other.labels)
        };
        node.pods.values().filter(is_counted).count() as i64
    }
}

/// Whether a node has the labels of all of the rules.
pub fn has_all_keys<'a>(mut constraints: impl Iterator<Item = &'a Constraint>, node: &NodeFacts) -> bool {
    constraints.all(|constraint| constraint.value(node).is_some())
}

/// Why a node does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// It lacks the label. Fewer pods do not help.
    NoLabel,
    /// There would be too many in one place.
    TooMany,
}

/// How many pods like one pod there are, for each of its hard rules, by the value of the label.
#[derive(Clone, Debug, Default)]
pub struct State(Vec<BTreeMap<String, i64>>);

fn hard(pod: &PodFacts) -> impl Iterator<Item = &Constraint> + Clone {
    pod.demand.spread.iter().filter(|constraint| constraint.is_hard)
}

impl State {
    /// Looks at all pods if the pod has hard rules.
    pub fn of(pod: &PodFacts, cluster: &Cluster) -> Self {
        let mut counts: Vec<BTreeMap<String, i64>> = hard(pod).map(|_| BTreeMap::new()).collect();
        if counts.is_empty() {
            return Self::default();
        }
        for node in cluster.nodes().filter(|node| has_all_keys(hard(pod), &node.facts)) {
            for (constraint, counts) in hard(pod).zip(&mut counts) {
                let value = constraint.value(&node.facts);
                if let Some(value) = value.filter(|_| constraint.counts_node(pod, &node.facts)) {
                    *counts.entry(value.clone()).or_default() += constraint.count(pod, node);
                }
            }
        }
        Self(counts)
    }

    /// Another pod comes to a node (`by` is 1) or leaves it (-1).
    pub fn change(&mut self, pod: &PodFacts, other: &PodFacts, node: &NodeFacts, by: i64) {
        if other.namespace != pod.namespace || !has_all_keys(hard(pod), node) {
            return;
        }
        for (constraint, counts) in hard(pod).zip(&mut self.0) {
            let is_counted = constraint.matches(&other.labels) && constraint.counts_node(pod, node);
            if let Some(value) = constraint.value(node).filter(|_| is_counted) {
                *counts.entry(value.clone()).or_default() += by;
            }
        }
    }

    /// Whether a node does, and if not why.
    pub fn check(&self, pod: &PodFacts, node: &NodeFacts) -> Option<Skew> {
        for (constraint, counts) in hard(pod).zip(&self.0) {
            let Some(value) = constraint.value(node) else { return Some(Skew::NoLabel) };
            let has_enough = counts.len() >= constraint.domains_min;
            // upstream: no domain at all leaves the least at the largest number, so that nothing is too many.
            let least = counts.values().copied().min().unwrap_or(i64::from(i32::MAX));
            let least = if has_enough { least } else { 0 };
            let itself = i64::from(constraint.matches(&pod.labels));
            let here = counts.get(value).copied().unwrap_or(0);
            if here + itself - least > constraint.max_skew {
                return Some(Skew::TooMany);
            }
        }
        None
    }
}

/// The scores of nodes by the soft rules of a pod: 100 where there are fewest like it. `None` if it has no such rules.
pub fn scores(pod: &PodFacts, cluster: &Cluster, nodes: &[&Node]) -> Option<Vec<i64>> {
    let soft: Vec<&Constraint> = pod.demand.spread.iter().filter(|constraint| !constraint.is_hard).collect();
    if soft.is_empty() {
        return None;
    }
    let is_scored = |node: &Node| has_all_keys(soft.iter().copied(), &node.facts);
    let scored: Vec<bool> = nodes.iter().map(|node| is_scored(node)).collect();
    let counts = soft_counts(pod, cluster, nodes, &soft);
    let scored_count = scored.iter().filter(|is_scored| **is_scored).count();
    let raw: Vec<i64> = nodes
        .iter()
        .zip(&scored)
        .map(|(node, is_scored)| {
            let of = |(constraint, counts): (&&Constraint, &BTreeMap<String, i64>)| {
                let (count, domains) = match constraint.value(&node.facts) {
                    Some(_) if constraint.topology_key == HOSTNAME => {
                        (constraint.count(pod, node), scored_count)
                    }
                    Some(value) => (counts.get(value).copied().unwrap_or(0), counts.len()),
                    None => return 0.0,
                };
                // upstream: few domains weigh less, and what is within the allowed skew is watered down.
                count as f64 * ((domains + 2) as f64).ln() + (constraint.max_skew - 1) as f64
            };
            if *is_scored { soft.iter().zip(&counts).map(of).sum::<f64>().round() as i64 } else { 0 }
        })
        .collect();
    Some(normalised(&raw, &scored))
}

/// Pods by the values that the nodes in question have.
fn soft_counts(
    pod: &PodFacts,
    cluster: &Cluster,
    nodes: &[&Node],
    soft: &[&Constraint],
) -> Vec<BTreeMap<String, i64>> {
    let has_all = |node: &Node| has_all_keys(soft.iter().copied(), &node.facts);
    let by_value = |constraint: &&Constraint| {
        // Those of single nodes are counted when they are scored.
        if constraint.topology_key == HOSTNAME {
            return BTreeMap::new();
        }
        let eligible = nodes.iter().filter(|node| has_all(node));
        let values: BTreeSet<&String> = eligible.filter_map(|node| constraint.value(&node.facts)).collect();
        let mut counts: BTreeMap<String, i64> = values.into_iter().map(|value| (value.clone(), 0)).collect();
        for node in cluster.nodes().filter(|node| has_all(node) && constraint.counts_node(pod, &node.facts)) {
            let count = constraint.value(&node.facts).and_then(|value| counts.get_mut(value));
            if let Some(count) = count {
                *count += constraint.count(pod, node);
            }
        }
        counts
    };
    soft.iter().map(by_value).collect()
}

fn normalised(raw: &[i64], scored: &[bool]) -> Vec<i64> {
    let of_scored = || raw.iter().zip(scored).filter(|(_, is_scored)| **is_scored).map(|(score, _)| *score);
    let (least, most) = (of_scored().min().unwrap_or(0), of_scored().max().unwrap_or(0));
    let normal = |(score, is_scored): (&i64, &bool)| match (is_scored, most) {
        (false, _) => 0,
        (true, 0) => 100,
        (true, most) => 100 * (most + least - score) / most,
    };
    raw.iter().zip(scored).map(normal).collect()
}

#[cfg(test)]
#[path = "spread_tests.rs"]
mod tests;
