//! Failure policies and per-index limits, through the driver.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::tap::{Tap, Verdict};
use crate::world::{Fate, World, finished, has, index, is_held, ledger, quick};

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_failure_is_written_before_any_finalizer_goes() {
    let world = World::new();
    let tap = Tap::new(&world, |_, _| Verdict::Pass);
    let controller = world.start(tap.client(), quick());
    let _kubelet = world.kubelet(|pod| if index(pod) == 1 { Fate::Exit(42) } else { Fate::Run });
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "podFailurePolicy": policy});
    world.create_job("j", spec).await;
    let job = world.until_job("j", |job| has(job, "Failed")).await;
    let conditions = ["Failed=True PodFailurePolicy", "FailureTarget=True PodFailurePolicy"];
    assert_eq!(ledger(&job), finished(0, 3, None, &conditions));
    world.until_pods(|pods| pods.iter().all(|pod| !is_held(pod))).await;
    let writes = tap.writes();
    let announced = writes
        .iter()
        .position(|write| write.path.ends_with("/status") && write.body.contains("FailureTarget"))
        .expect("the reason is written");
    let released = writes.iter().position(|write| write.body.contains("$deleteFromPrimitiveList/finalizers"));
    assert!(released.is_some_and(|released| announced < released), "{writes:#?}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_pod_of_an_index_knows_how_often_the_index_failed() {
    const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|pod| Fate::Exit(if index(pod) == 0 { 1 } else { 0 }));
    let spec = json!({
        "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 2,
    });
    world.create_job("j", spec).await;
    let job = world.until_finished("j").await;
    let mut expected = finished(1, 3, Some("1"), &["Failed=True FailedIndexes", "FailureTarget=True FailedIndexes"]);
    expected["failedIndexes"] = json!("0");
    assert_eq!(ledger(&job), expected);
    let pods = world.until_pods(|pods| pods.len() == 4).await;
    let mut counts: Vec<(u32, String)> =
        pods.iter().map(|pod: &Pod| (index(pod), pod.annotations()[FAILURES].clone())).collect();
    counts.sort();
    let expected = [(0, "0"), (0, "1"), (0, "2"), (1, "0")].map(|(index, count)| (index, count.to_owned()));
    assert_eq!(counts, expected);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_draft_policy_reaches_the_decision() {
    let world = World::new();
    let gates = windlass_api::Gates { retriable_and_non_retriable_failures: true, ..Default::default() };
    let server = windlass_apiserver::Server::new(windlass_apiserver::Config { gates, ..Default::default() });
    let world = World { client: kube::Client::new(server.router(), "default"), server, ..world };
    let config = windlass_controllers::job::Config { gates, ..quick() };
    let controller = world.start(world.client.clone(), config);
    let _kubelet = world.kubelet(|_| Fate::Exit(101));
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {
            "backoffPolicy": {"rules": [{"action": "Terminate", "onExitCode": {"operator": "In", "values": "100-127"}}]},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}},
        },
    });
    _ = job;
    controller.stop().await;
}
