//! A server, a controller, and a kubelet that follows a script.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event as KubeEvent, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_apiserver::Server;
use windlass_controllers::job::{Config, JobController};
use windlass_job::Settings;
use windlass_job::backoff::Backoff;

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(180);
pub const NAMESPACE: &str = "default";
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub struct World {
    pub server: Server,
    pub client: Client,
}

/// What the kubelet does with a pod that it sees for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs until somebody ends it.
    Run,
    /// It ends with this exit code.
    Exit(i32),
}

/// A controller or kubelet that runs.
pub struct Running {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops").expect("it does not panic");
    }
}

/// Everything quick: retries of the API and of pods come at once.
pub fn quick() -> Config {
    let quick = |millis| SignedDuration::from_millis(millis);
    let settings = Settings {
        backoff: Backoff { base: quick(1), max: quick(10) },
        api_retry: Backoff { base: quick(5), max: quick(50) },
        ..Settings::default()
    };
    Config { settings, ..Config::default() }
}

impl World {
    pub fn new() -> Self {
        Self::with_gates(Gates::default())
    }

    pub fn with_gates(gates: Gates) -> Self {
        let server =
            Server::new(windlass_apiserver::Config { gates, ..windlass_apiserver::Config::default() });
        let client = Client::new(server.router(), NAMESPACE);
        Self { server, client }
    }

    /// A world with a controller in it.
    pub fn with_controller() -> (Self, Running) {
        let world = Self::new();
        let running = world.start(world.client.clone(), quick());
        (world, running)
    }

    pub fn start(&self, client: Client, config: Config) -> Running {
        let cancel = CancellationToken::new();
        let task = tokio::spawn(JobController::new(client, config).run(cancel.clone()));
        Running { cancel, task }
    }

    /// A kubelet that gives each pod its fate, and ends those that are deleted.
    pub fn kubelet(&self, fate: impl Fn(&Pod) -> Fate + Send + Sync + 'static) -> Running {
        let cancel = CancellationToken::new();
        let (pods, stop) = (self.pods(), cancel.clone());
        let fate = Arc::new(fate);
        let task = tokio::spawn(async move {
            // Each pod is started once and ended once, as a kubelet does.
            let mut done = BTreeSet::new();
            let mut changes = watch(pods.clone(), watcher::Config::default()).default_backoff().boxed();
            loop {
                let change =
                    tokio::select! { () = stop.cancelled() => return, change = changes.next() => change };
                let Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) = change else { continue };
                if done.insert((pod.uid(), pod.metadata.deletion_timestamp.is_some())) {
                    let (pods, fate) = (pods.clone(), Arc::clone(&fate));
                    tokio::spawn(async move { tend(&pods, &pod, &*fate).await });
                }
            }
        });
        Running { cancel, task }
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// A Job with one container; `spec` is merged over it.
    pub async fn create_job(&self, name: &str, spec: Value) -> Job {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}],
            }}},
        });
        merge(&mut job["spec"], spec);
        let job: Job = serde_json::from_value(job).expect("a Job");
        self.jobs().create(&PostParams::default(), &job).await.expect("the Job is valid")
    }

    pub async fn patch_job(&self, name: &str, patch: Value) -> Job {
        self.jobs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched")
    }

    pub async fn delete_job(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.jobs().delete(name, &params).await.expect("deleted");
    }

    /// The kubelet's last word about a pod.
    pub async fn exit(&self, pod: &Pod, code: i32) {
        exit(&self.pods(), pod, code).await;
    }

    pub async fn until_job(&self, name: &str, what: impl Fn(&Job) -> bool) -> Job {
        let found = until(self.jobs(), |jobs| jobs.get(name).filter(|job| what(job)).cloned());
        found.await.unwrap_or_else(|last| panic!("Job {name} did not get there: {last:#?}"))
    }

    pub async fn until_finished(&self, name: &str) -> Job {
        self.until_job(name, |job| has(job, "Complete") || has(job, "Failed")).await
    }

    pub async fn until_pods(&self, what: impl Fn(&[&Pod]) -> bool) -> Vec<Pod> {
        let found = until(self.pods(), |pods| {
            let all: Vec<&Pod> = pods.values().collect();
            what(&all).then(|| all.into_iter().cloned().collect())
        });
        found.await.unwrap_or_else(|last: BTreeMap<String, Pod>| panic!("pods did not get there: {last:#?}"))
    }

    /// Reason and message of the first event for which `what` holds.
    pub async fn until_event(&self, what: impl Fn(&KubeEvent) -> bool) -> KubeEvent {
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), NAMESPACE);
        let found = until(api, |events| events.values().find(|event| what(event)).cloned());
        found.await.unwrap_or_else(|last| panic!("no such event: {last:#?}"))
    }
}

