//! The scheduler against the API server: who is bound where, and who is told why not.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_scheduler::Scheduler;

/// How long anything may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(30);

struct Fixture {
    client: kube::Client,
    pods: Api<Pod>,
    nodes: Api<Node>,
    cancel: CancellationToken,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Fixture {
    fn new() -> Self {
        let server = windlass_apiserver::Server::new(windlass_apiserver::Config::default());
        let client = kube::Client::new(server.router(), "default");
        let (pods, nodes) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
        Self { client, pods, nodes, cancel: CancellationToken::new() }
    }

    fn start(&self) {
        tokio::spawn(Scheduler::new(self.client.clone()).run(self.cancel.clone()));
    }

    async fn node(&self, name: &str, cpu: &str, pods: &str) {
        let status = json!({"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": pods}});
        let node = json!({"metadata": {"name": name}, "status": status});
        let node: Node = serde_json::from_value(node).expect("a node");
        self.nodes.create(&PostParams::default(), &node).await.expect("created");
        let patch = Patch::Merge(json!({"status": status}));
        self.nodes.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// Pods get their priority by class.
    async fn class(&self, name: &str, value: i32) {
        let class =
            serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).expect("a class");
        let classes: Api<PriorityClass> = Api::all(self.client.clone());
        classes.create(&PostParams::default(), &class).await.expect("created");
    }

    async fn pod(&self, name: &str, cpu: &str, more: Value) {
        let mut spec = more;
        spec["containers"] = json!([{"name": "c", "image": "host", "command": ["true"], "resources": {"requests": {"cpu": cpu}}}]);
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("created");
    }

    async fn end(&self, name: &str) {
        let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        self.pods.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// Watches all pods until `count` of them satisfy `is_it`.
    async fn until(&self, what: &str, count: usize, is_it: impl Fn(&Pod) -> bool) {
        let mut events = std::pin::pin!(watcher(self.pods.clone(), watcher::Config::default()));
        let mut found = std::collections::BTreeSet::new();
        let watch = async {
            while let Some(event) = events.next().await {
                let pod = match event.expect("the watch works") {
                    watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => pod,
                    _ => continue,
                };
                if is_it(&pod) {
                    found.insert(pod.metadata.name.unwrap_or_default());
                }
                if found.len() == count {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, watch).await.is_err() {
            panic!("gave up waiting for {what}: {found:?}");
        }
    }

    async fn node_of(&self, name: &str) -> String {
        self.until("a node", 1, |pod| pod.metadata.name.as_deref() == Some(name) && node_of(pod).is_some())
            .await;
        node_of(&self.pods.get(name).await.expect("the pod")).expect("a node").to_owned()
    }

    async fn told(&self, name: &str, want: &str) {
        let is_it =
            |pod: &Pod| pod.metadata.name.as_deref() == Some(name) && refusal(pod) == Some(want.into());
        self.until(want, 1, is_it).await;
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn refusal(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Some(format!("{} {}: {}", condition.status, text(&condition.reason), text(&condition.message)))
}

const FULL: &str = "False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                    1 No preemption victims found for incoming pod.";

#[tokio::test]
async fn pods_fill_nodes_in_the_order_of_their_names() {
    let fixture = Fixture::new();
    fixture.node("b", "2", "10").await;
    fixture.node("a", "1", "10").await;
    fixture.start();
    for (name, want) in [("p1", "a"), ("p2", "b"), ("p3", "b")] {
        fixture.pod(name, "1", json!({})).await;
        assert_eq!(fixture.node_of(name).await, want, "{name}");
    }
}

#[tokio::test]
async fn a_pod_that_does_not_fit_is_told_why_and_bound_when_a_pod_ends() {
    let fixture = Fixture::new();
    fixture.start();
    fixture.pod("first", "1", json!({})).await;
    fixture.told("first", "False Unschedulable: no nodes available to schedule pods").await;
    fixture.node("a", "1", "10").await;
    assert_eq!(fixture.node_of("first").await, "a");
    fixture.pod("second", "1", json!({})).await;
    fixture.told("second", FULL).await;
    fixture.end("first").await;
    assert_eq!(fixture.node_of("second").await, "a");
    fixture.pod("third", "1", json!({})).await;
    fixture.told("third", FULL).await;
    fixture.pods.delete("second", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    assert_eq!(fixture.node_of("third").await, "a");
}

#[tokio::test]
async fn the_highest_priority_comes_first_and_gated_deleted_and_foreign_pods_do_not_come() {
    let fixture = Fixture::new();
    fixture.class("lesser", 1).await;
    fixture.class("greater", 10).await;
    fixture.pod("low", "1", json!({"priorityClassName": "lesser"})).await;
    fixture.pod("high", "1", json!({"priorityClassName": "greater"})).await;
    fixture.pod("gated", "0", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
    fixture.pod("foreign", "0", json!({"schedulerName": "another"})).await;
    fixture.node("a", "1", "10").await;
    fixture.start();
    assert_eq!(fixture.node_of("high").await, "a");
    fixture.told("low", FULL).await;
    fixture.pod("last", "0", json!({})).await;
    assert_eq!(fixture.node_of("last").await, "a");
    for name in ["gated", "foreign"] {
        assert_eq!(node_of(&fixture.pods.get(name).await.expect("there")), None, "{name}");
    }
    let free = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    fixture.pods.patch("gated", &PatchParams::default(), &free).await.expect("patched");
    assert_eq!(fixture.node_of("gated").await, "a");
}

#[tokio::test]
async fn a_node_never_gets_more_pods_than_it_holds() {
    let fixture = Fixture::new();
    fixture.node("a", "1000", "30").await;
    fixture.node("b", "1000", "20").await;
    for i in 0..100 {
        fixture.pod(&format!("p{i}"), "1", json!({})).await;
    }
    fixture.start();
    fixture.until("bound pods", 50, |pod| node_of(pod).is_some()).await;
    let full = "False Unschedulable: 0/2 nodes are available: 2 Too many pods. preemption: 0/2 nodes are available: 2 No \
                preemption victims found for incoming pod.";
    fixture.until("refused pods", 50, |pod| refusal(pod) == Some(full.into())).await;
    let pods = fixture.pods.list(&Default::default()).await.expect("listed").items;
    let count = |node: &str| pods.iter().filter(|pod| node_of(pod) == Some(node)).count();
    assert_eq!((count("a"), count("b")), (30, 20));
}

#[tokio::test]
async fn a_thousand_pods_are_all_bound() {
    let fixture = Fixture::new();
    fixture.node("a", "100000", "100000").await;
    for i in 0..1000 {
        fixture.pod(&format!("p{i}"), "1", json!({})).await;
    }
    fixture.start();
    fixture.until("bound pods", 1000, |pod| node_of(pod).is_some()).await;
}
