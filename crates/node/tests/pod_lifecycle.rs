//! The life of pods: probes, hooks, restarts, the order of containers, and what they leave behind.

mod common;

use std::time::{Duration, Instant};

use common::fixture::{Fixture, condition, ends, never, phase, sh, status};
use common::{processes_with, unique_sleep, wait_for, wait_for_text};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use windlass_node::{Agent, Config};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

const FOREVER: &str = "while :; do sleep 0.01; done";

fn main_status(pod: &Pod) -> ContainerStatus {
    status(pod).container_statuses.as_ref().expect("statuses")[0].clone()
}

fn message(pod: &Pod) -> Option<String> {
    main_status(pod).state.and_then(|state| state.terminated).and_then(|end| end.message)
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

fn probe(script: &str, threshold: i32) -> Value {
    let mut probe = exec(script);
    (probe["periodSeconds"], probe["failureThreshold"]) = (json!(1), json!(threshold));
    // On a busy machine even `true` may take a second.
    probe["timeoutSeconds"] = json!(60);
    probe
}

#[tokio::test]
async fn a_container_is_started_and_ready_when_its_probes_say_so() {
    let fixture = Fixture::new().await;
    let at = |name: &str| fixture.directory.path().join(name).display().to_string();
    let mut container = sh("c", FOREVER);
    container["startupProbe"] = probe(&format!("[ -e {} ]", at("up")), 100);
    container["readinessProbe"] = probe(&format!("[ -e {} ]", at("ready")), 1);
    fixture.create("p", never(json!([container]))).await;
    let flags = |pod: &Pod| (main_status(pod).started, main_status(pod).ready);
    let pod = fixture.running("p").await;
    assert_eq!(flags(&pod), (Some(false), false));
    std::fs::write(at("up"), "").expect("written");
    let pod = fixture.until("p", |pod| main_status(pod).started == Some(true)).await;
    assert_eq!(
        (flags(&pod), condition(&pod, "Ready")),
        ((Some(true), false), "False ContainersNotReady".into())
    );
    std::fs::write(at("ready"), "").expect("written");
    let pod = fixture.until("p", |pod| main_status(pod).ready).await;
    assert_eq!(condition(&pod, "Ready"), "True ");
    std::fs::remove_file(at("ready")).expect("removed");
    fixture.until("p", |pod| !main_status(pod).ready).await;
    assert!(
        fixture.events.lock().iter().any(|event| event.starts_with("Unhealthy Readiness probe failed: "))
    );
}

#[tokio::test]
async fn a_container_that_is_not_alive_is_stopped_and_started_again_by_its_policy() {
    let fixture = Fixture::new().await;
    let runs = fixture.directory.path().join("runs");
    let script = format!("echo run >> {0}; [ $(wc -l < {0}) -ge 2 ] && exit 0; {FOREVER}", runs.display());
    let mut container = sh("c", &script);
    // The first run is not well as soon as it has told that it runs, and no sooner.
    let check = format!("echo not well; [ \"$(cat {} 2> /dev/null | wc -l)\" -ne 1 ]", runs.display());
    container["livenessProbe"] = probe(&check, 1);
    fixture.create("again", json!({"restartPolicy": "OnFailure", "containers": [container.clone()]})).await;
    let pod = fixture.ended("again").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", vec!["c Completed 0 restarts=1".into()]));
    container["command"] = json!(["sh", "-c", FOREVER]);
    container["livenessProbe"] = probe("echo not well; false", 1);
    fixture.create("once", never(json!([container]))).await;
    let pod = fixture.ended("once").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", vec!["c Error 143 restarts=0".into()]));
    assert_eq!(condition(&pod, "DisruptionTarget"), "none");
    let events = fixture.events.lock().clone();
    for want in [
        "Unhealthy Liveness probe failed: not well\n",
        "Killing Container c failed liveness probe, will be restarted",
        "Killing Container c failed liveness probe",
    ] {
        assert!(events.iter().any(|event| event == want), "{want:?} in {events:?}");
    }
}

#[tokio::test]
async fn tcp_and_http_probes_talk_to_the_ports_of_the_pod() {
    let fixture = Fixture::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").await;
            });
        }
    });
    for (name, handler) in
        [("tcp", json!({"tcpSocket": {"port": port}})), ("http", json!({"httpGet": {"port": port}}))]
    {
        let mut container = sh("c", FOREVER);
        container["readinessProbe"] = handler;
        fixture.create(name, never(json!([container]))).await;
        fixture.until(name, |pod| condition(pod, "Ready") == "True ").await;
    }
}

