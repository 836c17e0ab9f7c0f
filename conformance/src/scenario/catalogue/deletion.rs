//! Jobs that are deleted, and made again.

use serde_json::json;

use super::super::{Deed, Propagation, Scenario, Step, job, nth, runs, scenario};

pub(super) fn all() -> Vec<Scenario> {
    let test = "TestOrphanPodsFinalizersClearedWithGC";
    vec![
        scenario("delete-orphan", test, runs(2, 2, json!({})))
            .run(2)
            .step(Step::Delete(Propagation::Orphan))
            .ends("gone"),
        scenario("delete-background", test, runs(2, 2, json!({})))
            .step(Step::Delete(Propagation::Background))
            .step(Step::Count(0))
            .ends("gone"),
        scenario("delete-foreground", test, runs(2, 2, json!({})))
            .step(Step::Delete(Propagation::Foreground))
            .step(Step::Count(0))
            .ends("gone"),
        scenario("delete-background-running", test, runs(2, 3, json!({})))
            .run(2)
            .pod(nth(0), Deed::Exit(0))
            .step(Step::Delete(Propagation::Background))
            .ends("gone"),
        scenario("delete-while-stopped", "TestOrphanPodsFinalizersClearedOnRestart", runs(1, 1, json!({})))
            .step(Step::Stop)
            .step(Step::Delete(Propagation::Background))
            .step(Step::Start)
            .step(Step::Count(0))
            .ends("gone"),
        scenario("delete-orphan-while-stopped", "TestOrphanPodsFinalizersClearedOnRestart", {
            runs(2, 2, json!({}))
        })
        .run(2)
        .step(Step::Stop)
        .step(Step::Delete(Propagation::Orphan))
        .step(Step::Start)
        .ends("gone"),
        scenario("recreated-at-once", "TestImmediateJobRecreation, #132042", runs(1, 1, json!({})))
            .pod(nth(0), Deed::FailNow)
            .step(Step::Shows("failed=1"))
            .meanwhile(Step::Delete(Propagation::Background))
            .meanwhile(Step::Make(job(runs(1, 1, json!({})))))
            .expect("active=1")
            .pod(nth(1), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("recreated-for-another", "TestManagedBy_RecreatedJob", runs(1, 1, json!({})))
            .step(Step::Stop)
            .pod(nth(0), Deed::Exit(0))
            .step(Step::Delete(Propagation::Background))
            .step(Step::Make(job(json!({"managedBy": "example.com/other"}))))
            .step(Step::Start)
            .step(Step::Count(0))
            .step(Step::Pass)
            .ends("unstarted"),
        scenario("deleted-is-not-managed", "5.2.5: no pods for a Job that is being deleted", {
            runs(2, 2, json!({}))
        })
        .with(json!({"metadata": {"finalizers": ["example.com/wait"]}}))
        .step(Step::Stop)
        .step(Step::Edit(json!({"metadata": {"annotations": {"seen": "yes"}}})))
        .step(Step::Start)
        .expect("active=2")
        .pod(nth(0), Deed::Exit(0))
        .step(Step::Delete(Propagation::Foreground))
        .step(Step::Count(0))
        .ends("gone"),
    ]
}
