//! Reading and printing sets of indexes at their worst: every other index.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use windlass_api::indexes::IndexSet;

const INDEXES: i32 = 100_000;
const ROUND_TRIP_MAX: Duration = Duration::from_millis(10);

fn main() {
    let text = alternating(INDEXES);
    let mut criterion = Criterion::default().configure_from_args();
    let mut best = Duration::MAX;
    criterion.bench_function("strict parse and print of 10^5 alternating indexes", |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds {
                let set =
                    IndexSet::parse_strict(black_box(&text), 2 * INDEXES).expect("the text is well-formed");
                black_box(set.to_string());
            }
            let spent = start.elapsed();
            best = best.min(spent / u32::try_from(rounds).unwrap_or(u32::MAX));
            spent
        });
    });
    let million = IndexSet::parse_strict(&alternating(10 * INDEXES), 20 * INDEXES).expect("well-formed");
    criterion.bench_function("clone and insert into 10^6 alternating indexes", |bencher| {
        bencher.iter(|| {
            let mut copy = black_box(&million).clone();
            copy.insert(777_777);
            copy
        });
    });
    println!("round trip of 10^5 alternating indexes: {best:?} (bar {ROUND_TRIP_MAX:?})");
    assert!(best <= ROUND_TRIP_MAX, "strict parse and print took {best:?}");
}

fn alternating(count: i32) -> String {
    (0..count).fold(String::new(), |mut text, index| {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}{}", 2 * index).expect("writing to a string does not fail");
        text
    })
}
