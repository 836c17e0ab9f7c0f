//! Everything that places and ends pods, on the real Kubernetes and on ours: kube-scheduler and the controllers of
//! kube-controller-manager beside our scheduler and controllers. The harness plays people, nodes and kubelets.
//!
//! Each scenario is played in a namespace of its own on both sides, and what it writes down (whole objects and events,
//! without what must differ) is compared. What differs must be in `known`, with a reason.

mod budgets;
mod cron_jobs;
mod evictions;
mod known;
mod lost_nodes;
mod namespaces;
mod ours;
mod owners;
mod place;
mod pod_gc;
mod policies;
mod preemption;
mod scheduling;
mod taints;
mod theirs;
mod ttl;

use anyhow::Result;
use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use windlass_conformance::compare::{Difference, Known, differences, judge};

use place::Place;

/// Its name, and what happens in it.
type Scenario = (&'static str, for<'a> fn(&'a mut Place) -> BoxFuture<'a, Result<()>>);

macro_rules! scenarios {
    ($($module:ident :: $name:ident,)*) => {
        &[$((concat!(stringify!($module), "/", stringify!($name)), |place| Box::pin($module::$name(place)))),*]
    };
}

/// Those that need a scheduler. It counts all nodes that there are: one after the other.
const SCHEDULED: &[Scenario] = scenarios![
    scheduling::fits,
    scheduling::too_little_cpu,
    scheduling::too_little_of_everything,
    scheduling::too_many_pods,
    scheduling::an_unknown_resource,
    scheduling::init_containers_and_overhead,
    scheduling::no_nodes,
    scheduling::a_selector_that_matches_later,
    scheduling::affinity_to_nodes,
    scheduling::affinity_that_no_node_has,
    scheduling::preferred_nodes,
    scheduling::a_taint,
    scheduling::a_tolerated_taint,
    scheduling::a_taint_to_be_avoided,
    scheduling::a_cordoned_node,
    scheduling::gates,
    scheduling::affinity_to_pods,
    scheduling::affinity_to_itself,
    scheduling::anti_affinity,
    scheduling::anti_affinity_of_those_that_are_there,
    scheduling::spread_over_zones,
    scheduling::spread_without_the_label,
    scheduling::ports_of_the_host,
    scheduling::many_reasons,
    scheduling::room_when_a_pod_ends,
    scheduling::no_room_while_a_pod_ends,
    scheduling::spread_by_room,
    scheduling::another_scheduler,
    scheduling::placed_by_hand,
    scheduling::deleted_while_it_waits,
    preemption::of_a_lesser_pod,
    preemption::never,
    preemption::of_an_equal_pod,
    preemption::that_would_not_help,
    preemption::some_help_some_do_not,
    preemption::respects_a_budget,
    preemption::breaks_a_budget_if_it_must,
    preemption::of_the_least_important,
    preemption::of_the_fewest,
    preemption::of_the_youngest,
    preemption::of_no_more_than_needed,
    preemption::only_once,
    preemption::without_grace,
];

/// Those that do not disturb each other.
const TOGETHER: &[Scenario] = scenarios![
    taints::evicts,
    taints::tolerated_for_ever,
    taints::tolerated_for_a_while,
    taints::taken_away_in_time,
    taints::that_only_keeps_pods_away,
    taints::two_of_which_one_is_tolerated,
    taints::two_tolerated_for_different_times,
    taints::tolerated_for_no_time,
    taints::found_on_arrival,
    taints::evicts_a_pod_that_has_not_started,
    taints::evicts_a_pod_that_has_ended,
    taints::do_not_ask_budgets,
    lost_nodes::silent_node,
    lost_nodes::silent_with_a_pod_that_may_not_stay,
    lost_nodes::never_heard_of,
    lost_nodes::not_ready,
    lost_nodes::back_again,
    lost_nodes::under_pressure,
    lost_nodes::cordoned,
    lost_nodes::default_tolerations,
    pod_gc::an_orphan,
    pod_gc::an_orphan_that_has_not_started,
    pod_gc::an_orphan_that_has_ended,
    pod_gc::an_orphan_that_was_being_evicted,
    pod_gc::a_node_that_comes_back,
    pod_gc::out_of_service,
    pod_gc::out_of_service_but_not_deleted,
    pod_gc::deleted_before_it_was_placed,
    budgets::at_least_one,
    budgets::at_least_half,
    budgets::at_most_one_of_a_job,
    budgets::without_pods,
    budgets::of_everything,
    budgets::pods_that_are_not_ready,
    budgets::pods_that_have_ended,
    budgets::pods_that_are_deleted,
    budgets::that_change,
    budgets::two_for_one_pod,
    budgets::a_disruption_that_never_came,
    budgets::a_stale_condition,
    budgets::conditions_that_are_not_stale,
    evictions::within_the_budget,
    evictions::beyond_the_budget,
    evictions::of_a_pod_that_is_not_ready,
    evictions::of_a_pod_that_waits,
    evictions::of_a_pod_that_has_ended,
    evictions::with_two_budgets,
    evictions::with_a_budget_that_can_not_be_computed,
    evictions::that_are_not_meant,
    owners::in_the_background,
    owners::in_the_foreground,
    owners::in_the_foreground_without_blocking,
    owners::left_behind,
    owners::left_behind_by_default,
    owners::that_never_were,
    owners::two_of_them,
    owners::elsewhere,
    owners::of_owners,
    ttl::of_a_complete_job,
    ttl::of_a_failed_job,
    ttl::given_later,
    ttl::not_before_the_end,
    cron_jobs::due,
    cron_jobs::in_another_time_zone,
    cron_jobs::suspended,
    cron_jobs::forbidden_while_one_runs,
    cron_jobs::replacing_the_one_that_runs,
    cron_jobs::too_late,
    cron_jobs::missed_too_often,
    cron_jobs::finished_one,
    cron_jobs::missing,
    cron_jobs::history,
    namespaces::emptied,
    namespaces::held_up,
    namespaces::closed,
    policies::ignore_an_eviction_by_taint,
    policies::count_an_eviction_by_taint,
    policies::fail_on_an_eviction_by_taint,
    policies::ignore_a_lost_node,
    policies::ignore_an_eviction,
    policies::a_pod_deleted_before_it_was_placed,
];

/// Those that change what everybody sees: each has the cluster for itself.
const ALONE: &[Scenario] = scenarios![pod_gc::too_many_that_have_ended,];

/// Too few scenarios would prove little.
const SCENARIOS_MIN: usize = 60;
/// Scenarios under way at a time.
const AT_ONCE: usize = 40;

fn wanted(scenarios: &'static [Scenario]) -> impl Iterator<Item = &'static Scenario> {
    let only = std::env::var("ONLY").unwrap_or_default();
    scenarios.iter().filter(move |scenario| scenario.0.starts_with(&only))
}

/// What a side wrote down, and how it ended.
type Ending = (Vec<(String, Value)>, Result<()>);

async fn play(scenario: &Scenario, place: Result<Place>) -> Ending {
    let mut place = match place {
        Ok(place) => place,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let ended = (scenario.1)(&mut place).await;
    let left = place.leave().await;
    (place.transcript(), ended.and(left))
}

fn namespace(scenario: &Scenario) -> String {
    scenario.0.replace(['/', '_'], "-")
}

/// Plays it on both sides and compares what they wrote down.
async fn compare(scenario: &Scenario, theirs: &theirs::House) -> Vec<Difference> {
    let name = namespace(scenario);
    let their_play = async { play(scenario, theirs.place(&name).await).await };
    let our_play = async {
        let house = ours::House::start(scenario.0);
        let ending = play(scenario, house.place(&name).await).await;
        house.stop().await;
        ending
    };
    let start = std::time::Instant::now();
    let ((said, ours), (heard, theirs)) = tokio::join!(our_play, their_play);
    println!("{} took {:.1?}", scenario.0, start.elapsed());
    let mut found = Vec::new();
    if let Err(error) = theirs {
        // Nothing can explain that away: the scenario is not what really happens.
        let (step, theirs) =
            (format!("the reference does not play {}", scenario.0), Some(json!(format!("{error:#}"))));
        found.push(Difference { step, at: "/reference".to_owned(), ours: None, theirs });
    }
    for ((step, said), (_, heard)) in said.iter().zip(&heard) {
        if std::env::var_os("SHOW").is_some() {
            println!("{}/{step}: {heard}", scenario.0);
        }
        found.extend(differences(&format!("{}/{step}", scenario.0), said, heard));
    }
    if let Err(error) = ours {
        let (step, ours) = (scenario.0.to_owned(), Some(json!(format!("{error:#}"))));
        found.push(Difference { step, at: "/failed".to_owned(), ours, theirs: None });
    }
    found
}

fn check(count: usize, found: &[Difference], known: &[Known]) {
    // An entry must occur, if its scenario is played.
    let only = std::env::var("ONLY").unwrap_or_default();
    let known: Vec<Known> =
        known.iter().filter(|known| known.step.starts_with(&only) || known.step == "*").copied().collect();
    let wrong = judge(found, &known);
    println!("{count} scenarios, {} differences", found.len());
    assert!(wrong.is_empty(), "{} places differ in {count} scenarios\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_and_preempted_as_kube_scheduler_does() -> Result<()> {
    let house = theirs::House::with_scheduler().await?;
    let mut found = Vec::new();
    let mut count = 0;
    for scenario in wanted(SCHEDULED) {
        found.extend(compare(scenario, &house).await);
        count += 1;
    }
    check(count, &found, known::SCHEDULED);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_ended_and_collected_as_kube_controller_manager_does() -> Result<()> {
    let mut house = theirs::House::with_controllers().await?;
    let mut found = Vec::new();
    let mut count = 0;
    let house_of_all = &house;
    let mut plays = futures::stream::iter(wanted(TOGETHER).map(|scenario| compare(scenario, house_of_all)))
        .buffer_unordered(AT_ONCE);
    while let Some(differences) = plays.next().await {
        found.extend(differences);
        count += 1;
    }
    drop(plays);
    for scenario in wanted(ALONE) {
        house.restart_alone().await?;
        found.extend(compare(scenario, &house).await);
        count += 1;
    }
    check(count, &found, known::CONTROLLED);
    Ok(())
}

#[test]
fn there_are_enough_scenarios_and_each_has_its_own_name() {
    let names: Vec<&str> = [SCHEDULED, TOGETHER, ALONE].concat().iter().map(|scenario| scenario.0).collect();
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len());
    assert!(names.len() >= SCENARIOS_MIN, "{} scenarios", names.len());
    // A name is that of a namespace, and of nodes in it.
    assert!(names.iter().all(|name| name.len() < 58), "{names:?}");
}
