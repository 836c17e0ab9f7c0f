//! Node lifecycle: nodes that are silent become unknown, nodes that are not well get taints, and their pods are not ready.
//!
//! ```text
//!  every 5 s   ──► health ──► conditions Unknown, pods not ready ──► zones: how fast nodes are given up
//!                     └─────► to be given up (slow) ──every 100 ms──► NoExecute taint ──► taint eviction
//!  on change   ──► taints ──► NoSchedule taints by condition, labels
//! ```

mod health;
mod slow;
mod taints;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Change, Cluster, Key, PodFact, Row, Table, take};
use crate::events::{Recorder, Report};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::{Clock, ending, watch};
use health::{Graces, Health, condition, look};
use slow::Slow;
use taints::{NO_EXECUTE, NOT_READY, Swap, UNREACHABLE};
use zones::{Count, Limits, Turn, Zones, zone_of};

const COMPONENT: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
/// Nodes with this label do not count when a zone is judged.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// Between two looks at those that wait to be given up.
const TAINTING_PERIOD: Duration = Duration::from_millis(100);
const WORKERS: usize = 8;
/// How often a write is tried while others change the node, and what is waited between.
const TRIES: usize = 5;
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// How it works. The defaults are those of kube-controller-manager.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Between two looks at all nodes.
    pub monitor_period: Duration,
    /// How long a node may be silent.
    pub monitor_grace: Duration,
    /// How long one that never said anything may be silent.
    pub startup_grace: Duration,
    /// Nodes that are given up, a second, in a zone.
    pub eviction_rate: f64,
    /// The same in a large zone of which many are silent; in a small one, none is.
    pub secondary_eviction_rate: f64,
    /// A zone with more nodes is large.
    pub large_zone: usize,
    /// Many are silent: this share, and more than two.
    pub unhealthy_threshold: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            monitor_grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_zone: 50,
            unhealthy_threshold: 0.55,
        }
    }
}

/// When a node was last heard of, by its lease.
struct Renewal {
    key: Key,
    uid: String,
    renewed: Option<Timestamp>,
}

impl Renewal {
    fn of(lease: &Lease) -> Self {
        Self {
            key: Key::of(&lease.metadata),
            uid: lease.uid().unwrap_or_default(),
            renewed: lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
        }
    }
}

impl Row for Renewal {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

/// Looks after nodes, until cancelled.
pub async fn run(
    cluster: Arc<Cluster>,
    clock: Clock,
    config: Config,
    metrics: Metrics,
    cancel: CancellationToken,
) {
    let (recorder, publishing) = Recorder::new(cluster.client.clone(), COMPONENT, Arc::clone(&clock));
    let leases = Arc::new(Table::default());
    let following =
        watch::follow(Api::<Lease>::namespaced(cluster.client.clone(), LEASES), cancel.clone(), |event| {
            take(&leases, &event, Renewal::of)
        });
    let this = Controller {
        nodes_due: Arc::new(Queue::new("node_lifecycle_controller", &metrics)),
        pods_due: Arc::new(Queue::new("node_lifecycle_controller_pods", &metrics)),
        state: Mutex::default(),
        giving_up: tokio::sync::Mutex::default(),
        leases: Arc::clone(&leases),
        cluster,
        clock,
        config,
        metrics,
        recorder,
    };
    let work = async {
        if !this.cluster.is_listed(&cancel).await || !leases.is_listed(&cancel).await {
            return;
        }
        this.listen();
        let workers = (0..WORKERS).map(|_| futures::future::join(this.keep_taints(), this.keep_pods()));
        tokio::select! {
            () = cancel.cancelled() => {}
            _ = futures::future::join_all(workers) => {}
            () = this.monitor() => {}
            () = this.give_up() => {}
        }
    };
    tokio::select! { _ = futures::future::join(work, following) => {}, () = publishing => {} }
}

fn uid_of(node: &Node) -> String {
    node.metadata.uid.clone().unwrap_or_default()
}

#[derive(Default)]
struct State {
    healths: BTreeMap<String, Health>,
    /// UIDs of the nodes that were seen, by name.
    known: BTreeMap<String, String>,
    zones: Zones,
    slow: BTreeMap<String, Slow>,
    /// Nodes whose pods could not all be told that they are not ready.
    retry: BTreeSet<String>,
}

impl State {
    /// Those of the node's zone who wait to be given up.
    fn slow_of(&mut self, node: &Node) -> Option<&mut Slow> {
        self.slow.get_mut(&zone_of(node))
    }
}

struct Controller {
    cluster: Arc<Cluster>,
    leases: Arc<Table<Renewal>>,
    clock: Clock,
    config: Config,
    metrics: Metrics,
    recorder: Recorder,
    state: Mutex<State>,
    /// Held by who gives nodes up, or takes that back.
    giving_up: tokio::sync::Mutex<()>,
    /// Nodes whose taints need a look.
    nodes_due: Arc<Queue<Key>>,
    /// Pods that came to a node.
    pods_due: Arc<Queue<Key>>,
}

impl Controller {
    fn listen(&self) {
        let due = Arc::clone(&self.nodes_due);
        self.cluster.nodes.listen(move |change| {
            if let Some(node) = change.new {
                due.add(node.key());
            }
        });
        let due = Arc::clone(&self.pods_due);
        self.cluster.pods.listen(move |change: &Change<'_, PodFact>| {
            if let Some(pod) = change.new
                && pod.node.is_some()
                && change.old.is_none_or(|old| old.node != pod.node)
            {
                due.add(pod.key.clone());
            }
        });
    }

