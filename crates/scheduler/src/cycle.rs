//! One try to find a node for one pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::cluster::{Cluster, Node};
use crate::fit::{self, Filter, Misfit, State};
use crate::pod::{Demand, PodFacts};
use crate::score;

/// upstream: with fewer nodes all are asked.
const NODES_ASKED_MIN: usize = 100;

/// Why no node does.
#[derive(Clone, Debug, Default)]
pub struct Rejection {
    /// How many nodes there are.
    pub nodes_count: usize,
    /// No node was asked, for this reason.
    pub before_nodes: Option<&'static str>,
    /// What the nodes said, in the order in which they were asked.
    pub misfits: Vec<(String, Misfit)>,
    /// Nodes that were not asked, because the pod names others.
    pub others_count: usize,
    /// Who said no.
    pub filters: BTreeSet<Filter>,
    /// For preemption.
    pub state: State,
}

impl Rejection {
    /// What a node said.
    pub fn of_node(&self, name: &str) -> Option<&Misfit> {
        self.misfits.iter().find(|(node, _)| node == name).map(|(_, misfit)| misfit)
    }
}

/// The best node for a pod, or why there is none.
///
/// `nominated` is the node on which room was made for it, which is asked first. `start` is where to begin in a large
/// cluster, in which not all nodes are asked.
pub fn node_for<'a>(
    pod: &PodFacts,
    nominated: Option<&str>,
    cluster: &'a Cluster,
    start: usize,
) -> Result<&'a Node, Box<Rejection>> {
    let nodes_count = cluster.nodes().len();
    if nodes_count == 0 {
        return Err(Box::default());
    }
    let mut rejection = Rejection { nodes_count, ..Rejection::default() };
    let named = named_nodes(&pod.demand);
    if named.as_ref().is_some_and(BTreeSet::is_empty) {
        rejection.before_nodes = Some("pod affinity terms conflict");
        rejection.filters.insert(Filter::NodeAffinity);
        return Err(Box::new(rejection));
    }
    let state = State::of(pod, cluster);
    let asked = |node: &Node| fit::misfit_with_nominated(pod, node, &node.usage, &state, cluster);
    if let Some(node) = nominated.and_then(|name| cluster.node(name)).filter(|node| asked(node).is_none()) {
        return Ok(node);
    }
    let candidates: Vec<&Node> = match &named {
        Some(names) => names.iter().filter_map(|name| cluster.node(name)).collect(),
        None => cluster.nodes().collect(),
    };
    rejection.others_count = nodes_count - candidates.len();
    if named.is_some() {
        rejection.filters.insert(Filter::NodeAffinity);
    }
    let enough = feasible_enough(candidates.len());
    let mut feasible = Vec::new();
    for node in rotated(&candidates, start) {
        match asked(node) {
            None => feasible.push(node),
            Some(misfit) => {
                rejection.filters.insert(misfit.filter);
                rejection.misfits.push((node.facts.name.clone(), misfit));
            }
        }
        if feasible.len() == enough {
            break;
        }
    }
    match score::best(pod, cluster, &feasible) {
        Some(node) => Ok(node),
        None => Err(Box::new(Rejection { state, ..rejection })),
    }
}

fn rotated<'a>(nodes: &[&'a Node], start: usize) -> impl Iterator<Item = &'a Node> {
    // All are asked: by name, so that equals are told apart by it.
    let start = if nodes.len() <= NODES_ASKED_MIN { 0 } else { start % nodes.len() };
    nodes[start..].iter().chain(&nodes[..start]).copied()
}

/// upstream: numFeasibleNodesToFind. In a large cluster it is enough to find so many nodes that do.
fn feasible_enough(nodes: usize) -> usize {
    if nodes < NODES_ASKED_MIN {
        return nodes;
    }
    let percentage = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percentage / 100).max(NODES_ASKED_MIN)
}

/// The only nodes that the pod's required affinity allows by name; `None` if it does not name nodes in every term.
fn named_nodes(demand: &Demand) -> Option<BTreeSet<String>> {
    let terms = &demand.node_affinity.as_ref()?.node_selector_terms;
    let mut all = BTreeSet::new();
    for term in terms {
        all.extend(named_in(term)?);
    }
    (!terms.is_empty()).then_some(all)
}

fn named_in(term: &NodeSelectorTerm) -> Option<BTreeSet<String>> {
    let fields = term.match_fields.iter().flatten();
    let named = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    let sets = named.map(|field| field.values.iter().flatten().cloned().collect::<BTreeSet<String>>());
    sets.reduce(|a, b| a.intersection(&b).cloned().collect())
}

#[cfg(test)]
#[path = "cycle_tests.rs"]
mod tests;
