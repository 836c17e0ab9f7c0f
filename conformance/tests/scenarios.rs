//! Every scenario on every body.

use std::collections::BTreeSet;

use windlass_conformance::scenario::{catalogue, compare, is_full, only};

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_ends_the_same_on_every_body() -> anyhow::Result<()> {
    let all = catalogue::all();
    let mut scenarios = only(all.clone());
    // A wanted difference must occur, if its scenario is played.
    let known = if scenarios.len() == all.len() { catalogue::KNOWN } else { &[] };
    if is_full() {
        scenarios.extend(only(catalogue::large()));
    }
    compare::compare(&scenarios, known).await
}

#[test]
fn there_are_enough_scenarios_and_each_has_its_own_name() {
    let all = catalogue::all();
    assert!(all.len() >= 80, "{} scenarios", all.len());
    let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.iter().all(|scenario| !scenario.covers.is_empty()));
}
