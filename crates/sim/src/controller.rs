//! The driver: the same core as in production, on watches that lag and writes that fail, and mortal between any two.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use windlass_api::{Gates, names};
use windlass_job::decision::{NewPod, PodRef};
use windlass_job::orphan::{self, Owner};
use windlass_job::pod_facts::Claim;
use windlass_job::{Action, Decision, JobFacts, JobView, Outcome, PodFacts, Settings, Uid, Wake};
use windlass_job::{decide, pod_body, status_body};

use crate::sabotage::Sabotage;
use crate::world::{self, Actor, Deed, Object, Refusal, World};

/// What becomes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Done, and we hear of it.
    Fine,
    /// It never arrives.
    Lost,
    /// Done, and the answer is lost.
    Unheard,
    /// A write of two halves is broken off after the first; any other is never heard of.
    Halved,
}

/// What happens during one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// How the stage is shuffled: rotated by this, and reversed if odd.
    pub order: u8,
    /// What becomes of the first writes; the others are fine.
    pub fates: Vec<Fate>,
    /// The controller dies after so many writes.
    pub dies_after: Option<u8>,
}

/// What a pass was like.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// The decision, if there was a Job to decide about.
    pub decision: Option<Decision>,
    /// How many writes were tried.
    pub writes: usize,
    /// The same view gave two decisions.
    pub is_fickle: bool,
    /// A write that the API found invalid.
    pub rejected: Option<String>,
}

/// A write on its way.
#[derive(Debug)]
struct Flight {
    action: Action,
    /// The revision of the Job that it was decided on.
    job_seen: u64,
    /// What became of it, if it has arrived and the answer is on its way back.
    outcome: Option<Outcome>,
}

/// A Job controller.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    /// What the watches told, up to these positions of the log.
    job_cursor: usize,
    pod_cursor: usize,
    job: Option<Box<Job>>,
    pods: BTreeMap<String, Box<Pod>>,
    view: Option<JobView>,
    /// Writes on their way, in the order in which they were decided.
    in_flight: Vec<Flight>,
    /// The revision of the Job that the write at hand was decided on.
    job_seen: u64,
    /// Writes tried since the world began, also before a death.
    pub writes_total: usize,
    sabotage: Sabotage,
}

impl Controller {
    /// A controller that has listed everything.
    pub fn new(world: &World, sabotage: Sabotage) -> Self {
        let mut controller = Self {
            settings: Settings::default(),
            job_cursor: 0,
            pod_cursor: 0,
            job: None,
            pods: BTreeMap::new(),
            view: None,
            in_flight: Vec::new(),
            job_seen: 0,
            writes_total: 0,
            sabotage,
        };
        controller.reboot(world);
        controller
    }

    /// Death and rebirth: all memory is lost, and everything is listed.
    pub fn reboot(&mut self, world: &World) {
        self.view = None;
        self.in_flight.clear();
        self.job = None;
        self.pods.clear();
        self.relist(world);
    }

    /// A watch broke off: both kinds are listed, and what is not there any more is forgotten.
    pub fn relist(&mut self, world: &World) {
        self.job_cursor = world.log().len();
        self.pod_cursor = world.log().len();
        self.see_job(world.job().cloned().map(Box::new));
        let present: BTreeMap<String, Box<Pod>> =
            world.pods().map(|pod| (world::uid(pod).to_owned(), Box::new(pod.clone()))).collect();
        // Also pods that no watch ever showed, only the answers to our own writes.
        let answered = self.view.iter().flat_map(|view| view.pods().iter()).map(|pod| pod.uid.to_string());
        let known: BTreeSet<String> = self.pods.keys().cloned().chain(answered).collect();
        let gone: Vec<String> = known.into_iter().filter(|uid| !present.contains_key(uid)).collect();
        gone.iter().for_each(|uid| self.see_pod(uid, None));
        present.into_iter().for_each(|(uid, pod)| self.see_pod(&uid, Some(pod)));
        if let (Some(view), Some(newest)) = (&mut self.view, world.log().last()) {
            view.listed(newest.revision);
        }
    }

