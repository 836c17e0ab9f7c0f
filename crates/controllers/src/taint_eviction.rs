//! Taint eviction: pods leave a node with a `NoExecute` taint that they do not tolerate, or not any longer.

mod decide;
mod timers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Taint};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_api::names::disruption::DELETION_BY_TAINT_MANAGER;

use crate::Clock;
use crate::cluster::{Change, Cluster, Key, PodFact};
use crate::ending::{self, Marks};
use crate::events::{Recorder, Report};
use crate::metrics::Metrics;
use crate::queue::Queue;
use decide::{ending, verdict};
use timers::{Step, Timers};

const COMPONENT: &str = "taint-eviction-controller";
const MESSAGE: &str = "Taint manager: deleting due to NoExecute taint";
/// Pods that are ended at the same time.
const AT_ONCE: usize = 64;
/// How often it is tried to end a pod, and what is waited between.
const TRIES: usize = 5;
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// No wait is longer: a look too many is nothing, and no clock overflows.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);

/// What needs a look.
struct Looks {
    nodes: Queue<Arc<str>>,
    pods: Queue<Key>,
}

/// Ends pods on tainted nodes, until cancelled.
pub async fn run(
    cluster: Arc<Cluster>,
    clock: Clock,
    marks: Marks,
    metrics: Metrics,
    cancel: CancellationToken,
) {
    let (recorder, publishing) = Recorder::new(cluster.client.clone(), COMPONENT, Arc::clone(&clock));
    let looks = listen(&cluster, &metrics);
    let (slots, tainted) = (Arc::new(Semaphore::new(AT_ONCE)), BTreeMap::new());
    let controller = Controller { cluster, clock, marks, metrics, recorder, slots, tainted };
    let work = async {
        if controller.cluster.is_listed(&cancel).await {
            controller.work(&looks, &cancel).await;
        }
    };
    tokio::select! { () = work => {}, () = publishing => {} }
}

/// What changed in a way that matters here.
fn listen(cluster: &Cluster, metrics: &Metrics) -> Arc<Looks> {
    let (nodes, pods) = (Queue::new("noexec_taint_node", metrics), Queue::new("noexec_taint_pod", metrics));
    let looks = Arc::new(Looks { nodes, pods });
    let to = Arc::clone(&looks);
    cluster.pods.listen(move |change: &Change<'_, PodFact>| {
        let is_same = |(old, new): (&Arc<PodFact>, &Arc<PodFact>)| {
            old.node == new.node && old.tolerations == new.tolerations
        };
        let is_on_node = [change.old, change.new].iter().flatten().any(|pod| pod.node.is_some());
        if is_on_node
            && !change.old.zip(change.new).is_some_and(is_same)
            && let Some(pod) = change.new.or(change.old)
        {
            to.pods.add(pod.key.clone());
        }
    });
    let to = Arc::clone(&looks);
    cluster.nodes.listen(move |change| {
        let taints = |node: Option<&Arc<k8s_openapi::api::core::v1::Node>>| {
            ending(node.and_then(|node| node.spec.as_ref()?.taints.as_ref()))
        };
        if taints(change.old) != taints(change.new)
            && let Some(name) = change.new.or(change.old).and_then(|node| node.metadata.name.as_deref())
        {
            to.nodes.add(name.into());
        }
    });
    looks
}

struct Controller {
    cluster: Arc<Cluster>,
    clock: Clock,
    marks: Marks,
    metrics: Metrics,
    recorder: Recorder,
    slots: Arc<Semaphore>,
    /// The nodes with taints that end pods.
    tainted: BTreeMap<Arc<str>, Vec<Taint>>,
}

