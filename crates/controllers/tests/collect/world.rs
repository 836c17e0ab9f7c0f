//! A server with the collectors on it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_apiserver::Server;
use windlass_controllers::owner_gc::OwnerCollector;
use windlass_controllers::{Clock, cron_job, namespace, pod_gc, ttl};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

pub struct World {
    client: Client,
    cancel: CancellationToken,
    looks: Arc<AtomicUsize>,
    _stop: DropGuard,
}

/// How far a clock is ahead, in seconds.
#[derive(Default)]
pub struct Ahead(Arc<AtomicI64>);

impl Ahead {
    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

/// A reference to a Job as owner.
pub fn owner(job: &Job, blocks: bool) -> Value {
    let (name, uid) = (&job.metadata.name, &job.metadata.uid);
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
}

impl World {
    pub fn new() -> Self {
        let server = Server::new(windlass_apiserver::Config::default());
        let cancel = CancellationToken::new();
        let client = Client::new(server.router(), NAMESPACE);
        let _stop = cancel.clone().drop_guard();
        Self { client, cancel, looks: Arc::default(), _stop }
    }

    pub fn start() -> Self {
        let world = Self::new();
        world.collect();
        world
    }

    /// Starts the collectors.
    pub fn collect(&self) {
        let looks = Arc::clone(&self.looks);
        let clock: Clock = Arc::new(move || {
            looks.fetch_add(1, Ordering::SeqCst);
            Timestamp::now()
        });
        let (client, cancel) = (self.client.clone(), self.cancel.clone());
        tokio::spawn(async move {
            OwnerCollector::run(client, Arc::new(Timestamp::now), cancel)
                .await
                .expect("the server has a discovery");
        });
        tokio::spawn(ttl::run(self.client.clone(), clock, self.cancel.clone()));
        tokio::spawn(cron_job::run(self.client.clone(), Arc::new(Timestamp::now), self.cancel.clone()));
        let (client, cancel) = (self.client.clone(), self.cancel.clone());
        tokio::spawn(async move {
            namespace::run(client, Arc::new(Timestamp::now), cancel)
                .await
                .expect("the server has a discovery");
        });
    }

    /// Starts the collection of pods, with a clock of its own.
    pub fn collect_pods(&self, adds_conditions: bool) -> Ahead {
        let (ahead, looks) = (Ahead::default(), Arc::clone(&self.looks));
        let seconds = Arc::clone(&ahead.0);
        let clock: Clock = Arc::new(move || {
            looks.fetch_add(1, Ordering::SeqCst);
            Timestamp::now() + SignedDuration::from_secs(seconds.load(Ordering::SeqCst))
        });
        let config =
            pod_gc::Config { period: Duration::from_millis(5), adds_conditions, ..pod_gc::Config::default() };
        tokio::spawn(pod_gc::run(self.client.clone(), clock, config, self.cancel.clone()));
        ahead
    }

    /// So many passes were made.
    pub async fn until_pods_were_collected_from(&self, passes: usize) {
        self.until::<Pod>("passes", |_| self.looks.load(Ordering::SeqCst) >= passes).await;
    }

    /// Puts the pod on a node that nobody has.
    pub async fn bind_pod(&self, name: &str, node: &str) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                             "target": {"kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding");
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(binding.to_string().into_bytes())
            .expect("a request");
        self.client.request::<Value>(request).await.expect("the pod is bound");
    }

    pub async fn delete_pod(&self, name: &str) {
        self.api::<Pod>().delete(name, &DeleteParams::default()).await.expect("the pod is deleted");
    }

