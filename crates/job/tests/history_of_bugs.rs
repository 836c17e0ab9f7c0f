//! Each bug that upstream once had and must not come back. The number in a comment is upstream's issue or change.

mod common;

use common::{Bench, at, conditions, job, on_exit, pod, rfc3339};
use serde_json::json;
use windlass_job::decision::Kind;
use windlass_job::{Action, JobFacts, JobView, Outcome, PodFacts, Uid, Wake, decide};

const BACKOFF: (&str, &str) = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const REACHED: (&str, &str) = ("CompletionsReached", "Reached expected number of succeeded pods");

// #105200
#[test]
fn an_old_pod_event_that_still_shows_the_finalizer_does_not_count_the_pod_again() {
    let mut bench = Bench::new(job().runs(1, 2));
    bench.hush().succeed("p0");
    let stale = bench.pod_facts("p0");
    bench.hush();
    assert_eq!(bench.status()["succeeded"], 1);
    bench.view().observe_pod(stale);
    assert_eq!(bench.writes(), Vec::<String>::new());
    assert_eq!(bench.status()["succeeded"], 1);
}

// #105200: the answer to the patch carries no pod
#[test]
fn an_event_from_before_our_own_release_does_not_count_the_pod_again() {
    let mut bench = Bench::new(job().runs(1, 2));
    bench.hush().succeed("p0");
    bench.step();
    let stale = bench.pod_facts("p0");
    let decision = bench.decide();
    let Some(release @ Action::Release(_)) = decision.stage.iter().find(|a| a.kind() == Kind::Release) else {
        panic!("a recorded pod is released: {decision:?}")
    };
    let (now, settings) = (bench.now, bench.settings.clone());
    bench.view().fold(release, Outcome::Done, now, &settings);
    bench.view().observe_pod(stale);
    let seen = bench.view().observation(now, &settings);
    let writes: Vec<_> = decide(&seen).stage;
    let Some(Action::WriteStatus(write)) = writes.iter().find(|a| a.kind() == Kind::Status) else {
        panic!("the released pod is folded: {writes:?}")
    };
    assert_eq!((write.status.succeeded, write.status.uncounted.clone()), (1, Some(Default::default())));
}

// #104666
#[test]
fn a_recorded_pod_stays_recorded_as_long_as_it_holds_its_finalizer() {
    let status = json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0,
                         "uncountedTerminatedPods": { "succeeded": ["a", "b"] } });
    let mut bench = Bench::new(job().runs(0, 10).status(status));
    bench.add(pod("a").succeeded(1)).add(pod("b").succeeded(1).free());
    bench.break_next(&[Kind::Release]);
    assert_eq!(
        bench.writes(),
        ["release a FAILED", "status succeeded=1 uncounted.succeeded=[a]"],
        "only the pod without a finalizer moves into the counters"
    );
}

// #104666, "too many finished"
#[test]
fn more_finished_pods_than_may_be_on_their_way_are_counted_in_turns_and_none_is_dropped() {
    let mut bench = Bench::new(job().runs(0, 10));
    bench.settings.uncounted_max = 2;
    for name in ["a", "b", "c", "d", "e"] {
        bench.add(pod(name).running().succeeded(1));
    }
    assert_eq!(
        bench.writes(),
        [
            "status ready=0 terminating=0 uncounted.succeeded=[a,b] startTime=0",
            "release a",
            "release b",
            "status succeeded=2 uncounted.succeeded=[c,d]",
            "release c",
            "release d",
            "status succeeded=4 uncounted.succeeded=[e]",
            "release e",
            "status succeeded=5 uncounted.succeeded=[]",
        ]
    );
}

// #104666, "too many indexed finished"
#[test]
fn more_finished_indexes_than_may_be_on_their_way_are_all_in_the_text_and_released_afterwards() {
    let mut bench = Bench::new(job().indexed(0, 10));
    bench.settings.pods_per_stage_max = 2;
    for index in 0..5 {
        bench.add(pod(&format!("i{index}")).index(index).running().succeeded(1));
    }
    assert_eq!(
        bench.writes(),
        [
            "status ready=0 terminating=0 succeeded=5 completedIndexes=0-4 startTime=0",
            "release i0",
            "release i1",
            "release i2",
            "release i3",
            "release i4",
        ]
    );
}

