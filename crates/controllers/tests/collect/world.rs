//! A server with the collectors on it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, PodCondition, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::discovery::Discovery;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_api::Gates;
use windlass_apiserver::Server;
use windlass_controllers::cluster::Cluster;
use windlass_controllers::job::{self, JobController};
use windlass_controllers::metrics::Metrics;
use windlass_controllers::owner_gc::OwnerCollector;
use windlass_controllers::{
    Clock, Marks, cron_job, disruption, namespace, node_lifecycle, pod_gc, service_account, taint_eviction,
    ttl,
};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(180);
pub const NAMESPACE: &str = "default";

pub struct World {
    pub client: Client,
    pub server: Server,
    pub gates: Gates,
    pub metrics: Metrics,
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
        Self::with(Gates::default())
    }

    pub fn with(gates: Gates) -> Self {
        let server =
            Server::new(windlass_apiserver::Config { gates, ..windlass_apiserver::Config::default() });
        let cancel = CancellationToken::new();
        let client = Client::new(server.router(), NAMESPACE);
        let _stop = cancel.clone().drop_guard();
        Self { client, server, gates, metrics: Metrics::default(), cancel, looks: Arc::default(), _stop }
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
        self.collect_owned_through(self.client.clone());
        tokio::spawn(ttl::run(self.client.clone(), clock, self.metrics.clone(), self.cancel.clone()));
        let clock: Clock = Arc::new(Timestamp::now);
        tokio::spawn(cron_job::run(self.client.clone(), clock, self.metrics.clone(), self.cancel.clone()));
    }

    /// Starts the collection of what owners or namespaces leave, through that client.
    pub fn collect_owned_through(&self, client: Client) {
        let (metrics, cancel) = (self.metrics.clone(), self.cancel.clone());
        tokio::spawn(async move {
            let discovery = Discovery::new(client.clone()).run().await.expect("the server has a discovery");
            let (discovery, clock): (_, Clock) = (Arc::new(discovery), Arc::new(Timestamp::now));
            futures::future::join(
                OwnerCollector::run(
                    client.clone(),
                    Arc::clone(&discovery),
                    Arc::clone(&clock),
                    metrics.clone(),
                    cancel.clone(),
                ),
                namespace::run(client, discovery, clock, metrics, cancel),
            )
            .await;
        });
    }

    /// What the controllers that end pods know, through that client.
    fn cluster(&self, client: Client) -> Arc<Cluster> {
        let cluster = Cluster::new(client);
        tokio::spawn(Arc::clone(&cluster).follow(self.cancel.clone()));
        cluster
    }

    /// Starts the collection of pods, with a clock of its own.
    pub fn collect_pods(&self) -> Ahead {
        let (ahead, looks) = (Ahead::default(), Arc::clone(&self.looks));
        let seconds = Arc::clone(&ahead.0);
        let clock: Clock = Arc::new(move || {
            looks.fetch_add(1, Ordering::SeqCst);
            Timestamp::now() + SignedDuration::from_secs(seconds.load(Ordering::SeqCst))
        });
        let config = pod_gc::Config {
            period: Duration::from_millis(5),
            marks: Marks::of(&self.gates),
            ..pod_gc::Config::default()
        };
        let cluster = self.cluster(self.client.clone());
        tokio::spawn(pod_gc::run(cluster, clock, config, self.metrics.clone(), self.cancel.clone()));
        ahead
    }

    /// Starts the eviction of pods from tainted nodes.
    pub fn evict_by_taints(&self) {
        self.evict_by_taints_through(self.client.clone());
    }

    /// The same, through another client; it ends when the token is cancelled.
    pub fn evict_by_taints_through(&self, client: Client) -> CancellationToken {
        let cancel = self.cancel.child_token();
        let (cluster, marks) = (self.cluster(client), Marks::of(&self.gates));
        let clock: Clock = Arc::new(Timestamp::now);
        tokio::spawn(taint_eviction::run(cluster, clock, marks, self.metrics.clone(), cancel.clone()));
        cancel
    }

    /// Starts the keeping of disruption budgets.
    pub fn keep_budgets(&self, config: disruption::Config) {
        let config = disruption::Config { marks: Marks::of(&self.gates), ..config };
        let cluster = self.cluster(self.client.clone());
        let (clock, metrics) = (Arc::new(Timestamp::now), self.metrics.clone());
        tokio::spawn(disruption::run(cluster, clock, config, metrics, self.cancel.clone()));
    }

    /// Starts the controller of nodes, with a clock of its own that is so many seconds ahead.
    pub fn look_after_nodes(&self, config: node_lifecycle::Config, seconds: i64) -> Ahead {
        let ahead = Ahead::default();
        ahead.advance(seconds);
        let seconds = Arc::clone(&ahead.0);
        let clock: Clock =
            Arc::new(move || Timestamp::now() + SignedDuration::from_secs(seconds.load(Ordering::SeqCst)));
        let (cluster, metrics) = (self.cluster(self.client.clone()), self.metrics.clone());
        tokio::spawn(node_lifecycle::run(cluster, clock, config, metrics, self.cancel.clone()));
        ahead
    }

    /// All nodes were looked at twice more.
    pub async fn until_nodes_were_looked_at(&self) {
        let passes = || {
            let name = "node_collector_update_all_nodes_health_duration_seconds_count ";
            let text = self.metrics.text();
            let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            line.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
        };
        let before = passes();
        self.until::<Pod>("looks at all nodes", |_| passes() >= before + 2).await;
    }

    /// Renews the lease of a node, once.
    pub async fn create_lease(&self, node: &str) {
        let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"});
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        create(leases, json!({"metadata": {"name": node}, "spec": spec})).await;
    }

    /// Starts what gives namespaces what they lack.
    pub fn fill_namespaces(&self, root_ca: &str) {
        let (client, root_ca) = (self.client.clone(), Some(root_ca.to_owned()));
        tokio::spawn(service_account::run(client, root_ca, self.metrics.clone(), self.cancel.clone()));
    }

    pub async fn until_certificate(&self, namespace: &str, data: Value) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let is_it = |all: &[ConfigMap]| {
            let found = all.iter().find(|one| one.name_any() == "kube-root-ca.crt");
            found.is_some_and(|one| json!(one.data) == data)
        };
        until(maps, &format!("the certificate {data}"), is_it).await;
    }

    pub async fn until_account(&self, namespace: &str, is_another_than: Option<&str>) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let mut found = None;
        until(accounts, "the account", |all| {
            let account = all.iter().find(|one| one.name_any() == "default");
            found = account.and_then(ResourceExt::uid).filter(|uid| Some(&**uid) != is_another_than);
            found.is_some()
        })
        .await;
        found.expect("it was seen")
    }

    /// Starts the Job controller.
    pub fn run_jobs(&self) {
        let config = job::Config { gates: self.gates, ..job::Config::default() };
        tokio::spawn(JobController::new(self.client.clone(), config).run(self.cancel.clone()));
    }

    pub async fn create_node(&self, name: &str, mut node: Value) {
        node["metadata"]["name"] = json!(name);
        create(Api::<Node>::all(self.client.clone()), node.clone()).await;
        if node["status"].is_object() {
            self.patch_node_status(name, json!({"status": node["status"]})).await;
        }
    }

    pub async fn patch_node_status(&self, name: &str, patch: Value) {
        let nodes = Api::<Node>::all(self.client.clone());
        let patched = nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.expect("the node's status can be written");
    }

    pub async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.client.clone()).get(name).await.expect("the node is there")
    }

    /// Gives the node these taints that end pods, and no others.
    pub async fn taint_node(&self, name: &str, keys: &[&str]) {
        let taint = |key: &&str| json!({"key": key, "effect": "NoExecute"});
        let taints: Vec<Value> = keys.iter().map(taint).collect();
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(name, &PatchParams::default(), &patch).await.expect("the node is tainted");
    }

    pub async fn until_node(&self, name: &str, what: &str, mut is_it: impl FnMut(&Node) -> bool) {
        let nodes = Api::<Node>::all(self.client.clone());
        until(nodes, what, |all| all.iter().any(|node| node.name_any() == name && is_it(node))).await;
    }

    /// A pod on a node that is held, so that its end can be seen.
    pub async fn held_pod_on(&self, node: &str, name: &str, tolerations: Value) {
        let spec = json!({"containers": [{"name": "main", "image": "host"}], "tolerations": tolerations});
        let meta = json!({"name": name, "finalizers": ["example.com/held"], "labels": {"app": "a"}});
        create(self.api::<Pod>(), json!({"metadata": meta, "spec": spec})).await;
        self.bind_pod(name, node).await;
    }

    pub async fn patch_pod_status(&self, name: &str, status: Value) {
        let patch = Patch::Strategic(json!({"status": status}));
        let patched = self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await;
        patched.expect("the pod's status can be written");
    }

    /// Runs the pod, and says that it is ready.
    pub async fn run_pod(&self, name: &str) {
        let ready =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        self.patch_pod_status(name, json!({"phase": "Running", "conditions": ready})).await;
    }

    /// The pod's condition of that type.
    pub async fn pod_condition(&self, name: &str, type_: &str) -> Option<PodCondition> {
        let conditions = self.pod(name).await.status.and_then(|status| status.conditions);
        conditions.into_iter().flatten().find(|one| one.type_ == type_)
    }

    pub async fn until_pod(&self, name: &str, what: &str, mut is_it: impl FnMut(&Pod) -> bool) {
        let is_it = |pods: &[Pod]| pods.iter().any(|pod| pod.name_any() == name && is_it(pod));
        self.until::<Pod>(what, is_it).await;
    }

    pub async fn create_budget(&self, name: &str, spec: Value) {
        create(self.api::<PodDisruptionBudget>(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub async fn patch_budget(&self, name: &str, patch: Value) {
        let budgets = self.api::<PodDisruptionBudget>();
        let patched = budgets.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("the budget's status can be written");
    }

    /// Waits for a status of the budget, without the times.
    pub async fn until_budget(&self, name: &str, expected: Value) {
        let is_it = |all: &[PodDisruptionBudget]| {
            let found = all.iter().find(|one| one.name_any() == name);
            let mut status = json!(found.and_then(|one| one.status.as_ref()));
            let times = status["conditions"].as_array_mut().into_iter().flatten();
            for condition in times {
                condition.as_object_mut().expect("a condition").remove("lastTransitionTime");
            }
            status == expected
        };
        self.until::<PodDisruptionBudget>(&format!("the status {expected}"), is_it).await;
    }

    /// Asks for the eviction of a pod, and gives the code of the answer.
    pub async fn evict(&self, name: &str) -> u16 {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(eviction.to_string().into_bytes())
            .expect("a request");
        match self.client.request::<Value>(request).await {
            Ok(_) => 201,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("no answer to an eviction: {error}"),
        }
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

    /// Waits for a pod, and gives its name.
    pub async fn until_some_pod(&self) -> String {
        let mut found = None;
        self.until::<Pod>("a pod", |pods| {
            found = pods.first().map(ResourceExt::name_any);
            found.is_some()
        })
        .await;
        found.expect("it was seen")
    }

    /// Waits for the end of a Job, and gives its failed pods, and types and reasons of its conditions.
    pub async fn until_job_is_over(&self, name: &str) -> (Option<i32>, Vec<(String, String)>) {
        let mut found = (None, Vec::new());
        let is_over = |job: &Job| {
            let status = job.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let is_over = conditions.iter().any(|one| matches!(&*one.type_, "Complete" | "Failed"));
            let told = conditions.into_iter().map(|one| (one.type_, one.reason.unwrap_or_default()));
            found = (status.failed, told.collect());
            is_over
        };
        let mut is_over = is_over;
        self.until::<Job>("the end of the job", |jobs| {
            jobs.iter().any(|job| job.name_any() == name && is_over(job))
        })
        .await;
        found
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
            + Serialize
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
    K: kube::Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
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
        panic!("waited for {what}, found:\n{}", told(all));
    }
}

/// A line for each object, without who wrote what.
fn told<K: kube::Resource + Serialize>(all: Vec<K>) -> String {
    let line = |mut one: K| {
        one.meta_mut().managed_fields = None;
        serde_json::to_string(&one).expect("objects are JSON")
    };
    all.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

async fn create<K>(api: Api<K>, object: Value) -> K
where
    K: Serialize + Clone + Debug + DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("it is created")
}
