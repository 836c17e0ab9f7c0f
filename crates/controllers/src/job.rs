//! The Job controller: watches Jobs and pods, asks `windlass_job::decide` what to do, does it, and asks again.
//!
//! ```text
//!  watch Jobs ──┐                                                    ┌──> begin, perform ──> API server
//!  watch Pods ──┴──> Registry (a JobView a Job) ──> queue ──> decide ┤              │
//!                       ^               ^                            │              │ what became of each write
//!                       └───── fold ────┼────────────────────────────┼──────────────┘
//!                                     queue                          └──> Observer, events, logs
//! ```
//!
//! Nothing is decided here. Writes are on their way while the next decision is made: the view knows which. What a Job waits
//! for is only ever its own answers. A pod whose Job can't look after it goes through [`orphans`] instead.

mod molds;
mod orphans;
mod patches;
mod perform;
mod registry;
mod report;
mod rest;
mod settled;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_api::{Gates, names};
use windlass_job::trace::Note;
use windlass_job::{Action, Decision, Settings, Uid, Wake, decide};

use crate::calls::Calls;
use crate::cluster::Cluster;
use crate::events::Recorder;
use crate::metrics::{Metrics, SyncAction, SyncLabels};
use crate::queue::Queue;
use crate::wire::RawJob;
use crate::{Clock, pod_watch, watch};
use perform::{Answer, Performer, Stage};
use registry::{Known, Registry};
use rest::Look;

/// A wake is never sooner than this, whatever the clocks say: no busy waiting.
const WAKE_MIN: Duration = Duration::from_millis(1);
/// Nor later: a look too many is nothing, and no clock overflows.
const WAKE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How a Job controller is set up.
#[derive(Clone)]
pub struct Config {
    /// What decisions depend on besides Job and pods.
    pub settings: Settings,
    /// Which features are on.
    pub gates: Gates,
    /// Tells the time.
    pub clock: Clock,
    /// Only this namespace; all if `None`.
    pub namespace: Option<String>,
    /// Jobs worked on at the same time. Each waits for its writes most of the time: what is bounded is those.
    pub workers: usize,
    /// Writes under way at the same time, shared fairly between Jobs; fewer while the API server answers 429.
    pub writes_at_once: usize,
    /// Looks at a Job may take one of so many parts of the time, once a look takes long: then the Job is left alone for a
    /// while, and its pods with it.
    pub looks_share: u32,
    /// Release pods that are counted one after the other, and whatever is ready goes first. For an API server that has
    /// answered when a request is sent: many at once are not done sooner there, and keep the next pods waiting.
    pub releases_in_turn: bool,
    /// Publish an event for each pod that is created or deleted, or could not be.
    pub pod_events: bool,
    /// Hears of every decision.
    pub observer: Option<Arc<dyn Observer>>,
    /// Where to count.
    pub metrics: Metrics,
    /// The watches go through this client, if it is another than that of the writes.
    pub watch_client: Option<Client>,
    /// Is shown all pods as they are watched, so that others need not watch them too. Only without a namespace.
    pub cluster: Option<Arc<Cluster>>,
    /// Turns true when everything was listed once and work begins.
    pub ready: Option<Sender<bool>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            gates: Gates::default(),
            clock: Arc::new(Timestamp::now),
            namespace: None,
            workers: 64,
            writes_at_once: 64,
            looks_share: rest::LOOKS_SHARE,
            releases_in_turn: false,
            pod_events: true,
            observer: None,
            metrics: Metrics::default(),
            watch_client: None,
            cluster: None,
            ready: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("settings", &self.settings)
            .field("gates", &self.gates)
            .field("namespace", &self.namespace)
            .field("workers", &self.workers)
            .field("writes_at_once", &self.writes_at_once)
            .field("pod_events", &self.pod_events)
            .finish_non_exhaustive()
    }
}

/// A Job, by all its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`: a Job that is made again under the same name is another one.
    pub uid: Uid,
}

/// Hears of decisions as they are made.
pub trait Observer: Send + Sync {
    /// A decision that does something or has something to say. Called on the controller's own tasks: be quick.
    fn decided(&self, job: &JobKey, decision: &Decision);
}

/// The Job controller.
pub struct JobController {
    client: Client,
    config: Config,
}

impl fmt::Debug for JobController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobController").field("config", &self.config).finish_non_exhaustive()
    }
}

impl JobController {
    /// A controller that talks to the API server of `client`.
    pub fn new(client: Client, config: Config) -> Self {
        Self { client, config }
    }

