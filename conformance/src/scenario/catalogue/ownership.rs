//! Whose Jobs and whose pods: `managedBy`, adoption, release, and what others wrote.

use serde_json::{Value, json};

use super::super::{Deed, Scenario, Step, Who, index, indexed, nth, runs, scenario};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// A pod with the labels of the Job.
fn stranger(name: &str, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {
            "batch.kubernetes.io/controller-uid": "<uid>", "controller-uid": "<uid>",
            "batch.kubernetes.io/job-name": "job", "job-name": "job",
        }},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]},
    });
    super::super::merge(&mut pod, more);
    pod
}

/// A pod that the Job owns and tracks.
fn owned(name: &str, index: Option<&str>) -> Value {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "<uid>",
                       "controller": true, "blockOwnerDeletion": true});
    let mut pod =
        stranger(name, json!({"metadata": {"ownerReferences": [owner], "finalizers": [FINALIZER]}}));
    if let Some(index) = index {
        pod["metadata"]["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index});
    }
    pod
}

pub(super) fn all() -> Vec<Scenario> {
    let managed = "TestManagedBy";
    let other = || json!({"managedBy": "example.com/other"});
    vec![
        scenario("managed-by-nobody", managed, json!({}))
            .expect("active=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("managed-by-built-in", managed, json!({"managedBy": "kubernetes.io/job-controller"}))
            .expect("active=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("managed-by-another", managed, other()).step(Step::Pass).ends("unstarted"),
        scenario("managed-by-another-suspended", managed, {
            json!({"managedBy": "example.com/other", "suspend": true})
        })
        .step(Step::Pass)
        .ends("unstarted"),
        scenario("managed-by-another-restart", "TestManagedBy_Reenabling", other())
            .step(Step::Pass)
            .restart()
            .ends("unstarted"),
        scenario("managed-by-another-finalizer", "TestManagedBy_UsingReservedJobFinalizers", other())
            .step(Step::MakePod(owned("theirs", None)))
            .pod(nth(0), Deed::Exit(0))
            .step(Step::EditStatus(json!({
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached",
                                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            })))
            .pod(nth(0), Deed::Patch(json!({"metadata": {"annotations": {"seen": "yes"}}})))
            .step(Step::Pass)
            .ends("SuccessCriteriaMet(CompletionsReached)"),
        scenario("adopt", "a pod of nobody with the right labels is adopted", runs(1, 2, json!({})))
            .expect("active=1")
            .step(Step::Stop)
            .step(Step::MakePod(stranger("stray", json!({}))))
            .step(Step::Edit(json!({"spec": {"parallelism": 2}})))
            .step(Step::Start)
            .expect("active=2")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2"),
        scenario("adopt-finished", "a finished pod that is adopted is counted", runs(1, 2, json!({})))
            .expect("active=1")
            .step(Step::Stop)
            .step(Step::MakePod(stranger("stray", json!({}))))
            .pod(nth(1), Deed::Exit(0))
            .step(Step::Start)
            .expect("active=1 succeeded=1")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2"),
        scenario("adopt-too-many", "#99963: surplus pods go before the Job completes", runs(2, 2, json!({})))
            .run(2)
            .step(Step::Stop)
            .step(Step::MakePod(stranger("stray", json!({}))))
            .step(Step::Start)
            .step(Step::Count(2))
            .expect("active=2 ready=2")
            .succeed()
            .ends("Complete(CompletionsReached) succeeded=2"),
        scenario("release", "a pod whose labels change is let go and replaced", runs(1, 1, json!({})))
            .run(1)
            .pod(
                nth(0),
                Deed::Patch(json!({"metadata": {"labels": {
                    "batch.kubernetes.io/controller-uid": null, "controller-uid": null}}})),
            )
            .step(Step::Count(2))
            .expect("active=1")
            .pod(nth(1), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("bad-index", "5.2.13: pods without a usable index change nothing", indexed(1, 2, json!({})))
            .run(1)
            .step(Step::Stop)
            .step(Step::MakePod(owned("none", None)))
            .step(Step::MakePod(owned("text", Some("x"))))
            .step(Step::MakePod(owned("beyond", Some("7"))))
            .pods([(nth(2), Deed::Exit(1)), (nth(3), Deed::Exit(0))])
            .step(Step::Start)
            .expect("active=1 ready=1")
            .step(Step::Finish)
            .ends("Complete(CompletionsReached) succeeded=2 completedIndexes=0,1"),
        scenario("twin-succeeds", "5.2.12: a second success of an index is not counted", {
            indexed(1, 2, json!({}))
        })
        .step(Step::Stop)
        .step(Step::MakePod(owned("twin", Some("0"))))
        .pods([(nth(0), Deed::Exit(0)), (nth(1), Deed::Exit(0))])
        .step(Step::Start)
        .expect("active=1 succeeded=1 completedIndexes=0")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=2 completedIndexes=0,1"),
        scenario("twin-removed", "of two active pods of an index one goes, uncounted", {
            indexed(1, 1, json!({"backoffLimit": 0}))
        })
        .run(1)
        .step(Step::Stop)
        .step(Step::MakePod(owned("twin", Some("0"))))
        .step(Step::Start)
        .expect("active=1 ready=1")
        .pod(index(0), Deed::Exit(0))
        .ends("Complete(CompletionsReached) succeeded=1 completedIndexes=0"),
        scenario("foreign-condition", "5.2.24: what others wrote in the status stays", runs(1, 1, json!({})))
            .expect("active=1")
            .step(Step::EditStatus(json!({"conditions": [
                {"type": "CustomConditionType", "status": "True", "reason": "Custom",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}]})))
            .pod(Who::Active, Deed::Exit(0))
            .ends("CustomConditionType(Custom) Complete(CompletionsReached) succeeded=1"),
        scenario("template-kept", "labels, annotations, finalizers and variables of the template", {
            indexed(1, 1, json!({"template": {
                "metadata": {"labels": {"app": "demo"}, "annotations": {"note": "kept"},
                             "finalizers": ["example.com/block"]},
                "spec": {
                    "hostname": "mine",
                    "initContainers": [{"name": "init", "image": "host"}],
                    "containers": [
                        {"name": "main", "image": "host", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "own"}]},
                        {"name": "side", "image": "host", "env": [{"name": "A", "value": "b"}]},
                    ],
                },
            }}))
        })
        .pod(index(0), Deed::Exit(0))
        .ends("Complete(CompletionsReached) succeeded=1 completedIndexes=0"),
    ]
}
