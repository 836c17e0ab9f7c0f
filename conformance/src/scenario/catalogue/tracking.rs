//! Counting with finalizers: every pod once, whoever deletes it and whenever the controller dies.

use serde_json::json;

use super::super::{Deed, Scenario, Step, Who, again, index, indexed, nth, runs, scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("non-parallel", "TestNonParallelJob", json!({}))
            .restart()
            .pod(nth(0), Deed::Exit(1))
            .expect("active=1 failed=1")
            .restart()
            .pod(nth(1), Deed::Exit(0))
            .restart()
            .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("work-queue", "TestParallelJob", json!({"parallelism": 5}))
            .run(2)
            .expect("active=5 ready=2")
            .pods([(nth(2), Deed::Exit(1)), (nth(3), Deed::Exit(1))])
            .expect("active=5 ready=2 failed=2")
            .pod(nth(4), Deed::Exit(0))
            .expect("active=4 ready=2 succeeded=1 failed=2")
            .pods([(nth(5), Deed::Exit(1)), (nth(6), Deed::Exit(1))])
            .expect("active=2 ready=2 succeeded=1 failed=4")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=3 failed=4"),
        scenario("with-completions", "TestParallelJobWithCompletions", runs(10, 12, json!({})))
            .run(8)
            .expect("active=10 ready=8")
            .pods([(nth(0), Deed::Exit(1)), (nth(1), Deed::Exit(1))])
            .expect("active=10 ready=6 failed=2")
            .pods((2..11).map(|n| (nth(n), Deed::Exit(0))))
            .expect("active=3 succeeded=9 failed=2")
            .step(Step::Finish)
            .ends("Complete(CompletionsReached) succeeded=12 failed=2"),
        scenario("indexed", "TestIndexedJob", indexed(3, 4, json!({})))
            .expect("active=3")
            .pod(index(1), Deed::Exit(0))
            .expect("active=3 succeeded=1 completedIndexes=1")
            .pod(index(2), Deed::Exit(1))
            .expect("active=3 succeeded=1 failed=1 completedIndexes=1")
            .pods([(index(0), Deed::Exit(0)), (again(2, 1), Deed::Exit(0)), (index(3), Deed::Exit(0))])
            .ends("Complete(CompletionsReached) succeeded=4 failed=1 completedIndexes=0-3"),
        scenario("limit-clears-finalizers", "TestFinalizersClearedWhenBackoffLimitExceeded, #109485", {
            indexed(10, 10, json!({"backoffLimit": 0}))
        })
        .pod(index(4), Deed::Exit(1))
        .ends("Failed(BackoffLimitExceeded) failed=10"),
        scenario("interrupted", "TestJobFailedWithInterrupts", runs(10, 10, json!({"backoffLimit": 0})))
            .run(10)
            .step(Step::Stop)
            .pods((0..10).map(|n| (nth(n), Deed::Exit(i32::from(n == 3)))))
            .step(Step::Start)
            .ends("Failed(BackoffLimitExceeded) succeeded=9 failed=1"),
        scenario("one-pod-success", "TestDelayedJobUpdateEvent, #130103: never a pod too many", json!({}))
            .pod(nth(0), Deed::Exit(0))
            .step(Step::Has("Complete"))
            .step(Step::Pass)
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("one-pod-failure", "TestDelayedJobUpdateEvent, #130103: never a pod too many", {
            json!({"backoffLimit": 0})
        })
        .pod(nth(0), Deed::Exit(1))
        .step(Step::Has("Failed"))
        .step(Step::Pass)
        .ends("Failed(BackoffLimitExceeded) failed=1"),
        scenario("backoff", "TestJobPodsCreatedWithExponentialBackoff, #114391", runs(2, 2, json!({})))
            .run(2)
            .pod(nth(0), Deed::FailNow)
            .step(Step::Shows("active=1 ready=1 failed=1"))
            .meanwhile(Step::Pods(vec![(
                nth(1),
                Deed::Patch(json!({"metadata": {"annotations": {"a": "b"}}})),
            )]))
            .expect("active=2 ready=1 failed=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2 failed=1"),
        scenario("backoff-of-an-index", "#139428: the real number of active pods during a back-off", {
            indexed(2, 2, json!({"backoffLimitPerIndex": 1}))
        })
        .run(2)
        .pod(index(0), Deed::FailNow)
        .step(Step::Shows("active=1 ready=1"))
        .expect("active=2 ready=1 failed=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=2 failed=1 completedIndexes=0,1"),
        scenario("deleted-as-they-finish", "KEP-2307: finished pods are collected all along", {
            runs(1, 4, json!({}))
        })
        .pods([(nth(0), Deed::Exit(0)), (nth(0), Deed::Delete)])
        .pods([(nth(1), Deed::Exit(1)), (nth(1), Deed::Delete)])
        .pods([(nth(2), Deed::Exit(0)), (nth(2), Deed::ForceDelete)])
        .step(Step::Finish)
        .ends("Complete(CompletionsReached) succeeded=4 failed=1"),
        scenario("deleted-while-stopped", "KEP-2307: a pod that goes unseen is still counted", {
            runs(3, 3, json!({}))
        })
        .run(3)
        .step(Step::Stop)
        .pods([(nth(0), Deed::Exit(0)), (nth(0), Deed::ForceDelete)])
        .pods([(nth(1), Deed::Exit(1)), (nth(1), Deed::ForceDelete)])
        .step(Step::Start)
        .expect("active=2 ready=1 succeeded=1 failed=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=3 failed=1"),
        scenario("deleted-by-user-or-by-us", "KEP-2307: deleted pods", runs(2, 2, json!({})))
            .run(2)
            .pod(nth(0), Deed::Delete)
            .expect("active=2 ready=1 failed=1 terminating=1")
            .end_terminating()
            .edit(json!({"parallelism": 0}))
            .expect("failed=1 terminating=1")
            .end_terminating()
            .edit(json!({"parallelism": 2}))
            .pod(Who::Active, Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=2 failed=1"),
        scenario("bursts", "#105200: nobody is counted twice", runs(5, 15, json!({})))
            .succeed()
            .expect("active=5 succeeded=5")
            .pods((5..10).map(|n| (nth(n), Deed::Exit(i32::from(n % 2 == 0)))))
            .step(Step::Finish)
            .ends("Complete(CompletionsReached) succeeded=15 failed=2"),
    ]
}

pub(super) fn large() -> Vec<Scenario> {
    vec![
        scenario("more-than-the-cap", "#104666, #119159: over 500 pods finish at once", {
            runs(520, 520, json!({"backoffLimit": 0}))
        })
        .expect("active=520")
        .step(Step::Stop)
        .pods((0..520).map(|n| (nth(n), Deed::Exit(0))))
        .step(Step::Start)
        .ends("Complete(CompletionsReached) succeeded=520"),
        scenario("more-indexes-than-the-cap", "#104666, #119159: over 500 indexes finish at once", {
            indexed(520, 520, json!({}))
        })
        .expect("active=520")
        .step(Step::Stop)
        .pods((0..520).map(|n| (index(n), Deed::Exit(0))))
        .step(Step::Start)
        .ends("Complete(CompletionsReached) succeeded=520 completedIndexes=0-519"),
    ]
}
