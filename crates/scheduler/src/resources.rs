//! Amounts of resources: what pods request and what nodes offer.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use windlass_api::quantity::Quantity;
use windlass_api::resources::aggregate;

/// upstream: what a container without a request counts for when nodes are compared.
const CPU_UNSAID: i64 = 100;
const MEMORY_UNSAID: i64 = 200 * 1024 * 1024;

/// So much of each resource.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Resources {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of local storage.
    pub storage: i64,
    /// Everything else, in whole units, by name. None of them is zero.
    pub others: BTreeMap<String, i64>,
}

impl Resources {
    fn of(amounts: impl IntoIterator<Item = (String, Quantity)>) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in amounts {
            resources.set(name, quantity);
        }
        resources
    }

    fn set(&mut self, name: String, quantity: Quantity) {
        match name.as_str() {
            "cpu" => self.cpu = quantity.milli_value(),
            "memory" => self.memory = quantity.value(),
            "ephemeral-storage" => self.storage = quantity.value(),
            "pods" => {}
            _ if quantity.is_zero() => _ = self.others.remove(&name),
            _ => _ = self.others.insert(name, quantity.value()),
        }
    }

    /// What a node offers: its resources, and how many pods it takes.
    pub fn of_node(list: Option<&BTreeMap<String, Text>>) -> (Self, i64) {
        let pods = list.and_then(|list| list.get("pods")).and_then(parse).map_or(0, Quantity::value);
        (Self::of(parsed(list)), pods)
    }

    /// What a pod requests: what its containers hold at most at any time, or what the pod itself says, and its
    /// overhead.
    pub fn of_pod(spec: &PodSpec) -> Self {
        let mut amounts = aggregate(spec, |resources| resources.requests.as_ref());
        amounts.extend(parsed(pod_level(spec)));
        for (name, more) in parsed(spec.overhead.as_ref()) {
            let sum = amounts.entry(name).or_insert(Quantity::ZERO);
            *sum = *sum + more;
        }
        Self::of(amounts)
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.change(other, i64::saturating_add);
    }

    /// Takes `other` away.
    pub fn remove(&mut self, other: &Self) {
        self.change(other, i64::saturating_sub);
    }

    fn change(&mut self, other: &Self, by: fn(i64, i64) -> i64) {
        self.cpu = by(self.cpu, other.cpu);
        self.memory = by(self.memory, other.memory);
        self.storage = by(self.storage, other.storage);
        for (name, amount) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = by(*sum, *amount);
            if *sum == 0 {
                self.others.remove(name);
            }
        }
    }

    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.storage == 0 && self.others.is_empty()
    }

    /// So much of the resource of this name, which is not one of the three that have fields.
    pub fn other(&self, name: &str) -> i64 {
        self.others.get(name).copied().unwrap_or(0)
    }
}

/// CPU and memory of a pod for comparing nodes: a container that requests none of one counts as a small one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Weight {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
}

impl Weight {
    /// What a pod counts for.
    pub fn of_pod(spec: &PodSpec) -> Self {
        let milli = Quantity::milli_value;
        Self {
            cpu: weight(spec, "cpu", CPU_UNSAID, milli),
            memory: weight(spec, "memory", MEMORY_UNSAID, Quantity::value),
        }
    }
}

fn weight(spec: &PodSpec, name: &str, unsaid: i64, amount: fn(Quantity) -> i64) -> i64 {
    let overhead = find(spec.overhead.as_ref(), name).map_or(0, amount);
    if let Some(said) = find(pod_level(spec), name) {
        return amount(said).saturating_add(overhead);
    }
    let of = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        find(requests, name).map_or(unsaid, amount)
    };
    let mut running: i64 = spec.containers.iter().map(of).sum();
    let (mut sidecars, mut most) = (0, 0);
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            running += of(container);
            sidecars += of(container);
            most = sidecars.max(most);
        } else {
            most = most.max(sidecars + of(container));
        }
    }
    running.max(most).saturating_add(overhead)
}

fn pod_level(spec: &PodSpec) -> Option<&BTreeMap<String, Text>> {
    spec.resources.as_ref().and_then(|resources: &ResourceRequirements| resources.requests.as_ref())
}

fn parse(text: &Text) -> Option<Quantity> {
    text.0.parse().ok()
}

fn find(list: Option<&BTreeMap<String, Text>>, name: &str) -> Option<Quantity> {
    parse(list?.get(name)?)
}

fn parsed(list: Option<&BTreeMap<String, Text>>) -> impl Iterator<Item = (String, Quantity)> {
    list.into_iter().flatten().filter_map(|(name, text)| Some((name.clone(), parse(text)?)))
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

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        let mut sidecar = container(name, cpu);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    }

    #[test]
    fn requests_and_weights_are_the_most_that_a_pod_holds_at_any_time() {
        for (value, requested, weight) in [
            (json!({}), 0, 100),
            (json!({"containers": [container("a", "250m"), container("b", "1")]}), 1250, 1250),
            (json!({"containers": [container("a", "250m"), {"name": "b"}]}), 250, 350),
            (
                json!({"containers": [container("a", "1")], "initContainers": [container("i", "3")]}),
                3000,
                3000,
            ),
            (
                json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "500m"), container("i", "2")]}),
                2500,
                2500,
            ),
            (
                json!({"containers": [container("a", "1")], "initContainers": [container("i", "1"), sidecar("s", "1")]}),
                2000,
                2000,
            ),
            (json!({"containers": [container("a", "1")], "overhead": {"cpu": "100m"}}), 1100, 1100),
            (
                json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "2"}}}),
                2000,
                2000,
            ),
            (json!({"overhead": {"cpu": "10m"}}), 10, 110),
        ] {
            let spec = spec(value.clone());
            let got = (Resources::of_pod(&spec).cpu, Weight::of_pod(&spec).cpu);
            assert_eq!(got, (requested, weight), "{value}");
        }
    }

    #[test]
    fn what_is_added_and_taken_away_leaves_no_trace() {
        let requests = json!({"cpu": "1", "memory": "1Ki", "ephemeral-storage": "5", "example.com/gpu": "2", "a.b/z": "0"});
        let spec = spec(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}));
        let pod = Resources::of_pod(&spec);
        let want = Resources {
            cpu: 1000,
            memory: 1024,
            storage: 5,
            others: [("example.com/gpu".to_owned(), 2)].into(),
        };
        assert_eq!(pod, want);
        let mut sum = Resources::default();
        sum.add(&pod);
        sum.add(&pod);
        assert_eq!(sum.other("example.com/gpu"), 4);
        sum.remove(&pod);
        sum.remove(&pod);
        assert!(sum.is_empty());
        assert_eq!(sum, Resources::default());
    }

    #[test]
    fn a_node_offers_resources_and_places_for_pods() {
        let list: BTreeMap<String, Text> = [("cpu", "2"), ("pods", "110"), ("memory", "nonsense")]
            .map(|(k, v)| (k.into(), Text(v.into())))
            .into();
        assert_eq!(Resources::of_node(Some(&list)), (Resources { cpu: 2000, ..Resources::default() }, 110));
        assert_eq!(Resources::of_node(None), (Resources::default(), 0));
    }
}
