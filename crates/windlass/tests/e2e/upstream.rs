//! The upstream end-to-end tests of Jobs, unchanged: on a server with two nodes, with images that are made here and
//! pulled from a registry on loopback in the place of `registry.k8s.io`.

#[expect(dead_code, reason = "the tests of the node use all of it")]
#[path = "../../../node/tests/common/images.rs"]
pub mod images;

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;
use windlass_conformance::assets;

use crate::support::{Running, windlass};
use images::{Registry, busybox};

/// How many there are in v1.36.4, without the one about gangs: what that tests is alpha.
const COUNT: u32 = 31;
const ALL: &str = r"\[sig-apps\] Job ";
const NOT_OURS: &str = "gang-eligible";

/// Parts of names. Those that have one are run beside the others, because most of their time is back-off.
const APART: [&str; 3] = [
    "ignore failure matching on exit code",
    "ignore failure matching on DisruptionTarget",
    "backoffLimit|replacement policy|orphans|successPolicy",
];
/// They ask to be alone on a cluster.
const ALONE: &str = r"\[Serial\]";

#[tokio::test]
async fn the_upstream_tests_of_jobs_pass() {
    let registry = registry().await;
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path(), &registry);

    let rest = [&APART[..], &[ALONE, NOT_OURS]].concat().join("|");
    let runs = APART.map(|part| (format!("{ALL}.*({part})"), ALONE));
    let runs = runs.iter().map(|(focus, skip)| (focus.as_str(), *skip)).chain([(ALL, rest.as_str())]);
    let beside = runs.map(|(focus, skip)| run(directory.path(), focus, skip));
    let mut passed: u32 = futures::future::join_all(beside).await.iter().sum();
    passed += run(directory.path(), &format!("{ALL}.*{ALONE}"), NOT_OURS).await;

    assert_eq!(passed, COUNT);
    server.signal(Signal::TERM);
    let stopped = server.finish();
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
}

/// A registry with the images that the tests use, by the names and tags that v1.36.4 has for them.
async fn registry() -> Registry {
    let registry = Registry::start(None);
    registry.push("e2e-test-images/busybox", "1.37.0-1", &busybox(json!({"Cmd": ["sh"]})), None).await;
    // As the real one, it waits to be told to end, and then ends well.
    let pause = "trap 'exit 0' INT TERM; while :; do sleep 3600 & wait $!; done";
    let pause = busybox(json!({"Entrypoint": ["sh", "-c", pause], "User": "65535:65535"}));
    registry.push("pause", "3.10.2", &pause, None).await;
    registry
}

fn serve(directory: &Path, registry: &Registry) -> Running {
    let mirror = format!("registry.k8s.io=http://{}", registry.address);
    let place = directory.to_str().expect("UTF-8");
    let args =
        ["server", "--data-dir", place, "--listen", "127.0.0.1:0", "--nodes", "2", "--image-mirror", &mirror];
    let mut running = Running::spawn(&mut windlass(&args));
    running.wait_for_lines(&["is ready at https://127.0.0.1:", "kubectl get jobs"]);
    running
}

/// Runs the tests whose names match, and tells how many passed: all of them.
async fn run(directory: &Path, focus: &str, skip: &str) -> u32 {
    let mut command = tokio::process::Command::new(assets::find("e2e.test").expect("the tests"));
    command
        .arg(format!("--kubeconfig={}", directory.join("kubeconfig").display()))
        .args(["--provider=skeleton", "--ginkgo.no-color", "--ginkgo.timeout=10m"])
        .arg(format!("--ginkgo.focus={focus}"))
        .arg(format!("--ginkgo.skip={skip}"))
        .current_dir(directory)
        .env("HOME", directory)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    let told = || {
        let lines = said.lines().filter(|line| !line.contains("SSSSSSSS"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert!(output.status.success(), "{focus}: {}\n{}", told(), String::from_utf8_lossy(&output.stderr));
    // Such as `SUCCESS! -- 15 Passed | 0 Failed | 0 Pending | 7564 Skipped`.
    let summary = said
        .lines()
        .find_map(|line| line.strip_prefix("SUCCESS! -- "))
        .unwrap_or_else(|| panic!("{}", told()));
    println!("{focus}: {summary}");
    let passed =
        summary.split_once(" Passed | 0 Failed | 0 Pending | ").and_then(|(passed, _)| passed.parse().ok());
    passed.unwrap_or_else(|| panic!("{summary}"))
}
