//! How many pods there are: parallelism and completions in all modes, slow start, victims, suspension.

mod common;

use common::{Bench, JobBuilder, PodBuilder, at, conditions, job, pod, rfc3339};
use serde_json::json;
use windlass_job::decision::Kind;
use windlass_job::{Action, Wake};

fn running(job: JobBuilder, uids: &[&str]) -> Bench {
    let mut bench = Bench::new(job);
    bench.hush().start(uids).hush();
    bench
}

fn counts(bench: &Bench) -> [i64; 4] {
    let status = bench.status();
    ["active", "ready", "succeeded", "failed"].map(|key| status[key].as_i64().unwrap_or(0))
}

fn is_complete(bench: &Bench) -> bool {
    bench.status()["conditions"][1]["type"] == "Complete"
}

fn create_sizes(bench: &mut Bench) -> Vec<usize> {
    let mut sizes = Vec::new();
    loop {
        let creates = bench.decide().stage.iter().filter(|action| action.kind() == Kind::Create).count();
        if creates == 0 {
            return sizes;
        }
        sizes.push(creates);
        bench.step();
    }
}

#[test]
fn creation_starts_slowly_and_doubles() {
    let mut bench = Bench::new(job().runs(20, 20));
    assert_eq!(create_sizes(&mut bench), [1, 2, 4, 8, 5]);
}

#[test]
fn a_creation_that_fails_stops_the_rush_and_starts_it_slowly_again() {
    let mut bench = Bench::new(job().runs(10, 10));
    bench.step();
    bench.break_next(&[Kind::Create, Kind::Create]);
    assert_eq!(create_sizes(&mut bench), [2], "both fail, and creation is left alone");
    assert_eq!(bench.run(), Wake::At(at(1)));
    bench.advance(1);
    assert_eq!(create_sizes(&mut bench), [1, 2, 4, 2]);
}

#[test]
fn a_stage_creates_and_removes_no_more_pods_than_allowed() {
    let mut bench = Bench::new(job().runs(9, 9));
    bench.settings.pods_per_stage_max = 3;
    assert_eq!(create_sizes(&mut bench), [1, 2, 3, 3]);
    bench.hush().edit(|job| job.runs(0, 9));
    assert_eq!(bench.decide().stage.len(), 3);
    bench.hush().edit(|job| job.runs(9, 9)).hush().edit(|job| job.suspended(true));
    assert_eq!(bench.decide().stage.len(), 9, "a suspension knows no such limit");
}

// TestParallelJob
#[test]
fn a_work_queue_keeps_its_pods_until_one_succeeds_and_then_drains() {
    let mut bench = Bench::new(job().work_queue(5));
    bench.hush().start(&["p0", "p1"]).hush();
    assert_eq!(counts(&bench), [5, 2, 0, 0]);
    bench.fail("p2").fail("p3").run_all();
    assert_eq!(counts(&bench), [5, 2, 0, 2]);
    bench.succeed("p0").hush();
    assert_eq!(counts(&bench), [4, 1, 1, 2]);
    bench.fail("p1").fail("p4").run_all();
    assert_eq!(counts(&bench), [2, 0, 1, 4]);
    bench.succeed("p5").succeed("p6").hush();
    assert_eq!((counts(&bench), is_complete(&bench)), ([0, 0, 3, 4], true));
}

// TestParallelJobChangingParallelism
#[test]
fn pods_removed_by_a_change_of_parallelism_are_no_failures() {
    let mut bench = Bench::new(job().work_queue(5).limit(2));
    bench.hush().edit(|job| job.spec(json!({ "parallelism": 2 }))).hush();
    assert_eq!(counts(&bench), [2, 0, 0, 0]);
    bench.edit(|job| job.spec(json!({ "parallelism": 4 }))).hush();
    assert_eq!(counts(&bench), [4, 0, 0, 0]);
    let uids: Vec<String> = bench.uids().into_iter().map(str::to_owned).collect();
    uids.iter().for_each(|uid| _ = bench.succeed(uid));
    bench.hush();
    assert_eq!((counts(&bench), is_complete(&bench)), ([0, 0, 4, 0], true));
}

