//! Everybody who acts on the objects of a server: Job controller, scheduler and node agents.

use std::path::Path;
use std::time::Duration;

use futures::future;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_controllers::job::{self, JobController};
use windlass_job::Settings;
use windlass_node::Agent;
use windlass_scheduler::Scheduler;

/// What they work by.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which features are on.
    pub gates: Gates,
    /// What the Job controller decides by.
    pub settings: Settings,
    /// How many nodes.
    pub nodes: u32,
    /// Run the command of any image on this machine.
    pub runs_any_image_on_host: bool,
}

/// They, at work. Dropping it kills all pods.
pub struct Parts {
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    agents: Vec<Agent>,
}

impl Parts {
    /// Starts everybody.
    pub async fn start(
        client: kube::Client,
        setup: &Setup,
        data_dir: &Path,
    ) -> Result<Self, windlass_node::Error> {
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let config =
            job::Config { settings: setup.settings.clone(), gates: setup.gates, ..job::Config::default() };
        tasks.spawn(JobController::new(client.clone(), config).run(cancel.clone()));
        tasks.spawn(Scheduler::new(client.clone()).run(cancel.clone()));
        let mut agents = Vec::new();
        for number in 1..=setup.nodes {
            let name = format!("node-{number}");
            let directory = data_dir.join("nodes").join(&name);
            let mut node = windlass_node::Config::new(client.clone(), name, directory);
            node.runtime_override_host = setup.runs_any_image_on_host;
            node.disruption_conditions = setup.gates.pod_disruption_conditions;
            agents.push(Agent::start(node).await?);
        }
        Ok(Self { cancel, tasks, agents })
    }

    /// Makes no more pods, and ends those that run: SIGTERM, their grace period up to `grace_max`, SIGKILL.
    pub async fn stop(mut self, grace_max: Duration) {
        self.cancel.cancel();
        future::join_all(self.agents.into_iter().map(|agent| agent.shutdown(grace_max))).await;
        while self.tasks.join_next().await.is_some() {}
    }
}
