//! PodGC: pods whose node is gone or that nobody will end otherwise are marked as failed and deleted.

mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_api::names::{self, disruption};

use crate::wire::SlimPod;
use crate::{Clock, watch};
use decide::{NodeFact, Observed, PodFact, Quarantine, Reason, decide};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How it works.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Between two passes.
    pub period: Duration,
    /// So many pods that have ended are kept; zero keeps all.
    pub keep_terminated: usize,
    /// Whether orphaned pods get the `DisruptionTarget` condition.
    pub adds_conditions: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { period: Duration::from_secs(20), keep_terminated: 12_500, adds_conditions: true }
    }
}

#[derive(Default)]
struct Known {
    pods: BTreeMap<(String, String), PodFact>,
    nodes: BTreeMap<String, NodeFact>,
    are_pods_listed: bool,
    are_nodes_listed: bool,
}

/// Collects pods, until cancelled.
pub async fn run(client: Client, clock: Clock, config: Config, cancel: CancellationToken) {
    let known = Arc::new(Mutex::new(Known::default()));
    let pods = watch::follow(Api::<SlimPod>::all(client.clone()), cancel.clone(), |event| {
        take_pod(&mut known.lock(), event);
    });
    let nodes = watch::follow(Api::<Node>::all(client.clone()), cancel.clone(), |event| {
        take_node(&mut known.lock(), event);
    });
    let passes = async {
        let mut quarantine = Quarantine::default();
        let mut ticks = tokio::time::interval(config.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! { () = cancel.cancelled() => return, _ = ticks.tick() => {} }
            pass(&client, &clock, config, &known, &mut quarantine).await;
        }
    };
    futures::future::join3(pods, nodes, passes).await;
}

fn take_pod(known: &mut Known, event: Event<SlimPod>) {
    match event {
        Event::Init => known.pods.clear(),
        Event::InitDone => known.are_pods_listed = true,
        Event::InitApply(SlimPod(pod)) | Event::Apply(SlimPod(pod)) => {
            let fact = pod_fact(&pod);
            known.pods.insert((fact.namespace.clone(), fact.name.clone()), fact);
        }
        Event::Delete(SlimPod(pod)) => {
            known.pods.remove(&(pod.namespace().unwrap_or_default(), pod.name_any()));
        }
    }
}

fn take_node(known: &mut Known, event: Event<Node>) {
    match event {
        Event::Init => known.nodes.clear(),
        Event::InitDone => known.are_nodes_listed = true,
        Event::InitApply(node) | Event::Apply(node) => {
            known.nodes.insert(node.name_any(), node_fact(&node));
        }
        Event::Delete(node) => {
            known.nodes.remove(&node.name_any());
        }
    }
}

fn pod_fact(pod: &Pod) -> PodFact {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let reason = status.and_then(|status| status.reason.as_deref());
    PodFact {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        created: pod.creation_timestamp().map(|time| time.0),
        generation: pod.metadata.generation.unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
        is_deleting: pod.metadata.deletion_timestamp.is_some(),
        is_terminal: matches!(phase, "Succeeded" | "Failed"),
        has_stopped: !matches!(phase, "Pending" | "Running" | "Unknown"),
        is_evicted: phase == "Failed" && reason == Some("Evicted"),
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

async fn pass(
    client: &Client,
    clock: &Clock,
    config: Config,
    known: &Mutex<Known>,
    quarantine: &mut Quarantine,
) {
    let (pods, nodes) = {
        let known = known.lock();
        // Before everything is listed, every node would look as if it were gone.
        if !known.are_pods_listed || !known.are_nodes_listed {
            return;
        }
        (known.pods.values().cloned().collect::<Vec<_>>(), known.nodes.clone())
    };
    let mut confirmed_gone = BTreeSet::new();
    for name in quarantine.observe(pods.iter(), &nodes, clock()) {
        match Api::<Node>::all(client.clone()).get_opt(&name).await {
            Ok(None) => _ = confirmed_gone.insert(name),
            Ok(Some(_)) => {}
            Err(error) => tracing::debug!(node = name, %error, "it is not known whether a node is gone"),
        }
    }
    let keep_terminated = config.keep_terminated;
    let observed = Observed {
        pods: pods.iter().collect(),
        nodes: &nodes,
        confirmed_gone: &confirmed_gone,
        keep_terminated,
    };
    for (reason, pod) in decide(&observed) {
        if let Err(error) = collect(client, clock, config, reason, pod).await {
            tracing::debug!(pod = pod.name, ?reason, %error, "a pod was not collected, trying again");
        }
    }
}

/// Marks the pod as failed, unless it has ended, and deletes it at once.
async fn collect(
    client: &Client,
    clock: &Clock,
    config: Config,
    reason: Reason,
    pod: &PodFact,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    if !pod.is_terminal {
        let adds_condition = reason.is_disruption() && config.adds_conditions;
        let patch = Patch::Strategic(failed(pod, adds_condition.then(|| Time(clock()))));
        pods.patch_status(&pod.name, &PatchParams::default(), &patch).await?;
    }
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    match pods.delete(&pod.name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The status of a pod that was lost; with the condition if there is a time for it. The UID is in it so that another pod
/// of the name is left alone.
fn failed(pod: &PodFact, disrupted: Option<Time>) -> Value {
    let mut status = json!({"phase": "Failed", "observedGeneration": pod.generation});
    if let Some(time) = disrupted {
        status["conditions"] = json!([{
            "type": names::DISRUPTION_TARGET,
            "status": "True",
            "reason": disruption::DELETION_BY_POD_GC,
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": time,
            "observedGeneration": pod.generation,
        }]);
    }
    json!({"metadata": {"uid": pod.uid}, "status": status})
}
