//! `podReplacementPolicy`: when a pod that goes is replaced, and what it counts as.

use serde_json::json;

use super::super::{Deed, Scenario, Step, Who, again, index, indexed, nth, runs, scenario};

pub(super) fn all() -> Vec<Scenario> {
    let test = "TestJobPodReplacementPolicy";
    let failed = || json!({"podReplacementPolicy": "Failed"});
    vec![
        scenario("replace-terminating", test, runs(2, 2, json!({})))
            .run(2)
            .pod(Who::Active, Deed::Delete)
            .expect("active=2 failed=2 terminating=2")
            .end_terminating()
            .expect("active=2 failed=2")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2 failed=2"),
        scenario("replace-failed", test, runs(2, 2, failed()))
            .run(2)
            .pod(Who::Active, Deed::Delete)
            .expect("terminating=2")
            .end_terminating()
            .expect("active=2 failed=2")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2 failed=2"),
        scenario("replace-failed-indexed", test, indexed(2, 2, failed()))
            .run(2)
            .pod(index(0), Deed::Delete)
            .expect("active=1 ready=1 terminating=1")
            .end_terminating()
            .expect("active=2 ready=1 failed=1")
            .pods([(again(0, 1), Deed::Exit(0)), (index(1), Deed::Exit(0))])
            .ends("Complete(CompletionsReached) succeeded=2 failed=1 completedIndexes=0,1"),
        scenario("replace-terminating-indexed", test, indexed(2, 2, json!({})))
            .run(2)
            .pod(index(0), Deed::Delete)
            .expect("active=2 ready=1 failed=1 terminating=1")
            .end_terminating()
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2 failed=1 completedIndexes=0,1"),
        scenario(
            "replace-across-restarts",
            "TestJobPodReplacementPolicyFeatureToggling",
            runs(2, 2, failed()),
        )
        .run(2)
        .pod(Who::Active, Deed::Delete)
        .expect("terminating=2")
        .restart()
        .expect("terminating=2")
        .step(Step::Stop)
        .pod(nth(0), Deed::End(143))
        .step(Step::Start)
        .expect("active=1 failed=1 terminating=1")
        .end_terminating()
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=2 failed=2"),
        scenario("replace-failed-ends-well", "a terminating pod that succeeds counts as success", {
            runs(1, 1, failed())
        })
        .run(1)
        .pod(nth(0), Deed::Delete)
        .expect("terminating=1")
        .pod(nth(0), Deed::End(0))
        .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("replace-terminating-ends-well", "#125410: counted as failed, it stays failed", {
            runs(1, 1, json!({}))
        })
        .run(1)
        .pod(nth(0), Deed::Delete)
        .expect("active=1 failed=1 terminating=1")
        .pod(nth(0), Deed::End(0))
        .expect("active=1 failed=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("replace-more-terminating", "#121147: more terminating pods than parallelism", {
            runs(3, 3, failed())
        })
        .run(3)
        .pod(Who::Active, Deed::Delete)
        .expect("terminating=3")
        .edit(json!({"parallelism": 1}))
        .expect("terminating=3")
        .end_terminating()
        .expect("active=1 failed=3")
        .step(Step::Finish)
        .ends("Complete(CompletionsReached) succeeded=3 failed=3"),
        scenario("replace-policy-edited", "podReplacementPolicy may change", runs(1, 1, json!({})))
            .run(1)
            .edit(failed())
            .pod(nth(0), Deed::Delete)
            .expect("terminating=1")
            .end_terminating()
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("replace-node-lost", "a pod on a lost node counts", runs(1, 1, failed()))
            .run(1)
            .pod(nth(0), Deed::LoseNode)
            .expect("active=1 failed=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario(
            "replace-with-new-resources",
            "TestMutablePodResourcesWithPodReplacementPolicyFailed",
            runs(2, 2, failed()),
        )
        .run(2)
        .edit(json!({"suspend": true}))
        .expect("Suspended(JobSuspended) terminating=2 unstarted")
        .edit(json!({"template": {"spec": {"containers": [
            {"name": "main", "image": "host", "resources": {"requests": {"cpu": "2"}}}]}}}))
        .edit(json!({"suspend": false}))
        .expect("Suspended=False(JobResumed) terminating=2")
        .end_terminating()
        .expect("Suspended=False(JobResumed) active=2")
        .succeed()
        .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=2"),
    ]
}
