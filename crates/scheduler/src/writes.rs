//! What the scheduler writes: bindings, why pods wait, and the end of pods that have to leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_api::names::{self, disruption};

use crate::events::{Reason, Recorder, Report, reference};
use crate::pod::{PodFacts, Uid};
use crate::preempt::Candidate;
use crate::queue::Refusal;
use crate::{Clock, NAME};

/// Victims that are ended at the same time.
const VICTIMS_AT_ONCE: usize = 16;

/// An answered write.
#[derive(Debug)]
pub(crate) enum Written {
    /// A bind.
    Bound { uid: Uid, outcome: Outcome, took: Duration },
    /// A condition.
    Told { uid: Uid },
    /// Pods were asked to leave; those that take their time are given as they are now.
    Preempted { uid: Uid, leaving: Vec<Pod>, is_done: bool, took: Duration },
}

/// What became of a bind.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The pod has its node.
    Done,
    /// There is no such pod any more, or it has another node.
    Gone,
    /// It did not work.
    Failed(String),
}

/// Binds a pod to a node.
pub(crate) async fn bind(client: Client, pod: Arc<PodFacts>, node: String) -> Written {
    let started = Instant::now();
    let pods = Api::<Pod>::namespaced(client, &pod.namespace);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": *pod.namespace, "uid": *pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let params = PostParams::default();
    let sent = pods.create_subresource::<_, IgnoredAny>("binding", &pod.name, &params, &binding).await;
    let outcome = match sent {
        Ok(_) => Outcome::Done,
        Err(kube::Error::Api(status)) if status.is_not_found() => Outcome::Gone,
        Err(error) => {
            tracing::warn!(%error, "bind pod {}/{} to node {node}", pod.namespace, pod.name);
            failed(&pods, &pod, &node, error).await
        }
    };
    Written::Bound { uid: pod.uid.clone(), outcome, took: started.elapsed() }
}

/// An answer that was lost, or that somebody else was quicker, is not a failure: the pod says what it is.
async fn failed(pods: &Api<Pod>, pod: &PodFacts, node: &str, error: kube::Error) -> Outcome {
    if let Ok(now) = pods.get_opt(&pod.name).await {
        let now = now.filter(|now| now.metadata.uid.as_deref() == Some(&*pod.uid));
        let Some(now) = now else { return Outcome::Gone };
        match now.spec.and_then(|spec| spec.node_name).filter(|name| !name.is_empty()) {
            Some(name) if name == node => return Outcome::Done,
            Some(_) => return Outcome::Gone,
            None => {}
        }
    }
    let error = match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    };
    Outcome::Failed(format!("running Bind plugin \"DefaultBinder\": {error}"))
}

/// What a pod is told: why it waits, and for which node.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub pod: Arc<PodFacts>,
    pub refusal: Option<Arc<Refusal>>,
    pub since: Option<Timestamp>,
    pub node: Option<Option<String>>,
}

impl News {
    /// The UID is in it so that another pod of the name is left alone.
    fn patch(&self) -> Value {
        let mut status = json!({});
        if let Some(refusal) = &self.refusal {
            status["conditions"] = json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": refusal.reason,
                "message": refusal.message,
                "lastTransitionTime": self.since.map(seconds),
                "lastProbeTime": null,
                "observedGeneration": self.pod.generation,
            }]);
        }
        if let Some(node) = &self.node {
            status["nominatedNodeName"] = json!(node);
        }
        json!({"metadata": {"uid": *self.pod.uid}, "status": status})
    }
}

/// Writes `PodScheduled=False` and `nominatedNodeName`. Best effort: the pod is told again when there is news.
pub(crate) async fn tell(client: Client, news: News) -> Written {
    let pods = Api::<Pod>::namespaced(client, &news.pod.namespace);
    let patch = Patch::Strategic(news.patch());
    let pod = &news.pod;
    match pods.patch_status(&pod.name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => tracing::warn!(%error, "tell pod {}/{} why it waits", pod.namespace, pod.name),
    }
    Written::Told { uid: pod.uid.clone() }
}

/// How pods are made to leave.
#[derive(Clone)]
pub(crate) struct Eviction {
    pub client: Client,
    pub recorder: Recorder,
    pub clock: Clock,
    /// Whether they are marked as disrupted first, and told why in the draft's way.
    pub gates: Gates,
}

