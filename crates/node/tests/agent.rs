//! The node agent end to end: pods through the API server, real processes, and what the API shows of them.

mod common;

use std::time::Duration;

use common::fixture::{Fixture, condition, ends, never, phase, sh, status};
use common::{processes_with, unique_sleep, wait_for_text};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass_node::{Agent, Config};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

#[tokio::test]
async fn the_node_is_registered_with_what_it_offers() {
    let fixture = Fixture::new().await;
    let node = Api::<Node>::all(fixture.client.clone()).get("here").await.expect("the node");
    let status = node.status.expect("a status");
    let allocatable = status.allocatable.expect("allocatable");
    assert_eq!(allocatable["pods"].0, "1000");
    let keys: Vec<&String> = allocatable.keys().collect();
    assert_eq!(keys, ["cpu", "ephemeral-storage", "memory", "pods"]);
    let disk = rustix::fs::statvfs(fixture.directory.path()).expect("a disk");
    assert_eq!(allocatable["ephemeral-storage"].0, (disk.f_blocks * disk.f_frsize).to_string());
    let ready = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.expect("a condition").status, "True");
    assert_eq!(node.metadata.labels.expect("labels")["kubernetes.io/hostname"], "here");
}

#[tokio::test]
async fn a_pod_ends_with_the_exit_codes_of_its_containers() {
    let fixture = Fixture::new().await;
    fixture.create("good", never(json!([sh("c", "echo out; exit 0")]))).await;
    fixture.create("bad", never(json!([sh("c", "exit 42"), sh("d", "exit 0")]))).await;
    fixture.create("killed", never(json!([sh("c", "kill -9 $$$$")]))).await;

    let good = fixture.ended("good").await;
    assert_eq!((phase(&good), ends(&good)), ("Succeeded", vec!["c Completed 0 restarts=0".into()]));
    let conditions =
        ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(|type_| condition(&good, type_));
    assert_eq!(conditions, ["True PodCompleted", "False PodCompleted", "False PodCompleted", "True "]);
    let end = status(&good).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    let end = end.terminated.expect("ended");
    assert!(end.started_at <= end.finished_at && end.started_at.is_some(), "{end:?}");
    assert_eq!(std::fs::read_to_string(fixture.log(&good, "c", 0)).expect("a log"), "out\n");

    let bad = fixture.ended("bad").await;
    let want = vec!["c Error 42 restarts=0".to_owned(), "d Completed 0 restarts=0".into()];
    assert_eq!((phase(&bad), ends(&bad)), ("Failed", want));
    let killed = fixture.ended("killed").await;
    assert_eq!((phase(&killed), ends(&killed)), ("Failed", vec!["c Error 137 restarts=0".into()]));
}

#[tokio::test]
async fn a_running_pod_is_ready_and_has_addresses() {
    let fixture = Fixture::new().await;
    fixture.create("p", never(json!([sh("c", "sleep 1000")]))).await;
    let pod = fixture.running("p").await;
    assert_eq!(ends(&pod), ["c running restarts=0"]);
    assert_eq!(condition(&pod, "Ready"), "True ");
    let status = status(&pod);
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("127.0.0.1"), Some("127.0.0.1")));
    assert!(status.start_time.is_some());
}

#[tokio::test]
async fn a_deleted_pod_reaches_a_terminal_phase_before_it_is_gone() {
    let fixture = Fixture::new().await;
    let ready = "echo ready; while :; do sleep 0.01; done";
    for (name, script, want) in [
        ("dies", ready.to_owned(), "Failed"),
        ("fails", format!("trap 'exit 3' TERM; {ready}"), "Failed"),
        ("succeeds", format!("trap 'exit 0' TERM; {ready}"), "Succeeded"),
    ] {
        fixture.create(name, never(json!([sh("c", &script)]))).await;
        let pod = fixture.running(name).await;
        wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
        let (phases, _) = fixture.watch(name, true, |pod| pod.is_none()).await;
        assert_eq!(phases, ["Running", want, "gone"], "{name}");
    }
}