#[tokio::test]
async fn a_sidecar_with_a_startup_probe_holds_back_those_behind_it() {
    let fixture = Fixture::new().await;
    let up = fixture.directory.path().join("up");
    let mut sidecar = sh("side", &format!("trap 'exit 0' TERM; {FOREVER}"));
    sidecar["restartPolicy"] = json!("Always");
    sidecar["startupProbe"] = probe(&format!("[ -e {} ]", up.display()), 100);
    let mut spec = never(json!([sh("c", "exit 0")]));
    spec["initContainers"] = json!([sidecar]);
    fixture.create("p", spec).await;
    let pod = fixture.until("p", |pod| ends(pod).first().is_some_and(|end| end.contains("running"))).await;
    assert_eq!((phase(&pod), ends(&pod)[1].as_str()), ("Pending", "c PodInitializing restarts=0"));
    assert_eq!(condition(&pod, "Initialized"), "False ContainersNotInitialized");
    std::fs::write(up, "").expect("written");
    assert_eq!(phase(&fixture.ended("p").await), "Succeeded");
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_end() {
    let fixture = Fixture::new().await;
    let mut container = sh("c", &format!("trap 'echo term; exit 0' TERM; echo main; {FOREVER}"));
    container["lifecycle"] = json!({
        "postStart": exec("echo hook > /proc/$PPID/fd/1 2>/dev/null; echo $HOSTNAME > $OUT.post"),
        "preStop": exec("sleep 0.2; echo pre > $OUT.pre"),
    });
    let out = fixture.directory.path().join("out").display().to_string();
    container["env"] = json!([{"name": "OUT", "value": out}]);
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.running("p").await;
    assert_eq!(std::fs::read_to_string(format!("{out}.post")).expect("written before"), "p\n");
    wait_for_text(&fixture.log(&pod, "c", 0), "main").await;
    let (_, last) = fixture.watch("p", true, |pod| pod.is_none_or(|pod| phase(pod) != "Running")).await;
    assert_eq!(ends(&last.expect("still there")), ["c Completed 0 restarts=0"]);
    assert_eq!(std::fs::read_to_string(format!("{out}.pre")).expect("written"), "pre\n");
}

#[tokio::test]
async fn a_container_whose_start_hook_fails_is_stopped() {
    let fixture = Fixture::new().await;
    let mut container = sh("c", FOREVER);
    container["lifecycle"] = json!({"postStart": exec("exit 1")});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", vec!["c Error 143 restarts=0".into()]));
    let events = fixture.events.lock().clone();
    let want = [
        "Created Container created",
        "Started Container started",
        "FailedPostStartHook PostStartHook failed",
        "Killing FailedPostStartHook",
    ];
    assert_eq!(events, want);
}

#[tokio::test]
async fn a_container_that_is_not_alive_is_said_to_be_killed_once_also_if_it_has_a_stop_hook() {
    let fixture = Fixture::new().await;
    let mut container = sh("c", FOREVER);
    container["livenessProbe"] = probe("false", 1);
    container["lifecycle"] = json!({"preStop": exec("true")});
    fixture.create("p", never(json!([container]))).await;
    assert_eq!(phase(&fixture.ended("p").await), "Failed");
    let events = fixture.events.lock().clone();
    let told: Vec<&String> = events.iter().filter(|event| event.starts_with("Killing ")).collect();
    assert_eq!(told, ["Killing Container c failed liveness probe"]);
}

#[tokio::test]
async fn a_rule_restarts_all_containers_in_place() {
    let fixture = Fixture::new().await;
    let runs = fixture.directory.path().join("runs").display().to_string();
    let mut trigger = sh("c", &format!("echo c >> {runs}; [ $(grep -c c {runs}) -ge 2 ] || exit 7"));
    trigger["restartPolicy"] = json!("Never");
    trigger["restartPolicyRules"] =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}]);
    let mut spec = never(json!([trigger, sh("d", &format!("[ $(grep -c c {runs}) -ge 2 ] || sleep 1000"))]));
    spec["initContainers"] = json!([sh("i", &format!("echo i >> {runs}"))]);
    fixture.create("p", spec).await;
    let (phases, pod) =
        fixture.watch("p", false, |pod| pod.is_some_and(|pod| phase(pod) == "Succeeded")).await;
    assert!(!phases.contains(&"Failed".to_owned()), "{phases:?}");
    let pod = pod.expect("it is there");
    let want = ["i Completed 0 restarts=1", "c Completed 0 restarts=1", "d Completed 0 restarts=1"];
    assert_eq!(ends(&pod), want);
    assert_eq!(std::fs::read_to_string(runs).expect("written"), "i\nc\ni\nc\n");
    let last = main_status(&pod).last_state.and_then(|state| state.terminated).expect("it ran before");
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("RestartingAllContainers")));
    assert_eq!(condition(&pod, "AllContainersRestarting"), "False ");
}

