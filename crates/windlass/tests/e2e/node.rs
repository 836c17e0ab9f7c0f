//! `windlass node`: a node in a process of its own, which can be killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::{self, Served};
use crate::support::{PATIENCE, Running, run, windlass};

/// A node that is reached by an address and a token.
pub fn with_token(directory: &Path, token: &str, name: &str) -> Running {
    let mut running = Running::spawn(&mut command(directory, token, name));
    running.wait_for_lines(&[&format!("runs node {name}")]);
    running
}

/// The command that runs such a node.
pub fn command(directory: &Path, token: &str, name: &str) -> Command {
    windlass(&args(directory, token, name))
}

/// Its arguments.
pub fn args(directory: &Path, token: &str, name: &str) -> Vec<String> {
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
        "--isolation",
        "none",
    ];
    args.map(str::to_owned).to_vec()
}

/// A token that lets the node `two` do all that it has to.
pub fn token(directory: &Path) -> String {
    let made = run(&["token", "--data-dir", directory.to_str().expect("UTF-8"), "--node", "two"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
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

/// Waits until a pod has a phase.
pub async fn until(client: &Client, name: &str, phase: &str) -> Value {
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

#[tokio::test]
async fn a_node_with_a_token_of_its_own_runs_pods_and_touches_nothing_of_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "1"]);
    let client = served.client().await;
    let token = token(directory.path());
    let node = with_token(directory.path(), &token, "two");
    let secret = json!({"metadata": {"name": "word"}, "stringData": {"word": "open sesame"}});
    Api::<Secret>::default_namespaced(client.clone())
        .create(&PostParams::default(), &serde_json::from_value(secret).expect("a Secret"))
        .await
        .expect("created");
    // All that a node asks the server for: a Secret, the token of an account, and a report of the end.
    let pod = json!({
        "metadata": {"name": "mine"},
        "spec": {
            "nodeName": "two", "restartPolicy": "Never",
            "containers": [{
                "name": "c", "image": "host", "command": ["sh", "-c", "[ \"$WORD\" = 'open sesame' ] && [ -s /var/lib/token/it ]"],
                "env": [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "word", "key": "word"}}}],
                "volumeMounts": [{"name": "token", "mountPath": "/var/lib/token"}],
            }],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "it"}}]}}],
        },
    });
    let other = json!({
        "metadata": {"name": "other"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "host", "command": ["sleep", "1000"]}]},
    });
    let pods = Api::<Pod>::default_namespaced(client.clone());
    // A node tells why a container does not start.
    let waits = json!({
        "metadata": {"name": "waits"},
        "spec": {"nodeName": "two", "containers": [{
            "name": "c", "image": "host", "command": ["true"], "envFrom": [{"configMapRef": {"name": "missing"}}],
        }]},
    });
    for pod in [pod, other, waits] {
        let pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&PostParams::default(), &pod).await.expect("created");
    }
    until(&client, "mine", "Succeeded").await;
    until(&client, "other", "Running").await;
    let events = Api::<Event>::default_namespaced(client.clone());
    let of_waits = ListParams::default().fields("involvedObject.name=waits,reason=Failed");
    let start = std::time::Instant::now();
    while events.list(&of_waits).await.expect("a list").items.is_empty() {
        assert!(start.elapsed() < PATIENCE, "the node has told why the container waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let two = server::client(server::with_token(served.kubeconfig(), &token)).await;
    let refused = |error: kube::Error| match error {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        error => panic!("{error}"),
    };
    let theirs = Api::<Pod>::default_namespaced(two.clone());
    let deleted = theirs.delete("other", &DeleteParams::default()).await.map(drop).expect_err("forbidden");
    let why =
        r#"pods "other" is forbidden: node "two" can only delete pods with spec.nodeName set to itself"#;
    assert_eq!(refused(deleted), (403, why.to_owned()));
    let patch = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let patched = theirs.patch_status("other", &PatchParams::default(), &patch).await.expect_err("forbidden");
    let why = r#"pods "other" is forbidden: node "two" can only update pod status for pods with spec.nodeName set to itself"#;
    assert_eq!(refused(patched), (403, why.to_owned()));
    let nodes = Api::<Node>::all(two);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let patched = nodes.patch("node-1", &PatchParams::default(), &patch).await.expect_err("forbidden");
    let why = r#"nodes "node-1" is forbidden: node "two" is not allowed to modify node "node-1""#;
    assert_eq!(refused(patched), (403, why.to_owned()));
    node.signal(Signal::TERM);
    assert_eq!(node.finish().code, Some(0));
}
