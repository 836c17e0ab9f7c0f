//! Making room: which pods of lower priority leave which node for a pod that fits nowhere.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Budget, Cluster, Node, Usage};
use crate::cycle::Rejection;
use crate::fit::{self, State};
use crate::meter::Unmetered;
use crate::pod::PodFacts;

/// upstream: minCandidateNodesPercentage and minCandidateNodesAbsolute.
const CANDIDATES_PERCENTAGE: usize = 10;
const CANDIDATES_MIN: usize = 100;

/// What came of looking for room.
#[derive(Clone, Debug)]
pub enum Preemption {
    /// No node was asked, so that there is nothing to go by.
    NotAsked,
    /// The pod may not make room, for this reason.
    NotEligible(&'static str),
    /// There is none to be made; what the nodes said that were asked.
    NoCandidate(Vec<Vec<Cow<'static, str>>>),
    /// These pods are to leave.
    Chosen(Candidate),
}

/// A node on which room can be made.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Candidate {
    /// Its name.
    pub node: String,
    /// Who has to leave, those that matter most first.
    pub victims: Vec<Arc<PodFacts>>,
    /// How many of them a budget protects.
    pub violations: usize,
}

/// Looks for room for a pod that was rejected everywhere.
///
/// `nominated` is the node on which room was made for it before. `start` says at which of the nodes to begin, since in a
/// large cluster not all of them are tried.
pub fn find(
    pod: &PodFacts,
    nominated: Option<&str>,
    cluster: &Cluster,
    rejection: &Rejection,
    now: Timestamp,
    start: usize,
) -> Preemption {
    if let Some(reason) = not_eligible(pod, nominated, cluster, rejection) {
        return Preemption::NotEligible(reason);
    }
    let resolvable = rejection.misfits.iter().filter(|(_, misfit)| misfit.is_resolvable);
    let nodes: Vec<&Node> = resolvable.filter_map(|(name, _)| cluster.node(name)).collect();
    if nodes.is_empty() {
        return Preemption::NoCandidate(Vec::new());
    }
    let wanted = (nodes.len() * CANDIDATES_PERCENTAGE / 100).max(CANDIDATES_MIN).min(nodes.len());
    let (before, after) = nodes.split_at(start % nodes.len());
    let (mut candidates, mut refusals) = (Vec::new(), Vec::new());
    for node in after.iter().chain(before) {
        match on_node(pod, node, cluster, &rejection.state, now) {
            Ok(candidate) => candidates.push(candidate),
            Err(reasons) => refusals.push(reasons),
        }
        let is_lawful = |candidate: &Candidate| candidate.violations == 0;
        if candidates.len() >= wanted && candidates.iter().any(is_lawful) {
            break;
        }
    }
    match choose(candidates, now) {
        Some(candidate) => Preemption::Chosen(candidate),
        None => Preemption::NoCandidate(refusals),
    }
}

fn not_eligible(
    pod: &PodFacts,
    nominated: Option<&str>,
    cluster: &Cluster,
    rejection: &Rejection,
) -> Option<&'static str> {
    if pod.demand.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let name = nominated?;
    // Nothing that leaves this node helps any more: look again.
    let is_hopeless = rejection.of_node(name).is_none_or(|misfit| !misfit.is_resolvable);
    if is_hopeless {
        return None;
    }
    let mut others = cluster.node(name)?.pods.values();
    let is_leaving = others.any(|other| other.priority() < pod.priority() && other.is_being_preempted());
    is_leaving.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The fewest pods that have to leave a node, or why that does not help.
fn on_node(
    pod: &PodFacts,
    node: &Node,
    cluster: &Cluster,
    state: &State,
    now: Timestamp,
) -> Result<Candidate, Vec<Cow<'static, str>>> {
    let mut lesser: Vec<Arc<PodFacts>> =
        node.pods.values().filter(|other| other.priority() < pod.priority()).cloned().collect();
    if lesser.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    let mut trial = Trial { pod, node, cluster, usage: node.usage.clone(), state: state.clone() };
    lesser.iter().for_each(|other| trial.remove(other));
    if let Some(reasons) = trial.refusal() {
        return Err(reasons);
    }
    lesser.sort_by_key(|other| importance(other, now));
    let (protected, free) = by_budgets(lesser, cluster.budgets.values());
    let (mut victims, mut violations) = (Vec::new(), 0);
    for other in protected {
        if !trial.reprieves(&other) {
            violations += 1;
            victims.push(other);
        }
    }
    victims.extend(free.into_iter().filter(|other| !trial.reprieves(other)));
    victims.sort_by_key(|other| importance(other, now));
    if victims.is_empty() {
        let name = &node.facts.name;
        return Err(vec![format!("expected at least one victim pod on node {name:?}").into()]);
    }
    Ok(Candidate { node: node.facts.name.clone(), victims, violations })
}