    /// Runs until cancelled. Writes that are under way are finished; what they left undone is found by the next one to
    /// run.
    pub async fn run(self, cancel: CancellationToken) {
        let Self { client, config } = self;
        let watches = config.watch_client.clone().unwrap_or_else(|| client.clone());
        let jobs = jobs_of(&watches, &config);
        let calls = Calls::new(client, config.writes_at_once, config.metrics.clone());
        let (recorder, publishing) =
            Recorder::through(calls.clone(), names::EVENT_COMPONENT, config.clock.clone());
        let shared = Arc::new(Shared {
            registry: Registry::new(config.gates, config.settings.manages, config.metrics.clone()),
            performer: Performer::new(calls, recorder, &config),
            config,
            cancel: cancel.clone(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(publishing);
        // Pods after Jobs, and work after both: at the start every pod finds its Job, and no Job misses a pod.
        let (take, jobs_listed) = feed(&shared, |shared, event| shared.registry.job_changed(event));
        tasks.spawn(watch::follow(jobs, cancel.clone(), take));
        if !listed(jobs_listed, &cancel).await {
            return drain(tasks, shared).await;
        }
        let (take, pods_listed) = feed(&shared, |shared, event| {
            if let Some(cluster) = &shared.config.cluster {
                cluster.take_pod(&event);
            }
            shared.registry.pod_changed(event);
        });
        let namespace = shared.config.namespace.clone();
        tasks.spawn(pod_watch::follow(watches, namespace, cancel.clone(), take));
        if !listed(pods_listed, &cancel).await {
            return drain(tasks, shared).await;
        }
        if let Some(ready) = &shared.config.ready {
            ready.send_replace(true);
        }
        for _ in 0..shared.config.workers.max(1) {
            let work = |shared: Arc<Shared>, uid| async move { shared.look(&uid) };
            spawn_worker(&mut tasks, &shared, &cancel, |shared| &shared.registry.jobs_due, work);
            let work = |shared: Arc<Shared>, orphan| async move {
                orphans::work(&shared.registry, &shared.performer, orphan).await;
            };
            spawn_worker(&mut tasks, &shared, &cancel, |shared| &shared.registry.orphans_due, work);
        }
        drain(tasks, shared).await;
    }
}

/// The most telling thing that a decision does.
fn most_telling(decision: &Decision) -> SyncAction {
    let did = |action: &Action| match action {
        Action::Create(_) => SyncAction::PodsCreated,
        Action::Delete(_) | Action::Remove(..) => SyncAction::PodsDeleted,
        Action::Release(_) | Action::WriteStatus(_) => SyncAction::Tracking,
        Action::Adopt(_) | Action::Disown(_) | Action::Emit(_) => SyncAction::Reconciling,
    };
    decision.stage.iter().map(did).max().unwrap_or(SyncAction::Reconciling)
}

/// What is performed side by side: each action by itself, but for those that release a pod if these go one after the other.
fn flights(actions: Vec<Action>, releases_in_turn: bool) -> Vec<Vec<Action>> {
    let is_in_turn = |action: &Action| releases_in_turn && matches!(action, Action::Release(_));
    let (releases, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_in_turn);
    let in_turn = (!releases.is_empty()).then_some(releases);
    others.into_iter().map(|action| vec![action]).chain(in_turn).collect()
}

/// Somebody else's Job, or a finished one.
fn is_idle(decision: &Decision) -> bool {
    let is_idle = |note: &Note| matches!(note, Note::NotOurs { .. } | Note::Finished | Note::UnknownMode);
    decision.because.0.iter().any(is_idle)
}

/// What all tasks of a controller share.
struct Shared {
    registry: Registry,
    performer: Performer,
    config: Config,
    cancel: CancellationToken,
}

fn jobs_of(client: &Client, config: &Config) -> Api<RawJob> {
    match &config.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// What feeds a watch into the registry. The receiver turns true when the first list is in.
fn feed<K: Send + 'static>(
    shared: &Arc<Shared>,
    take: fn(&Shared, Event<K>),
) -> (impl FnMut(Event<K>) + Send + 'static, Receiver<bool>) {
    let (listed, receiver) = tokio::sync::watch::channel(false);
    let shared = Arc::clone(shared);
    let feed = move |event: Event<K>| {
        let is_list_done = matches!(event, Event::InitDone);
        take(&shared, event);
        if is_list_done {
            listed.send_replace(true);
        }
    };
    (feed, receiver)
}

/// Waits for the first list; false if cancelled before.
async fn listed(mut receiver: Receiver<bool>, cancel: &CancellationToken) -> bool {
    tokio::select! {
        () = cancel.cancelled() => false,
        seen = receiver.wait_for(|listed| *listed) => seen.is_ok(),
    }
}

/// Waits until all tasks are done. The task that publishes events ends when nobody can publish any more: not before the
/// last write is answered.
async fn drain(mut tasks: JoinSet<()>, shared: Arc<Shared>) {
    drop(shared);
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the Job controller ended badly");
        }
    }
}

fn spawn_worker<K, F>(
    tasks: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    cancel: &CancellationToken,
    queue: fn(&Shared) -> &Queue<K>,
    work: impl Fn(Arc<Shared>, K) -> F + Send + 'static,
) where
    K: Clone + Eq + std::hash::Hash + Ord + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (shared, cancel) = (Arc::clone(shared), cancel.clone());
    tasks.spawn(async move {
        loop {
            let key = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                key = queue(&shared).next() => key,
            };
            // A bug that one key brings out must not stop the work on all others.
            let done = AssertUnwindSafe(work(Arc::clone(&shared), key.clone())).catch_unwind();
            if done.await.is_err() {
                tracing::error!("work on a Job ended badly");
                queue(&shared).retry(key.clone());
            }
            queue(&shared).done(&key);
            // What was decided is sent on its way before the next look, and often makes it needless.
            tokio::task::yield_now().await;
        }
    });
}

