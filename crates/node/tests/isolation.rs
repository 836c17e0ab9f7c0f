//! Containers of the host runtime that are kept apart from the machine: by processes, by files, and without root.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::fixture::{Fixture, ends, never, phase, seen, sh, status};
use common::{processes_with, unique_sleep};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use windlass_node::isolation::{Isolation, Wanted};
use windlass_node::streams::Nodes;
use windlass_streams::{Exec, PodStreams, Streams};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

const ALL: Wanted = Wanted::Exactly(Isolation { pids: true, files: true });

async fn node(isolation: Wanted) -> Fixture {
    Fixture::with(|config| config.isolation = isolation).await
}

fn log(fixture: &Fixture, pod: &Pod) -> String {
    std::fs::read_to_string(fixture.log(pod, "c", 0)).expect("a log")
}

async fn annotation(fixture: &Fixture) -> Option<String> {
    let nodes = kube::Api::<Node>::all(fixture.client.clone());
    let node = nodes.get("here").await.expect("the node is there");
    node.metadata.annotations?.remove("windlass.dev/isolation")
}

#[tokio::test]
async fn a_node_says_what_it_can_give_and_gives_nothing_that_was_not_asked_for() {
    let fixture = Fixture::new().await;
    assert_eq!(annotation(&fixture).await.as_deref(), Some("pid,files"));
    let machine = tempfile::tempdir().expect("a directory");
    let text = format!("touch {0}/new; ls -l /proc/self/ns/pid /proc/self/ns/mnt", machine.path().display());
    fixture.create("p", never(json!([sh("c", &text)]))).await;
    let pod = fixture.ended("p").await;
    let said = log(&fixture, &pod);
    for namespace in ["/proc/self/ns/pid", "/proc/self/ns/mnt"] {
        let own = std::fs::read_link(namespace).expect("there");
        assert!(said.contains(&own.display().to_string()), "{said}");
    }
    assert!(machine.path().join("new").exists(), "what it writes stays");
    assert!(!fixture.directory.path().join("probe").exists(), "nothing is left of the attempt");
}

