//! Planted bugs, one for each promise: if the checker does not find them, it would find nothing.

use jiff::{SignedDuration, Timestamp};
use windlass_api::indexes::IndexSet;
use windlass_api::names::condition;
use windlass_job::decision::{PodRef, StatusWrite};
use windlass_job::job_facts::{Condition, Uncounted};
use windlass_job::{Action, Decision, JobView, Uid};

/// A bug in the driver or in what it makes of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None: the real thing.
    #[default]
    None,
    /// Releases pods instead of recording them first.
    ReleasesUnrecorded,
    /// Makes up names, and does not remember what it created.
    ForgetsCreations(u32),
    /// Writes that failed indexes have not failed after all.
    ForgivesIndexes,
    /// Ends a Job in the same breath in which it announces the end.
    EndsAtOnce,
    /// Leaves pods alone whose Job is gone.
    ForgetsOrphans,
    /// Writes to whatever has the name.
    IgnoresUids,
    /// Writes the same status again and again.
    NeverRests,
    /// Answers the same question differently every other time.
    Wavers(bool),
    /// Lives an hour in the past.
    SlowClock,
    /// Writes a status that the API can't take.
    WritesNonsense,
}

impl Sabotage {
    pub(crate) fn clock(&self, now: Timestamp) -> Timestamp {
        if *self == Self::SlowClock {
            now.saturating_sub(SignedDuration::from_hours(1)).unwrap_or(now)
        } else {
            now
        }
    }

    pub(crate) fn ignores_uids(&self) -> bool {
        *self == Self::IgnoresUids
    }

    pub(crate) fn forgets_orphans(&self) -> bool {
        *self == Self::ForgetsOrphans
    }

    pub(crate) fn forgets(&self, action: &Action) -> bool {
        matches!((self, action), (Self::ForgetsCreations(_), Action::Create(_)))
    }

    pub(crate) fn twin_name(&mut self, name: &str) -> Option<String> {
        let Self::ForgetsCreations(count) = self else { return None };
        *count += 1;
        Some(format!("{name}-{count}"))
    }

    pub(crate) fn decision(&mut self, mut decision: Decision, view: &JobView) -> Decision {
        match self {
            Self::ReleasesUnrecorded => {
                decision.stage = decision.stage.into_iter().flat_map(|a| release(a, view)).collect();
            }
            Self::ForgivesIndexes => decision.stage.iter_mut().filter_map(status).for_each(|write| {
                let known = view.job().status.failed_indexes.as_ref();
                if known.is_some_and(|known| !known.is_empty()) {
                    write.status.failed_indexes = Some(IndexSet::new());
                }
            }),
            Self::EndsAtOnce => decision.stage.iter_mut().filter_map(status).for_each(end),
            Self::NeverRests => {
                let write = StatusWrite {
                    status: view.job().status.clone(),
                    resource_version: view.job().resource_version.clone(),
                    events: Vec::new(),
                    finishes: false,
                };
                if decision.stage.is_empty() {
                    decision.stage.push(Action::WriteStatus(Box::new(write)));
                }
            }
            Self::Wavers(mood) => {
                *mood = !*mood;
                if *mood {
                    decision.stage.pop();
                }
            }
            Self::WritesNonsense => decision.stage.iter_mut().filter_map(status).for_each(|write| {
                write.status.ready = Some(write.status.active + 1);
            }),
            Self::None
            | Self::ForgetsCreations(_)
            | Self::ForgetsOrphans
            | Self::IgnoresUids
            | Self::SlowClock => {}
        }
        decision
    }
}

fn status(action: &mut Action) -> Option<&mut StatusWrite> {
    match action {
        Action::WriteStatus(write) => Some(write),
        _ => None,
    }
}

/// Instead of recording pods, releases them.
fn release(action: Action, view: &JobView) -> Vec<Action> {
    let Action::WriteStatus(write) = &action else { return vec![action] };
    let nobody = Uncounted::default();
    let old = view.job().status.uncounted.as_ref().unwrap_or(&nobody);
    let new = write.status.uncounted.as_ref().unwrap_or(&nobody);
    let is_new = |uid: &&Uid| !old.failed.contains(uid) && !old.succeeded.contains(uid);
    let recorded: Vec<&Uid> = new.failed.iter().chain(&new.succeeded).filter(is_new).collect();
    if recorded.is_empty() {
        return vec![action];
    }
    let pods = recorded.into_iter().filter_map(|uid| view.pods().get(uid));
    pods.map(|pod| Action::Release(PodRef { uid: pod.uid.clone(), name: pod.name.to_string() })).collect()
}

/// An announced end becomes the end.
fn end(write: &mut StatusWrite) {
    let announced = [
        (condition::FAILURE_TARGET, condition::FAILED),
        (condition::SUCCESS_CRITERIA_MET, condition::COMPLETE),
    ]
    .into_iter()
    .find_map(|(interim, end)| Some((write.status.true_condition(interim)?.clone(), end)));
    if let Some((interim, end)) = announced {
        write.status.uncounted = None;
        write.status.terminating = Some(0);
        if end == condition::COMPLETE {
            write.status.completion_time = interim.last_transition.max(write.status.start_time);
        }
        write.status.set_condition(Condition { kind: end.to_owned(), ..interim });
    }
}
