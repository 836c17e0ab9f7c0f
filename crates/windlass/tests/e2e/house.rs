//! What ends pods of `windlass server`: taints and evictions, and the budgets and leases that hold them back.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::server::Served;
use crate::support::PATIENCE;

/// Asks again until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("it is created");
}

/// A Job that runs for long, and fails by its policy when its pod is disrupted.
fn job(name: &str) -> Value {
    let rules = json!([{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]);
    let container = json!({"name": "main", "image": "host", "command": ["sleep", "600"]});
    let pod =
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]});
    let template = json!({"metadata": {"labels": {"of": name}}, "spec": pod});
    json!({"metadata": {"name": name}, "spec": {"podFailurePolicy": {"rules": rules}, "template": template}})
}

/// The ready pod of a Job.
async fn ready_pod(client: &Client, job: &str) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let its = ListParams::default().labels(&format!("of={job}"));
    until("a ready pod", async || {
        let pod = pods.list(&its).await.expect("pods").items.into_iter().next()?;
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        is_ready.then_some(pod.metadata.name).flatten()
    })
    .await
}

/// Waits for the end of a Job, and gives the reason.
async fn reason_of_end(client: &Client, job: &str) -> String {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    until("the end of a job", async || {
        let conditions = jobs.get(job).await.expect("the job").status?.conditions?;
        conditions.into_iter().find(|one| one.type_ == "Failed")?.reason
    })
    .await
}

/// A client tries again for minutes when a budget does not allow it.
async fn evict(client: &Client, pod: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    let sent =
        pods.create_subresource::<Value, Value>("eviction", pod, &PostParams::default(), &eviction).await;
    sent.expect("the pod is evicted");
}

/// Waits until a budget allows so many evictions.
async fn until_allowed(budgets: &Api<PodDisruptionBudget>, count: i32) {
    until("what a budget allows", async || {
        let status = budgets.get("b").await.expect("the budget").status?;
        (status.current_healthy == Some(1) && status.disruptions_allowed == Some(count)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pods_of_a_server_leave_by_taint_and_by_eviction_as_far_as_a_budget_allows() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "1"]);
    let client = served.client().await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = until("a lease", async || leases.get_opt("node-1").await.expect("leases")).await;
    assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("node-1"));

    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    create(&jobs, job("guarded")).await;
    let pod = ready_pod(&client, "guarded").await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    let selector = json!({"matchLabels": {"of": "guarded"}});
    create(&budgets, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}))
        .await;
    until_allowed(&budgets, 0).await;
    let fewer = Patch::Merge(json!({"spec": {"minAvailable": 0}}));
    budgets.patch("b", &PatchParams::default(), &fewer).await.expect("the budget is changed");
    until_allowed(&budgets, 1).await;
    evict(&client, &pod).await;
    assert_eq!(reason_of_end(&client, "guarded").await, "PodFailurePolicy");

    create(&jobs, job("tainted")).await;
    ready_pod(&client, "tainted").await;
    let nodes: Api<Node> = Api::all(client.clone());
    let taint =
        Patch::Merge(json!({"spec": {"taints": [{"key": "example.com/out", "effect": "NoExecute"}]}}));
    nodes.patch("node-1", &PatchParams::default(), &taint).await.expect("the node is tainted");
    assert_eq!(reason_of_end(&client, "tainted").await, "PodFailurePolicy");
    let metrics = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let metrics = client.request_text(metrics).await.expect("figures");
    let line = "taint_eviction_controller_pod_deletions_total 1\n";
    assert!(metrics.contains(line), "{line} in {metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    let queues: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| {
            line.strip_prefix("workqueue_adds_total{name=\"")?.split_once('"').map(|(name, _)| name)
        })
        .collect();
    let page = include_str!("../../../../docs/metrics.md");
    let (_, told) = page.split_once("| controller | queues |\n|---|---|\n").expect("a table");
    let told: BTreeSet<&str> =
        told.split_once("\n\n").expect("its end").0.split('`').skip(1).step_by(2).collect();
    assert_eq!(queues, told, "the queues that there are, and those that the docs name");
    assert_eq!(served.stop(), Some(0));
}
