//! Whether a pod may go on a node, and in upstream's words why not.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};

use crate::affinity::{self, Clash};
use crate::cluster::{Cluster, Node, NodeFacts, Usage};
use crate::meter::{Code, Meter, Plugin, Point};
use crate::pod::{Demand, HostPort, PodFacts};
use crate::spread::{self, Skew};

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Who says no, by upstream's names. In the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filter {
    /// The node is cordoned.
    NodeUnschedulable,
    /// The node has taints.
    TaintToleration,
    /// The pod chooses its nodes.
    NodeAffinity,
    /// Ports of the node are taken.
    NodePorts,
    /// There is not enough left.
    NodeResourcesFit,
    /// Pods like this one are to be spread.
    PodTopologySpread,
    /// Pods are to be near to or far from each other.
    InterPodAffinity,
}

impl Filter {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NodeUnschedulable,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
    ];

    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
        }
    }
}

/// Why a pod may not go on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Who says so.
    pub filter: Filter,
    /// Upstream's texts.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether fewer pods on the node could help.
    pub is_resolvable: bool,
}

impl Misfit {
    fn new(filter: Filter, reason: &'static str, is_resolvable: bool) -> Self {
        Self { filter, reasons: vec![reason.into()], is_resolvable }
    }
}

/// What is the same for all nodes while one pod is tried.
#[derive(Clone, Debug, Default)]
pub struct State {
    affinity: affinity::State,
    spread: spread::State,
    /// The affinity state has nothing to say.
    is_affinity_idle: bool,
}

impl State {
    /// Looks around for one pod.
    pub fn of(pod: &PodFacts, cluster: &Cluster, meter: &mut impl Meter) -> Self {
        let skips = |is_idle: bool| if is_idle { Code::Skip } else { Code::Success };
        let spread = meter.plugin(
            Point::PreFilter,
            Plugin::Filter(Filter::PodTopologySpread),
            || spread::State::of(pod, cluster),
            |_| skips(is_spread_idle(pod)),
        );
        let affinity = meter.plugin(
            Point::PreFilter,
            Plugin::Filter(Filter::InterPodAffinity),
            || affinity::State::of(pod, cluster),
            |affinity| skips(affinity.is_idle(pod)),
        );
        let is_affinity_idle = affinity.is_idle(pod);
        Self { affinity, spread, is_affinity_idle }
    }

    /// Another pod comes to a node (`by` is 1) or leaves it (-1).
    pub fn change(&mut self, pod: &PodFacts, other: &PodFacts, node: &NodeFacts, by: i64, cluster: &Cluster) {
        self.affinity.change(pod, other, node, by, cluster);
        self.is_affinity_idle = self.affinity.is_idle(pod);
        self.spread.change(pod, other, node, by);
    }
}

fn is_spread_idle(pod: &PodFacts) -> bool {
    !pod.demand.spread.iter().any(spread::Constraint::is_hard)
}

impl Filter {
    /// Whether it has nothing to say about the pod, whatever the node.
    fn is_idle(self, pod: &PodFacts, state: &State) -> bool {
        match self {
            Self::NodeUnschedulable | Self::TaintToleration | Self::NodeResourcesFit => false,
            Self::NodeAffinity => !pod.demand.chooses_nodes(),
            Self::NodePorts => pod.demand.ports.is_empty(),
            Self::PodTopologySpread => is_spread_idle(pod),
            Self::InterPodAffinity => state.is_affinity_idle,
        }
    }

    fn check(self, pod: &PodFacts, node: &NodeFacts, usage: &Usage, state: &State) -> Option<Misfit> {
        let demand = &*pod.demand;
        let (is_bad, reason, is_resolvable) = match self {
            Self::NodeUnschedulable => {
                let is_let_in = || tolerates(&demand.tolerations, UNSCHEDULABLE_TAINT, "", "NoSchedule");
                (node.is_unschedulable && !is_let_in(), "node(s) were unschedulable", false)
            }
            Self::TaintToleration => (!is_tolerated(demand, node), "node(s) had untolerated taint(s)", false),
            Self::NodeAffinity => {
                (!is_selected(demand, node), "node(s) didn't match Pod's node affinity/selector", false)
            }
            Self::NodePorts => {
                let is_taken = |port: &HostPort| usage.ports.iter().any(|taken| port.conflicts(taken));
                let reason = "node(s) didn't have free ports for the requested pod ports";
                (demand.ports.iter().any(is_taken), reason, true)
            }
            Self::NodeResourcesFit => return shortage(demand, node, usage),
            Self::PodTopologySpread => return skewed(pod, node, state),
            Self::InterPodAffinity => return clashing(pod, node, state),
        };
        is_bad.then(|| Misfit::new(self, reason, is_resolvable))
    }
}

/// `None` when the pod may go on the node as it is; else what the first filter that rejects it says.
pub fn misfit(
    pod: &PodFacts,
    node: &NodeFacts,
    usage: &Usage,
    state: &State,
    meter: &mut impl Meter,
) -> Option<Misfit> {
    let code = |misfit: &Option<Misfit>| match misfit {
        None => Code::Success,
        Some(misfit) if misfit.is_resolvable => Code::Unschedulable,
        Some(_) => Code::Unresolvable,
    };
    let mut asked = Filter::ALL.into_iter().filter(|filter| !filter.is_idle(pod, state));
    asked.find_map(|filter| {
        let check = || filter.check(pod, node, usage, state);
        meter.plugin(Point::Filter, Plugin::Filter(filter), check, code)
    })
}

