//! How many pods to add or end, which indexes, which victims.

use jiff::Timestamp;
use windlass_api::indexes::IndexSet;

use crate::decision::{Action, CreationReason, NewPod, RemovalReason};
use crate::job_facts::JobFacts;
use crate::observation::Observation;
use crate::pod_facts::{IndexFailures, PodFacts};
use crate::tally::{Tally, counts};
use crate::trace::{Note, Wait};
use crate::track::pod_ref;
use crate::verdict::{Ending, Finish};

/// What should happen to the pods themselves.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub actions: Vec<Action>,
    /// All active pods are being deleted because the Job ends: the end may be announced when they are.
    pub is_winding_down: bool,
    /// When more can be done.
    pub wake: Option<Timestamp>,
    pub notes: Vec<Note>,
}

/// Plans creations and deletions.
pub(crate) fn plan(seen: &Observation<'_>, tally: &Tally<'_>, finish: Option<&Finish>) -> Fleet {
    let job = seen.job;
    let fleet = if let Some(finish) = finish {
        wind_down(seen, finish.ending)
    } else if job.is_deleted {
        Fleet::default()
    } else if job.is_suspended {
        remove(seen.pods.active().collect(), RemovalReason::Suspended)
    } else {
        scale(seen, tally)
    };
    fleet.held_back(seen)
}

impl Fleet {
    fn waiting(until: Timestamp, why: Wait) -> Self {
        Self { wake: Some(until), notes: vec![Note::Waiting { until, why }], ..Self::default() }
    }

    /// More pods are to be made.
    pub fn makes_pods(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Create(_)))
    }

    /// Leaves alone what failed a moment ago.
    fn held_back(self, seen: &Observation<'_>) -> Self {
        let kind = self.actions.first().map(Action::kind);
        match kind.and_then(|kind| Some((kind, seen.own.held_until(kind, seen.now)?))) {
            Some((kind, until)) => {
                Self { is_winding_down: self.is_winding_down, ..Self::waiting(until, Wait::Api(kind)) }
            }
            None => self,
        }
    }
}

/// The Job ends: every active pod goes, all at once. When the Job fails they keep their finalizers, to be counted as
/// failed. When it succeeds they must not be counted, whatever becomes of us before the success is written.
fn wind_down(seen: &Observation<'_>, ending: Ending) -> Fleet {
    let active: Vec<&PodFacts> = seen.pods.active().collect();
    let is_winding_down = !active.is_empty() || seen.own.in_flight.unseen() > 0;
    match ending {
        Ending::Success => Fleet { is_winding_down, ..remove(active, RemovalReason::Succeeded) },
        Ending::Failure => Fleet {
            is_winding_down,
            notes: active.first().map(|_| Note::Deleting { count: active.len() }).into_iter().collect(),
            actions: active.into_iter().map(|pod| Action::Delete(pod_ref(pod))).collect(),
            wake: None,
        },
    }
}

fn remove(victims: Vec<&PodFacts>, why: RemovalReason) -> Fleet {
    if victims.is_empty() {
        return Fleet::default();
    }
    let notes = vec![Note::Removing { count: victims.len(), why }];
    let actions = victims.into_iter().map(|pod| Action::Remove(pod_ref(pod), why)).collect();
    Fleet { actions, notes, ..Fleet::default() }
}

fn scale(seen: &Observation<'_>, tally: &Tally<'_>) -> Fleet {
    let (job, totals) = (seen.job, tally.totals);
    let want = match job.completions {
        // A work queue that has a success is drained by the pods that are there.
        None if tally.succeeded > 0 => totals.active,
        None => job.parallelism,
        Some(completions) => completions.saturating_sub(tally.succeeded).min(job.parallelism),
    };
    // Only what is known to be there can be too much.
    let surplus = seen.pods.totals().active.saturating_sub(want);
    let victims = victims(seen, surplus as usize);
    if !victims.actions.is_empty() {
        return victims;
    }
    let occupied = totals.active + if job.only_replaces_failed() { totals.terminating } else { 0 };
    let missing = want.saturating_sub(occupied) as usize;
    // An orphan may be ours already, if we did not hear the answer: then there would be one too many.
    if missing == 0 || seen.pods.orphans().next().is_some() {
        return Fleet::default();
    }
    if job.per_index.is_none()
        && let (failures, Some(last)) = seen.pods.failures(job)
    {
        let until = seen.settings.backoff.due(failures, last);
        if until > seen.now {
            return Fleet::waiting(until, Wait::Backoff { failures, last });
        }
    }
    let missing =
        missing.min(seen.settings.pods_per_stage_max.saturating_sub(seen.own.in_flight.creations()));
    if job.is_indexed() { create_indexes(seen, tally, missing) } else { create_any(seen, tally, missing) }
}

