//! Everybody who acts on the objects of an API server: controllers, scheduler and node agents.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_controllers::job::{self, JobController, Observer};
use windlass_controllers::owner_gc::OwnerCollector;
use windlass_controllers::{Clock, cron_job, namespace, pod_gc, ttl};
use windlass_job::Settings;
use windlass_node::streams::Nodes;
use windlass_node::{Agent, Capacity};
use windlass_scheduler::Scheduler;

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
    /// Keep the logs of pods that were deleted.
    pub keeps_logs: bool,
    /// Also what a cluster has for objects that live longer than one Job: collection of what nobody owns and of lost pods,
    /// Jobs whose time is up, deleted namespaces, CronJobs.
    pub keeps_house: bool,
}

/// A node of this machine.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it keeps logs.
    pub directory: PathBuf,
    /// What it offers.
    pub capacity: Capacity,
}

/// They, at work. Dropping it kills all pods.
pub struct Parts {
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    agents: Vec<Agent>,
    scheduler: windlass_scheduler::Metrics,
}

impl Parts {
    /// Starts everybody: from now on pods run.
    pub async fn start(client: &kube::Client, setup: Setup) -> Result<Self, windlass_node::Error> {
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let config = job::Config {
            settings: setup.settings,
            gates: setup.gates,
            observer: setup.observer,
            ..job::Config::default()
        };
        tasks.spawn(JobController::new(client.clone(), config).run(cancel.clone()));
        let scheduling = windlass_scheduler::Config {
            adds_conditions: setup.gates.pod_disruption_conditions,
            // Nobody reads the events of a run.
            publishes_events: setup.keeps_house,
            ..windlass_scheduler::Config::default()
        };
        let scheduler = scheduling.metrics.clone();
        tasks.spawn(Scheduler::with_config(client.clone(), scheduling).run(cancel.clone()));
        if setup.keeps_house {
            keep_house(&mut tasks, client, &setup.gates, &cancel);
        }
        let mut agents = Vec::new();
        for node in setup.nodes {
            let mut config = windlass_node::Config::new(client.clone(), node.name, node.directory);
            config.capacity = node.capacity;
            config.runtime_override_host = setup.runs_any_image_on_host;
            config.disruption_conditions = setup.gates.pod_disruption_conditions;
            config.keeps_logs = setup.keeps_logs;
            // Nobody would read them in a run of one Job.
            config.events = setup.keeps_house.then(|| crate::node::publish(client));
            agents.push(Agent::start(config).await?);
        }
        Ok(Self { cancel, tasks, agents, scheduler })
    }

    /// Logs, exec and attach of the pods of these nodes.
    pub fn streams(&self) -> Nodes {
        Nodes::of(&self.agents)
    }

    /// The figures of the scheduler.
    pub fn figures(&self) -> windlass_scheduler::Metrics {
        self.scheduler.clone()
    }

    /// Makes no more pods, and ends those that run: SIGTERM, their grace period up to `grace_max`, SIGKILL.
    pub async fn stop(mut self, grace_max: Duration) {
        self.cancel.cancel();
        future::join_all(self.agents.into_iter().map(|agent| agent.shutdown(grace_max))).await;
        while self.tasks.join_next().await.is_some() {}
    }
}

fn keep_house(tasks: &mut JoinSet<()>, client: &kube::Client, gates: &Gates, cancel: &CancellationToken) {
    let clock: Clock = Arc::new(Timestamp::now);
    let config =
        pod_gc::Config { adds_conditions: gates.pod_disruption_conditions, ..pod_gc::Config::default() };
    tasks.spawn(pod_gc::run(client.clone(), Arc::clone(&clock), config, cancel.clone()));
    tasks.spawn(ttl::run(client.clone(), Arc::clone(&clock), cancel.clone()));
    tasks.spawn(cron_job::run(client.clone(), Arc::clone(&clock), cancel.clone()));
    let collecting = OwnerCollector::run(client.clone(), Arc::clone(&clock), cancel.clone());
    tasks.spawn(async move {
        if let Err(error) = collecting.await {
            tracing::error!(%error, "dependents of deleted objects are not collected");
        }
    });
    let ending = namespace::run(client.clone(), clock, cancel.clone());
    tasks.spawn(async move {
        if let Err(error) = ending.await {
            tracing::error!(%error, "deleted namespaces are not ended");
        }
    });
}
