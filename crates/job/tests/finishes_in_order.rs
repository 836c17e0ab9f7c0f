//! How a Job ends: which reason wins, what is written when, and what is waited for.

mod common;

use common::{Bench, JobBuilder, PodBuilder, at, conditions, job, on_condition, on_exit, pod, rfc3339};
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_job::Wake;

fn running(job: JobBuilder, uids: &[&str]) -> Bench {
    let mut bench = Bench::new(job);
    bench.hush().start(uids).hush();
    bench
}

/// Type and reason of each condition.
fn ends(bench: &Bench) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = bench.status();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().map(|c| (text(&c["type"]), text(&c["reason"]))).collect()
}

fn both(interim: &str, terminal: &str, reason: &str) -> Vec<(String, String)> {
    [interim, terminal].map(|kind| (kind.to_owned(), reason.to_owned())).to_vec()
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!([{ "type": kind, "status": status, "reason": reason, "message": "said before" }])
}

#[test]
fn the_first_reason_that_holds_ends_the_job() {
    let start = || json!({ "startTime": rfc3339(0) });
    let written = |kind: &str, reason: &str| json!({ "startTime": rfc3339(0), "conditions": condition(kind, "True", reason) });
    let fail_job = || [on_exit("FailJob", "In", &[5])];
    let index = |number: i32| pod(&format!("i{number}")).index(number);
    type Ends = Vec<(String, String)>;
    let cases: Vec<(&str, JobBuilder, Vec<PodBuilder>, i64, Ends)> = vec![
        (
            "a success that was written beats everything",
            job()
                .limit(0)
                .policy(fail_job())
                .deadline(1)
                .status(written("SuccessCriteriaMet", "SuccessPolicy")),
            vec![pod("a").exited(5, 0)],
            9,
            both("SuccessCriteriaMet", "Complete", "SuccessPolicy"),
        ),
        (
            "a failure that was written beats success",
            job().status(written("FailureTarget", "DeadlineExceeded")),
            vec![pod("a").succeeded(0)],
            9,
            both("FailureTarget", "Failed", "DeadlineExceeded"),
        ),
        (
            "a rule beats the limit",
            job().limit(0).policy(fail_job()).status(start()),
            vec![pod("a").exited(1, 0), pod("b").exited(5, 0)],
            9,
            both("FailureTarget", "Failed", "PodFailurePolicy"),
        ),
        (
            "the limit beats the deadline",
            job().limit(0).deadline(9).status(start()),
            vec![pod("a").failed(0)],
            9,
            both("FailureTarget", "Failed", "BackoffLimitExceeded"),
        ),
        (
            "the deadline beats failed indexes",
            job().indexed(1, 1).per_index(0).deadline(9).status(start()),
            vec![index(0).failed(0)],
            9,
            both("FailureTarget", "Failed", "DeadlineExceeded"),
        ),
        (
            "too many failed indexes beat failed indexes",
            job().indexed(1, 1).per_index(0).max_failed(0).status(start()),
            vec![index(0).failed(0)],
            9,
            both("FailureTarget", "Failed", "MaxFailedIndexesExceeded"),
        ),
        (
            "failed indexes beat the success policy",
            job().indexed(2, 2).per_index(0).success([json!({ "succeededCount": 1 })]).status(start()),
            vec![index(0).failed(0), index(1).succeeded(0)],
            9,
            both("FailureTarget", "Failed", "FailedIndexes"),
        ),
        (
            "the success policy beats completions",
            job().indexed(1, 1).success([json!({ "succeededCount": 1 })]).status(start()),
            vec![index(0).succeeded(0)],
            9,
            both("SuccessCriteriaMet", "Complete", "SuccessPolicy"),
        ),
        (
            "the deadline beats success",
            job().deadline(9).status(start()),
            vec![pod("a").succeeded(0)],
            9,
            both("FailureTarget", "Failed", "DeadlineExceeded"),
        ),
    ];
    for (what, job, pods, now, want) in cases {
        let mut bench = Bench::new(job);
        bench.advance(now);
        pods.into_iter().for_each(|pod| _ = bench.add(pod));
        bench.run();
        assert_eq!(ends(&bench), want, "{what}");
    }
}

