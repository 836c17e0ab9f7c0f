//! Everything that ends pods, on a server with real processes: the whole status of the pod, and what a Job makes of it that
//! ignores disruptions, one that counts them, and one that fails by them. `docs/disruptions.md` is the table of it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_conformance::scenario::merge;

use crate::real_kubectl::{self, Kubectl};
use crate::server::Served;
use crate::support::{BACKOFF_LIMIT, complete, failed, plain};

/// A node that is gone is looked for during 40 seconds, and every 20 seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// What Jobs do by `DisruptionTarget`.
const ACTIONS: [&str; 3] = ["Ignore", "Count", "FailJob"];

/// A server, and a Job for each action. A pod sleeps until it is ended; one that starts when `go` is there succeeds.
struct World {
    directory: TempDir,
    _served: Served,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let served = Served::start(directory.path(), &[]);
        let client = served.client().await;
        Self { directory, _served: served, client }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn kubectl(&self) -> Kubectl {
        let [newest, _] = real_kubectl::each(self.path());
        newest
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Makes the Job of an action; `more` is merged into the spec of its pod.
    async fn make(&self, action: &str, more: Value) -> String {
        let name = action.to_lowercase();
        let job = disruptable(&name, action, &self.script(), more);
        self.jobs().create(&PostParams::default(), &job).await.expect("created");
        name
    }

    /// Ends at once if `go` is there, and sleeps otherwise.
    fn script(&self) -> String {
        let d = self.path().display();
        format!("[ ! -e {d}/go ] || exit 0; : > {d}/asleep-$HOSTNAME; exec sleep 1000")
    }

    /// From now on pods succeed.
    fn let_go(&self) {
        std::fs::write(self.path().join("go"), "").expect("written");
    }

    async fn pods_of(&self, job: &str) -> Vec<Pod> {
        let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        self.pods().list(&params).await.expect("listed").items
    }

    /// The first pod of a Job, when it is such.
    async fn pod(&self, job: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_for(&format!("a pod of {job} that {what}"), async || {
            let pods = self.pods_of(job).await.into_iter();
            let pods = pods.map(|pod| serde_json::to_value(pod).expect("JSON"));
            pods.into_iter().find(|pod| is_so(pod)).ok_or_else(|| String::from("no such pod"))
        })
        .await
    }

    /// The pod of a Job sleeps.
    async fn asleep(&self, job: &str) -> Value {
        let pod = self.pod(job, "runs", |pod| pod["status"]["phase"] == "Running").await;
        let file = self.path().join(format!("asleep-{}", pod["metadata"]["name"].as_str().expect("a name")));
        wait_for("the pod to sleep", async || file.exists().then_some(()).ok_or(String::new())).await;
        pod
    }

    /// The status of the pod of a Job that has failed.
    async fn failed(&self, job: &str) -> Value {
        let pod = self.pod(job, "has failed", |pod| pod["status"]["phase"] == "Failed").await;
        plain(pod["status"].clone(), job)
    }

    /// The status of a Job that is over.
    async fn verdict(&self, job: &str) -> Value {
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
    async fn sleepers(&self) {
        for action in ACTIONS {
            let job = self.make(action, json!({})).await;
            self.asleep(&job).await;
        }
        self.let_go();
    }

    /// The status of every Job's failed pod, whole.
    async fn assert_failed(&self, want: &Value) {
        for action in ACTIONS {
            let status = comparable(self.failed(&action.to_lowercase()).await);
            assert_eq!(status, comparable(want.clone()), "{action}");
        }
    }

    /// A pod failed and was not disrupted: it counts, whatever the rule for disruptions says.
    async fn assert_counted(&self) {
        for action in ACTIONS {
            let want = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 1}));
            assert_eq!(self.verdict(&action.to_lowercase()).await, want, "{action}");
        }
    }

    async fn delete(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        self.pods().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// What each of the three Jobs makes of a pod that was disrupted, when new pods succeed.
    async fn assert_verdict(&self, action: &str) {
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
fn disruptable(name: &str, action: &str, script: &str, more: Value) -> Job {
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

async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
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
fn terminated(reason: &str, message: &str) -> Value {
    let mut status = stopped(143, 2);
    let disruption = json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "TIME"});
    status["conditions"].as_array_mut().expect("a list").push(disruption);
    status
}

/// The whole status of a pod that ran on a node here and has stopped with that code.
fn stopped(exit_code: i32, generation: i64) -> Value {
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
fn on_node(generation: i64, container: Value) -> Value {
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
fn comparable(mut status: Value) -> Value {
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

#[tokio::test]
async fn a_preempted_pod_fails_as_a_disrupted_one() {
    let world = World::start().await;
    let node: Node = Api::all(world.client.clone()).get("node-1").await.expect("a node");
    let cpus = node.status.and_then(|status| status.allocatable).expect("its room")["cpu"].0.clone();
    let kubectl = world.kubectl();
    kubectl.must(&["create", "priorityclass", "low", "--value=1"]);
    kubectl.must(&["create", "priorityclass", "high", "--value=10"]);
    let whole = |class: &str, script: &str| {
        let command = json!(["sh", "-c", script]);
        json!({"priorityClassName": class, "containers": [{"name": "main", "image": "host", "command": command,
            "resources": {"requests": {"cpu": cpus}}}]})
    };
    for action in ACTIONS {
        let _ = std::fs::remove_file(world.path().join("go"));
        let victim = world.make(action, whole("low", &world.script())).await;
        world.asleep(&victim).await;
        let boss = disruptable(&format!("boss-of-{victim}"), "Count", "true", whole("high", "true"));
        world.let_go();
        world.jobs().create(&PostParams::default(), &boss).await.expect("created");
        let status = comparable(world.failed(&victim).await);
        let message = "default-scheduler: preempting to accommodate a higher priority pod";
        let mut want = terminated("PreemptionByScheduler", message);
        want["qosClass"] = json!("Burstable");
        assert_eq!(status, comparable(want), "{action}");
        assert_eq!(world.verdict(&boss.name_any()).await, complete(json!({"succeeded": 1})));
        world.assert_verdict(action).await;
    }
}

#[tokio::test]
async fn a_pod_evicted_by_a_taint_fails_as_a_disrupted_one() {
    let world = World::start().await;
    world.sleepers().await;
    let kubectl = world.kubectl();
    kubectl.must(&["taint", "node", "node-1", "k=v:NoExecute"]);
    let message = "Taint manager: deleting due to NoExecute taint";
    world.assert_failed(&terminated("DeletionByTaintManager", message)).await;
    kubectl.must(&["taint", "node", "node-1", "k-"]);
    for action in ACTIONS {
        world.assert_verdict(action).await;
    }
}

#[tokio::test]
async fn a_pod_of_a_drained_node_fails_as_a_disrupted_one() {
    let world = World::start().await;
    world.sleepers().await;
    let kubectl = world.kubectl();
    // The pods stay until they were looked at: kubectl would wait for that.
    let drained = kubectl.run(&["drain", "node-1", "--timeout=3s"]);
    assert!(drained.stdout.contains("node/node-1 cordoned"), "{drained:?}");
    world.assert_failed(&terminated("EvictionByEvictionAPI", "Eviction API: evicting")).await;
    kubectl.must(&["uncordon", "node-1"]);
    for action in ACTIONS {
        world.assert_verdict(action).await;
    }
}

/// A node whose kubelet this test plays: nobody runs pods there.
async fn ghost(world: &World) {
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "ghost", "labels": {"kind": "ghost"}},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .expect("a node");
    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let open = Patch::Merge(json!({"spec": {"taints": []}}));
    nodes.patch("ghost", &PatchParams::default(), &open).await.expect("patched");
}

#[tokio::test]
async fn a_pod_of_a_node_that_is_gone_fails_as_a_disrupted_one() {
    let world = World::start().await;
    ghost(&world).await;
    for action in ACTIONS {
        let job = world.make(action, json!({"nodeSelector": {"kind": "ghost"}})).await;
        let pod = world.pod(&job, "is placed", |pod| pod["spec"]["nodeName"] == "ghost").await;
        let runs = Patch::Merge(json!({"status": {"phase": "Running"}}));
        let name = pod["metadata"]["name"].as_str().expect("a name");
        world.pods().patch_status(name, &PatchParams::default(), &runs).await.expect("patched");
    }
    world.kubectl().must(&["delete", "node", "ghost"]);
    let gone = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "lastTransitionTime": "TIME"});
    let placed = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "TIME"});
    let want = json!({"phase": "Failed", "qosClass": "BestEffort", "observedGeneration": 1,
        "conditions": [placed, gone]});
    world.assert_failed(&want).await;
    // Those that come after it have somewhere to go again.
    ghost(&world).await;
    for action in ["Count", "FailJob"] {
        world.assert_verdict(action).await;
    }
    let next = world.pod("ignore", "is new", |pod| pod["metadata"]["deletionTimestamp"].is_null()).await;
    let name = next["metadata"]["name"].as_str().expect("a name");
    let ends = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    world.pods().patch_status(name, &PatchParams::default(), &ends).await.expect("patched");
    world.assert_verdict("Ignore").await;
}

