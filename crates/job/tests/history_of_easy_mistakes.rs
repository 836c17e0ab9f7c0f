//! What is easily done wrong, item by item as the contract lists it (5.2).

mod common;

use common::{Bench, JobBuilder, at, conditions, job, on_condition, on_exit, pod, rfc3339};
use serde_json::{Value, json};
use windlass_api::names;
use windlass_job::decision::{Kind, PodRef};
use windlass_job::{Action, Uid, Wake};

fn running(job: JobBuilder, uids: &[&str]) -> Bench {
    let mut bench = Bench::new(job);
    bench.hush().start(uids).hush();
    bench
}

fn reasons(bench: &Bench) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = bench.status();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().map(|c| (text(&c["type"]), text(&c["reason"]))).collect()
}

// 1
#[test]
fn pods_that_are_not_wanted_lose_their_finalizer_first_and_are_never_counted() {
    let indexed = || job().indexed(2, 2);
    type Edit = fn(JobBuilder) -> JobBuilder;
    let cases: [(JobBuilder, Edit, &str); 3] = [
        (job().runs(2, 2), |job| job.runs(1, 2), "Surplus"),
        (job().runs(2, 2), |job| job.suspended(true), "Suspended"),
        (indexed(), |job| job.indexed(1, 1), "Misplaced"),
    ];
    for (before, edit, why) in cases {
        let is_indexed = before.0["spec"]["completionMode"] == "Indexed";
        let mut bench = running(before, if is_indexed { &["0.0", "1.0"] } else { &["p0", "p1"] });
        bench.edit(edit);
        let writes = bench.writes();
        assert!(writes.iter().all(|write| !write.starts_with("delete")), "{why}: {writes:?}");
        assert!(writes[0].ends_with(&format!("({why})")), "{writes:?}");
        assert_eq!(bench.status()["failed"], json!(null), "{why}");
    }
}

// 1, a second pod of an index
#[test]
fn the_worse_twin_of_an_index_is_removed_and_not_counted() {
    let mut bench = Bench::new(job().indexed(1, 1));
    bench.add(pod("a").index(0).running().ready(0)).add(pod("b").index(0).running());
    assert_eq!(bench.writes(), ["remove b (Misplaced)", "status active=1 ready=1 terminating=1 startTime=0"]);
}

// 1
#[test]
fn pods_of_a_job_that_fails_keep_their_finalizer_until_they_are_recorded_as_failed() {
    let mut bench = running(job().runs(2, 2).limit(0), &["p0", "p1"]);
    bench.fail("p0");
    bench.step();
    assert_eq!((bench.log(), bench.held()), (vec!["delete p1".to_owned()], vec!["p0", "p1"]));
    bench.step();
    assert_eq!(bench.status()["uncountedTerminatedPods"], json!({ "failed": ["p0", "p1"] }));
}

// 2
#[test]
fn pods_that_a_success_policy_makes_needless_are_not_counted() {
    let mut bench =
        running(job().indexed(2, 2).limit(0).success([json!({ "succeededIndexes": "1" })]), &["0.0", "1.0"]);
    bench.succeed("1.0");
    assert_eq!(
        bench.writes(),
        [
            "remove 0.0 (Succeeded)",
            "status active=none ready=0 terminating=1 succeeded=1 completedIndexes=1 \
             +SuccessCriteriaMet(SuccessPolicy)",
            "release 1.0",
        ]
    );
    bench.vanish("0.0");
    assert_eq!(bench.writes(), ["status terminating=0 completionTime=0 +Complete(SuccessPolicy) !Completed"]);
    assert_eq!(bench.status()["failed"], json!(null));
}

// 3
#[test]
fn gauges_count_pods_without_a_finalizer_and_counters_do_not() {
    let mut bench = Bench::new(job().runs(1, 5));
    bench
        .add(pod("active").free().running().ready(0))
        .add(pod("ending").free().running().deleted(0))
        .add(pod("failed").free().failed(0))
        .add(pod("succeeded").free().succeeded(0));
    assert_eq!(bench.writes(), ["status active=1 ready=1 terminating=1 startTime=0"]);
}

