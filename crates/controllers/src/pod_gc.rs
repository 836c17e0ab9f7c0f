//! PodGC: pods whose node is gone or that nobody will end otherwise are marked as failed and deleted.

mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_api::names::disruption::DELETION_BY_POD_GC;

use crate::Clock;
use crate::cluster::{Cluster, PodFact};
use crate::ending::{self, Marks};
use crate::metrics::Metrics;
use decide::{NodeFact, Observed, Quarantine, Reason, decide};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const MESSAGE: &str = "PodGC: node no longer exists";

/// How it works.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Between two passes.
    pub period: Duration,
    /// So many pods that have ended are kept; zero keeps all.
    pub keep_terminated: usize,
    /// What is said of orphaned pods.
    pub marks: Marks,
}

impl Default for Config {
    fn default() -> Self {
        Self { period: Duration::from_secs(20), keep_terminated: 12_500, marks: Marks::default() }
    }
}

/// Collects pods, until cancelled.
pub async fn run(
    cluster: Arc<Cluster>,
    clock: Clock,
    config: Config,
    metrics: Metrics,
    cancel: CancellationToken,
) {
    if !cluster.is_listed(&cancel).await {
        return;
    }
    let collector = Collector { cluster, clock, config, metrics };
    let mut quarantine = Quarantine::default();
    let mut ticks = tokio::time::interval(config.period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! { () = cancel.cancelled() => return, _ = ticks.tick() => {} }
        collector.pass(&mut quarantine).await;
    }
}

fn node_fact(node: &Node) -> NodeFact {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    NodeFact {
        is_ready: conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True"),
        is_out_of_service: taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE),
    }
}

struct Collector {
    cluster: Arc<Cluster>,
    clock: Clock,
    config: Config,
    metrics: Metrics,
}

impl Collector {
    async fn pass(&self, quarantine: &mut Quarantine) {
        let (pods, nodes) = (self.cluster.pods.all(), self.cluster.nodes.all());
        let named = |node: &Arc<Node>| Some((node.metadata.name.as_deref()?.into(), node_fact(node)));
        let nodes: BTreeMap<Arc<str>, NodeFact> = nodes.iter().filter_map(named).collect();
        let mut confirmed_gone = BTreeSet::new();
        for name in quarantine.observe(pods.iter().map(AsRef::as_ref), &nodes, (self.clock)()) {
            match Api::<Node>::all(self.cluster.client.clone()).get_opt(&name).await {
                Ok(None) => _ = confirmed_gone.insert(name),
                Ok(Some(_)) => {}
                Err(error) => tracing::debug!(%name, %error, "it is not known whether a node is gone"),
            }
        }
        let observed = Observed {
            pods: pods.iter().map(AsRef::as_ref).collect(),
            nodes: &nodes,
            confirmed_gone: &confirmed_gone,
            keep_terminated: self.config.keep_terminated,
        };
        for (reason, pod) in decide(&observed) {
            let done = self.collect(reason, pod).await;
            self.metrics.pod_collected(&pod.key.namespace, reason.label(), done.is_ok());
            if let Err(error) = done {
                tracing::debug!(pod = %pod.key, ?reason, %error, "a pod was not collected, trying again");
            }
        }
    }

    /// Marks the pod as failed, unless it has ended or nobody wants to know, and deletes it at once.
    async fn collect(&self, reason: Reason, pod: &PodFact) -> kube::Result<()> {
        let Config { marks, .. } = self.config;
        if !pod.is_terminal && marks.fails_lost_pods {
            let adds_condition = reason.is_disruption() && marks.adds_conditions;
            let status = failed(pod, adds_condition.then(|| Time((self.clock)())));
            ending::patch_status(&self.cluster.client, &pod.key, &pod.uid, status).await?;
        }
        let why = (reason.is_disruption() && marks.gives_reasons).then_some(DELETION_BY_POD_GC);
        ending::delete(&self.cluster.client, &pod.key, &pod.uid, Some(0), why).await
    }
}

/// The status of a pod that was lost; with the condition if there is a time for it. One that was marked before keeps the
/// time of that.
fn failed(pod: &PodFact, disrupted: Option<Time>) -> Value {
    let mut status = json!({"phase": "Failed", "observedGeneration": pod.generation});
    if let Some(now) = disrupted {
        let before = pod.disrupted.as_ref().and_then(|before| before.since);
        let mut condition = ending::disruption(DELETION_BY_POD_GC, MESSAGE, pod.generation);
        condition.last_transition_time = Some(before.map_or(now, Time));
        status["conditions"] = json!([condition]);
    }
    status
}
