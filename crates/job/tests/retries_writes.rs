//! What happens when a write fails: its kind is left alone for a while, and nothing else is.

mod common;

use common::{Bench, at, job, pod, rfc3339};
use serde_json::json;
use windlass_job::decision::Kind;
use windlass_job::{Outcome, Wake, decide};

/// A bench on which the next write is of `kind`.
fn about_to(kind: Kind) -> Bench {
    let settled =
        json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {} });
    match kind {
        Kind::Claim => {
            let mut bench = Bench::new(job().runs(0, 1).status(settled));
            bench.add(pod("o").orphan().free());
            bench
        }
        Kind::Create => Bench::new(job().status(settled)),
        Kind::End => {
            let mut bench = Bench::new(job().runs(0, 1).status(settled));
            bench.add(pod("a"));
            bench
        }
        Kind::Release => {
            let status = json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0,
                                 "uncountedTerminatedPods": { "failed": ["a"] } });
            let mut bench = Bench::new(job().runs(0, 1).status(status));
            bench.add(pod("a").failed(0));
            bench
        }
        Kind::Status => Bench::new(job().runs(0, 1)),
        Kind::Emit => Bench::new(job().spec(json!({ "completionMode": "Striped" }))),
    }
}

#[test]
fn each_kind_of_write_is_held_back_for_1_2_4_and_up_to_60_seconds() {
    for kind in [Kind::Claim, Kind::Create, Kind::End, Kind::Release, Kind::Status, Kind::Emit] {
        let mut bench = about_to(kind);
        for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
            bench.break_next(&[kind]);
            let Wake::At(until) = bench.run() else { panic!("{kind:?} is not tried again") };
            let log = bench.log();
            assert_eq!(log.iter().filter(|line| line.ends_with("FAILED")).count(), 1, "{kind:?}: {log:?}");
            assert_eq!(until, at(bench.seconds() + delay), "{kind:?}");
            bench.now = until;
        }
        bench.run();
        let log = bench.log();
        assert!(!log.is_empty() && log.iter().all(|line| !line.contains("FAILED")), "{kind:?}: {log:?}");
        assert_eq!(bench.run(), Wake::Settled, "{kind:?}");
    }
}

#[test]
fn a_write_that_works_makes_the_next_failure_the_first() {
    let mut bench = Bench::new(job());
    bench.break_next(&[Kind::Create, Kind::Create]);
    assert_eq!(bench.run(), Wake::At(at(1)));
    bench.advance(1);
    assert_eq!(bench.run(), Wake::At(at(3)));
    bench.advance(2).hush().edit(|job| job.runs(2, 2)).break_next(&[Kind::Create]);
    assert_eq!(bench.run(), Wake::At(at(4)));
}

#[test]
fn a_stage_in_which_some_writes_fail_is_held_back_once_whatever_the_order() {
    for broken in 1..=3 {
        let mut bench = Bench::new(job().runs(3, 3).suspended(true));
        bench.add(pod("a")).add(pod("b")).add(pod("c")).break_next(&[Kind::End; 3][..broken]);
        assert_eq!(bench.run(), Wake::At(at(1)), "{broken} of 3 fail");
        bench.advance(1);
        assert_eq!(bench.run(), Wake::Settled);
    }
    let mut bench = Bench::new(job().runs(2, 2).suspended(true));
    bench.add(pod("a")).add(pod("b"));
    let decision = bench.decide();
    let (now, settings) = (bench.now, bench.settings.clone());
    for (first, second) in [(Outcome::Failed, Outcome::Gone), (Outcome::Gone, Outcome::Failed)] {
        let mut view = bench.view().clone();
        view.fold(&decision.stage[0], first, now, &settings);
        view.fold(&decision.stage[1], second, now, &settings);
        let next = decide(&view.observation(now, &settings));
        assert_eq!(next.stage.iter().filter(|action| action.kind() == Kind::End).count(), 0);
    }
}

#[test]
fn nothing_is_tried_before_its_time() {
    let mut bench = Bench::new(job());
    bench.break_next(&[Kind::Create]);
    bench.hush();
    for _ in 0..5 {
        assert_eq!(bench.writes(), Vec::<String>::new());
    }
    assert_eq!(bench.trace(), "wait until 2026-01-01T00:00:01Z: creating a pod failed a moment ago");
}

