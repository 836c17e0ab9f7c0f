//! An API server and a node agent in this process, and short ways to look at pods.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_node::backoff::Limits;
use windlass_node::events::Report;
use windlass_node::{Agent, Config, logs};

use super::PATIENCE;

/// An API server and a node, in this process.
pub struct Fixture {
    /// To the server.
    pub client: kube::Client,
    /// The pods of the default namespace.
    pub pods: Api<Pod>,
    /// The node.
    pub agent: Agent,
    /// Goes before the files.
    _mounts: Mounts,
    /// Its files.
    pub directory: TempDir,
    /// What it told people, each as `reason message`.
    pub events: Arc<Mutex<Vec<String>>>,
}

/// What is mounted below a directory, as volumes in memory are until their pod is gone: unmounted with it.
struct Mounts(std::path::PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for point in table.lines().filter_map(|line| line.split(' ').nth(4)) {
            if std::path::Path::new(point).starts_with(&self.0) {
                let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

impl Fixture {
    /// With the usual configuration.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With another configuration.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let accounts = windlass_apiserver::Accounts::Checked;
        let config = windlass_apiserver::Config { accounts, ..windlass_apiserver::Config::default() };
        let server = windlass_apiserver::Server::new(config);
        let client = kube::Client::new(server.router(), "default");
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::new(client.clone(), "here", directory.path());
        config.keeper = super::entry("keeper_process", &[]);
        config.crash_backoff = Limits { base: Duration::from_millis(20), max: Duration::from_secs(1) };
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        config.events = Some(Arc::new(move |report: Report| {
            told.lock().push(format!("{} {}", report.reason, report.message));
        }));
        change(&mut config);
        let agent = Agent::start(config).await.expect("the agent starts");
        let _mounts = Mounts(directory.path().to_owned());
        Self { pods: Api::default_namespaced(client.clone()), client, agent, _mounts, directory, events }
    }

    /// Creates a pod on the node.
    pub async fn create(&self, name: &str, spec: Value) -> Pod {
        self.create_with(name, json!({}), spec).await
    }

    /// Creates a pod with annotations on the node.
    pub async fn create_with(&self, name: &str, annotations: Value, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!("here");
        for list in ["initContainers", "containers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                if container.get("image").is_none() {
                    container["image"] = json!("host");
                }
            }
        }
        if spec["initContainers"].is_null() {
            spec.as_object_mut().expect("an object").remove("initContainers");
        }
        let metadata = json!({"name": name, "annotations": annotations});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("the pod is valid")
    }

    /// Watches a pod until `is_it` holds, and deletes it once the watch is open if asked to. Returns the
    /// phases on the way, and the pod, or `None` when it was gone.
    pub async fn watch(
        &self,
        name: &str,
        is_to_delete: bool,
        is_it: impl Fn(Option<&Pod>) -> bool,
    ) -> (Vec<String>, Option<Pod>) {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = std::pin::pin!(watcher(self.pods.clone(), config).default_backoff());
        let (mut phases, mut last) = (Vec::<String>::new(), None);
        let watch = async {
            while let Some(event) = events.next().await {
                match event.expect("the watch works") {
                    watcher::Event::InitDone if is_to_delete => {
                        self.pods.delete(name, &DeleteParams::default()).await.expect("deleted");
                        continue;
                    }
                    watcher::Event::Init | watcher::Event::InitDone => continue,
                    watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => last = Some(pod),
                    watcher::Event::Delete(_) => last = None,
                }
                let phase = last.as_ref().map_or("gone", phase).to_owned();
                if phases.last() != Some(&phase) {
                    phases.push(phase);
                }
                if is_it(last.as_ref()) {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, watch).await.is_err() {
            panic!("pod {name} did not get there: {phases:?} {last:?}");
        }
        (phases, last)
    }

    /// Waits until a pod is as wanted.
    pub async fn until(&self, name: &str, is_it: impl Fn(&Pod) -> bool) -> Pod {
        self.watch(name, false, |pod| pod.is_some_and(&is_it)).await.1.expect("it is there")
    }

    /// Waits until a pod has ended.
    pub async fn ended(&self, name: &str) -> Pod {
        self.until(name, |pod| matches!(phase(pod), "Succeeded" | "Failed")).await
    }

    /// Waits until a pod runs.
    pub async fn running(&self, name: &str) -> Pod {
        self.until(name, |pod| phase(pod) == "Running").await
    }

    /// Where the output of a run is.
    pub fn log(&self, pod: &Pod, container: &str, run: i32) -> std::path::PathBuf {
        let meta = &pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&meta.namespace), text(&meta.name), text(&meta.uid));
        let pod = logs::PodName { namespace: &namespace, name: &name, uid: &uid };
        logs::path(self.agent.logs(), pod, container, run)
    }
}

/// How its container is named to those who look into it.
pub fn seen(pod: &Pod) -> windlass_streams::Container {
    windlass_streams::Container {
        node: "here".into(),
        namespace: "default".into(),
        pod: pod.metadata.name.clone().expect("a name"),
        uid: pod.metadata.uid.clone().expect("a uid"),
        name: "c".into(),
    }
}

/// Its phase.
pub fn phase(pod: &Pod) -> &str {
    status(pod).phase.as_deref().unwrap_or_default()
}

/// Its status.
pub fn status(pod: &Pod) -> &PodStatus {
    pod.status.as_ref().expect("a status")
}

/// A container that runs a script.
pub fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "command": ["sh", "-c", script]})
}

/// A pod that is not started again.
pub fn never(containers: Value) -> Value {
    json!({"restartPolicy": "Never", "containers": containers})
}

/// State, last state and restart count of each container, init containers first.
pub fn ends(pod: &Pod) -> Vec<String> {
    let status = status(pod);
    let all =
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    all.map(|container| {
        let state = container.state.clone().unwrap_or_default();
        let text = match (state.waiting, state.running, state.terminated) {
            (Some(waiting), _, _) => waiting.reason.unwrap_or_default(),
            (_, Some(_), _) => "running".into(),
            (_, _, Some(end)) => format!("{} {}", end.reason.unwrap_or_default(), end.exit_code),
            _ => "nothing".into(),
        };
        format!("{} {text} restarts={}", container.name, container.restart_count)
    })
    .collect()
}

/// A condition: its status and reason.
pub fn condition(pod: &Pod, type_: &str) -> String {
    let found = status(pod).conditions.iter().flatten().find(|condition| condition.type_ == type_);
    found.map_or("none".into(), |c| format!("{} {}", c.status, c.reason.as_deref().unwrap_or_default()))
}
