//! Each pod is counted once: record, release, fold, conclude, whatever happens in between.

mod common;

use common::{Bench, JobBuilder, at, job, on_condition, on_exit, pod, rfc3339};
use serde_json::{Value, json};
use windlass_job::decision::Kind;
use windlass_job::{Action, Outcome, Uid, Wake, decide};

/// A Job, and what happens to its pods between runs.
struct Story {
    name: &'static str,
    job: fn() -> JobBuilder,
    steps: &'static [fn(&mut Bench)],
}

const STORIES: &[Story] = &[
    Story {
        name: "two successes and a failure",
        job: || job().runs(2, 2),
        steps: &[
            |bench| _ = bench.start(&["p0", "p1"]),
            |bench| _ = bench.advance(1).fail("p0"),
            |bench| _ = bench.succeed("p1"),
            |bench| _ = bench.succeed("p2"),
        ],
    },
    Story {
        name: "a deadline with running pods",
        job: || job().runs(3, 3).limit(9),
        steps: &[
            |bench| _ = bench.start(&["p0", "p1", "p2"]),
            |bench| _ = bench.edit(|job| job.deadline(0)),
            |bench| _ = bench.exit("p0", 143).exit("p1", 0).exit("p2", 143),
        ],
    },
    Story {
        name: "indexes with retries",
        job: || job().indexed(3, 3).per_index(1),
        steps: &[
            |bench| _ = bench.start(&["0.0", "1.0", "2.0"]),
            |bench| _ = bench.fail("0.0").succeed("1.0").fail("2.0"),
            |bench| _ = bench.fail("0.1").succeed("2.1"),
        ],
    },
    Story {
        name: "a success policy and pods to spare",
        job: || job().indexed(3, 3).limit(0).success([json!({ "succeededIndexes": "1" })]),
        steps: &[
            |bench| _ = bench.start(&["0.0", "1.0", "2.0"]),
            |bench| _ = bench.succeed("1.0"),
            |bench| _ = bench.exit("0.0", 143).exit("2.0", 143),
        ],
    },
    Story {
        name: "disruptions ignored, a bug found",
        job: || {
            job()
                .runs(2, 2)
                .policy([on_condition("Ignore", "DisruptionTarget"), on_exit("FailJob", "In", &[5])])
        },
        steps: &[
            |bench| _ = bench.start(&["p0", "p1"]),
            |bench| _ = bench.disrupt("p0"),
            |bench| _ = bench.start(&["p2"]).exit("p1", 5),
            |bench| _ = bench.exit("p2", 143),
        ],
    },
    Story {
        name: "suspended and resumed",
        job: || job().runs(2, 2),
        steps: &[
            |bench| _ = bench.start(&["p0", "p1"]).edit(|job| job.suspended(true)),
            |bench| _ = bench.exit("p0", 143).exit("p1", 143),
            |bench| _ = bench.edit(|job| job.suspended(false)),
            |bench| _ = bench.succeed("p2").succeed("p3"),
        ],
    },
];

fn play(story: &Story, run: fn(&mut Bench) -> &mut Bench) -> Bench {
    let mut bench = Bench::new((story.job)());
    run(&mut bench);
    for step in story.steps {
        step(&mut bench);
        run(&mut bench);
    }
    bench
}

/// Everything but times.
fn outcome(bench: &Bench) -> Value {
    let mut status = bench.status();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        common::merge(condition, &json!({ "lastProbeTime": null, "lastTransitionTime": null }));
    }
    common::merge(&mut status, &json!({ "startTime": null, "completionTime": null }));
    status
}

#[test]
fn a_crash_after_any_write_changes_no_count_and_no_reason() {
    for story in STORIES {
        let smooth = play(story, |bench| bench.run_all());
        let crashing = play(story, |bench| bench.run_crashing());
        assert_eq!(outcome(&crashing), outcome(&smooth), "{}", story.name);
        let last = &smooth.status()["conditions"];
        let is_over = last
            .as_array()
            .is_some_and(|all| all.iter().any(|c| c["type"] == "Complete" || c["type"] == "Failed"));
        assert!(is_over, "{}: {last}", story.name);
        assert_eq!((smooth.held(), crashing.held()), (vec![], vec![]), "{}", story.name);
    }
}

