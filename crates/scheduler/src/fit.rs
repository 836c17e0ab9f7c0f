//! Whether a pod fits on a node, and in upstream's words why it does not.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use windlass_api::quantity::Quantity;
use windlass_api::resources::aggregate;

/// Amounts by resource: cpu in thousandths, everything else in whole units.
pub type Amounts = BTreeMap<String, i64>;

const CPU: &str = "cpu";
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// What a pod asks of a node. Pods with equal demands fit on the same nodes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Demand {
    /// What all its containers request together.
    pub requests: Amounts,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The node affinity that is required.
    pub affinity: Option<NodeSelector>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
}

impl Demand {
    /// What a pod asks for.
    pub fn of(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        Self {
            requests: requests(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            affinity: affinity
                .and_then(|node| node.required_during_scheduling_ignored_during_execution.clone()),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        }
    }
}

fn amount(resource: &str, quantity: Quantity) -> i64 {
    if resource == CPU { quantity.milli_value() } else { quantity.value() }
}

fn amounts(list: Option<&BTreeMap<String, Text>>) -> Amounts {
    let parsed = list.into_iter().flatten().filter_map(|(name, text)| Some((name, text.0.parse().ok()?)));
    parsed.map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// The requests of a pod: what its containers hold at most at any time, or what the pod itself says, and its
/// overhead.
pub fn requests(spec: &PodSpec) -> Amounts {
    let of_containers = aggregate(spec, |resources| resources.requests.as_ref());
    let whole = |(name, quantity): (String, Quantity)| {
        let amount = amount(&name, quantity);
        (name, amount)
    };
    let mut total: Amounts = of_containers.into_iter().map(whole).collect();
    total.extend(amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())));
    add(&mut total, &amounts(spec.overhead.as_ref()));
    total.retain(|_, amount| *amount != 0);
    total
}

/// What a scheduler has to know about a node.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.unschedulable`.
    pub is_unschedulable: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// `status.allocatable`, the number of pods among it.
    pub allocatable: Amounts,
}

impl NodeFacts {
    /// The facts of a node.
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: amounts(node.status.as_ref().and_then(|status| status.allocatable.as_ref())),
        }
    }
}

/// What the pods of a node hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Their requests.
    pub requests: Amounts,
    /// How many they are.
    pub pods: i64,
}

impl Usage {
    /// Counts a pod.
    pub fn add(&mut self, requests: &Amounts) {
        add(&mut self.requests, requests);
        self.pods += 1;
    }

    /// Counts a pod no longer.
    pub fn remove(&mut self, requests: &Amounts) {
        for (resource, amount) in requests {
            *self.requests.entry(resource.clone()).or_default() -= amount;
        }
        self.pods -= 1;
    }
}

/// Why a pod does not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Upstream's texts.
    pub reasons: Vec<String>,
    /// Whether fewer pods on the node could help.
    pub is_resolvable: bool,
}

impl Misfit {
    fn for_good(reason: &str) -> Self {
        Self { reasons: vec![reason.into()], is_resolvable: false }
    }
}

/// `None` when the pod fits; else what the first filter that rejects the node says. The order of filters is
/// upstream's.
pub fn misfit(demand: &Demand, node: &NodeFacts, usage: &Usage) -> Option<Misfit> {
    if node.is_unschedulable && !tolerates(&demand.tolerations, UNSCHEDULABLE_TAINT, "", "NoSchedule") {
        return Some(Misfit::for_good("node(s) were unschedulable"));
    }
    let is_hard = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let is_untolerated = |taint: &Taint| {
        let value = taint.value.as_deref().unwrap_or_default();
        !tolerates(&demand.tolerations, &taint.key, value, &taint.effect)
    };
    if node.taints.iter().filter(is_hard).any(is_untolerated) {
        return Some(Misfit::for_good("node(s) had untolerated taint(s)"));
    }
    if !is_selected(demand, node) {
        return Some(Misfit::for_good("node(s) didn't match Pod's node affinity/selector"));
    }
    shortage(demand, node, usage)
}

