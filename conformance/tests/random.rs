//! Random Jobs: our controller against the built-in one.

use windlass_conformance::scenario::random;

#[tokio::test(flavor = "multi_thread")]
async fn random_jobs_end_the_same() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) = match number("WINDLASS_CONFORMANCE_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("WINDLASS_CONFORMANCE_RUNS").unwrap_or(16)),
    };
    random::run(first, count).await.unwrap();
}
