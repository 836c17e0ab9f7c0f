//! The node agent as others see it: how it is set up, started and stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_api::Gates;
use windlass_api::quantity::Quantity;

use crate::images::Images;
use crate::pods::Pods;
use crate::runtimes::{LogLimits, host, keeper};
use crate::{backoff, events, isolation, machine, oci, pod, pressure, register, shutdown};

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
    /// Bytes of disk.
    pub storage: Quantity,
    /// How many pods at once.
    pub pods: u32,
}

impl Capacity {
    /// All CPUs and memory of this machine, the disk that a directory is on or will be, and 1000 pods.
    pub fn of_this_machine(directory: &Path) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let system = rustix::system::sysinfo();
        let memory = u128::from(system.totalram) * u128::from(system.mem_unit.max(1));
        let disk = directory.ancestors().find_map(machine::disk);
        Self {
            cpu: Quantity::from_value(i64::try_from(cpus).unwrap_or(i64::MAX)),
            memory: Quantity::from_value(i64::try_from(memory).unwrap_or(i64::MAX)),
            storage: Quantity::from_value(disk.map_or(0, |disk| disk.capacity)),
            pods: 1000,
        }
    }

    /// One of `count` equal shares of it.
    pub fn share(&self, count: u32) -> Self {
        let count = i64::from(count.max(1));
        Self {
            cpu: Quantity::from_milli(self.cpu.milli_value() / count),
            memory: Quantity::from_value(self.memory.value() / count),
            storage: Quantity::from_value(self.storage.value() / count),
            pods: self.pods,
        }
    }
}

/// What runs images.
#[derive(Clone)]
pub struct Oci {
    /// The program that makes containers.
    pub runtime: oci::Runtime,
    /// Where images come from and are kept; may be shared with other nodes.
    pub images: Arc<Images>,
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
    /// Where it keeps what containers need only while they run; see [`crate::memory`].
    pub run_dir: PathBuf,
    /// Where containers without a `workingDir` start.
    pub work_dir: PathBuf,
    /// What the node offers.
    pub capacity: Capacity,
    /// Delays between restarts of a container.
    pub crash_backoff: backoff::Limits,
    /// Run the command of any image as a process of this machine.
    pub runtime_override_host: bool,
    /// Runs images; `None`: they wait for ever.
    pub oci: Option<Oci>,
    /// Give each container a copy of its image, without a try whether the kernel allows overlayfs.
    pub copies_images: bool,
    /// Delays between tries to pull an image.
    pub image_backoff: backoff::Limits,
    /// Whether pods that this node ends get `DisruptionTarget`, and whether deleted ones reach a terminal phase.
    pub gates: Gates,
    /// How to run the process keeper.
    pub keeper: host::Command,
    /// Hears of what people may want to know.
    pub events: Option<events::Publish>,
    /// The order in which a shutdown ends pods, and how long each group may take; empty: all at once.
    pub shutdown: Vec<shutdown::Group>,
    /// Whoever places pods goes on when this agent stops. Before it ends pods, so that others are made for them, it waits until
    /// its Node is closed to them.
    pub others_place_pods: bool,
    /// Evictions when the node is short of something; `None`: none.
    pub eviction: Option<Eviction>,
    /// How often to look whether it is, and whether pods keep more than they may.
    pub survey_every: Duration,
    /// How often to look whether files in volumes have changed.
    pub refresh_every: Duration,
    /// How many processes and threads a container may have; `None`: as many as the machine allows.
    pub pids_max: Option<i64>,
    /// How far containers of the host runtime are kept apart from the machine, if their pods do not say.
    pub isolation: isolation::Wanted,
    /// Keep the logs of pods that are gone.
    pub keeps_logs: bool,
    /// How much of the output of a container is kept; `None`: all.
    pub log_limits: Option<LogLimits>,
    /// No agent comes after this one, and nobody asks for what a pod has left: a log is made when its container prints
    /// something, though to another agent it would say that the container was begun, and the files of a pod go when it ends.
    pub is_of_one_run: bool,
}