#[test]
fn an_announced_end_keeps_its_reason_and_message() {
    for (interim, terminal) in [("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")] {
        let status = json!({ "startTime": rfc3339(0), "conditions": condition(interim, "True", "Foreign") });
        let mut bench = Bench::new(job().status(status));
        bench.hush();
        let last = bench.status()["conditions"][1].clone();
        assert_eq!(last["type"], terminal);
        assert_eq!((&last["reason"], &last["message"]), (&json!("Foreign"), &json!("said before")));
    }
}

#[test]
fn an_announcement_that_is_false_means_nothing_and_is_replaced_in_its_place() {
    for kind in ["FailureTarget", "SuccessCriteriaMet"] {
        let status = json!({ "startTime": rfc3339(0), "conditions": condition(kind, "False", "Foreign") });
        let mut bench = Bench::new(job().limit(0).status(status));
        bench.hush();
        assert_eq!(bench.status()["active"], 1, "{kind}");
    }
    let status =
        json!({ "startTime": rfc3339(0), "conditions": condition("FailureTarget", "False", "Foreign") });
    let mut bench = Bench::new(job().limit(0).status(status));
    bench.hush().fail("p0").hush();
    assert_eq!(ends(&bench), both("FailureTarget", "Failed", "BackoffLimitExceeded"));
}

// 2.23, first timeline
#[test]
fn a_job_that_may_not_fail_ends_in_two_writes_when_its_pod_fails() {
    let mut bench = running(job().limit(0), &["p0"]);
    bench.fail("p0");
    assert_eq!(
        bench.writes(),
        [
            "status active=none ready=0 uncounted.failed=[p0] +FailureTarget(BackoffLimitExceeded)",
            "release p0",
            "status failed=1 uncounted.failed=[] +Failed(BackoffLimitExceeded) !BackoffLimitExceeded",
        ]
    );
}

// 2.23, second timeline
#[test]
fn a_pod_that_still_runs_is_counted_at_once_and_waited_for() {
    let mut bench = running(job().runs(2, 2).limit(0), &["p0", "p1"]);
    bench.fail("p0");
    assert_eq!(
        bench.writes(),
        [
            "delete p1",
            "status active=none ready=0 terminating=1 uncounted.failed=[p0,p1] \
             +FailureTarget(BackoffLimitExceeded)",
            "release p0",
            "release p1",
            "status failed=2 uncounted.failed=[]",
        ]
    );
    bench.advance(30).exit("p1", 143);
    assert_eq!(bench.writes(), ["status terminating=0 +Failed(BackoffLimitExceeded) !BackoffLimitExceeded"]);
}

// 2.23, third timeline
#[test]
fn the_last_success_completes_the_job_in_two_writes() {
    let mut bench = running(job().runs(1, 2), &["p0"]);
    bench.succeed("p0").hush().start(&["p1"]).hush().advance(8).succeed("p1");
    assert_eq!(
        bench.writes(),
        [
            "status active=none ready=0 uncounted.succeeded=[p1] +SuccessCriteriaMet(CompletionsReached)",
            "release p1",
            "status succeeded=2 uncounted.succeeded=[] completionTime=8 +Complete(CompletionsReached) !Completed",
        ]
    );
}

// 2.23, fourth timeline
#[test]
fn a_failed_pod_is_counted_at_once_and_replaced_after_ten_seconds() {
    let mut bench = running(job(), &["p0"]);
    bench.fail("p0");
    assert_eq!(
        bench.writes(),
        [
            "status active=none ready=0 uncounted.failed=[p0]",
            "release p0",
            "status failed=1 uncounted.failed=[]"
        ]
    );
    assert_eq!(bench.run(), Wake::At(at(10)));
    bench.advance(10);
    assert_eq!(bench.writes(), ["create p1", "status active=1"]);
}

#[test]
fn an_indexed_success_is_counted_in_one_write() {
    let mut bench = running(job().indexed(1, 2), &["0.0"]);
    bench.succeed("0.0");
    assert_eq!(
        bench.writes(),
        ["create 1.0", "status ready=0 succeeded=1 completedIndexes=0", "release 0.0"]
    );
}

