//! Real processes of `windlass controller` on the real kube-apiserver, whose audit log says who wrote what.

use std::path::Path;

use futures::StreamExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_conformance::{Cluster, cluster};

use crate::support::{PATIENCE, Running, wait_until, windlass};

/// An account of its own for a replica, so that the log tells replicas apart.
async fn kubeconfig(cluster: &Cluster, client: &Client, name: &str) -> std::path::PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
    accounts.create(&PostParams::default(), &account).await.expect("created");
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    });
    let binding = serde_json::from_value(binding).expect("a binding");
    bindings.create(&PostParams::default(), &binding).await.expect("created");
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await.expect("a token");
    let token = token.status.and_then(|status| status.token).expect("a token");
    cluster.kubeconfig_for(name, &token).expect("a kubeconfig")
}

fn start(kubeconfig: &Path) -> Running {
    let base = ["controller", "--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let more = ["--listen-health", "127.0.0.1:0", "--leader-elect-resource-namespace", "default"];
    let times = [
        "--leader-elect-lease-duration=10s",
        "--leader-elect-renew-deadline=8s",
        "--leader-elect-retry-period=1s",
    ];
    let args: Vec<&str> = base.into_iter().chain(more).chain(times).collect();
    Running::spawn(&mut windlass(&args))
}

/// The writes in the order in which they came: who, to what. A request whose body never came, because its sender was
/// stopped in the middle of it, is in the log as well, with an error: it wrote nothing.
fn writes(log: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|entry| entry["stage"] == "ResponseComplete")
        .filter(|entry| entry["responseStatus"]["code"].as_i64().is_some_and(|code| code < 300))
        .filter(|entry| ["create", "update", "patch", "delete"].iter().any(|verb| entry["verb"] == *verb))
        .map(|entry| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&entry["user"]["username"]), text(&entry["objectRef"]["resource"]))
        })
        .collect()
}

/// Every pod succeeds, from now on.
fn kubelet(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    tokio::spawn(async move {
        // With a pause after each error: without, it would never let go of its thread once the server is gone.
        let mut changes =
            watcher::watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
        while let Some(change) = changes.next().await {
            let Ok(Event::Apply(pod) | Event::InitApply(pod)) = change else { continue };
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Pending") {
                let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                // It may be gone.
                _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await;
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_writes_nothing_on_the_real_api_server_either() {
    const PODS: i32 = 300;
    let files = tempfile::tempdir().expect("a directory");
    let (policy, log) = (files.path().join("policy.yaml"), files.path().join("audit.log"));
    let metadata =
        json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
    std::fs::write(&policy, metadata.to_string()).expect("written");
    let apiserver = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let options = cluster::Options { apiserver, ..cluster::Options::default() };
    let cluster = Cluster::start_with(&options).await.expect("a cluster");
    let client = cluster.client().await.expect("a client");
    // Pods run as this account; nobody else makes it here.
    kubeconfig(&cluster, &client, "default").await;
    let mut a = start(&kubeconfig(&cluster, &client, "a").await);
    a.wait_for_lines(&["leads by the lease"]);
    let mut b = start(&kubeconfig(&cluster, &client, "b").await);
    b.wait_for_lines(&["waits for the lease"]);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {
            "managedBy": "windlass.dev/job-controller", "completions": PODS, "parallelism": PODS,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}},
        },
    });
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let job = serde_json::from_value(job).expect("a Job");
    jobs.create(&PostParams::default(), &job).await.expect("created");
    let user = |name: &str| format!("system:serviceaccount:default:{name}");
    let is_work = |(who, what): &(String, String), name: &str| *who == user(name) && what != "leases";
    wait_until("some pods", || (writes(&log).iter().filter(|w| is_work(w, "a")).count() > 20).then_some(()));
    a.signal(Signal::STOP);
    b.wait_for_lines(&["leads by the lease"]);
    wait_until("work", || writes(&log).iter().any(|write| is_work(write, "b")).then_some(()));
    let taken_over = writes(&log).len();
    a.signal(Signal::CONT);
    a.wait_for_lines(&["lost the lease"]);
    a.wait_for_nth("waits for the lease", 2);
    kubelet(&client);
    let start = std::time::Instant::now();
    let job = loop {
        let job = jobs.get("j").await.expect("the Job");
        if job.status.as_ref().is_some_and(|status| status.completion_time.is_some()) {
            break job;
        }
        assert!(start.elapsed() < PATIENCE, "{job:#?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(job.status.expect("a status").succeeded, Some(PODS));
    let late: Vec<_> = writes(&log).drain(taken_over..).filter(|write| is_work(write, "a")).collect();
    assert_eq!(late, [], "after another had taken over");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pods = pods.list(&ListParams::default()).await.expect("pods");
    assert_eq!(pods.items.len(), usize::try_from(PODS).expect("positive"), "never-too-many");
    for running in [a, b] {
        running.signal(Signal::TERM);
        assert_eq!(running.finish().code, Some(0));
    }
}
