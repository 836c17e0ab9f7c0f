//! A fixed scenario, told with a fault at every write: however it is disturbed, it must end the same.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;

use crate::controller::{Fate, Weather};
use crate::plan::JobPlan;
use crate::promises::{Breach, Promise, breach, finished};
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::steps::{NodeEvent, UserEvent, collect_garbage, node_event, user_event};
use crate::world::{self, Object};

/// Rounds before a story must be over.
const ROUNDS_MAX: usize = 60;

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lot {
    /// It ends well.
    Succeeds,
    /// It ends with this code.
    Fails(i32),
    /// It is disrupted, and ends with this code in the round after.
    Disrupted(i32),
    /// A user deletes it, and it ends with this code in the round after.
    Deleted(i32),
    /// It runs until it is asked to go, and then ends with this code.
    Lingers(i32),
}

/// A scenario: a Job, what becomes of its pods, and what its user does.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name.
    pub name: &'static str,
    /// The Job.
    pub plan: JobPlan,
    /// What becomes of the nth pod of an index (of the Job, with `None`). Every other pod ends well.
    pub lots: Vec<(Option<u32>, usize, Lot)>,
    /// What a user does, before which round.
    pub edits: Vec<(usize, UserEvent)>,
}

/// Where a story is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nowhere.
    None,
    /// The controller dies after this write.
    DiesAfter(usize),
    /// This write has this fate.
    Fate(usize, Fate),
}

/// How a story ended, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Condition types, reasons and messages.
    pub conditions: Vec<(String, String, String, String)>,
    /// `succeeded`, `failed`, `active`, `ready`, `terminating`.
    pub counters: [i32; 5],
    /// `completedIndexes` and `failedIndexes`.
    pub indexes: (Option<String>, Option<String>),
}

impl Story {
    /// Tells the story. Says how it ended and how many writes the controller tried.
    pub fn tell(&self, disturbance: Disturbance) -> Result<(Option<Ending>, usize), Breach> {
        let mut run = Run::new(&self.plan, Sabotage::None);
        for round in 0..ROUNDS_MAX {
            self.settle(&mut run, disturbance)?;
            let is_late = self.edits.iter().all(|(at, _)| *at < round);
            if is_late && run.world.job().is_none_or(|job| !finished(job).is_empty()) {
                run.settle()?;
                return Ok((run.world.job().map(ending), run.controller.writes_total));
            }
            self.edits
                .iter()
                .filter(|(at, _)| *at == round)
                .for_each(|(_, edit)| user_event(&mut run.world, *edit));
            self.move_pods(&mut run);
            collect_garbage(&mut run.world);
        }
        breach(Promise::Settles, format!("the story does not end: {:?}", run.world.job().map(ending)))
    }

    /// Passes with the disturbance when its write comes, until the controller rests.
    fn settle(&self, run: &mut Run, disturbance: Disturbance) -> Result<(), Breach> {
        for _ in 0..ROUNDS_MAX {
            run.controller.catch_up(&run.world);
            let before = run.controller.writes_total;
            let weather = weather(disturbance, before);
            if run.pass(&weather)?.writes == 0 {
                break;
            }
        }
        run.come_to_rest()
    }

    fn move_pods(&self, run: &mut Run) {
        let nth = numbered(run);
        let pods: Vec<(String, String)> = run
            .world
            .pods()
            .filter(|pod| world::controller(pod).is_some() && !world::is_terminal(pod))
            .map(|pod| (world::name(pod).to_owned(), world::uid(pod).to_owned()))
            .collect();
        for (name, uid) in pods {
            let Some((index, number)) = nth.get(&uid).copied() else { continue };
            let lot = self.lots.iter().find(|(at, n, _)| (*at, *n) == (index, number));
            let lot = lot.map_or(Lot::Succeeds, |(_, _, lot)| *lot);
            let is_deleted = run.world.pod(&name).is_some_and(world::is_deleted);
            let event = match (lot, is_deleted) {
                (Lot::Succeeds, false) => NodeEvent::Succeed,
                (Lot::Fails(code), false) => NodeEvent::Fail(code),
                (Lot::Disrupted(_), false) => NodeEvent::Disrupt,
                (Lot::Lingers(_), false) => NodeEvent::Progress,
                (Lot::Deleted(_), false) => {
                    let _ = run.world.delete_pod(world::Actor::World, &name, None);
                    continue;
                }
                (Lot::Succeeds | Lot::Fails(_), true) => NodeEvent::End(137),
                (Lot::Disrupted(code) | Lot::Deleted(code) | Lot::Lingers(code), true) => {
                    NodeEvent::End(code)
                }
            };
            // A node first, then a start.
            if !is_deleted {
                node_event(&mut run.world, &name, NodeEvent::Progress);
                node_event(&mut run.world, &name, NodeEvent::Progress);
            }
            node_event(&mut run.world, &name, event);
        }
    }
}

/// Which pod of its index (of the Job, if it has none) each pod is.
fn numbered(run: &Run) -> BTreeMap<String, (Option<u32>, usize)> {
    let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    for change in run.world.log() {
        if let Object::Pod(uid, Some(pod)) = &change.object
            && !numbers.contains_key(uid)
        {
            let count = counts.entry(world::index(pod)).or_default();
            numbers.insert(uid.clone(), (world::index(pod), *count));
            *count += 1;
        }
    }
    numbers
}

fn weather(disturbance: Disturbance, before: usize) -> Weather {
    match disturbance {
        Disturbance::DiesAfter(at) if at >= before && at - before < 200 => {
            // Only the pass that contains the write is cut short: a later one has passed it already.
            Weather { dies_after: u8::try_from(at - before + 1).ok(), ..Weather::default() }
        }
        Disturbance::Fate(at, fate) if at >= before && at - before < 200 => {
            let mut fates = vec![Fate::Fine; at - before];
            fates.push(fate);
            Weather { fates, ..Weather::default() }
        }
        Disturbance::None | Disturbance::DiesAfter(_) | Disturbance::Fate(..) => Weather::default(),
    }
}

fn ending(job: &Job) -> Ending {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .map(|c| (c.type_, c.status, c.reason.unwrap_or_default(), c.message.unwrap_or_default()));
    let counters = [status.succeeded, status.failed, status.active, status.ready, status.terminating];
    Ending {
        conditions: conditions.collect(),
        counters: counters.map(|counter| counter.unwrap_or(0)),
        indexes: (status.completed_indexes, status.failed_indexes),
    }
}
