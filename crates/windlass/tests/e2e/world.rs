//! A server with a Job that ignores disruptions, one that counts them, and one that fails by them; what became of their pods,
//! and what they made of it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_conformance::scenario::merge;

use crate::real_kubectl::{self, Kubectl};
use crate::server::Served;
use crate::support::{BACKOFF_LIMIT, complete, failed, plain};

/// A node that is gone is looked for during 40 seconds, and every 20 seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// What Jobs do by `DisruptionTarget`.
pub const ACTIONS: [&str; 3] = ["Ignore", "Count", "FailJob"];

/// A server, and a Job for each action. A pod sleeps until it is ended; one that starts when `go` is there succeeds.
pub struct World {
    directory: TempDir,
    _served: Served,
    pub client: Client,
}

impl World {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With such flags of the server.
    pub async fn with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let served = Served::start(directory.path(), flags);
        let client = served.client().await;
        Self { directory, _served: served, client }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn kubectl(&self) -> Kubectl {
        let [newest, _] = real_kubectl::each(self.path());
        newest
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Makes the Job of an action; `more` is merged into the spec of its pod.
    pub async fn make(&self, action: &str, more: Value) -> String {
        let name = action.to_lowercase();
        let job = disruptable(&name, action, &self.script(), more);
        self.jobs().create(&PostParams::default(), &job).await.expect("created");
        name
    }

    /// Ends at once if `go` is there, and sleeps otherwise.
    pub fn script(&self) -> String {
        let d = self.path().display();
        format!("[ ! -e {d}/go ] || exit 0; : > {d}/asleep-$HOSTNAME; exec sleep 1000")
    }

    /// From now on pods succeed.
    pub fn let_go(&self) {
        std::fs::write(self.path().join("go"), "").expect("written");
    }

    /// From now on pods sleep again.
    pub fn hold(&self) {
        std::fs::remove_file(self.path().join("go")).expect("removed");
    }

    pub async fn pods_of(&self, job: &str) -> Vec<Pod> {
        let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        self.pods().list(&params).await.expect("listed").items
    }

    /// Makes the priority classes `low` and `high`, and says how many CPUs are all that the node has.
    pub async fn make_classes(&self) -> String {
        let kubectl = self.kubectl();
        kubectl.must(&["create", "priorityclass", "low", "--value=1"]);
        kubectl.must(&["create", "priorityclass", "high", "--value=10"]);
        let node: Node = Api::all(self.client.clone()).get("node-1").await.expect("a node");
        node.status.and_then(|status| status.allocatable).expect("its room")["cpu"].0.clone()
    }

    /// The first pod of a Job, when it is such.
    pub async fn pod(&self, job: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_for(&format!("a pod of {job} that {what}"), async || {
            let pods = self.pods_of(job).await.into_iter();
            let pods = pods.map(|pod| serde_json::to_value(pod).expect("JSON"));
            pods.into_iter().find(|pod| is_so(pod)).ok_or_else(|| String::from("no such pod"))
        })
        .await
    }

    /// The pod of a Job sleeps.
    pub async fn asleep(&self, job: &str) -> Value {
        let pod = self.pod(job, "runs", |pod| pod["status"]["phase"] == "Running").await;
        let file = self.path().join(format!("asleep-{}", pod["metadata"]["name"].as_str().expect("a name")));
        wait_for("the pod to sleep", async || file.exists().then_some(()).ok_or(String::new())).await;
        pod
    }

    /// The status of the pod of a Job that has failed.
    pub async fn failed(&self, job: &str) -> Value {
        let pod = self.pod(job, "has failed", |pod| pod["status"]["phase"] == "Failed").await;
        plain(pod["status"].clone(), job)
    }

    /// The status of a Job that is over.
    pub async fn verdict(&self, job: &str) -> Value {
        let status = wait_for(&format!("the end of {job}"), async || {
            let job = serde_json::to_value(self.jobs().get(job).await.expect("the Job")).expect("JSON");
            let is_over = |kind: &str| {
                let conditions = job["status"]["conditions"].as_array();
                conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind))
            };
            if is_over("Complete") || is_over("Failed") {
                Ok(job["status"].clone())
            } else {
                Err(job["status"].to_string())
            }
        })
        .await;
        plain(status, job)
    }

    /// The Jobs of all actions, with their pods asleep; from now on new pods succeed.
    pub async fn sleepers(&self) {
        for action in ACTIONS {
            let job = self.make(action, json!({})).await;
            self.asleep(&job).await;
        }
        self.let_go();
    }

    /// The status of every Job's failed pod, whole.
    pub async fn assert_failed(&self, want: &Value) {
        for action in ACTIONS {
            let status = comparable(self.failed(&action.to_lowercase()).await);
            assert_eq!(status, comparable(want.clone()), "{action}");
        }
    }

    /// A pod failed and was not disrupted: it counts, whatever the rule for disruptions says.
    pub async fn assert_counted(&self) {
        for action in ACTIONS {
            self.assert_counted_by(action).await;
        }
    }

    pub async fn assert_counted_by(&self, action: &str) {
        let want = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 1}));
        assert_eq!(self.verdict(&action.to_lowercase()).await, want, "{action}");
    }

    pub async fn delete(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        self.pods().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// What each of the three Jobs makes of a pod that was disrupted, when new pods succeed.
    pub async fn assert_verdict(&self, action: &str) {
        let name = action.to_lowercase();
        let want = match action {
            "Ignore" => complete(json!({"succeeded": 1})),
            "Count" => failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 1})),
            _ => {
                let pod = format!("default/{name}-?????");
                let message =
                    format!("Pod {pod} has condition DisruptionTarget matching FailJob rule at index 0");
                failed("PodFailurePolicy", &message, json!({"failed": 1}))
            }
        };
        assert_eq!(self.verdict(&name).await, want, "{action}");
    }
}

