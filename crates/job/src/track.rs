//! Counting: record a finished pod in the status, release its finalizer, fold it into the counters, conclude.
//!
//! ```text
//!  finished, held ──record──> UID in status.uncounted ──release──> no finalizer ──fold──> in the counters ──> conclude
//!                 (status write)               (pod patch)                (status write)
//! ```
//!
//! Each arrow is a write of its own and asks only for what the one before has left in the world. A crash between any
//! two of them is just the next observation: a recorded pod that is held is released again, a recorded pod that is not
//! held (or is gone) is folded. No pod is released before it is recorded, and none is recorded twice.

use jiff::{SignedDuration, Timestamp};
use windlass_api::names::{condition, reason};

use crate::backoff::later;
use crate::decision::{Action, Event, Kind, PodRef, StatusWrite};
use crate::fleet::Fleet;
use crate::job_facts::{Condition, Status, Uncounted};
use crate::observation::Observation;
use crate::pod_facts::{Phase, PodFacts};
use crate::tally::{Tally, counts};
use crate::trace::{Note, PodOutcome, Wait};
use crate::uid::Uid;
use crate::verdict::{Ending, Finish};

/// What should happen to finalizers and status.
#[derive(Debug, Default)]
pub(crate) struct Tracking<'a> {
    pub releases: Vec<Action>,
    pub status: Option<StatusWrite>,
    /// When more can be done.
    pub wake: Option<Timestamp>,
    pub notes: Vec<Note>,
    /// Pods that are recorded if the status is written: most looks at a large Job write none, and need no words.
    recorded: Vec<(&'a PodFacts, Step)>,
    /// What else is to be said then.
    written: Vec<Note>,
}

/// What to do with the finalizer of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing yet.
    Hold,
    /// Record it as succeeded.
    RecordSuccess,
    /// Its index must be in `completedIndexes` first.
    RecordIndex,
    /// Record it as failed.
    RecordFailure,
    /// It is recorded, or need not be.
    Release,
}

/// Plans the next writes of the counting protocol.
pub(crate) fn plan<'a>(
    seen: &Observation<'a>,
    tally: &Tally<'_>,
    finish: Option<&Finish>,
    fleet: &Fleet,
) -> Tracking<'a> {
    let mut tracking = Tracking::default();
    let mut next = seen.job.status.clone();
    settle(seen, tally, &mut next);
    walk(seen, tally, finish, &mut next, &mut tracking);
    tracking.hold_releases(seen);
    // One status write at a time.
    if seen.own.in_flight.writes_status() {
        return tracking;
    }
    carry_indexes(seen, tally, &mut next);
    let mut write = Draft { next, events: Vec::new(), finishes: false };
    if let Some(finish) = closing(tally, finish) {
        write.announce(seen, finish, &mut tracking.written);
        write.conclude(seen, tally, finish, &mut tracking);
    }
    if write.is_about_to_finish(seen, finish, &tracking) {
        return tracking;
    }
    let is_urgent = !same_ledger(&seen.job.status, &write.next) || !seen.job.index_texts_are_current;
    write.gauges(seen, tally, finish, fleet);
    tracking.commit(seen, tally, write, is_urgent, fleet);
    tracking
}

/// The end is announced, and pods are counted with it, only when all active ones were asked to go.
fn closing<'a>(tally: &Tally<'_>, finish: Option<&'a Finish>) -> Option<&'a Finish> {
    finish.filter(|_| tally.totals.active == 0)
}

/// A pod as it stands in actions.
pub(crate) fn pod_ref(pod: &PodFacts) -> PodRef {
    PodRef { uid: pod.uid.clone(), name: pod.name.to_string() }
}

/// Fold: a recorded pod that does not hold its finalizer any more, or is gone, moves into the counters.
fn settle(seen: &Observation<'_>, tally: &Tally<'_>, next: &mut Status) {
    if tally.uncounted.succeeded.is_empty() && tally.uncounted.failed.is_empty() {
        return;
    }
    let uncounted = next.uncounted.get_or_insert_default();
    let fold = |list: &mut Vec<Uid>| {
        let before = list.len();
        list.retain(|uid| seen.pods.holds(uid));
        u32::try_from(before - list.len()).unwrap_or(u32::MAX)
    };
    next.succeeded += fold(&mut uncounted.succeeded);
    next.failed += fold(&mut uncounted.failed);
}