// 4
#[test]
fn no_interim_condition_is_written_while_a_pod_could_not_be_deleted() {
    let mut bench = running(job().runs(2, 2).deadline(5), &["p0", "p1"]);
    bench.advance(5).break_next(&[Kind::End]);
    assert_eq!(bench.writes(), ["delete p0 FAILED", "delete p1", "status active=1 ready=1 terminating=1"]);
    assert_eq!(reasons(&bench), []);
    bench.advance(1).hush();
    assert_eq!(reasons(&bench), [("FailureTarget".to_owned(), "DeadlineExceeded".to_owned())]);
}

// 5
#[test]
fn a_job_that_is_being_deleted_is_not_managed_but_counted() {
    let mut bench = Bench::new(job().runs(3, 9).deleted());
    bench.add(pod("a").running()).add(pod("b").succeeded(0)).add(pod("c").failed(0));
    assert_eq!(
        bench.writes(),
        [
            "release a",
            "status active=1 ready=0 terminating=0 uncounted.succeeded=[b] uncounted.failed=[c] startTime=0",
            "release b",
            "release c",
            "status succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[]",
        ],
        "no pod is made, and the running one is let go uncounted"
    );
}

// 5
#[test]
fn a_job_that_is_being_deleted_keeps_surplus_pods_and_its_suspended_condition() {
    let mut bench = Bench::new(job().runs(1, 1).suspended(true).deleted());
    bench.add(pod("a").running()).add(pod("b").running());
    assert_eq!(bench.writes(), ["release a", "release b", "status active=2 ready=0 terminating=0"]);
}

// 5, "too many job failures" while deleting
#[test]
fn a_job_that_is_being_deleted_still_fails_and_counts_its_pods() {
    let mut bench = Bench::new(job().runs(2, 2).limit(0).deleted());
    bench.add(pod("a").failed(0)).add(pod("b").running());
    assert_eq!(
        bench.writes(),
        [
            "delete b",
            "status ready=0 terminating=1 uncounted.failed=[a,b] startTime=0 +FailureTarget(BackoffLimitExceeded)",
            "release a",
            "release b",
            "status failed=2 uncounted.failed=[]",
        ]
    );
}

// 6
#[test]
fn a_suspended_job_that_fails_says_so_at_once_and_ends_when_it_is_resumed() {
    let mut bench = running(job().limit(0).replaces_failed(), &["p0"]);
    bench.delete("p0").edit(|job| job.suspended(true)).hush();
    bench.fail("p0");
    assert_eq!(
        bench.writes(),
        [
            "status terminating=0 uncounted.failed=[p0] +FailureTarget(BackoffLimitExceeded)",
            "release p0",
            "status failed=1 uncounted.failed=[]",
        ],
        "the API takes no finished Job without a start"
    );
    assert_eq!(bench.decide().wake, Wake::Settled);
    bench.advance(60).edit(|job| job.suspended(false));
    assert_eq!(
        bench.writes(),
        [
            "status startTime=60 -Suspended(JobResumed) +Failed(BackoffLimitExceeded) !Resumed !BackoffLimitExceeded"
        ]
    );
}

// 7
#[test]
fn a_job_that_was_never_suspended_has_no_suspended_condition() {
    let mut bench = running(job(), &["p0"]);
    bench.edit(|job| job.suspended(false)).hush();
    assert_eq!(bench.status()["conditions"], json!(null));
}

// 8
#[test]
fn a_job_of_no_completions_completes_without_a_pod() {
    let mut bench = Bench::new(job().runs(2, 0));
    assert_eq!(
        bench.writes(),
        [
            "status ready=0 terminating=0 startTime=0 +SuccessCriteriaMet(CompletionsReached)",
            "status completionTime=0 +Complete(CompletionsReached) !Completed",
        ]
    );
}

// 8
#[test]
fn a_suspended_job_of_no_completions_completes_without_a_start() {
    let mut bench = Bench::new(job().runs(2, 0).suspended(true));
    assert_eq!(
        bench.writes(),
        [
            "status ready=0 terminating=0 +SuccessCriteriaMet(CompletionsReached)",
            "status completionTime=0 +Complete(CompletionsReached) !Completed",
        ]
    );
}