/// A node as it would be without some of its pods.
struct Trial<'a> {
    pod: &'a PodFacts,
    node: &'a Node,
    cluster: &'a Cluster,
    usage: Usage,
    state: State,
}

impl Trial<'_> {
    fn remove(&mut self, other: &PodFacts) {
        self.usage.remove(other);
        self.state.change(self.pod, other, &self.node.facts, -1, self.cluster);
    }

    fn refusal(&self) -> Option<Vec<Cow<'static, str>>> {
        let (pod, node, cluster) = (self.pod, self.node, self.cluster);
        let misfit = fit::misfit_with_nominated(pod, node, &self.usage, &self.state, cluster, &mut Unmetered);
        misfit.map(|misfit| misfit.reasons)
    }

    /// Lets a pod stay if there is room for both.
    fn reprieves(&mut self, other: &PodFacts) -> bool {
        self.usage.add(other);
        self.state.change(self.pod, other, &self.node.facts, 1, self.cluster);
        let fits = self.refusal().is_none();
        if !fits {
            self.remove(other);
        }
        fits
    }
}

/// Sorts those first that matter most: by priority, then by how long they have been running.
fn importance(pod: &PodFacts, now: Timestamp) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority()), pod.started.unwrap_or(now))
}

/// Pods whose leaving would violate a budget, and the others, in the order in which they come: a budget covers the
/// first of its pods.
fn by_budgets<'a>(
    pods: Vec<Arc<PodFacts>>,
    budgets: impl Iterator<Item = &'a Budget>,
) -> (Vec<Arc<PodFacts>>, Vec<Arc<PodFacts>>) {
    // upstream: a budget with an empty selector protects nobody here.
    let mut left: Vec<(&Budget, i32)> =
        budgets.filter(|budget| !budget.selector.is_empty()).map(|budget| (budget, budget.allowed)).collect();
    let mut is_violated = |pod: &Arc<PodFacts>| {
        let mut is_violated = false;
        if pod.labels.is_empty() {
            return false;
        }
        for (budget, left) in &mut left {
            let is_about = *budget.namespace == *pod.namespace
                && pod.labels.match_selector(&budget.selector)
                && !budget.disrupted.contains(&*pod.name);
            if is_about {
                *left -= 1;
                is_violated |= *left < 0;
            }
        }
        is_violated
    };
    pods.into_iter().partition(|pod| is_violated(pod))
}

/// The node on which the least is lost; the first of equals.
fn choose(candidates: Vec<Candidate>, now: Timestamp) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let victims = &candidate.victims;
        let highest = victims.first().map_or(i32::MIN, |pod| pod.priority());
        // upstream: so that fewer pods of negative priority are less than more of them.
        let sum: i64 = victims.iter().map(|pod| i64::from(pod.priority()) + (1 << 31)).sum();
        let top = victims.iter().filter(|pod| pod.priority() == highest);
        let earliest = top.map(|pod| pod.started.unwrap_or(now)).min();
        (candidate.violations, highest, sum, victims.len(), Reverse(earliest), candidate.node.clone())
    })
}

#[cfg(test)]
#[path = "preempt_tests.rs"]
mod tests;
