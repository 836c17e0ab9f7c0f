//! Everything that ends pods, on a server with real processes: the whole status of the pod, and what a Job makes of it that
//! ignores disruptions, one that counts them, and one that fails by them. `docs/disruptions.md` is the table of it.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{BACKOFF_LIMIT, complete, failed};
use crate::world::{ACTIONS, World, comparable, disruptable, on_node, stopped, terminated};

#[tokio::test]
async fn a_preempted_pod_fails_as_a_disrupted_one() {
    let world = World::start().await;
    let cpus = world.make_classes().await;
    let whole = |class: &str, script: &str| {
        let command = json!(["sh", "-c", script]);
        json!({"priorityClassName": class, "containers": [{"name": "main", "image": "host", "command": command,
            "resources": {"requests": {"cpu": cpus}}}]})
    };
    for action in ACTIONS {
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
        world.hold();
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