#[tokio::test]
async fn a_rule_that_restarts_all_containers_again_and_again_waits_longer_each_time() {
    let base = Duration::from_millis(500);
    let limits = windlass_node::backoff::Limits { base, max: Duration::from_secs(10) };
    let fixture = Fixture::with(|config| config.crash_backoff = limits).await;
    let runs = fixture.directory.path().join("runs").display().to_string();
    let mut trigger = sh("c", &format!("echo c >> {runs}; [ $(grep -c c {runs}) -ge 4 ] || exit 7"));
    trigger["restartPolicy"] = json!("Never");
    trigger["restartPolicyRules"] =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}]);
    let start = Instant::now();
    fixture.create("p", never(json!([trigger]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Succeeded", vec!["c Completed 0 restarts=3".into()]));
    assert!(start.elapsed() >= base * 3, "each but the first: {:?}", start.elapsed());
    let events = fixture.events.lock().clone();
    let told = "BackOff Back-off restarting failed container c in pod p_default(";
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:?}");
}

#[tokio::test]
async fn the_termination_message_is_what_the_container_wrote_or_the_end_of_its_log() {
    let fixture = Fixture::new().await;
    let custom = |script: &str, path: Option<&str>| {
        let mut container = sh("c", script);
        container["terminationMessagePath"] = json!(path);
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        never(json!([container]))
    };
    for (name, script, path, want) in [
        ("default", "echo log; echo why > /dev/termination-log; exit 1", None, "why\n"),
        (
            "own",
            "echo why > /tmp/windlass-no-such-dir/why; exit 1",
            Some("/tmp/windlass-no-such-dir/why"),
            "why\n",
        ),
        ("log", "echo log; exit 1", None, "log\n"),
        (
            "long",
            "head -c 5000 /dev/zero | tr '\\0' x > /dev/termination-log; exit 1",
            None,
            &"x".repeat(4096),
        ),
    ] {
        fixture.create(name, custom(script, path)).await;
        let pod = fixture.ended(name).await;
        assert_eq!(
            (ends(&pod), message(&pod).as_deref()),
            (vec!["c Error 1 restarts=0".to_owned()], Some(want)),
            "{name}"
        );
    }
    assert!(!std::path::Path::new("/dev/termination-log").exists(), "nothing is left on the machine");
    assert!(!std::path::Path::new("/tmp/windlass-no-such-dir").exists(), "nothing is left on the machine");
}

#[tokio::test]
async fn files_of_a_pod_go_when_it_ends_and_its_logs_when_it_is_gone() {
    let mut fixture = Fixture::new().await;
    let mut spec = never(json!([sh("c", "echo x; echo y > /dev/termination-log")]));
    spec["volumes"] = json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]);
    for name in ["gone", "missed", "stays"] {
        fixture.create(name, spec.clone()).await;
        fixture.ended(name).await;
    }
    let pod = fixture.pods.get("gone").await.expect("there");
    let uid = pod.metadata.uid.clone().expect("a UID");
    let log = fixture.log(&pod, "c", 0);
    let own = fixture.directory.path().join("pods").join(uid);
    wait_for("the end of its files", || (!own.exists()).then_some(())).await;
    assert!(log.exists());
    fixture.pods.delete("gone", &DeleteParams::default()).await.expect("deleted");
    let is_gone = || (!log.parent().expect("a directory").exists()).then_some(());
    wait_for("the end of its logs", is_gone).await;

    // What was deleted while no agent was there goes when the next one starts.
    let missed = fixture.pods.get("missed").await.expect("there");
    let missed_log = fixture.log(&missed, "c", 0);
    let mut config = Config::new(fixture.client.clone(), "here", fixture.directory.path());
    config.keeper = common::entry("keeper_process", &[]);
    drop(fixture.agent);
    fixture.pods.delete("missed", &DeleteParams::default()).await.expect("deleted");
    fixture.agent = Agent::start(config).await.expect("the next agent starts");
    wait_for("the end of its logs", || (!missed_log.exists()).then_some(())).await;
    let stays = fixture.pods.get("stays").await.expect("there");
    assert!(fixture.log(&stays, "c", 0).exists());
}