impl Shared {
    /// Decides what to do for a Job now, and sends it on its way.
    fn look(self: &Arc<Self>, uid: &Uid) {
        let Some(slot) = self.registry.slot(uid) else { return };
        let start = Instant::now();
        let mut known = slot.known.lock();
        if known.is_gone {
            return;
        }
        if let Some(until) = known.rests_until.filter(|until| *until > start) {
            return self.registry.jobs_due.add_at(uid.clone(), until);
        }
        let look = known.took_long.then(Look::begin);
        let decision = self.decide(&slot.key, &known);
        let labels = SyncLabels {
            is_indexed: known.view.job().is_indexed(),
            is_error: false,
            action: most_telling(&decision),
        };
        let is_idle = is_idle(&decision);
        let Decision { stage: actions, because, wake } = decision;
        if actions.is_empty() {
            self.schedule(uid, wake);
            if !is_idle {
                self.config.metrics.synced(labels, start.elapsed());
            }
        } else {
            let now = (self.config.clock)();
            actions.iter().for_each(|action| known.view.begin(action, now));
            let stage = Arc::new(self.performer.stage(&slot, &mut known, &actions, because.0, labels, now));
            for flight in flights(actions, self.config.releases_in_turn) {
                tokio::spawn(Arc::clone(self).fly(Arc::clone(&stage), flight));
            }
            // What is left to wait for, beside the answers?
            self.registry.jobs_due.add(uid.clone());
        }
        let (now, share) = (Instant::now(), self.config.looks_share);
        known.took_long = rest::is_long(now - start, share);
        known.rests_until = look.and_then(|look| look.rest(share)).map(|rest| now + rest);
    }

    /// Performs actions, one after the other, when it is their turn. Those whose turn has not come when the controller stops
    /// are left to the next one.
    async fn fly(self: Arc<Self>, stage: Arc<Stage>, flight: Vec<Action>) {
        for action in flight {
            let mut turn = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return,
                turn = stage.turn(&action) => turn,
            };
            // A bug that one action brings out must not keep all others waiting. Boxed: most of those that wait have no turn.
            let act = Box::pin(AssertUnwindSafe(stage.act(&action, &mut turn)).catch_unwind());
            let answer = act.await.unwrap_or_else(|_| {
                tracing::error!(?action, "an action of the Job controller ended badly");
                Answer::Failed
            });
            drop(turn);
            stage.landed(&action, answer, &self.config);
            // Others may wait for what was written, such as a node for its next pod: they go before the next action or look.
            tokio::task::yield_now().await;
        }
        self.registry.jobs_due.add(stage.uid().clone());
    }

    fn decide(&self, key: &JobKey, known: &Known) -> Decision {
        let now = (self.config.clock)();
        let decision = decide(&known.view.observation(now, &self.config.settings));
        self.config.metrics.decided(&decision.because.0);
        if !decision.because.0.is_empty() {
            tracing::debug!(
                namespace = key.namespace,
                job = key.name,
                actions = decision.stage.len(),
                because = %decision.because,
                "decided"
            );
        }
        if let Some(observer) = &self.config.observer
            && !(decision.stage.is_empty() && decision.because.0.is_empty())
        {
            observer.decided(key, &decision);
        }
        decision
    }

    fn schedule(&self, uid: &Uid, wake: Wake) {
        match wake {
            Wake::Settled => {}
            Wake::Again => self.registry.jobs_due.add(uid.clone()),
            Wake::At(time) => {
                let wait = Duration::try_from(time.duration_since((self.config.clock)())).unwrap_or_default();
                self.registry.jobs_due.add_at(uid.clone(), Instant::now() + wait.clamp(WAKE_MIN, WAKE_MAX));
            }
        }
    }
}
