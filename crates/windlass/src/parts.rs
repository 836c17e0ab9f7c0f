//! Everybody who acts on the objects of an API server: controllers, scheduler and node agents.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use jiff::Timestamp;
use kube::discovery::Discovery;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_apiserver::{Object, Placing};
use windlass_controllers::cluster::Cluster;
use windlass_controllers::job::{self, JobController, Observer};
use windlass_controllers::metrics::Metrics;
use windlass_controllers::owner_gc::OwnerCollector;
use windlass_controllers::{
    Clock, Marks, cron_job, disruption, namespace, node_lifecycle, pod_gc, service_account, taint_eviction,
    ttl,
};
use windlass_job::Settings;
use windlass_node::isolation::Wanted;
use windlass_node::pressure::Policy;
use windlass_node::runtimes::LogLimits;
use windlass_node::streams::Nodes;
use windlass_node::{Agent, Capacity, Oci};
use windlass_scheduler::{Placer, Scheduler, WatchedPod};

/// In a run nothing but looks makes the next pods, and writes take less time than looks do elsewhere.
const RUN_LOOKS_SHARE: u32 = 10;

/// What they work by.
pub struct Setup {
    /// Which features are on.
    pub gates: Gates,
    /// What the Job controller decides by.
    pub settings: Settings,
    /// Hears of every decision.
    pub observer: Option<Arc<dyn Observer>>,
    /// The nodes: shares of this machine.
    pub nodes: Vec<Node>,
    /// Run the command of any image on this machine.
    pub runs_any_image_on_host: bool,
    /// How far containers of the host runtime are kept apart from this machine.
    pub isolation: Wanted,
    /// Runs images.
    pub oci: Option<Oci>,
    /// When pods have to go because the machine is short of something; never if `None`.
    pub eviction: Option<Policy>,
    /// Keep the logs of pods that were deleted.
    pub keeps_logs: bool,
    /// How much of the output of a container is kept; all if `None`.
    pub log_limits: Option<LogLimits>,
    /// Nobody asks for what pods have left: it goes when they end, and logs are made when there is something to log.
    pub is_of_one_run: bool,
    /// The certificate that pods trust, if there is one.
    pub root_ca: Option<String>,
    /// Also what a cluster has for objects that live longer than one Job: collection of what nobody owns, Jobs whose time
    /// is up, deleted namespaces and what each has, CronJobs, nodes that are lost.
    pub keeps_house: bool,
}

/// A node of this machine.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it keeps logs.
    pub directory: PathBuf,
    /// Where it keeps what containers need only while they run, if there is such a place in memory.
    pub run_directory: Option<PathBuf>,
    /// What it offers.
    pub capacity: Capacity,
}

/// They, at work. Dropping it kills all pods.
pub struct Parts {
    metrics: Metrics,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    agents: Vec<Agent>,
    scheduler: windlass_scheduler::Metrics,
    placer: Placer,
}

/// The scheduler, as the API server asks it.
struct Places(Placer);

impl Placing for Places {
    fn place(&self, pod: &Object) -> Option<String> {
        // One that can't be read is placed by the scheduler, if it can read what is stored.
        self.0.place(&pod.read::<WatchedPod>().ok()?)
    }

    fn take_back(&self, uid: &str) {
        self.0.take_back(uid);
    }
}

impl Parts {
    /// Starts everybody: from now on pods run.
    pub async fn start(client: &kube::Client, setup: Setup) -> Result<Self, windlass_node::Error> {
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let cluster = match setup.keeps_house {
            true => Cluster::new(client.clone()),
            false => Cluster::without_labels(client.clone()),
        };
        let config = job::Config {
            settings: setup.settings.clone(),
            gates: setup.gates,
            observer: setup.observer.clone(),
            cluster: Some(Arc::clone(&cluster)),
            // Nobody reads the events of a run.
            pod_events: setup.keeps_house,
            looks_share: if setup.keeps_house { job::Config::default().looks_share } else { RUN_LOOKS_SHARE },
            // Writes of a run are done when they are sent.
            releases_in_turn: !setup.keeps_house,
            ..job::Config::default()
        };
        let metrics = config.metrics.clone();
        tasks.spawn(JobController::new(client.clone(), config).run(cancel.clone()));
        let scheduling = windlass_scheduler::Config {
            gates: setup.gates,
            publishes_events: setup.keeps_house,
            ..windlass_scheduler::Config::default()
        };
        let scheduler = scheduling.metrics.clone();
        let (placer, scheduling) = Scheduler::with_config(client.clone(), scheduling).start(cancel.clone());
        tasks.spawn(scheduling);
        end_pods(&mut tasks, &cluster, &setup, &metrics, &cancel);
        if setup.keeps_house {
            keep_house(&mut tasks, client, &setup, &metrics, &cancel);
            // Whoever runs one Job here is gone when its nodes are.
            let (clock, config) = (Arc::new(Timestamp::now), node_lifecycle::Config::default());
            tasks.spawn(node_lifecycle::run(cluster, clock, config, metrics.clone(), cancel.clone()));
        }
        let mut agents = Vec::new();
        for node in setup.nodes {
            let mut config = windlass_node::Config::new(client.clone(), node.name, node.directory);
            config.run_dir = node.run_directory.unwrap_or(config.run_dir);
            config.capacity = node.capacity;
            config.runtime_override_host = setup.runs_any_image_on_host;
            config.isolation = setup.isolation;
            config.oci = setup.oci.clone();
            config.gates = setup.gates;
            config.keeps_logs = setup.keeps_logs;
            config.log_limits = setup.log_limits;
            config.is_of_one_run = setup.is_of_one_run;
            let eviction = setup.eviction.clone();
            config.eviction = eviction.map(|policy| crate::node::eviction(policy, &config));
            // Nobody would read them in a run of one Job.
            config.events = setup.keeps_house.then(|| crate::node::publish(client));
            agents.push(Agent::start(config).await?);
        }
        Ok(Self { metrics, cancel, tasks, agents, scheduler, placer })
    }

