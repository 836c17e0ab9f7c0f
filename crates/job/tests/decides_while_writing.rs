//! Decisions that do not wait for the writes of the one before: what is on its way is neither done again nor forgotten.

mod common;

use common::{Bench, job, on_exit};
use jiff::SignedDuration;
use serde_json::json;
use windlass_job::decision::NewPod;
use windlass_job::{Action, Outcome, Wake};

/// Index and attempt of each pod to be made; there is nothing else in the stage.
fn made(stage: &[Action]) -> Vec<(Option<u32>, u32)> {
    let made = |action: &Action| match action {
        Action::Create(NewPod { index, attempt, .. }) => (*index, *attempt),
        other => panic!("{other:?}"),
    };
    stage.iter().map(made).collect()
}

fn nothing() -> Vec<Action> {
    Vec::new()
}

#[test]
fn pods_on_their_way_are_not_made_again() {
    let mut indexed = Bench::new(job().indexed(3, 3));
    let first = indexed.send();
    assert_eq!(made(&first), [(Some(0), 0)], "slow start");
    assert_eq!(indexed.send(), nothing());
    indexed.land(&first[0]);
    assert_eq!(made(&indexed.send()), [(Some(1), 0), (Some(2), 0)]);
    assert_eq!(indexed.send(), nothing(), "all places are taken");
}

#[test]
fn an_answer_makes_room_for_two_more_with_names_of_their_own() {
    let mut bench = Bench::new(job().runs(9, 9));
    let first = bench.send();
    let second = bench.land(&first[0]).send();
    assert_eq!(made(&second), [(None, 1), (None, 2)]);
    let third = bench.land(&second[1]).send();
    assert_eq!(made(&third), [(None, 3), (None, 4)]);
    bench.land(&second[0]);
    assert_eq!(made(&bench.send()), [(None, 5), (None, 6)]);
}

#[test]
fn no_more_pods_are_on_their_way_than_a_stage_may_have() {
    let mut bench = Bench::new(job().runs(9, 9));
    bench.settings.pods_per_stage_max = 2;
    let first = bench.send();
    assert_eq!(bench.land(&first[0]).send().len(), 2);
    assert_eq!(bench.send(), nothing());
}

#[test]
fn a_pod_that_fails_to_be_made_is_made_under_the_same_name_later() {
    let mut bench = Bench::new(job());
    let first = bench.send();
    let now = bench.now;
    let settings = bench.settings.clone();
    bench.view().fold(&first[0], Outcome::Failed, now, &settings);
    bench.hush();
    assert_eq!(bench.advance(1).send(), first);
}

#[test]
fn a_pod_is_counted_while_another_is_on_its_way() {
    let mut bench = Bench::new(job().runs(2, 2));
    let first = bench.send();
    let second = bench.land(&first[0]).send();
    assert_eq!(made(&second), [(None, 1)]);
    bench.advance(1).start(&["p0"]).succeed("p0");
    let record = bench.send();
    assert!(matches!(&record[..], [Action::WriteStatus(_)]), "{record:?}");
    assert_eq!(bench.send(), nothing(), "one status write at a time");
    bench.log();
    bench.land(&record[0]);
    assert_eq!(
        bench.log(),
        ["status active=1 ready=0 terminating=0 uncounted.succeeded=[p0] startTime=0"],
        "the pod on its way counts as active"
    );
    let release = bench.send();
    assert!(
        matches!(&release[..], [Action::Release(pod)] if pod.name == bench.pod_facts("p0").name.as_ref())
    );
    assert_eq!(bench.send(), nothing(), "it is being released");
    bench.land(&release[0]).land(&second[0]).log();
    assert_eq!(bench.writes(), ["status succeeded=1 uncounted.succeeded=[]"]);
}

#[test]
fn the_first_pods_are_counted_when_all_are_made_or_a_second_later() {
    let begun = || {
        let mut bench = Bench::new(job().runs(2, 3));
        let first = bench.send();
        let second = bench.land(&first[0]).send();
        assert_eq!(made(&second), [(None, 1)]);
        bench.start(&["p0"]).succeed("p0");
        let third = bench.send();
        assert_eq!(made(&third), [(None, 2)], "its place is free, and nothing is counted yet");
        assert_eq!(bench.send(), nothing());
        (bench, second, third)
    };
    let is_record = |stage: &[Action]| matches!(stage, [Action::WriteStatus(_)]);
    let (mut bench, second, third) = begun();
    bench.land(&second[0]);
    assert_eq!(bench.send(), nothing(), "one is on its way");
    bench.land(&third[0]);
    assert!(is_record(&bench.send()), "all are made");
    let (mut bench, ..) = begun();
    assert!(is_record(&bench.advance(1).send()), "they are not made in time");
}

#[test]
fn a_pod_that_the_watch_shows_before_the_answer_is_one_pod() {
    let mut bench = Bench::new(job().runs(2, 2));
    let create = bench.send();
    let answer = bench.arrive(&create[0]);
    bench.start(&["p0"]);
    assert_eq!(bench.view().pods().totals().active, 1);
    // The other place is free, but slow start waits for the answer.
    assert_eq!(bench.send(), nothing());
    let (now, settings) = (bench.now, bench.settings.clone());
    bench.view().fold(&create[0], answer, now, &settings);
    assert_eq!(bench.view().pods().totals().active, 1);
    assert_eq!(made(&bench.send()), [(None, 1)]);
}

