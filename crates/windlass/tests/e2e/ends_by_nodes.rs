//! The ends of pods that a node causes, each as the review of KEP-3329 provokes it: with a real node that is short of something,
//! stops, or is cut off. The whole status of the pod, and what Jobs make of it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::node;
use crate::support::{Running, complete, processes_with_variable, run};
use crate::world::{ACTIONS, World, comparable, disruptable, on_node, stopped, wait_for};

/// The status of a pod that this node has ended, and why.
fn ended_by_node(exit_code: i32, reason: &str, message: &str) -> Value {
    let mut status = disrupted(stopped(exit_code, 1), message);
    status["reason"] = json!(reason);
    status["message"] = json!(message);
    status
}

fn disrupted(mut status: Value, message: &str) -> Value {
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
        "message": message, "lastTransitionTime": "TIME"});
    status["conditions"].as_array_mut().expect("a list").push(target);
    status
}

/// The status with how much there was of something left out, which is different each time.
fn masked(mut status: Value) -> Value {
    let mask = |text: &Value| {
        let words: Vec<&str> = text.as_str().expect("a text").split(' ').collect();
        let masked = words.iter().enumerate().map(|(place, word)| {
            let before = place.checked_sub(1).map(|place| words[place]);
            if matches!(before, Some("available:" | "using")) { "N" } else { word }
        });
        json!(masked.collect::<Vec<_>>().join(" "))
    };
    status["message"] = mask(&status["message"]);
    for condition in status["conditions"].as_array_mut().expect("conditions") {
        if condition["type"] == "DisruptionTarget" {
            condition["message"] = mask(&condition["message"]);
        }
    }
    status
}

/// The node `two`, apart from the server, whose own node takes no pods until it is told to.
fn node_two(world: &World, flags: &[&str]) -> Running {
    world.kubectl().must(&["cordon", "node-1"]);
    let token = node::token(world.path());
    let mut command = node::command(world.path(), &token, "two");
    let mut running = Running::spawn(command.args(flags));
    running.wait_for_lines(&["runs node two"]);
    running
}

/// What a Node says about itself.
async fn condition(world: &World, node: &str, kind: &str) -> (String, String) {
    let node: Node = Api::all(world.client.clone()).get(node).await.expect("the node");
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let found = conditions.into_iter().find(|one| one.type_ == kind).expect("a condition");
    (found.status, found.message.unwrap_or_default())
}

/// A file system of its own, so that it can be full.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path, size: &str) -> Self {
        std::fs::create_dir_all(path).expect("a directory");
        let size = std::ffi::CString::new(format!("size={size}")).expect("a text");
        rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::empty(), Some(size.as_c_str()))
            .expect("mounted");
        Self(path.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_pod_on_a_node_that_is_short_of_memory_fails_as_a_disrupted_one() {
    let world = World::with(&["--eviction-hard", "memory.available<1000Ti"]).await;
    // From then on the node looks every ten seconds.
    wait_for("the first time that a pod would have had to go", async || {
        let about = ["get", "events", "--field-selector", "reason=EvictionThresholdMet", "-o", "name"];
        let told = world.kubectl().must(&about);
        if told.is_empty() { Err(told) } else { Ok(()) }
    })
    .await;
    assert_eq!(condition(&world, "node-1", "MemoryPressure").await.0, "True");
    // Best effort pods would not be taken.
    let more = json!({
        "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", world.script()],
            "resources": {"requests": {"memory": "1Ki"}}}],
    });
    let message = "The node was low on resource: memory. Threshold quantity: 1000Ti, available: N \
                   Container main was using N request is 1Ki, has larger consumption of memory. ";
    let mut want = ended_by_node(143, "Evicted", message);
    want["qosClass"] = json!("Burstable");
    for action in ACTIONS {
        // The node has just looked, and looks again ten seconds later.
        let job = world.make(action, more.clone()).await;
        world.asleep(&job).await;
        world.let_go();
        assert_eq!(masked(comparable(world.failed(&job).await)), comparable(want.clone()), "{action}");
        world.assert_verdict(action).await;
        world.hold();
    }
}

#[tokio::test]
async fn a_pod_that_fills_the_disk_of_its_node_fails_as_a_disrupted_one_and_the_next_is_not_admitted() {
    let world = World::start().await;
    let directory = world.path().join("two");
    let _disk = Disk::mount(&directory, "64m");
    let _two = node_two(&world, &["--eviction-hard", "nodefs.available<50%"]);
    let script =
        format!("[ -e {0}/go ] || head -c 40M /dev/zero > /v/f; {1}", world.path().display(), world.script());
    let more = json!({
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    });
    let job = world.make("Ignore", more).await;
    world.asleep(&job).await;
    world.let_go();
    let message = "The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: N ";
    let want = ended_by_node(143, "Evicted", message);
    assert_eq!(masked(comparable(world.failed(&job).await)), comparable(want));
    // What it had is gone, or the next would have to go as well.
    wait_for("room on the disk", async || {
        let found = rustix::fs::statvfs(&directory).expect("a disk");
        if found.f_bavail * 10 > found.f_blocks * 9 {
            Ok(())
        } else {
            Err(format!("{} blocks", found.f_bavail))
        }
    })
    .await;
    // Who goes there nevertheless is refused, which is no disruption: the node shows for a while that it was short.
    assert_eq!(condition(&world, "two", "DiskPressure").await.0, "True");
    let refused = json!({"phase": "Failed", "reason": "Evicted", "qosClass": "BestEffort", "observedGeneration": 1,
        "message": "Pod was rejected: The node had condition: [DiskPressure]. ", "startTime": "TIME"});
    for action in ["Count", "FailJob"] {
        let job = world.make(action, json!({"nodeName": "two"})).await;
        assert_eq!(comparable(world.failed(&job).await), comparable(refused.clone()), "{action}");
        world.assert_counted_by(action).await;
    }
    world.kubectl().must(&["uncordon", "node-1"]);
    world.assert_verdict("Ignore").await;
}