#[test]
fn creations_that_fail_do_not_stop_counting() {
    let mut bench = Bench::new(job().runs(2, 3));
    bench.hush().break_next(&[Kind::Create]).succeed("p0");
    assert_eq!(
        bench.writes(),
        [
            "create p? FAILED",
            "status uncounted.succeeded=[p0]",
            "release p0",
            "status active=1 succeeded=1 uncounted.succeeded=[]"
        ]
    );
}

#[test]
fn releases_that_fail_do_not_stop_recording_creating_or_folding() {
    let mut bench = Bench::new(job().runs(2, 4));
    bench.hush().break_next(&[Kind::Release]).succeed("p0").hush();
    assert_eq!(bench.held(), ["p0", "p1", "p2"]);
    bench.succeed("p1");
    assert_eq!(bench.writes(), ["create p3", "status uncounted.succeeded=[p0,p1]"]);
    assert_eq!(bench.run(), Wake::At(at(1)));
    bench.advance(1);
    assert_eq!(bench.writes(), ["release p0", "release p1", "status succeeded=2 uncounted.succeeded=[]"]);
}

#[test]
fn status_writes_that_fail_do_not_stop_creating() {
    let mut bench = Bench::new(job().runs(1, 2));
    bench.break_next(&[Kind::Status]);
    assert_eq!(bench.run(), Wake::At(at(1)));
    assert_eq!(bench.log(), ["create p0", "status FAILED"]);
    bench.succeed("p0");
    bench.run();
    assert_eq!(bench.log(), ["create p1"], "the recording waits, the pod does not");
    assert_eq!(bench.held(), ["p0", "p1"], "nothing is released before it is recorded");
}

#[test]
fn claims_that_fail_do_not_stop_the_pods_that_are_ours() {
    let mut bench = Bench::new(job());
    bench.add(pod("stray").labels(json!({}))).break_next(&[Kind::Claim]);
    assert_eq!(bench.run(), Wake::At(at(1)));
    assert_eq!(
        bench.log(),
        ["disown stray FAILED", "create p0", "status active=1 ready=0 terminating=0 startTime=0"]
    );
    assert_eq!(
        bench.trace(),
        "wait until 2026-01-01T00:00:01Z: adopting or releasing a pod failed a moment ago"
    );
    bench.advance(1);
    assert_eq!(bench.writes(), ["disown stray"]);
}

#[test]
fn deletions_that_fail_do_not_stop_recording() {
    let mut bench = Bench::new(job().runs(2, 2).limit(0));
    bench.hush().start(&["p0", "p1"]).hush().fail("p0").break_next(&[Kind::End]);
    assert_eq!(bench.run(), Wake::At(at(1)));
    let log = bench.log();
    assert_eq!(log[..2], ["delete p1 FAILED", "status active=1 ready=1 uncounted.failed=[p0]"]);
}

#[test]
fn a_deletion_that_was_done_although_it_seemed_to_fail_changes_neither_reason_nor_indexes() {
    let mut bench = Bench::new(job().indexed(2, 2).per_index(0).max_failed(0));
    bench.hush().start(&["0.0", "1.0"]).hush().fail("0.0").break_next(&[Kind::End]);
    bench.step();
    bench.delete("1.0").hush();
    let status = bench.status();
    assert_eq!(status["failedIndexes"], "0");
    assert_eq!(status["conditions"][0]["reason"], "MaxFailedIndexesExceeded");
}

#[test]
fn on_a_finished_job_a_failed_release_is_tried_again() {
    let mut bench = Bench::new(job());
    bench.hush().succeed("p0").hush().add(pod("late").running()).break_next(&[Kind::Release]);
    assert_eq!((bench.run(), bench.log()), (Wake::At(at(1)), vec!["release late FAILED".to_owned()]));
    bench.advance(1);
    assert_eq!(bench.writes(), ["release late"]);
}

#[test]
fn the_sooner_of_two_times_wakes_the_decision() {
    let mut bench = Bench::new(job().deadline(50));
    bench.hush().fail("p0");
    assert_eq!(bench.run(), Wake::At(at(10)));
    assert_eq!(
        bench.trace(),
        "wait until 2026-01-01T00:00:10Z: back-off after 1 failure, the last at 2026-01-01T00:00:00Z\n\
         wait until 2026-01-01T00:00:50Z: the deadline"
    );
}