// TestJobPodFailurePolicyWithFailedPodDeletedDuringControllerRestart
#[test]
fn the_reason_outlives_the_pod_that_gave_it_and_the_controller_that_read_it() {
    let mut bench = running(job().runs(3, 3).policy([on_exit("FailJob", "In", &[5])]), &["p0", "p1", "p2"]);
    bench.exit("p1", 5);
    let name = bench.get("p1").and_then(|pod| pod.metadata.name).expect("a name");
    while bench.held().contains(&"p1") {
        bench.step();
    }
    bench.vanish("p1").restart().run();
    bench.exit("p0", 143).exit("p2", 143).hush();
    let message =
        format!("Container main for pod lab/{name} failed with exit code 5 matching FailJob rule at index 0");
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "ready": 0, "terminating": 0, "failed": 3, "uncountedTerminatedPods": {},
            "conditions": conditions(&["FailureTarget", "Failed"], "PodFailurePolicy", &message, 0),
        })
    );
    assert_eq!(bench.held(), Vec::<&str>::new());
}

#[test]
fn the_pod_that_fails_the_job_keeps_its_finalizer_until_the_verdict_is_written() {
    let mut bench = running(job().runs(2, 2).policy([on_exit("FailJob", "In", &[5])]), &["p0", "p1"]);
    bench.exit("p0", 5).break_next(&[windlass_job::decision::Kind::End]);
    assert_eq!(bench.writes(), ["delete p1 FAILED", "status active=1 ready=1"]);
    assert_eq!(bench.held(), ["p0", "p1"]);
    bench.restart();
    assert_eq!(
        bench.writes(),
        [
            "delete p1",
            "status active=none ready=0 terminating=1 uncounted.failed=[p0,p1] +FailureTarget(PodFailurePolicy)",
            "release p0",
            "release p1",
            "status failed=2 uncounted.failed=[]",
        ]
    );
}

// TestJobPodFailurePolicy
#[test]
fn each_action_of_a_failure_policy_does_what_it_says() {
    let rules = || {
        [
            on_condition("Ignore", "DisruptionTarget"),
            on_exit("Count", "In", &[10]),
            on_exit("FailJob", "In", &[5, 6, 7, -1_073_741_510]),
        ]
    };
    type Fail = fn(&mut Bench);
    let cases: [(&str, Fail, Option<i32>, bool); 5] = [
        ("FailJob", |bench| _ = bench.exit("p0", 5), Some(1), true),
        ("FailJob on a negative code", |bench| _ = bench.exit("p0", -1_073_741_510), Some(1), true),
        ("Ignore", |bench| _ = bench.disrupt("p0"), None, false),
        ("Count", |bench| _ = bench.exit("p0", 10), Some(1), false),
        (
            "no rule, exit code 0",
            |bench| _ = bench.pod("p0", |pod| pod.running().exited(0, 0).phase("Failed")),
            Some(1),
            false,
        ),
    ];
    for (what, fail, failed, is_over) in cases {
        let mut bench = running(job().policy(rules()), &["p0"]);
        fail(&mut bench);
        bench.run_all();
        assert_eq!(bench.status()["failed"], json!(failed), "{what}");
        if is_over {
            assert_eq!(ends(&bench), both("FailureTarget", "Failed", "PodFailurePolicy"), "{what}");
            assert_eq!(bench.status()["active"], json!(null), "{what}");
        } else {
            assert_eq!(bench.status()["active"], 1, "{what}");
            bench.succeed("p1").hush();
            assert_eq!(ends(&bench), both("SuccessCriteriaMet", "Complete", "CompletionsReached"), "{what}");
        }
    }
}

// TestJobPodFailurePolicy: gate off, and on again
#[test]
fn without_its_gate_a_failure_policy_is_not_followed_and_with_it_is_again() {
    let off = Gates { job_pod_failure_policy: false, ..Gates::default() };
    let mut bench = Bench::with(job().runs(2, 2).policy([on_exit("FailJob", "In", &[5])]), off);
    bench.hush().exit("p0", 5).run_all();
    assert_eq!((ends(&bench), &bench.status()["failed"]), (vec![], &json!(1)));
    bench.vanish("p0").restart_with(Gates::default()).exit("p1", 5).run_all();
    assert_eq!(ends(&bench)[0], ("FailureTarget".to_owned(), "PodFailurePolicy".to_owned()));
}

// TestSuccessPolicy
#[test]
fn a_success_policy_completes_a_job_as_soon_as_a_rule_is_met() {
    for rule in [json!({ "succeededIndexes": "1" }), json!({ "succeededCount": 1 })] {
        let mut bench = running(job().indexed(2, 2).success([rule]), &["0.0", "1.0"]);
        bench.succeed("1.0").hush().exit("0.0", 143).hush();
        assert_eq!(
            bench.status(),
            json!({
                "startTime": rfc3339(0), "completionTime": rfc3339(0), "ready": 0, "terminating": 0,
                "succeeded": 1, "completedIndexes": "1", "uncountedTerminatedPods": {},
                "conditions": conditions(
                    &["SuccessCriteriaMet", "Complete"], "SuccessPolicy", "Matched rules at index 0", 0
                ),
            })
        );
    }
}

