//! Scenarios told again and again, each time with the controller dying after another write, or with another write
//! lost, unheard or halved. All must end as the undisturbed one.

use windlass_sim::JobPlan;
use windlass_sim::controller::Fate;
use windlass_sim::plan::{COUNTED_CODE, FAIL_INDEX_CODE, FAIL_JOB_CODE, IGNORED_CODE, Shape, Success};
use windlass_sim::steps::UserEvent;
use windlass_sim::story::{Disturbance, Lot, Story};

fn story(name: &'static str, plan: JobPlan, lots: &[(Option<u32>, usize, Lot)]) -> Story {
    Story { name, plan, lots: lots.to_vec(), edits: Vec::new() }
}

/// Tells a story undisturbed, and then with every disturbance at every write.
fn walk(story: &Story) {
    let (end, writes) =
        story.tell(Disturbance::None).unwrap_or_else(|breach| panic!("{}: {breach}", story.name));
    assert!(writes > 0, "{}: nothing happens", story.name);
    for at in 0..writes {
        let fates = [Fate::Lost, Fate::Unheard, Fate::Halved].map(|fate| Disturbance::Fate(at, fate));
        for disturbance in [Disturbance::DiesAfter(at)].into_iter().chain(fates) {
            let told = story.tell(disturbance);
            let (other, _) =
                told.unwrap_or_else(|breach| panic!("{} with {disturbance:?}: {breach}", story.name));
            assert_eq!(other, end, "{} with {disturbance:?} of {writes} writes", story.name);
        }
    }
}

#[test]
fn jobs_of_one_kind_of_pod() {
    walk(&story("one pod", JobPlan::default(), &[]));
    walk(&story(
        "a work queue",
        JobPlan { shape: Shape::WorkQueue, parallelism: 3, ..JobPlan::default() },
        &[],
    ));
    walk(&story("five pods, two at a time", JobPlan::fixed(5, 2), &[]));
    walk(&story("a retry", JobPlan::default(), &[(None, 0, Lot::Fails(1))]));
    walk(&story("nothing to do", JobPlan::fixed(0, 1), &[]));
    let never = JobPlan { backoff_limit: 0, ..JobPlan::fixed(2, 2) };
    walk(&story(
        "no retry while another pod runs",
        never,
        &[(None, 0, Lot::Fails(1)), (None, 1, Lot::Lingers(137))],
    ));
}

#[test]
fn retriable_and_non_retriable_failures() {
    let policy = |plan: JobPlan| JobPlan { has_policy: true, replaces_failed: true, ..plan };
    let lingers = (None, 1, Lot::Lingers(143));
    walk(&story(
        "a bug ends the Job",
        policy(JobPlan::fixed(2, 2)),
        &[(None, 0, Lot::Fails(FAIL_JOB_CODE)), lingers],
    ));
    let once = policy(JobPlan { backoff_limit: 0, ..JobPlan::default() });
    walk(&story("a disruption is ignored", once.clone(), &[(None, 0, Lot::Disrupted(143))]));
    walk(&story("an exit code is ignored", once.clone(), &[(None, 0, Lot::Fails(IGNORED_CODE))]));
    walk(&story("an exit code is counted", once, &[(None, 0, Lot::Fails(COUNTED_CODE))]));
}

#[test]
fn replacement_of_terminating_pods() {
    let deleted = [(None, 0, Lot::Deleted(137)), (None, 1, Lot::Deleted(137))];
    walk(&story("replaced at once", JobPlan::fixed(2, 2), &deleted));
    let failed = JobPlan { replaces_failed: true, ..JobPlan::fixed(2, 2) };
    walk(&story("replaced when stopped", failed.clone(), &deleted));
    walk(&story("ends well after all", failed, &[(None, 0, Lot::Deleted(0))]));
}

#[test]
fn limits_for_each_index() {
    let plan =
        |limit: i32| JobPlan { per_index: Some(limit), backoff_limit: i32::MAX, ..JobPlan::indexed(3) };
    walk(&story("an index is retried", plan(1), &[(Some(0), 0, Lot::Fails(1))]));
    let twice = [(Some(0), 0, Lot::Fails(1)), (Some(0), 1, Lot::Fails(1))];
    walk(&story("an index fails and the others go on", plan(1), &twice));
    // Where terminating pods count as failed at once, a controller that dies between the deletions and the announcement
    // takes the deleted pods for failures of their own, as upstream.
    let max = JobPlan { max_failed_indexes: Some(0), replaces_failed: true, ..plan(0) };
    walk(&story(
        "too many indexes fail",
        max,
        &[(Some(1), 0, Lot::Fails(1)), (Some(2), 0, Lot::Lingers(137))],
    ));
    let policy = JobPlan { has_policy: true, ..plan(2) };
    walk(&story("an index is beyond help", policy.clone(), &[(Some(0), 0, Lot::Fails(FAIL_INDEX_CODE))]));
    let disrupted = [(Some(1), 0, Lot::Disrupted(143)), (Some(1), 1, Lot::Fails(1))];
    walk(&story("an ignored and a counted failure", policy, &disrupted));
}

#[test]
fn success_policies() {
    let leader = JobPlan { success: Some(Success::Leader), ..JobPlan::indexed(3) };
    let others = [(Some(1), 0, Lot::Lingers(143)), (Some(2), 0, Lot::Lingers(0))];
    walk(&story("the leader suffices", leader, &others));
    let count = JobPlan { success: Some(Success::Count(2)), ..JobPlan::indexed(3) };
    walk(&story("two suffice", count, &[(Some(2), 0, Lot::Lingers(143))]));
}

#[test]
fn edits_of_users() {
    let edits = |name, plan, edits: &[(usize, UserEvent)], lots: &[_]| Story {
        edits: edits.to_vec(),
        ..story(name, plan, lots)
    };
    let lingers: Vec<_> = (0..2).map(|at| (None, at, Lot::Lingers(143))).collect();
    let pause = [(1, UserEvent::Suspend(true)), (4, UserEvent::Suspend(false))];
    walk(&edits("suspended and resumed", JobPlan::fixed(2, 2), &pause, &lingers));
    let shrink = [(1, UserEvent::Resize(1))];
    let rest = [(Some(1), 0, Lot::Lingers(143)), (Some(2), 0, Lot::Lingers(143))];
    walk(&edits("scaled down", JobPlan::indexed(3), &shrink, &rest));
    walk(&edits("scaled up", JobPlan::indexed(1), &[(0, UserEvent::Resize(3))], &[]));
    let stays = [(None, 0, Lot::Lingers(143))];
    walk(&edits("deleted, pods first", JobPlan::default(), &[(1, UserEvent::DeleteJob(true))], &stays));
    walk(&edits("deleted, Job first", JobPlan::default(), &[(1, UserEvent::DeleteJob(false))], &stays));
    let deadline = JobPlan { deadline_s: Some(30), ..JobPlan::fixed(2, 2) };
    walk(&story("past its deadline", deadline, &lingers));
}
