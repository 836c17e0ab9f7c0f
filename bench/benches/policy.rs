//! How many pods a second a failure policy judges, on one core.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use k8s_openapi::api::batch::v1::PodFailurePolicy;
use serde_json::json;
use windlass_bench::ended;
use windlass_job::policy::failure::FailurePolicy;

const VERDICTS_A_SECOND_MIN: f64 = 5e6;

fn main() {
    let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": [
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        { "action": "FailJob", "onExitCodes": { "containerName": "main", "operator": "In", "values": [1, 2, 3, 42] } },
        { "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [126, 127] } },
        { "action": "Count", "onExitCodes": { "operator": "NotIn", "values": [137, 143] } }
    ]}))
    .expect("the policy is well-formed");
    let policy = FailurePolicy::new(&policy, true);
    // One code for each rule, and one that matches none.
    let pods = [ended(42), ended(127), ended(7), ended(137)];
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("policy");
    group.throughput(Throughput::Elements(pods.len() as u64));
    let mut best = Duration::MAX;
    group.bench_function("verdicts", |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds {
                for pod in &pods {
                    black_box(policy.evaluate(black_box(pod)));
                }
            }
            let spent = start.elapsed();
            best = best.min(spent / u32::try_from(rounds).unwrap_or(u32::MAX));
            spent
        });
    });
    group.finish();
    let rate = pods.len() as f64 / best.as_secs_f64();
    println!("{:.1} million verdicts a second (bar {:.0})", rate / 1e6, VERDICTS_A_SECOND_MIN / 1e6);
    assert!(rate >= VERDICTS_A_SECOND_MIN, "too few verdicts a second: {rate:.0}");
}
