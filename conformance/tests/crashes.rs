//! Our controller, killed at its writes, on the real API server.

use windlass_conformance::scenario::crashes::{self, Which};
use windlass_conformance::scenario::{catalogue, is_full, only};

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_at_any_write_leaves_the_same_end() -> anyhow::Result<()> {
    let scenarios = only(catalogue::all());
    let which = if is_full() { Which::Each } else { Which::Sample };
    let runs = crashes::run(&scenarios, which).await?;
    println!("{} scenarios, killed {runs} times", scenarios.len());
    assert!(runs >= scenarios.len(), "{runs} runs are too few");
    Ok(())
}