// TestParallelJobWithCompletions
#[test]
fn fifty_six_completions_with_fifty_four_at_a_time_and_caps_of_ten() {
    let mut bench = Bench::new(job().runs(54, 56));
    bench.settings.uncounted_max = 10;
    bench.settings.pods_per_stage_max = 10;
    bench.hush();
    (0..52).for_each(|number| _ = bench.start(&[&format!("p{number}")]));
    bench.hush();
    assert_eq!(counts(&bench), [54, 52, 0, 0]);
    bench.fail("p0").fail("p1").run_all();
    assert_eq!(counts(&bench), [54, 50, 0, 2]);
    (2..55).for_each(|number| _ = bench.succeed(&format!("p{number}")));
    bench.hush();
    assert_eq!(counts(&bench), [3, 0, 53, 2]);
    (55..58).for_each(|number| _ = bench.succeed(&format!("p{number}")));
    bench.hush();
    assert_eq!((counts(&bench), is_complete(&bench)), ([0, 0, 56, 2], true));
}

// TestIndexedJob
#[test]
fn an_indexed_job_runs_the_smallest_indexes_first_and_each_until_it_succeeds() {
    let mut bench = Bench::new(job().indexed(3, 4));
    assert_eq!(
        bench.writes(),
        ["create 0.0", "create 1.0", "create 2.0", "status active=3 ready=0 terminating=0 startTime=0"]
    );
    bench.succeed("1.0");
    assert_eq!(bench.writes(), ["create 3.0", "status succeeded=1 completedIndexes=1", "release 1.0"]);
    bench.advance(1).fail("2.0").run_all();
    assert_eq!(bench.uids(), ["0.0", "1.0", "2.0", "2.1", "3.0"]);
    bench.succeed("0.0").succeed("2.1").succeed("3.0").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "completionTime": rfc3339(11), "ready": 0, "terminating": 0,
            "succeeded": 4, "failed": 1, "completedIndexes": "0-3", "uncountedTerminatedPods": {},
            "conditions": conditions(
                &["SuccessCriteriaMet", "Complete"],
                "CompletionsReached",
                "Reached expected number of succeeded pods",
                11,
            ),
        })
    );
}

#[test]
fn a_duplicated_index_is_repaired_even_when_there_are_not_too_many_pods() {
    let mut bench = Bench::new(job().indexed(3, 3));
    bench
        .add(pod("a").index(0).running().ready(0))
        .add(pod("b").index(0).running())
        .add(pod("c").index(2).running());
    assert_eq!(
        bench.writes(),
        ["remove b (Misplaced)", "create 1.0", "status active=3 ready=1 terminating=1 startTime=0"]
    );
}

#[test]
fn misplaced_pods_go_before_others_when_there_are_too_many() {
    let mut bench = Bench::new(job().indexed(1, 4));
    bench
        .add(pod("good").index(0).running().ready(0))
        .add(pod("young").index(1))
        .add(pod("odd").running().ready(0));
    assert_eq!(
        bench.writes(),
        [
            "remove odd (Surplus)",
            "remove young (Surplus)",
            "status active=1 ready=1 terminating=1 startTime=0"
        ]
    );
}

// TestElasticIndexedJob, scale up
#[test]
fn an_indexed_job_that_grows_runs_the_new_indexes() {
    let mut bench = running(job().indexed(3, 3), &["0.0", "1.0", "2.0"]);
    bench.edit(|job| job.indexed(4, 4));
    assert_eq!(bench.writes(), ["create 3.0", "status active=4"]);
    for uid in ["0.0", "1.0", "2.0", "3.0"] {
        bench.succeed(uid);
    }
    bench.hush();
    assert_eq!((&bench.status()["completedIndexes"], is_complete(&bench)), (&json!("0-3"), true));
}

