//! A crash, or a lost message, at each write in turn: the end is always the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::tap::{Tap, Verdict};
use crate::world::{COMPLETE, Fate, World, finished, is_held, ledger, phase, quick};

/// No run has so many writes.
const WRITES_MAX: usize = 60;

#[derive(Clone, Copy, Debug)]
enum Fault {
    LostRequest,
    LostAnswer,
    CrashBefore,
    CrashAfter,
}

struct Scenario {
    spec: Value,
    /// Active pods that there may be at a time, of each index or in all.
    active_max: usize,
    end: Value,
}

fn scenarios() -> [Scenario; 2] {
    let indexed = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2});
    [
        Scenario { spec: indexed, active_max: 1, end: finished(3, 1, Some("0-2"), &COMPLETE) },
        Scenario {
            spec: json!({"completions": 3, "parallelism": 2}),
            active_max: 2,
            end: finished(3, 1, None, &COMPLETE),
        },
    ]
}

/// Looks at every state of the pods that there ever was.
fn watch_for_too_many(world: &World, max: usize) -> Arc<Mutex<Vec<String>>> {
    let broken = Arc::new(Mutex::new(Vec::new()));
    let (pods, found) = (world.pods(), Arc::clone(&broken));
    tokio::spawn(async move {
        let mut changes = watcher::watcher(pods, watcher::Config::default()).boxed();
        let mut known: BTreeMap<String, Pod> = BTreeMap::new();
        while let Some(Ok(change)) = changes.next().await {
            match change {
                Event::Apply(pod) | Event::InitApply(pod) => _ = known.insert(pod.name_any(), pod),
                Event::Delete(pod) => {
                    if is_held(&pod) {
                        found.lock().push(format!("{} was lost", pod.name_any()));
                    }
                    known.remove(&pod.name_any());
                }
                Event::Init | Event::InitDone => {}
            }
            let mut active: BTreeMap<Option<String>, usize> = BTreeMap::new();
            for pod in known.values().filter(|pod| !matches!(phase(pod), "Succeeded" | "Failed")) {
                *active.entry(pod.annotations().get(crate::world::INDEX).cloned()).or_default() += 1;
            }
            if active.values().any(|count| *count > max) {
                found.lock().push(format!("never-too-many: {active:?}"));
            }
        }
    });
    broken
}

/// Says whether there was a write number `k`.
async fn run(scenario: &Scenario, fault: Fault, k: usize) -> bool {
    let world = World::new();
    let broken = watch_for_too_many(&world, scenario.active_max);
    // The first pod that is seen fails, whichever it is; the others succeed.
    let first: Mutex<Option<String>> = Mutex::new(None);
    let _kubelet = world.kubelet(move |pod| {
        let mut first = first.lock();
        let is_first = first.get_or_insert_with(|| pod.name_any()) == &pod.name_any();
        Fate::Exit(i32::from(is_first))
    });
    let dies = matches!(fault, Fault::CrashBefore | Fault::CrashAfter);
    let (crashed, mut crash) = tokio::sync::mpsc::unbounded_channel();
    let tap_of_self: Arc<Mutex<Option<Tap>>> = Arc::default();
    let tap = Tap::new(&world, {
        let tap_of_self = Arc::clone(&tap_of_self);
        move |at, _| {
            if at != k {
                return Verdict::Pass;
            }
            if dies && let Some(tap) = &*tap_of_self.lock() {
                tap.kill();
                _ = crashed.send(());
            }
            match fault {
                Fault::LostRequest | Fault::CrashBefore => Verdict::LoseRequest,
                Fault::LostAnswer | Fault::CrashAfter => Verdict::LoseAnswer,
            }
        }
    });
    *tap_of_self.lock() = Some(tap.clone());
    let mut controller = world.start(tap.client(), quick());
    world.create_job("j", scenario.spec.clone()).await;
    let job = tokio::select! {
        job = world.until_finished("j") => job,
        Some(()) = crash.recv() => {
            controller.stop().await;
            controller = world.start(world.client.clone(), quick());
            world.until_finished("j").await
        }
    };
    assert_eq!(ledger(&job), scenario.end, "counted-once: {fault:?} at write {k}: {:#?}", tap.writes());
    world.until_pods(|pods| !pods.iter().any(|pod| is_held(pod))).await;
    assert_eq!(*broken.lock(), Vec::<String>::new(), "{fault:?} at write {k}: {:#?}", tap.writes());
    controller.stop().await;
    tap.writes().len() > k
}

async fn run_all(fault: Fault) {
    for scenario in scenarios() {
        let mut k = 0;
        while run(&scenario, fault, k).await {
            k += 1;
            assert!(k < WRITES_MAX, "the controller does not settle");
        }
        assert!(k >= 8, "4 pods are created and released: {k} writes are too few");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_request_changes_nothing() {
    run_all(Fault::LostRequest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_changes_nothing() {
    run_all(Fault::LostAnswer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_any_write_changes_nothing() {
    run_all(Fault::CrashBefore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_changes_nothing() {
    run_all(Fault::CrashAfter).await;
}
