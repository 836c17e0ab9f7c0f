//! The user stories of the documents, each with the Job of its text.

use serde_json::json;
use windlass_api::names::disruption;

use super::super::{Deed, Scenario, Who, again, index, indexed, nth, runs, scenario};
use super::{and, on_disruption, on_exit, policy};

pub(super) fn all() -> Vec<Scenario> {
    let mut all = failures();
    all.extend(replacements());
    all.extend(suites());
    all
}

fn failures() -> Vec<Scenario> {
    let story_1 =
        || runs(3, 3, and(policy([on_exit("FailJob", "NotIn", &[40, 41, 42])]), json!({"backoffLimit": 6})));
    let story_2 = || and(policy([on_disruption("Ignore")]), json!({"backoffLimit": 3}));
    let story_3 = || {
        let rules = policy([on_disruption("Count"), on_exit("FailJob", "NotIn", &[0])]);
        and(rules, json!({"backoffLimit": 3}))
    };
    vec![
        scenario("story-retriable", "KEP-3329 story 1: a known code is retried", story_1())
            .pod(nth(0), Deed::Exit(41))
            .expect("active=3 failed=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=3 failed=1"),
        scenario("story-software-bug", "KEP-3329 story 1: any other code ends the Job", story_1())
            .run(3)
            .pod(nth(0), Deed::Exit(1))
            .expect("FailureTarget(PodFailurePolicy) failed=3 terminating=2")
            .end_terminating()
            .ends("Failed(PodFailurePolicy) failed=3"),
        scenario("story-disruptions", "KEP-3329 story 2: disruptions are retried for ever", story_2())
            .pod(nth(0), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .pod(nth(1), Deed::Disrupted(disruption::TERMINATION_BY_KUBELET, 137))
            .pod(nth(2), Deed::Disrupted(disruption::EVICTION_BY_EVICTION_API, 137))
            .pod(nth(3), Deed::Disrupted(disruption::DELETION_BY_TAINT_MANAGER, 137))
            .pod(nth(4), Deed::Disrupted(disruption::DELETION_BY_POD_GC, 137))
            .expect("active=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("story-user-errors", "KEP-3329 story 2: user errors reach the limit", story_2())
            .pod(nth(0), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .pod(nth(1), Deed::Exit(137))
            .pod(nth(2), Deed::Exit(137))
            .pod(nth(3), Deed::Exit(137))
            .pod(nth(4), Deed::Exit(137))
            .ends("Failed(BackoffLimitExceeded) failed=4"),
        scenario("story-counted-disruptions", "KEP-3329 story 3: disruptions are limited", story_3())
            .pod(nth(0), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .pod(nth(1), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .pod(nth(2), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .pod(nth(3), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .ends("Failed(BackoffLimitExceeded) failed=4"),
        scenario("story-counted-errors", "KEP-3329 story 3: an own error ends the Job", story_3())
            .pod(nth(0), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
            .pod(nth(1), Deed::Exit(1))
            .ends("Failed(PodFailurePolicy) failed=2"),
    ]
}

fn replacements() -> Vec<Scenario> {
    let failed = || json!({"podReplacementPolicy": "Failed"});
    vec![
        scenario("story-one-pod-an-index", "KEP-3939 story 1: never two pods of an index", {
            indexed(2, 2, failed())
        })
        .run(2)
        .pod(index(0), Deed::Delete)
        .expect("active=1 ready=1 terminating=1")
        .end_terminating()
        .pods([(again(0, 1), Deed::Exit(0)), (index(1), Deed::Exit(0))])
        .ends("Complete(CompletionsReached) succeeded=2 failed=1 completedIndexes=0,1"),
        scenario(
            "story-no-scale-up",
            "KEP-3939 story 2: never more pods than asked for",
            runs(2, 3, failed()),
        )
        .run(2)
        .pod(Who::Active, Deed::Delete)
        .expect("terminating=2")
        .pod(nth(0), Deed::End(143))
        .expect("active=1 failed=1 terminating=1")
        .pod(nth(1), Deed::End(0))
        .expect("active=2 succeeded=1 failed=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=3 failed=1"),
        scenario("story-quota", "KEP-3939 story 3: terminating pods are told to the very end", {
            runs(3, 3, json!({"backoffLimit": 0}))
        })
        .run(3)
        .pod(nth(0), Deed::Delete)
        .expect("FailureTarget(BackoffLimitExceeded) failed=3 terminating=3")
        .pod(nth(0), Deed::End(143))
        .expect("FailureTarget(BackoffLimitExceeded) failed=3 terminating=2")
        .end_terminating()
        .ends("Failed(BackoffLimitExceeded) failed=3"),
    ]
}

fn suites() -> Vec<Scenario> {
    let suites = |rest| indexed(10, 10, and(json!({"backoffLimitPerIndex": 1}), rest));
    let all = |failing: &'static [(u32, i32)]| {
        let code = move |of: u32| failing.iter().find(|(index, _)| *index == of).map_or(0, |(_, code)| *code);
        (0..10).map(move |n| (index(n), Deed::Exit(code(n))))
    };
    vec![
        scenario("story-suites", "KEP-3850 story 1: a suite fails alone", suites(json!({})))
            .pods(all(&[(3, 1), (7, 1)]))
            .expect("active=2 succeeded=8 failed=2 completedIndexes=0-2,4-6,8,9")
            .pods([(again(3, 1), Deed::Exit(1)), (again(7, 1), Deed::Exit(0))])
            .ends("Failed(FailedIndexes) succeeded=9 failed=3 completedIndexes=0-2,4-9 failedIndexes=3"),
        scenario("story-suites-42", "KEP-3850 story 2: code 42 is not retried", {
            suites(policy([on_exit("FailIndex", "In", &[42])]))
        })
        .pods(all(&[(0, 42), (1, 1)]))
        .expect("active=1 succeeded=8 failed=2 completedIndexes=2-9 failedIndexes=0")
        .succeed()
        .ends("Failed(FailedIndexes) succeeded=9 failed=2 completedIndexes=1-9 failedIndexes=0"),
        scenario("story-suites-half", "KEP-3850 story 3: more than half of them end the Job", {
            suites(json!({"maxFailedIndexes": 5}))
        })
        .pods((0..6).map(|n| (index(n), Deed::Exit(1))))
        .expect("active=10 failed=6")
        .pods((0..5).map(|n| (again(n, 1), Deed::Exit(1))))
        .expect("active=5 failed=11 failedIndexes=0-4")
        .pod(again(5, 1), Deed::Exit(1))
        .ends("Failed(MaxFailedIndexesExceeded) failed=16 failedIndexes=0-5"),
    ]
}