// TestSuccessPolicy, TestSuccessPolicy_ReEnabling
#[test]
fn a_success_policy_waits_for_as_many_indexes_as_it_says() {
    let pods = ["0.0", "1.0", "2.0", "3.0", "4.0"];
    let mut bench = running(job().indexed(5, 5).success([json!({ "succeededCount": 3 })]), &pods);
    bench.succeed("0.0").hush().succeed("1.0").hush();
    assert_eq!(ends(&bench), []);
    bench.succeed("2.0").hush().exit("3.0", 143).exit("4.0", 0).hush();
    let status = bench.status();
    assert_eq!((&status["completedIndexes"], &status["failed"]), (&json!("0-2"), &json!(null)));
    assert_eq!(ends(&bench), both("SuccessCriteriaMet", "Complete", "SuccessPolicy"));
}

// TestSuccessPolicy with backoffLimitPerIndex
#[test]
fn failed_indexes_win_over_a_success_policy_that_is_met_with_the_last_index() {
    let rule = json!({ "succeededIndexes": "1" });
    let mut bench = running(job().indexed(2, 2).per_index(0).success([rule]), &["0.0", "1.0"]);
    bench.fail("0.0").hush().succeed("1.0").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "ready": 0, "terminating": 0, "succeeded": 1, "failed": 1,
            "completedIndexes": "1", "failedIndexes": "0", "uncountedTerminatedPods": {},
            "conditions": conditions(&["FailureTarget", "Failed"], "FailedIndexes", "Job has failed indexes", 0),
        })
    );
}

// TestDelayTerminalPhaseCondition
#[test]
fn complete_waits_for_pods_that_a_scale_down_left_behind() {
    for gate in [true, false] {
        let gates = Gates { job_pod_replacement_policy: gate, ..Gates::default() };
        let mut bench = Bench::with(job().indexed(2, 2), gates);
        bench.hush().start(&["0.0", "1.0"]).hush().succeed("0.0").hush();
        bench.edit(|job| job.indexed(1, 1)).hush();
        assert_eq!(ends(&bench), [("SuccessCriteriaMet".to_owned(), "CompletionsReached".to_owned())]);
        assert_eq!(bench.status()["terminating"], json!(gate.then_some(1)));
        bench.exit("1.0", 143).hush();
        assert_eq!(ends(&bench), both("SuccessCriteriaMet", "Complete", "CompletionsReached"));
        assert_eq!(bench.status()["failed"], json!(null));
    }
}

// TestJobFailedWithInterrupts
#[test]
fn nine_successes_do_not_outweigh_one_failure_too_many() {
    let mut bench = Bench::new(job().runs(10, 10).limit(0));
    bench.hush().fail("p0");
    (1..10).for_each(|number| _ = bench.succeed(&format!("p{number}")));
    bench.step();
    bench.restart().hush();
    let status = bench.status();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(9), &json!(1)));
    assert_eq!(ends(&bench), both("FailureTarget", "Failed", "BackoffLimitExceeded"));
}

// TestFinalizersClearedWhenBackoffLimitExceeded
#[test]
fn a_hundred_pods_of_a_failing_job_lose_their_finalizers_fifty_at_a_time() {
    let mut bench = Bench::new(job().indexed(100, 100).limit(0));
    bench.settings.uncounted_max = 50;
    bench.hush().fail("0.0");
    assert_eq!(bench.run(), Wake::Settled);
    assert_eq!((bench.held(), &bench.status()["failed"]), (vec![], &json!(100)));
    assert_eq!(ends(&bench), both("FailureTarget", "Failed", "BackoffLimitExceeded"));
}

#[test]
fn a_deadline_wakes_the_decision_at_its_very_second_and_counts_from_the_start() {
    let mut bench = Bench::new(job().deadline(100));
    bench.advance(7);
    assert_eq!(bench.run(), Wake::At(at(107)));
    bench.log();
    bench.advance(99);
    assert_eq!(bench.writes(), Vec::<String>::new());
    bench.advance(1);
    assert_eq!(
        bench.writes(),
        [
            "delete p0",
            "status active=none terminating=1 uncounted.failed=[p0] +FailureTarget(DeadlineExceeded)",
            "release p0",
            "status terminating=0 failed=1 uncounted.failed=[] +Failed(DeadlineExceeded) !DeadlineExceeded",
        ]
    );
}