    /// Keeps pods away from nodes that are not well.
    async fn keep_taints(&self) {
        loop {
            let key = self.nodes_due.next().await;
            if let Some(node) = self.cluster.nodes.get(&key) {
                let done = async {
                    self.swap(&node, &taints::by_conditions(&node)).await?;
                    self.label(&node).await
                };
                match done.await {
                    Ok(()) => self.nodes_due.forget_failures(&key),
                    Err(error) => {
                        tracing::debug!(node = %key.name, %error, "a node was not tainted, trying again");
                        self.nodes_due.retry(key.clone());
                    }
                }
            }
            self.nodes_due.done(&key);
        }
    }

    /// A pod that comes to a node that is not ready is not ready.
    async fn keep_pods(&self) {
        loop {
            let key = self.pods_due.next().await;
            if let Some(pod) = self.cluster.pods.get(&key)
                && let Some(node) = &pod.node
            {
                let is_unready = {
                    let state = self.state.lock();
                    let ready = state.healths.get(&**node).and_then(|health| health.ready.as_ref());
                    ready.is_some_and(|ready| ready.status != "True")
                };
                if is_unready && !self.unready(std::slice::from_ref(&pod)).await {
                    self.pods_due.retry(key.clone());
                } else {
                    self.pods_due.forget_failures(&key);
                }
            }
            self.pods_due.done(&key);
        }
    }

    async fn monitor(&self) {
        let mut ticks = tokio::time::interval(self.config.monitor_period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let start = Instant::now();
            self.look_at_all().await;
            self.metrics.nodes_looked_at(start.elapsed());
        }
    }

    async fn look_at_all(&self) {
        let nodes = self.cluster.nodes.all();
        self.register(&nodes).await;
        let looks = nodes.iter().cloned().map(|node| async move {
            let start = Instant::now();
            let count = self.look_at(&node).await;
            self.metrics.node_looked_at(start.elapsed());
            count
        });
        let found: Vec<_> = futures::stream::iter(looks).buffer_unordered(WORKERS).collect().await;
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for (zone, is_ready) in found.into_iter().flatten() {
            let count = counts.entry(zone).or_default();
            if is_ready { count.ready += 1 } else { count.not_ready += 1 }
        }
        self.judge(&counts, &nodes).await;
    }

    /// Takes in which nodes there are, and says so.
    async fn register(&self, nodes: &[Arc<Node>]) {
        let now = (self.clock)();
        let mut added = Vec::new();
        let gone: Vec<(String, String)> = {
            let mut state = self.state.lock();
            for node in nodes {
                let zone = zone_of(node);
                if state.zones.add(&zone) {
                    state.slow.insert(zone.clone(), Slow::new(self.config.eviction_rate, now));
                    self.metrics.zone_evicted(&zone, 0);
                }
                if state.known.insert(node.name_any(), uid_of(node)).is_none() {
                    added.push(node);
                }
            }
            let is_here = |name: &String| nodes.iter().any(|node| node.metadata.name.as_ref() == Some(name));
            let gone: Vec<_> = state.known.extract_if(.., |name, _| !is_here(name)).collect();
            for (name, _) in &gone {
                state.healths.remove(name);
                state.retry.remove(name);
            }
            gone
        };
        for node in added {
            let (name, uid) = (node.name_any(), uid_of(node));
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            self.say(&name, &uid, "RegisteredNode", message);
            self.mark_reachable(node).await;
        }
        for (name, uid) in gone {
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.say(&name, &uid, "RemovingNode", message);
        }
    }

