//! Containers of images: real images, a real registry, a real OCI runtime.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::fixture::{Fixture, ends, never, phase, status};
use common::images::{
    Archive, Registry, TestImage, TokenRegistry, blobs, busybox, write_layout, write_saved,
};
use common::{processes_with, unique_sleep, wait_for, wait_for_text};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::PostParams;
use serde_json::{Value, json};
use tar::EntryType;
use windlass_node::backoff::Limits;
use windlass_node::images::registry::Mirrors;
use windlass_node::images::{Images, Policy, Settings};
use windlass_node::streams::Nodes;
use windlass_node::{Config, Oci, oci};
use windlass_streams::{Exec, PodStreams, Streams};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

fn runtime() -> oci::Runtime {
    let path = std::env::var_os("PATH").expect("a path");
    oci::Runtime::find(&path).expect("the package crun is installed")
}

/// A node with images.
async fn node(settings: Settings) -> (Fixture, Arc<Images>, tempfile::TempDir) {
    node_that(settings, |_| {}).await
}

/// A node with images and another configuration.
async fn node_that(
    settings: Settings,
    change: impl FnOnce(&mut Config),
) -> (Fixture, Arc<Images>, tempfile::TempDir) {
    let kept = tempfile::tempdir().expect("a directory");
    let settings = Settings { directory: kept.path().join("images"), ..settings };
    let images = Arc::new(Images::open(settings).expect("opened"));
    let fixture = Fixture::with(|config| {
        config.oci = Some(Oci { runtime: runtime(), images: Arc::clone(&images) });
        config.survey_every = Duration::from_millis(200);
        config.image_backoff = Limits { base: Duration::from_millis(100), max: Duration::from_secs(1) };
        change(config);
    })
    .await;
    (fixture, images, kept)
}

/// A node whose images are those of a layout with this one.
async fn node_with(image: &TestImage) -> (Fixture, [tempfile::TempDir; 2]) {
    let layout = tempfile::tempdir().expect("a directory");
    write_layout(layout.path(), "test/busybox:1", image);
    let (fixture, _, kept) =
        node(Settings { image_dirs: vec![layout.path().to_owned()], ..Settings::default() }).await;
    (fixture, [layout, kept])
}

/// A container that runs a script in the image of [`node_with`].
fn script(script: &str) -> Value {
    json!({"name": "c", "image": "test/busybox:1", "command": ["sh", "-c", script]})
}

fn log(fixture: &Fixture, pod: &Pod) -> String {
    std::fs::read_to_string(fixture.log(pod, "c", 0)).expect("a log")
}

/// What a container says: the waiting state as `reason: message`.
fn waiting(pod: &Pod) -> Option<(String, String)> {
    let all = status(pod).container_statuses.as_ref()?;
    let waiting = all.first()?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
}

fn waits_with(reason: &'static str) -> impl Fn(&Pod) -> bool {
    move |pod| waiting(pod).is_some_and(|(found, _)| found == reason)
}

