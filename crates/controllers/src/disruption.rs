//! Disruption budgets: how many of their pods may be disrupted now; and marks of disruptions that never came.
//!
//! Who disrupts a pod marks it first and then deletes it. If that never happens, the mark is taken back after a while, so
//! that a Job whose pod fails later does not take it for disrupted.

mod budget;
mod scale;
mod stale;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_api::selector::Selector;

use crate::calls::words;
use crate::cluster::{Change, Cluster, Key, PodFact, Reader, Row, Table, take};
use crate::ending::Marks;
use crate::events::{Recorder, Report};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::wire::SlimPod;
use crate::{Clock, watch};
use budget::{failed, judge, needs_scale, shown, wanted};
use scale::Unknown;
use stale::{stale_in, taken_back};

const COMPONENT: &str = "controllermanager";
/// A wait is never shorter, whatever the clocks say: no busy waiting.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// How it works.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long a pod whose eviction was allowed has to be deleted, until it counts again.
    pub deletion_timeout: Duration,
    /// How long a pod that is marked as disrupted has to be deleted, until the mark is taken back.
    pub stale_after: Duration,
    /// Whether pods are marked at all.
    pub marks: Marks,
}

impl Default for Config {
    fn default() -> Self {
        let two_minutes = Duration::from_secs(120);
        Self { deletion_timeout: two_minutes, stale_after: two_minutes, marks: Marks::default() }
    }
}

/// A budget, and the pods it is for.
struct Budget {
    object: PodDisruptionBudget,
    /// One that can't be read matches nothing.
    selector: Result<Selector, String>,
}

impl Budget {
    fn of(object: &PodDisruptionBudget) -> Self {
        let mut object = object.clone();
        object.metadata.managed_fields = None;
        let selector = object.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Self { selector: Selector::from_optional(selector), object }
    }

    fn is_for(&self, pod: &PodFact) -> bool {
        self.selector.as_ref().is_ok_and(|selector| selector.matches(&pod.labels))
    }
}

