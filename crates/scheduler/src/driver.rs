//! The scheduler's loop: watches pods and nodes, keeps what each node holds, and binds pods in the order of
//! the queue.
//!
//! A pod counts on its node from the moment it is chosen, before the API server has answered: the next choice
//! sees it. Nothing is polled: the queue moves when a pod comes or goes, a node changes, or a bind is
//! answered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fit::{self, Amounts, NodeFacts, Usage};
use crate::queue::{Queue, Waiting};

/// The name by which pods ask for this scheduler.
const NAME: &str = "default-scheduler";
/// Writes on their way at once: enough to keep an API server busy, few enough not to fill its queue.
const WRITES_MAX: usize = 64;
/// How long a pod waits after the API server failed to bind it (upstream: podInitialBackoffSeconds).
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Binds pods to nodes.
pub struct Scheduler {
    client: kube::Client,
    nodes: BTreeMap<String, NodeFacts>,
    /// By the name of the node, which need not be there yet.
    usage: HashMap<String, Usage>,
    /// Pods on a node, the ones being bound among them, by UID.
    placed: HashMap<String, (String, Amounts)>,
    /// Pods whose bind is not answered yet, by UID.
    binding: HashMap<String, Waiting>,
    queue: Queue,
    writes: JoinSet<Written>,
    /// UIDs of pods that are bound again after a pause.
    retries: JoinSet<String>,
}

/// An answered write.
enum Written {
    /// A bind, and whether it was done.
    Bound { uid: String, is_done: bool },
    /// A condition.
    Told,
}