impl Eviction {
    /// Makes all victims leave that are not leaving yet. The last one goes last, and only if the others went: when it
    /// is seen to leave, the pod for which all this is done may come.
    pub(crate) async fn run(self, pod: Arc<PodFacts>, candidate: Candidate, started: Instant) -> Written {
        let victims: Vec<_> = candidate.victims.iter().filter(|victim| !victim.is_terminating).collect();
        let mut ends = Vec::new();
        if let Some((last, others)) = victims.split_last() {
            let node = &candidate.node;
            let of_others: Vec<_> = others.iter().map(|victim| self.end(&pod, victim, node)).collect();
            let of_others = futures::stream::iter(of_others).buffer_unordered(VICTIMS_AT_ONCE);
            ends = of_others.collect().await;
            if !ends.contains(&End::Failed) {
                ends.push(self.end(&pod, last, node).await);
            }
        }
        let is_done = !ends.contains(&End::Failed);
        let leaving = ends.into_iter().filter_map(End::leaving).collect();
        Written::Preempted { uid: pod.uid.clone(), leaving, is_done, took: started.elapsed() }
    }

    async fn delete(&self, victim: &PodFacts) -> kube::Result<End> {
        let requests = Request::new(Pod::url_path(&(), Some(&victim.namespace)));
        let request = requests.delete(&victim.name, &DeleteParams::default());
        let options = delete_options(victim, &self.gates).to_string().into_bytes();
        let request = request.map_err(kube::Error::BuildRequest)?.map(|_| options);
        let answer = self.client.request_status::<Pod>(request).await?;
        Ok(answer.left().map_or(End::Gone, |pod| End::Leaves(Box::new(pod))))
    }

    /// Marks a victim and deletes it, with its own grace period. One that is gone has left.
    async fn end(&self, pod: &PodFacts, victim: &PodFacts, node: &str) -> End {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &victim.namespace);
        let ended = async {
            if self.gates.pod_disruption_conditions {
                let patch = Patch::Strategic(disrupted(victim, (self.clock)()));
                pods.patch_status(&victim.name, &PatchParams::default(), &patch).await?;
            }
            self.delete(victim).await
        };
        let end = match ended.await {
            Ok(end) => end,
            // Conflict: another pod of its name is there.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                return End::Gone;
            }
            Err(error) => {
                tracing::warn!(%error, "make pod {}/{} leave node {node}", victim.namespace, victim.name);
                return End::Failed;
            }
        };
        // upstream: the other pod is meant to be named as related, and is not.
        self.recorder.report(|| Report {
            about: reference(victim),
            reason: Reason::Preempted,
            note: format!("Preempted by pod {} on node {node}", pod.uid),
        });
        end
    }
}

/// What became of a pod that had to leave.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// It is being deleted, and takes its time.
    Leaves(Box<Pod>),
    /// It is not there any more.
    Gone,
    /// It could not be told.
    Failed,
}

impl End {
    fn leaving(self) -> Option<Pod> {
        match self {
            Self::Leaves(pod) => Some(*pod),
            Self::Gone | Self::Failed => None,
        }
    }
}

/// How a pod that has to leave is deleted: only that one, and with the reason if the first draft of the failure policy is on.
fn delete_options(victim: &PodFacts, gates: &Gates) -> Value {
    let preconditions = json!({"uid": *victim.uid});
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    if gates.retriable_and_non_retriable_failures {
        options["reason"] = json!(disruption::PREEMPTION_BY_SCHEDULER);
    }
    options
}

/// The status of a pod that has to leave. A condition that is true already keeps its time.
fn disrupted(victim: &PodFacts, now: Timestamp) -> Value {
    let before = victim.disruption.as_ref().filter(|disruption| disruption.is_true);
    let since = before.and_then(|disruption| disruption.since).unwrap_or(now);
    let condition = json!({
        "type": names::DISRUPTION_TARGET,
        "status": "True",
        "reason": disruption::PREEMPTION_BY_SCHEDULER,
        "message": format!("{NAME}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": seconds(since),
        "lastProbeTime": null,
        "observedGeneration": victim.generation,
    });
    json!({"metadata": {"uid": *victim.uid}, "status": {"conditions": [condition]}})
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