    /// The watches deliver up to so many events of each kind.
    pub fn deliver(&mut self, world: &World, jobs: usize, pods: usize) {
        let log = world.log();
        let mut left = jobs;
        while left > 0 && self.job_cursor < log.len() {
            if let Object::Job(job) = &log[self.job_cursor].object {
                self.see_job(job.clone());
                left -= 1;
            }
            self.job_cursor += 1;
        }
        let mut left = pods;
        while left > 0 && self.pod_cursor < log.len() {
            if let Object::Pod(uid, pod) = &log[self.pod_cursor].object {
                self.see_pod(uid, pod.clone());
                left -= 1;
            }
            self.pod_cursor += 1;
        }
    }

    /// The watches deliver everything.
    pub fn catch_up(&mut self, world: &World) {
        self.deliver(world, usize::MAX, usize::MAX);
    }

    /// The last events that were delivered come again. Deletions do not: the objects they speak of are gone for good.
    pub fn redeliver(&mut self, world: &World, count: usize) {
        let seen = |cursor: usize| world.log()[..cursor].iter().rev().take(count).rev();
        let jobs: Vec<_> = seen(self.job_cursor).map(|change| change.object.clone()).collect();
        let pods: Vec<_> = seen(self.pod_cursor).map(|change| change.object.clone()).collect();
        for object in jobs {
            if let (Object::Job(Some(job)), Some(view)) = (object, &mut self.view) {
                view.observe_job(facts(&job));
            }
        }
        for object in pods {
            if let Object::Pod(uid, Some(pod)) = object
                && self.pods.contains_key(&uid)
                && let Some(view) = &mut self.view
            {
                feed(view, &uid, &pod);
            }
        }
    }

    /// Everything that happened was delivered.
    pub fn is_caught_up(&self, world: &World) -> bool {
        let is_news = |cursor: usize, wants_job: bool| {
            world.log()[cursor..].iter().any(|change| matches!(change.object, Object::Job(_)) == wants_job)
        };
        !is_news(self.job_cursor, true) && !is_news(self.pod_cursor, false)
    }

    /// The view of the Job, while there is one.
    pub fn view(&self) -> Option<&JobView> {
        self.view.as_ref()
    }

    /// A view made from nothing but what is there now.
    pub fn fresh_view(world: &World) -> Option<JobView> {
        let mut view = JobView::new(facts(world.job()?));
        world.pods().for_each(|pod| feed(&mut view, world::uid(pod), pod));
        Some(view)
    }

    /// How this controller is set up.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a view asks for now.
    pub fn decide(&mut self, view: &JobView, now: Timestamp) -> Decision {
        let now = self.sabotage.clock(now);
        let decision = decide(&view.observation(now, &self.settings));
        self.sabotage.decision(decision, view)
    }

    /// Decides once, and lets all writes on their way arrive and be answered.
    pub fn pass(&mut self, world: &mut World, weather: &Weather) -> Pass {
        let mut pass = Pass::default();
        if self.free_orphans(world, weather, &mut pass) {
            return pass;
        }
        self.decide_and_send(world, &mut pass);
        let mut flights = std::mem::take(&mut self.in_flight);
        if !flights.is_empty() {
            let by = usize::from(weather.order) % flights.len();
            flights.rotate_left(by);
            if weather.order % 2 == 1 {
                flights.reverse();
            }
        }
        for mut flight in flights {
            if weather.dies_after.is_some_and(|after| pass.writes >= usize::from(after)) {
                self.reboot(world);
                return pass;
            }
            let fate = weather.fates.get(pass.writes).copied().unwrap_or(Fate::Fine);
            self.arrive(world, &mut flight, fate, &mut pass);
            self.answer(world, flight);
            pass.writes += 1;
            self.writes_total += 1;
        }
        if weather.dies_after.is_some_and(|after| pass.writes >= usize::from(after)) {
            self.reboot(world);
        }
        pass
    }

