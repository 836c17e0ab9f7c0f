//! What a node does to pods: evictions, preemption, rejections, and how it shows itself.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::fixture::{Fixture, condition, ends, never, phase, sh, status};
use common::wait_for_text;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass_api::quantity::Quantity;
use windlass_node::pressure::{Amount, Level, Place, Policy, Signal, Signals, Threshold};
use windlass_node::{Eviction, shutdown};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

const FOREVER: &str = "echo ready; while :; do sleep 0.01; done";

/// Signals that a test sets.
#[derive(Default)]
struct Set {
    available: Mutex<BTreeMap<Signal, i64>>,
    /// By the name of the pod.
    used: Mutex<BTreeMap<String, i64>>,
}

impl Signals for Set {
    fn amount(&self, signal: Signal) -> Option<Amount> {
        let available = *self.available.lock().get(&signal)?;
        Some(Amount { capacity: 8 << 30, available })
    }

    fn used(&self, places: &[Place<'_>], _: Signal) -> Vec<i64> {
        let used = self.used.lock();
        let of_container = |place: &Place<'_>| place.pid.and_then(|_| used.get(place.pod).copied());
        places.iter().map(|place| of_container(place).unwrap_or(0)).collect()
    }
}

async fn with_signals(set: &Arc<Set>) -> Fixture {
    let thresholds = vec![
        Threshold::hard(Signal::Memory, Level::Value(100 << 20)),
        Threshold::hard(Signal::Disk, Level::Part(100_000)),
        Threshold::hard(Signal::Pids, Level::Value(100)),
    ];
    let policy = Policy { thresholds, ..Policy::default() };
    let signals: Arc<dyn Signals> = set.clone();
    Fixture::with(|config| {
        config.eviction = Some(Eviction { signals, policy });
        config.survey_every = Duration::from_millis(20);
    })
    .await
}

fn with_priority(mut spec: Value, class: &str) -> Value {
    spec["priorityClassName"] = json!(class);
    spec
}

fn with_requests(mut spec: Value, requests: Value) -> Value {
    spec["containers"][0]["resources"] = json!({"requests": requests});
    spec
}

fn reason(pod: &Pod) -> (&str, &str) {
    let status = status(pod);
    (status.reason.as_deref().unwrap_or_default(), status.message.as_deref().unwrap_or_default())
}

async fn ready(fixture: &Fixture, name: &str, spec: Value) {
    fixture.create(name, spec).await;
    let pod = fixture.running(name).await;
    wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
}

#[tokio::test]
async fn when_memory_is_short_the_pod_that_uses_most_beyond_its_request_goes_in_one_patch() {
    let set = Arc::new(Set::default());
    let fixture = with_signals(&set).await;
    let forever = || never(json!([sh("c", FOREVER)]));
    ready(&fixture, "modest", with_requests(forever(), json!({"memory": "1Gi"}))).await;
    ready(&fixture, "greedy", with_requests(forever(), json!({"memory": "256Mi"}))).await;
    set.used.lock().extend([("modest".to_owned(), 900 << 20), ("greedy".to_owned(), 512 << 20)]);
    set.available.lock().insert(Signal::Memory, 50 << 20);
    let is_over = |pod: Option<&Pod>| pod.is_some_and(|pod| phase(pod) == "Failed");
    let (phases, greedy) = fixture.watch("greedy", false, is_over).await;
    set.available.lock().insert(Signal::Memory, 1 << 30);
    let greedy = greedy.expect("it stays in the API");
    assert_eq!(phases, ["Running", "Failed"], "the condition comes with the phase");
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
                   Container c was using 512Mi, request is 256Mi, has larger consumption of memory. ";
    assert_eq!(reason(&greedy), ("Evicted", message));
    assert_eq!(condition(&greedy, "DisruptionTarget"), "True TerminationByKubelet");
    assert_eq!(ends(&greedy), ["c Error 143 restarts=0"]);
    let modest = fixture.pods.get("modest").await.expect("there");
    assert_eq!(phase(&modest), "Running");
    let events = fixture.events.lock().clone();
    assert!(events.contains(&"EvictionThresholdMet Attempting to reclaim memory".to_owned()), "{events:?}");
    assert!(events.contains(&format!("Evicted {message}")), "{events:?}");

    // The node shows it, and takes no pod that did not ask for memory.
    let nodes = Api::<Node>::all(fixture.client.clone());
    loop {
        let node = nodes.get("here").await.expect("the node");
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let pressure =
            conditions.iter().find(|condition| condition.type_ == "MemoryPressure").expect("a condition");
        if pressure.status == "True" {
            assert_eq!(pressure.reason.as_deref(), Some("KubeletHasInsufficientMemory"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    fixture.create("late", forever()).await;
    let late = fixture.ended("late").await;
    assert_eq!(reason(&late), ("Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. "));
    assert_eq!(condition(&late, "DisruptionTarget"), "none");
    assert_eq!(status(&late).container_statuses, None);
}

#[tokio::test]
async fn when_disk_or_processes_are_short_priority_decides_and_critical_pods_stay() {
    for (signal, low, name) in [(Signal::Disk, 1 << 20, "ephemeral-storage"), (Signal::Pids, 10, "pids")] {
        let set = Arc::new(Set::default());
        let fixture = with_signals(&set).await;
        let forever = || never(json!([sh("c", FOREVER)]));
        ready(&fixture, "critical", with_priority(forever(), "system-node-critical")).await;
        ready(&fixture, "plain", forever()).await;
        set.used.lock().extend([("critical".to_owned(), 900), ("plain".to_owned(), 1)]);
        set.available.lock().insert(signal, low);
        let plain = fixture.ended("plain").await;
        assert_eq!((phase(&plain), reason(&plain).0), ("Failed", "Evicted"));
        assert!(
            reason(&plain).1.starts_with(&format!("The node was low on resource: {name}. ")),
            "{plain:?}"
        );
        assert_eq!(condition(&plain, "DisruptionTarget"), "True TerminationByKubelet");
        assert_eq!(phase(&fixture.pods.get("critical").await.expect("there")), "Running");
    }
}

#[tokio::test]
async fn a_pod_that_keeps_more_than_it_may_goes_without_being_disrupted() {
    let fixture = Fixture::with(|config| config.survey_every = Duration::from_millis(20)).await;
    let mut container = sh("c", &format!("head -c 100000 /dev/zero > /windlass-test-full/f; {FOREVER}"));
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/windlass-test-full"}]);
    let mut spec = never(json!([container]));
    spec["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "16Ki"}}]);
    fixture.create("directory", spec).await;
    let limited = |name: &str, limit: &str, script: &str| {
        let mut container = sh(name, script);
        container["resources"] = json!({"limits": {"ephemeral-storage": limit}});
        container
    };
    let talks = format!("head -c 100000 /dev/zero; {FOREVER}");
    let talker = json!([limited("c", "16Ki", &talks), limited("d", "1Mi", FOREVER)]);
    fixture.create("talker", never(talker)).await;
    // The limit of one container is that of the pod where the others have none.
    let whole = json!([limited("c", "64Ki", FOREVER), sh("d", &talks)]);
    fixture.create("whole", never(whole)).await;
    // What it says of its end is on the disk of the node, too.
    let mut last_words =
        limited("c", "64Ki", &format!("head -c 100000 /dev/zero > /windlass-last-words; {FOREVER}"));
    last_words["terminationMessagePath"] = json!("/windlass-last-words");
    fixture.create("last-words", never(json!([last_words]))).await;
    let total = "Pod ephemeral local storage usage exceeds the total limit of containers 64Ki. ";
    for (name, message) in [
        ("directory", "Usage of EmptyDir volume \"v\" exceeds the limit \"16Ki\". "),
        ("talker", "Container c exceeded its local ephemeral storage limit \"16Ki\". "),
        ("whole", total),
        ("last-words", total),
    ] {
        let pod = fixture.ended(name).await;
        assert_eq!((phase(&pod), reason(&pod)), ("Failed", ("Evicted", message)));
        assert_eq!(condition(&pod, "DisruptionTarget"), "none");
    }
}

#[tokio::test]
async fn a_critical_pod_takes_the_place_of_another() {
    let fixture = Fixture::with(|config| {
        config.capacity.cpu = Quantity::from_value(1);
    })
    .await;
    let wants = |cpu: &str, script: &str| with_requests(never(json!([sh("c", script)])), json!({"cpu": cpu}));
    ready(&fixture, "victim", wants("600m", FOREVER)).await;
    ready(&fixture, "other", wants("300m", FOREVER)).await;
    fixture.create("plain", wants("500m", "exit 0")).await;
    let plain = fixture.ended("plain").await;
    let message =
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 900, capacity: 1000";
    assert_eq!(reason(&plain), ("OutOfcpu", message));
    assert_eq!((condition(&plain, "DisruptionTarget"), ends(&plain)), ("none".into(), vec![]));
    fixture.create("critical", with_priority(wants("500m", "exit 0"), "system-cluster-critical")).await;
    let victim = fixture.ended("victim").await;
    assert_eq!(reason(&victim), ("Preempting", "Preempted in order to admit critical pod"));
    assert_eq!(condition(&victim, "DisruptionTarget"), "True TerminationByKubelet");
    let critical = fixture.ended("critical").await;
    assert_eq!(phase(&critical), "Succeeded");
    let started = status(&critical).start_time.clone().expect("a start").0;
    let freed = status(&victim).container_statuses.as_ref().expect("statuses")[0].state.clone();
    let freed = freed.and_then(|state| state.terminated?.finished_at).expect("an end").0;
    assert!(started.as_second() >= freed.as_second(), "{started} {freed}");
    assert_eq!(phase(&fixture.pods.get("other").await.expect("there")), "Running");
}

#[tokio::test]
async fn what_a_pod_held_is_free_as_soon_as_its_end_is_known() {
    let fixture = Fixture::with(|config| {
        config.capacity.cpu = Quantity::from_value(1);
    })
    .await;
    for round in 0..50 {
        let name = format!("p{round}");
        let spec = with_requests(never(json!([sh("c", "exit 0")])), json!({"cpu": "1"}));
        fixture.create(&name, spec).await;
        let pod = fixture.ended(&name).await;
        assert_eq!((phase(&pod), reason(&pod).0), ("Succeeded", ""), "{name}");
    }
}

#[tokio::test]
async fn the_node_renews_its_lease() {
    let fixture = Fixture::new().await;
    let leases = Api::<Lease>::namespaced(fixture.client.clone(), "kube-node-lease");
    let lease = loop {
        if let Some(lease) = leases.get_opt("here").await.expect("answered") {
            break lease;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let spec = lease.spec.expect("a spec");
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("here"), Some(40)));
    let owner = &lease.metadata.owner_references.expect("owners")[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", "here"));
}

#[tokio::test]
async fn a_node_that_stops_says_so_refuses_pods_and_lets_deleted_ones_go() {
    let fixture = Fixture::new().await;
    let go = fixture.directory.path().join("go");
    let ends = format!("while [ ! -e {} ]; do sleep 0.01; done; exit 0", go.display());
    let slow = format!("trap '{ends}' TERM; echo ready; while :; do sleep 0.01; done");
    ready(&fixture, "slow", never(json!([sh("c", &slow)]))).await;
    ready(&fixture, "deleted", never(json!([sh("c", FOREVER)]))).await;
    let Fixture { client, pods, agent, events, .. } = fixture;
    let stopping = tokio::spawn(agent.shutdown(Duration::from_secs(60)));
    // Both are told. One takes its time, so the node is still there.
    let wait = async |name: &str, is_it: &dyn Fn(Option<&Pod>) -> bool| loop {
        let pod = pods.get_opt(name).await.expect("answered");
        if is_it(pod.as_ref()) {
            break pod;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    wait("deleted", &|pod| pod.is_some_and(|pod| phase(pod) == "Failed")).await;
    let late = json!({"metadata": {"name": "late"}, "spec": {"nodeName": "here", "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "host", "command": ["true"]}]}});
    let late = serde_json::from_value(late).expect("a pod");
    pods.create(&PostParams::default(), &late).await.expect("created");
    let late = wait("late", &|pod| pod.is_some_and(|pod| phase(pod) == "Failed")).await.expect("there");
    let told = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!(reason(&late), ("NodeShutdown", told));
    pods.delete("deleted", &DeleteParams::default()).await.expect("deleted");
    wait("deleted", &|pod| pod.is_none()).await;
    let told = "Shutdown Shutdown manager detected shutdown event".to_owned();
    assert_eq!(events.lock().iter().filter(|event| **event == told).count(), 1);
    std::fs::write(go, "").expect("written");
    stopping.await.expect("it stops");
    let slow = pods.get("slow").await.expect("there");
    assert_eq!(
        (phase(&slow), condition(&slow, "DisruptionTarget")),
        ("Succeeded", "True TerminationByKubelet".into())
    );
    let node = Api::<Node>::all(client).get("here").await.expect("the node");
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").expect("a condition");
    assert_eq!((ready.status.as_str(), ready.message.as_deref()), ("False", Some("node is shutting down")));
}

#[tokio::test]
async fn a_node_that_is_asked_to_ends_its_pods_though_nobody_closes_it_to_others_and_takes_pods_when_asked_again()
 {
    let fixture = Fixture::new().await;
    ready(&fixture, "first", never(json!([sh("c", FOREVER)]))).await;
    let nodes = Api::<Node>::all(fixture.client.clone());
    let ask = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {shutdown::ANNOTATION: value}}}));
        nodes.patch("here", &PatchParams::default(), &patch).await.expect("patched");
    };
    let open = Patch::Merge(json!({"spec": {"taints": []}}));
    nodes.patch("here", &PatchParams::default(), &open).await.expect("patched");
    ask(json!("true")).await;
    let first = fixture.ended("first").await;
    assert_eq!((phase(&first), reason(&first).0), ("Failed", "Terminated"));
    fixture.create("second", never(json!([sh("c", "exit 0")]))).await;
    assert_eq!(reason(&fixture.ended("second").await).0, "NodeShutdown");
    ask(Value::Null).await;
    // It may hear of the next pod first, and refuse it.
    let mut names = (3..).map(|number| format!("pod-{number}"));
    let taken = loop {
        let name = names.next().expect("there is no last number");
        fixture.create(&name, never(json!([sh("c", "exit 0")]))).await;
        let pod = fixture.ended(&name).await;
        if reason(&pod).0 != "NodeShutdown" {
            break pod;
        }
    };
    assert_eq!(phase(&taken), "Succeeded");
}