/// Record and release: looks at every pod whose finalizer may go. Not too many are on their way at a time.
fn walk<'a>(
    seen: &Observation<'a>,
    tally: &Tally<'_>,
    finish: Option<&Finish>,
    next: &mut Status,
    tracking: &mut Tracking<'a>,
) {
    let in_flight = &seen.own.in_flight;
    let uncounted = next.uncounted.get_or_insert_default();
    let is_abandoned = seen.job.is_deleted && finish.is_none();
    let active = is_abandoned.then(|| seen.pods.held_active()).into_iter().flatten();
    let mut new_indexes = 0;
    for pod in seen.pods.held().chain(active) {
        let step = step(seen, tally, finish, pod);
        let has_room = new_indexes + uncounted.len() < seen.settings.uncounted_max;
        let releases = in_flight.releases() + tracking.releases.len();
        let may_release = releases < seen.settings.pods_per_stage_max && !seen.pods.is_releasing(&pod.uid);
        let has_room = has_room && !in_flight.writes_status();
        match step {
            Step::RecordSuccess if has_room => uncounted.succeeded.push(pod.uid.clone()),
            Step::RecordFailure if has_room => uncounted.failed.push(pod.uid.clone()),
            Step::RecordIndex if has_room => new_indexes += 1,
            Step::Release if may_release => tracking.releases.push(Action::Release(pod_ref(pod))),
            Step::RecordSuccess | Step::RecordFailure | Step::RecordIndex | Step::Release | Step::Hold => {
                continue;
            }
        }
        match step {
            Step::Release => tracking.notes.extend(note(seen, tally, pod, step)),
            Step::RecordSuccess | Step::RecordIndex | Step::RecordFailure | Step::Hold => {
                tracking.recorded.push((pod, step))
            }
        }
    }
    if seen.job.is_deleted {
        // Nobody disowns strays any more, and none may keep the Job from going.
        let strays = seen.pods.strays().filter(|pod| pod.has_finalizer && !seen.pods.is_releasing(&pod.uid));
        tracking.releases.extend(strays.map(|pod| Action::Release(pod_ref(pod))));
        tracking.releases.truncate(seen.settings.pods_per_stage_max);
    }
}

fn step(seen: &Observation<'_>, tally: &Tally<'_>, finish: Option<&Finish>, pod: &PodFacts) -> Step {
    let job = seen.job;
    let closing = closing(tally, finish);
    let takes_all = closing.is_some() || job.is_deleted;
    if tally.is_retained(pod) && !takes_all {
        return Step::Hold;
    }
    if tally.uncounted.contains(&pod.uid) {
        return Step::Release;
    }
    let has_place = !job.is_indexed() || job.has_index(pod.index);
    if pod.phase == Phase::Succeeded {
        return match pod.index.filter(|_| job.is_indexed()) {
            _ if !has_place => Step::Release,
            Some(index) if job.status.completed_indexes.contains(index) => Step::Release,
            Some(index) if job.status.has_failed_index(index) => Step::Release,
            Some(_) => Step::RecordIndex,
            None => Step::RecordSuccess,
        };
    }
    if seen.has_failed(pod) {
        // The pod that fails the Job is evidence until the status says so.
        if pod.fails_job() && !takes_all {
            return Step::Hold;
        }
        return if has_place && counts(pod) { Step::RecordFailure } else { Step::Release };
    }
    match closing {
        // Whatever has not stopped when the Job fails counts as failed, right away.
        Some(Finish { ending: Ending::Failure, .. }) if has_place && counts(pod) => Step::RecordFailure,
        Some(finish) if finish.is_written() => Step::Release,
        // Nobody waits for what becomes of it any more.
        None if job.is_deleted && finish.is_none() => Step::Release,
        Some(_) | None => Step::Hold,
    }
}

/// What is worth saying about a pod: each is said once, when it is recorded, or released without being recorded.
fn note(seen: &Observation<'_>, tally: &Tally<'_>, pod: &PodFacts, step: Step) -> Option<Note> {
    let rule = || pod.rule.as_deref().cloned();
    let outcome = match step {
        Step::RecordSuccess | Step::RecordIndex => PodOutcome::Succeeded,
        Step::RecordFailure if seen.has_failed(pod) => PodOutcome::Counted(rule()),
        Step::RecordFailure => PodOutcome::EndedWithJob,
        Step::Release if !tally.uncounted.contains(&pod.uid) && seen.has_failed(pod) && !counts(pod) => {
            PodOutcome::Ignored(rule()?)
        }
        Step::Release | Step::Hold => return None,
    };
    Some(Note::PodFinished { pod: pod.name.to_string(), index: pod.index, outcome })
}

fn carry_indexes(seen: &Observation<'_>, tally: &Tally<'_>, next: &mut Status) {
    if seen.job.is_indexed() {
        next.completed_indexes = tally.completed.clone();
        next.succeeded = tally.succeeded;
        next.failed_indexes.clone_from(&tally.failed_indexes);
    }
}

