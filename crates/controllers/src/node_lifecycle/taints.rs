//! Which taints a node should have. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(crate) use windlass_api::names::{NOT_READY_TAINT as NOT_READY, UNREACHABLE_TAINT as UNREACHABLE};

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub(crate) const NO_EXECUTE: &str = "NoExecute";
const NO_SCHEDULE: &str = "NoSchedule";

/// Condition, its status, and the taint that goes with it.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels of a time before, and those whose values they have.
const OLD_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")];

/// Taints to add and to take, by key and effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swap {
    pub(crate) add: Vec<(&'static str, &'static str)>,
    pub(crate) take: Vec<(String, &'static str)>,
}

impl Swap {
    /// For the taints that end pods: one comes, the other goes.
    pub(crate) fn ending(add: &'static str, take: &'static str) -> Self {
        Self { add: vec![(add, NO_EXECUTE)], take: vec![(take.to_owned(), NO_EXECUTE)] }
    }

    /// Nothing ends pods any more.
    pub(crate) fn reachable() -> Self {
        let take = [UNREACHABLE, NOT_READY].map(|key| (key.to_owned(), NO_EXECUTE));
        Self { add: Vec::new(), take: take.to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.take.is_empty()
    }
}

pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

pub(crate) fn has(node: &Node, key: &str, effect: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key && taint.effect == effect)
}

/// What keeps pods away from a node, by its conditions.
pub(crate) fn by_conditions(node: &Node) -> Swap {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let mut wanted: Vec<&'static str> = Vec::new();
    for condition in conditions {
        let row = BY_CONDITION
            .iter()
            .find(|(type_, status, _)| condition.type_ == *type_ && condition.status == *status);
        wanted.extend(row.map(|(_, _, key)| *key));
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push(UNSCHEDULABLE);
    }
    let is_ours = |key: &str| key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, ours)| *ours == key);
    let surplus = taints(node)
        .iter()
        .filter(|taint| taint.effect == NO_SCHEDULE && is_ours(&taint.key) && !wanted.contains(&&*taint.key));
    Swap {
        take: surplus.map(|taint| (taint.key.clone(), NO_SCHEDULE)).collect(),
        add: wanted
            .iter()
            .filter(|key| !has(node, key, NO_SCHEDULE))
            .map(|key| (*key, NO_SCHEDULE))
            .collect(),
    }
}

/// The taints of the node after the swap, if they are others. One that is added anew gets a new time.
pub(crate) fn swapped(node: &Node, swap: &Swap, now: Timestamp) -> Option<Vec<Taint>> {
    let mut new = taints(node).to_vec();
    for (key, effect) in &swap.add {
        let taint = Taint {
            key: (*key).to_owned(),
            effect: (*effect).to_owned(),
            time_added: Some(Time(now)),
            value: None,
        };
        match new.iter_mut().find(|old| old.key == *key && old.effect == *effect) {
            Some(old) => *old = taint,
            None => new.push(taint),
        }
    }
    new.retain(|taint| !swap.take.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect));
    (new != taints(node)).then_some(new)
}

