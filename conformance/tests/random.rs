//! Random Jobs: our controller against the built-in one.

use windlass_conformance::scenario::{is_full, random};

#[tokio::test(flavor = "multi_thread")]
async fn random_jobs_end_the_same() -> anyhow::Result<()> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let usual = if is_full() { 400 } else { 24 };
    let (first, count) = match (number("WINDLASS_CONFORMANCE_SEED"), number("WINDLASS_CONFORMANCE_RUNS")) {
        (Some(seed), count) => (seed, count.unwrap_or(1)),
        (None, count) => (1, count.unwrap_or(usual)),
    };
    random::run(first, count).await
}
