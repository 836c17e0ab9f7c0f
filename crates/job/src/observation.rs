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
    /// … and as often again as the square of that number, divided by this: so many at once keep the API server busy …
    pub status_spacing_crowd: u32,
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
            status_spacing_factor: 6,
            status_spacing_pods: 250,
            status_spacing_crowd: 36,
            status_spacing_max: SignedDuration::from_secs(3),
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
    pub(crate) status_took: Took,
    /// When the first pod was begun since the Job is not suspended.
    pub first_pod_at: Option<Timestamp>,
    /// How long the last write to a pod took, with the wait for our turn.
    pub(crate) pod_took: Took,
    /// Those that are not answered yet.
    pub in_flight: InFlight,
    /// The unknown completion mode was reported.
    pub has_warned: bool,
}

/// How long the last two writes of a kind took. One that alone took long says nothing about the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took(Option<[SignedDuration; 2]>);

impl Took {
    /// One more is answered.
    pub(crate) fn add(&mut self, took: SignedDuration) {
        self.0 = Some([took, self.0.map_or(took, |[last, _]| last)]);
    }

    /// What the next one may be expected to take.
    fn usual(self) -> SignedDuration {
        self.0.map(|[last, before]| last.min(before)).unwrap_or_default()
    }
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
    /// became of all of them. Not after that: the more one status says, the longer the writes to those pods take.
    pub(crate) fn status_spacing(
        &self,
        settings: &Settings,
        to_come: u32,
        is_beginning: bool,
    ) -> SignedDuration {
        let many = to_come / settings.status_spacing_pods.max(1);
        let crowd = many.saturating_mul(many) / settings.status_spacing_crowd.max(1);
        let more = i32::try_from(many.saturating_add(crowd)).unwrap_or(i32::MAX);
        let factor = settings.status_spacing_factor.saturating_add(more);
        let longest = settings.status_spacing_max;
        let times = |took: Took, factor| took.usual().checked_mul(factor).unwrap_or(longest);
        let pod_took = if is_beginning { self.pod_took } else { Took::default() };
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

    fn took(millis: &[i64]) -> Took {
        let mut took = Took::default();
        millis.iter().for_each(|millis| took.add(SignedDuration::from_millis(*millis)));
        took
    }

    #[test]
    fn the_longer_writes_take_and_the_more_is_to_come_the_longer_the_next_status_waits() {
        let settings = Settings::default();
        let spacing = |status: i64, to_come: u32, pod: Option<i64>| {
            let (status_took, pod_took) = (took(&[status]), took(&[pod.unwrap_or(9_999)]));
            let own = OwnWrites { status_took, pod_took, ..OwnWrites::default() };
            own.status_spacing(&settings, to_come, pod.is_some()).as_millis()
        };
        let cases = [
            ((0, 10_000, None), 0),
            ((10, 0, None), 60),
            ((10, 249, None), 60),
            ((10, 1_000, None), 100),
            ((10, 2_000, None), 150),
            ((10, 10_000, None), 900),
            ((100, 10_000, None), 3_000),
            ((10, u32::MAX, None), 3_000),
            ((10, 0, Some(9)), 60),
            ((10, 0, Some(100)), 600),
            ((10, 0, Some(3_000)), 3_000),
            ((10, 0, Some(-1)), 60),
        ];
        for ((status, to_come, pod), expected) in cases {
            assert_eq!(spacing(status, to_come, pod), expected, "{status} ms, {to_come} to come, {pod:?} ms");
        }
    }

    #[test]
    fn a_write_that_alone_took_long_does_not_delay_the_next_status() {
        let usual = |millis: &[i64]| took(millis).usual().as_millis();
        assert_eq!(usual(&[]), 0);
        assert_eq!(usual(&[10]), 10);
        assert_eq!(usual(&[10, 50]), 10);
        assert_eq!(usual(&[10, 50, 10, 50, 60]), 50);
    }
}
