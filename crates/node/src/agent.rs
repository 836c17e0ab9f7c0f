//! The node agent: registers this node, watches the pods that are bound to it, and gives each a task of its
//! own.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use windlass_api::quantity::Quantity;

use crate::admission::{self, Amounts, Held, Verdict};
use crate::events::{self, Report};
use crate::files::Files;
use crate::phase::Phase;
use crate::pod::{self, Order, Update};
use crate::pressure::{self, Pressure};
use crate::register::{self, Health};
use crate::runtimes::host;
use crate::survey::{self, Findings, Spot};
use crate::{backoff, shutdown};

/// How long a shutdown waits beyond its grace for the last writes, before it lets the keeper kill what is
/// left.
const SHUTDOWN_SLACK: Duration = Duration::from_secs(10);

/// How long to wait for the end of an evicted pod before the next has to go.
const EVICTION_PATIENCE: Duration = Duration::from_secs(30);
/// The time that an evicted pod has; two seconds remain at least.
const EVICTION_GRACE: Duration = Duration::from_secs(1);

/// What a node offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// CPUs.
    pub cpu: Quantity,
    /// Bytes of memory.
    pub memory: Quantity,
    /// How many pods at once.
    pub pods: u32,
}

impl Capacity {
    /// All CPUs and memory of this machine, and 1000 pods.
    pub fn of_this_machine() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let system = rustix::system::sysinfo();
        let memory = u128::from(system.totalram) * u128::from(system.mem_unit.max(1));
        Self {
            cpu: Quantity::from_value(i64::try_from(cpus).unwrap_or(i64::MAX)),
            memory: Quantity::from_value(i64::try_from(memory).unwrap_or(i64::MAX)),
            pods: 1000,
        }
    }

    /// One of `count` equal shares of it.
    pub fn share(&self, count: u32) -> Self {
        let count = i64::from(count.max(1));
        Self {
            cpu: Quantity::from_milli(self.cpu.milli_value() / count),
            memory: Quantity::from_value(self.memory.value() / count),
            pods: self.pods,
        }
    }
}

/// How a node agent works.
#[derive(Clone)]
pub struct Config {
    /// The API server.
    pub client: kube::Client,
    /// The name of the node.
    pub node_name: String,
    /// Added to the usual labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Where the agent keeps its files; logs are in `logs` below it.
    pub data_dir: PathBuf,
    /// Where containers without a `workingDir` start.
    pub work_dir: PathBuf,
    /// What the node offers.
    pub capacity: Capacity,
    /// Delays between restarts of a container.
    pub crash_backoff: backoff::Limits,
    /// Run the command of any image as a process of this machine.
    pub runtime_override_host: bool,
    /// Add `DisruptionTarget` to pods that this node ends (the gate `PodDisruptionConditions`).
    pub disruption_conditions: bool,
    /// How to run the process keeper.
    pub keeper: host::Command,
    /// Hears of what people may want to know.
    pub events: Option<events::Publish>,
    /// The order in which a shutdown ends pods, and how long each group may take; empty: all at once.
    pub shutdown: Vec<shutdown::Group>,
    /// Evictions when the node is short of something; `None`: none.
    pub eviction: Option<Eviction>,
    /// How often to look whether it is, and whether pods keep more than they may.
    pub survey_every: Duration,
    /// How many processes and threads a container may have; `None`: as many as the machine allows.
    pub pids_max: Option<i64>,
    /// Keep the logs of pods that are gone.
    pub keeps_logs: bool,
}

impl Config {
    /// A node with all of this machine, and the defaults of Kubernetes.
    pub fn new(client: kube::Client, node_name: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            client,
            node_name: node_name.into(),
            labels: BTreeMap::new(),
            data_dir: data_dir.into(),
            work_dir: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            capacity: Capacity::of_this_machine(),
            crash_backoff: backoff::Limits::default(),
            runtime_override_host: false,
            disruption_conditions: true,
            keeper: host::Command::default(),
            events: None,
            shutdown: Vec::new(),
            eviction: None,
            survey_every: Duration::from_secs(10),
            pids_max: None,
            keeps_logs: false,
        }
    }
}

