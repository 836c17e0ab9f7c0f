//! A Job and its pods as one controller knows them: what the watches said, with our own writes folded in.
//!
//! The answer to a write is as good as the watch event that follows it, and comes sooner. Folding it into the view at
//! once replaces the expectations, with their five minutes, of the Go controller: there is nothing to wait for and
//! nothing that expires. An older event that arrives late changes nothing, because revisions only grow.

use jiff::Timestamp;

use crate::decision::{Action, Kind};
use crate::job_facts::{JobFacts, revision};
use crate::observation::{Observation, OwnWrites, Settings};
use crate::pod_facts::PodFacts;
use crate::roster::Roster;
use crate::uid::Uid;

/// One Job as a controller knows it.
#[derive(Clone, Debug)]
pub struct JobView {
    job: JobFacts,
    pods: Roster,
    own: OwnWrites,
    /// The newest revision that a list of all pods is known to have seen.
    listed: u64,
}

/// What became of a write.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Done, and this is the pod now.
    Pod(Box<PodFacts>),
    /// Done, and there is no pod any more; or there was none.
    Gone,
    /// The status was written, and the Job has this resource version now.
    Written(String),
    /// Done, and there is nothing to know about it.
    Done,
    /// The name of the new pod is somebody else's.
    Taken,
    /// Not done, because the object has changed meanwhile; the view knows that already.
    Outdated,
    /// Not done, or not known. It will be tried again after a while.
    Failed,
}

impl JobView {
    /// A Job that was just seen for the first time.
    pub fn new(job: JobFacts) -> Self {
        Self { job, pods: Roster::default(), own: OwnWrites::default(), listed: 0 }
    }

    /// The Job.
    pub fn job(&self) -> &JobFacts {
        &self.job
    }

    /// Its pods.
    pub fn pods(&self) -> &Roster {
        &self.pods
    }

    /// A Job with this resource version would be news. Ask before reading a large status.
    pub fn is_news(&self, resource_version: &str) -> bool {
        revision(resource_version) > self.job.revision
    }

    /// The watch shows the Job.
    pub fn observe_job(&mut self, job: JobFacts) {
        if job.revision >= self.job.revision {
            self.job = job;
            self.own.forgive(Kind::Status);
            if self.job.is_suspended {
                self.own.first_pod_at = None;
            }
        }
    }

    /// The watch shows a pod.
    pub fn observe_pod(&mut self, pod: PodFacts) {
        self.own.in_flight.saw(&pod);
        self.pods.observe(pod);
    }

    /// The watch says that a pod is gone.
    pub fn forget_pod(&mut self, uid: &Uid) {
        if let Some(pod) = self.pods.get(uid) {
            self.own.in_flight.lost(pod);
        }
        self.pods.forget(uid);
    }

    /// Everything was listed: what the list has not shown and is no newer than `revision` is gone.
    pub fn listed(&mut self, revision: u64) {
        self.listed = self.listed.max(revision);
    }

    /// What a decision may look at.
    pub fn observation<'a>(&'a self, now: Timestamp, settings: &'a Settings) -> Observation<'a> {
        Observation { now, job: &self.job, pods: &self.pods, own: &self.own, settings }
    }

    /// One of our writes is about to be sent. Until it is folded, decisions take it into account: so they may be made
    /// while it is on its way.
    pub fn begin(&mut self, action: &Action, now: Timestamp) {
        self.own.in_flight.begin(action, &self.job.status, now);
        match action {
            Action::Release(pod) => self.pods.mark_releasing(&pod.uid, true),
            Action::Create(_) => _ = self.own.first_pod_at.get_or_insert(now),
            _ => {}
        }
    }

    /// Takes in what became of one of our writes.
    pub fn fold(&mut self, action: &Action, outcome: Outcome, now: Timestamp, settings: &Settings) {
        let is_late = self.is_late(action, &outcome);
        if let Some(since) = self.own.in_flight.end(action) {
            let took = now.duration_since(since);
            if let Action::WriteStatus(_) = action {
                self.own.status_took.add(took);
            } else {
                self.own.pod_took.add(took);
            }
        }
        if let Action::Release(pod) = action {
            self.pods.mark_releasing(&pod.uid, false);
        }
        match outcome {
            Outcome::Failed => return self.fold_failure(action, now, settings),
            Outcome::Outdated => return,
            Outcome::Pod(_) | Outcome::Gone | Outcome::Written(_) | Outcome::Done | Outcome::Taken => {
                self.own.succeeded(action.kind(), now);
            }
        }
        match action {
            Action::Create(new) => match outcome {
                Outcome::Pod(pod) => {
                    self.own.created_in_a_row = self.own.created_in_a_row.saturating_add(1);
                    if !is_late {
                        self.pods.observe(*pod);
                    }
                }
                _ => self.pods.mark_taken(new.index, new.attempt),
            },
            Action::WriteStatus(write) => {
                self.own.status_written_at = Some(now);
                match outcome {
                    // The watch can be ahead of the answer, and show what somebody wrote after us.
                    Outcome::Written(resource_version) if self.is_news(&resource_version) => {
                        self.job.revision = revision(&resource_version);
                        self.job.resource_version = resource_version;
                        self.job.status = write.status.clone();
                        self.job.index_texts_are_current = true;
                    }
                    _ => {}
                }
            }
            Action::Emit(_) => self.own.has_warned = true,
            Action::Remove(pod, _) => {
                self.pods.mark_discarded(&pod.uid);
                self.fold_pod(&pod.uid, outcome);
            }
            Action::Release(pod) => {
                self.pods.mark_accounted(&pod.uid);
                self.pods.amend(&pod.uid, |facts| facts.has_finalizer = false);
                self.fold_pod(&pod.uid, outcome);
            }
            Action::Delete(pod) => {
                self.pods.mark_ended(&pod.uid);
                self.pods.amend(&pod.uid, |facts| facts.is_deleted = true);
                self.fold_pod(&pod.uid, outcome);
            }
            Action::Adopt(pod) | Action::Disown(pod) => self.fold_pod(&pod.uid, outcome),
        }
    }

    /// The watch was ahead of the answer to a creation, and has said that the pod is gone.
    fn is_late(&self, action: &Action, outcome: &Outcome) -> bool {
        let (Action::Create(new), Outcome::Pod(pod)) = (action, outcome) else { return false };
        let is_unlisted = pod.revision <= self.listed && self.pods.get(&pod.uid).is_none();
        is_unlisted || self.own.in_flight.is_gone(&new.name, &pod.uid)
    }

    fn fold_pod(&mut self, uid: &Uid, outcome: Outcome) {
        match outcome {
            // The watch can be ahead of the answer, and have said that the pod is gone.
            Outcome::Pod(pod) if self.pods.get(uid).is_some() => self.pods.observe(*pod),
            Outcome::Pod(_) => {}
            Outcome::Gone => self.pods.bury(uid),
            Outcome::Written(_) | Outcome::Done | Outcome::Taken | Outcome::Outdated | Outcome::Failed => {}
        }
    }

    fn fold_failure(&mut self, action: &Action, now: Timestamp, settings: &Settings) {
        self.own.failed(action.kind(), now, &settings.api_retry);
        match action {
            Action::Create(_) => self.own.created_in_a_row = 0,
            // It may have been done all the same.
            Action::Delete(pod) => self.pods.mark_ended(&pod.uid),
            Action::Adopt(_) | Action::Disown(_) | Action::Remove(..) => {}
            Action::Release(_) | Action::WriteStatus(_) | Action::Emit(_) => {}
        }
    }
}