impl Config {
    /// A node with all of this machine, and the defaults of Kubernetes.
    pub fn new(client: kube::Client, node_name: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            client,
            node_name: node_name.into(),
            labels: BTreeMap::new(),
            run_dir: data_dir.join("run"),
            capacity: Capacity::of_this_machine(&data_dir),
            data_dir,
            work_dir: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            crash_backoff: backoff::Limits::default(),
            runtime_override_host: false,
            oci: None,
            copies_images: false,
            image_backoff: backoff::Limits::default(),
            gates: Gates::default(),
            keeper: host::Command::default(),
            events: None,
            shutdown: Vec::new(),
            others_place_pods: false,
            eviction: None,
            survey_every: Duration::from_secs(10),
            refresh_every: Duration::from_secs(60),
            pids_max: None,
            isolation: isolation::Wanted::default(),
            keeps_logs: false,
            log_limits: Some(LogLimits::default()),
            is_of_one_run: false,
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

/// Starts the keeper of containers that need root, for an agent that is not; returns why there can be none. `logs` is its
/// place: the directory of the agent is that of the first keeper, which is ready, and has ended what others left.
async fn start_apart(
    host: &mut host::Host,
    mut keeper: host::Command,
    logs: &Path,
) -> Result<Option<String>, host::Error> {
    keeper.env.retain(|(name, _)| name != keeper::PLACE);
    keeper.env.push((keeper::PLACE.into(), logs.into()));
    let why = match host.start_apart(&keeper).await {
        Ok(()) => return Ok(None),
        Err(host::Error::Start { source, .. }) => source.to_string(),
        Err(host::Error::Refused(error)) => error,
        Err(error @ host::Error::NotReady { .. }) => return Err(error),
    };
    tracing::info!(why, "no containers of images, and no isolation: not root, and no user namespace");
    Ok(Some(why))
}

/// A running node agent. When it is dropped, its pods are killed.
pub struct Agent {
    name: String,
    context: Weak<pod::Context>,
    logs: PathBuf,
    run_dir: PathBuf,
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
        let mut keeper = config.keeper.clone();
        keeper.env.push((keeper::PLACE.into(), config.data_dir.clone().into()));
        // Waits for the end of all that an agent before this one ran.
        let mut host = host::Host::start(&keeper).await?;
        let no_images = match rustix::process::geteuid().is_root() {
            true => None,
            false => start_apart(&mut host, keeper, &logs).await?,
        };
        let register_error =
            |source| Error::Register { name: config.node_name.clone(), source: Box::new(source) };
        let given = isolation::given(&host, &config.data_dir).await;
        tracing::info!(isolation = %given, "containers of the host runtime can be isolated by these");
        if let Err(error) = config.isolation.of(given) {
            tracing::warn!(error, "containers of the host runtime do not start");
        }
        register::node(&config, given).await.map_err(register_error)?;
        let (stop, stopped) = oneshot::channel();
        let (name, run_dir) = (config.node_name.clone(), config.run_dir.clone());
        let shutdown_time = config.shutdown.iter().map(|group| group.grace).sum();
        let context = Arc::new(pod::Context::new(config, host, logs.clone(), given, no_images));
        // The task alone keeps it, and with it the processes.
        let weak = Arc::downgrade(&context);
        let task = tokio::spawn(Pods::new(context).run(stopped));
        Ok(Self { name, context: weak, logs, run_dir, shutdown_time, stop: Some(stop), task })
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
        // As a rule nothing is in it any more; who comes next sees to what is.
        let _ = std::fs::remove_dir(&self.run_dir);
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
    /// When pods have to go.
    pub policy: pressure::Policy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_machine_are_equal() {
        let (cpu, value) = (Quantity::from_milli, Quantity::from_value);
        let whole = Capacity { cpu: cpu(2000), memory: value(1000), storage: value(5000), pods: 7 };
        assert_eq!(whole.share(1), whole);
        let third = Capacity { cpu: cpu(666), memory: value(333), storage: value(1666), pods: 7 };
        assert_eq!(whole.share(3), third);
        assert_eq!(whole.share(0), whole);
    }
}
