//! The scheduler's loop: watches pods, nodes, namespaces and budgets, keeps what each node holds, and takes pods from
//! the queue.
//!
//! A pod counts on its node from the moment it is chosen, before the API server has answered: the next choice sees it.
//! Nothing is polled: the queue moves when a pod comes or goes, a node changes, or a write is answered.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_watch::Objects;

use crate::cluster::{Budget, Cluster, NodeFacts};
use crate::events::{Reason, Recorder, Report, reference};
use crate::hints::{self, Change};
use crate::metrics::Metrics;
use crate::pod::{PodFacts, Uid};
use crate::queue::{Queue, Waiting};
use crate::watched::WatchedPod;
use crate::writes::Written;
use crate::{Clock, NAME};

/// upstream: how often it is looked whether pods have been resting for too long.
const OLD_LOOKED_FOR: Duration = Duration::from_secs(30);

/// How it works.
#[derive(Clone)]
pub struct Config {
    /// Whether pods that have to leave get the `DisruptionTarget` condition, and a reason of the draft.
    pub gates: Gates,
    /// Whether there are events for people.
    pub publishes_events: bool,
    /// Tells the time.
    pub clock: Clock,
    /// Figures for machines.
    pub metrics: Metrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gates: Gates::default(),
            publishes_events: true,
            clock: Arc::new(Timestamp::now),
            metrics: Metrics::default(),
        }
    }
}

/// Binds pods to nodes, and makes room for those that matter more.
pub struct Scheduler {
    pub(crate) client: kube::Client,
    pub(crate) config: Config,
    pub(crate) recorder: Recorder,
    pub(crate) cluster: Cluster,
    pub(crate) queue: Queue,
    /// Pods that are not known to be bound yet, and since when they are tried.
    pub(crate) binding: HashMap<Uid, (Waiting, Instant)>,
    /// Pods for which others are being told to leave, and whether something has happened meanwhile that may help them.
    pub(crate) preempting: HashMap<Uid, bool>,
    /// Pods that there is something to tell, as soon as there is a write to spare.
    pub(crate) untold: VecDeque<Uid>,
    pub(crate) writes: JoinSet<Written>,
    /// When the latest write about a pod is answered: one comes after the other.
    pub(crate) latest: HashMap<Uid, oneshot::Receiver<()>>,
    gated: HashSet<Uid>,
    /// Where to begin in a large cluster.
    pub(crate) start: usize,
    pub(crate) listed: Listed,
}

/// What was listed once. Nothing is placed before everything is known: a node would look emptier than it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listed {
    pods: bool,
    nodes: bool,
    namespaces: bool,
    budgets: bool,
}

impl Listed {
    pub(crate) fn is_all(self) -> bool {
        self.pods && self.nodes && self.namespaces && self.budgets
    }
}

/// Places pods while they are being made, for an API server of the same process: a pod that has its node from the start needs
/// no second write to get it.
#[derive(Clone)]
pub struct Placer(Weak<Mutex<Scheduler>>);

impl Placer {
    /// A node for a pod that is about to be stored; it counts there from now on. `None` if it has to wait for its turn as
    /// others do: then it is placed as soon as it is seen and there is room.
    pub fn place(&self, pod: &WatchedPod) -> Option<String> {
        self.0.upgrade()?.lock().place_new(&pod.0)
    }

    /// The pod was not stored.
    pub fn take_back(&self, uid: &str) {
        if let Some(scheduler) = self.0.upgrade() {
            scheduler.lock().take_back(uid);
        }
    }
}

impl Scheduler {
    /// A scheduler that has not seen anything yet.
    pub fn new(client: kube::Client) -> Self {
        Self::with_config(client, Config::default())
    }

    /// A scheduler that works as it is told.
    pub fn with_config(client: kube::Client, config: Config) -> Self {
        Self {
            client,
            config,
            recorder: Recorder::silent(),
            cluster: Cluster::default(),
            queue: Queue::default(),
            binding: HashMap::new(),
            preempting: HashMap::new(),
            untold: VecDeque::new(),
            writes: JoinSet::new(),
            latest: HashMap::new(),
            gated: HashSet::new(),
            start: 0,
            listed: Listed::default(),
        }
    }

    /// Schedules until it is cancelled.
    pub async fn run(self, cancel: CancellationToken) {
        self.start(cancel).1.await;
    }

