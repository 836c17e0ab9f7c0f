//! Whether there is anything to decide about a Job at all.

use crate::decision::{Action, Decision, Event, Kind, Wake};
use crate::job_facts::Mode;
use crate::observation::Observation;
use crate::trace::{Note, Trace, Wait};
use crate::track::pod_ref;

/// The decision about a Job that needs no thought, or `None` if it does.
pub(crate) fn check(seen: &Observation<'_>) -> Option<Decision> {
    let job = seen.job;
    if !seen.settings.manages.includes(job.managed_by.as_deref()) {
        let managed_by = job.managed_by.clone().unwrap_or_default();
        return Some(idle(Note::NotOurs { managed_by }));
    }
    if job.status.is_finished() {
        return Some(release_stragglers(seen));
    }
    if job.mode == Mode::Unknown {
        return Some(report_unknown_mode(seen));
    }
    None
}

fn idle(note: Note) -> Decision {
    Decision { stage: Vec::new(), wake: Wake::Settled, because: Trace(vec![note]) }
}

/// A pod that still has its finalizer when its Job is finished came too late to be counted. It must not keep the
/// finalizer for ever.
fn release_stragglers(seen: &Observation<'_>) -> Decision {
    let stragglers = seen.pods.held().chain(seen.pods.held_active());
    let stage = stragglers
        .filter(|pod| !seen.pods.is_releasing(&pod.uid))
        .take(seen.settings.pods_per_stage_max.saturating_sub(seen.own.in_flight.releases()))
        .map(|pod| Action::Release(pod_ref(pod)))
        .collect();
    unless_held(seen, Kind::Release, stage, Note::Finished)
}

fn report_unknown_mode(seen: &Observation<'_>) -> Decision {
    let event =
        Event::warning("UnknownCompletionMode", "Skipped Job sync because completion mode is unknown");
    let stage = if seen.own.has_warned { Vec::new() } else { vec![Action::Emit(event)] };
    unless_held(seen, Kind::Emit, stage, Note::UnknownMode)
}

/// Leaves alone what failed a moment ago.
fn unless_held(seen: &Observation<'_>, kind: Kind, stage: Vec<Action>, note: Note) -> Decision {
    if stage.is_empty() {
        return idle(note);
    }
    match seen.own.held_until(kind, seen.now) {
        Some(until) => {
            let wait = Note::Waiting { until, why: Wait::Api(kind) };
            Decision { stage: Vec::new(), wake: Wake::At(until), because: Trace(vec![note, wait]) }
        }
        None => Decision { stage, wake: Wake::Again, because: Trace(vec![note]) },
    }
}