#[tokio::test]
async fn a_container_of_an_image_ends_with_its_exit_code() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    for (name, text, want) in [
        ("good", "echo out; echo err >&2", "c Completed 0 restarts=0"),
        ("bad", "exit 42", "c Error 42 restarts=0"),
        ("child", "sh -c 'kill -9 $$$$'; exit $?", "c Error 137 restarts=0"),
    ] {
        fixture.create(name, never(json!([script(text)]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!(ends(&pod), [want], "{name}: {}", log(&fixture, &pod));
    }
    let good = fixture.ended("good").await;
    assert_eq!(log(&fixture, &good), "out\nerr\n");
    let container = &status(&good).container_statuses.as_ref().expect("statuses")[0];
    assert!(container.image_id.starts_with("docker.io/test/busybox@sha256:"), "{container:?}");
}

#[tokio::test]
async fn what_the_image_says_is_what_runs_unless_the_pod_says_otherwise() {
    let run = json!({
        "Entrypoint": ["sh", "-c", "echo $0 $A $(pwd) $(id -u):$(id -g):$(id -G)"], "Cmd": ["cmd"],
        "Env": ["A=image", "PATH=/bin"], "WorkingDir": "/tmp", "User": "web",
    });
    let (fixture, _kept) = node_with(&busybox(run)).await;
    for (name, changes, want) in [
        ("image", json!({}), "cmd image /tmp 33:34:34 40\n"),
        ("args", json!({"args": ["arg"]}), "arg image /tmp 33:34:34 40\n"),
        (
            "all",
            json!({
                "command": ["sh", "-c", "echo $0 $A $(pwd) $(id -u):$(id -g)", "own"], "env": [{"name": "A", "value": "pod"}],
                "workingDir": "/etc", "securityContext": {"runAsUser": 7, "runAsGroup": 8},
            }),
            "own pod /etc 7:8\n",
        ),
    ] {
        let mut container = json!({"name": "c", "image": "test/busybox:1"});
        container.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
        fixture.create(name, never(json!([container]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!(
            (log(&fixture, &pod).as_str(), ends(&pod)),
            (want, vec!["c Completed 0 restarts=0".into()]),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_container_sees_its_own_files_and_volumes_and_nothing_of_the_machine() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let machine = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(machine.path().join("part")).expect("made");
    std::fs::write(machine.path().join("part/file"), "part").expect("written");
    std::os::unix::fs::symlink("/etc", machine.path().join("link")).expect("linked");
    let text = "set -e; cat /etc/hostname; grep -c pod1 /etc/hosts || true; test -e /etc/resolv.conf; echo new > /old; cat /old; \
                echo a > /data/a; cat /part/file; test ! -e /etc/shadow; test ! -e /usr; ls /proc | head -1; \
                echo said > /dev/termination-log; if touch /ro/x; then exit 9; fi; test -w /dev/null; hostname; exit 3";
    let mut container = script(text);
    container["volumeMounts"] = json!([
        {"name": "empty", "mountPath": "/data"},
        {"name": "host", "mountPath": "/part", "subPath": "part"},
        {"name": "host", "mountPath": "/ro", "readOnly": true},
    ]);
    let mut spec = never(json!([container]));
    spec["volumes"] =
        json!([{"name": "empty", "emptyDir": {}}, {"name": "host", "hostPath": {"path": machine.path()}}]);
    fixture.create("pod1", spec.clone()).await;
    let pod = fixture.ended("pod1").await;
    let said = log(&fixture, &pod);
    assert_eq!(ends(&pod), ["c Error 3 restarts=0"], "{said}");
    assert!(
        said.starts_with("pod1\n") && said.contains("new\npart1\n") && said.ends_with("pod1\n"),
        "{said}"
    );
    let end = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    assert_eq!(end.terminated.expect("ended").message.as_deref(), Some("said\n"));

    // A part of a volume that leads out of it is never mounted.
    spec["containers"][0]["volumeMounts"][1]["subPath"] = json!("link");
    fixture.create("pod2", spec).await;
    let pod = fixture.ended("pod2").await;
    assert_eq!(ends(&pod), ["c StartError 128 restarts=0"]);
}

#[tokio::test]
async fn the_security_context_is_kept() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let shown = "cat /proc/self/status | while read a b; do case $a in CapEff:|NoNewPrivs:|Seccomp:) echo $a $b;; esac; done; \
                 if touch /x; then echo writable; fi; if mount -t tmpfs x /tmp; then echo mounted; fi; true";
    for (name, context, want) in [
        ("default", json!({}), "CapEff: 00000000a00425fb\nNoNewPrivs: 0\nSeccomp: 0\nwritable\n"),
        (
            "strict",
            json!({
                "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
            "CapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n",
        ),
        (
            "filtered",
            json!({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "seccompProfile": {"type": "RuntimeDefault"}}),
            "CapEff: 0000000000200000\nNoNewPrivs: 0\nSeccomp: 2\nwritable\n",
        ),
    ] {
        let mut container = script(&format!("{{ {shown}; }} 2>/dev/null"));
        container["securityContext"] = context;
        fixture.create(name, never(json!([container]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!(log(&fixture, &pod), want, "{name} {:?}", ends(&pod));
    }
}

#[tokio::test]
async fn a_privileged_container_has_all_capabilities_that_there_are() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let mut container = script("grep CapEff /proc/self/status");
    container["securityContext"] = json!({"privileged": true});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    let own = std::fs::read_to_string("/proc/self/status").expect("readable");
    let own =
        own.lines().find(|line| line.starts_with("CapBnd")).expect("a line").replace("CapBnd", "CapEff");
    let got = (log(&fixture, &pod), ends(&pod));
    assert_eq!(got, (format!("{own}\n"), vec!["c Completed 0 restarts=0".to_owned()]));
}

#[tokio::test]
async fn a_container_that_needs_more_memory_than_it_may_have_is_killed_for_it() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let mut container = script("dd if=/dev/zero of=/dev/null bs=64M count=1; exit $?");
    container["resources"] = json!({"limits": {"memory": "24Mi"}});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c OOMKilled 137 restarts=0"], "{}", log(&fixture, &pod));
}

#[tokio::test]
async fn a_container_that_writes_more_than_it_may_is_evicted() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let mut container = script("dd if=/dev/zero of=/large bs=1M count=4; sleep 1000");
    container["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    let status = status(&pod);
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let want = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(status.message.as_deref(), Some(want));
}

#[tokio::test]
async fn a_deleted_pod_gets_its_grace_and_nothing_of_it_is_left() {
    let (fixture, _kept) = node_with(&busybox(json!({"StopSignal": "SIGQUIT"}))).await;
    let sleep = unique_sleep();
    for (name, text, want) in [
        ("listens", format!("trap 'exit 5' QUIT; sleep {sleep} & echo ready; wait"), "c Error 5 restarts=0"),
        ("does-not", format!("trap '' QUIT; sleep {sleep} & echo ready; wait"), "c Error 137 restarts=0"),
    ] {
        let mut spec = never(json!([script(&text)]));
        spec["terminationGracePeriodSeconds"] = json!(1);
        fixture.create(name, spec).await;
        let pod = fixture.running(name).await;
        wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
        let (_, last) = fixture.watch(name, true, |pod| pod.is_none_or(|pod| phase(pod) == "Failed")).await;
        assert_eq!(ends(&last.expect("still there")), [want], "{name}");
        assert_eq!(processes_with(&sleep), [0; 0], "{name}");
        let bundle = fixture
            .directory
            .path()
            .join("pods")
            .join(pod.metadata.uid.as_deref().expect("a uid"))
            .join("oci/c.0");
        wait_for("the bundle to go", || (!bundle.exists()).then_some(())).await;
    }
}

#[tokio::test]
async fn containers_die_with_their_agent() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let sleep = unique_sleep();
    // Its own session, and an environment that says nothing: only the kernel can still know whose it is.
    fixture
        .create("p", never(json!([script(&format!("exec env -i sh -c 'sleep {sleep} & echo ready; wait'"))])))
        .await;
    let pod = fixture.running("p").await;
    wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    assert!(!processes_with(&sleep).is_empty());
    drop(fixture);
    wait_for("the processes to go", || processes_with(&sleep).is_empty().then_some(())).await;
}

#[tokio::test]
async fn hooks_and_probes_run_in_the_container() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let mut container = script(
        "while ! test -e /hook; do sleep 0.01; done; cat /hook; while ! test -e /probed; do sleep 0.01; done; exit 4",
    );
    container["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["sh", "-c", "echo $HOSTNAME > /hook"]}}});
    container["readinessProbe"] =
        json!({"exec": {"command": ["touch", "/probed"]}, "periodSeconds": 1, "timeoutSeconds": 60});
    fixture.create("hooked", never(json!([container]))).await;
    let pod = fixture.ended("hooked").await;
    assert_eq!((log(&fixture, &pod).as_str(), ends(&pod)), ("hooked\n", vec!["c Error 4 restarts=0".into()]));
}

#[tokio::test]
async fn a_process_joins_a_container_with_and_without_a_terminal() {
    let (fixture, _kept) = node_with(&busybox(json!({"Env": ["A=image"]}))).await;
    let pod =
        fixture.create("p", never(json!([script("trap 'exit 0' TERM; while :; do sleep 0.01; done")]))).await;
    fixture.running("p").await;
    let nodes = Nodes::of(std::slice::from_ref(&fixture.agent));
    let container = windlass_streams::Container {
        node: "here".into(),
        namespace: "default".into(),
        pod: "p".into(),
        uid: pod.metadata.uid.expect("a uid"),
        name: "c".into(),
    };
    for (streams, script, want, code) in [
        (Streams { stdout: true, ..Streams::default() }, "echo $A $HOSTNAME; exit 3", "image p\n", 3),
        (
            Streams { stdout: true, tty: true, ..Streams::default() },
            "test -t 1 && echo terminal $A; exit 4",
            "terminal image\r\n",
            4,
        ),
    ] {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let session = nodes.exec(container.clone(), Exec { command, streams }).await.expect("it starts");
        let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
        let (said, ended) = tokio::join!(said, session.ended);
        assert_eq!(
            (String::from_utf8_lossy(&said.expect("read")).as_ref(), ended),
            (want, Ok(code)),
            "{script}"
        );
    }
}

#[tokio::test]
async fn a_command_that_is_not_in_the_image_is_a_start_error() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    fixture
        .create("p", never(json!([{"name": "c", "image": "test/busybox:1", "command": ["no-such-program"]}])))
        .await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c StartError 128 restarts=0"]);
    let end = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    let message = end.terminated.expect("ended").message.unwrap_or_default();
    assert!(message.contains("executable file `no-such-program` not found"), "{message}");
}

#[tokio::test]
async fn a_container_is_started_again_in_a_fresh_root() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let mut spec = never(json!([script(
        "test ! -e /seen && touch /seen && echo x >> /data/runs; test $(wc -l < /data/runs) = 3"
    )]));
    spec["restartPolicy"] = json!("OnFailure");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/data"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c Completed 0 restarts=2"]);
}

#[tokio::test]
async fn upper_layers_hide_what_lower_ones_have_mounted_or_copied() {
    let mut image = busybox(json!({}));
    image.layers.push(Archive::new().file("dir/one", "1").file("dir/two", "2").file("gone", "x").finish());
    let upper = Archive::new().file(".wh.gone", "").file("old", "upper");
    image.layers.push(upper.file("dir/.wh..wh..opq", "").file("dir/three", "3").finish());
    let layout = tempfile::tempdir().expect("a directory");
    write_layout(layout.path(), "test/busybox:1", &image);
    for is_copied in [false, true] {
        let settings = Settings { image_dirs: vec![layout.path().to_owned()], ..Settings::default() };
        let (fixture, _images, _kept) = node_that(settings, |config| config.copies_images = is_copied).await;
        let text = "cat /old; echo; ls /dir; test ! -e /gone; grep -c '^overlay / ' /proc/mounts; true";
        fixture.create("p", never(json!([script(text)]))).await;
        let pod = fixture.ended("p").await;
        let want = format!("upper\nthree\n{}\n", i32::from(!is_copied));
        assert_eq!((log(&fixture, &pod), phase(&pod)), (want, "Succeeded"));
    }
}

#[tokio::test]
async fn an_archive_of_docker_save_is_an_image() {
    let directory = tempfile::tempdir().expect("a directory");
    write_saved(&directory.path().join("saved.tar"), "saved:2", &busybox(json!({"Cmd": ["echo", "saved"]})));
    let settings = Settings { image_dirs: vec![directory.path().to_owned()], ..Settings::default() };
    let (fixture, _images, _kept) = node(settings).await;
    fixture.create("p", never(json!([{"name": "c", "image": "saved:2", "imagePullPolicy": "Never"}]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("saved\n", "Succeeded"));
}

#[tokio::test]
async fn an_image_is_pulled_once_by_tag_digest_or_mirror() {
    let registry = Registry::start(None);
    let digest = registry.push("team/app", "v1", &busybox(json!({"Cmd": ["echo", "pulled"]})), None).await;
    let mirrors = Mirrors::parse(&[format!("docker.io=http://{}", registry.address)]).expect("a mirror");
    let (fixture, images, _kept) = node(Settings { mirrors, ..Settings::default() }).await;
    for (name, image) in [
        ("tag", format!("{}/team/app:v1", registry.address)),
        ("again", format!("{}/team/app:v1", registry.address)),
        ("digest", format!("{}/team/app@{digest}", registry.address)),
        ("mirror", "team/app:v1".to_owned()),
    ] {
        fixture.create(name, never(json!([{"name": "c", "image": image}]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("pulled\n", "Succeeded"), "{name}");
        let id = status(&pod).container_statuses.as_ref().expect("statuses")[0].image_id.clone();
        assert!(id.ends_with(&format!("/team/app@{digest}")), "{id}");
    }
    let events = fixture.events.lock().clone();
    let count = |text: &str| events.iter().filter(|event| event.contains(text)).count();
    assert_eq!(count("Pulling Pulling image"), 3, "{events:?}");
    assert_eq!(count("Pulled Successfully pulled image"), 3);
    assert_eq!(count("already present on machine and can be accessed by the pod"), 1);
    assert_eq!(images.collect().await.expect("looked"), [""; 0], "the disk is not full");
}

#[tokio::test]
async fn images_that_no_pod_uses_go_when_the_disk_is_full() {
    let layout = tempfile::tempdir().expect("a directory");
    write_layout(layout.path(), "test/busybox:1", &busybox(json!({})));
    let policy = Policy { high_percent: 0, low_percent: 0, min_age: Duration::ZERO };
    let settings = Settings { image_dirs: vec![layout.path().to_owned()], policy, ..Settings::default() };
    let (fixture, images, kept) = node(settings).await;
    fixture.create("p", never(json!([script("trap 'exit 0' TERM; while :; do sleep 0.01; done")]))).await;
    fixture.running("p").await;
    let layers = kept.path().join("images/layers");
    let count = |path: &Path| std::fs::read_dir(path).expect("there").count();
    assert_eq!((images.collect().await.expect("looked"), count(&layers)), (vec![], 2), "a pod uses it");
    fixture.watch("p", true, |pod| pod.is_none()).await;
    let gone = wait_collected(&images).await;
    assert_eq!((gone, count(&layers)), (vec!["docker.io/test/busybox:1".to_owned()], 0));
}

/// The pod's task lets go of the image a moment after the pod is gone.
async fn wait_collected(images: &Images) -> Vec<String> {
    for _ in 0..1000 {
        let gone = images.collect().await.expect("looked");
        if !gone.is_empty() {
            return gone;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Vec::new()
}

/// Makes the Secret `pull` with the password for a registry.
async fn create_secret(fixture: &Fixture, registry: &str) {
    let secrets = kube::Api::<Secret>::default_namespaced(fixture.client.clone());
    let auths = json!({"auths": {registry: {"username": "user", "password": "secret"}}});
    let secret = json!({
        "metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    });
    let secret = serde_json::from_value(secret).expect("a secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
}

/// A pod of this image with these pull secrets.
fn secretive(image: &str, secrets: Value) -> Value {
    let mut spec = never(json!([{"name": "c", "image": image}]));
    spec["imagePullSecrets"] = secrets;
    spec
}

#[tokio::test]
async fn a_private_image_needs_the_secret_of_each_pod() {
    let registry = Registry::start(Some(USERS));
    registry.push("app", "v1", &busybox(json!({"Cmd": ["echo", "private"]})), Some(BASIC)).await;
    let (fixture, _images, _kept) = node(Settings::default()).await;
    create_secret(&fixture, &registry.address).await;
    let image = format!("{}/app:v1", registry.address);
    fixture.create("with", secretive(&image, json!([{"name": "pull"}]))).await;
    let pod = fixture.ended("with").await;
    assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("private\n", "Succeeded"));
    fixture.create("without", secretive(&image, json!([]))).await;
    let pod = fixture.until("without", waits_with("ErrImagePull")).await;
    let (_, message) = waiting(&pod).expect("it waits");
    assert!(message.contains("401 Unauthorized"), "it is there, but not for this pod: {message}");
}

#[tokio::test]
async fn a_registry_that_wants_a_token_gets_it_and_nobody_else_is_told() {
    let image = busybox(json!({"Cmd": ["echo", "by token"]}));
    let registry = TokenRegistry::start(&image, BASIC).await;
    let (fixture, _images, _kept) = node(Settings::default()).await;
    create_secret(&fixture, &registry.address).await;
    let name = format!("{}/app:v1", registry.address);
    fixture.create("p", secretive(&name, json!([{"name": "pull"}]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("by token\n", "Succeeded"));
    let requests = registry.requests.lock().clone();
    let to = |path: &str, said: &str| (path.to_owned(), said.to_owned());
    let (manifest, bearer) = ("/v2/app/manifests/v1", "Bearer t0k3n");
    let want = [
        to(manifest, ""),
        to("/token?service=s&scope=repository%3Aapp%3Apull", BASIC),
        to(manifest, bearer),
        to(&format!("/v2/app/blobs/{}", blobs(&image)[1].0), bearer),
    ];
    assert_eq!(requests[..4], want, "{requests:?}");
}

/// The password is `secret`, by bcrypt.
const USERS: &str = "user:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
const BASIC: &str = "Basic dXNlcjpzZWNyZXQ=";

#[tokio::test]
async fn a_missing_image_fails_backs_off_and_is_found_when_it_is_there() {
    let registry = Registry::start(None);
    let (fixture, _images, _kept) = node(Settings::default()).await;
    let image = format!("{}/late:v1", registry.address);
    fixture.create("p", never(json!([{"name": "c", "image": image}]))).await;
    let pod = fixture.until("p", waits_with("ErrImagePull")).await;
    let why = format!("failed to pull image \"{image}\": {}/late@v1: not found", registry.address);
    assert_eq!((phase(&pod), waiting(&pod)), ("Pending", Some(("ErrImagePull".into(), why.clone()))));
    let pod = fixture.until("p", waits_with("ImagePullBackOff")).await;
    let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {why}");
    assert_eq!(waiting(&pod), Some(("ImagePullBackOff".into(), message)));
    registry.push("late", "v1", &busybox(json!({"Cmd": ["true"]})), None).await;
    assert_eq!(phase(&fixture.ended("p").await), "Succeeded");
    let events = fixture.events.lock().clone();
    let want = [
        format!("Pulling Pulling image \"{image}\""),
        format!("Failed Failed to pull image \"{image}\": {why}"),
        "Failed Error: ErrImagePull".to_owned(),
        format!("BackOff Back-off pulling image \"{image}\""),
        "Failed Error: ImagePullBackOff".to_owned(),
    ];
    assert_eq!(events[..5], want, "{events:?}");
}

#[tokio::test]
async fn a_name_that_is_none_and_an_image_that_may_not_be_pulled_wait_with_their_reasons() {
    let (fixture, _images, _kept) = node(Settings::default()).await;
    let bad = "Failed to apply default image tag \"bad//image\": couldn't parse image name \"bad//image\": invalid reference format";
    let never_pull = "Container image \"127.0.0.1:1/x:1\" is not present with pull policy of Never";
    for (name, container, reason, message, event) in [
        ("name", json!({"image": "bad//image"}), "InvalidImageName", bad, "InspectFailed"),
        (
            "never",
            json!({"image": "127.0.0.1:1/x:1", "imagePullPolicy": "Never"}),
            "ErrImageNeverPull",
            never_pull,
            "ErrImageNeverPull",
        ),
    ] {
        let mut container = container;
        container["name"] = json!("c");
        fixture.create(name, never(json!([container]))).await;
        let is_it = |pod: &Pod| waiting(pod).is_some_and(|(reason, _)| reason != "ContainerCreating");
        let pod = fixture.until(name, is_it).await;
        assert_eq!((phase(&pod), waiting(&pod)), ("Pending", Some((reason.into(), message.into()))));
        let events = fixture.events.lock().clone();
        assert!(events.contains(&format!("{event} {message}")), "{events:?}");
        assert!(events.contains(&format!("Failed Error: {reason}")), "{events:?}");
    }
}

#[tokio::test]
async fn content_that_is_not_what_its_digest_says_is_refused() {
    let registry = Registry::start(None);
    let image = busybox(json!({}));
    registry.push("spoilt", "v1", &image, None).await;
    let (layer, bytes) = blobs(&image).remove(0);
    let mut spoilt = bytes.clone();
    spoilt[bytes.len() / 2] ^= 1;
    std::fs::write(registry.blob(&layer), spoilt).expect("written");
    let (fixture, _images, kept) = node(Settings::default()).await;
    fixture
        .create("p", never(json!([{"name": "c", "image": format!("{}/spoilt:v1", registry.address)}])))
        .await;
    let pod = fixture.until("p", waits_with("ErrImagePull")).await;
    let (_, message) = waiting(&pod).expect("it waits");
    assert!(
        message.contains("the content has the digest") && message.ends_with(&format!("not {layer}")),
        "{message}"
    );
    let left = |name: &str| std::fs::read_dir(kept.path().join("images").join(name)).expect("there").count();
    assert_eq!((left("layers"), left("tmp")), (0, 0), "nothing of it is kept");
}

#[tokio::test]
async fn an_image_whose_archive_attacks_the_machine_is_refused() {
    let registry = Registry::start(None);
    let mut image = busybox(json!({}));
    image.layers.push(Archive::new().file("../../../../../../tmp/windlass-attack", "x").finish());
    registry.push("attack", "v1", &image, None).await;
    let mut link = busybox(json!({"Cmd": ["cat", "/inside/file"]}));
    let attack =
        Archive::new().add(EntryType::Symlink, "out", "/tmp", 0o777, b"").file("out/windlass-attack", "x");
    link.layers.push(attack.file("inside/file", "fine\n").finish());
    registry.push("link", "v1", &link, None).await;
    let (fixture, _images, _kept) = node(Settings::default()).await;
    fixture
        .create("attack", never(json!([{"name": "c", "image": format!("{}/attack:v1", registry.address)}])))
        .await;
    let pod = fixture.until("attack", waits_with("ErrImagePull")).await;
    let (_, message) = waiting(&pod).expect("it waits");
    assert!(message.ends_with("which is not below its root"), "{message}");
    fixture
        .create("link", never(json!([{"name": "c", "image": format!("{}/link:v1", registry.address)}])))
        .await;
    let pod = fixture.ended("link").await;
    assert_eq!(log(&fixture, &pod), "fine\n");
    assert!(!Path::new("/tmp/windlass-attack").exists());
}

#[tokio::test]
async fn a_pod_whose_image_is_on_its_way_can_be_deleted() {
    // Takes a connection and never answers.
    let slow = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = slow.local_addr().expect("an address");
    let (fixture, _images, _kept) = node(Settings::default()).await;
    fixture.create("p", never(json!([{"name": "c", "image": format!("{address}/slow:v1")}]))).await;
    let (_connection, _) = slow.accept().await.expect("the node asks");
    let pod = fixture.until("p", |pod| waiting(pod).is_some()).await;
    assert_eq!(waiting(&pod).map(|(reason, _)| reason).as_deref(), Some("ContainerCreating"));
    let (phases, _) = fixture.watch("p", true, |pod| pod.is_none()).await;
    assert_eq!(phases, ["Pending", "Failed", "gone"]);
}

#[tokio::test]
async fn a_privileged_container_has_the_devices_of_the_machine_and_leaves_nothing_in_its_dev() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    let message = Path::new("/dev/termination-log");
    assert!(!message.exists(), "something else has left it there");
    let devices = windlass_node::oci::devices::below(Path::new("/dev")).expect("read");
    let seen = |kind: bool| devices.iter().find(|device| device.is_block == kind);
    let tests: Vec<String> = [(true, "-b"), (false, "-c")]
        .into_iter()
        .filter_map(|(kind, test)| Some(format!("[ {test} {} ]", seen(kind)?.path.display())))
        .collect();
    assert!(!tests.is_empty(), "{devices:?}");
    let mut privileged =
        script(&format!("{} && : > /dev/left && echo fine > /dev/termination-log", tests.join(" && ")));
    privileged["securityContext"] = json!({"privileged": true});
    fixture.create("p", never(json!([privileged]))).await;
    let pod = fixture.ended("p").await;
    let want = (vec!["c Completed 0 restarts=0".to_owned()], "Succeeded");
    assert_eq!((ends(&pod), phase(&pod)), want, "{:?}", pod.status);
    assert!(!message.exists() && !Path::new("/dev/left").exists(), "nothing is left on the machine");
}