    /// The same, and who places pods meanwhile that are being made.
    pub fn start(mut self, cancel: CancellationToken) -> (Placer, impl Future<Output = ()> + Send) {
        let publishing = if self.config.publishes_events {
            let (recorder, publishing) = Recorder::new(self.client.clone(), self.config.clock.clone());
            self.recorder = recorder;
            futures::future::Either::Left(publishing)
        } else {
            futures::future::Either::Right(std::future::ready(()))
        };
        let client = self.client.clone();
        let shared = Arc::new(Mutex::new(self));
        let placer = Placer(Arc::downgrade(&shared));
        let scheduling = schedule(client, shared, cancel.clone());
        let running = async move {
            // What is left to publish when the scheduler ends is not worth waiting for.
            tokio::select! {
                ((), ()) = futures::future::join(scheduling, publishing) => {}
                () = cancel.cancelled() => {}
            }
        };
        (placer, running)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.config.clock)()
    }

    /// Lets those in whose time has come.
    fn let_in(&mut self) {
        let now = self.now();
        let count = self.queue.let_in(now);
        self.config.metrics.incoming("active", "BackoffComplete", count);
    }

    fn on_pod_event(&mut self, event: Event<WatchedPod>, listed: &mut HashSet<Uid>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(WatchedPod(pod)) => {
                listed.extend(pod.metadata.uid.as_deref().map(Uid::from));
                self.on_pod(&pod);
            }
            Event::InitDone => {
                let known = self.cluster.placed().chain(self.queue.uids()).chain(&self.gated);
                for uid in known.filter(|uid| !listed.contains(*uid)).cloned().collect::<Vec<_>>() {
                    self.forget(&uid);
                }
                listed.clear();
                self.listed.pods = true;
            }
            Event::Apply(WatchedPod(pod)) => self.on_pod(&pod),
            Event::Delete(WatchedPod(pod)) => self.forget(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    fn on_pod(&mut self, pod: &Pod) {
        let started = Instant::now();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let has_node = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.as_deref().is_some_and(|name| !name.is_empty()));
        let event = match has_node {
            true if self.cluster.place_of(uid).is_some() && !self.binding.contains_key(uid) => {
                "AssignedPodUpdate"
            }
            true => "AssignedPodAdd",
            false if self.gated.contains(uid) || self.queue.get_mut(uid).is_some() => {
                "UnschedulablePodUpdate"
            }
            false => "UnschedulablePodAdd",
        };
        self.take_pod(pod);
        self.config.metrics.handled(event, started.elapsed());
    }

    fn take_pod(&mut self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        let Some(spec) = pod.spec.as_ref() else { return };
        if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
            self.on_placed(pod, uid, node);
            return;
        }
        // A view from before our bind. What is being deleted is not going to be bound.
        if self.cluster.place_of(uid).is_some() {
            if pod.metadata.deletion_timestamp.is_some()
                && let Some((waiting, _)) = self.binding.remove(uid)
            {
                self.unassume(&waiting);
            }
            return;
        }
        if !is_ours(spec) {
            return;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            self.on_deleted(uid);
            return;
        }
        if is_gated(spec) {
            if self.gated.insert(uid.into()) {
                self.config.metrics.incoming("unschedulable", "UnschedulablePodAdd", 1);
            }
            return;
        }
        self.gated.remove(uid);
        self.on_waiting(pod);
    }

    /// A pod is on a node, whoever put it there.
    fn on_placed(&mut self, pod: &Pod, uid: &str, node: &str) {
        self.queue.remove(uid);
        self.gated.remove(uid);
        // The answer may be slower than the watch, or be lost.
        if let Some((waiting, started)) = self.binding.remove(uid)
            && self.cluster.place_of(uid) == Some(node)
        {
            self.confirm(&waiting, started);
        }
        let known = self.cluster.pod(uid).cloned();
        let renewed = match &known {
            Some(known) => known.renewed(pod),
            None => PodFacts::of(pod).map(Arc::new),
        };
        let Some(renewed) = renewed else { return };
        let is_same = known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &renewed));
        if is_same && self.cluster.place_of(uid) == Some(node) {
            return;
        }
        match self.cluster.place(renewed.clone(), node) {
            Some(before) => self.wake(Change::PodChanged(&before, &renewed), |_| true),
            None => self.wake(Change::PodPlaced(&renewed), |_| true),
        }
    }

    /// A pod is going to leave its node, unless it has left already.
    pub(crate) fn see_leaving(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if self.cluster.pod(uid).is_some() {
            self.take_pod(pod);
        }
    }

    /// A pod waits for a node.
    fn on_waiting(&mut self, pod: &Pod) {
        let Some(facts) = PodFacts::of(pod).map(Arc::new) else { return };
        let (now, uid) = (self.now(), facts.uid.clone());
        let before = self.queue.get_mut(&uid).map(|waiting| waiting.nominated.clone());
        let is_new = before.is_none();
        let before = before.flatten();
        // It may do what those like it could not: there are pods that matter less.
        let retries = is_new && !facts.demand.never_preempts && self.cluster.has_below(facts.priority());
        if self.queue.put(facts.clone(), pod, retries, now) {
            self.untold.push_back(uid.clone());
            let refusal = self.queue.get_mut(&uid).and_then(|waiting| waiting.refusal.clone());
            if let Some(refusal) = refusal.filter(|_| is_new) {
                self.report_failure(&facts, &refusal.message);
            }
        }
        if is_new {
            self.config.metrics.incoming("active", "UnschedulablePodAdd", 1);
        }
        let nominated = self.queue.get_mut(&uid).and_then(|waiting| waiting.nominated.clone());
        self.cluster.nominate(&facts, nominated.as_deref());
        if before.is_some() && before != nominated {
            self.free_nomination(&facts);
        }
    }

    /// A pod that has no node yet is being deleted.
    fn on_deleted(&mut self, uid: &str) {
        self.gated.remove(uid);
        let was_active = self.queue.is_active(uid);
        let Some(waiting) = self.queue.remove(uid) else { return };
        if was_active {
            let pod = &waiting.pod;
            self.recorder.report(|| Report {
                about: reference(pod),
                reason: Reason::FailedScheduling,
                note: format!("skip schedule deleting pod: {}/{}", pod.namespace, pod.name),
            });
        }
        self.leave(&waiting);
    }

    fn forget(&mut self, uid: &str) {
        let started = Instant::now();
        let has_node = self.cluster.place_of(uid).is_some() && !self.binding.contains_key(uid);
        self.gated.remove(uid);
        self.binding.remove(uid);
        self.preempting.remove(uid);
        self.latest.remove(uid);
        if let Some(waiting) = self.queue.remove(uid) {
            self.leave(&waiting);
        }
        if let Some((_, pod)) = self.cluster.unplace(uid) {
            self.wake(Change::PodGone(&pod), |_| true);
        }
        let event = if has_node { "AssignedPodDelete" } else { "UnschedulablePodDelete" };
        self.config.metrics.handled(event, started.elapsed());
    }

    /// A pod waits no more.
    fn leave(&mut self, waiting: &Waiting) {
        self.cluster.forget_nomination(&waiting.pod.uid);
        if waiting.nominated.is_some() {
            self.free_nomination(&waiting.pod);
        }
    }

    /// The node that was kept for a pod is there for those that matter no more than it.
    pub(crate) fn free_nomination(&mut self, pod: &PodFacts) {
        let priority = pod.priority();
        self.wake(Change::PodGone(pod), |other| other.priority() <= priority);
    }

    fn on_node_event(&mut self, event: Event<Node>, listed: &mut HashSet<String>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                listed.insert(node.name_any());
                self.on_node(&node);
            }
            Event::InitDone => {
                let known = self.cluster.nodes().map(|node| node.facts.name.clone());
                for name in known.filter(|name| !listed.contains(name)).collect::<Vec<_>>() {
                    self.forget_node(&name);
                }
                listed.clear();
                self.listed.nodes = true;
            }
            Event::Apply(node) => self.on_node(&node),
            Event::Delete(node) => self.forget_node(&node.name_any()),
        }
    }

    fn on_node(&mut self, node: &Node) {
        let started = Instant::now();
        let facts = NodeFacts::of(node);
        // A heartbeat changes nothing that matters here.
        if self.cluster.node(&facts.name).is_some_and(|node| node.facts == facts) {
            return;
        }
        match self.cluster.set_node(facts.clone()) {
            Some(before) => self.react(Change::NodeChanged(&before, &facts), started),
            None => self.react(Change::NodeAdded(&facts), started),
        }
    }

    fn forget_node(&mut self, name: &str) {
        let started = Instant::now();
        if let Some(facts) = self.cluster.remove_node(name) {
            self.react(Change::NodeGone(&facts), started);
        }
    }

    /// Wakes whom a change may help, and says how long all of it took.
    fn react(&mut self, change: Change<'_>, started: Instant) {
        self.wake(change, |_| true);
        self.config.metrics.handled(change.name(), started.elapsed());
    }

    fn on_namespace_event(&mut self, event: Event<Namespace>) {
        let namespaces = &mut self.cluster.namespaces;
        match event {
            Event::Init => namespaces.clear(),
            Event::InitDone => self.listed.namespaces = true,
            Event::InitApply(namespace) | Event::Apply(namespace) => {
                let name = namespace.name_any();
                namespaces.insert(name, namespace.metadata.labels.unwrap_or_default());
            }
            Event::Delete(namespace) => _ = namespaces.remove(&namespace.name_any()),
        }
    }

    fn on_budget_event(&mut self, event: Event<PodDisruptionBudget>) {
        let budgets = &mut self.cluster.budgets;
        let key = |budget: &PodDisruptionBudget| (budget.namespace().unwrap_or_default(), budget.name_any());
        match event {
            Event::Init => budgets.clear(),
            Event::InitDone => self.listed.budgets = true,
            Event::InitApply(budget) | Event::Apply(budget) => {
                _ = budgets.insert(key(&budget), Budget::of(&budget));
            }
            Event::Delete(budget) => _ = budgets.remove(&key(&budget)),
        }
    }

    /// Pods for which others are leaving are not tried before those have been told; they are remembered.
    pub(crate) fn wake(&mut self, change: Change<'_>, is_meant: impl Fn(&PodFacts) -> bool) {
        let now = self.now();
        let (namespaces, preempting) = (&self.cluster.namespaces, &mut self.preempting);
        let count = self.queue.wake(now, |waiting, filters| {
            let pod = &waiting.pod;
            let helps = is_meant(pod) && hints::helps(change, pod, filters, namespaces);
            match preempting.get_mut(&pod.uid) {
                Some(is_woken) => {
                    *is_woken |= helps;
                    false
                }
                None => helps,
            }
        });
        self.config.metrics.incoming("active", change.name(), count);
    }

    fn look_for_old(&mut self) {
        let count = self.queue.wake_old(self.now());
        self.config.metrics.incoming("active", "UnschedulableTimeout", count);
        let rejected = self.queue.rejected();
        for filter in crate::fit::Filter::ALL {
            let count = rejected.get(&filter).copied().unwrap_or(0);
            self.config.metrics.unschedulable(filter, count);
        }
    }

    pub(crate) fn count(&self) {
        let (metrics, counts) = (&self.config.metrics, self.queue.counts());
        metrics.pending("active", counts.active);
        metrics.pending("backoff", counts.backing_off);
        metrics.pending("unschedulable", counts.resting);
        metrics.pending("gated", self.gated.len());
        metrics.cached("nodes", self.cluster.nodes().len());
        metrics.cached("pods", self.cluster.placed_count());
        metrics.cached("assumed_pods", self.binding.len());
    }
}