// TestElasticIndexedJob, scale down
#[test]
fn an_indexed_job_that_shrinks_forgets_indexes_beyond_its_end_but_no_failure() {
    let mut bench = running(job().indexed(3, 3), &["0.0", "1.0", "2.0"]);
    bench.succeed("1.0").hush().advance(1).fail("2.0").hush().edit(|job| job.indexed(1, 1));
    assert_eq!(bench.writes(), ["status succeeded=none completedIndexes=none"]);
    bench.succeed("0.0").hush();
    let status = bench.status();
    assert_eq!((&status["completedIndexes"], &status["failed"]), (&json!("0"), &json!(1)));
    assert!(is_complete(&bench));
}

// TestElasticIndexedJob, down then up
#[test]
fn an_index_that_was_forgotten_runs_again() {
    let mut bench = running(job().indexed(3, 3), &["0.0", "1.0", "2.0"]);
    bench.succeed("2.0").hush().edit(|job| job.indexed(2, 2)).hush();
    assert_eq!(bench.status()["completedIndexes"], json!(null));
    bench.edit(|job| job.indexed(3, 3));
    assert_eq!(bench.writes(), ["create 2.1", "status active=3"]);
    for uid in ["0.0", "1.0", "2.1"] {
        bench.succeed(uid);
    }
    bench.hush();
    assert_eq!((&bench.status()["completedIndexes"], is_complete(&bench)), (&json!("0-2"), true));
}

// TestElasticIndexedJob, to 0
#[test]
fn an_indexed_job_that_shrinks_to_nothing_completes() {
    let mut bench = running(job().indexed(3, 3), &["0.0", "1.0", "2.0"]);
    bench.edit(|job| job.indexed(0, 0)).hush();
    for uid in ["0.0", "1.0", "2.0"] {
        bench.exit(uid, 143);
    }
    bench.hush();
    assert_eq!((counts(&bench), is_complete(&bench)), ([0; 4], true));
}

#[test]
fn finished_pods_beyond_the_last_index_are_released_uncounted() {
    let mut bench = running(job().indexed(3, 3), &["0.0", "1.0", "2.0"]);
    bench.edit(|job| job.indexed(1, 1)).succeed("1.0").fail("2.0");
    assert_eq!(bench.writes(), ["release 1.0", "release 2.0", "status active=1 ready=1"]);
}

/// The first pod of each pair goes before the second, for one reason only.
#[test]
fn victims_are_chosen_by_how_little_is_lost() {
    let up = |name: &str| pod(name).running().ready(0);
    let restarted = |name: &str, restarts| up(name).container("main", restarts, json!({ "running": {} }));
    let sidecar = |name: &str, restarts| {
        restarted(name, 1).sidecar("proxy").init_container("proxy", restarts, json!({ "running": {} }))
    };
    let init =
        |name: &str, restarts| restarted(name, 1).init_container("setup", restarts, json!({ "running": {} }));
    let unready_time = |name: &str| pod(name).running().condition("Ready", "True");
    let uncreated = |name: &str| up(name).with(json!({ "metadata": { "creationTimestamp": null } }));

    let cases: Vec<(&str, PodBuilder, PodBuilder)> = vec![
        ("not on a node", pod("v"), pod("k").with(json!({ "spec": { "nodeName": "n" } }))),
        ("pending before unknown", up("v").phase("Pending"), up("k").phase("Unknown")),
        ("unknown before running", up("v").phase("Unknown"), up("k")),
        ("not ready", pod("v").running(), up("k")),
        ("ready for a shorter time", pod("v").running().ready(5), pod("k").running().ready(4)),
        ("ready since nobody knows", unready_time("v"), up("k")),
        ("more restarts", restarted("v", 2), restarted("k", 1)),
        ("more restarts of a sidecar", sidecar("v", 2), sidecar("k", 1)),
        ("a container counts before a sidecar", restarted("v", 2), sidecar("k", 9)),
        ("younger", up("v").created(9), up("k").created(8)),
        ("of unknown age", uncreated("v"), up("k")),
        ("an init container's restarts do not count", init("v", 1).created(9), init("k", 9).created(8)),
    ];
    for (why, victim, kept) in cases {
        for swap in [false, true] {
            let rename =
                |pod: &PodBuilder, name: &str| pod.clone().with(json!({ "metadata": { "uid": name } }));
            let (v, k) = if swap { ("b", "a") } else { ("a", "b") };
            let mut bench = Bench::new(job().runs(1, 9));
            bench.advance(10).add(rename(&victim, v)).add(rename(&kept, k));
            assert_eq!(bench.writes()[0], format!("remove {v} (Surplus)"), "{why}");
        }
    }
}