/// Why a node agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory for logs could not be made.
    #[error("create log directory {path}", path = .path.display())]
    Logs {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The host runtime did not start.
    #[error(transparent)]
    Runtime(#[from] host::Error),
    /// The API server did not take the Node.
    #[error("register node {name:?}")]
    Register {
        /// The node.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A running node agent. When it is dropped, its pods are killed.
pub struct Agent {
    name: String,
    context: Weak<pod::Context>,
    logs: PathBuf,
    /// How long a shutdown takes at most, by its groups.
    shutdown_time: Duration,
    stop: Option<oneshot::Sender<Duration>>,
    task: JoinHandle<()>,
}

impl Agent {
    /// Starts the runtime, registers the node, and begins to watch for pods.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let logs = config.data_dir.join("logs");
        std::fs::create_dir_all(&logs).map_err(|source| Error::Logs { path: logs.clone(), source })?;
        let host = host::Host::start(&config.keeper).await?;
        let register_error =
            |source| Error::Register { name: config.node_name.clone(), source: Box::new(source) };
        register::node(&config).await.map_err(register_error)?;
        let (stop, stopped) = oneshot::channel();
        let name = config.node_name.clone();
        let shutdown_time = config.shutdown.iter().map(|group| group.grace).sum();
        let context = Arc::new(pod::Context::new(config, host, logs.clone()));
        // The task alone keeps it, and with it the processes.
        let weak = Arc::downgrade(&context);
        let (health, heard) = watch::channel(Health::default());
        tokio::spawn(register::keep_alive(weak.clone(), heard));
        let task = tokio::spawn(Pods::new(context, health).run(stopped));
        Ok(Self { name, context: weak, logs, shutdown_time, stop: Some(stop), task })
    }

    /// The name of the node, and what its streams come from.
    pub(crate) fn source(&self) -> (String, Weak<pod::Context>) {
        (self.name.clone(), self.context.clone())
    }

    /// Where logs are; see [`crate::logs::path`].
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Ends all pods as a node that shuts down does: SIGTERM, at most `grace` or the time of their group, SIGKILL,
    /// then phase Failed. Starts no more.
    pub async fn shutdown(mut self, grace: Duration) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(grace);
        }
        let limit = self.shutdown_time.max(grace);
        let limit = limit.saturating_add(crate::stopping::GRACE_MIN * 2).saturating_add(SHUTDOWN_SLACK);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            tracing::warn!("pods did not end in time; they are killed");
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Evictions when the node is short of something.
#[derive(Clone)]
pub struct Eviction {
    /// What is read.
    pub signals: Arc<dyn pressure::Signals>,
    /// Where it begins.
    pub thresholds: Vec<(pressure::Signal, pressure::Threshold)>,
}

/// A pod that the agent has seen and that is still in the API.
struct Entry {
    /// `None` when its task has ended.
    updates: Option<mpsc::UnboundedSender<Update>>,
    /// The last delete was sent.
    is_deleted: bool,
    spot: Arc<Spot>,
    files: Files,
}

/// A critical pod that starts when others have ended.
struct Next {
    pod: Box<Pod>,
    updates: mpsc::UnboundedReceiver<Update>,
    /// Those, by UID.
    after: HashSet<String>,
}

/// A node that shuts down.
struct Closing {
    /// Who ends after those that are waited for.
    turns: VecDeque<(Duration, Vec<String>)>,
    /// The pods that are waited for, by UID.
    awaited: HashSet<String>,
    /// Until then.
    until: Instant,
}

struct Pods {
    context: Arc<pod::Context>,
    /// By UID.
    entries: HashMap<String, Entry>,
    /// What pods leave behind that are gone from the API and still run, by UID.
    leaving: HashMap<String, Files>,
    /// What was there when the agent started; `None` when the first list of pods has been compared with it.
    found: Option<Vec<Files>>,
    tasks: JoinSet<pod::Done>,
    next: Vec<Next>,
    closing: Option<Closing>,
    allocatable: Amounts,
    pressure: Pressure,
    /// The pod that was evicted last, and until when its end is waited for.
    evicted: Option<(String, Instant)>,
    health: watch::Sender<Health>,
}

impl Pods {
    fn new(context: Arc<pod::Context>, health: watch::Sender<Health>) -> Self {
        let found = Some(Files::all(&context));
        let Capacity { cpu, memory, pods } = &context.config.capacity;
        let allocatable =
            [("cpu", cpu.milli_value()), ("memory", memory.value()), ("pods", i64::from(*pods))];
        Self {
            allocatable: allocatable.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect(),
            context,
            entries: HashMap::new(),
            leaving: HashMap::new(),
            found,
            tasks: JoinSet::new(),
            next: Vec::new(),
            closing: None,
            pressure: Pressure::default(),
            evicted: None,
            health,
        }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<Duration>) {
        let selector = format!("spec.nodeName={}", self.context.config.node_name);
        let pods = kube::Api::<Pod>::all(self.context.config.client.clone());
        let events = watcher(pods, watcher::Config::default().fields(&selector)).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed = HashSet::new();
        let mut looks = tokio::time::interval(self.context.config.survey_every);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut survey: OptionFuture<JoinHandle<Findings>> = None.into();
        let mut is_looking = false;
        while !self.close() {
            let until = self.closing.as_ref().map(|closing| closing.until);
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(event) => self.on_event(event, &mut listed),
                    Err(error) => tracing::warn!(%error, "watch pods of this node"),
                },
                Some(done) = self.tasks.join_next() => self.on_done(done),
                _ = looks.tick(), if !is_looking && self.closing.is_none() => {
                    survey = self.look().into();
                    is_looking = true;
                }
                found = &mut survey, if is_looking => {
                    (survey, is_looking) = (None.into(), false);
                    match found {
                        Some(Ok(found)) => self.on_found(&found),
                        Some(Err(error)) => tracing::error!(%error, "look at the node"),
                        None => {}
                    }
                }
                grace = &mut stopped, if self.closing.is_none() => match grace {
                    Ok(grace) => self.shut_down(grace),
                    // The agent was dropped without a shutdown: its processes go with the keeper.
                    Err(_) => return,
                },
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    fn on_event(&mut self, event: watcher::Event<Pod>, listed: &mut HashSet<String>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.extend(pod.metadata.uid.clone());
                self.on_pod(pod);
            }
            watcher::Event::InitDone => {
                let gone = self.entries.keys().filter(|uid| !listed.contains(*uid));
                for uid in gone.cloned().collect::<Vec<_>>() {
                    self.on_gone(&uid);
                }
                let found = self.found.take().unwrap_or_default();
                for files in found.into_iter().filter(|files| !listed.contains(files.uid())) {
                    self.remove(files);
                }
                listed.clear();
            }
            watcher::Event::Apply(pod) => self.on_pod(pod),
            watcher::Event::Delete(pod) => self.on_gone(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    fn on_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let phase = pod.status.as_ref().and_then(|status| Phase::parse(status.phase.as_deref()));
        let is_terminal = phase.is_some_and(Phase::is_terminal);
        let is_new = !self.entries.contains_key(&uid);
        let entry = self.entries.entry(uid).or_insert_with(|| Entry {
            updates: None,
            is_deleted: false,
            spot: Arc::new(Spot::of(&self.context, &pod)),
            files: Files::of(&self.context, &pod),
        });
        if let Some(updates) = &entry.updates {
            // A task that has just ended drops it; what remains to be done for the pod comes with `on_done`.
            let _ = updates.send(Update::Changed(Box::new(pod)));
        } else if is_terminal {
            // A pod that has ended is not touched again, but for its last delete.
            if pod::awaits_last_delete(&pod) && !entry.is_deleted {
                entry.is_deleted = true;
                self.tasks.spawn(pod::delete_last(self.context.clone(), pod));
            }
        } else if is_new {
            self.begin(pod);
        }
    }

    /// Judges a pod that has just come, and runs it.
    fn begin(&mut self, pod: Pod) {
        let (uid, nothing) = (pod.metadata.uid.clone().unwrap_or_default(), PodSpec::default());
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        let held = Held::of(&uid, spec);
        let is_inherited = self.found.is_some();
        // Who was admitted before is not judged again, and who is being ended anyway not at all.
        let was_admitted = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        let verdict = match was_admitted || pod.metadata.deletion_timestamp.is_some() {
            true => Verdict::Admit,
            false => {
                let pressure = self.pressure.conditions();
                let node = admission::Node {
                    allocatable: &self.allocatable,
                    ledger: &self.context.ledger.lock(),
                    pressure: &pressure,
                    is_closing: self.closing.is_some(),
                };
                admission::judge(&held, spec.tolerations.as_deref().unwrap_or_default(), &node)
            }
        };
        if let Verdict::Reject { reason, message } = verdict {
            self.tasks.spawn(pod::reject(self.context.clone(), pod, reason, message));
            return;
        }
        self.context.ledger.lock().add(held);
        let (sender, updates) = mpsc::unbounded_channel();
        if let Some(entry) = self.entries.get_mut(&uid) {
            entry.updates = Some(sender);
        }
        match verdict {
            Verdict::Preempt(victims) => {
                victims.iter().for_each(|victim| self.end(victim, preempted()));
                self.next.push(Next { pod: Box::new(pod), updates, after: victims.into_iter().collect() });
            }
            Verdict::Admit | Verdict::Reject { .. } => {
                self.tasks.spawn(pod::run(self.context.clone(), pod, is_inherited, updates));
            }
        }
    }

    /// Ends a pod that this node does not keep.
    fn end(&self, uid: &str, order: Order) {
        let Some(Entry { updates: Some(updates), spot, .. }) = self.entries.get(uid) else { return };
        self.context.publish(Report {
            about: spot.about.clone(),
            is_warning: true,
            reason: order.reason.into(),
            message: order.message.clone(),
        });
        let _ = updates.send(Update::End(order));
    }

    /// Looks at the node, if there is anything to look for.
    fn look(&self) -> Option<JoinHandle<Findings>> {
        let running = self.entries.values().filter(|entry| entry.updates.is_some());
        let spots: Vec<Arc<Spot>> = running.map(|entry| Arc::clone(&entry.spot)).collect();
        let is_needed = self.context.config.eviction.is_some() || spots.iter().any(|spot| spot.has_limits());
        let context = Arc::downgrade(&self.context);
        is_needed.then(|| {
            tokio::task::spawn_blocking(move || {
                context.upgrade().map(|context| survey::look(&context, &spots)).unwrap_or_default()
            })
        })
    }

    fn on_found(&mut self, found: &Findings) {
        self.pressure.observe(&found.shortages, jiff::Timestamp::now());
        self.tell_health();
        for (uid, message) in &found.excess {
            self.end(uid, evicted(message, None));
        }
        let is_waiting = self.evicted.as_ref().is_some_and(|(_, until)| Instant::now() < *until);
        if let Some(shortage) = found.shortages.first().filter(|_| !is_waiting && found.excess.is_empty()) {
            self.context.publish(Report {
                about: events::about_node(&self.context.config.node_name),
                is_warning: true,
                reason: "EvictionThresholdMet".into(),
                message: format!("Attempting to reclaim {}", shortage.signal.resource()),
            });
            if let Some((uid, message)) = &found.victim {
                self.end(uid, evicted(message, Some(message.clone())));
                self.evicted = Some((uid.clone(), Instant::now() + EVICTION_PATIENCE));
            }
        }
    }

    fn tell_health(&self) {
        let health = Health { pressure: self.pressure.conditions(), is_closing: self.closing.is_some() };
        self.health.send_if_modified(|known| {
            let is_news = *known != health;
            *known = health;
            is_news
        });
    }

    fn on_gone(&mut self, uid: &str) {
        let Some(Entry { updates, files, .. }) = self.entries.remove(uid) else { return };
        match updates {
            Some(updates) => {
                let _ = updates.send(Update::Gone);
                self.leaving.insert(uid.to_owned(), files);
            }
            None => self.remove(files),
        }
    }

    fn on_done(&mut self, done: Result<pod::Done, tokio::task::JoinError>) {
        match done {
            Ok(done) => {
                if let Some(entry) = self.entries.get_mut(&done.uid) {
                    entry.updates = None;
                    entry.is_deleted |= done.is_deleted;
                }
                if let Some(files) = self.leaving.remove(&done.uid) {
                    self.remove(files);
                }
                if let Some(closing) = &mut self.closing {
                    closing.awaited.remove(&done.uid);
                }
                self.evicted = self.evicted.take().filter(|(uid, _)| *uid != done.uid);
                self.begin_next(&done.uid);
                if let Some(pod) = done.unheard {
                    self.on_pod(*pod);
                }
            }
            Err(error) => tracing::error!(%error, "a pod's task broke"),
        }
    }

    /// Starts critical pods that waited for the end of this one.
    fn begin_next(&mut self, ended: &str) {
        for mut next in std::mem::take(&mut self.next) {
            next.after.remove(ended);
            match next.after.is_empty() {
                true => {
                    self.tasks.spawn(pod::run(self.context.clone(), *next.pod, false, next.updates));
                }
                false => self.next.push(next),
            }
        }
    }

    /// Nobody can ask for anything of a pod that is gone.
    fn remove(&self, files: Files) {
        let keeps_logs = self.context.config.keeps_logs;
        tokio::task::spawn_blocking(move || files.remove(keeps_logs));
    }

    fn shut_down(&mut self, grace: Duration) {
        let one = [shutdown::Group { priority: i32::MIN, grace }];
        let groups = match self.context.config.shutdown.as_slice() {
            [] => &one[..],
            groups => groups,
        };
        let running = self.entries.iter().filter(|(_, entry)| entry.updates.is_some());
        let turns = shutdown::turns(groups, running.map(|(uid, entry)| (entry.spot.priority, uid.clone())));
        self.closing = Some(Closing { turns: turns.into(), awaited: HashSet::new(), until: Instant::now() });
    }

    /// Ends the next pods of a node that shuts down, when those before them have ended or had their time. Returns true
    /// when all have been told.
    fn close(&mut self) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        if !closing.awaited.is_empty() && Instant::now() < closing.until {
            return false;
        }
        let Some((grace, pods)) = closing.turns.pop_front() else { return true };
        for uid in &pods {
            if let Some(Entry { updates: Some(updates), .. }) = self.entries.get(uid) {
                let _ = updates.send(Update::End(shutdown::order(grace)));
            }
        }
        // The last ones are waited for by the tasks they are.
        closing.until = Instant::now() + if closing.turns.is_empty() { Duration::ZERO } else { grace };
        closing.awaited = pods.into_iter().collect();
        false
    }
}

fn evicted(message: &str, disruption: Option<String>) -> Order {
    Order { grace: EVICTION_GRACE, reason: "Evicted", message: message.to_owned(), disruption }
}

fn preempted() -> Order {
    Order {
        grace: Duration::MAX,
        reason: "Preempting",
        message: "Preempted in order to admit critical pod".to_owned(),
        disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()),
    }
}
