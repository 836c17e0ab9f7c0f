//! Pods, nodes and clusters for the tests of the decisions.

use serde_json::{Value, json};

use crate::cluster::{Cluster, NodeFacts};
use crate::pod::PodFacts;

/// `into`, with what `from` has over it.
pub(crate) fn merged(mut into: Value, from: Value) -> Value {
    match (&mut into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                let before = into.remove(&key).unwrap_or(Value::Null);
                into.insert(key, merged(before, value));
            }
        }
        (into, from) => *into = from,
    }
    into
}

/// A pod `p` in `default`, with what `more` says. Its UID is its name.
pub(crate) fn pod(more: Value) -> PodFacts {
    let base = json!({
        "metadata": {"name": "p", "namespace": "default", "generation": 1},
        "spec": {"containers": [{"name": "c"}]},
    });
    let mut pod = merged(base, more);
    pod["metadata"]["uid"] = pod["metadata"]["name"].clone();
    PodFacts::of(&serde_json::from_value(pod).expect("a pod")).expect("facts")
}

/// A pod that requests CPU, of a priority, with what `more` says.
pub(crate) fn sized(name: &str, cpu: &str, priority: i32, more: Value) -> PodFacts {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let base = json!({"metadata": {"name": name}, "spec": {"containers": [container], "priority": priority}});
    pod(merged(base, more))
}

/// A node with 2 CPUs, 1 GiB and places for 10 pods, with what `more` says.
pub(crate) fn node(name: &str, more: Value) -> NodeFacts {
    let base = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}},
    });
    NodeFacts::of(&serde_json::from_value(merged(base, more)).expect("a node"))
}

/// These nodes, and these pods on them.
pub(crate) fn cluster(
    nodes: impl IntoIterator<Item = NodeFacts>,
    pods: impl IntoIterator<Item = (&'static str, PodFacts)>,
) -> Cluster {
    let mut cluster = Cluster::default();
    for node in nodes {
        cluster.set_node(node);
    }
    for (node, pod) in pods {
        cluster.place(pod.into(), node);
    }
    cluster
}
