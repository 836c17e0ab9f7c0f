//! What the controller counts, and what it tells people about verdicts.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use windlass_controllers::metrics::Metrics;

use crate::world::{Fate, NAMESPACE, World, has, index, quick};

/// The value of a series, 0 if there is none.
fn value(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.text();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().expect("a whole number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_index_job_and_verdict_is_counted_once() {
    let world = World::new();
    let metrics = Metrics::default();
    let mut config = quick();
    config.metrics = metrics.clone();
    let controller = world.start(world.client.clone(), config);
    // 0 succeeds, 1 fails for good, 2 fails in a way that does not count, once, and then counts, once.
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let _kubelet = world.kubelet(move |pod| match index(pod) {
        0 => Fate::Exit(0),
        1 => Fate::Exit(42),
        _ => match attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Fate::Exit(7),
            1 => Fate::Exit(8),
            _ => Fate::Exit(0),
        },
    });
    let on = |action, code| json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}});
    world
        .create_job(
            "j",
            json!({
                "completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1,
                "podFailurePolicy": {"rules": [on("FailIndex", 42), on("Ignore", 7), on("Count", 8)]},
            }),
        )
        .await;
    world.create_job("external", json!({"managedBy": "example.com/other"})).await;
    world.until_job("j", |job| has(job, "Failed")).await;
    controller.stop().await;
    let expected = [
        (
            "job_controller_jobs_finished_total{completion_mode=\"Indexed\",result=\"failed\",reason=\"FailedIndexes\"}",
            1,
        ),
        ("job_controller_job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"}", 2),
        ("job_controller_job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"}", 2),
        ("job_controller_job_finished_indexes_total{status=\"succeeded\",backoffLimit=\"perIndex\"}", 2),
        ("job_controller_job_finished_indexes_total{status=\"failed\",backoffLimit=\"perIndex\"}", 1),
        ("job_controller_pod_failures_handled_by_failure_policy_total{action=\"FailIndex\"}", 1),
        ("job_controller_pod_failures_handled_by_failure_policy_total{action=\"Ignore\"}", 1),
        ("job_controller_pod_failures_handled_by_failure_policy_total{action=\"Count\"}", 1),
        ("job_controller_terminated_pods_tracking_finalizer_total{event=\"add\"}", 5),
        ("job_controller_job_pods_creation_total{reason=\"new\",status=\"failed\"}", 0),
        ("job_controller_jobs_by_external_controller_total{controller_name=\"example.com/other\"}", 1),
        ("windlass_api_writes_total{verb=\"create\",resource=\"pods\",code=\"201\"}", 5),
        ("windlass_api_writes_total{verb=\"patch\",resource=\"pods\",code=\"200\"}", 5),
        ("windlass_job_decisions_total{rule=\"policy_ignore\"}", 1),
        ("windlass_job_decisions_total{rule=\"conclude_failure\"}", 1),
        ("windlass_job_status_lag_seconds_count", 5),
    ];
    let found: Vec<(&str, u64)> =
        expected.iter().map(|(series, _)| (*series, value(&metrics, series))).collect();
    assert_eq!(found, expected, "{}", metrics.text());
    let created = metrics
        .text()
        .lines()
        .filter(|line| line.starts_with("job_controller_job_pods_creation_total{"))
        .count();
    assert!(created > 0, "{}", metrics.text());
    let syncs = "job_controller_job_syncs_total{completion_mode=\"Indexed\",result=\"success\",action=\"pods_created\"}";
    assert!(value(&metrics, syncs) > 0, "{}", metrics.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_verdict_is_told_once() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|pod| Fate::Exit(if index(pod) < 5 { 42 } else { 43 }));
    let policy = json!({"rules": [
        {"action": "FailIndex", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42, 43]}},
    ]});
    let spec = json!({
        "completionMode": "Indexed", "completions": 10, "parallelism": 10, "backoffLimitPerIndex": 1,
        "podFailurePolicy": policy,
    });
    world.create_job("j", spec).await;
    world.until_event(|event| event.reason.as_deref() == Some("FailedIndexes")).await;
    controller.stop().await;
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    let mut told: Vec<(String, Option<i32>)> = events
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("PodFailureFailsIndex"))
        .map(|event| (event.message.unwrap_or_default(), event.count))
        .collect();
    told.sort();
    let message = |code| {
        format!(
            "A pod failed with exit code {code} of container main: rule 0 (FailIndex) of the policy matches, the index fails"
        )
    };
    assert_eq!(told, [(message(42), Some(1)), (message(43), Some(1))]);
}
