//! `windlass node`: a node in a process of its own, which can be killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::Served;
use crate::support::{PATIENCE, Running, windlass};

/// A node that is reached by an address and a token.
fn with_token(directory: &Path, token: &str, name: &str) -> Running {
    let mut running = Running::spawn(&mut command(directory, token, name));
    running.wait_for_lines(&[&format!("runs node {name}")]);
    running
}

/// The command that runs such a node.
pub fn command(directory: &Path, token: &str, name: &str) -> Command {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let kubeconfig = std::fs::read_to_string(directory.join("kubeconfig")).expect("a kubeconfig");
    let server =
        kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).expect("an address");
    let args = [
        "node",
        "--name",
        name,
        "--server",
        server.trim_matches('"'),
        "--token",
        token,
        "--certificate-authority",
        &text(&directory.join("pki/ca.crt")),
        "--data-dir",
        &text(&directory.join(name)),
    ];
    windlass(&args)
}

/// A token that lets a node do all that it has to.
pub fn token(directory: &Path) -> String {
    let place = directory.to_str().expect("UTF-8");
    let made =
        crate::support::run(&["token", "--data-dir", place, "--user", "two", "--group", "system:masters"]);
    made.stdout.trim().to_owned()
}

async fn create(client: &Client, name: &str, policy: &str, script: &str) {
    let container = json!({"name": "c", "image": "host", "command": ["sh", "-c", script]});
    let pod = json!({
        "metadata": {"name": name}, "spec": {"restartPolicy": policy, "containers": [container]},
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    Api::<Pod>::default_namespaced(client.clone())
        .create(&PostParams::default(), &pod)
        .await
        .expect("created");
}

async fn until(client: &Client, name: &str, phase: &str) -> Value {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let start = std::time::Instant::now();
    loop {
        let pod = json!(pods.get(name).await.expect("the pod"));
        if pod["status"]["phase"] == phase {
            return pod;
        }
        assert!(start.elapsed() < PATIENCE, "{name} is not {phase}: {pod}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_killed_node_leaves_nothing_running_and_the_next_one_begins_no_run_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let client = served.client().await;
    let token = token(directory.path());
    let mut node = with_token(directory.path(), &token, "two");
    // Pods of a node apart from the server have a token of the server.
    let at = "/var/run/secrets/kubernetes.io/serviceaccount";
    create(
        &client,
        "token",
        "Never",
        &format!("[ $(wc -c < {at}/token) -gt 100 ] && [ -s {at}/ca.crt ] && cat {at}/namespace"),
    )
    .await;
    until(&client, "token", "Succeeded").await;
    let runs = directory.path().join("runs");
    let script = |name: &str| format!("echo {name} >> {}; while :; do sleep 0.01; done", runs.display());
    create(&client, "never", "Never", &script("never")).await;
    create(
        &client,
        "again",
        "OnFailure",
        &format!("[ -e {0}.done ] || {{ : > {0}.done; {1}; }}", runs.display(), script("again")),
    )
    .await;
    for name in ["never", "again"] {
        until(&client, name, "Running").await;
    }
    node.signal(Signal::KILL);
    node.child.wait().expect("it was ours");
    let node = with_token(directory.path(), &token, "two");
    let never = until(&client, "never", "Failed").await;
    let end = &never["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&end["reason"], &end["exitCode"]), (&json!("ContainerStatusUnknown"), &json!(137)));
    let again = until(&client, "again", "Succeeded").await;
    assert_eq!(again["status"]["containerStatuses"][0]["restartCount"], 1);
    let mut lines: Vec<_> =
        std::fs::read_to_string(&runs).expect("written").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["again", "never"], "each was begun once");
    // A node that is told to stop says so.
    create(&client, "last", "Never", "while :; do sleep 0.01; done").await;
    until(&client, "last", "Running").await;
    node.signal(Signal::TERM);
    assert_eq!(node.finish().code, Some(0));
    let last = until(&client, "last", "Failed").await;
    assert_eq!(last["status"]["reason"], "Terminated");
    let conditions = last["status"]["conditions"].as_array().expect("conditions");
    assert!(
        conditions.iter().any(|c| c["type"] == "DisruptionTarget" && c["reason"] == "TerminationByKubelet")
    );
    assert_eq!(served.stop(), Some(0));
}
