//! Which pods are collected, and how. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::cluster::PodFact;

/// How long a node must be gone until its pods are taken for lost: it may only be registering anew.
pub(crate) const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeFact {
    pub(crate) is_ready: bool,
    /// It carries the taint that says it will not come back.
    pub(crate) is_out_of_service: bool,
}

/// Why a pod is collected; also the label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// There are too many that have ended.
    Terminated,
    /// It is being deleted on a node that is out of service.
    OutOfService,
    /// Its node is gone.
    Orphaned,
    /// It is being deleted and never had a node.
    Unscheduled,
}

impl Reason {
    /// As the metric spells it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }

    /// Whether the pod was disrupted, and so gets the condition that says so.
    pub(crate) fn is_disruption(self) -> bool {
        match self {
            Self::Orphaned => true,
            Self::Terminated | Self::OutOfService | Self::Unscheduled => false,
        }
    }
}

/// All that a pass looks at.
pub(crate) struct Observed<'a> {
    pub(crate) pods: Vec<&'a PodFact>,
    pub(crate) nodes: &'a BTreeMap<Arc<str>, NodeFact>,
    /// Nodes that were gone for the quarantine, and that a live request did not find either.
    pub(crate) confirmed_gone: &'a BTreeSet<Arc<str>>,
    /// So many pods that have ended are kept; zero keeps all.
    pub(crate) keep_terminated: usize,
}

/// What to collect, in order.
pub(crate) fn decide<'a>(observed: &Observed<'a>) -> Vec<(Reason, &'a PodFact)> {
    let mut found = terminated(observed);
    let with = |reason: Reason, is_it: &dyn Fn(&PodFact) -> bool| -> Vec<(Reason, &'a PodFact)> {
        observed.pods.iter().filter(|pod| is_it(pod)).map(|pod| (reason, *pod)).collect()
    };
    let node = |pod: &PodFact| pod.node.as_ref().and_then(|name| observed.nodes.get(name));
    found.extend(with(Reason::OutOfService, &|pod| {
        pod.is_deleting && node(pod).is_some_and(|node| !node.is_ready && node.is_out_of_service)
    }));
    found.extend(with(Reason::Orphaned, &|pod| {
        pod.node.as_ref().is_some_and(|name| observed.confirmed_gone.contains(name))
    }));
    found.extend(with(Reason::Unscheduled, &|pod| pod.is_deleting && pod.node.is_none()));
    found
}

/// The pods that have ended beyond the limit: evicted ones first, then the oldest.
fn terminated<'a>(observed: &Observed<'a>) -> Vec<(Reason, &'a PodFact)> {
    if observed.keep_terminated == 0 {
        return Vec::new();
    }
    let mut ended: Vec<&PodFact> = observed.pods.iter().copied().filter(|pod| pod.has_stopped).collect();
    let too_many = ended.len().saturating_sub(observed.keep_terminated);
    ended.sort_by_key(|pod| (!pod.is_evicted, pod.created, &pod.key.name));
    ended.into_iter().take(too_many).map(|pod| (Reason::Terminated, pod)).collect()
}

/// Nodes that pods name and nobody has, and since when. One that is back is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(BTreeMap<Arc<str>, Timestamp>);

