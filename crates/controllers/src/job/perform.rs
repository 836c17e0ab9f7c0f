//! Performing actions: each becomes API calls when it is its turn, and what became of it is folded into the view.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use windlass_job::decision::{NewPod, PodRef, StatusWrite};
use windlass_job::history::{ANNOTATION, History};
use windlass_job::status_body::status_patch;
use windlass_job::trace::Note;
use windlass_job::{Action, Outcome, PodFacts, Uid};
use windlass_watch::is_gone;

use super::molds::Molds;
use super::orphans::Release;
use super::registry::{Known, Slot};
use super::report::{self, PodEvent};
use super::settled::Settled;
use super::{Config, JobKey, patches};
use crate::calls::{Call, Calls, words};
use crate::events::Recorder;
use crate::metrics::{Ledger, Metrics, SyncLabels};
use crate::turns::{Turn, Urgency};
use crate::wire::{FromAnswer, RawJob, SlimPod, Version, controller};

const CREATE_POD: Call = Call { verb: "create", resource: "pods" };
const GET_POD: Call = Call { verb: "get", resource: "pods" };
const PATCH_POD: Call = Call { verb: "patch", resource: "pods" };
const DELETE_POD: Call = Call { verb: "delete", resource: "pods" };
const GET_JOB: Call = Call { verb: "get", resource: "jobs" };
const PATCH_STATUS: Call = Call { verb: "patch", resource: "jobs/status" };

/// Performs actions.
pub(super) struct Performer {
    calls: Calls,
    recorder: Recorder,
    metrics: Metrics,
    pod_events: bool,
    molds: Arc<Molds>,
    /// Where writes about pods of nobody wait for their turn.
    orphans: Uid,
}

/// What became of an action, before it is turned into facts.
#[derive(Debug)]
pub(super) enum Answer {
    Pod(Box<Pod>),
    Gone,
    Written(String),
    Done,
    Taken,
    /// The object has changed meanwhile.
    Conflict,
    Failed,
}

/// What all actions of a decision share.
pub(super) struct Stage {
    calls: Calls,
    recorder: Recorder,
    metrics: Metrics,
    pod_events: bool,
    slot: Arc<Slot>,
    source: Arc<RawJob>,
    molds: Arc<Molds>,
    about: ObjectReference,
    ledger: Ledger,
    /// What is remembered of failed pods once the status is written, if that is news.
    history: Option<History>,
    /// A live look said that the Job is there and stays.
    is_live: OnceCell<bool>,
    pods: Request,
    jobs: Request,
    progress: Mutex<Progress>,
}

/// How far a stage has come.
#[derive(Debug)]
struct Progress {
    since: Instant,
    labels: SyncLabels,
    left: usize,
    settled: Settled,
}

impl Performer {
    pub(super) fn new(calls: Calls, recorder: Recorder, config: &Config) -> Self {
        Self {
            calls,
            recorder,
            metrics: config.metrics.clone(),
            pod_events: config.pod_events,
            molds: Arc::default(),
            orphans: Uid::new("orphans"),
        }
    }

    /// What is to be known to perform `actions`, decided because of `notes` on what is known of the Job.
    pub(super) fn stage(
        &self,
        slot: &Arc<Slot>,
        known: &mut Known,
        actions: &[Action],
        notes: Vec<Note>,
        labels: SyncLabels,
        now: Timestamp,
    ) -> Stage {
        let namespace = Some(slot.key.namespace.as_str());
        known.memory.begin(&notes);
        let history = known.memory.with(actions, &notes, &known.view.job().status, now);
        let progress =
            Progress { since: Instant::now(), labels, left: actions.len(), settled: Settled::by(notes) };
        Stage {
            calls: self.calls.clone(),
            recorder: self.recorder.clone(),
            metrics: self.metrics.clone(),
            pod_events: self.pod_events,
            slot: Arc::clone(slot),
            source: Arc::clone(&known.source),
            molds: Arc::clone(&self.molds),
            about: report::about(known.view.job()),
            ledger: Ledger::of(known.view.job()),
            history,
            is_live: OnceCell::new(),
            pods: Request::new(SlimPod::url_path(&(), namespace)),
            jobs: Request::new(RawJob::url_path(&(), namespace)),
            progress: Mutex::new(progress),
        }
    }

    /// Removes the finalizer of a pod that nobody counts. A pod that is gone needs nothing.
    pub(super) async fn release_orphan(&self, pod: &Release) -> Result<(), String> {
        let pods = Request::new(SlimPod::url_path(&(), Some(&pod.namespace)));
        let patch = Patch::Strategic(patches::release_orphan(&pod.uid, &pod.resource_version));
        let request = pods.patch(&pod.name, &PatchParams::default(), &patch);
        match self.calls.send::<()>(&self.orphans, PATCH_POD, request).await {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(words(&error)),
        }
    }