#[tokio::test]
async fn grace_is_kept_then_the_pod_is_killed() {
    let fixture = Fixture::new().await;
    let sleep = unique_sleep();
    let script = format!("trap 'echo asked' TERM; sleep {sleep} & echo ready; while :; do sleep 0.01; done");
    let mut spec = never(json!([sh("c", &script)]));
    spec["terminationGracePeriodSeconds"] = json!(1);
    fixture.create("p", spec).await;
    let pod = fixture.running("p").await;
    // Its log goes with it.
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    fixture.pods.patch("p", &PatchParams::default(), &hold).await.expect("patched");
    wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    let start = std::time::Instant::now();
    let (_, last) = fixture.watch("p", true, |pod| pod.is_none_or(|pod| phase(pod) == "Failed")).await;
    assert!(
        start.elapsed() >= Duration::from_millis(1900),
        "two seconds are the least: {:?}",
        start.elapsed()
    );
    assert_eq!(ends(&last.expect("still there")), ["c Error 137 restarts=0"]);
    let log = std::fs::read_to_string(fixture.log(&pod, "c", 0)).expect("a log");
    assert_eq!(log.matches("asked").count(), 1, "{log}");
    assert_eq!(processes_with(&sleep), [0; 0]);
}

#[tokio::test]
async fn a_pod_with_a_finalizer_ends_and_stays_until_it_is_released() {
    let fixture = Fixture::new().await;
    fixture.create("p", never(json!([sh("c", "sleep 1000")]))).await;
    fixture.running("p").await;
    let patch = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    fixture.pods.patch("p", &params, &patch(json!(["example.com/count"]))).await.expect("patched");
    fixture.pods.delete("p", &DeleteParams::default()).await.expect("deleted");
    let ended = |pod: &Pod| phase(pod) == "Failed" && pod.metadata.deletion_grace_period_seconds == Some(0);
    let pod = fixture.until("p", ended).await;
    assert_eq!(ends(&pod), ["c Error 143 restarts=0"]);
    fixture.pods.patch("p", &params, &patch(json!(null))).await.expect("patched");
    assert_eq!(fixture.pods.get_opt("p").await.expect("answered"), None);
}

#[tokio::test]
async fn conditions_of_others_survive() {
    let fixture = Fixture::new().await;
    fixture.create("p", never(json!([sh("c", "sleep 1000")]))).await;
    fixture.running("p").await;
    let disruption = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [disruption]}}));
    fixture.pods.patch_status("p", &PatchParams::default(), &patch).await.expect("patched");
    let (_, last) = fixture.watch("p", true, |pod| pod.is_none_or(|pod| phase(pod) == "Failed")).await;
    assert_eq!(condition(&last.expect("still there"), "DisruptionTarget"), "True EvictionByEvictionAPI");
}

#[tokio::test]
async fn what_others_say_of_a_pods_readiness_is_put_right_and_their_disruption_keeps_its_time() {
    let fixture = Fixture::new().await;
    fixture.create("p", never(json!([sh("c", "sleep 1000")]))).await;
    fixture.until("p", |pod| condition(pod, "Ready") == "True ").await;
    let long_ago = "2020-01-02T03:04:05Z";
    let patch = Patch::Strategic(json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "NodeNotReady", "lastTransitionTime": long_ago},
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "lastTransitionTime": long_ago},
    ]}}));
    let pod = fixture.pods.patch_status("p", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(condition(&pod, "Ready"), "False NodeNotReady");
    let pod = fixture.until("p", |pod| condition(pod, "Ready") == "True ").await;
    assert_eq!(condition(&pod, "DisruptionTarget"), "True DeletionByTaintManager");
    let since = |pod: &Pod, type_: &str| {
        let found =
            status(pod).conditions.iter().flatten().find(|condition| condition.type_ == type_).cloned();
        json!(found.expect("a condition").last_transition_time)
    };
    assert_ne!(since(&pod, "Ready"), json!(long_ago), "it was not ready in between");
    let Fixture { pods, agent, directory: _directory, .. } = fixture;
    agent.shutdown(Duration::from_secs(5)).await;
    let pod = pods.get("p").await.expect("still there");
    assert_eq!(condition(&pod, "DisruptionTarget"), "True TerminationByKubelet");
    assert_eq!(since(&pod, "DisruptionTarget"), json!(long_ago));
}

#[tokio::test]
async fn a_pod_that_cannot_start_is_pending_and_fails_when_deleted() {
    let fixture = Fixture::new().await;
    fixture.create("p", never(json!([{"name": "c", "image": "busybox", "command": ["true"]}]))).await;
    let pod = fixture.until("p", |pod| status(pod).container_statuses.is_some()).await;
    assert_eq!((phase(&pod), ends(&pod)), ("Pending", vec!["c ImagePullBackOff restarts=0".into()]));
    let (phases, _) = fixture.watch("p", true, |pod| pod.is_none()).await;
    assert_eq!(phases, ["Pending", "Failed", "gone"]);
}