impl Controller {
    async fn work(mut self, looks: &Looks, cancel: &CancellationToken) {
        let (mut timers, mut endings) = (Timers::default(), JoinSet::new());
        loop {
            let steps = tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(ended) = endings.join_next() => {
                    match ended {
                        Ok(pod) => timers.ended(&pod),
                        Err(error) => tracing::error!(%error, "the end of a pod ended badly"),
                    }
                    continue;
                }
                // Nodes come before pods.
                node = looks.nodes.next() => {
                    let steps = self.look_at_node(&node, &mut timers);
                    looks.nodes.done(&node);
                    steps
                }
                pod = looks.pods.next() => {
                    let steps = self.look_at_pod(&pod, &mut timers);
                    looks.pods.done(&pod);
                    steps
                }
                () = self.until(timers.next()) => {
                    let due = timers.take_due((self.clock)());
                    due.into_iter().map(|(pod, time)| (pod, Step::End(time))).collect()
                }
            };
            for (pod, step) in steps {
                match step {
                    Step::SayCancelled => self.say(&pod, "Cancelling deletion of Pod"),
                    Step::End(due) => {
                        self.say(&pod, "Marking for deletion Pod");
                        endings.spawn(self.end(pod, due));
                    }
                }
            }
        }
        // What has begun is finished.
        while endings.join_next().await.is_some() {}
    }

    async fn until(&self, due: Option<Timestamp>) {
        let Some(due) = due else { return std::future::pending().await };
        let wait = due.duration_since((self.clock)()).max(SignedDuration::ZERO).unsigned_abs();
        tokio::time::sleep_until(Instant::now() + wait.min(WAIT_MAX)).await;
    }

    fn look_at_node(&mut self, name: &Arc<str>, timers: &mut Timers) -> Vec<(Key, Step)> {
        let Some(node) = self.cluster.nodes.get(&Key::new("", name)) else {
            // upstream: the timers of its pods go on.
            self.tainted.remove(name);
            return Vec::new();
        };
        let taints = ending(node.spec.as_ref().and_then(|spec| spec.taints.as_ref()));
        let pods = self.cluster.pods.in_group(name);
        let now = (self.clock)();
        let mut steps = Vec::new();
        for pod in &pods {
            let its = match taints.is_empty() {
                true => timers.cancel(&pod.key),
                false => timers.judge(&pod.key, verdict(&taints, &pod.tolerations), now),
            };
            steps.extend(its.into_iter().map(|step| (pod.key.clone(), step)));
        }
        if taints.is_empty() {
            self.tainted.remove(name);
        } else {
            self.tainted.insert(Arc::clone(name), taints);
        }
        steps
    }

    fn look_at_pod(&self, key: &Key, timers: &mut Timers) -> Vec<(Key, Step)> {
        let its = match self.cluster.pods.get(key) {
            None => timers.cancel(key),
            Some(pod) => match pod.node.as_ref().and_then(|node| self.tainted.get(node)) {
                Some(taints) => timers.judge(key, verdict(taints, &pod.tolerations), (self.clock)()),
                None => Vec::new(),
            },
        };
        its.into_iter().map(|step| (key.clone(), step)).collect()
    }

    fn say(&self, pod: &Key, what: &str) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.to_string()),
            name: Some(pod.name.to_string()),
            ..ObjectReference::default()
        };
        self.recorder.publish(Report {
            about,
            is_warning: false,
            reason: "TaintManagerEviction".to_owned(),
            message: format!("{what} {pod}"),
        });
    }

    /// Marks and deletes the pod. What fails is not tried for ever: the pod may tolerate it by then.
    fn end(&self, pod: Key, due: Timestamp) -> impl Future<Output = Key> + Send + 'static {
        let (client, clock) = (self.cluster.client.clone(), Arc::clone(&self.clock));
        let (marks, metrics, slots) = (self.marks, self.metrics.clone(), Arc::clone(&self.slots));
        async move {
            let _slot = slots.acquire_owned().await;
            for _ in 0..TRIES {
                let why = (DELETION_BY_TAINT_MANAGER, MESSAGE);
                match ending::disrupt(&client, &pod, why, marks, clock()).await {
                    Ok(is_deleted) => {
                        if is_deleted {
                            metrics.taint_evicted(clock().duration_since(due));
                        }
                        break;
                    }
                    Err(error) => tracing::debug!(%pod, %error, "a pod on a tainted node was not deleted"),
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
            pod
        }
    }
}