#[tokio::test]
async fn a_pod_that_takes_more_memory_than_it_may_fails_and_is_no_disruption() {
    let world = World::start().await;
    let container = json!([{"name": "main", "image": "host", "command": ["tail", "/dev/zero"],
        "resources": {"limits": {"memory": "32Mi"}}}]);
    for action in ACTIONS {
        world.make(action, json!({"containers": container})).await;
    }
    let mut want = stopped(137, 1);
    want["qosClass"] = json!("Burstable");
    want["containerStatuses"][0]["state"]["terminated"]["reason"] = json!("OOMKilled");
    world.assert_failed(&want).await;
    world.assert_counted().await;
}

#[tokio::test]
async fn a_pod_that_keeps_more_on_disk_than_it_may_fails_and_is_no_disruption() {
    let world = World::start().await;
    let script = format!("head -c 4M /dev/zero > /v/f; {}", world.script());
    let more = json!({
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": {"limits": {"ephemeral-storage": "1Mi"}}}],
    });
    for action in ACTIONS {
        world.make(action, more.clone()).await;
    }
    let mut want = stopped(143, 1);
    want["reason"] = json!("Evicted");
    want["message"] = json!("Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ");
    world.assert_failed(&want).await;
    world.assert_counted().await;
}

/// Why pods end that end with their node.
const SHUTDOWN: &str = "Pod was terminated in response to imminent node shutdown.";

/// A Job whose pod exits with 0 when it is asked to end.
async fn polite(world: &World) {
    let d = world.path().display();
    let script = format!("trap 'exit 0' TERM; : > {d}/asleep-$HOSTNAME; while :; do sleep 0.01; done");
    let job = disruptable("polite", "FailJob", &script, json!({}));
    world.jobs().create(&PostParams::default(), &job).await.expect("created");
    world.asleep("polite").await;
}

/// What a shutdown of its node makes of a pod that ends by SIGTERM, and of one that handles it.
async fn assert_shut_down(world: &World) {
    world.assert_failed(&ended_by_node(143, "Terminated", SHUTDOWN)).await;
    let polite = world.pod("polite", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    let status = &polite["status"];
    assert_eq!((&status["reason"], &status["message"]), (&Value::Null, &Value::Null));
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    let conditions = status["conditions"].as_array().expect("conditions");
    let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("as upstream");
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("TerminationByKubelet")));
    // A success is one, whatever the policy says of disruptions.
    assert_eq!(world.verdict("polite").await, complete(json!({"succeeded": 1})));
}

#[tokio::test]
async fn pods_of_a_node_that_stops_fail_as_disrupted_ones_unless_they_end_well() {
    let world = World::start().await;
    let two = node_two(&world, &[]);
    world.sleepers().await;
    polite(&world).await;
    two.signal(Signal::TERM);
    assert_eq!(two.finish().code, Some(0));
    assert_shut_down(&world).await;
    // The last that the node has said: nothing is to be placed there.
    let ready = ("False".to_owned(), "node is shutting down".to_owned());
    assert_eq!(condition(&world, "two", "Ready").await, ready);
    world.kubectl().must(&["uncordon", "node-1"]);
    for action in ACTIONS {
        world.assert_verdict(action).await;
    }
}