    /// Decides once, and lets the writes go on their way, beside those that are not answered yet.
    pub fn send(&mut self, world: &World) -> Pass {
        let mut pass = Pass::default();
        self.decide_and_send(world, &mut pass);
        pass
    }

    /// One of the writes on their way arrives.
    pub fn let_arrive(&mut self, world: &mut World, pick: u8, fate: Fate) -> Pass {
        let mut pass = Pass::default();
        let mut flights = std::mem::take(&mut self.in_flight);
        let waiting: Vec<usize> = (0..flights.len()).filter(|at| flights[*at].outcome.is_none()).collect();
        if let Some(at) = usize::from(pick).checked_rem(waiting.len()).map(|nth| waiting[nth]) {
            self.arrive(world, &mut flights[at], fate, &mut pass);
            self.writes_total += 1;
        }
        self.in_flight = flights;
        pass
    }

    /// The answer to one of the writes that have arrived is heard.
    pub fn hear(&mut self, world: &World, pick: u8) {
        let answered: Vec<usize> =
            (0..self.in_flight.len()).filter(|at| self.in_flight[*at].outcome.is_some()).collect();
        if let Some(nth) = usize::from(pick).checked_rem(answered.len()) {
            let flight = self.in_flight.remove(answered[nth]);
            self.answer(world, flight);
        }
    }

    fn decide_and_send(&mut self, world: &World, pass: &mut Pass) {
        let Some(view) = self.view.take() else { return };
        let decision = self.decide(&view, world.now);
        pass.is_fickle = self.decide(&view.clone(), world.now) != decision;
        let view = self.view.insert(view);
        for action in &decision.stage {
            if !self.sabotage.forgets(action) {
                view.begin(action, world.now);
            }
            let job_seen = view.job().revision;
            self.in_flight.push(Flight { action: action.clone(), job_seen, outcome: None });
        }
        pass.decision = Some(decision);
    }

    fn arrive(&mut self, world: &mut World, flight: &mut Flight, fate: Fate, pass: &mut Pass) {
        if flight.outcome.is_none() {
            self.job_seen = flight.job_seen;
            flight.outcome = Some(self.perform(world, &flight.action, fate, pass));
        }
    }

    fn answer(&mut self, world: &World, flight: Flight) {
        let Flight { action, outcome: Some(outcome), .. } = flight else { return };
        let is_forgotten = self.sabotage.forgets(&action);
        if let (Some(view), false) = (&mut self.view, is_forgotten) {
            view.fold(&action, outcome, world.now, &self.settings);
        }
    }

    /// When there is something to do again, if nothing happens before.
    pub fn wake(&mut self, world: &World) -> Wake {
        let Some(view) = self.view.take() else { return Wake::Settled };
        let wake = self.decide(&view, world.now).wake;
        self.view = Some(view);
        wake
    }

    fn see_job(&mut self, job: Option<Box<Job>>) {
        match (&job, &mut self.view) {
            (Some(job), Some(view)) => view.observe_job(facts(job)),
            (Some(job), None) => {
                let mut view = JobView::new(facts(job));
                self.pods.iter().for_each(|(uid, pod)| feed(&mut view, uid, pod));
                self.view = Some(view);
            }
            (None, _) => self.view = None,
        }
        self.job = job;
    }

    fn see_pod(&mut self, uid: &str, pod: Option<Box<Pod>>) {
        match pod {
            Some(pod) => {
                if let Some(view) = &mut self.view {
                    feed(view, uid, &pod);
                }
                self.pods.insert(uid.to_owned(), pod);
            }
            None => {
                if let Some(view) = &mut self.view {
                    view.forget_pod(&Uid::new(uid));
                }
                self.pods.remove(uid);
            }
        }
    }