    /// Looks at a node, and gives its zone and whether it is ready, unless it is not counted.
    async fn look_at(&self, node: &Arc<Node>) -> Option<(String, bool)> {
        let (node, found, current) = match self.update_health(node).await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::debug!(node = node.name_any(), %error, "the health of a node was not written");
                return None;
            }
        };
        let name = node.name_any();
        let is_counted = !node.labels().contains_key(EXCLUDED);
        let counted = is_counted.then(|| (zone_of(&node), current.as_deref() == Some("True")));
        let Some(current) = current else { return counted };
        self.taint(&node, &current).await;
        let is_news = current != "True" && found == "True";
        if is_news {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.say(&name, &uid_of(&node), "NodeNotReady", message);
        }
        let needs_retry = self.state.lock().retry.contains(&name) && found != "True";
        if is_news || needs_retry {
            let is_done = self.unready(&self.cluster.pods.in_group(&name)).await;
            let mut state = self.state.lock();
            if is_done {
                state.retry.remove(&name)
            } else {
                state.retry.insert(name)
            };
        }
        counted
    }

    /// The node, the status of its `Ready` as it was, and as it is now.
    async fn update_health(&self, node: &Arc<Node>) -> kube::Result<(Node, String, Option<String>)> {
        let name = node.name_any();
        let graces = Graces { monitor: self.config.monitor_grace, startup: self.config.startup_grace };
        let renewal = self.leases.get(&Key::new(LEASES, &name)).and_then(|renewal| renewal.renewed);
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let mut node = Node::clone(node);
        for attempt in 1.. {
            let looked = {
                let mut state = self.state.lock();
                let looked = look(state.healths.get(&name), &node, renewal, graces, (self.clock)());
                if looked.write.is_empty() {
                    state.healths.insert(name.clone(), looked.health.clone());
                    return Ok((node, looked.found, looked.current));
                }
                looked
            };
            match self.write_conditions(&nodes, &node, &looked.write).await {
                Ok(written) => {
                    self.state.lock().healths.insert(name, looked.health);
                    return Ok((written, looked.found, looked.current));
                }
                Err(error) if attempt == TRIES => return Err(error),
                Err(_) => {
                    tokio::time::sleep(TRY_AGAIN).await;
                    node = nodes.get(&name).await?;
                }
            }
        }
        unreachable!("the last try returns")
    }

    async fn write_conditions(
        &self,
        nodes: &Api<Node>,
        node: &Node,
        conditions: &[NodeCondition],
    ) -> kube::Result<Node> {
        let meta = json!({"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version});
        let patch = Patch::Strategic(json!({"metadata": meta, "status": {"conditions": conditions}}));
        nodes.patch_status(&node.name_any(), &PatchParams::default(), &patch).await
    }

    /// A node that is not ready is to be given up; one that is, is not.
    async fn taint(&self, node: &Node, ready: &str) {
        let (taint, other) = match ready {
            "False" => (NOT_READY, UNREACHABLE),
            "Unknown" => (UNREACHABLE, NOT_READY),
            "True" => return self.mark_reachable(node).await,
            _ => return,
        };
        if taints::has(node, other, NO_EXECUTE) {
            // It was given up already: only why is new.
            if let Err(error) = self.swap(node, &Swap::ending(taint, other)).await {
                tracing::debug!(node = node.name_any(), %error, "taints were not swapped, trying again");
            }
            return;
        }
        let mut state = self.state.lock();
        let Some(slow) = state.slow_of(node) else { return };
        if !taints::has(node, taint, NO_EXECUTE) {
            slow.remove(&node.name_any());
        }
        slow.add(&node.name_any());
    }

    async fn mark_reachable(&self, node: &Node) {
        match self.swap(node, &Swap::reachable()).await {
            Ok(()) => {
                if let Some(slow) = self.state.lock().slow_of(node) {
                    slow.remove(&node.name_any());
                }
            }
            Err(error) => {
                tracing::debug!(node = node.name_any(), %error, "taints were not taken, trying again")
            }
        }
    }

    /// Gives up nodes, one after the other.
    async fn give_up(&self) {
        let mut ticks = tokio::time::interval(TAINTING_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let zones: Vec<String> = self.state.lock().slow.keys().cloned().collect();
            for zone in zones {
                while let Some(name) = self.next_of(&zone) {
                    if !self.give_up_node(&zone, &name).await {
                        self.state
                            .lock()
                            .slow
                            .get_mut(&zone)
                            .into_iter()
                            .for_each(|slow| slow.retry(name.clone()));
                    }
                }
            }
        }
    }

    fn next_of(&self, zone: &str) -> Option<String> {
        self.state.lock().slow.get_mut(zone)?.next((self.clock)())
    }

    /// False if it must be tried again.
    async fn give_up_node(&self, zone: &str, name: &str) -> bool {
        let _turn = self.giving_up.lock().await;
        // All may have fallen silent meanwhile.
        if self.state.lock().slow.get(zone).is_none_or(Slow::is_stopped) {
            return false;
        }
        let Some(node) = self.cluster.nodes.get(&Key::new("", name)) else { return true };
        let swap = match condition(&node, "Ready").map(|ready| &*ready.status) {
            Some("False") => Swap::ending(NOT_READY, UNREACHABLE),
            Some("Unknown") => Swap::ending(UNREACHABLE, NOT_READY),
            Some(_) => return true,
            None => return false,
        };
        let done = self.swap(&node, &swap).await;
        if let Err(error) = &done {
            tracing::debug!(node = name, %error, "a node was not given up, trying again");
        } else {
            self.metrics.zone_evicted(zone, 1);
        }
        done.is_ok()
    }

    /// Changes the rates by how many nodes are ready.
    async fn judge(&self, counts: &BTreeMap<String, Count>, nodes: &[Arc<Node>]) {
        let limits = Limits {
            rate: self.config.eviction_rate,
            secondary_rate: self.config.secondary_eviction_rate,
            large: self.config.large_zone,
            threshold: self.config.unhealthy_threshold,
        };
        let now = (self.clock)();
        let turn = {
            let mut state = self.state.lock();
            let names: Vec<String> = state.zones.names().cloned().collect();
            for name in names {
                let count = counts.get(&name).copied().unwrap_or_default();
                self.metrics.zone_seen(&name, count.size(), count.not_ready);
            }
            let turn = state.zones.judge(counts, &limits);
            match &turn {
                Turn::Entered => state.slow.values_mut().for_each(|slow| slow.set_rate(0.0, now)),
                Turn::Rates(rates) | Turn::Exited(rates) => {
                    for (zone, rate) in rates {
                        let slow = state.slow.entry(zone.clone()).or_insert_with(|| Slow::new(*rate, now));
                        slow.set_rate(*rate, now);
                    }
                }
            }
            if matches!(turn, Turn::Exited(_)) {
                state.healths.values_mut().for_each(|health| health.heard = now);
            }
            turn
        };
        match turn {
            Turn::Entered => {
                tracing::warn!("no node is ready: none is given up until one is");
                let _turn = self.giving_up.lock().await;
                for node in nodes {
                    // What is known of its taints may be old.
                    if let Err(error) = self.swap_now(node, &Swap::reachable()).await {
                        tracing::warn!(node = node.name_any(), %error, "a node stays given up");
                    }
                    if let Some(slow) = self.state.lock().slow_of(node) {
                        slow.remove(&node.name_any());
                    }
                }
            }
            Turn::Exited(_) => tracing::warn!("some nodes are ready again"),
            Turn::Rates(_) => {}
        }
    }

    /// Tells pods that they are not ready. False if some could not be told.
    async fn unready(&self, pods: &[Arc<PodFact>]) -> bool {
        let mut are_all_told = true;
        for pod in pods.iter().filter(|pod| pod.ready == Some(true)) {
            let condition =
                json!({"type": "Ready", "status": "False", "lastTransitionTime": Time((self.clock)())});
            let status = json!({"conditions": [condition]});
            match ending::patch_status(&self.cluster.client, &pod.key, &pod.uid, status).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => continue,
                Err(error) => {
                    tracing::debug!(pod = %pod.key, %error, "a pod does not know that its node is not ready");
                    are_all_told = false;
                }
                Ok(()) => {}
            }
            let (reason, message) = ("NodeNotReady".to_owned(), "Node is not ready".to_owned());
            self.recorder.publish(Report { about: pod.reference(), is_warning: true, reason, message });
        }
        are_all_told
    }

    /// Changes taints, unless the node has them already, as far as is known.
    async fn swap(&self, node: &Node, swap: &Swap) -> kube::Result<()> {
        if swap.is_empty() || taints::swapped(node, swap, (self.clock)()).is_none() {
            return Ok(());
        }
        self.swap_now(node, swap).await
    }

    /// Writes taints over those of the node as it is now.
    async fn swap_now(&self, node: &Node, swap: &Swap) -> kube::Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        for attempt in 1.. {
            let Some(now) = nodes.get_opt(&node.name_any()).await? else { return Ok(()) };
            let Some(new) = taints::swapped(&now, swap, (self.clock)()) else { return Ok(()) };
            let meta = json!({"uid": node.metadata.uid, "resourceVersion": now.metadata.resource_version});
            let patch = Patch::Merge(json!({"metadata": meta, "spec": {"taints": new}}));
            match nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < TRIES => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    async fn label(&self, node: &Node) -> kube::Result<()> {
        let labels = taints::labels(node);
        if labels.is_empty() {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    fn say(&self, node: &str, uid: &str, reason: &str, message: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.recorder.publish(Report { about, is_warning: false, reason: reason.to_owned(), message });
    }
}