    /// Finds nodes for pods while the API server makes them.
    pub fn placing(&self) -> Arc<dyn Placing> {
        Arc::new(Places(self.placer.clone()))
    }

    /// Logs, exec and attach of the pods of these nodes.
    pub fn streams(&self) -> Nodes {
        Nodes::of(&self.agents)
    }

    /// The figures of scheduler and controllers, as Prometheus reads them.
    pub fn figures(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let (scheduler, controllers) = (self.scheduler.clone(), self.metrics.clone());
        // Each text ends with a line that says so; together they have one.
        move || [scheduler.text().trim_end_matches("# EOF\n"), &controllers.text()].concat()
    }

    /// Makes no more pods, and ends those that run: SIGTERM, their grace period up to `grace_max`, SIGKILL.
    pub async fn stop(mut self, grace_max: Duration) {
        self.cancel.cancel();
        future::join_all(self.agents.into_iter().map(|agent| agent.shutdown(grace_max))).await;
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Those who end pods that did nothing wrong, and say so.
fn end_pods(
    tasks: &mut JoinSet<()>,
    cluster: &Arc<Cluster>,
    setup: &Setup,
    metrics: &Metrics,
    cancel: &CancellationToken,
) {
    let clock = || -> Clock { Arc::new(Timestamp::now) };
    let (cluster, marks) = (|| Arc::clone(cluster), Marks::of(&setup.gates));
    tasks.spawn(cluster().follow_nodes(cancel.clone()));
    let mut config = pod_gc::Config { marks, ..pod_gc::Config::default() };
    if !setup.keeps_house {
        // Whoever waits for a Job looks at what became of its pods.
        config.keep_terminated = 0;
    }
    tasks.spawn(pod_gc::run(cluster(), clock(), config, metrics.clone(), cancel.clone()));
    tasks.spawn(taint_eviction::run(cluster(), clock(), marks, metrics.clone(), cancel.clone()));
    let config = disruption::Config { marks, ..disruption::Config::default() };
    tasks.spawn(disruption::run(cluster(), clock(), config, metrics.clone(), cancel.clone()));
}

fn keep_house(
    tasks: &mut JoinSet<()>,
    client: &kube::Client,
    setup: &Setup,
    metrics: &Metrics,
    cancel: &CancellationToken,
) {
    let clock: Clock = Arc::new(Timestamp::now);
    tasks.spawn(ttl::run(client.clone(), Arc::clone(&clock), metrics.clone(), cancel.clone()));
    tasks.spawn(cron_job::run(client.clone(), Arc::clone(&clock), metrics.clone(), cancel.clone()));
    let root_ca = setup.root_ca.clone();
    tasks.spawn(service_account::run(client.clone(), root_ca, metrics.clone(), cancel.clone()));
    let (client, metrics, cancel) = (client.clone(), metrics.clone(), cancel.clone());
    tasks.spawn(async move {
        let discovery = tokio::select! {
            () = cancel.cancelled() => return,
            found = Discovery::new(client.clone()).run() => match found {
                Ok(found) => Arc::new(found),
                Err(error) => {
                    metrics.collector_sync_failed();
                    tracing::error!(%error, "dependents of deleted objects stay, and deleted namespaces");
                    return;
                }
            },
        };
        let (clock, metrics, cancel) = (|| Arc::clone(&clock), || metrics.clone(), || cancel.clone());
        future::join(
            OwnerCollector::run(client.clone(), Arc::clone(&discovery), clock(), metrics(), cancel()),
            namespace::run(client, discovery, clock(), metrics(), cancel()),
        )
        .await;
    });
}