#[tokio::test]
async fn a_deleted_pod_goes_with_the_phase_it_had_when_no_feature_needs_another() {
    let fixture = Fixture::with(|config| {
        (config.gates.pod_disruption_conditions, config.gates.job_pod_replacement_policy) = (false, false);
    })
    .await;
    let mut again = never(json!([sh("c", "echo ready; exec sleep 1000")]));
    again["restartPolicy"] = json!("OnFailure");
    fixture.create("again", again).await;
    wait_for_text(&fixture.log(&fixture.running("again").await, "c", 0), "ready").await;
    fixture.create("once", never(json!([sh("c", "echo ready; exec sleep 1000")]))).await;
    wait_for_text(&fixture.log(&fixture.running("once").await, "c", 0), "ready").await;
    fixture.create("stuck", never(json!([{"name": "c", "image": "busybox", "command": ["true"]}]))).await;
    fixture.until("stuck", |pod| status(pod).container_statuses.is_some()).await;
    for (name, want) in [
        ("again", vec!["Running", "gone"]),
        ("once", vec!["Running", "Failed", "gone"]),
        ("stuck", vec!["Pending", "gone"]),
    ] {
        let (phases, _) = fixture.watch(name, true, |pod| pod.is_none()).await;
        assert_eq!(phases, want, "{name}");
    }
}

#[tokio::test]
async fn any_image_runs_on_the_host_when_asked_to_and_a_bad_program_is_a_start_error() {
    let fixture = Fixture::with(|config| config.runtime_override_host = true).await;
    fixture.create("p", never(json!([{"name": "c", "image": "busybox", "command": ["true"]}]))).await;
    assert_eq!(phase(&fixture.ended("p").await), "Succeeded");
    fixture
        .create("q", never(json!([{"name": "c", "image": "busybox", "command": ["no-such-program"]}])))
        .await;
    let pod = fixture.ended("q").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", vec!["c StartError 128 restarts=0".into()]));
}

#[tokio::test]
async fn init_containers_run_in_order_before_the_others() {
    let fixture = Fixture::new().await;
    let order = fixture.directory.path().join("order");
    let write = |name: &str| sh(name, &format!("echo {name} >> {}", order.display()));
    let mut spec = never(json!([write("c"), sh("d", "exit 0")]));
    spec["initContainers"] = json!([write("a"), write("b")]);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    let names = ["a", "b", "c", "d"].map(|name| format!("{name} Completed 0 restarts=0"));
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", names.to_vec()));
    assert_eq!(std::fs::read_to_string(&order).expect("written"), "a\nb\nc\n");

    let mut spec = never(json!([write("never")]));
    spec["initContainers"] = json!([sh("a", "exit 5"), write("never-too")]);
    fixture.create("q", spec).await;
    let pod = fixture.ended("q").await;
    let want =
        ["a Error 5 restarts=0", "never-too PodInitializing restarts=0", "never PodInitializing restarts=0"];
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", want.map(str::to_owned).to_vec()));
    assert_eq!(std::fs::read_to_string(&order).expect("written"), "a\nb\nc\n");
}

