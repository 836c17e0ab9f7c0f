//! Whether a pod that was bound to this node may run on it, and who has to go for a critical one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use windlass_api::resources::aggregate;

use crate::shutdown::CRITICAL_PRIORITY;
use crate::status;

/// Amounts by resource: cpu in thousandths, everything else in whole units.
pub type Amounts = BTreeMap<String, i64>;

/// What a pod holds of the node while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which pod.
    pub uid: String,
    /// `spec.priority`.
    pub priority: i32,
    /// Its quality of service.
    pub qos: &'static str,
    /// What it requested.
    pub requests: Amounts,
}

impl Held {
    /// What this pod holds.
    pub fn of(uid: &str, spec: &PodSpec) -> Self {
        Self {
            uid: uid.to_owned(),
            priority: spec.priority.unwrap_or(0),
            qos: status::qos_class(spec),
            requests: requests(spec),
        }
    }

    fn amount(&self, resource: &str) -> i64 {
        if resource == PODS { 1 } else { self.requests.get(resource).copied().unwrap_or(0) }
    }
}

const PODS: &str = "pods";

/// The requests of a pod: those of its containers together or its own, and its overhead.
fn requests(spec: &PodSpec) -> Amounts {
    let amount = |name: &str, quantity: windlass_api::quantity::Quantity| {
        if name == "cpu" { quantity.milli_value() } else { quantity.value() }
    };
    let of_containers = aggregate(spec, |resources| resources.requests.as_ref());
    let mut total: Amounts =
        of_containers.into_iter().map(|(name, quantity)| (name.clone(), amount(&name, quantity))).collect();
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    for (name, text) in own.into_iter().flatten() {
        if let Ok(quantity) = text.0.parse() {
            total.insert(name.clone(), amount(name, quantity));
        }
    }
    for (name, text) in spec.overhead.iter().flatten() {
        if let Ok(quantity) = text.0.parse() {
            *total.entry(name.clone()).or_default() += amount(name, quantity);
        }
    }
    total
}

/// The pods on a node and what they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By UID.
    held: BTreeMap<String, Held>,
    used: Amounts,
}

impl Ledger {
    /// A pod runs.
    pub fn add(&mut self, pod: Held) {
        self.remove(&pod.uid);
        self.count(&pod, 1);
        self.held.insert(pod.uid.clone(), pod);
    }

    /// A pod holds nothing any more.
    pub fn remove(&mut self, uid: &str) {
        if let Some(pod) = self.held.remove(uid) {
            self.count(&pod, -1);
        }
    }

    fn count(&mut self, pod: &Held, times: i64) {
        for (resource, amount) in &pod.requests {
            *self.used.entry(resource.clone()).or_default() += amount * times;
        }
        *self.used.entry(PODS.to_owned()).or_default() += times;
    }
}

/// What the node is like.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// What it has for pods.
    pub allocatable: &'a Amounts,
    /// The pods on it.
    pub ledger: &'a Ledger,
    /// Its conditions of pressure that are true.
    pub pressure: &'a [&'static str],
    /// It shuts down.
    pub is_closing: bool,
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Admit,
    /// It may run when these are gone.
    Preempt(Vec<String>),
    /// It may not.
    Reject {
        /// `status.reason`.
        reason: String,
        /// More about it.
        message: String,
    },
}

impl Verdict {
    fn reject(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Reject { reason: reason.into(), message: message.into() }
    }
}