#[tokio::test]
async fn a_pod_deleted_before_it_was_placed_fails_and_is_no_disruption() {
    let world = World::start().await;
    for action in ACTIONS {
        let job = world.make(action, json!({"nodeSelector": {"kind": "none"}})).await;
        let is_told = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        world.delete(&world.pod(&job, "is refused", is_told).await).await;
    }
    let message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to \
                   deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let refused = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": "TIME"});
    let want = json!({"phase": "Failed", "qosClass": "BestEffort", "observedGeneration": 2, "conditions": [refused]});
    world.assert_failed(&want).await;
    world.assert_counted().await;
}

#[tokio::test]
async fn a_pod_that_could_not_start_fails_when_deleted_and_is_no_disruption() {
    let world = World::start().await;
    for action in ACTIONS {
        let container =
            json!([{"name": "main", "image": "127.0.0.1:1/no-such-image:1", "command": ["true"]}]);
        let job = world.make(action, json!({"containers": container})).await;
        let is_stuck = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["waiting"].is_null();
        world.delete(&world.pod(&job, "can't start", is_stuck).await).await;
    }
    let lost = json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": "TIME",
        "message": "The container could not be located when the pod was terminated"});
    let container = json!({"name": "main", "image": "127.0.0.1:1/no-such-image:1", "imageID": "", "ready": false,
        "started": false, "restartCount": 0, "lastState": {}, "state": {"terminated": lost}});
    world.assert_failed(&on_node(2, container)).await;
    world.assert_counted().await;
}