// #109485, #109429
#[test]
fn a_job_does_not_fail_before_every_active_pod_was_asked_to_go() {
    let mut bench = Bench::new(job().runs(2, 2).limit(0));
    bench.hush().start(&["p0", "p1"]).fail("p0");
    bench.break_next(&[Kind::End]);
    assert_eq!(
        bench.writes(),
        [
            "delete p1 FAILED",
            "status active=1 ready=1 uncounted.failed=[p0]",
            "release p0",
            "status failed=1 uncounted.failed=[]"
        ],
        "no FailureTarget while a pod was not asked to go"
    );
    bench.advance(1);
    assert_eq!(
        bench.writes(),
        [
            "delete p1",
            "status active=none ready=0 terminating=1 uncounted.failed=[p1] +FailureTarget(BackoffLimitExceeded)",
            "release p1",
            "status failed=2 uncounted.failed=[]",
        ]
    );
}

// #109485, #109429: a pod that appears after the end loses its finalizer
#[test]
fn a_pod_that_shows_up_after_the_job_is_finished_does_not_keep_its_finalizer() {
    let mut bench = Bench::new(job().limit(0));
    bench.hush().fail("p0").run();
    let end = bench.status();
    bench.hush().add(pod("late").running()).add(pod("later").failed(1));
    assert_eq!(bench.writes(), ["release late", "release later"]);
    assert_eq!((bench.held(), bench.status()), (vec![], end), "released, and not counted");
}

// #119159
#[test]
fn a_job_does_not_end_while_pods_beyond_the_cap_hold_their_finalizers() {
    let mut bench = Bench::new(job().runs(5, 5).limit(0));
    bench.settings.uncounted_max = 2;
    bench.hush().start(&["p0", "p1", "p2", "p3", "p4"]).hush();
    for uid in ["p0", "p1", "p2", "p3", "p4"] {
        bench.fail(uid);
    }
    assert_eq!(
        bench.writes(),
        [
            "status active=none ready=0 uncounted.failed=[p0,p1] +FailureTarget(BackoffLimitExceeded)",
            "release p0",
            "release p1",
            "status failed=2 uncounted.failed=[p2,p3]",
            "release p2",
            "release p3",
            "status failed=4 uncounted.failed=[p4]",
            "release p4",
            "status failed=5 uncounted.failed=[] +Failed(BackoffLimitExceeded) !BackoffLimitExceeded",
        ]
    );
}

// #114391, #114516, #115022
#[test]
fn unrelated_pod_events_do_not_shorten_the_back_off() {
    let mut bench = Bench::new(job().runs(2, 2));
    bench.hush().start(&["p0", "p1"]).hush();
    bench.advance(5).fail("p0");
    assert_eq!(bench.run(), Wake::At(at(15)));
    for second in 6..15 {
        bench.advance(1).pod("p1", |pod| pod.annotation("seen", &second.to_string()));
        assert_eq!(bench.run(), Wake::At(at(15)));
    }
    bench.log();
    bench.advance(1);
    assert_eq!(bench.writes(), ["create p2", "status active=2"]);
}

// Note in KEP-3850
#[test]
fn a_pod_without_any_finish_time_is_retried_relative_to_its_creation_and_not_to_now() {
    let mut bench = Bench::new(job());
    bench.advance(4).hush();
    for second in 5..12 {
        bench.advance(1).pod("p0", |pod| pod.phase("Failed").annotation("seen", &second.to_string()));
        assert_eq!(bench.run(), Wake::At(at(14)), "10 seconds after its creation");
    }
}

// #121147, #122235
#[test]
fn more_terminating_pods_than_parallelism_are_no_reason_to_remove_or_create_any() {
    for job in [job().runs(2, 9).replaces_failed(), job().runs(2, 9).policy([on_exit("FailJob", "In", &[9])])]
    {
        let mut bench = Bench::new(job);
        for name in ["a", "b", "c", "d"] {
            bench.add(pod(name).running().deleted(0));
        }
        bench.add(pod("e").running());
        assert_eq!(bench.writes(), ["status active=1 ready=0 terminating=4 startTime=0"]);
    }
}

