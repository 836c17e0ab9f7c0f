//! Which changes may help a pod that was rejected: only those are worth another try.
//!
//! upstream: the queueing hints of the plugins. Each filter that rejected the pod is asked; one that hopes is enough.

use std::collections::{BTreeMap, BTreeSet};

use crate::affinity::{Term, matches_all};
use crate::cluster::{NodeFacts, Usage};
use crate::fit::{Filter, is_selected, is_tolerated, shortage};
use crate::pod::PodFacts;
use crate::resources::Resources;
use crate::spread::{Constraint, has_all_keys};

/// A change.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A pod came to a node.
    PodPlaced(&'a PodFacts),
    /// A pod left a node, or no longer waits for one that was kept for it.
    PodGone(&'a PodFacts),
    /// A pod on a node is not what it was.
    PodChanged(&'a PodFacts, &'a PodFacts),
    /// A node came.
    NodeAdded(&'a NodeFacts),
    /// A node is not what it was.
    NodeChanged(&'a NodeFacts, &'a NodeFacts),
    /// A node went.
    NodeGone(&'a NodeFacts),
}

impl Change<'_> {
    /// What figures call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PodPlaced(_) => "AssignedPodAdd",
            Self::PodGone(_) => "AssignedPodDelete",
            Self::PodChanged(..) => "AssignedPodUpdate",
            Self::NodeAdded(_) => "NodeAdd",
            Self::NodeChanged(..) => "NodeUpdate",
            Self::NodeGone(_) => "NodeDelete",
        }
    }
}

type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// Whether a change may help a pod that these filters rejected. Without filters it was rejected for want of nodes.
pub fn helps(
    change: Change<'_>,
    pod: &PodFacts,
    filters: &BTreeSet<Filter>,
    namespaces: &Namespaces,
) -> bool {
    if filters.is_empty() {
        return matches!(change, Change::NodeAdded(_));
    }
    filters.iter().any(|filter| match filter {
        Filter::NodeUnschedulable => node_turns(change, |node| !node.is_unschedulable),
        Filter::TaintToleration => node_turns(change, |node| is_tolerated(&pod.demand, node)),
        Filter::NodeAffinity => node_turns(change, |node| is_selected(&pod.demand, node)),
        Filter::NodePorts => frees_ports(change, pod),
        Filter::NodeResourcesFit => frees_resources(change, pod),
        Filter::PodTopologySpread => moves_spread(change, pod),
        Filter::InterPodAffinity => moves_affinity(change, pod, namespaces),
    })
}

/// Whether a node is now what it was not before.
fn node_turns(change: Change<'_>, does: impl Fn(&NodeFacts) -> bool) -> bool {
    match change {
        Change::NodeAdded(node) => does(node),
        Change::NodeChanged(before, after) => !does(before) && does(after),
        Change::PodPlaced(_) | Change::PodGone(_) | Change::PodChanged(..) | Change::NodeGone(_) => false,
    }
}

fn frees_ports(change: Change<'_>, pod: &PodFacts) -> bool {
    match change {
        Change::PodGone(other) => {
            let wanted = &pod.demand.ports;
            other.demand.ports.iter().any(|port| wanted.iter().any(|want| want.conflicts(port)))
        }
        Change::NodeAdded(_) => true,
        Change::PodPlaced(_) | Change::PodChanged(..) | Change::NodeChanged(..) | Change::NodeGone(_) => {
            false
        }
    }
}

fn frees_resources(change: Change<'_>, pod: &PodFacts) -> bool {
    let fits_when_empty = |node| shortage(&pod.demand, node, &Usage::default()).is_none();
    match change {
        Change::PodGone(_) => true,
        Change::PodChanged(before, after) => {
            has_more(&pod.demand.requests, &before.demand.requests, &after.demand.requests)
        }
        Change::NodeAdded(node) => fits_when_empty(node),
        Change::NodeChanged(before, after) => {
            let has_grown = after.pods_max > before.pods_max
                || has_more(&pod.demand.requests, &after.allocatable, &before.allocatable);
            has_grown && fits_when_empty(after)
        }
        Change::PodPlaced(_) | Change::NodeGone(_) => false,
    }
}

/// Whether there is more of something wanted in one than in the other.
fn has_more(wanted: &Resources, one: &Resources, other: &Resources) -> bool {
    let named = [
        (wanted.cpu, one.cpu, other.cpu),
        (wanted.memory, one.memory, other.memory),
        (wanted.storage, one.storage, other.storage),
    ];
    let others = wanted.others.iter().map(|(name, wanted)| (*wanted, one.other(name), other.other(name)));
    named.into_iter().chain(others).any(|(wanted, one, other)| wanted > 0 && one > other)
}

fn moves_spread(change: Change<'_>, pod: &PodFacts) -> bool {
    let hard = || pod.demand.spread.iter().filter(|constraint| constraint.is_hard());
    let is_counted = |other: &PodFacts| {
        other.namespace == pod.namespace && hard().any(|constraint| constraint.matches(&other.labels))
    };
    let has_keys = |node: &NodeFacts| has_all_keys(hard(), node);
    match change {
        Change::PodPlaced(other) | Change::PodGone(other) => is_counted(other),
        Change::PodChanged(before, after) => {
            let differs = |constraint: &Constraint| {
                constraint.matches(&before.labels) != constraint.matches(&after.labels)
            };
            after.namespace == pod.namespace && hard().any(differs)
        }
        Change::NodeAdded(node) | Change::NodeGone(node) => has_keys(node),
        Change::NodeChanged(before, after) => {
            let moves = |constraint: &Constraint| constraint.value(before) != constraint.value(after);
            has_keys(before) != has_keys(after)
                || (has_keys(after) && (hard().any(moves) || before.taints != after.taints))
        }
    }
}

fn moves_affinity(change: Change<'_>, pod: &PodFacts, namespaces: &Namespaces) -> bool {
    let terms = &pod.demand.terms;
    let near = |other: &PodFacts| matches_all(&terms.near, other, namespaces);
    let anti = |other: &PodFacts| terms.anti.iter().any(|term| term.matches(other, namespaces));
    let unwelcome =
        |other: &PodFacts| other.demand.terms.anti.iter().any(|term| term.matches(pod, namespaces));
    match change {
        Change::PodPlaced(other) => near(other),
        Change::PodGone(other) => anti(other) || unwelcome(other),
        Change::PodChanged(before, after) => (!near(before) && near(after)) || (anti(before) && !anti(after)),
        Change::NodeAdded(node) => {
            // upstream waits here if only others keep the pod away, until the node changes; a new node may do.
            !terms.anti.is_empty() || terms.near.is_empty() || has_key(&terms.near, node)
        }
        Change::NodeChanged(before, after) => {
            let moves = |term: &Term| term.value(&before.labels) != term.value(&after.labels);
            terms.near.iter().any(|term| moves(term) && term.value(&after.labels).is_some())
                || terms.anti.iter().any(|term| moves(term) && term.value(&before.labels).is_some())
        }
        Change::NodeGone(_) => false,
    }
}

fn has_key(terms: &[Term], node: &NodeFacts) -> bool {
    terms.iter().any(|term| term.value(&node.labels).is_some())
}

#[cfg(test)]
#[path = "hints_tests.rs"]
mod tests;