#[tokio::test]
async fn a_container_that_is_killed_fails_and_is_no_disruption() {
    let world = World::start().await;
    for action in ACTIONS {
        // Two of them are one to the node, as in Kubernetes.
        let command = json!(["sh", "-c", "kill -KILL $$$$"]);
        let container = json!([{"name": "main", "image": "host", "command": command}]);
        world.make(action, json!({"containers": container})).await;
    }
    world.assert_failed(&stopped(137, 1)).await;
    world.assert_counted().await;
}

#[tokio::test]
async fn a_condition_of_somebody_who_died_before_deleting_is_cleared_and_misleads_nobody() {
    let world = World::start().await;
    let job = world.make("Ignore", json!({})).await;
    let pod = world.asleep(&job).await;
    let name = pod["metadata"]["name"].as_str().expect("a name");
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "x", "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [target]}}));
    world.pods().patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    let is_cleared = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter().any(|one| one["type"] == "DisruptionTarget" && one["status"] == "False")
        })
    };
    world.pod(&job, "is no target any more", is_cleared).await;
    // It ends by itself later: a failure like any other.
    let ends = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 1}}));
    world.pods().patch(name, &PatchParams::default(), &ends).await.expect("patched");
    let want = failed("BackoffLimitExceeded", BACKOFF_LIMIT, json!({"failed": 1}));
    assert_eq!(world.verdict(&job).await, want);
}