// #115844
#[test]
fn with_policy_failed_a_replacement_starts_only_when_the_old_pod_has_stopped() {
    let mut bench = Bench::new(job().replaces_failed());
    bench.hush().start(&["p0"]).hush().delete("p0");
    assert_eq!(bench.writes(), ["status active=none ready=0 terminating=1"]);
    bench.advance(20).fail("p0");
    assert_eq!(
        bench.writes(),
        ["status terminating=0 uncounted.failed=[p0]", "release p0", "status failed=1 uncounted.failed=[]"]
    );
    bench.advance(10);
    assert_eq!(bench.writes(), ["create p1", "status active=1"]);
}

// #123775
#[test]
fn the_terminal_condition_waits_until_the_last_pod_has_stopped() {
    let mut bench = Bench::new(job().runs(2, 2).limit(0));
    bench.hush().start(&["p0", "p1"]).hush().advance(3).fail("p0").hush();
    let waiting = json!({
        "startTime": rfc3339(0), "ready": 0, "terminating": 1, "failed": 2, "uncountedTerminatedPods": {},
        "conditions": conditions(&["FailureTarget"], BACKOFF.0, BACKOFF.1, 3),
    });
    assert_eq!(bench.status(), waiting);
    assert_eq!(bench.trace(), "wait for 1 pods to stop");
    bench.advance(4).vanish("p1");
    assert_eq!(bench.writes(), ["status terminating=0 +Failed(BackoffLimitExceeded) !BackoffLimitExceeded"]);
}

// #125089
#[test]
fn pods_that_we_delete_are_terminating_in_the_very_next_status() {
    let mut bench = Bench::new(job().runs(3, 3));
    bench.hush().start(&["p0", "p1", "p2"]).hush().edit(|job| job.suspended(true));
    assert_eq!(
        bench.writes(),
        [
            "remove p0 (Suspended)",
            "remove p1 (Suspended)",
            "remove p2 (Suspended)",
            "status active=none ready=0 terminating=3 startTime=none +Suspended(JobSuspended) !Suspended",
        ]
    );
}

// #125410
#[test]
fn a_pod_recorded_as_failed_that_ends_well_stays_failed_and_stands_in_one_list_only() {
    let mut bench = Bench::new(job().runs(1, 2));
    bench.hush().start(&["p0"]).hush().delete("p0");
    bench.step();
    assert_eq!(bench.log(), ["status active=none ready=0 terminating=1 uncounted.failed=[p0]"]);
    bench.succeed("p0");
    bench.hush();
    let status = bench.status();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(null), &json!(1)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
}

// #130103, #130333
#[test]
fn a_job_whose_end_was_written_gets_no_more_pods_although_the_watch_is_late() {
    let mut bench = Bench::new(job());
    bench.hush();
    let late: JobFacts = JobFacts::from_job(&bench.job(), None, &bench.gates);
    bench.succeed("p0").hush();
    assert_eq!(bench.status()["succeeded"], 1);
    bench.view().observe_job(late);
    assert_eq!(bench.writes(), Vec::<String>::new());
    assert_eq!(bench.uids(), ["p0"], "one pod was ever made");
}

// #130103, the failing twin
#[test]
fn a_job_whose_failure_was_written_gets_no_more_pods_although_the_watch_is_late() {
    let mut bench = Bench::new(job().limit(0));
    bench.hush();
    let late: JobFacts = JobFacts::from_job(&bench.job(), None, &bench.gates);
    bench.fail("p0").hush();
    bench.view().observe_job(late);
    assert_eq!((bench.writes(), bench.uids()), (vec![], vec!["p0"]));
}

// #132042
#[test]
fn a_job_made_anew_under_the_same_name_does_not_inherit_the_back_off() {
    let mut bench = Bench::new(job());
    bench.hush().fail("p0");
    assert_eq!(bench.run(), Wake::At(at(10)));
    let labels = json!({ "batch.kubernetes.io/controller-uid": "job-uid-2" });
    let mut again = job();
    again.0["metadata"]["uid"] = json!("job-uid-2");
    again.0["spec"]["selector"]["matchLabels"] = labels.clone();
    again.0["spec"]["template"]["metadata"]["labels"] = labels;
    let mut next = Bench::new(again);
    let old = PodFacts::from_pod(&bench.get("p0").expect("the old pod"), next.view().job());
    next.view().observe_pod(PodFacts { uid: Uid::new("the old p0"), ..old });
    assert_eq!(next.writes(), ["create p0", "status active=1 ready=0 terminating=0 startTime=0"]);
}

