//! When a pod is replaced: `podReplacementPolicy`, with and without a failure policy, and its gate.

mod common;

use common::{Bench, JobBuilder, job, on_exit};
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_job::Action;
use windlass_job::decision::CreationReason;

fn running(job: JobBuilder, uids: &[&str]) -> Bench {
    let mut bench = Bench::new(job);
    bench.hush().start(uids).hush();
    bench
}

/// Active, failed, succeeded, terminating.
fn counts(bench: &Bench) -> [Value; 4] {
    let status = bench.status();
    ["active", "failed", "succeeded", "terminating"].map(|key| status[key].clone())
}

fn creation_reasons(bench: &mut Bench) -> Vec<CreationReason> {
    let mut reasons = Vec::new();
    while let decision = bench.decide()
        && !decision.stage.is_empty()
    {
        reasons.extend(decision.stage.iter().filter_map(|action| match action {
            Action::Create(new) => Some(new.reason),
            _ => None,
        }));
        bench.step();
    }
    reasons
}

// TestJobPodReplacementPolicy, TerminatingOrFailed
#[test]
fn terminating_pods_are_failures_and_are_replaced_at_once_by_default() {
    let mut bench = Bench::new(job().runs(2, 2));
    assert_eq!(creation_reasons(&mut bench), [CreationReason::New; 2]);
    bench.start(&["p0", "p1"]).hush().delete("p0").delete("p1").hush().advance(20);
    assert_eq!(creation_reasons(&mut bench), [CreationReason::RecreateTerminatingOrFailed; 2]);
    assert_eq!(counts(&bench), [json!(2), json!(2), json!(null), json!(2)]);
    bench.fail("p0").fail("p1").hush();
    assert_eq!(counts(&bench), [json!(2), json!(2), json!(null), json!(0)], "they are not counted again");
}

// TestJobPodReplacementPolicy, Failed
#[test]
fn with_policy_failed_terminating_pods_are_neither_failed_nor_replaced_before_they_stop() {
    let mut bench = running(job().runs(2, 2).replaces_failed(), &["p0", "p1"]);
    bench.delete("p0").delete("p1").advance(60).hush();
    assert_eq!(counts(&bench), [json!(null), json!(null), json!(null), json!(2)]);
    bench.fail("p0").fail("p1").hush().advance(20);
    assert_eq!(creation_reasons(&mut bench), [CreationReason::RecreateFailed; 2]);
    assert_eq!(counts(&bench), [json!(2), json!(2), json!(null), json!(0)]);
}

// 2.17, right column
#[test]
fn a_failure_policy_waits_for_the_pod_to_stop_like_policy_failed() {
    let mut bench = running(job().policy([on_exit("FailJob", "In", &[5])]), &["p0"]);
    bench.delete("p0").advance(60).hush();
    assert_eq!(counts(&bench), [json!(null), json!(null), json!(null), json!(1)]);
    bench.exit("p0", 5).hush();
    assert_eq!(bench.status()["conditions"][0]["reason"], "PodFailurePolicy");
}

// 2.17, last row
#[test]
fn a_terminating_pod_that_ends_well_is_a_success_unless_it_was_counted_as_failed() {
    let mut failed_only = running(job().replaces_failed(), &["p0"]);
    failed_only.delete("p0").hush().succeed("p0").hush();
    assert_eq!(counts(&failed_only), [json!(null), json!(null), json!(1), json!(0)]);
    let mut seen_late = running(job(), &["p0"]);
    seen_late.delete("p0").succeed("p0").hush();
    assert_eq!(
        counts(&seen_late),
        [json!(null), json!(null), json!(1), json!(0)],
        "it was not recorded before"
    );
    let mut counted = running(job(), &["p0"]);
    counted.delete("p0").hush().succeed("p0").hush();
    assert_eq!(counts(&counted)[1..3], [json!(1), json!(null)]);
}

#[test]
fn a_terminating_pod_holds_its_index_with_policy_failed_only() {
    let mut failed_only = running(job().indexed(2, 3).replaces_failed(), &["0.0", "1.0"]);
    failed_only.delete("0.0").advance(60).hush();
    assert_eq!(failed_only.uids(), ["0.0", "1.0"], "it takes a place in parallelism, too");
    let mut default = running(job().indexed(2, 3), &["0.0", "1.0"]);
    default.delete("0.0").advance(60).hush();
    assert_eq!(default.uids(), ["0.0", "0.1", "1.0"]);
}

