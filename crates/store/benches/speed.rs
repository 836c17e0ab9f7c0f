//! The store on this disk: durable writes of one and of many writers, and opening what was written.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_store::{Key, Limits, OnDamage, Store};

const WRITERS: u64 = 64;
const OBJECTS: u64 = 20_000;
const OBJECT_BYTES: usize = 2048;
const TIME: Duration = Duration::from_secs(2);

fn main() {
    let dir = tempfile::tempdir().expect("made");
    let sync = sync_time(&dir.path().join("plain"));
    println!("overwrite of 8 KiB and sync, nothing else: {sync:?}");
    let store = open(dir.path());
    let alone = writes(&store, 1, "one", u64::MAX);
    println!("1 writer: {alone:.0} durable writes/s");
    let many = writes(&store, WRITERS, "many", OBJECTS / WRITERS);
    println!("{WRITERS} writers: {many:.0} durable writes/s");
    drop(store);
    let start = Instant::now();
    let store = open(dir.path());
    let spent = start.elapsed();
    println!("open with {} objects: {spent:?}", store.revision() - 1);
}

fn open(dir: &Path) -> Store<()> {
    Store::open(&dir.join("store"), Limits::default(), OnDamage::Refuse, &|_, _| Ok(())).expect("opens")
}

fn writes(store: &Store<()>, writers: u64, name: &str, each_max: u64) -> f64 {
    let before = store.revision();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                for i in 0..each_max {
                    if start.elapsed() > TIME {
                        break;
                    }
                    let key = Key::new("pods", "default", &format!("{name}-{writer}-{i}"));
                    store.create(key, (), |_| Bytes::from(vec![b'x'; OBJECT_BYTES])).expect("new");
                }
            });
        }
    });
    (store.revision() - before) as f64 / start.elapsed().as_secs_f64()
}

/// What the disk itself takes for it.
fn sync_time(file: &Path) -> Duration {
    use std::os::unix::fs::FileExt;
    const TIMES: u32 = 200;
    let file = std::fs::File::create(file).expect("made");
    file.write_all_at(&vec![1; 8192 * TIMES as usize], 0).and_then(|()| file.sync_all()).expect("room");
    let start = Instant::now();
    for i in 0..TIMES {
        file.write_all_at(&[2; 8192], u64::from(i) * 8192).and_then(|()| file.sync_data()).expect("synced");
    }
    start.elapsed() / TIMES
}