// #134521, #134769
#[test]
fn the_start_is_cleared_at_suspension_and_set_in_the_write_that_says_resumed() {
    let mut bench = Bench::new(job());
    bench.hush().advance(5).edit(|job| job.suspended(true));
    assert_eq!(
        bench.writes(),
        ["remove p0 (Suspended)", "status active=none startTime=none +Suspended(JobSuspended) !Suspended"]
    );
    bench.advance(5).edit(|job| job.suspended(false));
    assert_eq!(bench.writes(), ["create p1", "status active=1 startTime=10 -Suspended(JobResumed) !Resumed"]);
}

// #137210
#[test]
fn a_decision_repeated_on_an_old_view_asks_for_the_same_pod_again() {
    let mut bench = Bench::new(job());
    let first = bench.decide();
    bench.step();
    assert_eq!(bench.log(), ["create p0"]);
    let facts = JobFacts::from_job(&bench.job(), None, &bench.gates);
    *bench.view() = JobView::new(facts);
    assert_eq!(bench.decide().stage, first.stage, "one that has not seen its own pod");
    bench.step();
    assert_eq!(bench.log(), ["create p? TAKEN"], "and there is no twin");
}

// #139428
#[test]
fn the_status_has_the_real_number_of_active_pods_while_a_back_off_runs() {
    let mut bench = Bench::new(job().runs(2, 2));
    bench.hush().start(&["p0", "p1"]).hush().fail("p0");
    assert_eq!(
        bench.writes(),
        [
            "status active=1 ready=1 uncounted.failed=[p0]",
            "release p0",
            "status failed=1 uncounted.failed=[]"
        ]
    );
}

// #139428, per index
#[test]
fn the_status_has_the_real_number_of_active_pods_while_one_index_waits_and_another_runs() {
    let mut bench = Bench::new(job().indexed(2, 2).per_index(3));
    bench.hush().start(&["0.0", "1.0"]).hush().fail("0.0");
    assert_eq!(bench.writes(), ["status active=1 ready=1"]);
}

// #99963
#[test]
fn pods_that_still_run_when_the_completions_are_reached_are_removed_before_the_job_completes() {
    let mut bench = Bench::new(job().runs(1, 1));
    bench.add(pod("a").running()).add(pod("b").running());
    bench.hush();
    assert_eq!(bench.uids(), ["a", "b"], "one of them is on its way out");
    let mut bench = Bench::new(job().runs(2, 2));
    bench.hush().start(&["p0", "p1"]).hush().edit(|job| job.runs(2, 1)).succeed("p0");
    assert_eq!(
        bench.writes(),
        [
            "remove p1 (Surplus)",
            "status active=1 ready=1 uncounted.succeeded=[p0]",
            "release p0",
            "status active=none ready=0 terminating=1 +SuccessCriteriaMet(CompletionsReached)",
            "status succeeded=1 uncounted.succeeded=[]",
        ]
    );
    bench.vanish("p1");
    assert_eq!(
        bench.writes(),
        ["status terminating=0 completionTime=0 +Complete(CompletionsReached) !Completed"]
    );
}

// #67859
#[test]
fn restarts_in_place_reach_the_limit_at_the_limit_and_with_limit_0_at_the_first() {
    for (limit, restarts, ends) in [(0, 0, false), (0, 1, true), (1, 1, true), (3, 2, false), (3, 3, true)] {
        let mut bench = Bench::new(job().limit(limit).on_failure());
        bench.add(pod("a").running().container("main", restarts, json!({ "running": {} })));
        bench.run();
        let reason = bench.status()["conditions"][0]["reason"].clone();
        assert_eq!(reason == BACKOFF.0, ends, "limit {limit}, {restarts} restarts");
    }
}

