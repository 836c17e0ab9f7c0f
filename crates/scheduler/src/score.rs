//! Which of the nodes that do is the best: the emptiest, the most evenly used, the one that is wanted most.
//!
//! Each score goes from 0 to 100, has upstream's weight, and all are added up. Upstream chooses among equals by
//! chance; here the one with the fewest pods is taken, then the first by name: the same view makes the same choice.

use crate::affinity::Liking;
use crate::cluster::{Cluster, Node};
use crate::fit::{Filter, matches_term, tolerates_taint};
use crate::meter::{Code, Meter, Plugin, Point};
use crate::pod::{Demand, PodFacts};
use crate::spread;

const TAINT_WEIGHT: i64 = 3;
const NODE_AFFINITY_WEIGHT: i64 = 2;
const SPREAD_WEIGHT: i64 = 2;
const POD_AFFINITY_WEIGHT: i64 = 2;

/// The best of some nodes; `None` if there are none.
pub fn best<'a>(
    pod: &PodFacts,
    cluster: &Cluster,
    nodes: &[&'a Node],
    meter: &mut impl Meter,
) -> Option<&'a Node> {
    // upstream: one node is not scored.
    if let [] | [_] = nodes {
        return nodes.first().copied();
    }
    let scores = meter.point(Point::Score, |meter| totals(pod, cluster, nodes, meter), |_| Code::Success);
    let places = nodes.iter().zip(scores).enumerate();
    let best = places.max_by_key(|(place, (node, score))| {
        (*score, std::cmp::Reverse(node.usage.pods), std::cmp::Reverse(*place))
    });
    best.map(|(_, (node, _))| *node)
}

/// The score of each node.
pub fn totals(pod: &PodFacts, cluster: &Cluster, nodes: &[&Node], meter: &mut impl Meter) -> Vec<i64> {
    let demand = &*pod.demand;
    let each = |score: &dyn Fn(&Node) -> i64| nodes.iter().map(|node| score(node)).collect::<Vec<i64>>();
    let mut totals = vec![0; nodes.len()];
    let mut add = |plugin: Plugin, weight: i64, scores: &dyn Fn() -> Option<Vec<i64>>| {
        let code = |scores: &Option<Vec<i64>>| scores.as_ref().map_or(Code::Skip, |_| Code::Success);
        let scores = meter.plugin(Point::Score, plugin, scores, code);
        for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
            *total += weight * score;
        }
    };
    let by = Plugin::Filter;
    add(by(Filter::NodeResourcesFit), 1, &|| Some(each(&|node| least_allocated(demand, node))));
    add(Plugin::Balance, 1, &|| Some(each(&|node| balanced(demand, node))));
    add(by(Filter::TaintToleration), TAINT_WEIGHT, &|| {
        Some(reversed(&each(&|node| disliked_taints(demand, node))))
    });
    add(by(Filter::NodeAffinity), NODE_AFFINITY_WEIGHT, &|| {
        let has_wishes = !demand.node_preferences.is_empty();
        has_wishes.then(|| scaled(&each(&|node| preferred(demand, node))))
    });
    add(by(Filter::PodTopologySpread), SPREAD_WEIGHT, &|| spread::scores(pod, cluster, nodes));
    add(by(Filter::InterPodAffinity), POD_AFFINITY_WEIGHT, &|| {
        let liking = Liking::of(pod, cluster);
        (!liking.is_empty()).then(|| stretched(&each(&|node| liking.of_node(&node.facts))))
    });
    totals
}

/// How much of CPU and memory would be left, on average.
fn least_allocated(demand: &Demand, node: &Node) -> i64 {
    let (offered, used) = (&node.facts.allocatable, &node.usage.weight);
    let left = |offered: i64, used: i64| match offered {
        0 => None,
        _ if used > offered => Some(0),
        _ => Some((offered - used) * 100 / offered),
    };
    let scores = [
        left(offered.cpu, used.cpu + demand.weight.cpu),
        left(offered.memory, used.memory + demand.weight.memory),
    ];
    let count = scores.iter().flatten().count() as i64;
    scores.iter().flatten().sum::<i64>().checked_div(count).unwrap_or(0)
}

/// Whether CPU and memory would be used to the same degree, compared with how it is now.
fn balanced(demand: &Demand, node: &Node) -> i64 {
    let (wanted, offered, used) = (&demand.requests, &node.facts.allocatable, &node.usage.requested);
    if wanted.cpu == 0 && wanted.memory == 0 {
        return 0;
    }
    let with = evenness(used.cpu + wanted.cpu, used.memory + wanted.memory, offered.cpu, offered.memory);
    let without = evenness(used.cpu, used.memory, offered.cpu, offered.memory);
    50 + (50 + with - without) / 2
}

fn evenness(cpu: i64, memory: i64, cpu_offered: i64, memory_offered: i64) -> i64 {
    let share = |used: i64, offered: i64| (used as f64 / offered as f64).min(1.0);
    if cpu_offered == 0 || memory_offered == 0 {
        return 100;
    }
    let difference = (share(cpu, cpu_offered) - share(memory, memory_offered)).abs() / 2.0;
    ((1.0 - difference) * 100.0) as i64
}

/// Taints that the pod would rather avoid.
fn disliked_taints(demand: &Demand, node: &Node) -> i64 {
    let taints = node.facts.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    taints.filter(|taint| !tolerates_taint(&demand.tolerations, taint)).count() as i64
}

/// The weights of the preferences that a node meets. An empty preference is met by none.
fn preferred(demand: &Demand, node: &Node) -> i64 {
    let met = demand.node_preferences.iter().filter(|term| matches_term(&term.preference, &node.facts));
    met.map(|term| i64::from(term.weight)).sum()
}

/// The most gets 100.
fn scaled(scores: &[i64]) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    scores.iter().map(|score| if most == 0 { 0 } else { 100 * score / most }).collect()
}

/// Nothing gets 100.
fn reversed(scores: &[i64]) -> Vec<i64> {
    scaled(scores).into_iter().map(|score| 100 - score).collect()
}

/// The least gets 0, the most 100.
fn stretched(scores: &[i64]) -> Vec<i64> {
    let (least, most) =
        (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    let stretch = |score: &i64| match most - least {
        0 => 0,
        range => (100.0 * ((score - least) as f64 / range as f64)) as i64,
    };
    scores.iter().map(stretch).collect()
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