/// Pods that can still end before the next write: what is left of the Job, as far as it may run at the same time.
fn to_come(seen: &Observation<'_>, tally: &Tally<'_>) -> u32 {
    let left = seen.job.completions.map(|completions| completions.saturating_sub(tally.succeeded));
    left.unwrap_or(u32::MAX).min(seen.job.parallelism)
}

/// Nothing but times and gauges differs.
fn same_ledger(old: &Status, new: &Status) -> bool {
    let nobody = Uncounted::default();
    let settled = |status: &Status| status.failed_indexes.as_ref().is_none_or(|set| set.is_empty());
    (old.succeeded, old.failed, &old.conditions) == (new.succeeded, new.failed, &new.conditions)
        && old.uncounted.as_ref().unwrap_or(&nobody) == new.uncounted.as_ref().unwrap_or(&nobody)
        && old.completed_indexes == new.completed_indexes
        && (old.failed_indexes == new.failed_indexes || (settled(old) && settled(new)))
        && old.completion_time == new.completion_time
}

/// A status in the making.
struct Draft {
    next: Status,
    events: Vec<Event>,
    finishes: bool,
}

impl Draft {
    /// Says that the Job is about to end, and why. Written before any finalizer goes, so that the reason outlives the
    /// pods that gave it.
    fn announce(&mut self, seen: &Observation<'_>, finish: &Finish, notes: &mut Vec<Note>) {
        if finish.is_written() {
            return;
        }
        let kind = finish.interim_type();
        self.next.set_condition(Condition::now_true(kind, &finish.reason, &finish.message, seen.now));
        if let Some(trigger) = finish.trigger.clone() {
            let (reason, message) = (finish.reason.clone(), finish.message.clone());
            notes.push(Note::Ending { ending: finish.ending, reason, message, trigger });
        }
    }

    /// Ends the Job, if nothing is left to count and nothing runs.
    fn conclude(
        &mut self,
        seen: &Observation<'_>,
        tally: &Tally<'_>,
        finish: &Finish,
        tracking: &mut Tracking<'_>,
    ) {
        let Some(written_at) = finish.written_at else { return };
        let totals = tally.totals;
        let is_counted = self.next.uncounted.as_ref().is_none_or(Uncounted::is_empty) && totals.held == 0;
        // An orphan may be ours already, if we did not hear the answer: then it holds a finalizer.
        let is_claimed =
            seen.job.is_deleted || seen.pods.strays().chain(seen.pods.orphans()).next().is_none();
        if !is_counted || !is_claimed || totals.active > 0 {
            return;
        }
        if totals.terminating > 0 {
            tracking.notes.push(Note::WaitingForPods { terminating: totals.terminating });
            return;
        }
        // The API takes no finished Job without a start, but for one that had nothing to do.
        let had_nothing_to_do = seen.job.is_suspended && seen.job.completions == Some(0);
        if tally.start_time.is_none() && !had_nothing_to_do {
            return;
        }
        let terminal = Condition::now_true(finish.terminal_type(), &finish.reason, &finish.message, seen.now);
        self.next.set_condition(terminal);
        self.finishes = true;
        match finish.ending {
            Ending::Success => {
                self.next.completion_time = Some(written_at.max(tally.start_time.unwrap_or(written_at)));
                if seen.job.completions.is_some_and(|completions| self.next.succeeded > completions) {
                    let message = "Too many succeeded pods running after completion count reached";
                    self.events.push(Event::warning("TooManySucceededPods", message));
                }
                self.events.push(Event::normal("Completed", "Job completed"));
            }
            Ending::Failure => self.events.push(Event::warning(&finish.reason, &finish.message)),
        }
        let counters = (self.next.succeeded, self.next.failed);
        tracking.written.push(Note::Concluded { ending: finish.ending, counters });
    }

    /// The end is announced and all pods are recorded: when the last of them is released, one status counts them and ends
    /// the Job.
    fn is_about_to_finish(
        &self,
        seen: &Observation<'_>,
        finish: Option<&Finish>,
        tracking: &Tracking<'_>,
    ) -> bool {
        let is_releasing = !tracking.releases.is_empty() || seen.own.in_flight.releases() > 0;
        let may_record = self.next.uncounted.as_ref().is_none_or(|it| it.len() < seen.settings.uncounted_max);
        finish.is_some_and(Finish::is_written)
            && tracking.recorded.is_empty()
            && may_record
            && is_releasing
            && !self.finishes
    }