#[tokio::test]
async fn a_node_shuts_down_by_a_command_and_takes_pods_again_by_another() {
    let world = World::start().await;
    let kubeconfig = world.path().join("kubeconfig");
    let shutdown = |args: &[&str]| {
        let kubeconfig = ["--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
        run(&[&["shutdown"], args, &kubeconfig].concat())
    };
    world.sleepers().await;
    polite(&world).await;
    let ran = shutdown(&["node-1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().last(), Some("node/node-1: has shut down, no pods run"));
    assert_shut_down(&world).await;
    let ready = ("False".to_owned(), "node is shutting down".to_owned());
    assert_eq!(condition(&world, "node-1", "Ready").await, ready);
    let told = world.kubectl().must(&["get", "events", "--field-selector", "reason=Shutdown", "-o", "name"]);
    assert_eq!(told.lines().count(), 1, "{told}");
    // Who goes there nevertheless is refused, which is no disruption.
    world.hold();
    let late = disruptable("late", "Ignore", "true", json!({"nodeName": "node-1"}));
    world.jobs().create(&PostParams::default(), &late).await.expect("created");
    let refused = json!({"phase": "Failed", "reason": "NodeShutdown", "qosClass": "BestEffort", "startTime": "TIME",
        "message": "Pod was rejected: Pod was rejected as the node is shutting down.", "observedGeneration": 1});
    assert_eq!(comparable(world.failed("late").await), comparable(refused));
    world.let_go();
    let ran = shutdown(&["--cancel", "node-1"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "node/node-1: takes pods again\n"));
    for action in ACTIONS {
        world.assert_verdict(action).await;
    }
    let ran = shutdown(&["nobody"]);
    let want = "error: there is no node \"nobody\"\nhint: kubectl get nodes lists them\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), want));
}

#[tokio::test]
async fn pods_of_a_node_that_is_cut_off_and_deleted_fail_as_disrupted_ones_and_end_when_it_is_back() {
    let world = World::start().await;
    let two = node_two(&world, &[]);
    world.sleepers().await;
    let mut names = Vec::new();
    for action in ACTIONS {
        let pod = world.asleep(&action.to_lowercase()).await;
        names.push(pod["metadata"]["name"].as_str().expect("a name").to_owned());
    }
    two.signal(Signal::STOP);
    world.kubectl().must(&["delete", "node", "two"]);
    for action in ACTIONS {
        let status = world.failed(&action.to_lowercase()).await;
        let conditions = status["conditions"].as_array().expect("conditions");
        let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("disrupted");
        let told = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": "TIME"});
        let mut target = target.clone();
        target.as_object_mut().expect("a condition").remove("observedGeneration");
        assert_eq!(target, told, "{action}");
        // Nobody could ask what became of its process.
        assert!(!status["containerStatuses"][0]["state"]["running"].is_null(), "{action}: {status}");
    }
    world.kubectl().must(&["uncordon", "node-1"]);
    for action in ACTIONS {
        world.assert_verdict(action).await;
    }
    // The node comes back, and ends what nobody waits for any more.
    let processes = || names.iter().flat_map(|name| processes_with_variable("HOSTNAME", name)).count();
    assert_eq!(processes(), 3, "they were not reached");
    two.signal(Signal::CONT);
    wait_for("the end of all processes of the pods", async || match processes() {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    })
    .await;
}

/// The status of a pod that was deleted before any container of it could start.
fn never_started(image: &str) -> Value {
    let lost = json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": "TIME",
        "message": "The container could not be located when the pod was terminated"});
    on_node(
        2,
        json!({"name": "main", "image": image, "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "lastState": {}, "state": {"terminated": lost}}),
    )
}

#[tokio::test]
async fn a_pod_whose_config_map_is_missing_fails_when_deleted_and_is_no_disruption() {
    let world = World::start().await;
    for action in ACTIONS {
        let more = json!({
            "volumes": [{"name": "v", "configMap": {"name": "missing"}}],
            "containers": [{"name": "main", "image": "host", "command": ["true"],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        });
        let job = world.make(action, more).await;
        let is_stuck = |pod: &Value| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
        };
        world.delete(&world.pod(&job, "can't start", is_stuck).await).await;
    }
    world.assert_failed(&never_started("host")).await;
    world.assert_counted().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_its_image_is_pulled_fails_at_once_and_is_no_disruption() {
    let world = World::start().await;
    // A registry that takes its time.
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port");
    let image = format!("{}/huge:1", registry.local_addr().expect("an address"));
    for action in ACTIONS {
        let container = json!([{"name": "main", "image": image, "command": ["true"]}]);
        let job = world.make(action, json!({"containers": container})).await;
        let is_pulled = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["waiting"].is_null();
        world.delete(&world.pod(&job, "waits for its image", is_pulled).await).await;
    }
    world.assert_failed(&never_started(&image)).await;
    world.assert_counted().await;
    registry.accept().expect("it was asked");
}

#[tokio::test]
async fn a_pod_with_an_image_that_is_not_there_fails_as_a_disrupted_one_when_it_is_preempted() {
    let world = World::start().await;
    let cpus = world.make_classes().await;
    let whole = |class: &str, image: &str| {
        json!({"priorityClassName": class, "containers": [{"name": "main", "image": image, "command": ["true"],
            "resources": {"requests": {"cpu": cpus}}}]})
    };
    let image = "127.0.0.1:1/no-such-image:1";
    for action in ["Count", "FailJob"] {
        let victim = world.make(action, whole("low", image)).await;
        let is_stuck = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["waiting"].is_null();
        world.pod(&victim, "can't start", is_stuck).await;
        let boss = disruptable(&format!("boss-of-{victim}"), "Count", "true", whole("high", "host"));
        world.jobs().create(&PostParams::default(), &boss).await.expect("created");
        let mut want = never_started(image);
        let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
            "lastTransitionTime": "TIME"});
        want["conditions"].as_array_mut().expect("a list").push(target);
        want["qosClass"] = json!("Burstable");
        assert_eq!(comparable(world.failed(&victim).await), comparable(want), "{action}");
        world.assert_verdict(action).await;
    }
}