/// Whether one of the tolerations tolerates a taint.
pub fn tolerates(tolerations: &[Toleration], key: &str, value: &str, effect: &str) -> bool {
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

fn is_selected(demand: &Demand, node: &NodeFacts) -> bool {
    let by_selector = demand.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    by_selector && demand.affinity.as_ref().is_none_or(|affinity| matches(affinity, node))
}

/// Terms are alternatives; an empty one matches nothing.
fn matches(selector: &NodeSelector, node: &NodeFacts) -> bool {
    selector.node_selector_terms.iter().any(|term| {
        let expressions = term.match_expressions.iter().flatten();
        let fields = term.match_fields.iter().flatten();
        let is_empty = expressions.clone().next().is_none() && fields.clone().next().is_none();
        let by_label = |wanted: &NodeSelectorRequirement| meets(wanted, node.labels.get(&wanted.key));
        let by_field = |wanted: &NodeSelectorRequirement| {
            wanted.key == "metadata.name" && meets(wanted, Some(&node.name))
        };
        !is_empty && expressions.clone().all(by_label) && fields.clone().all(by_field)
    })
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

fn shortage(demand: &Demand, node: &NodeFacts, usage: &Usage) -> Option<Misfit> {
    let allocatable = |resource: &str| node.allocatable.get(resource).copied().unwrap_or(0);
    let mut misfit = Misfit { reasons: Vec::new(), is_resolvable: true };
    if usage.pods + 1 > allocatable("pods") {
        misfit.reasons.push("Too many pods".into());
    }
    for (resource, wanted) in &demand.requests {
        let used = usage.requests.get(resource).copied().unwrap_or(0);
        if *wanted > allocatable(resource).saturating_sub(used) {
            misfit.reasons.push(format!("Insufficient {resource}"));
            misfit.is_resolvable &= *wanted <= allocatable(resource);
        }
    }
    (!misfit.reasons.is_empty()).then_some(misfit)
}

/// The first node, by name, on which a pod fits; or the message of a pod that fits on none.
pub fn first_fit<'a>(
    demand: &Demand,
    nodes: impl IntoIterator<Item = (&'a NodeFacts, &'a Usage)>,
) -> Result<&'a str, String> {
    let mut misfits = Vec::new();
    for (node, usage) in nodes {
        match misfit(demand, node, usage) {
            None => return Ok(&node.name),
            Some(misfit) => misfits.push(misfit),
        }
    }
    Err(message(demand, &misfits))
}

fn message(demand: &Demand, misfits: &[Misfit]) -> String {
    if misfits.is_empty() {
        return "no nodes available to schedule pods".into();
    }
    let reasons = misfits.iter().flat_map(|misfit| misfit.reasons.iter().map(String::as_str));
    let preemption = if demand.never_preempts {
        "not eligible due to preemptionPolicy=Never.".to_owned()
    } else {
        let help = misfits.iter().map(|misfit| match misfit.is_resolvable {
            true => "No preemption victims found for incoming pod",
            false => "Preemption is not helpful for scheduling",
        });
        histogram(misfits.len(), help)
    };
    format!("{} preemption: {preemption}", histogram(misfits.len(), reasons))
}

