//! For each promise a planted bug that breaks it, and the name by which the checker must know it: the tests can fail.

use windlass_sim::cases::case;
use windlass_sim::controller::{Fate, Weather};
use windlass_sim::steps::{Step, UserEvent};
use windlass_sim::{Case, JobPlan, Promise, Sabotage, run, run_with};

/// Cases in which a planted bug must show.
const CASES: u64 = 400;

/// The first case in which the bug breaks just that promise.
fn caught(promise: Promise, sabotage: &Sabotage) -> Option<Case> {
    (0..CASES).map(case).find(|case| {
        let result = run_with(case, sabotage.clone());
        result.is_err_and(|breach| breach.promise == promise)
    })
}

fn is_caught(promise: Promise, sabotage: Sabotage) {
    assert!(caught(promise, &sabotage).is_some(), "nobody notices that {sabotage:?} breaks `{promise}`");
}

#[test]
fn a_pod_released_before_it_is_recorded_breaks_counted_once() {
    is_caught(Promise::CountedOnce, Sabotage::ReleasesUnrecorded);
}

#[test]
fn forgotten_creations_break_never_too_many() {
    is_caught(Promise::NeverTooMany, Sabotage::ForgetsCreations(0));
}

#[test]
fn forgiven_indexes_break_counters_monotone() {
    is_caught(Promise::CountersMonotone, Sabotage::ForgivesIndexes);
}

#[test]
fn an_end_that_comes_at_once_breaks_terminal_is_final() {
    is_caught(Promise::TerminalIsFinal, Sabotage::EndsAtOnce);
}

#[test]
fn forgotten_orphans_break_no_leak() {
    is_caught(Promise::NoLeak, Sabotage::ForgetsOrphans);
}

/// Pods that lost their finalizer halfway through their removal are gone, and a name of theirs is somebody else's.
#[test]
fn writes_without_a_uid_break_own_only() {
    let pass = |fates: Vec<Fate>| Step::Pass(Weather { fates, ..Weather::default() });
    let steps = vec![
        pass(vec![]),
        pass(vec![]),
        Step::User(UserEvent::Parallelism(0)),
        Step::Deliver(u8::MAX, u8::MAX),
        pass(vec![Fate::Halved, Fate::Halved]),
        Step::User(UserEvent::ForceDeletePod(0)),
        Step::User(UserEvent::ForceDeletePod(0)),
        Step::User(UserEvent::Squat(0)),
        Step::Wait(11_000),
        pass(vec![]),
    ];
    let case = Case { plan: JobPlan::fixed(2, 2), steps };
    assert_eq!(run(&case).err(), None);
    let breach = run_with(&case, Sabotage::IgnoresUids).expect_err("somebody else's pod is deleted");
    assert_eq!(breach.promise, Promise::OwnOnly);
}

#[test]
fn a_status_written_again_and_again_breaks_settles() {
    is_caught(Promise::Settles, Sabotage::NeverRests);
}

#[test]
fn a_change_of_mind_breaks_same_in_same_out() {
    is_caught(Promise::SameInSameOut, Sabotage::Wavers(false));
}

#[test]
fn a_clock_that_is_late_breaks_deadline_kept() {
    is_caught(Promise::DeadlineKept, Sabotage::SlowClock);
}

#[test]
fn more_ready_pods_than_active_ones_break_status_accepted() {
    is_caught(Promise::StatusAccepted, Sabotage::WritesNonsense);
}
