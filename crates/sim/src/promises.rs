//! The checker: named promises over the truth, at every revision.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use windlass_api::indexes::IndexSet;
use windlass_api::{Gates, names};
use windlass_job::pod_facts::Claim;
use windlass_job::policy::failure::Action as Rule;
use windlass_job::{JobFacts, PodFacts};

use crate::plan::JOB_UID;
use crate::world::{self, Actor, Change, Deed, Object};

/// What is promised about every Job, whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Each pod adds to `succeeded` or `failed` at most once, and exactly once if it finished and was to be counted.
    CountedOnce,
    /// No pod is created beyond what the Job allows: `parallelism`, and one for each index.
    NeverTooMany,
    /// Counters and index sets never shrink, but for elastic Jobs that are scaled down.
    CountersMonotone,
    /// `Complete` and `Failed` never change, never come together, and leave nothing held or uncounted.
    TerminalIsFinal,
    /// When the Job is finished or gone no pod keeps the finalizer.
    NoLeak,
    /// Only what was decided on is written to, and only what is the Job's.
    OwnOnly,
    /// When faults stop, a fixpoint is reached soon, and nothing is written after that.
    Settles,
    /// Equal views give equal decisions, however they came about.
    SameInSameOut,
    /// A Job past its deadline has no live pods.
    DeadlineKept,
    /// The API finds every status valid.
    StatusAccepted,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CountedOnce => "counted-once",
            Self::NeverTooMany => "never-too-many",
            Self::CountersMonotone => "counters-monotone",
            Self::TerminalIsFinal => "terminal-is-final",
            Self::NoLeak => "no-leak",
            Self::OwnOnly => "own-only",
            Self::Settles => "settles",
            Self::SameInSameOut => "same-in-same-out",
            Self::DeadlineKept => "deadline-kept",
            Self::StatusAccepted => "status-accepted",
        })
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub promise: Promise,
    /// How.
    pub how: String,
    /// After how many steps of the case.
    pub at_step: usize,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "promise `{}` is broken after step {}: {}", self.promise, self.at_step, self.how)
    }
}

/// Makes a breach; the step is filled in later.
pub fn breach<T>(promise: Promise, how: impl Into<String>) -> Result<T, Breach> {
    Err(Breach { promise, how: how.into(), at_step: 0 })
}

fn ensure(holds: bool, promise: Promise, how: impl FnOnce() -> String) -> Result<(), Breach> {
    if holds { Ok(()) } else { breach(promise, how()) }
}

/// What a pod was counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Succeeded,
    Failed,
}

/// Reads the log of the world and compares it with the promises.
#[derive(Debug, Default)]
pub struct Checker {
    cursor: usize,
    job: Option<Box<Job>>,
    /// All versions of the Job, by revision.
    versions: BTreeMap<u64, Box<Job>>,
    pods: BTreeMap<String, Box<Pod>>,
    /// Pods that were ever the Job's.
    ever_ours: BTreeSet<String>,
    /// Pods that were ever in `uncountedTerminatedPods`.
    recorded: BTreeMap<String, Count>,
}

impl Checker {
    /// Looks at everything that happened since the last look.
    pub fn look(&mut self, log: &[Change]) -> Result<(), Breach> {
        while let Some(change) = log.get(self.cursor) {
            self.cursor += 1;
            match &change.object {
                Object::Job(job) => self.job_changes(change, job.as_deref())?,
                Object::Pod(uid, pod) => self.pod_changes(change, uid, pod.as_deref())?,
            }
        }
        Ok(())
    }

    fn job_changes(&mut self, change: &Change, new: Option<&Job>) -> Result<(), Breach> {
        if let (Some(new), Some(old)) = (new, self.job.take()) {
            if let Actor::Controller { meant, .. } = &change.actor {
                let is_meant = new.metadata.uid.as_ref() == Some(meant);
                ensure(is_meant, Promise::OwnOnly, || "the status of another Job is written".to_owned())?;
            }
            self.counters(&old, new)?;
            self.counted(&old, new)?;
            self.terminal(&old, new)?;
        }
        self.job = new.cloned().map(Box::new);
        if let Some(job) = &self.job {
            self.versions.insert(change.revision, job.clone());
        }
        Ok(())
    }