/// Waits until `what` finds something in the objects of a kind, by name; or gives the objects as they were last.
async fn until<K, T>(
    api: Api<K>,
    what: impl Fn(&BTreeMap<String, K>) -> Option<T>,
) -> Result<T, BTreeMap<String, K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut objects = BTreeMap::new();
    let mut is_listed = false;
    let mut changes = watch(api, watcher::Config::default()).default_backoff().boxed();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while let Ok(Some(change)) = tokio::time::timeout_at(deadline, changes.next()).await {
        match change {
            Ok(Event::Init) => {
                objects.clear();
                is_listed = false;
            }
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                objects.insert(object.name_any(), object);
            }
            Ok(Event::Delete(object)) => {
                objects.remove(&object.name_any());
            }
            Ok(Event::InitDone) => is_listed = true,
            Err(error) => panic!("watch: {error}"),
        }
        if is_listed && let Some(found) = what(&objects) {
            return Ok(found);
        }
    }
    Err(objects)
}

async fn tend(pods: &Api<Pod>, pod: &Pod, fate: &(dyn Fn(&Pod) -> Fate + Send + Sync)) {
    let (phase, name) = (phase(pod), pod.name_any());
    let is_over = matches!(phase, "Succeeded" | "Failed");
    if pod.metadata.deletion_timestamp.is_some() {
        if !is_over {
            exit(pods, pod, 143).await;
        }
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        _ = pods.delete(&name, &now).await;
        return;
    }
    if phase != "Pending" {
        return;
    }
    match fate(pod) {
        Fate::Exit(code) => exit(pods, pod, code).await,
        Fate::Run => {
            // A pod that runs is on a node: its deletion takes the grace period.
            if pod.spec.as_ref().unwrap().node_name.is_none() {
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"kind": "Node", "name": "n"},
                });
                // The pod may be gone, or bound, by now.
                let params = PostParams::default();
                _ = pods.create_subresource::<_, Value>("binding", &name, &params, &binding).await;
            }
            let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            write_status(pods, pod, status).await;
        }
    }
}

async fn exit(pods: &Api<Pod>, pod: &Pod, code: i32) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let terminated = json!({"exitCode": code, "startedAt": now, "finishedAt": now});
    let status = json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
        "containerStatuses": [{"name": "main", "image": "host", "imageID": "", "ready": false, "restartCount": 0,
                               "state": {"terminated": terminated}}],
    });
    write_status(pods, pod, status).await;
}

/// The pod may be gone meanwhile: then there is nothing to say about it.
async fn write_status(pods: &Api<Pod>, pod: &Pod, status: Value) {
    let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
    match pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if [404, 409, 422].contains(&status.code) => {}
        Err(error) => panic!("kubelet: {error}"),
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The condition is true.
pub fn has(job: &Job, kind: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn index(pod: &Pod) -> u32 {
    pod.annotations()[INDEX].parse().expect("an index")
}

pub fn is_held(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The status without times: what must be the same in each run.
pub fn ledger(job: &Job) -> Value {
    let status = job.status.clone().unwrap_or_default();
    let mut conditions: Vec<String> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| format!("{}={} {}", c.type_, c.status, c.reason.as_deref().unwrap_or_default()))
        .collect();
    conditions.sort();
    let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
    json!({
        "active": status.active.unwrap_or(0),
        "succeeded": status.succeeded.unwrap_or(0),
        "failed": status.failed.unwrap_or(0),
        "ready": status.ready.unwrap_or(0),
        "terminating": status.terminating.unwrap_or(0),
        "completedIndexes": status.completed_indexes,
        "failedIndexes": status.failed_indexes,
        "uncounted": uncounted.succeeded.iter().flatten().chain(uncounted.failed.iter().flatten()).count(),
        "hasStarted": status.start_time.is_some(),
        "isCompleted": status.completion_time.is_some(),
        "conditions": conditions,
    })
}

/// The ledger of a finished Job.
pub fn finished(succeeded: u32, failed: u32, indexes: Option<&str>, conditions: &[&str]) -> Value {
    json!({
        "active": 0, "succeeded": succeeded, "failed": failed, "ready": 0, "terminating": 0,
        "completedIndexes": indexes, "failedIndexes": null, "uncounted": 0, "hasStarted": true,
        "isCompleted": conditions[0].starts_with("Complete"), "conditions": conditions,
    })
}

pub const COMPLETE: [&str; 2] =
    ["Complete=True CompletionsReached", "SuccessCriteriaMet=True CompletionsReached"];
