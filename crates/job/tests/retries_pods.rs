//! When a failed pod is retried: global back-off, back-off per index, and what an index remembers.

mod common;

use common::{Bench, JobBuilder, at, conditions, job, on_condition, pod, rfc3339};
use serde_json::json;
use windlass_api::{Gates, names};
use windlass_job::Wake;

fn running(job: JobBuilder, uids: &[&str]) -> Bench {
    let mut bench = Bench::new(job);
    bench.hush().start(uids).hush();
    bench
}

fn annotation(bench: &Bench, uid: &str, key: &str) -> Option<String> {
    bench.get(uid).and_then(|pod| pod.metadata.annotations).and_then(|all| all.get(key).cloned())
}

fn failures(bench: &Bench, uid: &str) -> (Option<String>, Option<String>) {
    let of = |key| annotation(bench, uid, key);
    (of(names::INDEX_FAILURE_COUNT), of(names::INDEX_IGNORED_FAILURE_COUNT))
}

// TestJobPodsCreatedWithExponentialBackoff, TestNonParallelJob
#[test]
fn each_failure_in_a_row_doubles_the_delay_up_to_ten_minutes() {
    let mut bench = Bench::new(job().limit(99));
    bench.hush();
    let mut delays = Vec::new();
    for attempt in 0..9 {
        let before = bench.seconds();
        bench.fail(&format!("p{attempt}")).run_all();
        delays.push(bench.seconds() - before);
    }
    assert_eq!(delays, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
}

#[test]
fn the_delay_is_the_same_for_a_controller_that_just_started() {
    for crash in [false, true] {
        let mut bench = Bench::new(job().limit(99));
        bench.hush();
        for attempt in 0..3 {
            bench.fail(&format!("p{attempt}")).run_all();
        }
        bench.fail("p3").hush();
        if crash {
            bench.restart();
        }
        assert_eq!(bench.run(), Wake::At(at(70 + 80)), "crashed: {crash}");
    }
}

#[test]
fn a_success_ends_the_row_of_failures() {
    let mut bench = running(job().runs(2, 9), &["p0", "p1"]);
    bench.fail("p0").run_all();
    bench.fail("p2").run_all();
    assert_eq!(bench.seconds(), 10 + 20);
    bench.advance(1).succeed("p1").hush().advance(1);
    bench.fail("p3");
    assert_eq!(bench.run(), Wake::At(at(32 + 10)));
}

#[test]
fn failures_that_finished_before_the_last_success_do_not_delay() {
    let mut bench = Bench::new(job().runs(1, 9));
    bench.advance(5).add(pod("f").failed(3)).add(pod("s").succeeded(3));
    assert_eq!(bench.writes()[0], "create p0", "finished in the same second: not after it");
    let mut bench = Bench::new(job().runs(1, 9));
    bench.advance(5).add(pod("f").failed(4)).add(pod("s").succeeded(3));
    assert_eq!(bench.run(), Wake::At(at(14)));
}

#[test]
fn pods_that_are_gone_are_remembered_until_the_next_success() {
    let mut bench = Bench::new(job().runs(1, 9).limit(99));
    bench.hush().fail("p0").run_all().delete("p0").fail("p1").hush().delete("p1");
    assert_eq!(bench.run(), Wake::At(at(30)), "the second failure in a row");
    bench.run_all().succeed("p2").hush().advance(1).fail("p3");
    assert_eq!(bench.run(), Wake::At(at(41)), "the first after a success");
}

#[test]
fn a_row_of_failures_that_are_all_gone_waits_no_longer_than_ever() {
    let mut bench = Bench::new(job().limit(999));
    bench.settings.backoff.base = jiff::SignedDuration::from_nanos(1);
    bench.settings.backoff.max = jiff::SignedDuration::from_secs(5);
    bench.hush();
    for attempt in 0..40 {
        bench.fail(&format!("p{attempt}")).run_all();
        bench.delete(&format!("p{attempt}"));
    }
    assert_eq!(bench.status()["failed"], 40);
    bench.fail("p40");
    assert_eq!(bench.run(), Wake::At(bench.now + jiff::SignedDuration::from_secs(5)));
}

// TestBackoffLimitPerIndex_JobPodsCreatedWithExponentialBackoff
#[test]
fn each_index_has_a_back_off_of_its_own() {
    let mut bench = running(job().indexed(2, 2).per_index(2), &["0.0", "1.0"]);
    bench.fail("0.0");
    assert_eq!(bench.run(), Wake::At(at(10)));
    assert_eq!(bench.trace(), "wait until 2026-01-01T00:00:10Z: back-off of index 0 after 1 failure");
    bench.advance(10).hush().fail("0.1").fail("1.0");
    assert_eq!(bench.run(), Wake::At(at(20)), "the first failure of index 1");
    bench.advance(10).hush();
    assert_eq!((bench.get("1.1").is_some(), bench.get("0.2").is_some()), (true, false));
    assert_eq!(bench.run(), Wake::At(at(30)), "the second of index 0");
    bench.advance(10).hush().succeed("0.2").fail("1.1").run_all();
    assert_eq!(bench.seconds(), 50);
    bench.succeed("1.2").hush();
    assert_eq!(
        bench.status(),
        json!({
            "startTime": rfc3339(0), "completionTime": rfc3339(50), "ready": 0, "terminating": 0,
            "succeeded": 2, "failed": 4, "completedIndexes": "0,1", "failedIndexes": "",
            "uncountedTerminatedPods": {},
            "conditions": conditions(
                &["SuccessCriteriaMet", "Complete"],
                "CompletionsReached",
                "Reached expected number of succeeded pods",
                50,
            ),
        })
    );
}

// TestBackoffLimitPerIndex_DelayedPodDeletion
#[test]
fn a_failed_pod_that_is_deleted_stays_until_its_successor_knows_of_it() {
    let mut bench = running(job().indexed(1, 1).per_index(1), &["0.0"]);
    bench.fail("0.0").delete("0.0").hush();
    assert_eq!((bench.held(), &bench.status()["failed"]), (vec!["0.0"], &json!(null)));
    bench.restart().run_all();
    assert_eq!((bench.uids(), &bench.status()["failed"]), (vec!["0.1"], &json!(1)));
    assert_eq!(failures(&bench, "0.1"), (Some("1".to_owned()), None));
    bench.succeed("0.1").hush();
    assert_eq!(bench.status()["conditions"][1]["type"], "Complete");
}

// TestBackoffLimitPerIndex, index exceeds limit
#[test]
fn an_index_fails_after_its_limit_and_its_pods_count_up_to_it() {
    let mut bench = running(job().indexed(2, 2).per_index(2), &["0.0", "1.0"]);
    assert_eq!(failures(&bench, "0.0"), (Some("0".to_owned()), None));
    bench.fail("0.0").run_all().fail("0.1").run_all();
    assert_eq!(failures(&bench, "0.1"), (Some("1".to_owned()), None));
    assert_eq!(failures(&bench, "0.2"), (Some("2".to_owned()), None));
    bench.hush().fail("0.2");
    assert_eq!(
        bench.writes(),
        [
            "status active=1 failedIndexes=0 uncounted.failed=[0.2]",
            "release 0.2",
            "status failed=3 uncounted.failed=[]",
        ]
    );
    bench.succeed("1.0").hush();
    let status = bench.status();
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"]), (&json!("0"), &json!("1")));
    assert_eq!(status["conditions"][1]["reason"], "FailedIndexes");
}

#[test]
fn ignored_failures_are_remembered_apart_from_counted_ones() {
    let rules = [on_condition("Ignore", "DisruptionTarget")];
    let mut bench = running(job().indexed(1, 1).per_index(1).policy(rules), &["0.0"]);
    bench.disrupt("0.0").run_all();
    assert_eq!(failures(&bench, "0.1"), (Some("0".to_owned()), Some("1".to_owned())));
    assert_eq!(bench.status()["failed"], json!(null));
    bench.fail("0.1").run_all();
    assert_eq!(failures(&bench, "0.2"), (Some("1".to_owned()), Some("1".to_owned())));
    assert_eq!(bench.seconds(), 10 + 20, "both delay");
    bench.disrupt("0.2").run_all();
    assert_eq!(bench.status()["failedIndexes"], "", "ignored at the limit");
    bench.fail("0.3").hush();
    assert_eq!((&bench.status()["failedIndexes"], &bench.status()["failed"]), (&json!("0"), &json!(2)));
}

#[test]
fn a_low_index_in_back_off_holds_its_place_in_parallelism() {
    let mut bench = running(job().indexed(1, 3).per_index(3), &["0.0"]);
    bench.fail("0.0").hush();
    assert_eq!(bench.run(), Wake::At(at(10)));
    assert_eq!(bench.uids(), ["0.0"], "index 1 does not start");
}

#[test]
fn an_index_that_may_start_does_while_another_waits() {
    let mut bench = running(job().indexed(2, 3).per_index(3), &["0.0", "1.0"]);
    bench.fail("0.0").succeed("1.0");
    assert_eq!(
        bench.writes(),
        ["create 2.0", "status active=1 ready=0 succeeded=1 completedIndexes=1", "release 1.0"]
    );
    assert_eq!(bench.run(), Wake::At(at(10)));
}

#[test]
fn of_several_failed_pods_of_an_index_the_one_that_knows_most_is_kept() {
    let mut bench = Bench::new(job().indexed(1, 1).per_index(9));
    bench
        .add(pod("a").index(0).failures(2, 1).failed(5))
        .add(pod("b").index(0).failures(1, 0).failed(9))
        .add(pod("c").index(0).failures(3, 0).failed(7))
        .add(pod("d").index(0).failures(3, 0).failed(6));
    bench.advance(8).hush();
    assert_eq!(bench.run(), Wake::At(at(87)));
    assert_eq!(bench.held(), ["c"], "the latest of those that know of three");
    bench.run_all();
    assert_eq!(failures(&bench, "0.0"), (Some("4".to_owned()), None));
    assert_eq!((bench.held(), &bench.status()["failed"]), (vec!["0.0"], &json!(4)));
}

// TestBackoffLimitPerIndex_Reenabling
#[test]
fn the_gate_of_the_limit_per_index_can_be_switched_off_and_on() {
    let off = Gates { job_backoff_limit_per_index: false, ..Gates::default() };
    let mut bench = running(job().indexed(3, 3).per_index(0), &["0.0", "1.0", "2.0"]);
    bench.fail("0.0").hush();
    assert_eq!(bench.status()["failedIndexes"], "0");
    bench.restart_with(off).run_all();
    assert_eq!(bench.status()["failedIndexes"], json!(null));
    assert!(bench.get("0.1").is_some(), "the index runs again");
    bench.fail("1.0").hush();
    bench.restart_with(Gates::default()).run_all();
    assert_eq!(bench.status()["failedIndexes"], "", "the failure of index 1 was counted without it");
    bench.fail("2.0").hush();
    assert_eq!(bench.status()["failedIndexes"], "2");
    bench.succeed("0.1").succeed("1.1").hush();
    assert_eq!(bench.status()["conditions"][1]["reason"], "FailedIndexes");
}

#[test]
fn without_its_gate_a_fail_index_rule_is_passed_over() {
    let rules = [common::on_exit("FailIndex", "In", &[1]), common::on_exit("FailJob", "In", &[1])];
    let off = Gates { job_backoff_limit_per_index: false, ..Gates::default() };
    let mut bench = Bench::with(job().indexed(1, 1).per_index(0).policy(rules), off);
    bench.hush().fail("0.0").hush();
    assert_eq!(bench.status()["conditions"][0]["reason"], "PodFailurePolicy");
}

#[test]
fn a_terminating_pod_is_retained_like_a_failed_one_where_it_counts_as_failed() {
    let mut bench = running(job().indexed(1, 1).per_index(1), &["0.0"]);
    bench.delete("0.0");
    assert_eq!(bench.run(), Wake::At(at(10)));
    assert_eq!((bench.held(), &bench.status()["terminating"]), (vec!["0.0"], &json!(1)));
    bench.run_all();
    assert_eq!((bench.held(), &bench.status()["failed"]), (vec!["0.1"], &json!(1)));
}
