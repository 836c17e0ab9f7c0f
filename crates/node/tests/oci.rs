//! Containers of images: real images, a real registry, real OCI runtimes.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::fixture::{Fixture, ends, never, phase, seen, status};
use common::images::{Archive, Registry, TokenRegistry, blobs, busybox, write_layout, write_saved};
use common::oci::{log, node, node_that, node_with, script, waiting, waits_with};
use common::{children, is_user, processes_in, processes_with, unique_sleep, wait_for, wait_for_text};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tar::EntryType;
use tokio::io::AsyncWriteExt;
use windlass_node::images::manifest::Packing;
use windlass_node::images::registry::Mirrors;
use windlass_node::images::{Images, Policy, Settings};
use windlass_node::memory;
use windlass_node::oci::Kind;
use windlass_node::streams::Nodes;
use windlass_streams::{Exec, PodStreams, Streams};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

mod crun {
    const RUNTIME: Kind = Kind::Crun;
    include!("oci/containers.rs");
}

mod runc {
    const RUNTIME: Kind = Kind::Runc;
    include!("oci/containers.rs");
}

mod youki {
    const RUNTIME: Kind = Kind::Youki;
    include!("oci/containers.rs");
}

#[path = "oci/rootless.rs"]
mod rootless;

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
async fn layers_may_be_packed_by_gzip_zstd_or_not_at_all() {
    let registry = Registry::start(None);
    let (fixture, _images, _kept) = node(Settings::default()).await;
    for (name, packing) in [("plain", Packing::Plain), ("gzip", Packing::Gzip), ("zstd", Packing::Zstd)] {
        let mut image = busybox(json!({"Cmd": ["cat", "/packed"]}));
        image.packing = packing;
        // Another one for each, so that none is there already.
        image.layers.push(Archive::new().file("packed", name).finish());
        registry.push("packed", name, &image, None).await;
        let image = format!("{}/packed:{name}", registry.address);
        fixture.create(name, never(json!([{"name": "c", "image": image}]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), (name, "Succeeded"));
    }
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
async fn an_image_that_may_not_be_pulled_is_found_when_it_comes_to_the_machine() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings { image_dirs: vec![directory.path().to_owned()], ..Settings::default() };
    let (fixture, _images, _kept) = node(settings).await;
    fixture.create("p", never(json!([{"name": "c", "image": "late:1", "imagePullPolicy": "Never"}]))).await;
    let pod = fixture.until("p", waits_with("ErrImageNeverPull")).await;
    assert_eq!(phase(&pod), "Pending");
    // Whole at once: half a file is another test.
    write_saved(&directory.path().join("late"), "late:1", &busybox(json!({"Cmd": ["echo", "late"]})));
    std::fs::rename(directory.path().join("late"), directory.path().join("late.tar")).expect("renamed");
    let pod = fixture.ended("p").await;
    assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("late\n", "Succeeded"));
}

#[tokio::test]
async fn a_pod_whose_image_has_no_good_name_runs_when_it_is_given_another() {
    let directory = tempfile::tempdir().expect("a directory");
    write_saved(&directory.path().join("good.tar"), "good:1", &busybox(json!({"Cmd": ["echo", "good"]})));
    let settings = Settings { image_dirs: vec![directory.path().to_owned()], ..Settings::default() };
    let (fixture, _images, _kept) = node(settings).await;
    fixture.create("p", never(json!([{"name": "c", "image": "bad//image"}]))).await;
    fixture.until("p", waits_with("InvalidImageName")).await;
    let patch = Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "image": "good:1"}]}}));
    fixture.pods.patch("p", &PatchParams::default(), &patch).await.expect("patched");
    let pod = fixture.ended("p").await;
    assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("good\n", "Succeeded"));
}

#[tokio::test]
async fn a_broken_archive_in_an_image_directory_keeps_no_other_image_from_its_pod() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("broken.tar"), [b'x'; 1024]).expect("written");
    write_saved(&directory.path().join("saved.tar"), "saved:1", &busybox(json!({"Cmd": ["echo", "fine"]})));
    let registry = Registry::start(None);
    registry.push("app", "v1", &busybox(json!({"Cmd": ["echo", "fine"]})), None).await;
    let settings = Settings { image_dirs: vec![directory.path().to_owned()], ..Settings::default() };
    let (fixture, _images, _kept) = node(settings).await;
    let pulled = format!("{}/app:v1", registry.address);
    for (name, image) in [("saved", "saved:1"), ("pulled", pulled.as_str())] {
        fixture.create(name, never(json!([{"name": "c", "image": image}]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), ("fine\n", "Succeeded"), "{name}");
    }
}

#[tokio::test]
async fn a_container_keeps_its_image_when_the_tag_moves_and_the_disk_is_full() {
    let registry = Registry::start(None);
    let text = "until test -e /data/go; do sleep 0.01; done; cat /version";
    let version = |version: &str| {
        let mut image = busybox(json!({"Cmd": ["sh", "-c", text]}));
        image.layers.push(Archive::new().file("version", version).finish());
        image
    };
    registry.push("app", "latest", &version("one"), None).await;
    let policy = Policy { high_percent: 0, low_percent: 0, min_age: Duration::ZERO };
    let (fixture, images, _kept) = node(Settings { policy, ..Settings::default() }).await;
    let host = tempfile::tempdir().expect("a directory");
    let image = format!("{}/app:latest", registry.address);
    let container = json!({
        "name": "c", "image": image, "imagePullPolicy": "Always",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    let mut spec = never(json!([container]));
    spec["volumes"] = json!([{"name": "data", "hostPath": {"path": host.path()}}]);
    fixture.create("old", spec.clone()).await;
    fixture.running("old").await;
    registry.push("app", "latest", &version("two"), None).await;
    fixture.create("new", spec).await;
    fixture.running("new").await;
    assert_eq!(images.collect().await.expect("looked"), [""; 0], "a pod uses it");
    std::fs::write(host.path().join("go"), "").expect("written");
    for (name, want) in [("old", "one"), ("new", "two")] {
        let pod = fixture.ended(name).await;
        assert_eq!((log(&fixture, &pod).as_str(), phase(&pod)), (want, "Succeeded"), "{name}");
    }
}

#[tokio::test]
async fn the_error_of_an_image_that_is_nowhere_names_the_archives_that_can_not_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("broken.tar"), [b'x'; 1024]).expect("written");
    let registry = Registry::start(None);
    let settings = Settings { image_dirs: vec![directory.path().to_owned()], ..Settings::default() };
    let (fixture, _images, _kept) = node(settings).await;
    let image = format!("{}/nowhere:v1", registry.address);
    fixture.create("p", never(json!([{"name": "c", "image": image}]))).await;
    let pod = fixture.until("p", waits_with("ErrImagePull")).await;
    let (_, message) = waiting(&pod).expect("it waits");
    assert!(message.contains("/nowhere@v1: not found; it may be in what can't be read: "), "{message}");
    assert!(message.contains("broken.tar: "), "{message}");
}
