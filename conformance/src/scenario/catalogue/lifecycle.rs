//! Suspension, elastic Jobs, parallelism, deadlines, and what may be edited when.

use serde_json::{Value, json};

use super::super::{Deed, Scenario, Step, Who, index, indexed, nth, runs, scenario};

fn resources(cpu: &str) -> Value {
    let container = json!({"name": "main", "image": "host", "resources": {"requests": {"cpu": cpu}}});
    json!({"template": {"spec": {"containers": [container]}}})
}

fn node(name: &str) -> Value {
    json!({"template": {"spec": {"nodeSelector": {"disk": name}}}})
}

pub(super) fn all() -> Vec<Scenario> {
    let mut all = suspended();
    all.extend(edited());
    all.extend(elastic());
    all.extend(limited());
    all
}

fn suspended() -> Vec<Scenario> {
    vec![
        scenario("suspend", "TestSuspendJob", runs(2, 4, json!({})))
            .run(2)
            .edit(json!({"suspend": true}))
            .expect("Suspended(JobSuspended) terminating=2 unstarted")
            .end_terminating()
            .ends("Suspended(JobSuspended) unstarted"),
        scenario("resume", "TestSuspendJob", runs(2, 4, json!({"suspend": true})))
            .expect("Suspended(JobSuspended) unstarted")
            .edit(json!({"suspend": false}))
            .expect("Suspended=False(JobResumed) active=2")
            .step(Step::Finish)
            .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=4"),
        scenario("suspend-and-resume", "TestStartTimeUpdateOnResume, #134521", runs(1, 2, json!({})))
            .expect("active=1")
            .edit(json!({"suspend": true}))
            .expect("Suspended(JobSuspended) unstarted")
            .edit(json!({"suspend": false}))
            .expect("Suspended=False(JobResumed) active=1")
            .step(Step::Finish)
            .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=2"),
        scenario("suspend-no-completions", "TestSuspendJobWithZeroCompletions", {
            json!({"completions": 0, "suspend": true})
        })
        .ends("Complete(CompletionsReached) unstarted"),
        scenario("suspend-restart", "TestSuspendJobControllerRestart", runs(2, 4, json!({"suspend": true})))
            .expect("Suspended(JobSuspended) unstarted")
            .restart()
            .ends("Suspended(JobSuspended) unstarted"),
        scenario("suspend-uncounted", "5.2.1: pods removed by suspension are no failures", {
            indexed(2, 3, json!({"backoffLimit": 0}))
        })
        .run(2)
        .pod(index(0), Deed::Exit(0))
        .expect("active=2 ready=1 succeeded=1 completedIndexes=0")
        .edit(json!({"suspend": true}))
        .end_terminating()
        .expect("Suspended(JobSuspended) succeeded=1 completedIndexes=0 unstarted")
        .edit(json!({"suspend": false}))
        .step(Step::Finish)
        .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=3 completedIndexes=0-2"),
        scenario("suspend-keeps-index-failures", "a suspended index keeps its failed pod", {
            indexed(1, 1, json!({"backoffLimitPerIndex": 2}))
        })
        .pod(index(0), Deed::Exit(1))
        .expect("active=1 failed=1")
        .edit(json!({"suspend": true}))
        .expect("Suspended(JobSuspended) failed=1 unstarted")
        .edit(json!({"suspend": false}))
        .step(Step::Finish)
        .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1 failed=1 completedIndexes=0"),
        scenario("suspend-fails-when-resumed", "5.2.6: a suspended Job can't be declared failed", {
            runs(1, 1, json!({"backoffLimit": 0, "podReplacementPolicy": "Failed"}))
        })
        .run(1)
        .pod(nth(0), Deed::Delete)
        .expect("terminating=1")
        .edit(json!({"suspend": true}))
        .expect("Suspended(JobSuspended) terminating=1 unstarted")
        .pod(nth(0), Deed::End(1))
        .step(Step::Has("FailureTarget"))
        .meanwhile(Step::Edit(json!({"spec": {"suspend": false}})))
        .step(Step::Has("Failed")),
    ]
}

