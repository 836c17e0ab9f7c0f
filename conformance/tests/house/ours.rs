//! Our API server with our scheduler and controllers, in this process: one for each scenario.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use kube::Client;
use kube::discovery::Discovery;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_apiserver::{Config, Server};
use windlass_controllers::cluster::Cluster;
use windlass_controllers::job::JobController;
use windlass_controllers::metrics::Metrics;
use windlass_controllers::owner_gc::OwnerCollector;
use windlass_controllers::{
    Clock, Marks, cron_job, disruption, job, namespace, node_lifecycle, pod_gc, taint_eviction, ttl,
};
use windlass_scheduler::Scheduler;

use crate::place::{Hearts, Place};
use crate::theirs;

/// A server, and what acts in it.
pub struct House {
    server: Server,
    hearts: Hearts,
    has_scheduler: bool,
    is_alone: bool,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl House {
    /// Starts everybody whom a scenario has on the other side too.
    pub fn start(scenario: &str) -> Self {
        let server = Server::new(Config::default());
        let client = Client::new(server.own_service(), "default");
        let (cancel, hearts) = (CancellationToken::new(), Hearts::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(theirs::beat(client.clone(), Arc::clone(&hearts)));
        let has_scheduler = crate::SCHEDULED.iter().any(|(name, _)| *name == scenario);
        let is_alone = crate::ALONE.iter().any(|(name, _)| *name == scenario);
        if has_scheduler {
            tasks.spawn(Scheduler::new(client.clone()).run(cancel.clone()));
        } else {
            control(&mut tasks, &client, is_alone.then_some(theirs::KEPT), &cancel);
        }
        Self { server, hearts, has_scheduler, is_alone, cancel, tasks }
    }

    /// Where the scenario is played.
    pub async fn place(&self, name: &str) -> Result<Place> {
        let client = Client::new(self.server.router(), "default");
        if self.has_scheduler {
            theirs::make_priorities(&client).await?;
        } else if !self.is_alone {
            // One node that is always there, in a zone of its own: not all zones are lost at once.
            let hearts = Arc::clone(&self.hearts);
            Place::new(client.clone(), "anchor", hearts, false).await?.node("a", json!({})).await?;
        }
        Place::new(client, name, Arc::clone(&self.hearts), self.has_scheduler).await
    }

    /// Ends everybody.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
    }
}

fn control(tasks: &mut JoinSet<()>, client: &Client, kept: Option<usize>, cancel: &CancellationToken) {
    let clock: Clock = Arc::new(Timestamp::now);
    let metrics = Metrics::default();
    let mut config = pod_gc::Config { period: Duration::from_secs(1), ..pod_gc::Config::default() };
    config.keep_terminated = kept.unwrap_or(config.keep_terminated);
    tasks.spawn(JobController::new(client.clone(), job::Config::default()).run(cancel.clone()));
    tasks.spawn(ttl::run(client.clone(), Arc::clone(&clock), metrics.clone(), cancel.clone()));
    tasks.spawn(cron_job::run(client.clone(), Arc::clone(&clock), metrics.clone(), cancel.clone()));
    let cluster = Cluster::new(client.clone());
    let (time, figures, stop) = (|| Arc::clone(&clock), || metrics.clone(), || cancel.clone());
    tasks.spawn(Arc::clone(&cluster).follow(stop()));
    tasks.spawn(pod_gc::run(Arc::clone(&cluster), time(), config, figures(), stop()));
    tasks.spawn(taint_eviction::run(Arc::clone(&cluster), time(), Marks::default(), figures(), stop()));
    tasks.spawn(disruption::run(
        Arc::clone(&cluster),
        time(),
        disruption::Config::default(),
        figures(),
        stop(),
    ));
    tasks.spawn(node_lifecycle::run(cluster, time(), quick(), figures(), stop()));
    let (client, clock, metrics, cancel) = (client.clone(), time(), figures(), stop());
    tasks.spawn(async move {
        let discovery = Arc::new(Discovery::new(client.clone()).run().await.expect("our own server answers"));
        let (time, figures, stop) = (|| Arc::clone(&clock), || metrics.clone(), || cancel.clone());
        futures::future::join(
            OwnerCollector::run(client.clone(), Arc::clone(&discovery), time(), figures(), stop()),
            namespace::run(client, discovery, time(), figures(), stop()),
        )
        .await;
    });
}

/// As quick as the other side.
fn quick() -> node_lifecycle::Config {
    node_lifecycle::Config {
        monitor_period: Duration::from_secs(1),
        monitor_grace: theirs::GRACE,
        startup_grace: theirs::GRACE,
        eviction_rate: 1.0,
        ..node_lifecycle::Config::default()
    }
}