impl Scheduler {
    /// A scheduler that has not seen anything yet.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            nodes: BTreeMap::new(),
            usage: HashMap::new(),
            placed: HashMap::new(),
            binding: HashMap::new(),
            queue: Queue::default(),
            writes: JoinSet::new(),
            retries: JoinSet::new(),
        }
    }

    /// Schedules until it is cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        let pods = kube::Api::<Pod>::all(self.client.clone());
        // A pod that has ended holds nothing: to the watch it is gone.
        let live = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let mut pods = std::pin::pin!(watcher(pods, live).default_backoff());
        let nodes = kube::Api::<Node>::all(self.client.clone());
        let mut nodes = std::pin::pin!(watcher(nodes, watcher::Config::default()).default_backoff());
        let (mut listed_pods, mut listed_nodes) = (HashSet::new(), HashSet::new());
        // Nothing is placed before all pods and nodes are known: a node would look emptier than it is.
        let (mut has_pods, mut has_nodes) = (false, false);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                Some(event) = pods.next() => match event {
                    Ok(event) => has_pods |= self.on_pod_event(event, &mut listed_pods),
                    Err(error) => tracing::warn!(%error, "watch pods"),
                },
                Some(event) = nodes.next() => match event {
                    Ok(event) => has_nodes |= self.on_node_event(event, &mut listed_nodes),
                    Err(error) => tracing::warn!(%error, "watch nodes"),
                },
                Some(written) = self.writes.join_next() => match written {
                    Ok(written) => self.on_written(written),
                    Err(error) => tracing::error!(%error, "a write of the scheduler broke"),
                },
                Some(Ok(uid)) = self.retries.join_next() => {
                    if let Some(waiting) = self.binding.remove(&uid) {
                        self.queue.put_back(waiting);
                    }
                }
            }
            if has_pods && has_nodes {
                self.place();
            }
        }
    }

    /// Returns true when a list is complete.
    fn on_pod_event(&mut self, event: watcher::Event<Pod>, listed: &mut HashSet<String>) -> bool {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.extend(pod.metadata.uid.clone());
                self.on_pod(&pod);
            }
            watcher::Event::InitDone => {
                let known = self.placed.keys().chain(self.queue.uids());
                for uid in known.filter(|uid| !listed.contains(*uid)).cloned().collect::<Vec<_>>() {
                    self.forget(&uid);
                }
                listed.clear();
                return true;
            }
            watcher::Event::Apply(pod) => self.on_pod(&pod),
            watcher::Event::Delete(pod) => self.forget(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
        false
    }

    fn on_pod(&mut self, pod: &Pod) {
        let (Some(uid), Some(spec)) = (pod.metadata.uid.clone(), pod.spec.as_ref()) else { return };
        if let Some(node) = spec.node_name.as_ref().filter(|node| !node.is_empty()) {
            self.queue.remove(&uid);
            self.binding.remove(&uid);
            if self.placed.get(&uid).is_none_or(|(placed, _)| placed != node) {
                self.unplace(&uid);
                self.count(uid, node, fit::requests(spec));
            }
            return;
        }
        // A view from before our bind, or one that we are waiting to see bound.
        if self.placed.contains_key(&uid) {
            return;
        }
        let is_ours = spec.scheduler_name.as_deref().is_none_or(|name| name.is_empty() || name == NAME);
        let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        self.binding.remove(&uid);
        if !is_ours || is_gated || pod.metadata.deletion_timestamp.is_some() {
            self.queue.remove(&uid);
        } else if let Some(waiting) = self.queue.put(pod) {
            self.writes.spawn(tell(self.client.clone(), waiting));
        }
    }

    fn forget(&mut self, uid: &str) {
        self.queue.remove(uid);
        self.binding.remove(uid);
        self.unplace(uid);
    }

    fn count(&mut self, uid: String, node: &str, requests: Amounts) {
        self.usage.entry(node.to_owned()).or_default().add(&requests);
        self.placed.insert(uid, (node.to_owned(), requests));
    }

    fn unplace(&mut self, uid: &str) {
        let Some((node, requests)) = self.placed.remove(uid) else { return };
        if let Some(usage) = self.usage.get_mut(&node) {
            usage.remove(&requests);
        }
        self.queue.wake();
    }

    fn on_node_event(&mut self, event: watcher::Event<Node>, listed: &mut HashSet<String>) -> bool {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(node) => {
                listed.extend(node.metadata.name.clone());
                self.on_node(&node);
            }
            watcher::Event::InitDone => {
                self.nodes.retain(|name, _| listed.contains(name));
                listed.clear();
                self.queue.wake();
                return true;
            }
            watcher::Event::Apply(node) => self.on_node(&node),
            watcher::Event::Delete(node) => {
                self.nodes.remove(node.metadata.name.as_deref().unwrap_or_default());
                self.queue.wake();
            }
        }
        false
    }

    fn on_node(&mut self, node: &Node) {
        let facts = NodeFacts::of(node);
        // A heartbeat changes nothing that matters here.
        if self.nodes.get(&facts.name) != Some(&facts) {
            self.nodes.insert(facts.name.clone(), facts);
            self.queue.wake();
        }
    }

    fn on_written(&mut self, written: Written) {
        match written {
            Written::Bound { uid, is_done: true } => {
                self.binding.remove(&uid);
            }
            // Gone from `binding`: the watch has told meanwhile what became of it.
            Written::Bound { uid, is_done: false } if self.binding.contains_key(&uid) => {
                self.unplace(&uid);
                self.retries.spawn(async move {
                    tokio::time::sleep(RETRY_DELAY).await;
                    uid
                });
            }
            Written::Bound { .. } | Written::Told => {}
        }
    }

    /// Places pods while there are pods that fit and writes that may be sent.
    fn place(&mut self) {
        let idle = Usage::default();
        while self.writes.len() < WRITES_MAX
            && let Some(first) = self.queue.first()
        {
            let nodes = self.nodes.values().map(|node| (node, self.usage.get(&node.name).unwrap_or(&idle)));
            match fit::first_fit(&first.demand, nodes) {
                Ok(node) => {
                    let (node, waiting) = (node.to_owned(), first.clone());
                    self.bind(waiting, node);
                }
                Err(message) => {
                    for waiting in self.queue.block_first(&message) {
                        self.writes.spawn(tell(self.client.clone(), waiting));
                    }
                }
            }
        }
    }

    fn bind(&mut self, waiting: Waiting, node: String) {
        self.queue.remove(&waiting.uid);
        self.count(waiting.uid.clone(), &node, waiting.demand.requests.clone());
        self.writes.spawn(bind(self.client.clone(), waiting.clone(), node));
        self.binding.insert(waiting.uid.clone(), waiting);
    }
}

async fn bind(client: kube::Client, waiting: Waiting, node: String) -> Written {
    let pods = kube::Api::<Pod>::namespaced(client, &waiting.namespace);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": waiting.name, "namespace": waiting.namespace, "uid": waiting.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let params = PostParams::default();
    let sent = pods.create_subresource::<_, Value>("binding", &waiting.name, &params, &binding).await;
    let is_done = match sent {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "bind pod {}/{} to node {node}", waiting.namespace, waiting.name);
            false
        }
    };
    Written::Bound { uid: waiting.uid, is_done }
}

/// Writes `PodScheduled=False`. Best effort: the pod is told again when its reason changes.
async fn tell(client: kube::Client, waiting: Waiting) -> Written {
    let since = waiting.refused_since.unwrap_or_else(Timestamp::now);
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": waiting.refused,
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "lastProbeTime": null,
    });
    let patch = json!({"metadata": {"uid": waiting.uid}, "status": {"conditions": [condition]}});
    let pods = kube::Api::<Pod>::namespaced(client, &waiting.namespace);
    let sent = pods.patch_status(&waiting.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    if let Err(error) = sent {
        tracing::warn!(%error, "tell pod {}/{} that it does not fit", waiting.namespace, waiting.name);
    }
    Written::Told
}
