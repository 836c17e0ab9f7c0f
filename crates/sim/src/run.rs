//! One case from its first step to the end of its Job: faults, then none, then the end.
//!
//! ```text
//!   steps (faults, lag, deaths) ──> settle ──> everything that lives ends well ──> settle ──> … ──> the Job is over
//!            safety promises               settles, deadline-kept                              no-leak, exact counts
//! ```

use std::fmt;

use windlass_job::{Action, Wake};

use crate::controller::{Controller, LONG, Pass, Weather};
use crate::plan::{JOB_UID, JobPlan};
use crate::promises::{Breach, Checker, Promise, breach, finished};
use crate::sabotage::Sabotage;
use crate::steps::{NodeEvent, Step, UserEvent, collect_garbage, node_event, user_event};
use crate::world::{self, World};

/// Passes that a change may cost, but for many pods and for slow start.
const PASSES_MAX: usize = 6;
/// Stages of creations that slow start may need: 1, 2, 4, … pods, and as many names that are taken.
const DOUBLINGS_MAX: usize = 10;
/// Passes after a fixpoint in which nothing may be written.
const PASSES_AT_REST: usize = 100;
/// Times that a controller may ask to be woken before it comes to rest: each failed kind of write, the status, a
/// back-off, the deadline.
const WAKES_MAX: usize = 24;
/// Rounds in which everything that lives ends well, before the Job must be over.
const ROUNDS_MAX: usize = 60;

/// A Job, and what happens to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Case {
    /// The Job.
    pub plan: JobPlan,
    /// What happens.
    pub steps: Vec<Step>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.plan)?;
        self.steps.iter().enumerate().try_for_each(|(at, step)| writeln!(f, "{at:4}  {step:?}"))
    }
}

/// Runs a case with the real controller. `Err` is the first broken promise.
pub fn run(case: &Case) -> Result<World, Breach> {
    run_with(case, Sabotage::None)
}

/// Runs a case with a controller that has a bug.
pub fn run_with(case: &Case, sabotage: Sabotage) -> Result<World, Breach> {
    let mut run = Run::new(&case.plan, sabotage);
    for (at, step) in case.steps.iter().enumerate() {
        run.step(step).map_err(|breach| Breach { at_step: at + 1, ..breach })?;
    }
    let is_last = |breach| Breach { at_step: case.steps.len(), ..breach };
    run.settle().map_err(is_last)?;
    run.finish().map_err(is_last)?;
    Ok(run.world)
}

/// A world, its controller and its checker.
#[derive(Debug)]
pub struct Run {
    /// The truth.
    pub world: World,
    /// The controller.
    pub controller: Controller,
    checker: Checker,
    /// How long the log was when sums were last compared.
    compared: usize,
}

impl Run {
    /// A new Job and a controller that knows it.
    pub fn new(plan: &JobPlan, sabotage: Sabotage) -> Self {
        let world = World::new(plan.job());
        let controller = Controller::new(&world, sabotage);
        Self { world, controller, checker: Checker::default(), compared: 0 }
    }

    /// Lets one thing happen and checks what became of it.
    pub fn step(&mut self, step: &Step) -> Result<(), Breach> {
        match step {
            Step::Pass(weather) => _ = self.pass(weather)?,
            Step::Send => {
                let pass = self.controller.send(&self.world);
                self.check(pass)?;
            }
            Step::Arrive(pick, fate) => {
                let pass = self.controller.let_arrive(&mut self.world, *pick, *fate);
                self.check(pass)?;
            }
            other => other.apply(&mut self.world, &mut self.controller),
        }
        self.checker.look(self.world.log())
    }

    /// One pass of the controller.
    pub fn pass(&mut self, weather: &Weather) -> Result<Pass, Breach> {
        let pass = self.controller.pass(&mut self.world, weather);
        self.check(pass)
    }

    fn check(&mut self, pass: Pass) -> Result<Pass, Breach> {
        self.checker.look(self.world.log())?;
        if let Some(why) = &pass.rejected {
            return breach(Promise::StatusAccepted, why.clone());
        }
        if pass.is_fickle {
            return breach(Promise::SameInSameOut, "the same view gives two decisions");
        }
        self.sums_are_right()?;
        Ok(pass)
    }

    /// A view that grew event by event counts what one made from scratch counts.
    fn sums_are_right(&mut self) -> Result<(), Breach> {
        let now = self.world.log().len();
        if self.compared == now || !self.controller.is_caught_up(&self.world) {
            return Ok(());
        }
        self.compared = now;
        let (Some(view), Some(fresh)) = (self.controller.view(), Controller::fresh_view(&self.world)) else {
            return Ok(());
        };
        let (grown, fresh) = (view.pods(), fresh.pods());
        if grown.totals() != fresh.totals()
            || grown.busy() != fresh.busy()
            || grown.ending() != fresh.ending()
        {
            let (grown, fresh) = (grown.totals(), fresh.totals());
            return breach(
                Promise::SameInSameOut,
                format!("a grown view sees {grown:?}, a new one {fresh:?}"),
            );
        }
        Ok(())
    }

    /// No more faults: the controller comes to rest, soon, and stays there.
    pub fn settle(&mut self) -> Result<(), Breach> {
        self.come_to_rest()?;
        self.rests()
    }

