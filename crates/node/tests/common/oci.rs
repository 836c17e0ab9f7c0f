//! Nodes that run images, and short ways to look at their containers.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use windlass_node::backoff::Limits;
use windlass_node::images::{Images, Settings};
use windlass_node::oci::Kind;
use windlass_node::{Config, Oci, oci};

use super::fixture::{Fixture, status};
use super::images::{TestImage, write_layout};

/// A runtime of this machine.
pub fn runtime(kind: Kind) -> oci::Runtime {
    let path = std::env::var_os("PATH").expect("a path");
    oci::Runtime::find_kind(&path, kind).unwrap_or_else(|| panic!("the package of {kind:?} is installed"))
}

/// A node with images, and the runtime that is taken where there is a choice.
pub async fn node(settings: Settings) -> (Fixture, Arc<Images>, tempfile::TempDir) {
    node_that(Kind::Crun, settings, |_| {}).await
}

/// A node with images and another configuration.
pub async fn node_that(
    kind: Kind,
    settings: Settings,
    change: impl FnOnce(&mut Config),
) -> (Fixture, Arc<Images>, tempfile::TempDir) {
    let kept = tempfile::tempdir().expect("a directory");
    let settings = Settings { directory: kept.path().join("images"), ..settings };
    let images = Arc::new(Images::open(settings).expect("opened"));
    let fixture = Fixture::with(|config| {
        config.oci = Some(Oci { runtime: runtime(kind), images: Arc::clone(&images) });
        config.survey_every = Duration::from_millis(200);
        config.image_backoff = Limits { base: Duration::from_millis(100), max: Duration::from_secs(1) };
        change(config);
    })
    .await;
    (fixture, images, kept)
}

/// A node whose images are those of a layout with this one.
pub async fn node_with(kind: Kind, image: &TestImage) -> (Fixture, [tempfile::TempDir; 2]) {
    let layout = tempfile::tempdir().expect("a directory");
    write_layout(layout.path(), "test/busybox:1", image);
    let settings = Settings { image_dirs: vec![layout.path().to_owned()], ..Settings::default() };
    let (fixture, _, kept) = node_that(kind, settings, |_| {}).await;
    (fixture, [layout, kept])
}

/// A container that runs a script in the image of [`node_with`].
pub fn script(script: &str) -> Value {
    json!({"name": "c", "image": "test/busybox:1", "command": ["sh", "-c", script]})
}

/// What its only container printed in its first run.
pub fn log(fixture: &Fixture, pod: &Pod) -> String {
    std::fs::read_to_string(fixture.log(pod, "c", 0)).expect("a log")
}

/// What a container says: the waiting state as `reason: message`.
pub fn waiting(pod: &Pod) -> Option<(String, String)> {
    let all = status(pod).container_statuses.as_ref()?;
    let waiting = all.first()?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
}

/// Whether it waits for such a reason.
pub fn waits_with(reason: &'static str) -> impl Fn(&Pod) -> bool {
    move |pod| waiting(pod).is_some_and(|(found, _)| found == reason)
}