// 9
#[test]
fn parallelism_0_removes_all_pods_and_leaves_the_job_unfinished() {
    let mut bench = running(job().runs(2, 4), &["p0", "p1"]);
    bench.edit(|job| job.runs(0, 4));
    assert_eq!(
        bench.writes(),
        ["remove p0 (Surplus)", "remove p1 (Surplus)", "status active=none ready=0 terminating=2"]
    );
    assert_eq!(bench.run(), Wake::Settled);
}

// 10
#[test]
fn a_deadline_of_0_fails_the_job_before_it_has_a_pod() {
    let mut bench = Bench::new(job().deadline(0));
    assert_eq!(
        bench.writes(),
        [
            "status ready=0 terminating=0 startTime=0 +FailureTarget(DeadlineExceeded)",
            "status +Failed(DeadlineExceeded) !DeadlineExceeded",
        ]
    );
}

// 11
#[test]
fn a_work_queue_gets_no_pod_after_its_first_success_and_still_counts_failures() {
    let mut bench = running(job().work_queue(3).limit(1), &["p0", "p1", "p2"]);
    bench.succeed("p0").hush().advance(100).fail("p1");
    assert_eq!(
        bench.writes(),
        [
            "status active=1 ready=1 uncounted.failed=[p1]",
            "release p1",
            "status failed=1 uncounted.failed=[]"
        ]
    );
    bench.fail("p2").hush();
    let status = bench.status();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(2)));
    assert_eq!(reasons(&bench)[1], ("Failed".to_owned(), "BackoffLimitExceeded".to_owned()));
}

// 12
#[test]
fn a_second_success_of_an_index_is_not_counted_and_each_failure_is() {
    let mut bench = Bench::new(job().indexed(0, 3));
    bench
        .add(pod("a").index(1).succeeded(0))
        .add(pod("b").index(1).succeeded(0))
        .add(pod("c").index(2).failed(0))
        .add(pod("d").index(2).failed(0));
    bench.hush();
    let status = bench.status();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(2)));
    assert_eq!((status["completedIndexes"].clone(), bench.held()), (json!("1"), vec![]));
}

// 13
#[test]
fn pods_without_a_usable_index_are_removed_or_released_and_change_nothing() {
    for odd in [pod("odd"), pod("odd").index("x"), pod("odd").index(-1), pod("odd").index(2)] {
        let mut active = Bench::new(job().indexed(0, 2));
        active.add(odd.clone().running());
        assert_eq!(active.writes()[0], "remove odd (Misplaced)");
        for done in [odd.clone().failed(0), odd.succeeded(0)] {
            let mut bench = Bench::new(job().indexed(1, 2).limit(0));
            bench.add(done);
            assert_eq!(
                bench.writes(),
                ["create 0.0", "release odd", "status active=1 ready=0 terminating=0 startTime=0"],
                "neither counted nor a reason to wait"
            );
        }
    }
}

// 14
#[test]
fn a_scale_down_can_leave_a_job_of_which_all_indexes_are_done_and_one_failed() {
    let mut bench = running(job().indexed(3, 3).per_index(0), &["0.0", "1.0", "2.0"]);
    bench.fail("0.0").succeed("1.0").hush().edit(|job| job.indexed(2, 2));
    assert_eq!(
        bench.writes(),
        [
            "delete 2.0",
            "status active=none ready=0 terminating=1 +FailureTarget(FailedIndexes)",
            "release 2.0",
        ]
    );
    bench.vanish("2.0").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "ready": 0, "terminating": 0, "succeeded": 1, "failed": 1,
            "completedIndexes": "1", "failedIndexes": "0", "uncountedTerminatedPods": {},
            "conditions": conditions(&["FailureTarget", "Failed"], "FailedIndexes", "Job has failed indexes", 0),
        })
    );
}

// 15
#[test]
fn max_failed_indexes_may_be_reached_but_not_exceeded() {
    let mut bench = running(job().indexed(4, 4).per_index(0).max_failed(1), &["0.0", "1.0", "2.0", "3.0"]);
    bench.fail("0.0").hush();
    assert_eq!(reasons(&bench), []);
    bench.fail("1.0").hush();
    assert_eq!(reasons(&bench), [("FailureTarget".to_owned(), "MaxFailedIndexesExceeded".to_owned())]);
    assert_eq!(bench.status()["failedIndexes"], "0,1", "the pods that end with the Job fail no index");
}

