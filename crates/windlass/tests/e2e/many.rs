//! Many pods at once on one node.

use std::fs::OpenOptions;
use std::path::Path;

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;
use rustix::fs::Mode;
use serde_json::json;

use crate::server::{Served, wait_for};
use crate::support::{complete, plain, processes_with_variable, wait_until};

const PODS: usize = 500;
const MARK: &str = "MANY_TEST";
/// What the server may take of memory at most, with its node and in a build without optimisation.
const MEMORY_KIB_MAX: u64 = 400 << 10;

/// The most memory that a process had, in KiB.
fn memory_peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn job(gate: &Path, mark: &str) -> Job {
    // Opening the pipe takes until somebody writes to it: all wait there, and nothing looks again and again.
    let script = format!("echo here; setsid sleep 1000 & : < {}", gate.display());
    let container = json!({
        "name": "c", "image": "host", "command": ["sh", "-c", script], "env": [{"name": MARK, "value": mark}],
    });
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({
        "metadata": {"name": "many"},
        "spec": {"completions": PODS, "parallelism": PODS, "backoffLimit": 0, "template": template},
    });
    serde_json::from_value(job).expect("a Job")
}

#[tokio::test]
async fn five_hundred_pods_run_at_the_same_time_and_all_succeed() {
    let directory = tempfile::tempdir().expect("a directory");
    let gate = directory.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let mark = directory.path().to_str().expect("UTF-8");
    let served = Served::start_in_shell(directory.path());
    let jobs = Api::<Job>::default_namespaced(served.client().await);
    jobs.create(&PostParams::default(), &job(&gate, mark)).await.expect("created");
    let status = async || json!(jobs.get("many").await.expect("the Job").status.unwrap_or_default());
    wait_for("500 pods that run", async || {
        let status = status().await;
        assert!(status.get("failed").is_none(), "{status}");
        (status["active"] == PODS && status["ready"] == PODS).then_some(())
    })
    .await;
    // In each a shell and a process that left for a session of its own.
    assert_eq!(processes_with_variable(MARK, mark).len(), 2 * PODS);
    let open = OpenOptions::new().write(true).open(&gate).expect("all are waiting to read");
    let status = wait_for("the end of the Job", async || {
        let status = status().await;
        (status.get("completionTime").is_some() || status.get("failed").is_some()).then_some(status)
    })
    .await;
    drop(open);
    assert_eq!(plain(status, "many"), complete(json!({"succeeded": PODS})));
    assert_eq!(processes_with_variable(MARK, mark).len(), 0, "an end is reported when nothing is left");
    let memory = memory_peak(served.pid());
    eprintln!("the server had {} MiB at most", memory >> 10);
    assert!(memory < MEMORY_KIB_MAX, "{memory} KiB");
    assert_eq!(served.stop(), Some(0));
    wait_until("the end of every process", || processes_with_variable(MARK, mark).is_empty().then_some(()));
}
