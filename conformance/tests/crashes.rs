//! Our controller, killed at its writes, on the real API server.

use windlass_conformance::scenario::{catalogue, crashes};

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_at_any_write_leaves_the_same_end() {
    let only = std::env::var("WINDLASS_CONFORMANCE_ONLY").unwrap_or_default();
    let mut scenarios = catalogue::all();
    scenarios.retain(|scenario| scenario.name.contains(&only));
    let which = match std::env::var("WINDLASS_CONFORMANCE_FULL") {
        Ok(_) => crashes::Which::Each,
        Err(_) => crashes::Which::Sample,
    };
    let runs = crashes::run(&scenarios, which).await.unwrap();
    println!("killed {runs} times");
    assert!(runs >= scenarios.len(), "{runs} runs are too few");
}