impl Row for Budget {
    fn key(&self) -> Key {
        Key::of(&self.object.metadata)
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unknown(#[from] Unknown),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Keeps budgets up to date, and takes marks back, until cancelled.
pub async fn run(
    cluster: Arc<Cluster>,
    clock: Clock,
    config: Config,
    metrics: Metrics,
    cancel: CancellationToken,
) {
    let (recorder, publishing) = Recorder::new(cluster.client.clone(), COMPONENT, Arc::clone(&clock));
    let budgets = Arc::new(Table::default());
    let due = Arc::new(Queue::new("disruption", &metrics));
    let stale = Arc::new(Queue::new("stale_pod_disruption", &metrics));
    let this = Controller { due, stale, budgets, cluster, clock, config, recorder };
    let following = watch::follow(
        Api::<PodDisruptionBudget>::all(this.cluster.client.clone()),
        cancel.clone(),
        |event| take(&this.budgets, &event, Budget::of),
    );
    let work = async {
        if !this.cluster.is_listed(&cancel).await || !this.budgets.is_listed(&cancel).await {
            return;
        }
        this.listen();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = this.keep_budgets() => {}
            () = this.take_marks_back() => {}
        }
    };
    tokio::select! { _ = futures::future::join(work, following) => {}, () = publishing => {} }
}

struct Controller {
    cluster: Arc<Cluster>,
    clock: Clock,
    config: Config,
    recorder: Recorder,
    budgets: Arc<Table<Budget>>,
    /// Budgets that need a look.
    due: Arc<Queue<Key>>,
    /// Pods whose mark needs a look.
    stale: Arc<Queue<Key>>,
}

impl Controller {
    fn listen(&self) {
        let due = Arc::clone(&self.due);
        self.budgets.listen(move |change| {
            if let Some(budget) = change.new {
                due.add(budget.key());
            }
        });
        let (due, budgets, recorder) =
            (Arc::clone(&self.due), Arc::clone(&self.budgets), self.recorder.clone());
        let (stale, clock, config) = (Arc::clone(&self.stale), Arc::clone(&self.clock), self.config);
        self.cluster.pods.listen(move |change: &Change<'_, PodFact>| {
            let pods = [change.old, change.new].into_iter().flatten();
            let Some(namespace) = pods.clone().map(|pod| &pod.key.namespace).next() else { return };
            let near = budgets.within(namespace);
            for pod in pods {
                near.iter().filter(|budget| budget.is_for(pod)).for_each(|budget| due.add(budget.key()));
            }
            if let Some(pod) = change.new {
                say_if_several(&recorder, pod, &near);
                if config.marks.adds_conditions
                    && let Some(left) = stale_in(pod, config.stale_after, clock())
                {
                    stale.add_at(pod.key.clone(), Instant::now() + left);
                }
            }
        });
    }

    async fn keep_budgets(&self) {
        loop {
            let key = self.due.next().await;
            match self.look(&key).await {
                Ok(None) => self.due.forget_failures(&key),
                Ok(Some(recheck)) => {
                    self.due.forget_failures(&key);
                    let wait = recheck.duration_since((self.clock)()).max(SignedDuration::ZERO);
                    self.due.add_at(key.clone(), Instant::now() + wait.unsigned_abs().max(WAIT_MIN));
                }
                Err(error) => {
                    tracing::debug!(budget = %key, %error, "a disruption budget was not judged, trying again");
                    self.due.retry(key.clone());
                }
            }
            self.due.done(&key);
        }
    }

    /// Judges a budget, and says when to look again.
    async fn look(&self, key: &Key) -> Result<Option<Timestamp>, Failure> {
        let Some(budget) = self.budgets.get(key) else { return Ok(None) };
        match self.judge(&budget).await {
            // Somebody else wrote it: that will be seen.
            Err(Failure::Api(kube::Error::Api(status))) if status.is_conflict() => {
                Err(Failure::Api(kube::Error::Api(status)))
            }
            Err(error) => {
                let why = match &error {
                    Failure::Api(error) => words(error),
                    Failure::Unknown(Unknown(why)) => why.clone(),
                };
                self.write(&budget.object, &failed(&budget.object, &why, (self.clock)())).await?;
                Ok(None)
            }
            Ok(recheck) => Ok(recheck),
        }
    }

    async fn judge(&self, budget: &Budget) -> Result<Option<Timestamp>, Failure> {
        let object = &budget.object;
        if let Err(error) = &budget.selector {
            self.say(object, true, "NoPods", format!("Failed to get pods: {error}"));
            return Err(Unknown(error.clone()).into());
        }
        let mut pods = self.cluster.pods.within(&budget.key().namespace);
        pods.retain(|pod| budget.is_for(pod));
        if pods.is_empty() {
            self.say(object, false, "NoPods", "No matching pods found".to_owned());
        }
        let spec = object.spec.clone().unwrap_or_default();
        let want = async {
            let (scale, has_unmanaged) = match needs_scale(&spec) {
                true => scale::of(&self.cluster.client, &pods).await?,
                false => (0, false),
            };
            Ok((wanted(&spec, pods.len(), scale).map_err(Unknown)?, has_unmanaged))
        };
        let (want, has_unmanaged) = want.await.inspect_err(|error: &Unknown| {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            self.say(object, true, "CalculateExpectedPodCountFailed", message);
        })?;
        if has_unmanaged {
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
                 for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                shown(spec.selector.as_ref())
            );
            self.say(object, true, "UnmanagedPods", message);
        }
        let judged = judge(object, &pods, want, self.config.deletion_timeout, (self.clock)());
        for pod in pods.iter().filter(|pod| judged.not_deleted.contains(&pod.key)) {
            // upstream: the namespace stands for the name too.
            let namespace = &pod.key.namespace;
            let message =
                format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            self.recorder.publish(report(pod.reference(), true, "NotDeleted", message));
        }
        if let Some(status) = &judged.status {
            self.write(object, status).await?;
        }
        Ok(judged.recheck)
    }

