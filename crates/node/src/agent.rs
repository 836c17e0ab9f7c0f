//! The node agent: registers this node, watches the pods that are bound to it, and gives each a task of its
//! own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use windlass_api::quantity::Quantity;

use crate::backoff;
use crate::phase::Phase;
use crate::pod::{self, Update};
use crate::register;
use crate::runtimes::host;

/// How long a shutdown waits beyond its grace for the last writes, before it lets the keeper kill what is
/// left.
const SHUTDOWN_SLACK: Duration = Duration::from_secs(10);

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
        let context = Arc::new(pod::Context::new(config, host, logs.clone()));
        // The task alone keeps it, and with it the processes.
        let weak = Arc::downgrade(&context);
        let task =
            tokio::spawn(Pods { context, entries: HashMap::new(), tasks: JoinSet::new() }.run(stopped));
        Ok(Self { name, context: weak, logs, stop: Some(stop), task })
    }

    /// The name of the node, and what its streams come from.
    pub(crate) fn source(&self) -> (String, Weak<pod::Context>) {
        (self.name.clone(), self.context.clone())
    }

    /// Where logs are; see [`crate::logs::path`].
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Ends all pods as a node that shuts down does: SIGTERM, at most `grace`, SIGKILL, then phase Failed.
    /// Starts no more.
    pub async fn shutdown(mut self, grace: Duration) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(grace);
        }
        let limit = grace.saturating_add(crate::lifecycle::GRACE_MIN * 2).saturating_add(SHUTDOWN_SLACK);
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

/// A pod that the agent has seen and that is still in the API.
struct Entry {
    /// `None` when its task has ended.
    updates: Option<mpsc::UnboundedSender<Update>>,
    /// The last delete was sent.
    is_deleted: bool,
}

struct Pods {
    context: Arc<pod::Context>,
    /// By UID.
    entries: HashMap<String, Entry>,
    tasks: JoinSet<pod::Done>,
}

impl Pods {
    async fn run(mut self, mut stopped: oneshot::Receiver<Duration>) {
        let selector = format!("spec.nodeName={}", self.context.config.node_name);
        let pods = kube::Api::<Pod>::all(self.context.config.client.clone());
        let events = watcher(pods, watcher::Config::default().fields(&selector)).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed = HashSet::new();
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(event) => self.on_event(event, &mut listed),
                    Err(error) => tracing::warn!(%error, "watch pods of this node"),
                },
                Some(done) = self.tasks.join_next() => self.on_done(done),
                grace = &mut stopped => return self.shut_down(grace).await,
            }
        }
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
        let entry = self.entries.entry(uid).or_insert(Entry { updates: None, is_deleted: false });
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
            let (updates, receiver) = mpsc::unbounded_channel();
            entry.updates = Some(updates);
            self.tasks.spawn(pod::run(self.context.clone(), pod, receiver));
        }
    }

    fn on_gone(&mut self, uid: &str) {
        if let Some(Entry { updates: Some(updates), .. }) = self.entries.remove(uid) {
            let _ = updates.send(Update::Gone);
        }
    }

    fn on_done(&mut self, done: Result<pod::Done, tokio::task::JoinError>) {
        match done {
            Ok(done) => {
                if let Some(entry) = self.entries.get_mut(&done.uid) {
                    entry.updates = None;
                    entry.is_deleted |= done.is_deleted;
                }
                if let Some(pod) = done.unheard {
                    self.on_pod(*pod);
                }
            }
            Err(error) => tracing::error!(%error, "a pod's task broke"),
        }
    }

    async fn shut_down(mut self, grace: Result<Duration, oneshot::error::RecvError>) {
        // The agent was dropped without a shutdown: its processes go with the keeper.
        let Ok(grace) = grace else { return };
        for entry in self.entries.values() {
            if let Some(updates) = &entry.updates {
                let _ = updates.send(Update::Shutdown(grace));
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }
}