#[test]
fn no_pod_is_released_before_the_server_has_it_on_record() {
    for story in STORIES {
        let mut bench = Bench::new((story.job)());
        for step in story.steps {
            bench.break_next(&[Kind::Status]).run_all();
            step(&mut bench);
            bench.break_next(&[Kind::Status]).run_all();
        }
        let smooth = play(story, |bench| bench.run_all());
        assert_eq!(outcome(&bench), outcome(&smooth), "{}", story.name);
    }
}

#[test]
fn a_recorded_pod_that_is_gone_is_folded() {
    let status = json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0, "succeeded": 4, "failed": 1,
                         "uncountedTerminatedPods": { "succeeded": ["gone"], "failed": ["lost"] } });
    let mut bench = Bench::new(job().runs(0, 9).status(status));
    assert_eq!(bench.writes(), ["status succeeded=5 failed=2 uncounted.succeeded=[] uncounted.failed=[]"]);
}

#[test]
fn a_recorded_pod_that_is_held_is_released_again() {
    let status = json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0,
                         "uncountedTerminatedPods": { "succeeded": ["a"] } });
    let mut bench = Bench::new(job().runs(0, 9).status(status));
    bench.add(pod("a").succeeded(0));
    assert_eq!(bench.writes(), ["release a", "status succeeded=1 uncounted.succeeded=[]"]);
}

#[test]
fn a_finished_pod_that_is_adopted_is_counted() {
    let mut bench = Bench::new(job().runs(1, 2));
    bench.add(pod("o").orphan().free().succeeded(0));
    assert_eq!(bench.writes()[0], "adopt o");
    assert_eq!(bench.status()["succeeded"], 1);
}

#[test]
fn an_orphan_that_is_being_deleted_is_not_adopted() {
    let mut bench = Bench::new(job().runs(0, 2));
    bench.add(pod("o").orphan().free().running().deleted(0));
    assert_eq!(bench.writes(), ["status ready=0 terminating=0 startTime=0"]);
    bench.vanish("o");
    assert_eq!(bench.writes(), Vec::<String>::new());
}

#[test]
fn a_stray_is_let_go_with_its_finalizer_and_not_counted() {
    let mut bench = Bench::new(job().runs(0, 2));
    bench.add(pod("a").failed(0).labels(json!({ "team": "other" })));
    assert_eq!(bench.writes(), ["disown a", "status ready=0 terminating=0 startTime=0"]);
    assert_eq!(bench.held(), Vec::<&str>::new());
}

#[test]
fn claims_are_made_some_at_a_time() {
    let mut bench = Bench::new(job().runs(9, 9));
    bench.settings.pods_per_stage_max = 2;
    for name in ["a", "b", "c"] {
        bench.add(pod(name).orphan().free());
    }
    assert_eq!(bench.decide().stage.len(), 2);
    assert_eq!(bench.trace(), "adopt 2, let go of 0 pods");
    bench.hush();
    assert_eq!(bench.status()["active"], 9);
}

#[test]
fn releases_come_some_at_a_time() {
    let status = json!({ "startTime": rfc3339(0), "ready": 0, "terminating": 0,
                         "uncountedTerminatedPods": { "failed": ["a", "b", "c"] } });
    let mut bench = Bench::new(job().runs(0, 9).status(status));
    bench.settings.pods_per_stage_max = 2;
    for name in ["a", "b", "c"] {
        bench.add(pod(name).failed(0));
    }
    assert_eq!(
        bench.writes(),
        [
            "release a",
            "release b",
            "release c",
            "status failed=2 uncounted.failed=[c]",
            "status failed=3 uncounted.failed=[]",
        ]
    );
}

#[test]
fn a_pod_that_we_know_to_be_gone_does_not_come_back_with_an_old_event() {
    let mut bench = Bench::new(job().runs(2, 2));
    bench.hush();
    let stale = bench.pod_facts("p0");
    bench.edit(|job| job.runs(1, 2)).hush();
    assert_eq!(bench.uids(), ["p1"]);
    bench.view().observe_pod(stale);
    assert_eq!((bench.writes(), bench.view().pods().len()), (vec![], 1));
    bench.view().forget_pod(&Uid::new("p0"));
    assert_eq!(bench.writes(), Vec::<String>::new());
}