/// Takes what is seen and what was answered, and then pods from the queue, until it is cancelled.
async fn schedule(client: kube::Client, scheduler: Arc<Mutex<Scheduler>>, cancel: CancellationToken) {
    // A pod that has ended holds nothing: to the watch it is gone.
    let live = Objects {
        path: Pod::url_path(&(), None),
        fields: Some("status.phase!=Succeeded,status.phase!=Failed".to_owned()),
    };
    // Those that are placed while they are made, and those that end, are only accounted for.
    let pods = windlass_watch::follow::<WatchedPod>(client.clone(), live).boxed();
    let mut pods = pin!(windlass_watch::unhurried(pods));
    let mut nodes = pin!(follow::<Node>(&client));
    let mut namespaces = pin!(follow::<Namespace>(&client));
    let mut budgets = pin!(follow::<PodDisruptionBudget>(&client));
    let (mut listed_pods, mut listed_nodes) = (HashSet::new(), HashSet::new());
    let mut old = tokio::time::interval(OLD_LOOKED_FOR);
    old.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut has_more = false;
    // Held for one step at a time, never while anything is waited for.
    let me = || scheduler.lock();
    loop {
        let (due, now) = {
            let me = me();
            (me.queue.next_due(), me.now())
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            Some(event) = pods.next() => me().on_pod_event(event, &mut listed_pods),
            Some(event) = nodes.next() => me().on_node_event(event, &mut listed_nodes),
            Some(event) = namespaces.next() => me().on_namespace_event(event),
            Some(event) = budgets.next() => me().on_budget_event(event),
            Some(written) = poll_fn(|context| me().writes.poll_join_next(context)) => match written {
                Ok(written) => me().on_written(written),
                Err(error) => tracing::error!(%error, "a write of the scheduler broke"),
            },
            () = pause(due, now), if due.is_some() => me().let_in(),
            _ = old.tick() => me().look_for_old(),
            () = std::future::ready(()), if has_more => {}
        }
        let mut me = me();
        if me.listed.is_all() {
            has_more = me.take_turns();
            me.tell_untold();
        }
    }
}

/// All changes of a kind: list, then watch, and again from the start when the watch breaks.
fn follow<K>(client: &kube::Client) -> impl Stream<Item = Event<K>> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    events.filter_map(|event| async move {
        event
            .inspect_err(
                |error| tracing::warn!(kind = %K::kind(&()), %error, "the watch broke, starting again"),
            )
            .ok()
    })
}

/// Whether a pod asks for this scheduler.
pub(crate) fn is_ours(spec: &PodSpec) -> bool {
    spec.scheduler_name.as_deref().is_none_or(|name| name.is_empty() || name == NAME)
}

/// Whether somebody has to let a pod go before it may be placed.
pub(crate) fn is_gated(spec: &PodSpec) -> bool {
    spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty())
}

async fn pause(until: Option<Timestamp>, now: Timestamp) {
    let left = until.map(|until| until.duration_since(now)).unwrap_or_default();
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}