#[test]
fn the_pods_that_a_deadline_ends_do_not_turn_it_into_an_exceeded_limit() {
    let mut bench = running(job().runs(3, 3).limit(1).deadline(5), &["p0", "p1", "p2"]);
    bench.advance(5).hush();
    assert_eq!(ends(&bench), [("FailureTarget".to_owned(), "DeadlineExceeded".to_owned())]);
    assert_eq!(bench.status()["failed"], 3);
}

// TestBackoffLimitPerIndex, global limit first
#[test]
fn a_global_limit_ends_a_job_with_a_limit_per_index_and_fails_no_index() {
    let mut bench = running(job().indexed(3, 3).per_index(1).limit(2), &["0.0", "1.0", "2.0"]);
    for index in 0..2 {
        bench.fail(&format!("{index}.0"));
    }
    bench.run_all();
    bench.start(&["0.1", "1.1"]).hush().fail("2.0").hush();
    assert_eq!(bench.status()["failed"], 5, "three failures and two pods that ran");
    bench.exit("0.1", 143).exit("1.1", 143).hush();
    assert_eq!(bench.status()["failedIndexes"], "");
    assert_eq!(ends(&bench), both("FailureTarget", "Failed", "BackoffLimitExceeded"));
}

// TestBackoffLimitPerIndex, FailIndex
#[test]
fn fail_index_fails_indexes_by_exit_code_and_by_condition() {
    let rules = [on_exit("FailIndex", "In", &[13]), on_condition("FailIndex", "DisruptionTarget")];
    let mut bench = running(job().indexed(2, 2).per_index(1).policy(rules), &["0.0", "1.0"]);
    bench.exit("0.0", 13).disrupt("1.0").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "ready": 0, "terminating": 0, "failed": 2, "failedIndexes": "0,1",
            "uncountedTerminatedPods": {},
            "conditions": conditions(&["FailureTarget", "Failed"], "FailedIndexes", "Job has failed indexes", 0),
        })
    );
}

#[test]
fn more_successes_than_asked_for_are_told_in_an_event() {
    let mut bench = Bench::new(job().runs(1, 1));
    bench.add(pod("a").succeeded(0)).add(pod("b").succeeded(0));
    let writes = bench.writes();
    assert_eq!(
        writes.last().map(String::as_str),
        Some(
            "status succeeded=2 uncounted.succeeded=[] completionTime=0 +Complete(CompletionsReached) \
             !TooManySucceededPods !Completed"
        )
    );
}

#[test]
fn a_completion_time_is_never_before_the_start() {
    let early =
        json!({ "startTime": rfc3339(50), "conditions": condition("SuccessCriteriaMet", "True", "X") });
    let mut bench = Bench::new(job().status(early));
    bench.advance(60).hush();
    assert_eq!(bench.status()["completionTime"], rfc3339(50));
}

#[test]
fn a_finished_job_is_never_looked_at_again() {
    let mut bench = running(job(), &["p0"]);
    bench.succeed("p0").hush();
    let end = bench.status();
    bench.edit(|job| job.runs(5, 9).suspended(true)).add(pod("x").running().free());
    assert_eq!(
        (bench.writes(), bench.status(), bench.trace()),
        (vec![], end, "the Job is finished".to_owned())
    );
    assert_eq!(bench.run(), Wake::Settled);
}

#[test]
fn an_ignored_pod_that_still_runs_when_the_job_fails_is_let_go_uncounted() {
    let rules = [on_condition("Ignore", "DisruptionTarget"), on_exit("FailJob", "In", &[5])];
    let mut bench = running(job().runs(2, 2).policy(rules), &["p0", "p1"]);
    bench.pod("p1", |pod| pod.condition("DisruptionTarget", "True")).exit("p0", 5);
    assert_eq!(
        bench.writes(),
        [
            "delete p1",
            "status active=none ready=0 terminating=1 uncounted.failed=[p0] +FailureTarget(PodFailurePolicy)",
            "release p0",
            "release p1",
            "status failed=1 uncounted.failed=[]"
        ]
    );
}
