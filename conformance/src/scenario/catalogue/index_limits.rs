//! `backoffLimitPerIndex`, `maxFailedIndexes` and `FailIndex`.

use serde_json::json;
use windlass_api::names::disruption;

use super::super::{Deed, Scenario, Step, again, index, indexed, scenario};
use super::{and, on_disruption, on_exit, policy};

pub(super) fn all() -> Vec<Scenario> {
    let test = "TestBackoffLimitPerIndex";
    vec![
        scenario("per-index-retried", test, indexed(2, 2, json!({"backoffLimitPerIndex": 1})))
            .pod(index(0), Deed::Exit(1))
            .expect("active=2 failed=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2 failed=1 completedIndexes=0,1"),
        scenario("per-index-exceeded", test, indexed(2, 2, json!({"backoffLimitPerIndex": 2})))
            .pod(index(0), Deed::Exit(1))
            .pod(again(0, 1), Deed::Exit(1))
            .pod(again(0, 2), Deed::Exit(1))
            .expect("active=1 failed=3 failedIndexes=0")
            .pod(index(1), Deed::Exit(0))
            .ends("Failed(FailedIndexes) succeeded=1 failed=3 completedIndexes=1 failedIndexes=0"),
        scenario("per-index-global-first", test, {
            indexed(3, 3, json!({"backoffLimitPerIndex": 1, "backoffLimit": 2}))
        })
        .pod(index(0), Deed::Exit(1))
        .pod(index(1), Deed::Exit(1))
        .pod(index(2), Deed::Exit(1))
        .step(Step::Has("Failed")),
        scenario("per-index-continues", test, indexed(2, 2, json!({"backoffLimitPerIndex": 0})))
            .pod(index(0), Deed::Exit(1))
            .expect("active=1 failed=1 failedIndexes=0")
            .pod(index(1), Deed::Exit(0))
            .ends("Failed(FailedIndexes) succeeded=1 failed=1 completedIndexes=1 failedIndexes=0"),
        scenario("per-index-max-failed", test, {
            indexed(3, 3, json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}))
        })
        .pod(index(0), Deed::Exit(1))
        .expect("active=2 failed=1 failedIndexes=0")
        .pod(index(1), Deed::Exit(1))
        .ends("Failed(MaxFailedIndexesExceeded) failed=3 failedIndexes=0,1"),
        scenario("per-index-fail-index", test, {
            let rules = policy([on_exit("FailIndex", "In", &[13]), on_disruption("FailIndex")]);
            indexed(2, 2, and(rules, json!({"backoffLimitPerIndex": 1})))
        })
        .pod(index(0), Deed::Exit(13))
        .pod(index(1), Deed::Disrupted(disruption::EVICTION_BY_EVICTION_API, 0))
        .ends("Failed(FailedIndexes) failed=2 failedIndexes=0,1"),
        scenario(
            "per-index-delayed-deletion",
            "TestBackoffLimitPerIndex_DelayedPodDeletion",
            indexed(1, 1, json!({"backoffLimitPerIndex": 1})),
        )
        .pods([(index(0), Deed::Exit(1)), (index(0), Deed::Delete)])
        .expect("active=1 failed=1")
        .pod(again(0, 1), Deed::Exit(0))
        .ends("Complete(CompletionsReached) succeeded=1 failed=1 completedIndexes=0"),
        scenario(
            "per-index-both-retried",
            "TestBackoffLimitPerIndex_JobPodsCreatedWithExponentialBackoff",
            indexed(2, 2, json!({"backoffLimitPerIndex": 2})),
        )
        .pod(index(0), Deed::Exit(1))
        .pod(again(0, 1), Deed::Exit(1))
        .pod(index(1), Deed::Exit(1))
        .pod(again(0, 2), Deed::Exit(0))
        .pod(again(1, 1), Deed::Exit(1))
        .pod(again(1, 2), Deed::Exit(0))
        .ends("Complete(CompletionsReached) succeeded=2 failed=4 completedIndexes=0,1"),
        scenario(
            "per-index-across-restarts",
            "TestBackoffLimitPerIndex_Reenabling",
            indexed(3, 3, json!({"backoffLimitPerIndex": 0})),
        )
        .pod(index(0), Deed::Exit(1))
        .expect("active=2 failed=1 failedIndexes=0")
        .restart()
        .pod(index(1), Deed::Exit(1))
        .expect("active=1 failed=2 failedIndexes=0,1")
        .step(Step::Stop)
        .pod(index(2), Deed::Exit(0))
        .step(Step::Start)
        .ends("Failed(FailedIndexes) succeeded=1 failed=2 completedIndexes=2 failedIndexes=0,1"),
        scenario("per-index-max-not-exceeded", "5.2.15: strictly greater", {
            indexed(2, 2, json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}))
        })
        .pod(index(1), Deed::Exit(1))
        .expect("active=1 failed=1 failedIndexes=1")
        .pod(index(0), Deed::Exit(0))
        .ends("Failed(FailedIndexes) succeeded=1 failed=1 completedIndexes=0 failedIndexes=1"),
        scenario("per-index-scaled-down", "5.2.14: an elastic scale-down can leave only done indexes", {
            indexed(3, 3, json!({"backoffLimitPerIndex": 0}))
        })
        .pod(index(0), Deed::Exit(1))
        .pod(index(1), Deed::Exit(0))
        .expect("active=1 succeeded=1 failed=1 completedIndexes=1 failedIndexes=0")
        .edit(json!({"completions": 2, "parallelism": 2}))
        .ends("Failed(FailedIndexes) succeeded=1 failed=1 completedIndexes=1 failedIndexes=0"),
        scenario("per-index-deleted-pods", "a deleted pod is a failure of its index", {
            indexed(2, 2, json!({"backoffLimitPerIndex": 1}))
        })
        .run(2)
        .pod(index(0), Deed::Delete)
        .expect("active=2 ready=1 failed=1 terminating=1")
        .end_terminating()
        .pod(again(0, 1), Deed::Exit(1))
        .expect("active=1 ready=1 failed=2 failedIndexes=0")
        .succeed()
        .ends("Failed(FailedIndexes) succeeded=1 failed=2 completedIndexes=1 failedIndexes=0"),
        scenario("per-index-max-edited", "maxFailedIndexes may change", {
            indexed(2, 2, json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}))
        })
        .pod(index(0), Deed::Exit(1))
        .expect("active=1 failed=1 failedIndexes=0")
        .edit(json!({"maxFailedIndexes": 0}))
        .ends("Failed(MaxFailedIndexesExceeded) failed=2 failedIndexes=0"),
    ]
}