    /// What can wait until there is nothing better to write: gauges, the start, the Suspended condition.
    fn gauges(&mut self, seen: &Observation<'_>, tally: &Tally<'_>, finish: Option<&Finish>, fleet: &Fleet) {
        let (job, totals) = (seen.job, tally.totals);
        // Pods that are made in the same stage are there when the write is, or the next one says that they are not.
        let created = fleet.actions.iter().filter(|action| action.kind() == Kind::Create).count();
        self.next.active = totals.active + u32::try_from(created).unwrap_or(u32::MAX);
        self.next.ready = Some(totals.ready);
        self.next.terminating = job.tracks_terminating.then_some(totals.terminating);
        self.next.start_time = tally.start_time;
        // A Job that ends is not suspended any more; but one that was resumed must say so, also when its pods were
        // quicker than this write.
        if !job.is_deleted && (finish.is_none() || !job.is_suspended) {
            self.suspension(seen);
        }
    }

    fn suspension(&mut self, seen: &Observation<'_>) {
        let (is_suspended, why, text, event) = if seen.job.is_suspended {
            (true, reason::JOB_SUSPENDED, "Job suspended", "Suspended")
        } else {
            (false, reason::JOB_RESUMED, "Job resumed", "Resumed")
        };
        let condition = Condition::new(condition::SUSPENDED, is_suspended, why, text, seen.now);
        if self.next.set_condition(condition) {
            self.events.insert(0, Event::normal(event, text));
            // The deadline counts from the resumption.
            self.next.start_time = Some(seen.now).filter(|_| !is_suspended);
        }
    }
}

impl Tracking<'_> {
    /// Leaves alone what failed a moment ago.
    fn hold_releases(&mut self, seen: &Observation<'_>) {
        if let Some(until) =
            seen.own.held_until(Kind::Release, seen.now).filter(|_| !self.releases.is_empty())
        {
            self.releases.clear();
            self.wait(until, Wait::Api(Kind::Release));
        }
    }

    /// Decides whether the status is written now.
    fn commit(
        &mut self,
        seen: &Observation<'_>,
        tally: &Tally<'_>,
        write: Draft,
        is_urgent: bool,
        fleet: &Fleet,
    ) {
        if write.next == seen.job.status && !is_urgent {
            return;
        }
        let acts_on_pods =
            !fleet.actions.is_empty() || !self.releases.is_empty() || seen.own.in_flight.acts_on_pods();
        if acts_on_pods && (!is_urgent || fleet.is_winding_down) {
            return;
        }
        if let Some(until) = seen.own.held_until(Kind::Status, seen.now) {
            return self.wait(until, Wait::Api(Kind::Status));
        }
        let (old, new) = (&seen.job.status, &write.next);
        // The more there is to come, the more one write can say.
        let has_more_to_come = acts_on_pods || tally.totals.active > 0;
        // One that says as much as half of what may be on its way into the counters need not wait for more.
        // Indexes are all said, however many there are.
        let has_list = |(_, step): &&(_, Step)| *step != Step::RecordIndex;
        let says_much = self.recorded.iter().filter(has_list).count() * 2 >= seen.settings.uncounted_max;
        let may_wait = has_more_to_come && !says_much && old.conditions == new.conditions;
        let makes_pods = seen.own.in_flight.creations() > 0 || fleet.makes_pods();
        let spacing = match (is_urgent, may_wait) {
            (false, _) => seen.settings.gauge_spacing,
            (true, true) => {
                let is_beginning = makes_pods || old.counts_none();
                seen.own.status_spacing(seen.settings, to_come(seen, tally), is_beginning)
            }
            (true, false) => SignedDuration::ZERO,
        };
        let spaced = seen.own.status_written_at.map(|last| later(last, spacing));
        let is_first = is_urgent && may_wait && makes_pods && old.counts_none();
        let first = seen.own.first_pod_at.filter(|_| is_first);
        let spaced = spaced.max(first.map(|at| later(at, seen.settings.first_count_max)));
        if let Some(until) = spaced.filter(|until| *until > seen.now) {
            return self.wait(until, Wait::Gauges);
        }
        let recorded = std::mem::take(&mut self.recorded);
        self.notes.extend(recorded.into_iter().filter_map(|(pod, step)| note(seen, tally, pod, step)));
        self.notes.append(&mut self.written);
        if (old.succeeded, old.failed) != (new.succeeded, new.failed) {
            self.notes.push(Note::Counters {
                succeeded: (old.succeeded, new.succeeded),
                failed: (old.failed, new.failed),
                backoff_limit: seen.job.backoff_limit,
            });
        }
        self.status = Some(StatusWrite {
            status: write.next,
            resource_version: seen.job.resource_version.clone(),
            events: write.events,
            finishes: write.finishes,
        });
    }

    fn wait(&mut self, until: Timestamp, why: Wait) {
        self.wake = Some(self.wake.map_or(until, |wake| wake.min(until)));
        self.notes.push(Note::Waiting { until, why });
    }
}
