//! How many durable writes of 2 KiB a second the store takes, from one writer and from many.
//!
//! `cargo run --release -p windlass-store --example durable_writes [directory [seconds]]`

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_store::{Key, Limits, OnDamage, Store};

const OBJECTS: u64 = 20_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("windlass-durable-writes"), PathBuf::from);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(4);
    for writers in [1, 8, 64, 256] {
        let _ = std::fs::remove_dir_all(&dir);
        measure(&dir, writers, Duration::from_secs(seconds));
    }
    let start = Instant::now();
    let store = open(&dir);
    let objects = store.list(&windlass_store::Prefix::resource_wide("pods")).records.len();
    println!("open with {objects} objects: {:.0?}", start.elapsed());
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}

fn open(dir: &Path) -> Store<()> {
    Store::open(dir, Limits::default(), OnDamage::Refuse, &|_, _| Ok(())).expect("an empty or a whole store")
}

fn measure(dir: &Path, writers: u64, time: Duration) {
    let store = open(dir);
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let value = Bytes::from((0..2048u32).map(|i| (i.wrapping_mul(31) >> 3) as u8).collect::<Vec<_>>());
    let start = Instant::now();
    let mut latencies: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let (store, value, is_over, done) = (&store, &value, &is_over, &done);
                scope.spawn(move || {
                    let mut latencies = Vec::new();
                    for n in (0..).map_while(|n| (!is_over.load(Ordering::Relaxed)).then_some(n)) {
                        let before = Instant::now();
                        write(store, writer, n % (OBJECTS / writers), value);
                        latencies.push(before.elapsed());
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    latencies
                })
            })
            .collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().expect("a writer")).collect()
    });
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    latencies.sort();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!("{writers:4} writers: {rate:7.0} writes/s, p50 {:.2?}, p99 {:.2?}", at(0.5), at(0.99));
}

fn write(store: &Store<()>, writer: u64, n: u64, value: &Bytes) {
    let key = Key::new("pods", "default", &format!("w{writer}-{n}"));
    let result = match store.get(&key) {
        None => store.create(key, (), |_| value.clone()),
        Some(record) => store.update(&key, record.revision, (), |_| value.clone()),
    };
    result.expect("each writer has its own keys");
}