/// As [`misfit`], also with the pods that are to come to the node and matter as much or more: room that was made for
/// them is not taken. Without them too, since they may go elsewhere and then nobody is near.
pub fn misfit_with_nominated(
    pod: &PodFacts,
    node: &Node,
    usage: &Usage,
    state: &State,
    cluster: &Cluster,
    meter: &mut impl Meter,
) -> Option<Misfit> {
    let first = |other: &PodFacts| other.priority() >= pod.priority() && other.uid != pod.uid;
    let coming: Vec<_> = node.nominated.values().filter(|other| first(other)).collect();
    if !coming.is_empty() {
        let (mut usage, mut state) = (usage.clone(), state.clone());
        for other in coming {
            usage.add(other);
            state.change(pod, other, &node.facts, 1, cluster);
        }
        if let Some(misfit) = misfit(pod, &node.facts, &usage, &state, meter) {
            return Some(misfit);
        }
    }
    misfit(pod, &node.facts, usage, state, meter)
}

/// Whether the pod tolerates all taints that keep pods away.
pub fn is_tolerated(demand: &Demand, node: &NodeFacts) -> bool {
    let keeps_away = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    node.taints.iter().filter(keeps_away).all(|taint| tolerates_taint(&demand.tolerations, taint))
}

/// Whether one of the tolerations tolerates a taint.
pub fn tolerates_taint(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerates(tolerations, &taint.key, taint.value.as_deref().unwrap_or_default(), &taint.effect)
}

fn tolerates(tolerations: &[Toleration], key: &str, value: &str, effect: &str) -> bool {
    tolerations.iter().any(|toleration| {
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        let effect_fits = is_empty(&toleration.effect) || toleration.effect.as_deref() == Some(effect);
        let key_fits = is_empty(&toleration.key) || toleration.key.as_deref() == Some(key);
        let value_fits = match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == value,
            "Exists" => true,
            _ => false,
        };
        effect_fits && key_fits && value_fits
    })
}

/// Whether node selector and required node affinity allow the node.
pub fn is_selected(demand: &Demand, node: &NodeFacts) -> bool {
    let by_selector = demand.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    by_selector && demand.node_affinity.as_ref().is_none_or(|affinity| matches(affinity, node))
}

/// Terms are alternatives.
fn matches(selector: &NodeSelector, node: &NodeFacts) -> bool {
    selector.node_selector_terms.iter().any(|term| matches_term(term, node))
}

/// Whether a node is what a term asks for; an empty one asks for nothing that there is.
pub fn matches_term(term: &NodeSelectorTerm, node: &NodeFacts) -> bool {
    let expressions = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    let is_empty = expressions.clone().next().is_none() && fields.clone().next().is_none();
    let by_label = |wanted: &NodeSelectorRequirement| meets(wanted, node.labels.get(&wanted.key));
    let by_field =
        |wanted: &NodeSelectorRequirement| wanted.key == "metadata.name" && meets(wanted, Some(&node.name));
    !is_empty && expressions.clone().all(by_label) && fields.clone().all(by_field)
}

fn meets(wanted: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_in = value.is_some_and(|value| values.contains(value));
    let compared = || {
        let bound: i64 = values.first()?.parse().ok()?;
        Some(value?.parse::<i64>().ok()?.cmp(&bound))
    };
    match wanted.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

/// What the node has too little of.
pub fn shortage(demand: &Demand, node: &NodeFacts, usage: &Usage) -> Option<Misfit> {
    let (wanted, offered, used) = (&demand.requests, &node.allocatable, &usage.requested);
    let named = [
        ("cpu", wanted.cpu, offered.cpu, used.cpu),
        ("memory", wanted.memory, offered.memory, used.memory),
        ("ephemeral-storage", wanted.storage, offered.storage, used.storage),
    ];
    let others = wanted
        .others
        .iter()
        .map(|(name, amount)| (name.as_str(), *amount, offered.other(name), used.other(name)));
    let is_short = |(_, wanted, offered, used): &(&str, i64, i64, i64)| {
        *wanted > 0 && *wanted > offered.saturating_sub(*used)
    };
    let has_place = usage.pods < node.pods_max;
    // Nearly all nodes that are asked have enough: nothing is made for them.
    let mut short = named.into_iter().chain(others).filter(is_short).peekable();
    if has_place && short.peek().is_none() {
        return None;
    }
    let mut misfit = Misfit { filter: Filter::NodeResourcesFit, reasons: Vec::new(), is_resolvable: true };
    if !has_place {
        misfit.reasons.push("Too many pods".into());
    }
    for (name, wanted, offered, _) in short {
        misfit.reasons.push(format!("Insufficient {name}").into());
        misfit.is_resolvable &= wanted <= offered;
    }
    Some(misfit)
}

fn skewed(pod: &PodFacts, node: &NodeFacts, state: &State) -> Option<Misfit> {
    let (reason, is_resolvable) = match state.spread.check(pod, node)? {
        Skew::NoLabel => {
            ("node(s) didn't match pod topology spread constraints (missing required label)", false)
        }
        Skew::TooMany => ("node(s) didn't match pod topology spread constraints", true),
    };
    Some(Misfit::new(Filter::PodTopologySpread, reason, is_resolvable))
}

fn clashing(pod: &PodFacts, node: &NodeFacts, state: &State) -> Option<Misfit> {
    let (reason, is_resolvable) = match state.affinity.check(pod, node)? {
        Clash::NotNear => ("node(s) didn't match pod affinity rules", false),
        Clash::Near => ("node(s) didn't match pod anti-affinity rules", true),
        Clash::Unwelcome => ("node(s) didn't satisfy existing pods anti-affinity rules", true),
    };
    Some(Misfit::new(Filter::InterPodAffinity, reason, is_resolvable))
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
