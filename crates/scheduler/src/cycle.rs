//! One try to find a node for one pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::cluster::{Cluster, Node};
use crate::fit::{self, Filter, Misfit, State};
use crate::meter::{Code, Meter, Plugin, Point};
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
    meter: &mut impl Meter,
) -> Result<&'a Node, Box<Rejection>> {
    let nodes_count = cluster.nodes().len();
    if nodes_count == 0 {
        return Err(Box::default());
    }
    let mut rejection = Rejection { nodes_count, ..Rejection::default() };
    let around = meter.point(
        Point::PreFilter,
        |meter| look_around(pod, cluster, meter),
        |around| around.as_ref().map_or(Code::Unresolvable, |_| Code::Success),
    );
    let Some((named, state)) = around else {
        rejection.before_nodes = Some("pod affinity terms conflict");
        rejection.filters.insert(Filter::NodeAffinity);
        return Err(Box::new(rejection));
    };
    let feasible = meter.point(
        Point::Filter,
        |meter| feasible(pod, nominated, cluster, start, (named, &state), &mut rejection, meter),
        |_| Code::Success,
    );
    match score::best(pod, cluster, &feasible, meter) {
        Some(node) => Ok(node),
        None => Err(Box::new(Rejection { state, ..rejection })),
    }
}

/// The names of nodes, if the pod allows only those.
type Named = Option<BTreeSet<String>>;

/// What is to be known before nodes are asked; `None` if none can do.
fn look_around(pod: &PodFacts, cluster: &Cluster, meter: &mut impl Meter) -> Option<(Named, State)> {
    let code = |named: &Named| match named {
        Some(names) if names.is_empty() => Code::Unresolvable,
        _ if pod.demand.chooses_nodes() => Code::Success,
        _ => Code::Skip,
    };
    let plugin = Plugin::Filter(Filter::NodeAffinity);
    let named = meter.plugin(Point::PreFilter, plugin, || named_nodes(&pod.demand), code);
    if named.as_ref().is_some_and(BTreeSet::is_empty) {
        return None;
    }
    Some((named, State::of(pod, cluster, meter)))
}

/// The nodes that do, or as many of them as are enough; the one on which room was made for the pod alone, if it does.
fn feasible<'a>(
    pod: &PodFacts,
    nominated: Option<&str>,
    cluster: &'a Cluster,
    start: usize,
    (named, state): (Named, &State),
    rejection: &mut Rejection,
    meter: &mut impl Meter,
) -> Vec<&'a Node> {
    let mut asked =
        |node: &Node| fit::misfit_with_nominated(pod, node, &node.usage, state, cluster, &mut *meter);
    if let Some(node) = nominated.and_then(|name| cluster.node(name)).filter(|node| asked(node).is_none()) {
        return vec![node];
    }
    let candidates: Vec<&Node> = match &named {
        Some(names) => names.iter().filter_map(|name| cluster.node(name)).collect(),
        None => cluster.nodes().collect(),
    };
    rejection.others_count = rejection.nodes_count - candidates.len();
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
    feasible
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