    pub async fn until_phase(&self, name: &str, phase: &str) {
        let is_it = |pods: &[Pod]| {
            let pod = pods.iter().find(|pod| pod.name_any() == name);
            pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(phase)
        };
        self.until::<Pod>(phase, is_it).await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn create_namespace(&self, name: &str) {
        let namespace = json!({"metadata": {"name": name}});
        create(Api::<Namespace>::all(self.client.clone()), namespace).await;
    }

    pub async fn create_job(&self, name: &str, spec: Value) -> Job {
        self.create_job_in(NAMESPACE, name, spec).await
    }

    pub async fn create_job_in(&self, namespace: &str, name: &str, mut spec: Value) -> Job {
        let container = json!({"name": "main", "image": "host", "command": ["true"]});
        spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let job = json!({"metadata": {"name": name}, "spec": spec});
        create(Api::namespaced(self.client.clone(), namespace), job).await
    }

    /// A CronJob in UTC, whatever this machine's zone is.
    pub async fn create_cron_job(&self, name: &str, mut spec: Value) {
        let container = json!({"name": "main", "image": "host", "command": ["true"]});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let labels = json!({"from": "template"});
        spec["jobTemplate"] = json!({"metadata": {"labels": labels}, "spec": {"template": template}});
        spec["timeZone"] = json!("Etc/UTC");
        create(self.api::<CronJob>(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// As if the CronJob had last been started then.
    pub async fn schedule_from(&self, name: &str, time: &str) {
        let patch = json!({"status": {"lastScheduleTime": time}});
        let patched =
            self.api::<CronJob>().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("the status can be written");
    }

    pub async fn cron_job(&self, name: &str) -> CronJob {
        self.api::<CronJob>().get(name).await.expect("the CronJob is there")
    }

    pub async fn until_job_of(&self, cron_job: &str) -> Job {
        let mut found = None;
        let is_its = |job: &&Job| job.owner_references().iter().any(|owner| owner.name == cron_job);
        self.until::<Job>("a job on schedule", |jobs| {
            found = jobs.iter().find(is_its).cloned();
            found.is_some()
        })
        .await;
        found.expect("it was seen")
    }

    pub async fn until_active(&self, cron_job: &str, jobs: &[&str]) {
        let is_it = |all: &[CronJob]| {
            let found = all.iter().find(|one| one.name_any() == cron_job).and_then(|one| one.status.as_ref());
            let active = found.and_then(|status| status.active.as_deref()).unwrap_or_default();
            found.is_some_and(|status| status.last_schedule_time.is_some())
                && active.iter().filter_map(|one| one.name.as_deref()).eq(jobs.iter().copied())
        };
        self.until::<CronJob>(&format!("the active jobs {jobs:?}"), is_it).await;
    }

    pub async fn create_pod(&self, name: &str, meta: Value) {
        self.create_pod_in(NAMESPACE, name, meta).await;
    }

    pub async fn create_pod_in(&self, namespace: &str, name: &str, mut meta: Value) {
        meta["name"] = json!(name);
        let spec = json!({"containers": [{"name": "main", "image": "host", "command": ["true"]}]});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        create(pods, json!({"metadata": meta, "spec": spec})).await;
    }

    pub async fn delete_job(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.api::<Job>().delete(name, &params).await.expect("the job is deleted");
    }

    pub async fn delete_namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(name, &DeleteParams::default()).await.expect("the namespace is deleted");
    }

    pub async fn job(&self, name: &str) -> Option<Job> {
        self.job_in(NAMESPACE, name).await
    }

    pub async fn job_in(&self, namespace: &str, name: &str) -> Option<Job> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        jobs.get_opt(name).await.expect("jobs can be read")
    }

    pub async fn pod(&self, name: &str) -> Pod {
        self.api::<Pod>().get(name).await.expect("the pod is there")
    }

    pub async fn pods(&self) -> Vec<String> {
        let pods = self.api::<Pod>().list(&ListParams::default()).await.expect("pods can be listed");
        pods.items.iter().map(ResourceExt::name_any).collect()
    }

    /// Takes the pod's last finalizer.
    pub async fn release_pod(&self, name: &str) {
        self.release_pod_in(NAMESPACE, name).await;
    }

    pub async fn release_pod_in(&self, namespace: &str, name: &str) {
        let patch = json!({"metadata": {"finalizers": null}});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patched = pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("the pod is released");
    }

    pub async fn finish_job(&self, name: &str) {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |type_| json!({"type": type_, "status": "True", "lastTransitionTime": now});
        let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
        let started = json!({"status": {"startTime": now}});
        let ended = json!({"status": {"completionTime": now, "conditions": conditions, "succeeded": 1}});
        for patch in [started, ended] {
            let patched =
                self.api::<Job>().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched.expect("the job's status can be written");
        }
    }

    pub async fn shorten_ttl(&self, name: &str, seconds: i32) {
        let patch = json!({"spec": {"ttlSecondsAfterFinished": seconds}});
        let patched = self.api::<Job>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("the job's TTL can be written");
    }

    /// The TTL controller has compared a Job's time with its clock.
    pub async fn until_ttl_was_looked_at(&self) {
        self.until::<Job>("a look at the clock", |_| self.looks.load(Ordering::SeqCst) > 0).await;
    }

    pub async fn until_no_job(&self, name: &str) {
        self.until::<Job>("the end of the job", |jobs| !jobs.iter().any(|job| job.name_any() == name)).await;
    }

    pub async fn until_pods(&self, names: &[&str]) {
        let is_it =
            |pods: &[Pod]| pods.iter().map(ResourceExt::name_any).eq(names.iter().map(|one| one.to_string()));
        self.until::<Pod>(&format!("the pods {names:?}"), is_it).await;
    }

    pub async fn until_pod_is_deleting(&self, name: &str) {
        let is_it = |pods: &[Pod]| {
            pods.iter().any(|pod| pod.name_any() == name && pod.metadata.deletion_timestamp.is_some())
        };
        self.until::<Pod>("the pod's deletion", is_it).await;
    }

    pub async fn until_owners(&self, name: &str, owners: &[&str]) {
        let is_it = |pods: &[Pod]| {
            let pod = pods.iter().find(|pod| pod.name_any() == name);
            pod.is_some_and(|pod| {
                pod.owner_references().iter().map(|one| one.name.as_str()).eq(owners.iter().copied())
            })
        };
        self.until::<Pod>(&format!("the owners {owners:?}"), is_it).await;
    }

    pub async fn until_no_namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        until(namespaces, "the end of the namespace", |all| !all.iter().any(|one| one.name_any() == name))
            .await;
    }

    /// Waits for a condition of a namespace, and gives its message.
    pub async fn until_condition(&self, name: &str, type_: &str, status: &str) -> String {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let mut message = None;
        until(namespaces, type_, |all| {
            let status_of = all.iter().find(|one| one.name_any() == name).and_then(|one| one.status.as_ref());
            let conditions = status_of.and_then(|of| of.conditions.as_ref()).into_iter().flatten();
            let found = conditions.into_iter().find(|one| one.type_ == type_ && one.status == status);
            message = found.and_then(|one| one.message.clone());
            message.is_some()
        })
        .await;
        message.expect("it was seen")
    }

    pub async fn until_event(&self, reason: &str, message: &str) {
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some(reason) && event.message.as_deref() == Some(message)
        };
        self.until::<Event>(&format!("an event {reason}: {message}"), |events| events.iter().any(is_it))
            .await;
    }

    async fn until<K>(&self, what: &str, is_it: impl FnMut(&[K]) -> bool)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        until(self.api::<K>(), what, is_it).await;
    }
}

/// Waits until all objects of a kind are as they should be. Asks again when one changes, and now and then.
async fn until<K>(api: Api<K>, what: &str, mut is_it: impl FnMut(&[K]) -> bool)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = async {
        let mut changes = watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
        loop {
            let all = api.list(&ListParams::default()).await.expect("it can be listed").items;
            if is_it(&all) {
                return;
            }
            _ = tokio::time::timeout(Duration::from_millis(50), changes.next()).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        let all = api.list(&ListParams::default()).await.expect("it can be listed").items;
        panic!("waited for {what}, found {all:#?}");
    }
}

async fn create<K>(api: Api<K>, object: Value) -> K
where
    K: serde::Serialize + Clone + Debug + DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("it is created")
}