    fn counters(&self, old: &Job, new: &Job) -> Result<(), Breach> {
        let (was, is) = (status(old), status(new));
        let limit = spec(new).completions.unwrap_or(0);
        let shrinks = |old: Option<&str>, new: Option<&str>| {
            let parse = |text: Option<&str>| IndexSet::parse_lenient(text.unwrap_or_default(), limit);
            parse(old).iter().any(|index| !parse(new).contains(index))
        };
        let text = |was: &dyn fmt::Debug, is: &dyn fmt::Debug| format!("from {was:?} to {is:?}");
        let monotone = Promise::CountersMonotone;
        let is_status_write = spec(old) == spec(new);
        ensure(is.failed.unwrap_or(0) >= was.failed.unwrap_or(0), monotone, || {
            format!("failed goes {}", text(&was.failed, &is.failed))
        })?;
        let is_elastic = is_indexed(new) && spec(new).completions == spec(new).parallelism;
        ensure(is.succeeded.unwrap_or(0) >= was.succeeded.unwrap_or(0) || is_elastic, monotone, || {
            format!("succeeded goes {}", text(&was.succeeded, &is.succeeded))
        })?;
        let (completed, failed) = (&was.completed_indexes, &was.failed_indexes);
        let completed_shrinks = shrinks(completed.as_deref(), is.completed_indexes.as_deref());
        ensure(!is_status_write || !completed_shrinks, monotone, || {
            format!("completedIndexes goes {}", text(completed, &is.completed_indexes))
        })?;
        let failed_shrinks = shrinks(failed.as_deref(), is.failed_indexes.as_deref());
        ensure(!is_status_write || !failed_shrinks, monotone, || {
            format!("failedIndexes goes {}", text(failed, &is.failed_indexes))
        })
    }

    fn counted(&mut self, old: &Job, new: &Job) -> Result<(), Breach> {
        let (was, is) = (status(old), status(new));
        let once = Promise::CountedOnce;
        for (kind, before, after) in [
            (Count::Succeeded, uncounted(&was).0, uncounted(&is).0),
            (Count::Failed, uncounted(&was).1, uncounted(&is).1),
        ] {
            for uid in after.difference(&before) {
                ensure(self.ever_ours.contains(uid), once, || {
                    format!("{uid} is recorded and was never ours")
                })?;
                let earlier = self.recorded.insert(uid.clone(), kind);
                ensure(earlier.is_none(), once, || {
                    format!("{uid} is recorded as {kind:?} and was {earlier:?} before")
                })?;
            }
            let left: Vec<&String> = before.difference(&after).collect();
            for uid in &left {
                let is_held = self.pods.get(*uid).is_some_and(|pod| is_ours(pod) && world::is_held(pod));
                ensure(!is_held, once, || format!("{uid} goes into the counters and is still held"))?;
            }
            let grows = match kind {
                Count::Succeeded => is.succeeded.unwrap_or(0) - was.succeeded.unwrap_or(0),
                Count::Failed => is.failed.unwrap_or(0) - was.failed.unwrap_or(0),
            };
            let by_index = kind == Count::Succeeded && is_indexed(new);
            ensure(by_index || usize::try_from(grows).ok() == Some(left.len()), once, || {
                format!("the {kind:?} counter changes by {grows} and {} pods were on their way", left.len())
            })?;
        }
        if is_indexed(new) && spec(old) == spec(new) && !is_same_index_text(&was, &is) {
            let completed = completed(new);
            let count = i32::try_from(completed.len()).unwrap_or(i32::MAX);
            ensure(is.succeeded.unwrap_or(0) == count, once, || {
                format!("succeeded is {:?} and completedIndexes {completed}", is.succeeded)
            })?;
        }
        Ok(())
    }

    fn terminal(&self, old: &Job, new: &Job) -> Result<(), Breach> {
        let (was, is) = (finished(old), finished(new));
        let last = Promise::TerminalIsFinal;
        ensure(is.len() < 2, last, || "the Job is Complete and Failed".to_owned())?;
        ensure(was.is_empty() || was == is, last, || format!("{was:?} becomes {is:?}"))?;
        if was.is_empty() && !is.is_empty() {
            let left = uncounted(&status(new));
            ensure(left.0.is_empty() && left.1.is_empty(), last, || {
                format!("the Job is {is:?} and {left:?} are not counted")
            })?;
            let held = self
                .pods
                .values()
                .find(|pod| world::is_held(pod) && PodFacts::from_pod(pod, &facts(new)).claim == Claim::Ours);
            ensure(held.is_none(), last, || {
                format!("the Job is {is:?} and holds {:?}", held.map(|pod| world::name(pod)))
            })?;
        }
        Ok(())
    }

