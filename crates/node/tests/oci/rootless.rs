//! What a node can do that is not root. All of it runs in a process of a user without rights, which the two tests at the end
//! start; the processes of root that see these tests too have nothing to do.

use super::*;
use common::as_user;
use rustix::process::{Pid, Signal, kill_process};

const USERS: Kind = Kind::Crun;

fn message(pod: &Pod) -> String {
    waiting(pod).map(|(_, message)| message).unwrap_or_default()
}

#[tokio::test]
async fn a_user_that_cannot_be_had_is_refused_with_the_reason() {
    if !is_user() {
        return;
    }
    for (kind, image, pod, want) in [
        (
            Kind::Youki,
            "web",
            json!({}),
            "cannot run as user 33 of group 34: this node is not root, and with youki its containers have the user 0 of group 0 \
             only; set runAsUser and runAsGroup to 0, or install crun",
        ),
        (
            Kind::Runc,
            "web",
            json!({}),
            "cannot run as user 33 of group 34: this node is not root, and with runc its containers have the user 0 of group 0 \
             only; set runAsUser and runAsGroup to 0, or install crun",
        ),
        (
            USERS,
            "",
            json!({"securityContext": {"supplementalGroups": [50]}}),
            "cannot have group 50: this node is not root, and its containers have one group only, here 0",
        ),
        (USERS, "", json!({"hostPID": true}), "hostPID needs root, and this node is not root"),
        (
            USERS,
            "",
            json!({"shareProcessNamespace": true}),
            "shareProcessNamespace needs control groups, which this node may not make",
        ),
        (
            USERS,
            "",
            json!({"securityContext": {"runAsNonRoot": true}}),
            "container has runAsNonRoot and image will run as root",
        ),
    ] {
        let (fixture, _kept) = node_with(kind, &busybox(json!({"User": image}))).await;
        let mut spec = never(json!([script("id")]));
        spec.as_object_mut().expect("an object").extend(pod.as_object().expect("an object").clone());
        fixture.create("p", spec).await;
        let pod = fixture.until("p", waits_with("CreateContainerConfigError")).await;
        assert!(message(&pod).starts_with(want), "{}", message(&pod));
    }
}

#[tokio::test]
async fn whoever_it_is_a_container_may_use_its_files_and_nobody_elses() {
    if !is_user() {
        return;
    }
    let (fixture, _kept) = node_with(USERS, &busybox(json!({}))).await;
    let machine = tempfile::tempdir().expect("a directory");
    // A file of root that all may read, and one that nobody else may.
    let secret = "/etc/shadow";
    assert!(Path::new(secret).exists(), "a file to try");
    let text = "set -e; stat -c %u:%g /old /data /host /proc/self/cmdline | tr '\\n' ' '; echo x > /data/x; echo x > /host/x; \
                if cat /secret 2>/dev/null; then exit 9; fi; test $(stat -c %u /secret) = 65534; id -u";
    for (name, context, want) in [
        ("root", json!({}), "0:0 0:0 0:0 0:0 0\n"),
        (
            "other",
            json!({"runAsUser": 1000, "runAsGroup": 1001, "runAsNonRoot": true}),
            "1000:1001 1000:1001 1000:1001 1000:1001 1000\n",
        ),
    ] {
        let mut container = script(&text.replace("tr ", "busybox tr "));
        container["securityContext"] = context;
        container["volumeMounts"] = json!([
            {"name": "v", "mountPath": "/data"},
            {"name": "h", "mountPath": "/host"},
            {"name": "s", "mountPath": "/secret", "readOnly": true},
        ]);
        let mut spec = never(json!([container]));
        spec["volumes"] = json!([
            {"name": "v", "emptyDir": {}},
            {"name": "h", "hostPath": {"path": machine.path()}},
            {"name": "s", "hostPath": {"path": secret}},
        ]);
        fixture.create(name, spec).await;
        let pod = fixture.ended(name).await;
        assert_eq!(
            (log(&fixture, &pod).as_str(), phase(&pod)),
            (want, "Succeeded"),
            "{name}: {:?}",
            pod.status
        );
        assert_eq!(std::fs::read_to_string(machine.path().join("x")).expect("written"), "x\n");
        std::fs::remove_file(machine.path().join("x")).expect("ours");
    }
}

