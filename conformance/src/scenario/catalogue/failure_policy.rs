//! `podFailurePolicy`: which failures end the Job, count, or are ignored.

use serde_json::json;
use windlass_api::names::disruption;

use super::super::{Deed, Scenario, Step, again, index, indexed, nth, runs, scenario};
use super::{and, on_disruption, on_exit, policy};

const RULES: &str = "TestJobPodFailurePolicy";

fn three_rules() -> serde_json::Value {
    policy([on_disruption("Ignore"), on_exit("Count", "In", &[10]), on_exit("FailJob", "In", &[5, 6, 7])])
}

fn two_containers(rule: serde_json::Value) -> serde_json::Value {
    let containers = json!([{"name": "main", "image": "host"}, {"name": "side", "image": "host"}]);
    and(policy([rule]), json!({"template": {"spec": {"containers": containers}}}))
}

pub(super) fn all() -> Vec<Scenario> {
    let mut all = vec![
        scenario("policy-fail-job", RULES, three_rules())
            .pod(nth(0), Deed::Exit(5))
            .ends("Failed(PodFailurePolicy) failed=1"),
        scenario("policy-fail-job-restart", RULES, three_rules())
            .step(Step::Stop)
            .pod(nth(0), Deed::Exit(5))
            .step(Step::Start)
            .ends("Failed(PodFailurePolicy) failed=1"),
        scenario("policy-ignore", RULES, three_rules())
            .pod(nth(0), Deed::Disrupted(disruption::EVICTION_BY_EVICTION_API, 137))
            .expect("active=1")
            .pod(nth(1), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("policy-count", RULES, three_rules())
            .pod(nth(0), Deed::Exit(10))
            .expect("active=1 failed=1")
            .pod(nth(1), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("policy-no-match", RULES, three_rules())
            .pod(nth(0), Deed::Status(json!({"phase": "Failed"})))
            .expect("active=1 failed=1")
            .pod(nth(1), Deed::Exit(0))
            .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("policy-negative-code", RULES, policy([on_exit("FailJob", "In", &[-1_073_741_510, 137])]))
            .pod(nth(0), Deed::Exit(-1_073_741_510))
            .ends("Failed(PodFailurePolicy) failed=1"),
        scenario(
            "policy-pod-deleted-during-restart",
            "TestJobPodFailurePolicyWithFailedPodDeletedDuringControllerRestart",
            runs(3, 3, policy([on_exit("FailJob", "In", &[5])])),
        )
        .run(3)
        .pod(nth(0), Deed::Exit(5))
        .expect("FailureTarget(PodFailurePolicy) failed=3 terminating=2")
        .step(Step::Stop)
        .pod(nth(0), Deed::ForceDelete)
        .step(Step::Start)
        .end_terminating()
        .ends("Failed(PodFailurePolicy) failed=3"),
        scenario("policy-first-rule-wins", "rules in order", {
            policy([on_exit("Ignore", "In", &[5]), on_exit("FailJob", "In", &[5])])
        })
        .pod(nth(0), Deed::Exit(5))
        .expect("active=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=1"),
        scenario("policy-not-in-skips-zero", "exit code 0 matches nothing", {
            policy([on_exit("FailJob", "NotIn", &[40])])
        })
        .pod(nth(0), Deed::Exit(40))
        .expect("active=1 failed=1")
        .pod(nth(1), Deed::Exit(0))
        .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("policy-named-container-matches", "containerName", {
            two_containers(json!({"action": "FailJob",
                "onExitCodes": {"containerName": "side", "operator": "In", "values": [3]}}))
        })
        .pod(nth(0), Deed::Exits(&[("main", 1), ("side", 3)]))
        .ends("Failed(PodFailurePolicy) failed=1"),
        scenario("policy-other-container-does-not", "containerName", {
            two_containers(json!({"action": "FailJob",
                "onExitCodes": {"containerName": "side", "operator": "In", "values": [3]}}))
        })
        .pod(nth(0), Deed::Exits(&[("main", 3), ("side", 0)]))
        .expect("active=1 failed=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("policy-fail-job-on-condition", "the message names the condition", {
            let pattern = json!([{"type": "ConfigIssue", "status": "True"}]);
            policy([json!({"action": "FailJob", "onPodConditions": pattern})])
        })
        .pod(
            nth(0),
            Deed::Status(
                json!({"phase": "Failed", "conditions": [{"type": "ConfigIssue", "status": "True"}]}),
            ),
        )
        .ends("Failed(PodFailurePolicy) failed=1"),
        scenario("policy-condition-status", "a condition that is False does not match True", {
            policy([on_disruption("FailJob")])
        })
        .pod(
            nth(0),
            Deed::Status(
                json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}),
            ),
        )
        .expect("active=1 failed=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=1 failed=1"),
        scenario("policy-waits-for-phase", "KEP-3329: a deleted pod is judged when it is terminal", {
            runs(1, 1, and(policy([on_exit("FailJob", "In", &[3])]), json!({"backoffLimit": 2})))
        })
        .run(1)
        .pod(nth(0), Deed::Delete)
        .expect("terminating=1")
        .pod(nth(0), Deed::End(3))
        .ends("Failed(PodFailurePolicy) failed=1"),
        scenario("policy-ignore-never-limits", "5.2.17: ignored failures fail nothing", {
            and(policy([on_disruption("Ignore")]), json!({"backoffLimit": 0}))
        })
        .pod(nth(0), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
        .pod(nth(1), Deed::Disrupted(disruption::PREEMPTION_BY_SCHEDULER, 137))
        .expect("active=1")
        .pod(nth(2), Deed::Exit(1))
        .ends("Failed(BackoffLimitExceeded) failed=1"),
        scenario("policy-ignored-of-an-index", "5.2.17: ignored failures are written on the next pod", {
            indexed(1, 1, and(policy([on_disruption("Ignore")]), json!({"backoffLimitPerIndex": 1})))
        })
        .pod(index(0), Deed::Disrupted(disruption::DELETION_BY_TAINT_MANAGER, 137))
        .pod(again(0, 1), Deed::Exit(1))
        .pod(again(0, 2), Deed::Disrupted(disruption::DELETION_BY_TAINT_MANAGER, 137))
        .expect("active=1 failed=1")
        .pod(again(0, 3), Deed::Exit(1))
        .ends("Failed(FailedIndexes) failed=2 failedIndexes=0"),
        scenario(
            "policy-node-lost",
            "KEP-3329: a lost node is a disruption",
            policy([on_disruption("Ignore")]),
        )
        .run(1)
        .pod(nth(0), Deed::LoseNode)
        .expect("active=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=1"),
    ];
    let sources = [
        ("policy-preempted", disruption::PREEMPTION_BY_SCHEDULER),
        ("policy-tainted", disruption::DELETION_BY_TAINT_MANAGER),
        ("policy-evicted", disruption::EVICTION_BY_EVICTION_API),
        ("policy-collected", disruption::DELETION_BY_POD_GC),
        ("policy-node-pressure", disruption::TERMINATION_BY_KUBELET),
    ];
    all.extend(sources.map(|(name, reason)| {
        scenario(name, "KEP-3329: five components disrupt", {
            runs(2, 2, and(policy([on_disruption("Ignore")]), json!({"backoffLimit": 0})))
        })
        .run(2)
        .pod(nth(0), Deed::Disrupted(reason, 143))
        .expect("active=2 ready=1")
        .succeed()
        .ends("Complete(CompletionsReached) succeeded=2")
    }));
    all
}
