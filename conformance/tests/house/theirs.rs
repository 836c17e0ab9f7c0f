//! The real Kubernetes with its scheduler, or with its controllers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use windlass_conformance::cluster::{Options, Scheduler};
use windlass_conformance::session::Session;
use windlass_conformance::{Cluster, ControllerManager};

use crate::place::{Hearts, Place, ago, pod};

/// Controllers, and how much sooner than usual they act. Periods that are not flags are what they are: PodGC looks every
/// 20 seconds, and keeps a node that is gone in quarantine for 40.
const CONTROLLERS: &[&str] = &[
    "cronjob-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
];

/// A node that was not heard of for so long is lost.
pub const GRACE: Duration = Duration::from_secs(10);

/// So many pods that have ended are kept where a scenario is about that.
pub const KEPT: usize = 2;

const BEAT: Duration = Duration::from_secs(2);

/// A cluster, and what acts in it.
pub struct House {
    cluster: Cluster,
    client: Client,
    hearts: Hearts,
    manager: Option<ControllerManager>,
    scheduler: Option<Scheduler>,
    anchor: Option<Place>,
    _tasks: JoinSet<()>,
}

impl House {
    async fn new() -> Result<Self> {
        let cluster = Cluster::start_with(&Options::default()).await?;
        let client = cluster.client().await?;
        let hearts = Hearts::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(beat(client.clone(), Arc::clone(&hearts)));
        Ok(Self { cluster, client, hearts, manager: None, scheduler: None, anchor: None, _tasks: tasks })
    }

    /// With kube-scheduler, and nobody else.
    pub async fn with_scheduler() -> Result<Self> {
        let mut house = Self::new().await?;
        house.scheduler = Some(house.cluster.scheduler()?);
        make_priorities(&house.client).await?;
        Ok(house)
    }

    /// With the controllers that end and collect pods.
    pub async fn with_controllers() -> Result<Self> {
        let mut house = Self::new().await?;
        house.manager = Some(house.cluster.controller_manager_with(CONTROLLERS, quick())?);
        // One node that is always there, in a zone of its own: not all zones are lost at once.
        let mut anchor = house.place("anchor").await?;
        anchor.node("a", json!({})).await?;
        house.anchor = Some(anchor);
        Ok(house)
    }

    /// With controllers that have seen nothing yet, and without the node that is always there.
    pub async fn restart_alone(&mut self) -> Result<()> {
        if let Some(mut anchor) = self.anchor.take() {
            anchor.leave().await?;
        }
        // Dropped, it is killed.
        self.manager = None;
        let kept = format!("--terminated-pod-gc-threshold={KEPT}");
        self.manager =
            Some(self.cluster.controller_manager_with(CONTROLLERS, quick().into_iter().chain([kept]))?);
        Ok(())
    }

    /// Where a scenario is played.
    pub async fn place(&self, name: &str) -> Result<Place> {
        Place::new(self.client.clone(), name, Arc::clone(&self.hearts), self.scheduler.is_some()).await
    }
}

fn quick() -> Vec<String> {
    let seconds = GRACE.as_secs();
    vec![
        "--node-monitor-period=1s".to_owned(),
        format!("--node-monitor-grace-period={seconds}s"),
        format!("--node-startup-grace-period={seconds}s"),
        // Of each zone one node is tainted at once, and then one a second.
        "--node-eviction-rate=1".to_owned(),
    ]
}

/// The priority classes of the scenarios. They are known when a pod of the last one is accepted.
pub async fn make_priorities(client: &Client) -> Result<()> {
    let session = Session::new([("admin", client.clone())].into(), "default");
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for (name, value, policy) in [
        ("low", 100, "PreemptLowerPriority"),
        ("middle", 500, "PreemptLowerPriority"),
        ("high", 1000, "PreemptLowerPriority"),
        ("polite", 1000, "Never"),
    ] {
        let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
        session.prepare(Method::POST, classes, class).await?;
    }
    let account = json!({"metadata": {"name": "default"}});
    session.prepare(Method::POST, &session.core("serviceaccounts"), account).await?;
    let try_pod = pod("try", json!({"spec": {"priorityClassName": "polite"}}));
    let path = format!("{}?dryRun=All", session.core("pods"));
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match session.prepare(Method::POST, &path, try_pod.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) if tokio::time::Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The kubelets that live say so, as kubelets do: in a lease.
pub async fn beat(client: Client, hearts: Hearts) {
    let session = Session::new([("admin", client)].into(), "kube-node-lease");
    let leases = session.group("coordination.k8s.io/v1", "leases");
    loop {
        let nodes: Vec<String> = hearts.lock().iter().cloned().collect();
        // At the same time, as kubelets do: on a busy machine one after the other would take longer than the grace.
        let beats = nodes.iter().map(|node| renew(&session, &leases, node));
        futures::future::join_all(beats).await;
        tokio::time::sleep(BEAT).await;
    }
}

async fn renew(session: &Session, leases: &str, node: &str) {
    let time = format!("{}.000000Z", ago(0).trim_end_matches('Z'));
    let spec: Value = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time});
    let lease = json!({"metadata": {"name": node}, "spec": spec});
    let renewed = session.prepare(Method::PATCH, &format!("{leases}/{node}"), lease.clone()).await;
    if renewed.is_err() {
        // It is there already, or the next beat makes it.
        let _ = session.prepare(Method::POST, leases, lease).await;
    }
}