#[tokio::test]
async fn processes_join_a_container_of_another_user() {
    if !is_user() {
        return;
    }
    let (fixture, _kept) =
        node_with(USERS, &busybox(json!({"User": "web", "WorkingDir": "/tmp", "Env": ["A=image"]}))).await;
    let nodes = Nodes::of(std::slice::from_ref(&fixture.agent));
    let run = "touch /mine; trap 'exit 0' TERM; while :; do sleep 0.01; done";
    // By number, for the group alone makes a difference: that is root, with the rights of a container.
    for (name, context, want) in [
        ("web", json!({"allowPrivilegeEscalation": false}), "33 34 /tmp image sh 0000000000000000 1\n"),
        ("rootish", json!({"runAsUser": 0, "runAsGroup": 5}), "0 5 /tmp image sh 00000000a00425fb 0\n"),
    ] {
        let mut container = script(run);
        container["securityContext"] = context;
        container["readinessProbe"] =
            json!({"exec": {"command": ["stat", "/mine"]}, "periodSeconds": 1, "timeoutSeconds": 60});
        fixture.create(name, never(json!([container]))).await;
        let is_ready = |pod: &Pod| common::fixture::condition(pod, "Ready").starts_with("True");
        let pod = fixture.until(name, is_ready).await;
        let field =
            |name: &str| format!("$(grep {name}: /proc/self/status | while read a b; do echo $b; done)");
        let said = format!(
            "echo $(id -u) $(id -g) $(pwd) $A $(cat /proc/1/comm) {} {}; test -e /mine && exit 3",
            field("CapEff"),
            field("NoNewPrivs")
        );
        let command = ["sh", "-c", &said].map(str::to_owned).to_vec();
        let streams = Streams { stdout: true, ..Streams::default() };
        let session = nodes.exec(seen(&pod), Exec { command, streams }).await.expect("it starts");
        let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
        let (said, ended) = tokio::join!(said, session.ended);
        assert_eq!((String::from_utf8_lossy(&said.expect("read")).as_ref(), ended), (want, Ok(3)), "{name}");
    }

    // Nobody would filter what it calls.
    let mut filtered = script(run);
    filtered["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    fixture.create("filtered", never(json!([filtered.clone()]))).await;
    let pod = fixture.running("filtered").await;
    let exec = Exec { command: vec!["id".into()], streams: Streams::default() };
    let refused = nodes.exec(seen(&pod), exec).await.err().expect("refused").to_string();
    let want = "this node is not root, and with a seccompProfile processes join containers of the user 0 of group 0 only";
    assert!(refused.ends_with(want), "{refused}");
    filtered["readinessProbe"] = json!({"exec": {"command": ["true"]}});
    fixture.create("probed", never(json!([filtered]))).await;
    let pod = fixture.until("probed", waits_with("CreateContainerConfigError")).await;
    let want = format!("cannot run commands of probes and hooks as user 33 of group 34: {want}");
    assert_eq!(message(&pod), want);
}

#[tokio::test]
async fn nothing_is_left_when_the_keeper_of_containers_is_killed() {
    if !is_user() {
        return;
    }
    for is_outer in [true, false] {
        let (fixture, _kept) = node_with(USERS, &busybox(json!({}))).await;
        let sleep = unique_sleep();
        let text = format!("{}; echo ready; while :; do sleep 0.1; done", crun::daemon(&sleep));
        fixture.create("p", never(json!([script(&text)]))).await;
        let pod = fixture.running("p").await;
        wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
        assert!(!processes_with(&sleep).is_empty());
        let place = format!("WINDLASS_KEEPER_PLACE={}", fixture.directory.path().join("logs").display());
        let outer = processes_in(&place);
        assert_eq!(outer.len(), 1, "{outer:?}");
        let inner = children(outer[0]);
        assert_eq!(inner.len(), 1, "{inner:?}");
        let victim = if is_outer { outer[0] } else { inner[0] };
        kill_process(Pid::from_raw(victim).expect("a process"), Signal::KILL).expect("it runs");
        let pod = fixture.ended("p").await;
        assert_eq!(ends(&pod), ["c ContainerStatusUnknown 137 restarts=0"]);
        wait_for("the processes to go", || processes_with(&sleep).is_empty().then_some(())).await;
        // There is another one, which does the same.
        fixture.create("q", never(json!([script("exit 7")]))).await;
        let is_over = |pod: &Pod| ends(pod) == ["c Error 7 restarts=0"];
        fixture.until("q", is_over).await;
    }
}

/// What needs root, and is refused or not kept without: control groups, the processes of the machine, several groups.
const NEEDS_ROOT: [&str; 5] = [
    "needs_more_memory_than_it_may_have",
    "sees_the_processes_of_the_machine",
    "may_see_the_processes_of_the_machine",
    "share_their_processes",
    "as_its_user_and_with_its_environment",
];

fn run_all(more: &[&str]) -> usize {
    let mut args = more.to_vec();
    for name in NEEDS_ROOT {
        args.extend(["--skip", name]);
    }
    let said = as_user(&args);
    said.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok")).count()
}

#[test]
fn a_node_without_root_runs_images_with_crun() {
    if is_user() {
        return;
    }
    let done = run_all(&["crun::", "rootless::"]);
    assert!(done >= 20, "{done}");
}

#[test]
fn a_node_without_root_runs_images_with_runc() {
    if is_user() {
        return;
    }
    // With runc a container has no other user than root.
    let done = run_all(&["runc::", "--skip", "what_the_image_says"]);
    assert!(done >= 14, "{done}");
}

#[test]
fn a_node_without_root_runs_images_with_youki() {
    if is_user() {
        return;
    }
    // As with runc.
    let done = run_all(&["youki::", "--skip", "what_the_image_says"]);
    assert!(done >= 14, "{done}");
}