    /// The controller comes to rest, soon.
    pub fn come_to_rest(&mut self) -> Result<(), Breach> {
        let mut wakes = 0;
        loop {
            self.work()?;
            match self.controller.wake(&self.world) {
                Wake::At(time) if time > self.world.now => self.world.now = time,
                Wake::At(_) | Wake::Again | Wake::Settled => break,
            }
            wakes += 1;
            if wakes > WAKES_MAX {
                return breach(Promise::Settles, format!("asked to be woken {wakes} times"));
            }
        }
        self.new_controller_agrees()?;
        self.deadline_is_kept()
    }

    /// Passes until there is nothing to do at this time.
    pub fn work(&mut self) -> Result<(), Breach> {
        let pods = self.world.pods().count();
        let bound = PASSES_MAX + pods.div_ceil(500);
        let (mut passes, mut doublings) = (0, 0);
        loop {
            self.controller.catch_up(&self.world);
            let pass = self.pass(&Weather::default())?;
            if pass.writes == 0 {
                return Ok(());
            }
            // Slow start is not restlessness: a stage of creations may be followed by another.
            let stage = pass.decision.map(|decision| decision.stage).unwrap_or_default();
            let creates = stage.iter().any(|action| matches!(action, Action::Create(_)));
            doublings += usize::from(creates);
            passes += usize::from(!creates);
            if passes > bound || doublings > DOUBLINGS_MAX {
                let last =
                    stage.last().map_or_else(|| "freeing orphans".to_owned(), |action| format!("{action:?}"));
                return breach(
                    Promise::Settles,
                    format!("{passes} passes, and the last still writes: {last}"),
                );
            }
        }
    }

    fn new_controller_agrees(&mut self) -> Result<(), Breach> {
        // A new controller does not know which terminating pods the old one has sent away because the Job was failing.
        let is_comparable = !self.world.pods().any(|pod| world::is_deleted(pod) && world::is_held(pod));
        let fresh = Controller::fresh_view(&self.world).filter(|_| is_comparable);
        if let Some(decision) = fresh.map(|view| self.controller.decide(&view, self.world.now))
            && !decision.stage.is_empty()
        {
            let how = format!("at rest, but a new controller would {:?}", decision.stage);
            return breach(Promise::SameInSameOut, how);
        }
        Ok(())
    }

    fn rests(&mut self) -> Result<(), Breach> {
        for _ in 0..PASSES_AT_REST {
            self.world.advance(LONG);
            self.controller.catch_up(&self.world);
            let pass = self.pass(&Weather::default())?;
            if pass.writes > 0 {
                let stage = pass.decision.map(|decision| decision.stage);
                return breach(Promise::Settles, format!("at rest, and then {stage:?}"));
            }
        }
        Ok(())
    }

    fn deadline_is_kept(&self) -> Result<(), Breach> {
        let Some(job) = self.world.job() else { return Ok(()) };
        let (Some(spec), Some(status)) = (&job.spec, &job.status) else { return Ok(()) };
        let (Some(deadline), Some(start)) = (spec.active_deadline_seconds, &status.start_time) else {
            return Ok(());
        };
        let is_past = (self.world.now.as_second() - start.0.as_second()) > deadline;
        if spec.suspend == Some(true) || !is_past || !finished(job).is_empty() {
            return Ok(());
        }
        let lives = self.world.pods().filter(|pod| is_ours(pod)).find(|pod| is_live(pod));
        match lives {
            Some(pod) => {
                breach(Promise::DeadlineKept, format!("{} lives past the deadline", world::name(pod)))
            }
            None => Ok(()),
        }
    }

    /// Everything that lives ends well, again and again, until the Job is over.
    pub fn finish(&mut self) -> Result<(), Breach> {
        for _ in 0..ROUNDS_MAX {
            if self.is_over() {
                return self.nothing_is_left();
            }
            user_event(&mut self.world, UserEvent::Suspend(false));
            if self.world.job().and_then(|job| job.spec.as_ref()?.parallelism) == Some(0) {
                user_event(&mut self.world, UserEvent::Parallelism(1));
            }
            collect_garbage(&mut self.world);
            self.end_pods();
            self.come_to_rest()?;
        }
        let status = self.world.job().and_then(|job| job.status.as_ref());
        breach(Promise::Settles, format!("every pod ended well, and the Job does not end: {status:?}"))
    }

    fn end_pods(&mut self) {
        let ours: Vec<String> =
            self.world.pods().filter(|pod| is_ours(pod)).map(|pod| world::name(pod).to_owned()).collect();
        for name in ours {
            let Some(pod) = self.world.pod(&name) else { continue };
            if world::is_terminal(pod) {
                continue;
            }
            let event = if world::is_deleted(pod) { NodeEvent::End(137) } else { NodeEvent::Succeed };
            node_event(&mut self.world, &name, NodeEvent::Progress);
            node_event(&mut self.world, &name, event);
        }
    }

    fn is_over(&self) -> bool {
        self.world.job().is_none_or(|job| !finished(job).is_empty())
    }

    fn nothing_is_left(&mut self) -> Result<(), Breach> {
        // A Job that is gone takes its pods along.
        collect_garbage(&mut self.world);
        self.settle()?;
        self.checker.nothing_is_left()
    }
}

fn is_ours(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    world::controller(pod).is_some_and(|owner| owner.uid == JOB_UID)
}

fn is_live(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let matches = pod
        .metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(windlass_api::names::CONTROLLER_UID_LABEL));
    matches && !world::is_terminal(pod) && !world::is_deleted(pod)
}