fn edited() -> Vec<Scenario> {
    let directives = "TestMutableSchedulingDirectivesForSuspendedJobs";
    vec![
        scenario("node-selector", "TestNodeSelectorUpdate", runs(1, 1, json!({"suspend": true})))
            .expect("Suspended(JobSuspended) unstarted")
            .edit({
                let mut edit = node("ssd");
                edit["suspend"] = json!(false);
                edit
            })
            .expect("Suspended=False(JobResumed) active=1")
            .step(Step::Refused(json!({"spec": node("hdd")}), "spec.template: Invalid value"))
            .succeed()
            .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1"),
        scenario("resources-suspended", "TestUpdateJobPodResources", runs(1, 1, json!({"suspend": true})))
            .expect("Suspended(JobSuspended) unstarted")
            .edit(resources("3"))
            .edit(json!({"suspend": false}))
            .succeed()
            .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1"),
        scenario("resources-running", "TestUpdateJobPodResources", runs(1, 1, json!({})))
            .expect("active=1")
            .step(Step::Refused(json!({"spec": resources("3")}), "spec.template: Invalid value"))
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("resources-suspended-later", "TestUpdateJobPodResources", runs(1, 1, json!({})))
            .expect("active=1")
            .edit(json!({"suspend": true}))
            .expect("Suspended(JobSuspended) unstarted")
            .edit(resources("3"))
            .edit(json!({"suspend": false}))
            .succeed()
            .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1"),
        scenario("directives", directives, runs(1, 1, json!({})))
            .expect("active=1")
            .step(Step::Refused(json!({"spec": node("ssd")}), "spec.template: Invalid value"))
            .edit(json!({"suspend": true}))
            .expect("Suspended(JobSuspended) unstarted")
            .edit(node("ssd"))
            .edit(json!({"suspend": false}))
            .expect("Suspended=False(JobResumed) active=1")
            .succeed()
            .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1"),
        scenario("directives-not-started", "#139329: before the controller has seen the Job", {
            runs(1, 1, json!({"suspend": true}))
        })
        .meanwhile(Step::Edit(json!({"spec": node("ssd")})))
        .meanwhile(Step::Edit(json!({"spec": resources("2")})))
        .edit(json!({"suspend": false}))
        .succeed()
        .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1"),
    ]
}