#[tokio::test]
async fn sidecars_run_beside_and_stop_when_the_work_is_done() {
    let fixture = Fixture::new().await;
    let mut sidecar = sh("side", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.01; done");
    sidecar["restartPolicy"] = json!("Always");
    // The main container ends when it has seen the sidecar.
    let log = "$(ls -d \"$LOGS\"/*)/side/0.log";
    let mut main = sh("c", &format!("until grep -q up {log}; do sleep 0.01; done"));
    main["env"] = json!([{"name": "LOGS", "value": fixture.agent.logs().to_str()}]);
    let mut spec = never(json!([main]));
    spec["initContainers"] = json!([sidecar]);
    let created = fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    let want = ["side Error 9 restarts=0", "c Completed 0 restarts=0"].map(str::to_owned).to_vec();
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", want));
    let log = std::fs::read_to_string(fixture.log(&created, "side", 0)).expect("a log");
    assert!(log.starts_with("up\n") && log.ends_with("bye\n"), "{log}");
}

#[tokio::test]
async fn a_container_that_fails_is_started_again_until_it_succeeds() {
    let fixture = Fixture::new().await;
    let runs = fixture.directory.path().join("runs");
    let script = format!("echo run >> {0}; [ $(wc -l < {0}) -ge 3 ]", runs.display());
    fixture.create("p", json!({"restartPolicy": "OnFailure", "containers": [sh("c", &script)]})).await;
    let pod = fixture.ended("p").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", vec!["c Completed 0 restarts=2".into()]));
    let last = status(&pod).container_statuses.as_ref().expect("statuses")[0].last_state.clone();
    assert_eq!(last.and_then(|state| state.terminated).map(|end| end.exit_code), Some(1));
    for run in 0..3 {
        assert!(fixture.log(&pod, "c", run).exists(), "each run has a log");
    }
}

#[tokio::test]
async fn a_deadline_ends_the_pod() {
    let fixture = Fixture::new().await;
    let mut spec = never(json!([sh("c", "sleep 1000")]));
    spec["activeDeadlineSeconds"] = json!(1);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    let status = status(&pod);
    assert_eq!((phase(&pod), status.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(ends(&pod), ["c Error 143 restarts=0"]);
    assert_eq!(condition(&pod, "DisruptionTarget"), "none");
}

#[tokio::test]
async fn the_environment_comes_from_all_its_sources() {
    let fixture = Fixture::new().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "from-map"}});
    let map: ConfigMap = serde_json::from_value(map).expect("a map");
    let maps = Api::<ConfigMap>::default_namespaced(fixture.client.clone());
    maps.create(&PostParams::default(), &map).await.expect("created");
    let script =
        "echo $JOB_COMPLETION_INDEX $NAME $K $ALL_k $(ARG) $HOSTNAME; [ -n \"$HOME\" ] && [ -z \"$CARGO\" ]";
    let mut container = sh("c", script);
    container["envFrom"] = json!([{"configMapRef": {"name": "m"}, "prefix": "ALL_"}]);
    let index = json!({"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"});
    container["env"] = json!([
        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": index}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "ARG", "value": "$(NAME)!"},
    ]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"batch.kubernetes.io/job-completion-index": "7"}},
        "spec": {"nodeName": "here", "restartPolicy": "Never", "containers": [container]},
    });
    let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
    pod.spec.as_mut().expect("a spec").containers[0].image = Some("host".into());
    fixture.pods.create(&PostParams::default(), &pod).await.expect("created");
    let pod = fixture.ended("p").await;
    let log = std::fs::read_to_string(fixture.log(&pod, "c", 0)).expect("a log");
    assert_eq!((log.as_str(), phase(&pod)), ("7 p from-map from-map p! p\n", "Succeeded"));
}

#[tokio::test]
async fn a_pod_has_variables_about_services_unless_it_wants_none_and_its_own_come_first() {
    let mut fixture = Fixture::new().await;
    let service = json!({
        "metadata": {"name": "my-queue"},
        "spec": {"selector": {"app": "queue"}, "ports": [{"port": 6379}]},
    });
    let service: Service = serde_json::from_value(service).expect("a Service");
    let services = Api::<Service>::default_namespaced(fixture.client.clone());
    services.create(&PostParams::default(), &service).await.expect("created");
    // An agent that starts now finds it in its first list.
    let mut config = Config::new(fixture.client.clone(), "here", fixture.directory.path());
    config.keeper = common::entry("keeper_process", &[]);
    drop(fixture.agent);
    fixture.agent = Agent::start(config).await.expect("the next agent starts");
    let mut container = sh("c", "echo ${MY_QUEUE_SERVICE_HOST-none} ${MY_QUEUE_SERVICE_PORT-none} $URL");
    container["env"] = json!([
        {"name": "MY_QUEUE_SERVICE_HOST", "value": "own"},
        {"name": "URL", "value": "$(MY_QUEUE_PORT)"},
    ]);
    for (name, is_linked, want) in
        [("linked", true, "own 6379 tcp://127.0.0.1:6379\n"), ("alone", false, "own none $(MY_QUEUE_PORT)\n")]
    {
        let mut spec = never(json!([container]));
        spec["enableServiceLinks"] = json!(is_linked);
        fixture.create(name, spec).await;
        let pod = fixture.ended(name).await;
        assert_eq!(std::fs::read_to_string(fixture.log(&pod, "c", 0)).expect("a log"), want);
    }
}

#[tokio::test]
async fn the_end_of_the_log_is_the_message_of_a_failure_when_asked_for() {
    let fixture = Fixture::new().await;
    let mut container = sh("c", "echo first; echo last words; exit 1");
    container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    let state = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone();
    let message = state.and_then(|state| state.terminated).and_then(|end| end.message);
    assert_eq!(message.as_deref(), Some("first\nlast words\n"));
}