    fn pod_changes(&mut self, change: &Change, uid: &str, new: Option<&Pod>) -> Result<(), Breach> {
        let old = self.pods.remove(uid);
        if let Some(pod) = new {
            self.pods.insert(uid.to_owned(), Box::new(pod.clone()));
            if is_ours(pod) {
                self.ever_ours.insert(uid.to_owned());
            }
        }
        let Actor::Controller { deed, meant, job_seen } = &change.actor else { return Ok(()) };
        if *deed == Deed::Create {
            return self.room_for(new, *job_seen);
        }
        let own = Promise::OwnOnly;
        ensure(meant == uid, own, || format!("{deed:?} was meant for {meant} and hits {uid}"))?;
        let may_adopt =
            *deed == Deed::Adopt && old.as_deref().is_some_and(|pod| world::controller(pod).is_none());
        ensure(self.ever_ours.contains(uid) || may_adopt, own, || {
            format!("{deed:?} of {uid}, which is not ours")
        })?;
        match (deed, old) {
            (Deed::Release, Some(pod)) if world::is_held(&pod) => self.released(&pod, *job_seen),
            _ => Ok(()),
        }
    }

    /// A finished pod that was to be counted is on its way into the counters before it is let go; or it was not to be
    /// counted, under a version of the Job that its releaser may have known.
    fn released(&self, pod: &Pod, job_seen: u64) -> Result<(), Breach> {
        let mut known = self.versions.range(job_seen..).map(|(_, job)| job);
        let is_fine = self.job.is_none() || known.any(|job| self.may_release(pod, job));
        ensure(is_fine, Promise::CountedOnce, || {
            format!("{} is {} and is released without being counted", world::name(pod), world::phase(pod))
        })
    }

    fn may_release(&self, pod: &Pod, job: &Job) -> bool {
        let facts = facts(job);
        let pod_facts = PodFacts::from_pod(pod, &facts);
        let is_winding_up = job.metadata.deletion_timestamp.is_some()
            || facts.status.is_finished()
            || facts.status.true_condition(names::condition::SUCCESS_CRITERIA_MET).is_some();
        // A pod that was on its way out when the Job failed is not waited for.
        let is_left_behind = facts.status.true_condition(names::condition::FAILURE_TARGET).is_some()
            && pod_facts.is_deleted
            && facts.failure_policy.is_some();
        let has_place = !facts.is_indexed() || facts.has_index(pod_facts.index);
        let is_ignored = pod_facts.rule.as_ref().is_some_and(|rule| rule.action == Rule::Ignore);
        if is_winding_up || is_left_behind || !has_place || pod_facts.claim != Claim::Ours {
            return true;
        }
        let is_recorded = self.recorded.contains_key(world::uid(pod));
        // A second success of an index does not count, nor one that comes after the index has failed.
        let is_settled = pod_facts
            .index
            .is_some_and(|index| completed(job).contains(index) || facts.status.has_failed_index(index));
        match world::phase(pod) {
            "Succeeded" => is_recorded || is_settled,
            "Failed" => is_recorded || is_ignored || completed_early(&pod_facts, job),
            _ => true,
        }
    }

    /// A new pod has room under at least one version of the Job that its maker may have known.
    fn room_for(&self, new: Option<&Pod>, job_seen: u64) -> Result<(), Breach> {
        let known = self.versions.range(job_seen..).map(|(_, job)| job);
        let mut reasons = Vec::new();
        for job in known {
            match self.room(job, new) {
                Ok(()) => return Ok(()),
                Err(why) => reasons.push(why),
            }
        }
        // Without any version the Job is gone, and its maker did not know.
        ensure(reasons.is_empty(), Promise::NeverTooMany, || reasons.join("; "))
    }