#[test]
fn back_off_counts_from_the_deletion_by_default_and_from_the_stop_with_policy_failed() {
    let mut default = running(job(), &["p0"]);
    default.advance(5).delete("p0").run_all();
    assert_eq!((default.seconds(), default.uids()), (15, vec!["p0", "p1"]));
    let mut failed_only = running(job().replaces_failed(), &["p0"]);
    failed_only.advance(5).delete("p0").hush().advance(20).fail("p0").run_all();
    assert_eq!((failed_only.seconds(), failed_only.uids()), (35, vec!["p1"]));
}

// TestJobPodReplacementPolicyFeatureToggling; document 002
#[test]
fn the_gate_of_the_replacement_policy_can_be_switched_off_and_on() {
    let off = Gates { job_pod_replacement_policy: false, ..Gates::default() };
    let mut bench = running(job().runs(2, 2).replaces_failed(), &["p0", "p1"]);
    bench.delete("p0").delete("p1").hush();
    assert_eq!(counts(&bench), [json!(null), json!(null), json!(null), json!(2)]);
    bench.restart_with(off).run_all();
    assert_eq!(
        counts(&bench),
        [json!(2), json!(2), json!(null), json!(null)],
        "counted as failed and replaced"
    );
    bench.restart_with(Gates::default()).hush();
    assert_eq!(counts(&bench), [json!(2), json!(2), json!(null), json!(2)]);
    bench.succeed("p0").succeed("p1").hush();
    assert_eq!(counts(&bench), [json!(2), json!(2), json!(null), json!(0)], "they still count as failed");
    bench.start(&["p2", "p3"]).hush().delete("p2").advance(60).hush();
    assert_eq!(counts(&bench), [json!(1), json!(2), json!(null), json!(1)]);
}

#[test]
fn a_failure_policy_waits_for_the_stop_unless_nobody_promises_that_pods_stop() {
    let policy = || job().policy([on_exit("FailJob", "In", &[5])]);
    for (disruption, replacement, failed) in
        [(true, true, 0), (true, false, 0), (false, true, 0), (false, false, 1)]
    {
        let gates = Gates {
            pod_disruption_conditions: disruption,
            job_pod_replacement_policy: replacement,
            ..Gates::default()
        };
        let mut bench = Bench::with(policy(), gates);
        bench.hush().start(&["p0"]).hush().delete("p0").hush();
        let count = bench.status()["failed"].as_i64().unwrap_or(0);
        assert_eq!(
            count, failed,
            "PodDisruptionConditions {disruption}, JobPodReplacementPolicy {replacement}"
        );
    }
}

// TestMutablePodResourcesWithPodReplacementPolicyFailed
#[test]
fn a_resumed_job_with_policy_failed_waits_for_the_pods_that_the_suspension_removed() {
    let mut bench = running(job().runs(2, 2).replaces_failed(), &["p0", "p1"]);
    bench.edit(|job| job.suspended(true)).hush();
    assert_eq!(counts(&bench), [json!(null), json!(null), json!(null), json!(2)]);
    bench.edit(|job| job.suspended(false)).hush();
    assert_eq!((bench.uids(), &bench.status()["active"]), (vec!["p0", "p1"], &json!(null)));
    bench.vanish("p0").vanish("p1").hush();
    assert_eq!((bench.uids(), &bench.status()["active"]), (vec!["p2", "p3"], &json!(2)));
}

#[test]
fn the_reason_of_a_creation_follows_what_was_seen() {
    let mut bench = running(job().runs(2, 4), &["p0", "p1"]);
    bench.succeed("p0");
    assert_eq!(creation_reasons(&mut bench), [CreationReason::New]);
    bench.fail("p1").advance(60);
    assert_eq!(creation_reasons(&mut bench), [CreationReason::RecreateTerminatingOrFailed]);
    let mut bench = running(job().runs(1, 4), &["p0"]);
    bench.edit(|job| job.runs(0, 4)).hush().edit(|job| job.runs(1, 4));
    assert_eq!(
        creation_reasons(&mut bench),
        [CreationReason::RecreateTerminatingOrFailed],
        "one is terminating"
    );
}