// 16
#[test]
fn a_limit_of_k_per_index_allows_k_retries() {
    for limit in 0..3 {
        let mut bench = Bench::new(job().indexed(1, 1).per_index(limit));
        bench.hush();
        for attempt in 0..=limit {
            assert_eq!(reasons(&bench), [], "limit {limit}, attempt {attempt}");
            bench.fail(&format!("0.{attempt}")).run_all();
        }
        assert_eq!(reasons(&bench)[0].1, "FailedIndexes", "limit {limit}");
        assert_eq!(bench.status()["failed"], limit + 1);
    }
}

// 17
#[test]
fn ignored_failures_delay_the_retry_and_fail_nothing() {
    let rule = || [on_condition("Ignore", "DisruptionTarget")];
    let mut bench = Bench::new(job().limit(0).policy(rule()));
    bench.hush().disrupt("p0");
    assert_eq!(bench.run(), Wake::At(at(10)));
    assert_eq!((bench.status()["failed"].clone(), reasons(&bench)), (json!(null), vec![]));
    let mut bench = Bench::new(job().indexed(1, 1).per_index(0).policy(rule()));
    bench.hush().disrupt("0.0");
    assert_eq!(bench.run(), Wake::At(at(10)));
    bench.advance(10).hush().disrupt("0.1");
    assert_eq!(bench.run(), Wake::At(at(30)), "the second failure of the index waits twice as long");
    assert_eq!((bench.status()["failedIndexes"].clone(), reasons(&bench)), (json!(""), vec![]));
}

// 18
#[test]
fn of_several_pods_that_fail_the_job_one_gives_the_message() {
    let mut bench = Bench::new(job().runs(2, 2).policy([on_exit("FailJob", "In", &[5])]));
    bench.add(pod("b").exited(5, 0)).add(pod("a").exited(5, 0));
    bench.hush();
    let message = "Container main for pod lab/a failed with exit code 5 matching FailJob rule at index 0";
    assert_eq!(bench.status()["conditions"][0]["message"], message);
}

// 20
#[test]
fn a_conflict_is_tried_again_after_a_second_or_when_the_news_arrives() {
    let mut bench = Bench::new(job());
    bench.step();
    bench.meddle(|job| job.spec(json!({ "ttlSecondsAfterFinished": 7 })));
    bench.log();
    assert_eq!(bench.run(), Wake::At(at(1)));
    assert_eq!(bench.log(), ["status CONFLICT"]);
    bench.show_job();
    assert_eq!(bench.writes(), ["status active=1 ready=0 terminating=0 startTime=0"]);
}

// 21, 24
#[test]
fn what_others_wrote_in_the_status_stays() {
    let custom = json!({ "type": "CustomConditionType", "status": "True", "reason": "Because",
                         "message": "somebody said so", "lastTransitionTime": rfc3339(-9) });
    let mut bench =
        Bench::new(job().limit(0).status(json!({ "conditions": [custom], "quota": { "of": "others" } })));
    bench.hush().fail("p0").hush();
    let status = bench.status();
    assert_eq!((&status["conditions"][0], &status["quota"]), (&custom, &json!({ "of": "others" })));
    let types: Vec<_> = reasons(&bench).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(types, ["CustomConditionType", "FailureTarget", "Failed"]);
}

// 22
#[test]
fn adoption_and_release_name_the_pod_by_its_uid() {
    let mut bench = Bench::new(job());
    bench.add(pod("o").orphan().free()).add(pod("s").labels(json!({ "other": "label" })));
    let named = |name: &str| PodRef { uid: Uid::new(name), name: name.to_owned() };
    let decision = bench.decide();
    assert_eq!(decision.stage, [Action::Disown(named("s")), Action::Adopt(named("o"))]);
    assert_eq!(bench.trace(), "adopt 1, let go of 1 pods");
    bench.hush();
    let stray = bench.get("s").expect("it stays");
    assert_eq!((stray.metadata.owner_references, stray.metadata.finalizers), (None, None));
    let held = bench.get("o").and_then(|pod| pod.metadata.finalizers);
    assert_eq!(held, Some(vec![names::TRACKING_FINALIZER.to_owned()]));
}
