//! An API server that has too much to do, and Jobs that share one controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use http::Method;
use serde_json::json;
use tokio::sync::Semaphore;
use windlass_controllers::job::Config;

use crate::tap::{Tap, Verdict};
use crate::world::{COMPLETE, Fate, World, finished, ledger, quick};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_pushed_back_is_sent_again_when_it_says_and_nothing_is_done_twice() {
    let world = World::new();
    let pushed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pushed);
    // Of each verb some: the server did nothing, so the same request may be sent again.
    let tap = Tap::new(&world, move |k, _| {
        if k % 3 != 1 || count.fetch_add(1, Ordering::SeqCst) >= 6 {
            return Verdict::Pass;
        }
        Verdict::PushBack(1)
    });
    let mut config = quick();
    // No retry of a decision helps: it is the request that is sent again.
    let hour = jiff::SignedDuration::from_hours(1);
    config.settings.api_retry = windlass_job::backoff::Backoff { base: hour, max: hour };
    let controller = world.start(tap.client(), config);
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    let start = Instant::now();
    world.create_job("j", json!({"completions": 4, "parallelism": 4})).await;
    let job = world.until_finished("j").await;
    assert!(start.elapsed() >= Duration::from_secs(1), "not before the time that the server named");
    assert_eq!(ledger(&job), finished(4, 0, None, &COMPLETE));
    controller.stop().await;
    let writes = tap.writes();
    let created = |code| {
        let is_create = |w: &&crate::tap::Write| w.method == Method::POST && w.code == Some(code);
        writes.iter().filter(is_create).count()
    };
    assert_eq!(created(201), 4, "{writes:#?}");
    assert!(pushed.load(Ordering::SeqCst) > 0);
    assert!(writes.iter().all(|write| matches!(write.code, Some(200 | 201 | 429))), "{writes:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_job_is_not_held_up_by_the_writes_of_a_large_one() {
    let world = World::new();
    const ANSWERED: usize = 200;
    let gate = Arc::new(Semaphore::new(ANSWERED));
    let held = Arc::clone(&gate);
    // After a while nothing that the large Job asks for is answered until the small one is done.
    let tap = Tap::new(&world, move |_, write| {
        if !write.body.contains("\"large") && !write.path.contains("/large") {
            return Verdict::Pass;
        }
        let held = Arc::clone(&held);
        Verdict::After(Arc::new(move || {
            let held = Arc::clone(&held);
            async move { held.acquire().await.expect("open").forget() }.boxed()
        }))
    });
    let controller = world.start(tap.client(), quick());
    let _kubelet = world.kubelet(|_| Fate::Exit(0));
    world.create_job("large", json!({"completions": 500, "parallelism": 500})).await;
    // As many of its writes as it may have wait for an answer: three of four, and at least sixteen may be under way.
    let deadline = Instant::now() + Duration::from_secs(60);
    while tap.writes().len() < ANSWERED + 12 {
        assert!(Instant::now() < deadline, "{} writes", tap.writes().len());
        tokio::task::yield_now().await;
    }
    world.create_job("small", json!({"completions": 2, "parallelism": 2})).await;
    let small = world.until_finished("small").await;
    assert_eq!(ledger(&small), finished(2, 0, None, &COMPLETE));
    gate.add_permits(1_000_000);
    let large = world.until_finished("large").await;
    assert_eq!(ledger(&large), finished(500, 0, None, &COMPLETE));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_released_one_after_the_other_where_that_is_asked_for() {
    for releases_in_turn in [false, true] {
        let world = World::new();
        let (gate, [under_way, most]) =
            (Arc::new(Semaphore::new(0)), [(); 2].map(|()| Arc::new(AtomicUsize::new(0))));
        let (held, begun, peak) = (Arc::clone(&gate), Arc::clone(&under_way), Arc::clone(&most));
        let tap = Tap::new(&world, move |_, write| {
            if write.method != Method::PATCH || !write.path.contains("/pods/") {
                return Verdict::Pass;
            }
            let (held, begun, peak) = (Arc::clone(&held), Arc::clone(&begun), Arc::clone(&peak));
            Verdict::After(Arc::new(move || {
                let (held, begun, peak) = (Arc::clone(&held), Arc::clone(&begun), Arc::clone(&peak));
                async move {
                    peak.fetch_max(begun.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    held.acquire().await.expect("open").forget();
                    begun.fetch_sub(1, Ordering::SeqCst);
                }
                .boxed()
            }))
        });
        let config = Config { releases_in_turn, ..quick() };
        let controller = world.start(tap.client(), config);
        let _kubelet = world.kubelet(|_| Fate::Exit(0));
        world.create_job("j", json!({"completions": 20, "parallelism": 20})).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while under_way.load(Ordering::SeqCst) < if releases_in_turn { 1 } else { 2 } {
            assert!(Instant::now() < deadline, "{:#?}", tap.writes());
            tokio::task::yield_now().await;
        }
        gate.add_permits(20);
        assert_eq!(ledger(&world.until_finished("j").await), finished(20, 0, None, &COMPLETE));
        assert_eq!(most.load(Ordering::SeqCst) == 1, releases_in_turn, "{most:?} at a time");
        controller.stop().await;
    }
}