// TestSuspendJob
#[test]
fn a_suspended_job_has_no_pods_and_a_resumed_one_has_them_again() {
    let mut bench = running(job().runs(2, 4), &["p0", "p1"]);
    bench.advance(3).edit(|job| job.suspended(true)).hush();
    let suspended = json!([{ "type": "Suspended", "status": "True", "reason": "JobSuspended",
        "message": "Job suspended", "lastProbeTime": rfc3339(3), "lastTransitionTime": rfc3339(3) }]);
    assert_eq!(
        bench.status(),
        json!({ "ready": 0, "terminating": 2, "uncountedTerminatedPods": {}, "conditions": suspended })
    );
    bench.exit("p0", 143).exit("p1", 143).hush().advance(4).edit(|job| job.suspended(false));
    assert_eq!(
        bench.writes(),
        ["create p2", "create p3", "status active=2 startTime=7 -Suspended(JobResumed) !Resumed"],
        "the removed pods are no failures, and no reason to wait"
    );
}

// TestSuspendJob, created suspended; TestSuspendJobControllerRestart
#[test]
fn a_job_that_is_created_suspended_waits_without_a_start() {
    let mut bench = Bench::new(job().runs(2, 4).suspended(true).deadline(5));
    assert_eq!(bench.writes(), ["status ready=0 terminating=0 +Suspended(JobSuspended) !Suspended"]);
    bench.restart().advance(60);
    assert_eq!((bench.writes(), bench.run()), (vec![], Wake::Settled), "its deadline does not run");
    bench.edit(|job| job.suspended(false));
    assert_eq!(bench.run(), Wake::At(at(65)));
    assert_eq!(
        bench.log(),
        ["create p0", "create p1", "status active=2 startTime=60 -Suspended(JobResumed) !Resumed"]
    );
}

#[test]
fn a_suspension_is_announced_even_if_a_pod_could_not_be_removed() {
    let mut bench = running(job(), &["p0"]);
    bench.edit(|job| job.suspended(true)).break_next(&[Kind::End]);
    assert_eq!(
        bench.writes(),
        ["remove p0 (Suspended) FAILED", "status startTime=none +Suspended(JobSuspended) !Suspended"]
    );
    bench.advance(1);
    assert_eq!(bench.writes(), ["remove p0 (Suspended)", "status active=none ready=0 terminating=1"]);
}

#[test]
fn a_success_of_a_suspended_job_counts_and_can_complete_it() {
    let mut bench = running(job().runs(1, 1), &["p0"]);
    bench.edit(|job| job.suspended(true)).succeed("p0").hush();
    assert_eq!(counts(&bench), [0, 0, 1, 0]);
    assert!(is_complete(&bench));
}

