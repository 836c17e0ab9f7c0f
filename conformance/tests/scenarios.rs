//! Every scenario on every body.

use windlass_conformance::scenario::{catalogue, compare};

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_ends_the_same_on_every_body() {
    let only = std::env::var("WINDLASS_CONFORMANCE_ONLY").unwrap_or_default();
    let mut scenarios = catalogue::all();
    scenarios.retain(|scenario| scenario.name.contains(&only));
    let known = if only.is_empty() { catalogue::KNOWN } else { &[] };
    compare::compare(&scenarios, known).await.unwrap();
}