/// A Job of one pod that may not fail, with a rule for disrupted ones. Its pods stay until they were looked at.
pub fn disruptable(name: &str, action: &str, script: &str, more: Value) -> Job {
    let rule = json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]});
    let mut spec = json!({"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", script]}]});
    merge(&mut spec, more);
    serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0, "podFailurePolicy": {"rules": [rule]},
            "template": {"metadata": {"finalizers": ["example.com/looked-at"]}, "spec": spec},
        },
    }))
    .expect("a Job")
}

pub async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let start = std::time::Instant::now();
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(last) => assert!(start.elapsed() < PATIENCE, "gave up waiting for {what}: {last}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The whole status of a pod that ran on a node here and was disrupted: it was asked to end, and did.
pub fn terminated(reason: &str, message: &str) -> Value {
    let mut status = stopped(143, 2);
    let disruption = json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "TIME"});
    status["conditions"].as_array_mut().expect("a list").push(disruption);
    status
}

/// The whole status of a pod that ran on a node here and has stopped with that code.
pub fn stopped(exit_code: i32, generation: i64) -> Value {
    let end = json!({"exitCode": exit_code, "reason": "Error", "startedAt": "TIME", "finishedAt": "TIME"});
    on_node(
        generation,
        json!({
            "name": "main", "image": "host", "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "lastState": {}, "state": {"terminated": end},
        }),
    )
}

/// The whole status of a pod that was on a node here and has failed.
pub fn on_node(generation: i64, container: Value) -> Value {
    let said = |kind: &str, status: &str, reason: Option<&str>| json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": "TIME"});
    json!({
        "phase": "Failed", "qosClass": "BestEffort", "startTime": "TIME", "observedGeneration": generation,
        "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [
            said("PodScheduled", "True", None),
            said("ContainersReady", "False", Some("PodFailed")),
            said("Initialized", "True", None),
            said("PodReadyToStartContainers", "False", None),
            said("Ready", "False", Some("PodFailed")),
        ],
        "containerStatuses": [container],
    })
}

/// What differs between runs and says nothing here is left out, and conditions stand in the order of their types.
pub fn comparable(mut status: Value) -> Value {
    for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        container.as_object_mut().expect("a container").remove("containerID");
        if let Some(terminated) = container["state"]["terminated"].as_object_mut() {
            terminated.remove("containerID");
        }
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|one| one["type"].to_string());
        for one in conditions {
            let one = one.as_object_mut().expect("a condition");
            one.retain(|_, value| !value.is_null());
            one.remove("observedGeneration");
        }
    }
    status
}
