//! Random cases: a Job, and at least fifty things that happen to it. All from one number.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::controller::{Fate, Weather};
use crate::plan::{COUNTED_CODE, FAIL_INDEX_CODE, FAIL_JOB_CODE, IGNORED_CODE, JobPlan, Shape, Success};
use crate::promises::Breach;
use crate::run::{Case, run};
use crate::steps::{NodeEvent, OrphanState, Step, UserEvent};

/// Fewest and most steps of a case.
const STEPS: std::ops::Range<usize> = 60..110;

/// Runs the case of a seed again, and says what it was.
pub fn replay(seed: u64) -> (Case, Result<(), Breach>) {
    let case = case(seed);
    let result = run(&case).map(|_| ());
    (case, result)
}

/// Runs the cases of some seeds. The first that breaks a promise is made small, and told.
pub fn search(seeds: impl IntoIterator<Item = u64>) -> Result<(), Box<Finding>> {
    for seed in seeds {
        let (_, result) = replay(seed);
        if let Err(breach) = result {
            return Err(Box::new(shrunk(seed, breach)));
        }
    }
    Ok(())
}

/// A broken promise, with all that is needed to see it again.
#[derive(Debug)]
pub struct Finding {
    /// The seed: set `WINDLASS_SIM_SEED` to it.
    pub seed: u64,
    /// What was broken.
    pub breach: Breach,
    /// A small case that breaks the same promise.
    pub smallest: Case,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, breach, smallest } = self;
        writeln!(f, "{breach}\nseed: {seed} (WINDLASS_SIM_SEED={seed} runs it again)\nsmallest case:")?;
        write!(f, "{smallest:?}")
    }
}

/// Leaves out steps, many at a time and then one by one, as long as the same promise is broken.
fn shrunk(seed: u64, breach: Breach) -> Finding {
    let mut smallest = case(seed);
    let breaks = |case: &Case| run(case).is_err_and(|other| other.promise == breach.promise);
    let mut size = smallest.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < smallest.steps.len() {
            let mut shorter = smallest.clone();
            shorter.steps.drain(at..(at + size).min(smallest.steps.len()));
            if breaks(&shorter) {
                smallest = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    let breach = run(&smallest).err().unwrap_or(breach);
    Finding { seed, breach, smallest }
}

/// The case of a seed.
pub fn case(seed: u64) -> Case {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    cases().new_tree(&mut runner).expect("no case is refused").current()
}

/// Any case.
fn cases() -> impl Strategy<Value = Case> {
    (plans(), vec(steps(), STEPS)).prop_map(|(plan, steps)| Case { plan, steps })
}

fn plans() -> impl Strategy<Value = JobPlan> {
    let shape = prop_oneof![
        1 => Just(Shape::WorkQueue),
        3 => (0..=5).prop_map(Shape::Fixed),
        4 => (0..=5).prop_map(Shape::Indexed),
    ];
    let counts = (shape, prop_oneof![3 => Just(true), 2 => Just(false)], 0..=4, prop_oneof![0..=2, Just(6)]);
    let limits = (weighted(0.5, 0..=2), weighted(0.3, 0..=2));
    let policies = (
        weighted(0.4, Just(())),
        weighted(0.25, prop_oneof![Just(Success::Leader), (1..=2).prop_map(Success::Count)]),
        any::<bool>(),
    );
    let times = (weighted(0.2, 0_i64..=60), weighted(0.1, Just(())), weighted(0.2, Just(())));
    (counts, limits, policies, times).prop_map(|(counts, limits, policies, times)| {
        let (shape, is_even, parallelism, backoff_limit) = counts;
        let parallelism = match shape {
            Shape::Indexed(completions) if is_even => completions,
            Shape::Indexed(_) | Shape::Fixed(_) | Shape::WorkQueue => parallelism,
        };
        let per_index = limits.0;
        JobPlan {
            shape,
            parallelism,
            // Most Jobs with a limit per index have no other.
            backoff_limit: if per_index.is_some() && backoff_limit > 0 { i32::MAX } else { backoff_limit },
            per_index,
            max_failed_indexes: limits.1,
            has_policy: policies.0.is_some(),
            success: policies.1,
            replaces_failed: policies.2,
            deadline_s: times.0,
            is_suspended: times.1.is_some(),
            restarts_in_place: times.2.is_some(),
        }
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0_u8..4, 0_u8..6).prop_map(|(jobs, pods)| Step::Deliver(jobs, pods)),
        4 => Just(Step::Deliver(u8::MAX, u8::MAX)),
        2 => (1_u8..12).prop_map(Step::Redeliver),
        1 => Just(Step::Relist),
        16 => weather().prop_map(Step::Pass),
        8 => Just(Step::Send),
        12 => (any::<u8>(), fates()).prop_map(|(pick, fate)| Step::Arrive(pick, fate)),
        12 => any::<u8>().prop_map(Step::Hear),
        1 => Just(Step::Die),
        24 => (any::<u8>(), node_events()).prop_map(|(pick, event)| Step::Node(pick, event)),
        8 => user_events().prop_map(Step::User),
        3 => prop_oneof![Just(1), Just(100), Just(1000), Just(11_000)].prop_map(Step::Wait),
        6 => Just(Step::WaitForWake),
        2 => Just(Step::CollectGarbage),
    ]
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Fine),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Unheard),
        1 => Just(Fate::Halved),
    ]
}

fn weather() -> impl Strategy<Value = Weather> {
    (any::<u8>(), vec(fates(), 0..4), weighted(0.15, 0_u8..5))
        .prop_map(|(order, fates, dies_after)| Weather { order, fates, dies_after })
}

fn node_events() -> impl Strategy<Value = NodeEvent> {
    let code = || {
        prop_oneof![
            2 => Just(1),
            1 => Just(IGNORED_CODE),
            1 => Just(COUNTED_CODE),
            1 => Just(FAIL_INDEX_CODE),
            1 => Just(FAIL_JOB_CODE),
        ]
    };
    prop_oneof![
        8 => Just(NodeEvent::Progress),
        4 => Just(NodeEvent::Succeed),
        4 => code().prop_map(NodeEvent::Fail),
        1 => Just(NodeEvent::Disrupt),
        1 => Just(NodeEvent::Restart),
        3 => prop_oneof![3 => code(), 1 => Just(0)].prop_map(NodeEvent::End),
        1 => Just(NodeEvent::Flip),
    ]
}

fn user_events() -> impl Strategy<Value = UserEvent> {
    let orphan =
        prop_oneof![Just(OrphanState::Running), Just(OrphanState::Succeeded), Just(OrphanState::Failed)];
    prop_oneof![
        4 => (0..=5).prop_map(UserEvent::Parallelism),
        4 => (0..=5).prop_map(UserEvent::Resize),
        4 => any::<bool>().prop_map(UserEvent::Suspend),
        2 => any::<bool>().prop_map(UserEvent::ReplaceFailed),
        1 => (0_i64..=60).prop_map(UserEvent::Deadline),
        1 => any::<bool>().prop_map(UserEvent::DeleteJob),
        4 => any::<u8>().prop_map(UserEvent::DeletePod),
        2 => any::<u8>().prop_map(UserEvent::ForceDeletePod),
        2 => any::<u8>().prop_map(UserEvent::Relabel),
        2 => (0_u8..10, orphan).prop_map(|(index, state)| UserEvent::MakeOrphan(index, state)),
        2 => any::<u8>().prop_map(UserEvent::Squat),
        2 => any::<bool>().prop_map(UserEvent::AddCondition),
    ]
}