#[tokio::test]
async fn a_container_with_pids_of_its_own_sees_no_others_and_leaves_none() {
    let fixture = node("pid".parse().expect("a kind")).await;
    let sleep = unique_sleep();
    let text = format!(
        "test $$$$ = 1 && test ! -e /proc/{} || exit 9; setsid env -i setsid sleep {sleep} & \
         while ! grep -qs sleep /proc/[0-9]*/comm; do :; done; hostname; exit 7",
        std::process::id()
    );
    fixture.create("p", never(json!([sh("c", &text)]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!((ends(&pod), log(&fixture, &pod).as_str()), (vec!["c Error 7 restarts=0".into()], "p\n"));
    assert_eq!(processes_with(&sleep), [0; 0]);

    // As if it were not said.
    let mut spec = never(json!([sh("c", &format!("test -e /proc/{}", std::process::id()))]));
    spec["hostPID"] = json!(true);
    fixture.create("host", spec).await;
    assert_eq!(phase(&fixture.ended("host").await), "Succeeded");
}

#[tokio::test]
async fn what_a_covered_container_writes_goes_with_it_but_for_its_volumes() {
    let fixture = node("files".parse().expect("a kind")).await;
    let machine = tempfile::tempdir().expect("a directory");
    std::fs::write(machine.path().join("old"), "old").expect("written");
    std::fs::write(machine.path().join("gone"), "x").expect("written");
    let mode = std::fs::metadata("/tmp").expect("there").mode() & 0o7777;
    let text = format!(
        "set -e; cd {0}; cat old; echo new > old; cat old; rm gone; mkdir made; echo x > made/x; echo kept > /volume/out; \
         echo x > /volume-no-such-place; test $(stat -c %a /tmp) = {mode:o}; echo said > /dev/termination-log; \
         test -c /dev/null; grep -q . /proc/self/status; pwd; exit 3",
        machine.path().display()
    );
    let (kept, mut container) = (tempfile::tempdir().expect("a directory"), sh("c", &text));
    container["volumeMounts"] = json!([
        {"name": "v", "mountPath": "/volume"},
        {"name": "v", "mountPath": "/etc/windlass/made/for/it"},
    ]);
    let mut spec = never(json!([container]));
    spec["volumes"] = json!([{"name": "v", "hostPath": {"path": kept.path()}}]);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    let said = log(&fixture, &pod);
    assert_eq!(ends(&pod), ["c Error 3 restarts=0"], "{said} {:?}", status(&pod).container_statuses);
    assert_eq!(said, format!("oldnew\n{}\n", machine.path().display()));
    let end = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    assert_eq!(end.terminated.expect("ended").message.as_deref(), Some("said\n"));
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    assert_eq!(read(&machine.path().join("old")).as_deref(), Some("old"));
    assert_eq!(read(&machine.path().join("gone")).as_deref(), Some("x"));
    assert!(!machine.path().join("made").exists());
    for path in ["/volume", "/volume-no-such-place", "/etc/windlass"] {
        assert!(!Path::new(path).exists(), "{path}");
    }
    assert_eq!(read(&kept.path().join("out")).as_deref(), Some("kept\n"));
    let uid = pod.metadata.uid.as_deref().expect("a uid");
    let cover = fixture.directory.path().join("pods").join(uid).join("oci/c.0");
    common::wait_for("what it wrote to go", || (!cover.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_covered_root_that_cannot_be_written_to_has_volumes_that_can() {
    let fixture = node(ALL).await;
    let mut container =
        sh("c", "touch /v/x && ! touch /etc/windlass-x 2>/dev/null && ! touch /tmp/windlass-x 2>/dev/null");
    container["securityContext"] = json!({"readOnlyRootFilesystem": true});
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let mut spec = never(json!([container]));
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c Completed 0 restarts=0"], "{}", log(&fixture, &pod));
}

#[tokio::test]
async fn what_a_covered_container_writes_counts_for_its_limit() {
    let fixture = Fixture::with(|config| {
        config.isolation = ALL;
        config.survey_every = std::time::Duration::from_millis(200);
    })
    .await;
    let mut container = sh("c", "head -c 4194304 /dev/zero > /windlass-large; sleep 1000");
    container["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!(status(&pod).reason.as_deref(), Some("Evicted"));
    assert!(!Path::new("/windlass-large").exists());
}

#[tokio::test]
async fn a_process_joins_a_container_that_is_kept_apart() {
    let fixture = node(ALL).await;
    let text = "echo x > /windlass-joined; trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let pod = fixture.create("p", never(json!([sh("c", text)]))).await;
    let running = fixture.running("p").await;
    common::wait_for_text(&fixture.log(&running, "c", 0), "ready").await;
    let container = seen(&pod);
    let command = ["sh", "-c", "cat /windlass-joined; cat /proc/1/comm; exit 3"].map(str::to_owned).to_vec();
    let streams = Streams { stdout: true, ..Streams::default() };
    let nodes = Nodes::of(std::slice::from_ref(&fixture.agent));
    let session = nodes.exec(container, Exec { command, streams }).await.expect("it starts");
    let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
    let (said, ended) = tokio::join!(said, session.ended);
    let said = String::from_utf8(said.expect("read")).expect("text");
    assert_eq!((said.as_str(), ended), ("x\nsh\n", Ok(3)));
}

fn with_annotation(text: &str) -> Value {
    json!({"windlass.dev/isolation": text})
}

#[tokio::test]
async fn a_pod_says_how_far_it_is_kept_apart() {
    let fixture = node(Wanted::Most).await;
    let machine = format!("{}\n", std::fs::read_link("/proc/self/ns/pid").expect("there").display());
    for (name, annotations, has_own_pids) in [
        ("most", json!({}), true),
        ("none", with_annotation("none"), false),
        ("files", with_annotation("files"), false),
        ("pid", with_annotation("pid"), true),
    ] {
        let spec = never(json!([sh("c", "readlink /proc/self/ns/pid")]));
        fixture.create_with(name, annotations, spec).await;
        let pod = fixture.ended(name).await;
        assert_eq!((phase(&pod), log(&fixture, &pod) != machine), ("Succeeded", has_own_pids), "{name}");
    }
    fixture.create_with("bad", with_annotation("network"), never(json!([sh("c", "true")]))).await;
    let is_held = |pod: &Pod| ends(pod) == ["c CreateContainerConfigError restarts=0"];
    let pod = fixture.until("bad", is_held).await;
    let want = "annotation windlass.dev/isolation: isolation \"network\" is not known: it is none, auto, pid, files or pid,files";
    assert_eq!(message(&pod), want);
}

fn message(pod: &Pod) -> String {
    let state = status(pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    state.waiting.expect("it waits").message.unwrap_or_default()
}

/// Run again as a user without rights by the test below.
#[tokio::test]
async fn without_root_but_with_user_namespaces() {
    if !common::is_user() {
        return;
    }
    let fixture = node(Wanted::Most).await;
    assert_eq!(annotation(&fixture).await.as_deref(), Some("pid"));
    // In a user namespace it is who it is, and may do nothing there that it may not do elsewhere.
    let text = "set -e; test $$$$ = 1; cd /windlass/volume; echo x > x; cat x; hostname; id -u; id -g; \
                stat -c %u x /etc/passwd; grep CapEff /proc/self/status; echo ready; \
                trap 'exit 3' TERM; while :; do sleep 0.01; done";
    let mut container = sh("c", text);
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/windlass/volume"}]);
    let mut spec = never(json!([container]));
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    fixture.create("v", spec).await;
    let pod = fixture.running("v").await;
    common::wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let want = format!("x\nv\n{user}\n{group}\n{user}\n65534\nCapEff:\t0000000000000000\nready\n");
    assert_eq!(log(&fixture, &pod), want);

    let command = ["sh", "-c", "cat /proc/1/comm; id -u; exit 4"].map(str::to_owned).to_vec();
    let (streams, nodes) =
        (Streams { stdout: true, ..Streams::default() }, Nodes::of(std::slice::from_ref(&fixture.agent)));
    let session = nodes.exec(seen(&pod), Exec { command, streams }).await.expect("it starts");
    let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
    let (said, ended) = tokio::join!(said, session.ended);
    let said = String::from_utf8(said.expect("read")).expect("text");
    assert_eq!((said, ended), (format!("sh\n{user}\n"), Ok(4)));
    let (_, last) = fixture.watch("v", true, |pod| pod.is_none_or(|pod| phase(pod) == "Failed")).await;
    assert_eq!(ends(&last.expect("still there")), ["c Error 3 restarts=0"]);

    fixture.create_with("files", with_annotation("files"), never(json!([sh("c", "true")]))).await;
    let pod = fixture.until("files", |pod| ends(pod) == ["c CreateContainerConfigError restarts=0"]).await;
    assert_eq!(message(&pod), "isolation by files is not possible on this node, which can give: pid");

    // Who does not ask for it has all that this user has.
    fixture
        .create_with("none", with_annotation("none"), never(json!([sh("c", "readlink /proc/self/ns/user")])))
        .await;
    let own = std::fs::read_link("/proc/self/ns/user").expect("there");
    assert_eq!(log(&fixture, &fixture.ended("none").await), format!("{}\n", own.display()));
}

/// Run again as such a user by the test below.
#[tokio::test]
async fn without_root_and_without_user_namespaces() {
    if !common::is_user() {
        return;
    }
    assert!(!windlass_node::runtimes::apart::is_possible());
    let fixture = node(Wanted::Most).await;
    assert_eq!(annotation(&fixture).await.as_deref(), Some("none"));
    fixture.create("p", never(json!([sh("c", "exit 3")]))).await;
    assert_eq!(ends(&fixture.ended("p").await), ["c Error 3 restarts=0"]);
    fixture.create_with("q", with_annotation("pid"), never(json!([sh("c", "exit 3")]))).await;
    let pod = fixture.until("q", |pod| ends(pod) == ["c CreateContainerConfigError restarts=0"]).await;
    assert_eq!(message(&pod), "isolation by pid is not possible on this node, which can give: none");
    let image = json!([{"name": "c", "image": "busybox", "command": ["true"]}]);
    fixture.create("image", never(image)).await;
    let pod = fixture.until("image", |pod| ends(pod) == ["c ImagePullBackOff restarts=0"]).await;
    let want = "Back-off pulling image \"busybox\": this node is not root, and has no user namespace (Operation not permitted \
                (os error 1)); run it as root, ";
    assert!(message(&pod).starts_with(want), "{}", message(&pod));
}

#[test]
fn a_node_without_root_isolates_by_pids_where_it_may_make_user_namespaces() {
    if !common::is_user() {
        let pids = "a_container_with_pids_of_its_own_sees_no_others_and_leaves_none";
        let said = common::as_user(&["without_root_but_with_user_namespaces", pids]);
        assert!(said.contains("2 passed"), "{said}");
    }
}

#[test]
fn a_node_without_root_and_namespaces_runs_pods_with_less_isolation_and_says_so() {
    if !common::is_user() {
        let said = common::as_user_without_namespaces(&["without_root_and_without_user_namespaces"]);
        assert!(said.contains("1 passed"), "{said}");
    }
}
