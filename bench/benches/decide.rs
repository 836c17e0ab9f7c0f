//! The cost of one pod event and the decision after it, for Jobs of 10^2 to 10^5 pods. It must not grow with them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use windlass_bench::{World, ended, indexed_job, running};

const SIZES: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// At 10^5 pods an event may cost this much more than at 10^2.
const GROWTH_MAX: f64 = 1.5;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    let mut group = criterion.benchmark_group("pod event and decision");
    let mut costs = Vec::new();
    for size in SIZES {
        let mut world = World::running(indexed_job(size));
        let mut at = 0;
        let mut best = Duration::MAX;
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    // A stride that is odd and not a power of ten visits pods all over the roster.
                    at = (at + 7919) % size as usize;
                    let event = world.event(at, ended(0));
                    let start = Instant::now();
                    black_box(world.react(&event));
                    spent += start.elapsed();
                    // Undone, so that every round finds the same number of running pods.
                    let back = world.event(at, running());
                    world.react(&back);
                }
                best = best.min(spent / u32::try_from(rounds).unwrap_or(u32::MAX));
                spent
            });
        });
        costs.push(best);
    }
    group.finish();
    let growth = costs[SIZES.len() - 1].as_secs_f64() / costs[0].as_secs_f64();
    println!("pods: {SIZES:?}\ncost: {costs:?}\ngrowth from 10^2 to 10^5: {growth:.2} (bar {GROWTH_MAX})");
    assert!(growth <= GROWTH_MAX, "the cost of a pod event grows with the number of pods: {growth:.2}");
}
