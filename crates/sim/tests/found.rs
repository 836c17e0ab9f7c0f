//! Cases that once broke a promise, as small as they could be made. Each must stay whole.

use windlass_sim::controller::{Fate, Weather};
use windlass_sim::plan::{FAIL_INDEX_CODE, Shape};
use windlass_sim::steps::{NodeEvent, OrphanState, Step, UserEvent};
use windlass_sim::{Case, JobPlan, run};

const ALL: Step = Step::Deliver(u8::MAX, u8::MAX);

fn pass(fates: &[Fate]) -> Step {
    Step::Pass(Weather { fates: fates.to_vec(), ..Weather::default() })
}

fn holds(plan: JobPlan, steps: Vec<Step>) {
    let case = Case { plan, steps };
    if let Err(breach) = run(&case) {
        panic!("{breach}\n{case:?}");
    }
}

/// It went into the counters while its finalizer was there: relabelled once more it would have counted twice.
#[test]
fn a_recorded_pod_that_goes_astray_is_not_counted_before_it_is_let_go() {
    holds(
        JobPlan { shape: Shape::WorkQueue, parallelism: 3, replaces_failed: true, ..JobPlan::default() },
        vec![
            pass(&[]),
            Step::Node(0, NodeEvent::Progress),
            Step::Node(0, NodeEvent::Succeed),
            ALL,
            pass(&[]),
            Step::User(UserEvent::Relabel(0)),
            Step::Deliver(1, 1),
            pass(&[Fate::Lost]),
            pass(&[]),
        ],
    );
}

/// The Job was Failed while the orphan held a finalizer, which nobody had counted.
#[test]
fn a_job_does_not_end_before_it_knows_whether_it_adopted_an_orphan() {
    holds(
        JobPlan { shape: Shape::WorkQueue, parallelism: 2, backoff_limit: 0, ..JobPlan::default() },
        vec![
            pass(&[]),
            Step::Node(0, NodeEvent::Progress),
            Step::User(UserEvent::MakeOrphan(7, OrphanState::Failed)),
            Step::Node(0, NodeEvent::Fail(1)),
            ALL,
            pass(&[Fate::Unheard]),
            pass(&[]),
            pass(&[]),
            pass(&[]),
            pass(&[]),
        ],
    );
}

/// Both index sets had the index, and the API refused the status for ever.
#[test]
fn an_index_with_a_failed_and_a_succeeded_pod_has_one_end() {
    holds(
        JobPlan { per_index: Some(1), backoff_limit: i32::MAX, has_policy: true, ..JobPlan::indexed(5) },
        vec![
            pass(&[]),
            Step::User(UserEvent::MakeOrphan(0, OrphanState::Succeeded)),
            Step::Node(0, NodeEvent::Progress),
            Step::Node(0, NodeEvent::Fail(FAIL_INDEX_CODE)),
            ALL,
            pass(&[]),
            pass(&[]),
            pass(&[]),
        ],
    );
}

/// Its finalizer kept the Job from going for ever.
#[test]
fn a_stray_does_not_keep_a_deleted_job() {
    holds(
        JobPlan { restarts_in_place: true, ..JobPlan::indexed(3) },
        vec![
            Step::User(UserEvent::DeleteJob(true)),
            pass(&[]),
            Step::CollectGarbage,
            ALL,
            Step::User(UserEvent::Relabel(0)),
            pass(&[]),
        ],
    );
}

/// It was created again and again, and each time the name was taken by the stray.
#[test]
fn a_stray_that_can_not_be_let_go_does_not_block_its_index() {
    holds(
        JobPlan { parallelism: 1, ..JobPlan::indexed(3) },
        vec![pass(&[]), Step::User(UserEvent::Relabel(0)), ALL, pass(&[Fate::Lost])],
    );
}

/// It was adopted, nobody heard the answer, and another pod was created beside it.
#[test]
fn no_pod_is_created_before_it_is_known_whether_an_orphan_was_adopted() {
    holds(
        JobPlan::fixed(4, 1),
        vec![
            Step::User(UserEvent::MakeOrphan(6, OrphanState::Running)),
            ALL,
            pass(&[Fate::Unheard]),
            pass(&[]),
        ],
    );
}