fn elastic() -> Vec<Scenario> {
    let test = "TestElasticIndexedJob";
    let size = |size: u32| json!({"parallelism": size, "completions": size});
    vec![
        scenario("elastic-up", test, indexed(3, 3, json!({})))
            .expect("active=3")
            .edit(size(4))
            .expect("active=4")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=4 completedIndexes=0-3"),
        scenario("elastic-down", test, indexed(3, 3, json!({})))
            .pods([(index(1), Deed::Exit(0)), (index(2), Deed::Exit(1))])
            .expect("active=2 succeeded=1 failed=1 completedIndexes=1")
            .edit(size(1))
            .expect("active=1 failed=1")
            .pod(index(0), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1 failed=1 completedIndexes=0"),
        scenario("elastic-down-and-up", test, indexed(3, 3, json!({})))
            .pod(index(2), Deed::Exit(0))
            .expect("active=2 succeeded=1 completedIndexes=2")
            .edit(size(2))
            .expect("active=2")
            .edit(size(3))
            .expect("active=3")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=3 completedIndexes=0-2"),
        scenario("elastic-to-nothing", test, indexed(3, 3, json!({})))
            .expect("active=3")
            .edit(size(0))
            .ends("Complete(CompletionsReached)"),
        scenario(
            "elastic-while-running",
            "TestDelayTerminalPhaseCondition: Complete waits for the last pod",
            indexed(2, 2, json!({})),
        )
        .run(2)
        .pod(index(0), Deed::Exit(0))
        .edit(size(1))
        .expect("SuccessCriteriaMet(CompletionsReached) succeeded=1 terminating=1 completedIndexes=0")
        .end_terminating()
        .ends("Complete(CompletionsReached) succeeded=1 completedIndexes=0"),
        scenario("parallelism-changed", "TestParallelJobChangingParallelism", {
            json!({"parallelism": 5, "backoffLimit": 2})
        })
        .expect("active=5")
        .edit(json!({"parallelism": 2}))
        .expect("active=2")
        .edit(json!({"parallelism": 4}))
        .expect("active=4")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=4"),
        scenario(
            "parallelism-0",
            "5.2.9: all pods go, the Job stays",
            runs(2, 2, json!({"backoffLimit": 0})),
        )
        .run(2)
        .edit(json!({"parallelism": 0}))
        .expect("terminating=2")
        .end_terminating()
        .expect("")
        .edit(json!({"parallelism": 2}))
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=2"),
        scenario("parallelism-keeps-the-best", "ready pods are removed last", runs(3, 3, json!({})))
            .pods([(nth(0), Deed::Run), (nth(1), Deed::Run)])
            .expect("active=3 ready=2")
            .edit(json!({"parallelism": 2}))
            .expect("active=2 ready=2")
            .edit(json!({"parallelism": 1}))
            .expect("active=1 ready=1 terminating=1")
            .end_terminating()
            .step(Step::Finish)
            .ends("Complete(CompletionsReached) succeeded=3"),
    ]
}

fn limited() -> Vec<Scenario> {
    vec![
        scenario("deadline-0", "5.2.10: fails before it has a pod", json!({"activeDeadlineSeconds": 0}))
            .ends("Failed(DeadlineExceeded)"),
        scenario("deadline", "what runs is ended and counted", runs(2, 2, json!({})))
            .run(2)
            .pod(nth(0), Deed::Exit(0))
            .edit(json!({"activeDeadlineSeconds": 1}))
            .step(Step::Has("FailureTarget"))
            .expect("FailureTarget(DeadlineExceeded) succeeded=1 failed=1 terminating=1")
            .end_terminating()
            .ends("Failed(DeadlineExceeded) succeeded=1 failed=1"),
        scenario("deadline-suspended", "a suspended Job has no deadline", {
            json!({"activeDeadlineSeconds": 1, "suspend": true})
        })
        .expect("Suspended(JobSuspended) unstarted")
        .step(Step::Pass)
        .edit(json!({"activeDeadlineSeconds": 3600, "suspend": false}))
        .succeed()
        .ends("Suspended=False(JobResumed) Complete(CompletionsReached) succeeded=1"),
        scenario("no-completions", "5.2.8: completes without a pod", json!({"completions": 0}))
            .ends("Complete(CompletionsReached)"),
        scenario("work-queue-success-then-failures", "5.2.11: no pod after the first success", {
            json!({"parallelism": 3, "backoffLimit": 0})
        })
        .pod(nth(0), Deed::Exit(0))
        .expect("active=2 succeeded=1")
        .pod(nth(1), Deed::Exit(1))
        .ends("Failed(BackoffLimitExceeded) succeeded=1 failed=2"),
        scenario("limit-0", "a Job without retries", json!({"backoffLimit": 0}))
            .pod(nth(0), Deed::Exit(1))
            .ends("Failed(BackoffLimitExceeded) failed=1"),
        scenario("limit-parallel", "#60735: what runs when the limit is hit counts too", {
            runs(3, 3, json!({"backoffLimit": 1}))
        })
        .run(3)
        .step(Step::Stop)
        .pods([(nth(0), Deed::Exit(1)), (nth(1), Deed::Exit(1))])
        .step(Step::Start)
        .expect("FailureTarget(BackoffLimitExceeded) failed=3 terminating=1")
        .end_terminating()
        .ends("Failed(BackoffLimitExceeded) failed=3"),
        scenario("limit-on-failure", "#67859: restarts in place count", {
            json!({"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}})
        })
        .pod(nth(0), Deed::Restarts(1))
        .step(Step::Pass)
        .expect("active=1")
        .pod(nth(0), Deed::Restarts(2))
        .step(Step::Has("FailureTarget"))
        .end_terminating()
        .ends("Failed(BackoffLimitExceeded) failed=1"),
        scenario("limit-0-on-failure", "#67859: with limit 0 the first restart is too many", {
            json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "OnFailure"}}})
        })
        .pod(nth(0), Deed::Restarts(1))
        .step(Step::Has("FailureTarget"))
        .end_terminating()
        .ends("Failed(BackoffLimitExceeded) failed=1"),
        scenario("limit-running", "TestDelayTerminalPhaseCondition: Failed waits for the last pod", {
            runs(2, 2, json!({"backoffLimit": 0}))
        })
        .run(2)
        .pod(nth(0), Deed::Exit(1))
        .expect("FailureTarget(BackoffLimitExceeded) failed=2 terminating=1")
        .pod(Who::Terminating, Deed::End(0))
        .ends("Failed(BackoffLimitExceeded) failed=2"),
    ]
}
