//! Containers of images: real images, a real registry, a real OCI runtime.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::fixture::{Fixture, ends, never, phase, status};
use common::images::{Archive, Registry, TestImage, blobs, busybox, write_layout, write_saved};
use common::{processes_with, unique_sleep, wait_for, wait_for_text};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tar::EntryType;
use windlass_node::backoff::Limits;
use windlass_node::images::registry::Mirrors;
use windlass_node::images::{Images, Policy, Settings};
use windlass_node::{Oci, oci};

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
    let kept = tempfile::tempdir().expect("a directory");
    let settings = Settings { directory: kept.path().join("images"), ..settings };
    let images = Arc::new(Images::open(settings).expect("opened"));
    let fixture = Fixture::with(|config| {
        config.oci = Some(Oci { runtime: runtime(), images: Arc::clone(&images) });
        config.image_backoff = Limits { base: Duration::from_millis(100), max: Duration::from_secs(1) };
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

#[tokio::test]
async fn a_container_of_an_image_ends_with_its_exit_code() {
    let (fixture, _kept) = node_with(&busybox(json!({}))).await;
    for (name, text, want) in [
        ("good", "echo out; echo err >&2", "c Completed 0 restarts=0"),
        ("bad", "exit 42", "c Error 42 restarts=0"),
        ("killed", "kill -9 $$$$; sleep 9; exit 7", "c Error 7 restarts=0"),
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