    /// Asks the API server whether there is such a Job.
    pub(super) async fn job_exists(&self, job: &JobKey) -> Result<bool, String> {
        let jobs = Request::new(RawJob::url_path(&(), Some(&job.namespace)));
        let mut turn = self.calls.turn(&self.orphans, Urgency::Usual).await;
        match get::<RawJob>(&self.calls, &mut turn, GET_JOB, &jobs, &job.name).await {
            Ok(found) => Ok(found.is_some_and(|found| is_uid(&found.metadata.uid, &job.uid))),
            Err(error) => Err(words(&error)),
        }
    }
}

/// The object of that name, if there is one.
async fn get<K: FromAnswer>(
    calls: &Calls,
    turn: &mut Turn,
    call: Call,
    of: &Request,
    name: &str,
) -> kube::Result<Option<K>> {
    match calls.send_in(turn, call, of.get(name, &GetParams::default())).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Known {
    fn fold(&mut self, action: &Action, answer: Answer, config: &Config) {
        let outcome = match answer {
            Answer::Pod(pod) => Outcome::Pod(Box::new(PodFacts::from_pod(&pod, self.view.job()))),
            Answer::Gone => Outcome::Gone,
            Answer::Written(version) => Outcome::Written(version),
            Answer::Done => Outcome::Done,
            Answer::Taken => Outcome::Taken,
            Answer::Conflict => match action {
                Action::WriteStatus(write) if self.view.job().resource_version != write.resource_version => {
                    Outcome::Outdated
                }
                _ => Outcome::Failed,
            },
            Answer::Failed => Outcome::Failed,
        };
        self.view.fold(action, outcome, (config.clock)(), &config.settings);
    }
}

impl Stage {
    /// The Job that it is about.
    pub(super) fn uid(&self) -> &Uid {
        &self.slot.key.uid
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, action: &Action) -> Turn {
        // One status write says what many pods wait for.
        let urgency = match action {
            Action::WriteStatus(_) => Urgency::Urgent,
            Action::Adopt(_) | Action::Disown(_) | Action::Create(_) | Action::Delete(_) => Urgency::Usual,
            Action::Remove(..) | Action::Release(_) | Action::Emit(_) => Urgency::Usual,
        };
        self.calls.turn(&self.slot.key.uid, urgency).await
    }

    /// Performs an action.
    pub(super) async fn act(&self, action: &Action, turn: &mut Turn) -> Answer {
        match action {
            Action::Adopt(pod) => self.adopt(pod, turn).await,
            Action::Disown(pod) => self.patch(pod, patches::disown(&self.slot.key.uid, &pod.uid), turn).await,
            Action::Create(new) => {
                let answer = self.create(new, turn).await;
                self.metrics.pod_created(new.reason, matches!(answer, Answer::Pod(_)));
                answer
            }
            Action::Delete(pod) => self.delete(pod, turn).await,
            Action::Remove(pod, _) => match self.patch(pod, patches::release(&pod.uid), turn).await {
                Answer::Pod(_) => self.delete(pod, turn).await,
                other => other,
            },
            Action::Release(pod) => self.patch(pod, patches::release(&pod.uid), turn).await,
            Action::WriteStatus(write) => self.write_status(write, turn).await,
            Action::Emit(event) => {
                self.recorder.publish(report::decided(&self.about, event));
                Answer::Done
            }
        }
    }

    /// Folds what became of an action into the view, and tells what is certain now.
    pub(super) fn landed(&self, action: &Action, answer: Answer, config: &Config) {
        let went_well = !matches!(answer, Answer::Failed | Answer::Conflict);
        let is_done = matches!(answer, Answer::Pod(_) | Answer::Gone | Answer::Written(_));
        let mut known = self.slot.known.lock();
        known.fold(action, answer, config);
        let mut progress = self.progress.lock();
        if is_done {
            let history = self.history.as_ref();
            for report in progress.settled.done(action, &mut known, history, &self.about, &self.metrics) {
                self.recorder.publish_ours(report);
            }
        }
        progress.labels.is_error |= !went_well;
        progress.left -= 1;
        if progress.left == 0 {
            self.metrics.synced(progress.labels, progress.since.elapsed());
        }
    }

    async fn adopt(&self, pod: &PodRef, turn: &mut Turn) -> Answer {
        // The cache may be old: a Job that is gone or going must not take a pod with it.
        if !*self.is_live.get_or_init(|| self.look_at_job(turn)).await {
            return Answer::Failed;
        }
        // It was read before, so it can be read again.
        let Ok((job, _)) = self.source.read() else { return Answer::Failed };
        self.patch(pod, patches::adopt(&job, &pod.uid), turn).await
    }

    async fn look_at_job(&self, turn: &mut Turn) -> bool {
        let found = get::<RawJob>(&self.calls, turn, GET_JOB, &self.jobs, &self.slot.key.name).await;
        found.ok().flatten().is_some_and(|job| {
            is_uid(&job.metadata.uid, &self.slot.key.uid) && job.metadata.deletion_timestamp.is_none()
        })
    }

    async fn patch(&self, pod: &PodRef, patch: Value, turn: &mut Turn) -> Answer {
        let request = self.pods.patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch));
        match self.calls.send_in(turn, PATCH_POD, request).await {
            Ok(SlimPod(pod)) => Answer::Pod(pod),
            Err(error) if is_gone(&error) => Answer::Gone,
            Err(error) => self.failed("patch pod", &pod.name, &error),
        }
    }

    async fn create(&self, new: &NewPod, turn: &mut Turn) -> Answer {
        let body = match self.molds.of(self.uid(), &self.source) {
            Ok(mold) => mold.pod(new),
            Err(error) => {
                self.tell(PodEvent::CreateFailed(&error.to_string()));
                return Answer::Failed;
            }
        };
        let request = self.pods.create(&PostParams::default(), body.into_bytes());
        match self.calls.send_in(turn, CREATE_POD, request).await {
            Ok(SlimPod(pod)) => {
                self.tell(PodEvent::Created(&new.name));
                Answer::Pod(pod)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.find(new, turn).await,
            Err(error) => {
                let is_answered = matches!(error, kube::Error::Api(_));
                if !is_namespace_terminating(&error) {
                    self.tell(PodEvent::CreateFailed(&words(&error)));
                }
                // Without an answer the pod may be there.
                if is_answered {
                    self.failed("create pod", &new.name, &error)
                } else {
                    self.find(new, turn).await
                }
            }
        }
    }

    /// A pod of this name may be there: ours, made by an attempt whose answer was lost, or somebody else's.
    async fn find(&self, new: &NewPod, turn: &mut Turn) -> Answer {
        match get(&self.calls, turn, GET_POD, &self.pods, &new.name).await {
            Ok(Some(SlimPod(pod))) => {
                let is_ours =
                    controller(&pod.metadata).is_some_and(|owner| Uid::new(&owner.uid) == self.slot.key.uid);
                if is_ours { Answer::Pod(pod) } else { Answer::Taken }
            }
            Ok(None) => Answer::Failed,
            Err(error) => self.failed("get pod", &new.name, &error),
        }
    }

    async fn delete(&self, pod: &PodRef, turn: &mut Turn) -> Answer {
        let uid = Some(pod.uid.to_string());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        let request = self.pods.delete(&pod.name, &params);
        match self.calls.send_in::<Value>(turn, DELETE_POD, request).await {
            Ok(answer) => {
                self.tell(PodEvent::Deleted(&pod.name));
                // A pod that is answered without a deletion time is gone already; so is one that is not answered.
                let left = serde_json::from_value(answer).ok();
                match left.filter(|SlimPod(pod)| pod.metadata.deletion_timestamp.is_some()) {
                    Some(SlimPod(pod)) => Answer::Pod(pod),
                    None => Answer::Gone,
                }
            }
            Err(error) if is_gone(&error) => Answer::Gone,
            Err(error) => {
                self.tell(PodEvent::DeleteFailed(&words(&error)));
                self.failed("delete pod", &pod.name, &error)
            }
        }
    }

    async fn write_status(&self, write: &StatusWrite, turn: &mut Turn) -> Answer {
        let mut patch = status_patch(write);
        if let Some(history) = &self.history {
            patch["metadata"]["annotations"] = json!({ ANNOTATION: history.text() });
        }
        let patch = Patch::Merge(patch);
        let request =
            self.jobs.patch_subresource("status", &self.slot.key.name, &PatchParams::default(), &patch);
        match self.calls.send_in(turn, PATCH_STATUS, request).await {
            Ok(Version(version)) => {
                self.metrics.status_written(self.ledger, write);
                for event in &write.events {
                    self.recorder.publish(report::decided(&self.about, event));
                }
                Answer::Written(version)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => Answer::Conflict,
            Err(error) => self.failed("write status of job", &self.slot.key.name, &error),
        }
    }

    fn tell(&self, event: PodEvent<'_>) {
        if self.pod_events {
            self.recorder.publish(report::pod(&self.about, event));
        }
    }

    fn failed(&self, operation: &str, name: &str, error: &kube::Error) -> Answer {
        let (namespace, job) = (&self.slot.key.namespace, &self.slot.key.name);
        tracing::warn!(namespace, job, name, error = words(error), "{operation} failed");
        Answer::Failed
    }
}

fn is_uid(text: &Option<String>, uid: &Uid) -> bool {
    text.as_deref().is_some_and(|text| Uid::new(text) == *uid)
}

/// Nothing can be created in a namespace that goes away: no news for anybody.
fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden() && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use windlass_job::decision::Kind;
    use windlass_job::{Decision, decide};

    use super::*;
    use crate::job::registry::Registry;
    use crate::job::registry::tests::{job, pod, registry};

    /// What would be done for the Job `uid` now.
    fn decided(registry: &Registry, config: &Config) -> Decision {
        let slot = registry.slot(&Uid::new("j")).expect("known");
        let known = slot.known.lock();
        decide(&known.view.observation((config.clock)(), &config.settings))
    }

    fn begin(registry: &Registry, action: &Action, config: &Config) {
        let slot = registry.slot(&Uid::new("j")).expect("known");
        slot.known.lock().view.begin(action, (config.clock)());
    }

    fn fold(registry: &Registry, action: &Action, answer: Answer, config: &Config) {
        registry.slot(&Uid::new("j")).expect("known").known.lock().fold(action, answer, config);
    }

    #[test]
    fn an_answer_does_not_bring_back_a_pod_that_the_watch_saw_go() {
        let (registry, config) = (registry(), Config::default());
        registry.job_changed(Event::Apply(job("j", 1)));
        let decision = decided(&registry, &config);
        let create = &decision.stage[0];
        assert!(matches!(create, Action::Create(_)), "{decision:?}");
        begin(&registry, create, &config);
        let Action::Create(new) = create else { unreachable!("checked") };
        let made = |revision| {
            let mut made = pod("p", revision, Some("j"));
            made.0.metadata.name = Some(new.name.clone());
            made
        };
        registry.pod_changed(Event::Apply(made(2)));
        registry.pod_changed(Event::Delete(made(3)));
        fold(&registry, create, Answer::Pod(made(2).0), &config);
        let slot = registry.slot(&Uid::new("j")).expect("known");
        assert!(slot.known.lock().view.pods().is_empty());
    }

    /// The status write that a Job with a fresh pod leads to.
    fn status_write(registry: &Registry, config: &Config) -> Action {
        registry.job_changed(Event::Apply(job("j", 1)));
        registry.pod_changed(Event::Apply(pod("p", 2, Some("j"))));
        let mut decision = decided(registry, config);
        let write = decision.stage.pop().expect("an action");
        assert!(matches!(write, Action::WriteStatus(_)), "{write:?}");
        write
    }

    #[test]
    fn the_answer_to_a_status_write_does_not_undo_what_the_watch_has_shown_since() {
        let (registry, config) = (registry(), Config::default());
        let write = status_write(&registry, &config);
        registry.job_changed(Event::Apply(job("j", 9)));
        fold(&registry, &write, Answer::Written("8".to_owned()), &config);
        let slot = registry.slot(&Uid::new("j")).expect("known");
        assert_eq!(slot.known.lock().view.job().resource_version, "9");
    }

    #[test]
    fn a_conflict_is_no_reason_to_wait_when_the_newer_job_is_known() {
        let (registry, config) = (registry(), Config::default());
        let write = status_write(&registry, &config);
        let is_held = || {
            let slot = registry.slot(&Uid::new("j")).expect("known");
            let known = slot.known.lock();
            let now = (config.clock)();
            known.view.observation(now, &config.settings).own.held_until(Kind::Status, now).is_some()
        };
        registry.job_changed(Event::Apply(job("j", 9)));
        fold(&registry, &write, Answer::Conflict, &config);
        assert!(!is_held());
        let Action::WriteStatus(mut write) = write else { unreachable!("checked") };
        write.resource_version = "9".to_owned();
        fold(&registry, &Action::WriteStatus(write), Answer::Conflict, &config);
        assert!(is_held(), "the newer Job is not known yet");
        registry.job_changed(Event::Apply(job("j", 10)));
        assert!(!is_held(), "now it is");
    }

    #[test]
    fn a_namespace_that_goes_away_is_told_from_other_refusals() {
        let api = |code: u16, reason: &str, message: &str| {
            kube::Error::Api(kube::core::Status::failure(message, reason).with_code(code).boxed())
        };
        let cause = kube::core::response::StatusCause {
            reason: "NamespaceTerminating".to_owned(),
            message: String::new(),
            field: String::new(),
        };
        let details = kube::core::response::StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        };
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403).with_details(details);
        assert!(is_namespace_terminating(&kube::Error::Api(status.boxed())));
        assert!(!is_namespace_terminating(&api(403, "Forbidden", "no")));
    }
}