    /// Frees pods whose Job is gone, and those that a finished Job let go.
    fn free_orphans(&mut self, world: &mut World, weather: &Weather, pass: &mut Pass) -> bool {
        if self.sabotage.forgets_orphans() {
            return false;
        }
        let orphans: Vec<(String, String)> = self
            .pods
            .values()
            .filter(|pod| orphan::should_release(pod, self.owner(pod)))
            .map(|pod| (world::name(pod).to_owned(), world::uid(pod).to_owned()))
            .collect();
        self.job_seen = self.view.as_ref().map_or(0, |view| view.job().revision);
        for (name, uid) in orphans {
            let fate = weather.fates.get(pass.writes).copied().unwrap_or(Fate::Fine);
            pass.writes += 1;
            self.writes_total += 1;
            if fate == Fate::Lost {
                continue;
            }
            let actor = self.actor(Deed::FreeOrphan, &uid);
            let freed = world
                .edit_pod(actor, &name, Some(&uid), world::take_finalizer)
                .map(|pod| pod.cloned().map(Box::new));
            if fate == Fate::Fine {
                match freed {
                    Ok(Some(pod)) => _ = self.pods.insert(uid, pod),
                    Ok(None) | Err(_) => _ = self.pods.remove(&uid),
                }
            }
        }
        self.view.is_none()
    }

    fn owner(&self, pod: &Pod) -> Owner {
        let Some(owner) = world::controller(pod) else {
            // A pod of nobody may be adopted while there is a Job.
            return if self.job.is_some() { Owner::Active } else { Owner::None };
        };
        if owner.kind != names::JOB_KIND || owner.api_version != names::JOB_API_VERSION {
            return Owner::NotAJob;
        }
        match &self.view {
            Some(view) if view.job().uid == Uid::new(&owner.uid) => {
                // A pod that matches is the Job's own business.
                let is_ours =
                    view.pods().get(&Uid::new(world::uid(pod))).is_some_and(|p| p.claim == Claim::Ours);
                if view.job().status.is_finished() && !is_ours { Owner::Finished } else { Owner::Active }
            }
            _ if owner.uid == crate::plan::JOB_UID => Owner::Missing,
            _ => Owner::ManagedElsewhere,
        }
    }

    fn actor(&self, deed: Deed, meant: &str) -> Actor {
        Actor::Controller { deed, meant: meant.to_owned(), job_seen: self.job_seen }
    }

    fn perform(&mut self, world: &mut World, action: &Action, fate: Fate, pass: &mut Pass) -> Outcome {
        if fate == Fate::Lost {
            return Outcome::Failed;
        }
        let outcome = match action {
            Action::Create(new) => return self.create(world, new),
            Action::WriteStatus(write) => {
                let actor = self.actor(Deed::Status, crate::plan::JOB_UID);
                match world.patch_status(actor, &status_body::status_patch(write)) {
                    Ok(resource_version) => Outcome::Written(resource_version),
                    Err(Refusal::Invalid(why)) => {
                        pass.rejected = Some(why);
                        Outcome::Failed
                    }
                    Err(_) => Outcome::Failed,
                }
            }
            Action::Emit(_) => Outcome::Done,
            Action::Delete(pod) => self.delete(world, pod, Deed::Delete),
            Action::Remove(pod, _) => {
                let outcome = self.patch(world, pod, Deed::Discard, world::take_finalizer);
                match (fate, &outcome) {
                    (Fate::Halved, _) => Outcome::Failed,
                    (_, Outcome::Pod(_)) => self.delete(world, pod, Deed::Delete),
                    (_, _) => outcome,
                }
            }
            Action::Release(pod) => self.patch(world, pod, Deed::Release, world::take_finalizer),
            Action::Adopt(pod) => match world.job() {
                Some(job) if job.metadata.deletion_timestamp.is_none() => {
                    let owner = pod_body::owner_reference(job);
                    self.patch(world, pod, Deed::Adopt, |pod| {
                        pod.metadata.owner_references.get_or_insert_default().push(owner);
                        let finalizers = pod.metadata.finalizers.get_or_insert_default();
                        if !finalizers.iter().any(|f| f == names::TRACKING_FINALIZER) {
                            finalizers.push(names::TRACKING_FINALIZER.to_owned());
                        }
                    })
                }
                Some(_) | None => Outcome::Failed,
            },
            Action::Disown(pod) => self.patch(world, pod, Deed::Disown, |pod| {
                let owners = pod.metadata.owner_references.get_or_insert_default();
                owners.retain(|owner| owner.uid != crate::plan::JOB_UID);
                world::take_finalizer(pod);
            }),
        };
        if fate == Fate::Fine { outcome } else { Outcome::Failed }
    }