#[tokio::test]
async fn a_shutdown_ends_pods_and_says_so() {
    let fixture = Fixture::new().await;
    let sleep = unique_sleep();
    fixture.create("dies", never(json!([sh("c", &format!("sleep {sleep}"))]))).await;
    let polite = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    fixture.create("polite", never(json!([sh("c", polite)]))).await;
    fixture.running("dies").await;
    let pod = fixture.running("polite").await;
    wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    let Fixture { pods, agent, .. } = fixture;
    agent.shutdown(Duration::from_secs(5)).await;
    assert_eq!(processes_with(&sleep), [0; 0]);
    let dies = pods.get("dies").await.expect("still there");
    assert_eq!((phase(&dies), status(&dies).reason.as_deref()), ("Failed", Some("Terminated")));
    assert_eq!(condition(&dies, "DisruptionTarget"), "True TerminationByKubelet");
    let polite = pods.get("polite").await.expect("still there");
    assert_eq!((phase(&polite), status(&polite).reason.as_deref()), ("Succeeded", None));
    assert_eq!(condition(&polite, "DisruptionTarget"), "True TerminationByKubelet");
}

#[tokio::test]
async fn what_ran_under_an_agent_that_died_has_an_unknown_end_and_runs_again_only_if_its_policy_says_so() {
    let mut fixture = Fixture::new().await;
    let sleep = unique_sleep();
    let script = format!("[ -e $0.again ] || {{ : > $0.again; sleep {sleep}; }}");
    let container = |name: &str| {
        let place = fixture.directory.path().join(name);
        json!([{"name": "c", "command": ["sh", "-c", script, place.to_str()]}])
    };
    fixture.create("never", never(container("never"))).await;
    fixture.create("retry", json!({"restartPolicy": "OnFailure", "containers": container("retry")})).await;
    fixture.running("never").await;
    fixture.running("retry").await;
    let mut config = Config::new(fixture.client.clone(), "here", fixture.directory.path());
    config.keeper = common::entry("keeper_process", &[]);
    drop(fixture.agent);
    common::wait_for("the end of all", || processes_with(&sleep).is_empty().then_some(())).await;
    fixture.agent = Agent::start(config).await.expect("the next agent starts");
    let pod = fixture.ended("never").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", vec!["c ContainerStatusUnknown 137 restarts=0".into()]));
    let pod = fixture.ended("retry").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", vec!["c Completed 0 restarts=1".into()]));
}

#[tokio::test]
async fn a_pod_that_died_with_its_agent_begins_anew_with_its_init_containers_and_sidecars() {
    let mut fixture = Fixture::new().await;
    let sleep = unique_sleep();
    let order = fixture.directory.path().join("order").display().to_string();
    let mut sidecar = sh("side", "trap 'exit 0' TERM; while :; do sleep 0.01; done");
    sidecar["restartPolicy"] = json!("Always");
    // Up some time after it runs: who does not wait for it is there first.
    let up = format!("sleep 0.3; echo side >> {order}");
    sidecar["startupProbe"] =
        json!({"exec": {"command": ["sh", "-c", up]}, "periodSeconds": 1, "timeoutSeconds": 60});
    let again = fixture.directory.path().join("again").display().to_string();
    let main = format!("echo c >> {order}; [ -e {again} ] || {{ : > {again}; exec sleep {sleep}; }}");
    let mut spec = json!({"restartPolicy": "OnFailure", "containers": [sh("c", &main)]});
    spec["initContainers"] = json!([sh("i", &format!("echo i >> {order}")), sidecar]);
    fixture.create("p", spec).await;
    fixture.running("p").await;
    common::wait_for("the main container", || std::path::Path::new(&again).exists().then_some(())).await;
    let mut config = Config::new(fixture.client.clone(), "here", fixture.directory.path());
    config.keeper = common::entry("keeper_process", &[]);
    drop(fixture.agent);
    common::wait_for("the end of all", || processes_with(&sleep).is_empty().then_some(())).await;
    fixture.agent = Agent::start(config).await.expect("the next agent starts");
    let pod = fixture.ended("p").await;
    let want = ["i Completed 0 restarts=1", "side Completed 0 restarts=1", "c Completed 0 restarts=1"];
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", want.map(str::to_owned).to_vec()));
    assert_eq!(std::fs::read_to_string(order).expect("written"), "i\nside\nc\ni\nside\nc\n");
}

#[tokio::test]
async fn hundreds_of_pods_all_end() {
    let fixture = Fixture::new().await;
    let pods = (0..200).map(|i| {
        let fixture = &fixture;
        async move {
            let name = format!("p{i}");
            fixture.create(&name, never(json!([sh("c", &format!("exit {}", i % 2))]))).await;
            phase(&fixture.ended(&name).await).to_owned()
        }
    });
    let phases = futures::future::join_all(pods).await;
    let want: Vec<&str> = (0..200).map(|i| if i % 2 == 0 { "Succeeded" } else { "Failed" }).collect();
    assert_eq!(phases, want);
}