/// Judges a pod that has just come. The order of questions is upstream's.
pub fn judge(pod: &Held, tolerations: &[Toleration], node: &Node<'_>) -> Verdict {
    if node.is_closing {
        return Verdict::reject("NodeShutdown", "Pod was rejected as the node is shutting down.");
    }
    let is_critical = pod.priority >= CRITICAL_PRIORITY;
    if !node.pressure.is_empty() && !is_critical && !bears(pod, tolerations, node.pressure) {
        return Verdict::reject(
            "Evicted",
            format!("The node had condition: [{}]. ", node.pressure.join(" ")),
        );
    }
    let short = shortages(pod, node);
    let Some(first) = short.first() else { return Verdict::Admit };
    if is_critical && let Some(victims) = victims(pod, node.ledger, &short) {
        return Verdict::Preempt(victims);
    }
    let Short { resource, requested, used, capacity } = first;
    let message = format!(
        "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    Verdict::reject(format!("OutOf{resource}"), message)
}

/// A pod can come while only memory is short, if it asked for some or says that it bears it.
fn bears(pod: &Held, tolerations: &[Toleration], pressure: &[&str]) -> bool {
    let tolerates = tolerations.iter().any(|toleration| {
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        let key = is_empty(&toleration.key)
            || toleration.key.as_deref() == Some("node.kubernetes.io/memory-pressure");
        let effect = is_empty(&toleration.effect) || toleration.effect.as_deref() == Some("NoSchedule");
        let value = toleration.operator.as_deref() == Some("Exists") || is_empty(&toleration.value);
        key && effect && value
    });
    pressure == ["MemoryPressure"] && (pod.qos != "BestEffort" || tolerates)
}

#[derive(Clone, Debug)]
struct Short {
    resource: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Short {
    fn missing(&self) -> i64 {
        self.requested - (self.capacity - self.used)
    }
}

/// What is not there for the pod; pods, cpu and memory first.
fn shortages(pod: &Held, node: &Node<'_>) -> Vec<Short> {
    let first = [PODS, "cpu", "memory", "ephemeral-storage"];
    let others: BTreeSet<&str> =
        pod.requests.keys().map(String::as_str).filter(|name| !first.contains(name)).collect();
    let resources = first.into_iter().chain(others);
    let short = resources.filter_map(|resource| {
        // What the node does not know is not its business.
        let capacity = *node.allocatable.get(resource)?;
        let requested = pod.amount(resource);
        let used = node.ledger.used.get(resource).copied().unwrap_or(0);
        let is_short = requested > 0 && requested > capacity - used;
        is_short.then(|| Short { resource: resource.to_owned(), requested, used, capacity })
    });
    short.collect()
}

/// Requirements that are not met yet, by resource.
type Needs = Vec<(String, i64)>;

fn without<'a>(needs: &Needs, pods: impl IntoIterator<Item = &'a Held> + Clone) -> Needs {
    let left = needs.iter().map(|(resource, need)| {
        let freed: i64 = pods.clone().into_iter().map(|pod| pod.amount(resource)).sum();
        (resource.clone(), need - freed)
    });
    left.filter(|(_, need)| *need > 0).collect()
}

/// Who has to go for a critical pod: as few guaranteed pods as possible, then as few burstable ones, then the rest.
/// `None` when it would not help.
fn victims(pod: &Held, ledger: &Ledger, short: &[Short]) -> Option<Vec<String>> {
    let of = |qos: &str| -> Vec<Held> {
        let can_go = |held: &&Held| held.priority < CRITICAL_PRIORITY || held.priority < pod.priority;
        ledger.held.values().filter(can_go).filter(|held| held.qos == qos).cloned().collect()
    };
    let (best_effort, burstable, guaranteed) = (of("BestEffort"), of("Burstable"), of("Guaranteed"));
    let needs: Needs = short.iter().map(|short| (short.resource.clone(), short.missing())).collect();
    let guaranteed = nearest(guaranteed, without(&needs, best_effort.iter().chain(&burstable)))?;
    let burstable = nearest(burstable, without(&needs, best_effort.iter().chain(&guaranteed)))?;
    let best_effort = nearest(best_effort, without(&needs, burstable.iter().chain(&guaranteed)))?;
    let all = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Some(all.map(|held| held.uid).collect())
}

/// Takes the pod that is nearest to what is needed, again and again, until nothing is.
fn nearest(mut pods: Vec<Held>, mut needs: Needs) -> Option<Vec<Held>> {
    let mut taken = Vec::new();
    while !needs.is_empty() {
        let smaller = |pod: &Held| (pod.amount("memory"), pod.amount("cpu"));
        let place = (0..pods.len()).min_by(|a, b| {
            distance(&needs, &pods[*a])
                .total_cmp(&distance(&needs, &pods[*b]))
                .then_with(|| smaller(&pods[*a]).cmp(&smaller(&pods[*b])))
        })?;
        let pod = pods.swap_remove(place);
        needs = without(&needs, [&pod]);
        taken.push(pod);
    }
    Some(taken)
}

/// How far a pod is from what is needed, each need counted alike.
#[allow(clippy::cast_precision_loss)] // a part of the whole: the last bits do not matter
fn distance(needs: &Needs, pod: &Held) -> f64 {
    let parts = needs.iter().map(|(resource, need)| {
        let left = (need - pod.amount(resource)).max(0);
        (left as f64 / *need as f64).powi(2)
    });
    parts.sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn amounts(cpu: i64, memory: i64) -> Amounts {
        Amounts::from([("cpu".into(), cpu), ("memory".into(), memory)])
    }

    fn held(uid: &str, priority: i32, qos: &'static str, cpu: i64, memory: i64) -> Held {
        Held { uid: uid.into(), priority, qos, requests: amounts(cpu, memory) }
    }

    fn judged(pod: &Held, on_node: &[Held], pressure: &[&'static str], is_closing: bool) -> Verdict {
        let allocatable = Amounts::from([("cpu".into(), 1000), ("memory".into(), 100), ("pods".into(), 3)]);
        let mut ledger = Ledger::default();
        on_node.iter().for_each(|pod| ledger.add(pod.clone()));
        let node = Node { allocatable: &allocatable, ledger: &ledger, pressure, is_closing };
        judge(pod, &[], &node)
    }

    #[test]
    fn what_a_pod_held_is_free_when_it_is_gone() {
        let mut ledger = Ledger::default();
        ledger.add(held("a", 0, "Burstable", 5, 6));
        ledger.add(held("a", 0, "Burstable", 5, 6));
        ledger.add(held("b", 0, "Burstable", 1, 1));
        ledger.remove("a");
        ledger.remove("none");
        let used = [("cpu", 1), ("memory", 1), ("pods", 1)].map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(ledger.used, Amounts::from(used));
    }

    #[test]
    fn requests_are_those_of_all_that_run_at_once() {
        let spec = serde_json::from_value(json!({
            "overhead": {"cpu": "10m"},
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "250m"}}},
            ],
        }));
        let got = Held::of("u", &spec.expect("a spec"));
        assert_eq!(got, Held { requests: amounts(2010, 1 << 20), ..held("u", 0, "Burstable", 0, 0) });
    }

    #[test]
    fn a_pod_that_does_not_fit_is_rejected_with_the_first_reason() {
        let message = |resource: &str, requested: i64, used: i64, capacity: i64| {
            format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            )
        };
        let reject = |reason: &str, message: String| Verdict::reject(reason, message);
        let other = held("other", 0, "Burstable", 600, 50);
        let three = vec![held("a", 0, "BestEffort", 0, 0), held("b", 0, "BestEffort", 0, 0), other.clone()];
        for (pod, on_node, want) in [
            (held("p", 0, "Burstable", 400, 50), vec![other.clone()], Verdict::Admit),
            (
                held("p", 0, "Burstable", 401, 51),
                vec![other.clone()],
                reject("OutOfcpu", message("cpu", 401, 600, 1000)),
            ),
            (
                held("p", 0, "Burstable", 1, 51),
                vec![other.clone()],
                reject("OutOfmemory", message("memory", 51, 50, 100)),
            ),
            (held("p", 0, "BestEffort", 0, 0), three, reject("OutOfpods", message("pods", 1, 3, 3))),
        ] {
            assert_eq!(judged(&pod, &on_node, &[], false), want, "{pod:?}");
        }
    }

    #[test]
    fn a_node_that_closes_or_is_short_takes_only_who_may_come() {
        let (best_effort, burstable) = (held("p", 0, "BestEffort", 0, 0), held("p", 0, "Burstable", 1, 1));
        let critical = held("p", CRITICAL_PRIORITY, "BestEffort", 0, 0);
        let (memory, disk) = (&["MemoryPressure"][..], &["DiskPressure"][..]);
        let evicted = |text: &str| Verdict::reject("Evicted", format!("The node had condition: [{text}]. "));
        for (pod, pressure, is_closing, want) in [
            (&burstable, memory, false, Verdict::Admit),
            (&best_effort, memory, false, evicted("MemoryPressure")),
            (&burstable, disk, false, evicted("DiskPressure")),
            (&critical, disk, false, Verdict::Admit),
            (
                &critical,
                &[],
                true,
                Verdict::reject("NodeShutdown", "Pod was rejected as the node is shutting down."),
            ),
        ] {
            assert_eq!(judged(pod, &[], pressure, is_closing), want, "{pod:?} {pressure:?}");
        }
        let allocatable = Amounts::new();
        let ledger = Ledger::default();
        let node = Node { allocatable: &allocatable, ledger: &ledger, pressure: memory, is_closing: false };
        let toleration: Toleration = serde_json::from_value(
            json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}),
        )
        .expect("a toleration");
        assert_eq!(judge(&best_effort, &[toleration], &node), Verdict::Admit);
    }

    #[test]
    fn a_critical_pod_takes_the_place_of_as_few_and_as_cheap_pods_as_possible() {
        let critical = held("p", CRITICAL_PRIORITY, "Burstable", 500, 10);
        let small = held("small", 0, "Burstable", 200, 10);
        let big = held("big", 0, "Burstable", 600, 10);
        let precious = held("precious", 0, "Guaranteed", 800, 10);
        let peer = held("peer", CRITICAL_PRIORITY, "Guaranteed", 900, 10);
        let preempt = |uids: &[&str]| Verdict::Preempt(uids.iter().map(|uid| (*uid).to_owned()).collect());
        for (on_node, want) in [
            (vec![small.clone(), big.clone()], preempt(&["big"])),
            (vec![small.clone(), precious.clone()], preempt(&["precious"])),
            (vec![precious], preempt(&["precious"])),
            (
                vec![peer],
                Verdict::reject(
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 500, used: 900, capacity: 1000",
                ),
            ),
        ] {
            assert_eq!(judged(&critical, &on_node, &[], false), want, "{on_node:?}");
        }
    }
}
