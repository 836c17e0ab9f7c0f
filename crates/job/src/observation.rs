//! Everything a decision may look at.

use jiff::{SignedDuration, Timestamp};
use windlass_api::names;

use crate::backoff::Backoff;
use crate::decision::Kind;
use crate::in_flight::InFlight;
use crate::job_facts::JobFacts;
use crate::pod_facts::PodFacts;
use crate::roster::Roster;

/// One Job at one instant, with our own acknowledged writes already folded in.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The only clock.
    pub now: Timestamp,
    /// The Job.
    pub job: &'a JobFacts,
    /// Its pods, and those it could adopt.
    pub pods: &'a Roster,
    /// What became of our own recent writes.
    pub own: &'a OwnWrites,
    /// How this controller is set up.
    pub settings: &'a Settings,
}

impl Observation<'_> {
    /// The pod is a failure by itself. One that is on its way out because the Job fails is none: it counts as failed
    /// because it ends with the Job, and must change neither the reason nor the failed indexes.
    pub(crate) fn has_failed(&self, pod: &PodFacts) -> bool {
        let ends_with_job = || {
            pod.is_terminating()
                && (self.pods.is_ended(&pod.uid)
                    || self.job.status.true_condition(names::condition::FAILURE_TARGET).is_some())
        };
        pod.is_failed(self.job) && !ends_with_job()
    }
}

/// How a controller is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which Jobs are ours.
    pub manages: Manages,
    /// Pod failure back-off.
    pub backoff: Backoff,
    /// How long to leave a kind of write alone after it failed.
    pub api_retry: Backoff,
    /// Stop recording finished pods when so many are on their way into the counters: their UIDs stand in the status,
    /// which must stay well below the size limit of an object.
    pub uncounted_max: usize,
    /// Pods touched in one stage, so that a stage ends soon and new facts are heard.
    pub pods_per_stage_max: usize,
    /// A status write for nothing but `active`, `ready` and `terminating` comes no sooner than this after the last.
    pub gauge_spacing: SignedDuration,
    /// A status write that only counts pods, while there are more to come, comes no sooner after the last than so many
    /// times as long as that one took …
    pub status_spacing_factor: i32,
    /// … and once more for each so many pods that are to come: they go on coming while one write waits …
    pub status_spacing_pods: u32,
    /// … and never waits longer than this.
    pub status_spacing_max: SignedDuration,
    /// The first pods that end are counted when all are made that may run, or this long after the first was begun.
    pub first_count_max: SignedDuration,
}

impl Default for Settings {
    /// Kubernetes' own numbers, without its fixed delay of one second.
    fn default() -> Self {
        Self {
            manages: Manages::Unclaimed,
            backoff: Backoff::default(),
            api_retry: Backoff { base: SignedDuration::from_secs(1), max: SignedDuration::from_secs(60) },
            uncounted_max: 500,
            pods_per_stage_max: 500,
            gauge_spacing: SignedDuration::from_millis(100),
            status_spacing_factor: 4,
            status_spacing_pods: 250,
            status_spacing_max: SignedDuration::from_secs(2),
            first_count_max: SignedDuration::from_secs(1),
        }
    }
}

/// Which Jobs a controller manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manages {
    /// In place of the built-in controller: Jobs without `managedBy`, or with its name, and those that ask for us.
    Unclaimed,
    /// Beside the built-in controller: only Jobs that ask for us.
    OptedIn,
}

impl Manages {
    /// A Job with this `spec.managedBy` is ours.
    pub fn includes(self, managed_by: Option<&str>) -> bool {
        match managed_by {
            Some(names::WINDLASS_CONTROLLER) => true,
            None | Some(names::BUILT_IN_CONTROLLER) => self == Self::Unclaimed,
            Some(_) => false,
        }
    }
}