// #67859: restarts of pods that are not running do not add up, and with Never none do
#[test]
fn only_restarts_of_running_and_pending_pods_in_place_count_against_the_limit() {
    let restarted = |name: &str| pod(name).container("main", 5, json!({ "running": {} }));
    let mut never = Bench::new(job().limit(3));
    never.add(restarted("a").running());
    never.run();
    assert_eq!(never.status()["conditions"], json!(null));
    let mut unknown = Bench::new(job().limit(3).on_failure());
    unknown.add(restarted("a").running().phase("Unknown"));
    unknown.run();
    assert_eq!(unknown.status()["conditions"], json!(null));
    let mut pending = Bench::new(job().limit(5).on_failure());
    pending.add(pod("a").init_container("setup", 5, json!({ "running": {} })));
    pending.run();
    assert_eq!(pending.status()["conditions"][0]["reason"], BACKOFF.0);
}

// #60735
#[test]
fn pods_that_run_when_the_limit_is_hit_count_as_failed_too() {
    let mut bench = Bench::new(job().runs(4, 4).limit(1));
    bench.hush().start(&["p0", "p1", "p2", "p3"]).hush().fail("p0").fail("p1");
    assert_eq!(
        bench.writes(),
        [
            "delete p2",
            "delete p3",
            "status active=none ready=0 terminating=2 uncounted.failed=[p0,p1,p2,p3] \
             +FailureTarget(BackoffLimitExceeded)",
            "release p0",
            "release p1",
            "release p2",
            "release p3",
            "status failed=4 uncounted.failed=[]",
        ]
    );
    bench.vanish("p2").vanish("p3").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "ready": 0, "terminating": 0, "failed": 4, "uncountedTerminatedPods": {},
            "conditions": conditions(&["FailureTarget", "Failed"], BACKOFF.0, BACKOFF.1, 0),
        })
    );
}

// #42639
#[test]
fn a_job_that_is_being_deleted_adopts_nothing_and_lets_nothing_go() {
    let mut bench = Bench::new(job().deleted());
    bench.add(pod("orphan").orphan().free().running()).add(pod("stray").labels(json!({})).running());
    assert_eq!(
        bench.writes(),
        ["release stray", "status ready=0 terminating=0 startTime=0"],
        "a finalizer would keep the Job for ever"
    );
    assert!(bench.get("stray").is_some_and(|pod| pod.metadata.owner_references.is_some()));
}

// #42639: the live check before the adoption failed
#[test]
fn an_adoption_that_fails_is_tried_again_and_the_pod_is_not_counted_before() {
    let mut bench = Bench::new(job().runs(1, 5).status(json!({ "startTime": rfc3339(0) })));
    bench.add(pod("a").running()).add(pod("orphan").orphan().free().succeeded(1));
    bench.break_next(&[Kind::Claim]);
    assert_eq!(bench.run(), Wake::At(at(1)));
    assert_eq!(bench.log(), ["adopt orphan FAILED", "status active=1 ready=0 terminating=0"]);
    bench.advance(1);
    assert_eq!(
        bench.writes(),
        [
            "adopt orphan",
            "status uncounted.succeeded=[orphan]",
            "release orphan",
            "status succeeded=1 uncounted.succeeded=[]"
        ]
    );
}

// Comment in TestJobPodReplacementPolicyFeatureToggling
#[test]
fn terminating_is_always_a_number_and_null_only_with_its_gate_off() {
    let mut bench = Bench::new(job());
    bench.hush();
    assert_eq!(bench.status()["terminating"], 0);
    let off = windlass_api::Gates { job_pod_replacement_policy: false, ..bench.gates };
    bench.restart_with(off).hush();
    assert_eq!(bench.status()["terminating"], json!(null));
    bench.restart_with(windlass_api::Gates::default()).hush();
    assert_eq!(bench.status()["terminating"], 0);
}

#[test]
fn the_last_success_is_counted_in_two_writes() {
    let mut bench = Bench::new(job());
    bench.hush().advance(7).succeed("p0").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "completionTime": rfc3339(7), "ready": 0, "terminating": 0, "succeeded": 1,
            "uncountedTerminatedPods": {},
            "conditions": conditions(&["SuccessCriteriaMet", "Complete"], REACHED.0, REACHED.1, 7),
        })
    );
    assert_eq!(bench.view().pods().get(&Uid::new("p0")).map(|pod| pod.has_finalizer), Some(false));
}