#[tokio::test]
async fn a_run_that_was_begun_and_not_reported_is_not_begun_again() {
    let mut fixture = Fixture::new().await;
    let sleep = unique_sleep();
    let pod = fixture.create("p", never(json!([sh("c", &format!("sleep {sleep}"))]))).await;
    let pod = fixture.until("p", |now| now.metadata.uid == pod.metadata.uid && phase(now) == "Running").await;
    let mut config = Config::new(fixture.client.clone(), "here", fixture.directory.path());
    config.keeper = common::entry("keeper_process", &[]);
    drop(fixture.agent);
    wait_for("the end of all", || processes_with(&sleep).is_empty().then_some(())).await;
    // As if the agent had died before its first report.
    let patch = json!({"status": {"phase": "Pending", "containerStatuses": null, "startTime": null}});
    let patch = kube::api::Patch::Merge(patch);
    fixture.pods.patch_status("p", &kube::api::PatchParams::default(), &patch).await.expect("patched");
    fixture.agent = Agent::start(config).await.expect("the next agent starts");
    let ended = fixture.ended("p").await;
    assert_eq!(ends(&ended), ["c ContainerStatusUnknown 137 restarts=0"]);
    assert_eq!(ended.metadata.uid, pod.metadata.uid);
}

#[tokio::test]
async fn a_shutdown_ends_the_pods_of_the_lowest_priority_first() {
    use windlass_node::shutdown::Group;
    let fixture = Fixture::with(|config| {
        let group = |priority, seconds| Group { priority, grace: Duration::from_secs(seconds) };
        config.shutdown = vec![group(0, 10), group(1000, 10)];
    })
    .await;
    let order = fixture.directory.path().join("order").display().to_string();
    let mut specs = Vec::new();
    for (name, priority) in [("low", 0), ("high", 1000)] {
        let script = format!("trap 'sleep 0.2; echo {name} >> {order}; exit 1' TERM; echo ready; {FOREVER}");
        let mut spec = never(json!([sh("c", &script)]));
        spec["priority"] = json!(priority);
        specs.push((name, spec));
    }
    for (name, spec) in specs {
        if let Some(priority) = spec["priority"].as_i64().filter(|priority| *priority > 0) {
            let class = json!({"metadata": {"name": name}, "value": priority});
            let class = serde_json::from_value(class).expect("a class");
            let classes =
                kube::Api::<k8s_openapi::api::scheduling::v1::PriorityClass>::all(fixture.client.clone());
            classes.create(&kube::api::PostParams::default(), &class).await.expect("created");
        }
        let mut spec = spec;
        if name == "high" {
            spec["priorityClassName"] = json!("high");
        }
        spec.as_object_mut().expect("an object").remove("priority");
        fixture.create(name, spec).await;
        let pod = fixture.running(name).await;
        wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    }
    let Fixture { pods, agent, directory: _directory, .. } = fixture;
    let start = Instant::now();
    agent.shutdown(Duration::from_secs(1)).await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!(std::fs::read_to_string(order).expect("written"), "low\nhigh\n");
    for name in ["low", "high"] {
        let pod = pods.get(name).await.expect("still there");
        assert_eq!(condition(&pod, "DisruptionTarget"), "True TerminationByKubelet", "{name}");
        assert_eq!(status(&pod).reason.as_deref(), Some("Terminated"));
    }
}