#[test]
fn answers_that_carry_no_pod_are_taken_as_they_are() {
    let mut bench = Bench::new(job().runs(2, 2).limit(0));
    bench.hush().start(&["p0", "p1"]).hush().fail("p0");
    let (now, settings) = (bench.now, bench.settings.clone());
    let delete = bench.decide().stage.remove(0);
    assert_eq!(delete.kind(), Kind::End);
    let view = bench.view();
    view.fold(&delete, Outcome::Done, now, &settings);
    assert_eq!((view.pods().totals().active, view.pods().totals().terminating), (0, 1));
    let next = decide(&view.observation(now, &settings));
    assert_eq!(next.stage.len(), 1, "all active pods were asked to go: the end is announced");
    view.fold(&next.stage[0], Outcome::Gone, now, &settings);
    assert!(view.job().status.conditions.is_empty(), "a status that was not written changes nothing");
}

#[test]
fn an_empty_view_has_no_pods() {
    let mut bench = Bench::new(job());
    assert!(bench.view().pods().is_empty() && bench.view().pods().iter().next().is_none());
    bench.hush();
    let names: Vec<String> = bench.view().pods().iter().map(|pod| pod.uid.to_string()).collect();
    assert_eq!((names, bench.view().pods().is_empty()), (vec!["p0".to_owned()], false));
}

#[test]
fn an_unknown_pod_that_is_forgotten_or_answered_for_is_no_matter() {
    let mut bench = Bench::new(job());
    bench.hush().delete("p0").hush();
    let (now, settings) = (bench.now, bench.settings.clone());
    let nobody = windlass_job::decision::PodRef { uid: Uid::new("nobody"), name: "nobody".to_owned() };
    let before = bench.view().pods().len();
    let view = bench.view();
    view.forget_pod(&Uid::new("nobody"));
    for action in [Action::Release(nobody.clone()), Action::Delete(nobody.clone()), Action::Adopt(nobody)] {
        view.fold(&action, Outcome::Gone, now, &settings);
        view.fold(&action, Outcome::Done, now, &settings);
    }
    assert_eq!(view.pods().len(), before);
}

#[test]
fn indexes_beyond_the_cap_are_in_the_text_at_once_and_failures_beyond_it_wait() {
    let mut bench = Bench::new(job().indexed(0, 9));
    bench.settings.uncounted_max = 2;
    for index in 0..3 {
        bench.add(pod(&format!("s{index}")).index(index).succeeded(0));
        bench.add(pod(&format!("f{index}")).index(index + 3).failed(0));
    }
    let writes = bench.writes();
    assert_eq!(writes[0], "status ready=0 terminating=0 succeeded=3 completedIndexes=0-2 startTime=0");
    assert!(writes.contains(&"status uncounted.failed=[f0,f1]".to_owned()), "{writes:?}");
    assert_eq!((bench.held(), &bench.status()["failed"]), (vec![], &json!(3)));
}

#[test]
fn decisions_on_the_same_view_are_equal_and_change_nothing() {
    let mut bench = Bench::new(job().indexed(4, 9).per_index(1).deadline(99));
    bench.add(pod("a").index(0).failed(0)).add(pod("b").index(1).running()).add(pod("c").index(1));
    let first = bench.decide();
    for _ in 0..3 {
        assert_eq!(bench.decide(), first);
    }
    assert_eq!(bench.log(), Vec::<String>::new());
    let copy = bench.view().clone();
    let settings = bench.settings.clone();
    assert_eq!(decide(&copy.observation(at(0), &settings)), first);
}

#[test]
fn a_job_that_is_gone_while_it_is_deleted_leaves_no_finalizer_behind() {
    let mut bench = Bench::new(job().runs(3, 3));
    bench.hush().start(&["p0", "p1"]).hush().edit(JobBuilder::deleted);
    bench.delete("p0").succeed("p1");
    assert_eq!(bench.run(), Wake::Settled);
    assert_eq!(bench.held(), Vec::<&str>::new());
    let status = bench.status();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(1)));
}

#[test]
fn a_late_success_of_an_index_that_has_failed_is_released_and_not_counted() {
    let mut bench = Bench::new(job().indexed(1, 2).per_index(0));
    bench.hush().fail("0.0").hush();
    assert_eq!(bench.status()["failedIndexes"], "0");
    bench.add(pod("late").index(0).succeeded(0)).hush();
    let status = bench.status();
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"]), (&json!("0"), &json!(null)));
    assert_eq!(bench.held(), ["1.0"]);
}
