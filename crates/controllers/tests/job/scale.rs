//! Many pods.

use std::time::Instant;

use serde_json::json;

use crate::world::{COMPLETE, Fate, World, finished, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_indexes_complete() {
    let (world, controller) = World::with_controller();
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    let start = Instant::now();
    world.create_job("j", json!({"completionMode": "Indexed", "completions": 1000, "parallelism": 100})).await;
    let job = world.until_finished("j").await;
    println!("1000 indexes, 100 at a time: {:?}", start.elapsed());
    assert_eq!(ledger(&job), finished(1000, 0, Some("0-999"), &COMPLETE));
    controller.stop().await;
}