/// First those that an Indexed Job can't use, then as many as are too many, in the order of victims.
fn victims(seen: &Observation<'_>, surplus: usize) -> Fleet {
    let job = seen.job;
    let max = seen.settings.pods_per_stage_max;
    let misplaced = match job.completions.filter(|_| job.is_indexed()) {
        Some(completions) => seen.pods.misplaced(completions),
        None => Vec::new(),
    };
    if surplus <= misplaced.len() {
        return remove(misplaced.into_iter().take(max).collect(), RemovalReason::Misplaced);
    }
    let mut rest: Vec<&PodFacts> =
        seen.pods.active().filter(|pod| !misplaced.iter().any(|m| m.uid == pod.uid)).collect();
    rest.sort_by(|a, b| a.victim_order().cmp(&b.victim_order()));
    rest.truncate(surplus - misplaced.len());
    remove(misplaced.into_iter().chain(rest).take(max).collect(), RemovalReason::Surplus)
}

/// Slow start: 1, 2, 4, 8, … on their way at a time, as long as no creation fails.
fn paced(seen: &Observation<'_>, missing: usize) -> usize {
    let most = seen.own.created_in_a_row as usize + 1;
    missing.min(most.saturating_sub(seen.own.in_flight.creations()))
}

fn create_any(seen: &Observation<'_>, tally: &Tally<'_>, missing: usize) -> Fleet {
    let mut attempt = 0;
    let pods: Vec<NewPod> = (0..paced(seen, missing))
        .map(|_| {
            let this = next_attempt(seen, attempt);
            attempt = this + 1;
            new_pod(seen.job, tally, None, this, None)
        })
        .collect();
    creating(pods, missing)
}

/// The first attempt from this one on that was never seen and is not on its way.
fn next_attempt(seen: &Observation<'_>, mut from: u32) -> u32 {
    loop {
        let unused = seen.pods.next_attempt(None, from);
        from = seen.own.in_flight.next_attempt(unused);
        if from == unused {
            return unused;
        }
    }
}

fn create_indexes(seen: &Observation<'_>, tally: &Tally<'_>, missing: usize) -> Fleet {
    let candidates = vacant(seen, tally, missing);
    let mut ready = Vec::new();
    let mut next: Option<(Timestamp, u32, u32)> = None;
    for index in candidates {
        match tally.retained.get(&index) {
            None => ready.push((index, None)),
            Some(last) => {
                let failures = last.failures.total().saturating_add(1);
                let due = seen.settings.backoff.due(failures, last.finished_at);
                if due <= seen.now {
                    ready.push((index, Some(*last)));
                } else if next.is_none_or(|(soonest, ..)| due < soonest) {
                    next = Some((due, index, failures));
                }
            }
        }
    }
    let ready_count = ready.len();
    ready.truncate(paced(seen, ready_count));
    let pods: Vec<NewPod> = ready
        .into_iter()
        .map(|(index, last)| {
            let from = last.map_or(0, |pod| pod.failures.total().saturating_add(1));
            let attempt = seen.pods.next_attempt(Some(index), from);
            let failures =
                seen.job.per_index.map(|_| last.map_or_else(IndexFailures::default, failures_after));
            new_pod(seen.job, tally, Some(index), attempt, failures)
        })
        .collect();
    let mut fleet = creating(pods, ready_count);
    if let Some((until, index, failures)) = next {
        fleet.wake = Some(until);
        fleet.notes.push(Note::Waiting { until, why: Wait::IndexBackoff { index, failures } });
    }
    fleet
}

/// The smallest indexes that need a pod. An index in back-off is among them, and holds its place in `parallelism`, as
/// upstream.
fn vacant(seen: &Observation<'_>, tally: &Tally<'_>, missing: usize) -> Vec<u32> {
    let none = IndexSet::new();
    let ending = if seen.job.only_replaces_failed() { seen.pods.ending() } else { &none };
    let failed = tally.failed_indexes.as_ref().unwrap_or(&none);
    let on_their_way = seen.own.in_flight.unseen_indexes();
    let taken = [&tally.completed, seen.pods.busy(), ending, failed, on_their_way];
    let completions = seen.job.completions.unwrap_or(0);
    IndexSet::absent_from_all(&taken).take_while(|index| *index < completions).take(missing).collect()
}

/// What the next pod of an index should know of the failures before it.
fn failures_after(pod: &PodFacts) -> IndexFailures {
    let IndexFailures { counted, ignored } = pod.failures;
    if counts(pod) {
        IndexFailures { counted: counted.saturating_add(1), ignored }
    } else {
        IndexFailures { counted, ignored: ignored.saturating_add(1) }
    }
}

fn new_pod(
    job: &JobFacts,
    tally: &Tally<'_>,
    index: Option<u32>,
    attempt: u32,
    failures: Option<IndexFailures>,
) -> NewPod {
    let reason = if tally.failed > 0 && job.replacement_policy_is_failed {
        CreationReason::RecreateFailed
    } else if tally.failed > 0 || tally.totals.terminating > 0 {
        CreationReason::RecreateTerminatingOrFailed
    } else {
        CreationReason::New
    };
    let name = job.pod_names.name(index, attempt);
    NewPod { name, prefix: job.pod_names.prefix(index), index, attempt, failures, reason }
}

fn creating(pods: Vec<NewPod>, wanted: usize) -> Fleet {
    let notes = match pods.first() {
        Some(first) => vec![Note::Creating { count: pods.len(), wanted, reason: first.reason }],
        None => Vec::new(),
    };
    Fleet { actions: pods.into_iter().map(Action::Create).collect(), notes, ..Fleet::default() }
}