    fn room(&self, job: &Job, new: Option<&Pod>) -> Result<(), String> {
        let facts = facts(job);
        let live: Vec<&Pod> = self
            .pods
            .values()
            .map(Box::as_ref)
            .filter(|pod| {
                let pod = PodFacts::from_pod(pod, &facts);
                let lives = pod.is_active() || (facts.only_replaces_failed() && pod.is_terminating());
                pod.claim == Claim::Ours && lives
            })
            .collect();
        let left = facts.completions.map(|all| all.saturating_sub(facts.status.succeeded));
        let allowed = if facts.is_suspended { 0 } else { left.unwrap_or(u32::MAX).min(facts.parallelism) };
        if live.len() > allowed as usize {
            return Err(format!("{} pods live and {allowed} are allowed", live.len()));
        }
        let index = new.and_then(world::index).filter(|_| facts.is_indexed());
        let twins = live.iter().filter(|pod| index.is_some() && world::index(pod) == index).count();
        if twins > 1 {
            return Err(format!("{twins} pods live at index {index:?}"));
        }
        Ok(())
    }

    /// What holds when nothing more will happen: a Job that is finished or gone leaves nothing behind.
    pub fn nothing_is_left(&self) -> Result<(), Breach> {
        let is_over = self.job.as_ref().is_none_or(|job| !finished(job).is_empty());
        let held = self.pods.iter().find(|(uid, pod)| world::is_held(pod) && self.ever_ours.contains(*uid));
        ensure(!is_over || held.is_none(), Promise::NoLeak, || {
            format!("{:?} keeps its finalizer for ever", held.map(|(_, pod)| world::name(pod)))
        })?;
        let Some(job) = self.job.as_ref().filter(|job| !finished(job).is_empty()) else { return Ok(()) };
        let counted = |kind: Count| self.recorded.values().filter(|count| **count == kind).count();
        let status = status(job);
        let failed = usize::try_from(status.failed.unwrap_or(0)).ok();
        ensure(failed == Some(counted(Count::Failed)), Promise::CountedOnce, || {
            format!("failed is {:?} and {} pods were recorded", status.failed, counted(Count::Failed))
        })?;
        let succeeded = usize::try_from(status.succeeded.unwrap_or(0)).ok();
        ensure(is_indexed(job) || succeeded == Some(counted(Count::Succeeded)), Promise::CountedOnce, || {
            format!(
                "succeeded is {:?} and {} pods were recorded",
                status.succeeded,
                counted(Count::Succeeded)
            )
        })
    }
}

fn facts(job: &Job) -> JobFacts {
    JobFacts::from_job(job, None, &Gates::default())
}

fn spec(job: &Job) -> &JobSpec {
    job.spec.as_ref().expect("a Job has a spec")
}

fn status(job: &Job) -> JobStatus {
    job.status.clone().unwrap_or_default()
}

fn is_indexed(job: &Job) -> bool {
    spec(job).completion_mode.as_deref() == Some("Indexed")
}

fn is_ours(pod: &Pod) -> bool {
    world::controller(pod).is_some_and(|owner| owner.uid == JOB_UID)
}

fn is_same_index_text(old: &JobStatus, new: &JobStatus) -> bool {
    old.completed_indexes == new.completed_indexes && old.succeeded == new.succeeded
}

fn completed(job: &Job) -> IndexSet {
    let text = status(job).completed_indexes.unwrap_or_default();
    IndexSet::parse_lenient(&text, spec(job).completions.unwrap_or(0))
}

/// A pod that flipped from success to failure after its index was completed.
fn completed_early(pod: &PodFacts, job: &Job) -> bool {
    pod.index.is_some_and(|index| completed(job).contains(index))
}

/// The terminal conditions of a Job.
pub fn finished(job: &Job) -> BTreeSet<String> {
    let conditions = status(job).conditions.unwrap_or_default();
    let is_end = |kind: &str| kind == names::condition::COMPLETE || kind == names::condition::FAILED;
    conditions.into_iter().filter(|c| is_end(&c.type_) && c.status == "True").map(|c| c.type_).collect()
}

fn uncounted(status: &JobStatus) -> (BTreeSet<String>, BTreeSet<String>) {
    let lists = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let set = |list: Option<Vec<String>>| list.unwrap_or_default().into_iter().collect();
    (set(lists.succeeded), set(lists.failed))
}