/// `0/N nodes are available: <count> <reason>, …`, sorted as text.
fn histogram<'a>(nodes: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    reasons.for_each(|reason| *counts.entry(reason).or_default() += 1);
    let texts: BTreeSet<String> =
        counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let texts: Vec<String> = texts.into_iter().collect();
    format!("0/{nodes} nodes are available: {}.", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(mut value: Value) -> PodSpec {
        if value.get("containers").is_none() {
            value["containers"] = json!([{"name": "c"}]);
        }
        serde_json::from_value(value).expect("a pod spec")
    }

    fn node(value: Value) -> NodeFacts {
        let mut node = json!({
            "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}},
        });
        merge(&mut node, value);
        NodeFacts::of(&serde_json::from_value(node).expect("a node"))
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter()
                    .for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, from) => *into = from,
        }
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_are_the_most_that_a_pod_holds_at_any_time() {
        let sidecar = |name: &str, cpu: &str| {
            let mut sidecar = container(name, cpu);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        for (value, want) in [
            (json!({}), None),
            (json!({"containers": [container("a", "250m"), container("b", "1")]}), Some(1250)),
            (
                json!({"initContainers": [container("i", "2")], "containers": [container("a", "1")]}),
                Some(2000),
            ),
            (
                json!({"initContainers": [container("i", "1")], "containers": [container("a", "2")]}),
                Some(2000),
            ),
            (json!({"initContainers": [sidecar("s", "1")], "containers": [container("a", "2")]}), Some(3000)),
            // An init container runs beside the sidecars declared before it, not beside those after it.
            (
                json!({"initContainers": [sidecar("s", "1"), container("i", "3")], "containers": [container("a", "1")]}),
                Some(4000),
            ),
            (
                json!({"initContainers": [container("i", "3"), sidecar("s", "1")], "containers": [container("a", "1")]}),
                Some(3000),
            ),
            (
                json!({"resources": {"requests": {"cpu": "5"}}, "containers": [container("a", "1")]}),
                Some(5000),
            ),
            (json!({"overhead": {"cpu": "100m"}, "containers": [container("a", "1")]}), Some(1100)),
        ] {
            let want: Amounts = want.map(|cpu| (CPU.to_owned(), cpu)).into_iter().collect();
            assert_eq!(requests(&spec(value.clone())), want, "{value}");
        }
    }

    #[test]
    fn a_node_is_refused_for_the_first_reason_in_upstreams_order() {
        let taint = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}});
        let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
        let cordoned =
            json!({"spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]}});
        let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
        let affinity = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
        };
        let labels = json!({"metadata": {"labels": {"disk": "ssd", "size": "8"}}});
        let expression = |key: &str, operator: &str, values: Value| {
            affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
        };
        let selector = "node(s) didn't match Pod's node affinity/selector";
        let taints = "node(s) had untolerated taint(s)";
        for (pod, facts, want) in [
            (json!({}), json!({}), None),
            (json!({}), cordoned.clone(), Some("node(s) were unschedulable")),
            (
                tolerate(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})),
                cordoned.clone(),
                Some(taints),
            ),
            (tolerate(json!({"operator": "Exists"})), cordoned, None),
            (json!({}), soft, None),
            (json!({}), taint.clone(), Some(taints)),
            (tolerate(json!({"key": "k", "value": "v"})), taint.clone(), None),
            (tolerate(json!({"key": "k", "value": "w"})), taint.clone(), Some(taints)),
            (tolerate(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})), taint.clone(), None),
            (
                tolerate(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})),
                taint,
                Some(taints),
            ),
            (json!({"nodeSelector": {"disk": "ssd"}}), labels.clone(), None),
            (json!({"nodeSelector": {"disk": "ssd"}}), json!({}), Some(selector)),
            (expression("disk", "In", json!(["ssd"])), labels.clone(), None),
            (expression("disk", "In", json!(["hdd"])), labels.clone(), Some(selector)),
            (expression("disk", "NotIn", json!(["ssd"])), labels.clone(), Some(selector)),
            (expression("none", "NotIn", json!(["ssd"])), labels.clone(), None),
            (expression("disk", "Exists", json!(null)), labels.clone(), None),
            (expression("disk", "DoesNotExist", json!(null)), labels.clone(), Some(selector)),
            (expression("size", "Gt", json!(["7"])), labels.clone(), None),
            (expression("size", "Lt", json!(["8"])), labels, Some(selector)),
            (affinity(json!([])), json!({}), Some(selector)),
            (affinity(json!([{}])), json!({}), Some(selector)),
            (
                affinity(
                    json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]),
                ),
                json!({}),
                None,
            ),
        ] {
            let got = misfit(&Demand::of(&spec(pod.clone())), &node(facts.clone()), &Usage::default());
            assert_eq!(got, want.map(Misfit::for_good), "{pod} on {facts}");
        }
    }

    #[test]
    fn resources_and_the_number_of_pods_are_counted() {
        let usage = |cpu: i64, pods: i64| Usage { requests: Amounts::from([(CPU.into(), cpu)]), pods };
        let want_cpu = |cpu: &str| Demand::of(&spec(json!({"containers": [container("c", cpu)]})));
        let gpu = json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1", "cpu": "9"}}}]});
        let misfit_of = |reasons: &[&str], is_resolvable| {
            Some(Misfit { reasons: reasons.iter().map(|reason| (*reason).into()).collect(), is_resolvable })
        };
        for (demand, usage, want) in [
            (want_cpu("500m"), usage(1500, 2), None),
            (want_cpu("501m"), usage(1500, 2), misfit_of(&["Insufficient cpu"], true)),
            (want_cpu("3"), usage(0, 0), misfit_of(&["Insufficient cpu"], false)),
            (Demand::default(), usage(5000, 2), None),
            (Demand::default(), usage(0, 3), misfit_of(&["Too many pods"], true)),
            (want_cpu("1"), usage(2000, 3), misfit_of(&["Too many pods", "Insufficient cpu"], true)),
            (
                Demand::of(&spec(gpu)),
                usage(0, 0),
                misfit_of(&["Insufficient cpu", "Insufficient example.com/gpu"], false),
            ),
        ] {
            assert_eq!(misfit(&demand, &node(json!({})), &usage), want, "{demand:?} {usage:?}");
        }
    }

    #[test]
    fn what_is_added_and_removed_again_leaves_no_trace() {
        let requests = Amounts::from([(CPU.into(), 500)]);
        let mut usage = Usage::default();
        usage.add(&requests);
        usage.add(&requests);
        usage.remove(&requests);
        assert_eq!(usage, Usage { requests, pods: 1 });
    }

    #[test]
    fn the_first_node_that_fits_is_taken_and_else_the_message_is_upstreams() {
        let named = |name: &str, cpu: &str| {
            node(json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}))
        };
        let (a, b, none) = (named("a", "1"), named("b", "4"), Usage::default());
        let cordoned = node(json!({"metadata": {"name": "c"}, "spec": {"unschedulable": true}}));
        let full = Usage { requests: Amounts::from([(CPU.into(), 4000)]), pods: 1 };
        let demand = Demand::of(&spec(json!({"containers": [container("c", "2")]})));
        assert_eq!(first_fit(&demand, [(&a, &none), (&b, &none)]), Ok("b"));
        assert_eq!(first_fit(&demand, []), Err("no nodes available to schedule pods".into()));
        let message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are \
                       available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.";
        assert_eq!(first_fit(&demand, [(&a, &none), (&b, &full), (&cordoned, &none)]), Err(message.into()));
        let polite = Demand { never_preempts: true, ..demand };
        let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.";
        assert_eq!(first_fit(&polite, [(&b, &full)]), Err(message.into()));
    }
}