#[test]
fn the_name_of_a_pod_that_somebody_else_has_is_passed_over() {
    let mut bench = Bench::new(job());
    let Some(Action::Create(new)) = bench.decide().stage.into_iter().next() else { panic!("a pod is made") };
    let squatter =
        pod("squatter").orphan().labels(json!({})).with(json!({ "metadata": { "name": new.name } }));
    bench.add_unseen(squatter);
    assert_eq!(
        bench.writes(),
        ["create p? TAKEN", "create p0", "status active=1 ready=0 terminating=0 startTime=0"]
    );
    let mut bench = Bench::new(job().indexed(1, 1));
    let Some(Action::Create(new)) = bench.decide().stage.into_iter().next() else { panic!("a pod is made") };
    let squatter =
        pod("squatter").orphan().labels(json!({})).with(json!({ "metadata": { "name": new.name } }));
    bench.add_unseen(squatter);
    assert_eq!(bench.writes()[..2], ["create 0.? TAKEN", "create 0.0"]);
}

#[test]
fn gauges_are_written_at_most_once_in_a_while_and_counters_at_once() {
    let mut bench = Bench::new(job().runs(2, 2));
    bench.settings.gauge_spacing = jiff::SignedDuration::from_secs(3);
    bench.hush().advance(1).start(&["p0"]);
    assert_eq!(bench.run(), Wake::At(at(3)));
    assert_eq!(bench.trace(), "wait until 2026-01-01T00:00:03Z: only gauges changed");
    bench.advance(2);
    assert_eq!(bench.writes(), ["status ready=1"]);
    bench.succeed("p0");
    assert_eq!(bench.writes()[0], "status active=1 ready=0 uncounted.succeeded=[p0]");
}

#[test]
fn an_index_text_that_is_not_ours_is_rewritten() {
    let status = json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0, "succeeded": 3,
                         "completedIndexes": "0-0,1,2", "uncountedTerminatedPods": {} });
    let mut bench = Bench::new(job().indexed(0, 5).status(status));
    assert_eq!(bench.writes(), ["status completedIndexes=0-2"]);
}

#[test]
fn of_many_pods_of_an_index_one_stays() {
    let mut bench = Bench::new(job().indexed(2, 2));
    bench
        .add(pod("a").index(0))
        .add(pod("b").index(0).running())
        .add(pod("c").index(0))
        .add(pod("d").index(1));
    assert_eq!(
        bench.writes(),
        ["remove a (Misplaced)", "remove c (Misplaced)", "status active=2 ready=0 terminating=0 startTime=0"]
    );
}

#[test]
fn a_pod_that_changes_its_index_leaves_its_old_one_empty() {
    let mut bench = running(job().indexed(2, 2), &["0.0", "1.0"]);
    bench.pod("0.0", |pod| pod.index(1));
    assert_eq!(
        bench.writes(),
        ["remove 0.0 (Misplaced)", "create 0.? TAKEN", "create 0.1", "status ready=1 terminating=1"]
    );
    bench.pod("0.1", |pod| pod.annotation("batch.kubernetes.io/job-completion-index", "none"));
    assert_eq!(bench.writes()[..2], ["remove 0.1 (Misplaced)", "create 0.2"]);
}

#[test]
fn a_pod_whose_labels_change_leaves_its_index_empty_and_one_that_is_adopted_fills_it() {
    let mut bench = running(job().indexed(2, 2), &["0.0", "1.0"]);
    let labels = bench.get("0.0").and_then(|pod| pod.metadata.labels);
    bench.pod("0.0", |pod| pod.labels(json!({ "team": "other" })));
    assert_eq!(bench.writes()[..2], ["disown 0.0", "create 0.1"]);
    bench.pod("0.0", |pod| pod.labels(json!(labels)));
    assert_eq!(bench.writes()[..2], ["adopt 0.0", "remove 0.1 (Misplaced)"]);
}

#[test]
fn the_name_of_a_foreign_pod_that_we_see_is_passed_over_at_once() {
    let mut bench = Bench::new(job().indexed(1, 1));
    let Some(Action::Create(new)) = bench.decide().stage.into_iter().next() else { panic!("a pod is made") };
    let name = json!({ "metadata": { "name": new.name } });
    bench.add(pod("squatter").index(0).orphan().labels(json!({})).with(name));
    assert_eq!(bench.writes()[0], "create 0.0");
}