/// Labels that are missing or say something else than those they follow.
pub(crate) fn labels(node: &Node) -> BTreeMap<&'static str, String> {
    let labels = node.metadata.labels.as_ref();
    let value = |name: &str| labels.and_then(|labels| labels.get(name));
    let differs = |(old, new): &(&'static str, &'static str)| {
        value(new)
            .filter(|value| labels.and_then(|labels| labels.get(*old)) != Some(value))
            .map(|value| (*old, value.clone()))
    };
    OLD_LABELS.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(taints: &Value, conditions: &Value) -> Node {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
                          "status": {"conditions": conditions}});
        serde_json::from_value(node).expect("a node")
    }

    fn taint(key: &str, effect: &str) -> Value {
        json!({"key": key, "effect": effect})
    }

    #[test]
    fn each_condition_keeps_pods_away_by_a_taint_of_its_own() {
        let is = |type_: &str, status: &str| json!({"type": type_, "status": status});
        let none = json!([]);
        let cases = [
            (none.clone(), json!([is("Ready", "True")]), vec![], vec![]),
            (none.clone(), json!([is("Ready", "False")]), vec!["not-ready"], vec![]),
            (
                none.clone(),
                json!([is("Ready", "Unknown"), is("DiskPressure", "True")]),
                vec!["unreachable", "disk-pressure"],
                vec![],
            ),
            (
                none.clone(),
                json!([
                    is("MemoryPressure", "Unknown"),
                    is("NetworkUnavailable", "True"),
                    is("PIDPressure", "True")
                ]),
                vec!["network-unavailable", "pid-pressure"],
                vec![],
            ),
            (
                json!([taint(NOT_READY, "NoSchedule")]),
                json!([is("Ready", "True")]),
                vec![],
                vec!["not-ready"],
            ),
            (
                json!([taint(NOT_READY, "NoSchedule")]),
                json!([is("Ready", "Unknown")]),
                vec!["unreachable"],
                vec!["not-ready"],
            ),
            (json!([taint(UNREACHABLE, "NoSchedule")]), json!([is("Ready", "Unknown")]), vec![], vec![]),
            // Others' taints, and those that end pods, are none of this.
            (
                json!([taint(NOT_READY, "NoExecute"), taint("example.com/x", "NoSchedule")]),
                json!([is("Ready", "True")]),
                vec![],
                vec![],
            ),
        ];
        for (taints, conditions, add, take) in cases {
            let swap = by_conditions(&node(&taints, &conditions));
            let short = |key: &str| key.trim_start_matches("node.kubernetes.io/").to_owned();
            let found: (Vec<_>, Vec<_>) = (
                swap.add.iter().map(|(key, _)| short(key)).collect(),
                swap.take.iter().map(|(key, _)| short(key)).collect(),
            );
            assert_eq!(
                found,
                (add.into_iter().map(str::to_owned).collect(), take.into_iter().map(str::to_owned).collect()),
                "{taints} {conditions}"
            );
        }
        let mut cordoned = node(&none, &none);
        cordoned.spec.as_mut().expect("a spec").unschedulable = Some(true);
        assert_eq!(by_conditions(&cordoned).add, [(UNSCHEDULABLE, "NoSchedule")]);
    }

    #[test]
    fn a_swap_adds_with_the_time_and_takes_by_key_and_effect() {
        let now = Timestamp::from_second(7).expect("a time");
        let tainted =
            node(&json!([taint(NOT_READY, "NoExecute"), taint(NOT_READY, "NoSchedule")]), &json!([]));
        let new = swapped(&tainted, &Swap::ending(UNREACHABLE, NOT_READY), now).expect("they are others");
        let shown: Vec<_> =
            new.iter().map(|one| (&*one.key, &*one.effect, one.time_added.is_some())).collect();
        assert_eq!(shown, [(NOT_READY, "NoSchedule", false), (UNREACHABLE, "NoExecute", true)]);
        assert_eq!(swapped(&node(&json!([]), &json!([])), &Swap::reachable(), now), None);
        assert!(Swap::default().is_empty() && !Swap::reachable().is_empty());
    }

    #[test]
    fn labels_of_a_time_before_follow_those_of_today() {
        let labelled = |labels: Value| {
            let node: Node = serde_json::from_value(json!({"metadata": {"labels": labels}})).expect("a node");
            super::labels(&node)
        };
        let arch = BTreeMap::from([("beta.kubernetes.io/arch", "amd64".to_owned())]);
        assert_eq!(labelled(json!({"kubernetes.io/arch": "amd64"})), arch);
        assert_eq!(labelled(json!({"kubernetes.io/arch": "amd64", "beta.kubernetes.io/arch": "arm"})), arch);
        assert_eq!(
            labelled(json!({"kubernetes.io/arch": "a", "beta.kubernetes.io/arch": "a"})),
            BTreeMap::new()
        );
        assert_eq!(labelled(json!({"beta.kubernetes.io/os": "linux"})), BTreeMap::new());
    }
}
