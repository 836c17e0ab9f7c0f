//! An API server, a scheduler on it, and what tests do with both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service, service_fn};
use windlass_api::Gates;
use windlass_apiserver::{Object, Placing};
use windlass_scheduler::{Config, Metrics, Placer, Scheduler, WatchedPod};

/// How long anything may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(180);

/// What becomes of a write of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    /// It is not done.
    Fails,
    /// It is done, and the answer says that it is not.
    LosesAnswer,
}

type Judge = Arc<dyn Fn(&str) -> Fate + Send + Sync>;

/// The first write that ends with a text meets a fate.
pub fn once(fate: Fate, ending: &'static str) -> impl Fn(&str) -> Fate + Send + Sync + 'static {
    let is_over = AtomicBool::new(false);
    move |write| {
        let is_it = write.ends_with(ending) && !is_over.swap(true, Ordering::SeqCst);
        if is_it { fate } else { Fate::Passes }
    }
}

pub struct World {
    server: windlass_apiserver::Server,
    pub client: Client,
    pub pods: Api<Pod>,
    pub nodes: Api<Node>,
    /// The writes of the scheduler, but for events: method and path.
    pub writes: Arc<Mutex<Vec<String>>>,
    /// Whether the scheduler has to wait for news of pods.
    pub holds_pods: watch::Sender<bool>,
    pub metrics: Metrics,
    gates: Gates,
    cancel: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Gates::default())
    }

    /// With other features on, in the server and in the scheduler.
    pub fn with(gates: Gates) -> Self {
        let config = windlass_apiserver::Config { gates, ..windlass_apiserver::Config::default() };
        let server = windlass_apiserver::Server::new(config);
        let client = Client::new(server.router(), "default");
        let (pods, nodes) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
        let (writes, metrics, cancel) = (Arc::default(), Metrics::default(), CancellationToken::new());
        let holds_pods = watch::Sender::new(false);
        Self { server, client, pods, nodes, writes, holds_pods, metrics, gates, cancel }
    }

    pub fn start(&self) {
        self.start_with(|_| {}, |_| Fate::Passes);
    }

    /// Starts a scheduler; the writes that fail are answered with 500.
    pub fn start_with(
        &self,
        set: impl FnOnce(&mut Config),
        judge: impl Fn(&str) -> Fate + Send + Sync + 'static,
    ) {
        let mut config = Config { metrics: self.metrics.clone(), gates: self.gates, ..Config::default() };
        set(&mut config);
        let scheduler = Scheduler::with_config(self.tapped(Arc::new(judge)), config);
        tokio::spawn(scheduler.run(self.cancel.clone()));
    }

    /// Starts a scheduler that the server asks for a node while it makes a pod.
    pub fn start_placing(&self) {
        let config = Config { metrics: self.metrics.clone(), gates: self.gates, ..Config::default() };
        let scheduler = Scheduler::with_config(self.tapped(Arc::new(|_| Fate::Passes)), config);
        let (placer, scheduling) = scheduler.start(self.cancel.clone());
        tokio::spawn(scheduling);
        self.server.place_pods(Arc::new(Places(placer)));
    }

    fn tapped(&self, judge: Judge) -> Client {
        let (server, writes) = (self.server.router(), Arc::clone(&self.writes));
        let holds_pods = self.holds_pods.clone();
        let pass =
            move |mut request: Request<kube::client::Body>| -> BoxFuture<'static, Result<_, BoxError>> {
                let (mut server, writes, judge) = (server.clone(), Arc::clone(&writes), Arc::clone(&judge));
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
                let is_of_pods = is_watch && request.uri().path() == "/api/v1/pods";
                let held = is_of_pods.then(|| holds_pods.subscribe());
                if is_of_pods {
                    // What the server hands over within the process could not be held back.
                    request.extensions_mut().clear();
                }
                Box::pin(async move {
                    let write = format!("{} {}", request.method(), request.uri().path());
                    let is_counted = request.method() != Method::GET && !write.contains("/events");
                    let fate = if is_counted { judge(&write) } else { Fate::Passes };
                    if is_counted {
                        writes.lock().push(write);
                    }
                    if fate == Fate::Passes {
                        let answer = server.call(request).await?;
                        return Ok(match held {
                            Some(held) => sluggish(answer, held),
                            None => answer,
                        });
                    }
                    if fate == Fate::LosesAnswer {
                        server.call(request).await?;
                    }
                    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                                  "reason": "InternalError", "message": "out of order"});
                    Ok(Response::builder().status(500).body(Body::from(body.to_string()))?)
                })
            };
        Client::new(service_fn(pass), "default")
    }

    pub async fn node(&self, name: &str, cpu: &str, more: Value) {
        let mut status = json!({"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}});
        if let Some(pods) = more.get("pods") {
            status["allocatable"]["pods"] = pods.clone();
        }
        let mut labels = more.get("labels").cloned().unwrap_or_else(|| json!({}));
        labels["kubernetes.io/hostname"] = json!(name);
        let spec = more.get("spec").cloned().unwrap_or_else(|| json!({}));
        let taints = spec.get("taints").cloned();
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status});
        let node: Node = serde_json::from_value(node).expect("a node");
        self.nodes.create(&PostParams::default(), &node).await.expect("created");
        // Nobody else is here who sees that it is ready.
        self.patch_node(name, json!({"spec": {"taints": taints}})).await;
        let patch = Patch::Merge(json!({"status": status}));
        self.nodes.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub async fn patch_node(&self, name: &str, patch: Value) {
        self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    /// Pods get their priority by class.
    pub async fn classes(&self) {
        let classes: Api<PriorityClass> = Api::all(self.client.clone());
        let (rude, polite) = ("PreemptLowerPriority", "Never");
        for (name, value, policy) in
            [("low", 1, rude), ("high", 10, rude), ("higher", 20, rude), ("polite", 10, polite)]
        {
            let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
            let class = serde_json::from_value(class).expect("a class");
            classes.create(&PostParams::default(), &class).await.expect("created");
        }
    }

    pub async fn pod(&self, name: &str, cpu: &str, spec: Value) {
        self.labelled(name, cpu, json!({}), spec).await;
    }

    pub async fn labelled(&self, name: &str, cpu: &str, labels: Value, spec: Value) {
        self.made(name, cpu, labels, spec).await.expect("created");
    }

    /// What the API server answers to a new pod.
    pub async fn made(&self, name: &str, cpu: &str, labels: Value, mut spec: Value) -> kube::Result<Pod> {
        let resources = json!({"requests": {"cpu": cpu}});
        let mut container =
            json!({"name": "c", "image": "host", "command": ["true"], "resources": resources});
        if let Some(port) = spec.as_object_mut().and_then(|spec| spec.remove("port")) {
            container["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
        spec["containers"] = json!([container]);
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await
    }

    pub async fn end(&self, name: &str) {
        let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        self.pods.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// As a kubelet does when the last container has stopped.
    pub async fn remove(&self, name: &str) {
        self.pods.delete(name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
    }

    pub async fn budget(&self, name: &str, app: &str, allowed: i32) {
        let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(self.client.clone());
        let spec = json!({"selector": {"matchLabels": {"app": app}}, "minAvailable": 1});
        let budget = json!({"metadata": {"name": name}, "spec": spec});
        let budget = serde_json::from_value(budget).expect("a budget");
        budgets.create(&PostParams::default(), &budget).await.expect("created");
        let status = json!({"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
        let patch = Patch::Merge(json!({"status": status}));
        budgets.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// Watches all pods until `count` of them satisfy `is_it`.
    pub async fn until(&self, what: &str, count: usize, is_it: impl Fn(&Pod) -> bool) {
        let events = watcher(self.pods.clone(), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut found = std::collections::BTreeSet::new();
        let watch = async {
            while let Some(event) = events.next().await {
                let pod = match event.expect("the watch works") {
                    watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => pod,
                    _ => continue,
                };
                if is_it(&pod) {
                    found.insert(pod.name_any());
                }
                if found.len() == count {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, watch).await.is_err() {
            panic!("gave up waiting for {what}: {found:?}");
        }
    }

    /// Waits until a pod is as wanted, and returns it.
    pub async fn until_pod(&self, name: &str, what: &str, is_it: impl Fn(&Pod) -> bool) -> Pod {
        self.until(&format!("{name} {what}"), 1, |pod| pod.name_any() == name && is_it(pod)).await;
        self.pods.get(name).await.expect("the pod")
    }

    pub async fn node_of(&self, name: &str) -> String {
        let pod = self.until_pod(name, "on a node", |pod| node_of(pod).is_some()).await;
        node_of(&pod).expect("a node").to_owned()
    }

    pub async fn told(&self, name: &str, want: &str) {
        self.until_pod(name, want, |pod| refusal(pod).as_deref() == Some(want)).await;
    }

    /// Waits until an event about a pod is there, and returns it.
    pub async fn event(&self, pod: &str, reason: &str) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let mut changes = std::pin::pin!(watcher(events, watcher::Config::default()).default_backoff());
        let is_it = |event: &Event| {
            let about = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            about == Some(pod) && event.reason.as_deref() == Some(reason)
        };
        let found = async {
            while let Some(change) = changes.next().await {
                match change.expect("the watch works") {
                    watcher::Event::InitApply(event) | watcher::Event::Apply(event) if is_it(&event) => {
                        return event;
                    }
                    _ => {}
                }
            }
            panic!("the watch ended");
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("gave up waiting for an event {reason} about {pod}"))
    }
}

/// A watch whose events come as long as they are not held back.
fn sluggish(answer: Response<Body>, held: watch::Receiver<bool>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let events = body.into_data_stream().then(move |event| {
        let mut held = held.clone();
        async move {
            // An error means that the test is over.
            _ = held.wait_for(|is_held| !is_held).await;
            event
        }
    });
    let mut answer = Response::new(Body::from_stream(events));
    (*answer.status_mut(), *answer.headers_mut()) = (parts.status, parts.headers);
    answer
}

struct Places(Placer);

impl Placing for Places {
    fn place(&self, pod: &Object) -> Option<String> {
        self.0.place(&pod.read::<WatchedPod>().expect("a pod"))
    }

    fn take_back(&self, uid: &str) {
        self.0.take_back(uid);
    }
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref()
}

pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

pub fn refusal(pod: &Pod) -> Option<String> {
    let condition = condition(pod, "PodScheduled")?;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Some(format!("{} {}: {}", condition.status, text(&condition.reason), text(&condition.message)))
}
