//! A Job from creation to its end: the one function that decides what should happen to it now.

use jiff::Timestamp;

use crate::decision::{Action, Decision, Kind, Wake};
use crate::fleet::{self, Fleet};
use crate::observation::Observation;
use crate::trace::{Note, Trace, Wait};
use crate::track::{self, Tracking, pod_ref};
use crate::verdict::{self, Finish};
use crate::{eligibility, tally};

/// Decides what should happen to one Job now.
///
/// Equal observations give equal decisions. The stage holds only actions that do not depend on each other's success:
/// perform them in any order or at once, fold what became of each into the view, and ask again.
pub fn decide(seen: &Observation<'_>) -> Decision {
    // Somebody else's, finished, or not understood?
    if let Some(decision) = eligibility::check(seen) {
        return decision;
    }
    // Is there something on its way that all else depends on? Its answer asks again.
    if seen.own.in_flight.blocks() {
        return wait_for_answers();
    }
    // Whose pods are these? Nothing is counted before that is settled.
    let (claims, claims_held) = claim(seen);
    if !claims.is_empty() {
        // A pod that is on its way may take the place that an orphan would have.
        return if seen.own.in_flight.creations() > 0 { wait_for_answers() } else { settle(claims) };
    }
    // How many are there, and what is new about them?
    let tally = tally::of(seen);
    // Does the Job end, and why? Written verdicts first, then failures, then successes.
    let finish = verdict::of(seen, &tally);
    // Which pods are too many or too few?
    let fleet = fleet::plan(seen, &tally, finish.as_ref());
    // What is to be recorded, released, folded, concluded?
    let tracking = track::plan(seen, &tally, finish.as_ref(), &fleet);
    // When does time alone change the answer?
    let deadline = verdict::deadline_at(seen, &tally).filter(|_| finish.is_none());
    let waits =
        [(claims_held, Wait::Api(Kind::Claim)), (deadline, Wait::Deadline)].map(|(at, why)| Some((at?, why)));
    compose(finish.as_ref(), fleet, tracking, waits.into_iter().flatten())
}

/// Orphans to adopt and strays to let go, or until when they have to wait. A Job that is being deleted does neither.
fn claim(seen: &Observation<'_>) -> (Vec<Action>, Option<Timestamp>) {
    if seen.job.is_deleted {
        return (Vec::new(), None);
    }
    let strays = seen.pods.strays().map(|pod| Action::Disown(pod_ref(pod)));
    let orphans = seen.pods.orphans().map(|pod| Action::Adopt(pod_ref(pod)));
    let claims: Vec<Action> = strays.chain(orphans).take(seen.settings.pods_per_stage_max).collect();
    match seen.own.held_until(Kind::Claim, seen.now).filter(|_| !claims.is_empty()) {
        Some(until) => (Vec::new(), Some(until)),
        None => (claims, None),
    }
}

fn wait_for_answers() -> Decision {
    Decision { stage: Vec::new(), wake: Wake::Settled, because: Trace::default() }
}

fn settle(claims: Vec<Action>) -> Decision {
    let adopted = claims.iter().filter(|claim| matches!(claim, Action::Adopt(_))).count();
    let note = Note::Claiming { adopted, released: claims.len() - adopted };
    Decision { stage: claims, wake: Wake::Again, because: Trace(vec![note]) }
}

fn compose(
    finish: Option<&Finish>,
    fleet: Fleet,
    tracking: Tracking<'_>,
    waits: impl Iterator<Item = (Timestamp, Wait)>,
) -> Decision {
    let mut notes = fleet.notes;
    notes.extend(tracking.notes);
    let mut soonest = fleet.wake.into_iter().chain(tracking.wake).min();
    for (until, why) in waits {
        notes.push(Note::Waiting { until, why });
        soonest = Some(soonest.map_or(until, |soonest| soonest.min(until)));
    }
    let status = tracking.status.map(|write| Action::WriteStatus(Box::new(write)));
    let stage: Vec<Action> = fleet.actions.into_iter().chain(tracking.releases).chain(status).collect();
    let wake = if stage.is_empty() { soonest.map_or(Wake::Settled, Wake::At) } else { Wake::Again };
    debug_assert!(finish.is_none() || !stage.iter().any(|action| matches!(action, Action::Create(_))));
    Decision { stage, wake, because: Trace(notes) }
}
