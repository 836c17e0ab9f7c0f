//! Each pod counted once: what is in the counters, what is on its way into them, what is new.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_api::indexes::IndexSet;

use crate::job_facts::{JobFacts, PerIndex};
use crate::observation::Observation;
use crate::pod_facts::{Phase, PodFacts};
use crate::policy::failure::Action;
use crate::roster::Totals;
use crate::slots::UidSet;
use crate::uid::Uid;

/// The count of a Job's pods at this instant.
#[derive(Debug)]
pub(crate) struct Tally<'a> {
    /// Active, ready, terminating.
    pub totals: Totals,
    /// Successes, also those that the status does not have yet.
    pub succeeded: u32,
    /// Failures that count, also those that the status does not have yet.
    pub failed: u32,
    /// Completed indexes, also new ones.
    pub completed: IndexSet,
    /// Failed indexes, also new ones; `None` without a per-index limit.
    pub failed_indexes: Option<IndexSet>,
    /// For each index that waits for a retry, the pod that remembers how often it failed.
    pub retained: BTreeMap<u32, &'a PodFacts>,
    /// UIDs in the status that are on their way into the counters.
    pub uncounted: Recorded<'a>,
    /// Since when the Job runs: when its first pod was begun; from now on, if it was never seen running.
    pub start_time: Option<Timestamp>,
}

/// The pods recorded in the status as not counted yet.
#[derive(Debug, Default)]
pub(crate) struct Recorded<'a> {
    pub succeeded: UidSet<'a>,
    pub failed: UidSet<'a>,
}

impl Recorded<'_> {
    pub fn contains(&self, uid: &Uid) -> bool {
        self.succeeded.contains(uid) || self.failed.contains(uid)
    }
}

/// Counts the pods.
pub(crate) fn of<'a>(seen: &Observation<'a>) -> Tally<'a> {
    let (job, status) = (seen.job, &seen.job.status);
    let uncounted = status.uncounted.as_ref().map_or_else(Recorded::default, |lists| Recorded {
        succeeded: lists.succeeded.iter().collect(),
        failed: lists.failed.iter().collect(),
    });
    let mut completed = status.completed_indexes.clone();
    let mut failed_indexes = job.per_index.map(|_| status.failed_indexes.clone().unwrap_or_default());
    let mut failing = IndexSet::new();
    let (mut new_succeeded, mut new_failed) = (0, 0);
    for pod in seen.pods.held() {
        if job.is_indexed() && !job.has_index(pod.index) {
            continue;
        }
        let is_recorded = uncounted.contains(&pod.uid);
        if pod.phase == Phase::Succeeded && !uncounted.failed.contains(&pod.uid) {
            new_succeeded += u32::from(!is_recorded);
            completed.extend(pod.index.filter(|index| !job.status.has_failed_index(*index)));
        } else if seen.has_failed(pod) {
            new_failed += u32::from(!is_recorded && counts(pod));
            if job.per_index.is_some_and(|limit| fails_index(pod, limit)) {
                failing.extend(pod.index);
            }
        }
    }
    // An index with several pods can have both ends. The first that is written stands, and a success goes first.
    if let Some(failed) = &mut failed_indexes {
        failed.extend(failing.iter().filter(|index| !completed.contains(*index)));
    }
    let recorded = |list: &UidSet<'_>| u32::try_from(list.len()).unwrap_or(u32::MAX);
    let succeeded = if job.is_indexed() {
        u32::try_from(completed.len()).unwrap_or(u32::MAX)
    } else {
        status.succeeded + new_succeeded + recorded(&uncounted.succeeded)
    };
    // A pod that is being made counts as if it were there.
    let mut totals = seen.pods.totals();
    totals.active += seen.own.in_flight.unseen();
    Tally {
        totals,
        succeeded,
        failed: status.failed + new_failed + recorded(&uncounted.failed),
        retained: retained(seen, &completed, failed_indexes.as_ref()),
        completed,
        failed_indexes,
        uncounted,
        start_time: status
            .start_time
            .or_else(|| Some(seen.own.first_pod_at.unwrap_or(seen.now)).filter(|_| !job.is_suspended)),
    }
}

/// A failure counts unless a rule says `Ignore`.
pub(crate) fn counts(pod: &PodFacts) -> bool {
    pod.rule.as_ref().is_none_or(|rule| rule.action != Action::Ignore)
}

fn fails_index(pod: &PodFacts, limit: PerIndex) -> bool {
    let asks_for_it = pod.rule.as_ref().is_some_and(|rule| rule.action == Action::FailIndex);
    asks_for_it || (counts(pod) && pod.failures.counted >= limit.backoff_limit)
}

/// An index that waits for a retry keeps its last failed pod, with its finalizer: the annotations of that pod are the
/// only durable memory of how often the index failed, and its finish time of when.
fn retained<'a>(
    seen: &Observation<'a>,
    completed: &IndexSet,
    failed_indexes: Option<&IndexSet>,
) -> BTreeMap<u32, &'a PodFacts> {
    let mut retained: BTreeMap<u32, &PodFacts> = BTreeMap::new();
    let Some(failed_indexes) = failed_indexes else { return retained };
    for pod in seen.pods.held().filter(|pod| seen.has_failed(pod) && seen.job.has_index(pod.index)) {
        let Some(index) = pod.index else { continue };
        if completed.contains(index) || failed_indexes.contains(index) || seen.pods.busy().contains(index) {
            continue;
        }
        let rank = |pod: &PodFacts| (pod.failures.total(), pod.finished_at);
        let best = retained.entry(index).or_insert(pod);
        if rank(pod) >= rank(best) {
            *best = pod;
        }
    }
    retained
}

impl Tally<'_> {
    /// The pod is kept to remember the failures of its index.
    pub fn is_retained(&self, pod: &PodFacts) -> bool {
        pod.index.and_then(|index| self.retained.get(&index)).is_some_and(|kept| kept.uid == pod.uid)
    }

    /// All completions were reached and nothing runs any more.
    pub fn is_complete(&self, job: &JobFacts) -> bool {
        self.totals.active == 0
            && match job.completions {
                Some(completions) => self.succeeded >= completions,
                None => self.succeeded > 0,
            }
    }
}