impl Quarantine {
    /// Takes in what is seen now, and gives those that were gone long enough to be asked for. If pods are still there
    /// afterwards, their quarantine begins anew.
    pub(crate) fn observe<'a>(
        &mut self,
        pods: impl Iterator<Item = &'a PodFact>,
        nodes: &BTreeMap<Arc<str>, NodeFact>,
        now: Timestamp,
    ) -> Vec<Arc<str>> {
        let gone: BTreeSet<&Arc<str>> =
            pods.filter_map(|pod| pod.node.as_ref()).filter(|node| !nodes.contains_key(*node)).collect();
        self.0.retain(|name, _| gone.contains(name));
        for name in gone {
            self.0.entry(Arc::clone(name)).or_insert(now);
        }
        let is_due = |since: &Timestamp| now.duration_since(*since) >= QUARANTINE;
        self.0.extract_if(.., |_, since| is_due(since)).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(name: &str) -> PodFact {
        PodFact { created: Some(at(0)), node: Some("here".into()), ..PodFact::named(name) }
    }

    fn nodes() -> BTreeMap<Arc<str>, NodeFact> {
        let node = |is_ready, is_out_of_service| NodeFact { is_ready, is_out_of_service };
        BTreeMap::from([
            ("here".into(), node(true, false)),
            ("slow".into(), node(false, false)),
            ("out".into(), node(false, true)),
            ("back".into(), node(true, true)),
        ])
    }

    fn collected(pods: &[PodFact], keep_terminated: usize) -> Vec<(Reason, String)> {
        let confirmed_gone = BTreeSet::from(["gone".into()]);
        let nodes = nodes();
        let pods = pods.iter().collect();
        let observed = Observed { pods, nodes: &nodes, confirmed_gone: &confirmed_gone, keep_terminated };
        decide(&observed).into_iter().map(|(reason, pod)| (reason, pod.key.name.to_string())).collect()
    }

    #[test]
    fn each_case_takes_its_pods_and_no_others() {
        let on = |name: &str, node: Option<&str>, is_deleting| PodFact {
            node: node.map(Arc::from),
            is_deleting,
            ..pod(name)
        };
        let pods = [
            on("runs", Some("here"), false),
            on("ends", Some("here"), true),
            on("ends-slow", Some("slow"), true),
            on("ends-out", Some("out"), true),
            on("runs-out", Some("out"), false),
            on("ends-back", Some("back"), true),
            on("orphan", Some("gone"), false),
            on("maybe", Some("unknown"), false),
            on("waits", None, false),
            on("never", None, true),
        ];
        assert_eq!(
            collected(&pods, 12_500),
            [
                (Reason::OutOfService, "ends-out".to_owned()),
                (Reason::Orphaned, "orphan".to_owned()),
                (Reason::Unscheduled, "never".to_owned()),
            ]
        );
    }

    #[test]
    fn of_too_many_ended_pods_evicted_ones_go_first_and_then_the_oldest() {
        let ended = |name: &str, created, is_evicted| PodFact {
            created: Some(at(created)),
            has_stopped: true,
            is_terminal: true,
            is_evicted,
            ..pod(name)
        };
        let pods = [
            ended("b", 1, false),
            ended("a", 1, false),
            ended("young", 9, false),
            ended("evicted", 5, true),
            pod("runs"),
        ];
        let names = |keep| collected(&pods, keep).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(0), Vec::<String>::new(), "zero keeps all");
        assert_eq!(names(4), Vec::<String>::new());
        assert_eq!(names(2), ["evicted", "a"]);
        assert_eq!(names(1), ["evicted", "a", "b"]);
    }

    #[test]
    fn a_node_must_be_gone_for_a_while_and_one_that_is_back_starts_anew() {
        let lost = [PodFact { node: Some("gone".into()), ..pod("p") }];
        let (nodes, mut quarantine) = (nodes(), Quarantine::default());
        let mut look = |pods: &[PodFact], second| quarantine.observe(pods.iter(), &nodes, at(second));
        let (none, gone): (Vec<Arc<str>>, Vec<Arc<str>>) = (Vec::new(), vec!["gone".into()]);
        assert_eq!(look(&lost, 0), none);
        assert_eq!(look(&lost, 39), none);
        assert_eq!(look(&lost, 40), gone);
        assert_eq!(look(&lost, 41), none, "its pods may be held: again after a while");
        assert_eq!(look(&lost, 81), gone);
        assert_eq!(look(&lost, 82), none);
        assert_eq!(look(&[], 83), none);
        assert_eq!(look(&lost, 90), none);
        assert_eq!(look(&lost, 122), none, "it was not named for a while");
        assert_eq!(look(&lost, 130), gone);
    }
}