    /// Creates a pod. Whether or not the answer is heard, and also if the name is taken, a look at who has the name
    /// tells what became of it.
    fn create(&mut self, world: &mut World, new: &NewPod) -> Outcome {
        let Some(job) = &self.job else { return Outcome::Failed };
        let Ok(mut pod) = pod_body::pod_body(job, new) else { return Outcome::Failed };
        if let Some(name) = self.sabotage.twin_name(&new.name) {
            pod.metadata.name = Some(name);
        }
        let name = pod.metadata.name.clone().unwrap_or_default();
        let actor = self.actor(Deed::Create, "");
        let _ = world.create_pod(actor, pod);
        let Some(view) = &self.view else { return Outcome::Failed };
        match world.pod(&name).map(|pod| PodFacts::from_pod(pod, view.job())) {
            Some(pod) if matches!(pod.claim, Claim::Ours | Claim::Stray) => Outcome::Pod(Box::new(pod)),
            Some(_) => Outcome::Taken,
            None => Outcome::Failed,
        }
    }

    fn delete(&mut self, world: &mut World, pod: &PodRef, deed: Deed) -> Outcome {
        let uid = pod.uid.to_string();
        let actor = self.actor(deed, &uid);
        let precondition = Some(uid.as_str()).filter(|_| !self.sabotage.ignores_uids());
        let answer = world.delete_pod(actor, &pod.name, precondition).map(Option::<&Pod>::cloned);
        self.outcome(answer)
    }

    fn patch(&mut self, world: &mut World, pod: &PodRef, deed: Deed, edit: impl FnOnce(&mut Pod)) -> Outcome {
        let uid = pod.uid.to_string();
        let actor = self.actor(deed, &uid);
        let precondition = Some(uid.as_str()).filter(|_| !self.sabotage.ignores_uids());
        let answer = world.edit_pod(actor, &pod.name, precondition, edit).map(Option::<&Pod>::cloned);
        self.outcome(answer)
    }

    fn outcome(&self, answer: Result<Option<Pod>, Refusal>) -> Outcome {
        match (answer, &self.view) {
            (Ok(Some(pod)), Some(view)) => Outcome::Pod(Box::new(PodFacts::from_pod(&pod, view.job()))),
            (Ok(None) | Err(Refusal::NotFound), _) => Outcome::Gone,
            (Ok(Some(_)) | Err(_), _) => Outcome::Failed,
        }
    }
}

fn facts(job: &Job) -> JobFacts {
    JobFacts::from_job(job, None, &Gates::default())
}

/// Shows a pod to the view, if it is the Job's business or ever was.
fn feed(view: &mut JobView, uid: &str, pod: &Pod) {
    let facts = PodFacts::from_pod(pod, view.job());
    if facts.claim != Claim::Foreign || view.pods().get(&Uid::new(uid)).is_some() {
        view.observe_pod(facts);
    }
}

/// Longer than any delay between passes.
pub const LONG: SignedDuration = SignedDuration::from_secs(7);
