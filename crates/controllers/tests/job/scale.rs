//! Many pods.

use std::time::Instant;

use serde_json::json;

use crate::tap::{Tap, Verdict};
use crate::world::{COMPLETE, Fate, World, finished, ledger, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_indexes_complete() {
    let world = World::new();
    let tap = Tap::new(&world, |_, _| Verdict::Pass);
    let controller = world.start(tap.client(), quick());
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    let start = Instant::now();
    world
        .create_job("j", json!({"completionMode": "Indexed", "completions": 1000, "parallelism": 100}))
        .await;
    let job = world.until_finished("j").await;
    let elapsed = start.elapsed();
    let writes = tap.writes();
    let statuses = writes.iter().filter(|write| write.path.ends_with("/status")).count();
    println!("1000 indexes, 100 at a time: {elapsed:?}, {} writes, {statuses} of the status", writes.len());
    assert_eq!(writes.len() - statuses, 2000, "a creation and a release for each pod");
    assert_eq!(ledger(&job), finished(1000, 0, Some("0-999"), &COMPLETE));
    controller.stop().await;
}