    /// Writes the status over the one that was decided on, and no other.
    async fn write(
        &self,
        budget: &PodDisruptionBudget,
        status: &PodDisruptionBudgetStatus,
    ) -> kube::Result<()> {
        let namespace = budget.namespace().unwrap_or_default();
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.cluster.client.clone(), &namespace);
        let before = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
        let mut body = json!(status);
        // A patch takes out of a map only what it names.
        let mut pods: Map<String, Value> =
            before.into_iter().flatten().map(|(name, _)| (name.clone(), Value::Null)).collect();
        pods.extend(status.disrupted_pods.iter().flatten().map(|(name, time)| (name.clone(), json!(time))));
        let is_empty = status.disrupted_pods.as_ref().is_none_or(|pods| pods.is_empty());
        body["disruptedPods"] = if is_empty { Value::Null } else { pods.into() };
        let patch = json!({"metadata": {"resourceVersion": budget.resource_version()}, "status": body});
        budgets
            .patch_status(&budget.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    }

    async fn take_marks_back(&self) {
        loop {
            let key = self.stale.next().await;
            match self.look_at_mark(&key).await {
                Ok(None) => self.stale.forget_failures(&key),
                Ok(Some(left)) => self.stale.add_at(key.clone(), Instant::now() + left.max(WAIT_MIN)),
                Err(error) => {
                    tracing::debug!(pod = %key, %error, "a stale mark of a disruption is left, trying again");
                    self.stale.retry(key.clone());
                }
            }
            self.stale.done(&key);
        }
    }

    /// Takes a stale mark back, or says how long it is good. Asks for the pod, and writes over that one only: one that is
    /// deleted meanwhile is disrupted after all.
    async fn look_at_mark(&self, key: &Key) -> kube::Result<Option<Duration>> {
        let stale_after = self.config.stale_after;
        let is_marked = |pod: Arc<PodFact>| stale_in(&pod, stale_after, (self.clock)());
        match self.cluster.pods.get(key).and_then(is_marked) {
            None => return Ok(None),
            Some(left) if !left.is_zero() => return Ok(Some(left)),
            Some(_) => {}
        }
        let pods: Api<SlimPod> = Api::namespaced(self.cluster.client.clone(), &key.namespace);
        let Some(SlimPod(pod)) = pods.get_opt(&key.name).await? else { return Ok(None) };
        let now = (self.clock)();
        match stale_in(&Reader::default().read(&pod), stale_after, now) {
            None => return Ok(None),
            Some(left) if !left.is_zero() => return Ok(Some(left)),
            Some(_) => {}
        }
        let meta = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
        let status = taken_back(pod.metadata.generation.unwrap_or_default(), now);
        let patch = Patch::Strategic(json!({"metadata": meta, "status": status}));
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &key.namespace);
        pods.patch_status(&key.name, &PatchParams::default(), &patch).await.map(|_| None)
    }

    fn say(&self, budget: &PodDisruptionBudget, is_warning: bool, reason: &str, message: String) {
        self.recorder.publish(report(budget.object_ref(&()), is_warning, reason, message));
    }
}

/// The eviction of a pod that several budgets are for is not possible.
fn say_if_several(recorder: &Recorder, pod: &PodFact, near: &[Arc<Budget>]) {
    let mut its = near.iter().filter(|budget| budget.is_for(pod));
    if let (Some(first), Some(_)) = (its.next(), its.next()) {
        let Key { namespace, name } = &pod.key;
        let message = format!(
            "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
            first.object.name_any()
        );
        recorder.publish(report(pod.reference(), true, "MultiplePodDisruptionBudgets", message));
    }
}

fn report(about: ObjectReference, is_warning: bool, reason: &str, message: String) -> Report {
    Report { about, is_warning, reason: reason.to_owned(), message }
}