#[test]
fn an_answer_does_not_bring_back_a_pod_that_came_and_went_before_it() {
    for is_listed in [false, true] {
        let mut bench = Bench::new(job());
        let create = bench.send();
        let answer = bench.arrive(&create[0]);
        if is_listed {
            // The watch broke off, and the list does not have the pod.
            let revision = bench.pod_facts("p0").revision;
            bench.view().listed(revision);
        } else {
            bench.start(&["p0"]).vanish("p0");
        }
        let (now, settings) = (bench.now, bench.settings.clone());
        bench.view().fold(&create[0], answer, now, &settings);
        assert!(bench.view().pods().is_empty(), "listed: {is_listed}");
    }
}

#[test]
fn a_job_does_not_end_while_a_pod_is_on_its_way() {
    let mut bench = Bench::new(job().runs(2, 2).policy([on_exit("FailJob", "In", &[5])]));
    let first = bench.send();
    let second = bench.land(&first[0]).send();
    bench.start(&["p0"]).exit("p0", 5);
    assert_eq!(bench.send(), nothing(), "what is on its way must go, too");
    bench.land(&second[0]).log();
    let writes = bench.writes();
    assert_eq!(writes[0], "delete p1");
    assert!(writes[1].contains("+FailureTarget(PodFailurePolicy)"), "{writes:?}");
}

#[test]
fn nothing_is_decided_before_a_deletion_is_answered() {
    let mut bench = Bench::new(job().runs(2, 2));
    bench.hush();
    bench.start(&["p0", "p1"]).edit(|job| job.runs(0, 2)).hush();
    bench.edit(|job| job.runs(2, 2));
    let create = bench.send();
    assert!(matches!(&create[..], [Action::Create(_), ..]), "{create:?}");
    create.iter().for_each(|action| _ = bench.land(action));
    bench.edit(|job| job.runs(0, 2));
    let remove = bench.send();
    assert!(matches!(&remove[..], [Action::Remove(..), ..]), "{remove:?}");
    bench.edit(|job| job.runs(2, 2));
    assert_eq!(bench.decide().wake, Wake::Settled);
    assert_eq!(bench.send(), nothing());
}

#[test]
fn orphans_wait_for_the_pods_that_are_on_their_way() {
    let mut bench = Bench::new(job().runs(1, 1));
    let create = bench.send();
    bench.add(common::pod("o").orphan().free());
    assert_eq!(bench.send(), nothing());
    let adopt = bench.land(&create[0]).send();
    assert!(matches!(&adopt[..], [Action::Adopt(_)]), "{adopt:?}");
}

#[test]
fn a_status_that_only_counts_waits_longer_the_longer_the_last_one_took() {
    let mut bench = Bench::new(job().indexed(3, 3));
    bench.hush();
    bench.start(&["0.0", "1.0", "2.0"]).hush();
    bench.succeed("0.0");
    let write = bench.send();
    assert!(matches!(&write[..], [Action::WriteStatus(_)]), "{write:?}");
    bench.now += SignedDuration::from_millis(50);
    bench.land(&write[0]);
    bench.succeed("1.0");
    let release = bench.send();
    assert!(matches!(&release[..], [Action::Release(_)]), "{release:?}");
    bench.land(&release[0]);
    let until = bench.now + SignedDuration::from_millis(300);
    assert_eq!(bench.decide().wake, Wake::At(until));
    assert!(!bench.trace().contains("1.0"), "said when it is written: {}", bench.trace());
    // With the last pod there is nothing to wait for.
    bench.succeed("2.0");
    let write = bench.send();
    assert!(matches!(&write[..], [Action::WriteStatus(_)]), "{write:?}");
}

#[test]
fn a_status_write_that_is_outdated_is_decided_again_at_once() {
    let mut bench = Bench::new(job().runs(0, 1));
    let write = bench.send();
    assert!(matches!(&write[..], [Action::WriteStatus(_)]), "{write:?}");
    let (now, settings) = (bench.now, bench.settings.clone());
    bench.edit(|job| job.spec(json!({ "backoffLimit": 3 })));
    assert_eq!(bench.send(), nothing());
    bench.view().fold(&write[0], Outcome::Outdated, now, &settings);
    assert!(matches!(&bench.send()[..], [Action::WriteStatus(_)]));
}

#[test]
fn a_job_that_is_about_to_finish_is_counted_and_ended_by_one_status() {
    let mut bench = Bench::new(job().runs(2, 2));
    bench.hush().start(&["p0", "p1"]).hush().succeed("p0").succeed("p1");
    let announced = bench.send();
    assert!(matches!(&announced[..], [Action::WriteStatus(_)]), "{announced:?}");
    let releases = bench.land(&announced[0]).send();
    assert!(matches!(&releases[..], [Action::Release(_), Action::Release(_)]), "{releases:?}");
    assert_eq!(bench.land(&releases[0]).send(), nothing());
    let last = bench.land(&releases[1]).send();
    assert!(matches!(&last[..], [Action::WriteStatus(write)] if write.finishes), "{last:?}");
}
