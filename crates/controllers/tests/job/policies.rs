//! Failure policies and per-index limits, through the driver.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use windlass_api::Gates;
use windlass_controllers::job::{Config, JobKey, Observer};
use windlass_job::Decision;
use windlass_job::trace::Note;

use crate::tap::{Tap, Verdict};
use crate::world::{Fate, NAMESPACE, World, finished, has, index, is_held, ledger, quick};

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_failure_is_written_before_any_finalizer_goes() {
    let world = World::new();
    let tap = Tap::new(&world, |_, _| Verdict::Pass);
    let controller = world.start(tap.client(), quick());
    let _kubelet = world.kubelet(|pod| if index(pod) == 1 { Fate::Exit(42) } else { Fate::Run });
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let spec =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "podFailurePolicy": policy});
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
    let uids: Vec<String> = writes
        .iter()
        .filter(|write| write.path.contains("/pods/"))
        .map(|write| {
            let body: serde_json::Value = serde_json::from_str(&write.body).unwrap();
            let place = if write.method == "DELETE" { "/preconditions/uid" } else { "/metadata/uid" };
            body.pointer(place).and_then(|uid| uid.as_str()).unwrap_or_default().to_owned()
        })
        .collect();
    assert_eq!(uids.len(), 5, "two deletions, three releases");
    assert!(uids.iter().all(|uid| !uid.is_empty()), "each names the pod that was decided on: {writes:#?}");
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
    let mut expected =
        finished(1, 3, Some("1"), &["Failed=True FailedIndexes", "FailureTarget=True FailedIndexes"]);
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
    let gates = Gates { retriable_and_non_retriable_failures: true, ..Gates::default() };
    let world = World::with_gates(gates);
    let controller = world.start(world.client.clone(), Config { gates, ..quick() });
    let _kubelet = world.kubelet(|_| Fate::Exit(101));
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": NAMESPACE},
        "spec": {
            "backoffPolicy": {"rules": [{"action": "Terminate", "containerExitCodeIn": "1-12,100-127"}]},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}},
        },
    });
    // A typed Job has no such field.
    let jobs: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), NAMESPACE, &ApiResource::erase::<Job>(&()));
    let job: DynamicObject = serde_json::from_value(job).unwrap();
    jobs.create(&PostParams::default(), &job).await.expect("created");
    let job = world.until_finished("j").await;
    let conditions = ["Failed=True PodFailurePolicy", "FailureTarget=True PodFailurePolicy"];
    assert_eq!(ledger(&job), finished(0, 1, None, &conditions));
    controller.stop().await;
}

#[derive(Default)]
struct Notes(Mutex<Vec<(String, Note)>>);

impl Observer for Notes {
    fn decided(&self, job: &JobKey, decision: &Decision) {
        self.0.lock().extend(decision.because.0.iter().map(|note| (job.name.clone(), note.clone())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_observer_hears_why_a_job_ends() {
    let world = World::new();
    let notes = Arc::new(Notes::default());
    let config = Config { observer: Some(notes.clone()), ..quick() };
    let controller = world.start(world.client.clone(), config);
    let _kubelet = world.kubelet(|_| Fate::Exit(42));
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    world.create_job("j", json!({"podFailurePolicy": policy})).await;
    world.until_finished("j").await;
    controller.stop().await;
    let said: Vec<String> = notes.0.lock().iter().map(|(job, note)| format!("{job}: {note}")).collect();
    let pod = &world.until_pods(|pods| pods.len() == 1).await[0];
    let why = format!(
        "j: the Job fails (PodFailurePolicy): pod {}, rule 0 (FailJob) matches exit code 42 of container main",
        pod.name_any()
    );
    assert_eq!(said.iter().filter(|line| **line == why).count(), 1, "{said:#?}");
}