/// What became of our own recent writes. Losing this costs a retry, never a count.
#[derive(Clone, Debug, Default)]
pub struct OwnWrites {
    holds: [Hold; Kind::COUNT],
    /// Pods created since the last failed creation: one more than that may be on their way (1, 2, 4, 8, …).
    pub created_in_a_row: u32,
    /// When the status was last written.
    pub status_written_at: Option<Timestamp>,
    /// How long that took.
    pub status_took: SignedDuration,
    /// When the first pod was begun since the Job is not suspended.
    pub first_pod_at: Option<Timestamp>,
    /// How long it took to make the last pod, with the wait for our turn.
    pub pod_took: SignedDuration,
    /// Those that are not answered yet.
    pub in_flight: InFlight,
    /// The unknown completion mode was reported.
    pub has_warned: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    failures: u32,
    until: Option<Timestamp>,
}

impl OwnWrites {
    /// Until when this kind of write is left alone, because it failed before.
    pub fn held_until(&self, kind: Kind, now: Timestamp) -> Option<Timestamp> {
        self.holds[kind as usize].until.filter(|until| *until > now)
    }

    /// How long after a status write the next one waits that only counts pods, while there are more to come: writes of
    /// the status take a part of the time, however long each takes. While pods are made, and until the first is counted, it
    /// is as many times as long as making one takes, too: where even small Jobs wait for their pods, one status says what
    /// became of all of them.
    pub(crate) fn status_spacing(
        &self,
        settings: &Settings,
        to_come: u32,
        is_beginning: bool,
    ) -> SignedDuration {
        let more = i32::try_from(to_come / settings.status_spacing_pods.max(1)).unwrap_or(i32::MAX);
        let factor = settings.status_spacing_factor.saturating_add(more);
        let longest = settings.status_spacing_max;
        let times = |took: SignedDuration, factor| took.checked_mul(factor).unwrap_or(longest);
        let pod_took = if is_beginning { self.pod_took } else { SignedDuration::ZERO };
        times(self.status_took, factor)
            .max(times(pod_took, settings.status_spacing_factor))
            .clamp(SignedDuration::ZERO, longest)
    }

    /// A write failed. Several that fail in one stage are one failure.
    pub(crate) fn failed(&mut self, kind: Kind, now: Timestamp, retry: &Backoff) {
        if self.held_until(kind, now).is_some() {
            return;
        }
        let hold = &mut self.holds[kind as usize];
        hold.failures = hold.failures.saturating_add(1);
        hold.until = Some(retry.due(hold.failures, now));
    }

    /// A write worked. One that works in the stage in which another failed does not make up for it.
    pub(crate) fn succeeded(&mut self, kind: Kind, now: Timestamp) {
        if self.held_until(kind, now).is_none() {
            self.forgive(kind);
        }
    }

    /// What made the write fail may be different now.
    pub(crate) fn forgive(&mut self, kind: Kind) {
        self.holds[kind as usize] = Hold::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_status_write_took_and_the_more_is_to_come_the_longer_the_next_one_waits() {
        let settings = Settings::default();
        let spacing = |status: i64, to_come: u32, pod: Option<i64>| {
            let [status_took, pod_took] = [status, pod.unwrap_or(9_999)].map(SignedDuration::from_millis);
            let own = OwnWrites { status_took, pod_took, ..OwnWrites::default() };
            own.status_spacing(&settings, to_come, pod.is_some()).as_millis()
        };
        let cases = [
            ((0, 10_000, None), 0),
            ((10, 0, None), 40),
            ((10, 249, None), 40),
            ((10, 1_000, None), 80),
            ((10, 10_000, None), 440),
            ((100, 10_000, None), 2_000),
            ((10, u32::MAX, None), 2_000),
            ((10, 0, Some(9)), 40),
            ((10, 0, Some(100)), 400),
            ((10, 0, Some(3_000)), 2_000),
            ((10, 0, Some(-1)), 40),
        ];
        for ((status, to_come, pod), expected) in cases {
            assert_eq!(spacing(status, to_come, pod), expected, "{status} ms, {to_come} to come, {pod:?} ms");
        }
    }
}
