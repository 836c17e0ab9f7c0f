//! A pod's phase from the states of its containers: Kubernetes' `getPhase` and what its callers add.

use windlass_api::Gates;

use crate::container::{Kind, Plan, Record, State};
use crate::lifecycle::Cause;

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have been started.
    Pending,
    /// Running, or between two runs.
    Running,
    /// Every main container ended with 0 and none will be started again. Final.
    Succeeded,
    /// Every container has stopped and at least one failed. Final.
    Failed,
}

impl Phase {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Reads the API's word.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text? {
            "Pending" => Some(Self::Pending),
            "Running" => Some(Self::Running),
            "Succeeded" => Some(Self::Succeeded),
            "Failed" => Some(Self::Failed),
            _ => None,
        }
    }

    /// Whether the pod has ended for good.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[derive(Default)]
struct Tally {
    pending_init: usize,
    failed_init_for_good: usize,
    pending_sidecar: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
    main_started: bool,
}

/// Whether a pod whose containers have all stopped has a terminal phase, also if it never started or would be started again.
/// Before KEP-3329 and KEP-3939 one that was deleted went with the phase that it had.
pub fn is_final(cause: Option<Cause>, gates: &Gates) -> bool {
    match cause {
        Some(Cause::Deleted) => gates.deleted_pods_end(),
        None | Some(Cause::Done | Cause::DeadlineExceeded | Cause::Node) => true,
    }
}

/// The phase that the containers add up to. `is_over`: the pod was ended and nothing of it will run again.
pub fn of(plans: &[Plan], records: &[Record], is_over: bool) -> Phase {
    let mut tally = Tally::default();
    for (plan, record) in plans.iter().zip(records) {
        match plan.kind {
            Kind::Init => count_init(&mut tally, plan, record),
            Kind::Sidecar => count_sidecar(&mut tally, record),
            Kind::Main => count_main(&mut tally, plan, record),
        }
    }
    let phase = decide(&tally, is_over);
    // Upstream's TerminatePod: what is over and neither failed nor succeeded has failed, also if it never
    // started.
    if is_over && !phase.is_terminal() { Phase::Failed } else { phase }
}

fn count_init(tally: &mut Tally, plan: &Plan, record: &Record) {
    match record.newest_end() {
        Some(end) if end.is_success() => {}
        Some(end) => {
            if !plan.restarts_after(end) {
                tally.failed_init_for_good += 1;
            }
            tally.pending_init += 1;
        }
        None => tally.pending_init += 1,
    }
}

fn count_sidecar(tally: &mut Tally, record: &Record) {
    match &record.state {
        State::Running { .. } => {
            tally.running += 1;
            tally.pending_sidecar += usize::from(!record.is_started);
        }
        State::Waiting(_) | State::Starting if record.last.is_none() => {
            tally.waiting += 1;
            tally.pending_sidecar += 1;
        }
        // How a sidecar ends says nothing about the pod.
        State::Waiting(_) | State::Starting | State::Terminated(_) => {}
    }
}

fn count_main(tally: &mut Tally, plan: &Plan, record: &Record) {
    tally.main_started |= record.has_started();
    if matches!(record.state, State::Running { .. }) {
        tally.running += 1;
        return;
    }
    let Some(end) = record.newest_end() else {
        tally.waiting += 1;
        return;
    };
    tally.stopped += 1;
    if !plan.restarts_after(end) {
        tally.stopped_for_good += 1;
    }
    if matches!(record.state, State::Terminated(_)) && end.exit_code == 0 {
        tally.succeeded += 1;
    }
}

/// The order of these questions is upstream's.
fn decide(tally: &Tally, is_over: bool) -> Phase {
    let all_succeeded = tally.stopped == tally.succeeded;
    let ended = if all_succeeded { Phase::Succeeded } else { Phase::Failed };
    if tally.failed_init_for_good > 0 {
        return Phase::Failed;
    }
    let is_initializing = tally.pending_init > 0 || (tally.pending_sidecar > 0 && !tally.main_started);
    if is_initializing || tally.waiting > 0 {
        return Phase::Pending;
    }
    if tally.running > 0 {
        return Phase::Running;
    }
    if tally.stopped == 0 {
        return Phase::Pending;
    }
    if is_over || tally.stopped == tally.stopped_for_good { ended } else { Phase::Running }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::RestartPolicy::{self, Always, Never, OnFailure};
    use crate::container::fixtures::{crashing, ended, plan, running, waiting};

    fn phase(policy: RestartPolicy, containers: &[(Kind, Record)], is_over: bool) -> Phase {
        let plans: Vec<Plan> = containers
            .iter()
            .map(|(kind, _)| plan("c", *kind, if *kind == Kind::Sidecar { Always } else { policy }))
            .collect();
        let records: Vec<Record> = containers.iter().map(|(_, record)| record.clone()).collect();
        of(&plans, &records, is_over)
    }

    #[test]
    fn main_containers_decide_together() {
        for (policy, mains, want) in [
            (Never, vec![waiting()], Phase::Pending),
            (Never, vec![running()], Phase::Running),
            (Never, vec![running(), waiting()], Phase::Pending),
            (Never, vec![running(), ended(1)], Phase::Running),
            (Never, vec![ended(0)], Phase::Succeeded),
            (Never, vec![ended(1)], Phase::Failed),
            (Never, vec![ended(0), ended(1)], Phase::Failed),
            (OnFailure, vec![ended(0)], Phase::Succeeded),
            (OnFailure, vec![ended(1)], Phase::Running),
            (OnFailure, vec![crashing(1)], Phase::Running),
            (OnFailure, vec![ended(0), crashing(1)], Phase::Running),
            (Always, vec![ended(0)], Phase::Running),
            (Always, vec![crashing(0)], Phase::Running),
        ] {
            let containers: Vec<_> = mains.into_iter().map(|record| (Kind::Main, record)).collect();
            assert_eq!(phase(policy, &containers, false), want, "{policy:?} {containers:?}");
        }
    }

    #[test]
    fn init_containers_keep_the_pod_pending_or_fail_it() {
        for (policy, init, main, want) in [
            (Never, waiting(), waiting(), Phase::Pending),
            (Never, running(), waiting(), Phase::Pending),
            (Never, ended(1), waiting(), Phase::Failed),
            (OnFailure, ended(1), waiting(), Phase::Pending),
            (OnFailure, crashing(1), waiting(), Phase::Pending),
            (Never, ended(0), waiting(), Phase::Pending),
            (Never, ended(0), running(), Phase::Running),
            (Never, ended(0), ended(0), Phase::Succeeded),
        ] {
            let containers = [(Kind::Init, init), (Kind::Main, main)];
            assert_eq!(phase(policy, &containers, false), want, "{policy:?} {containers:?}");
        }
    }

    #[test]
    fn how_a_sidecar_ends_does_not_matter() {
        for (sidecar, main, want) in [
            (waiting(), waiting(), Phase::Pending),
            (running(), waiting(), Phase::Pending),
            (Record { is_started: false, ..running() }, waiting(), Phase::Pending),
            (Record { is_started: false, ..running() }, running(), Phase::Running),
            (running(), running(), Phase::Running),
            (crashing(1), running(), Phase::Running),
            (running(), ended(0), Phase::Running),
            (ended(137), ended(0), Phase::Succeeded),
            (ended(0), ended(1), Phase::Failed),
        ] {
            let containers = [(Kind::Sidecar, sidecar), (Kind::Main, main)];
            assert_eq!(phase(Never, &containers, false), want, "{containers:?}");
        }
    }

    #[test]
    fn a_pod_that_was_ended_is_succeeded_when_all_exited_0_and_else_failed() {
        for (policy, containers, want) in [
            (Never, vec![(Kind::Main, ended(0))], Phase::Succeeded),
            (Always, vec![(Kind::Main, ended(0))], Phase::Succeeded),
            (Always, vec![(Kind::Main, ended(143))], Phase::Failed),
            (OnFailure, vec![(Kind::Main, crashing(1))], Phase::Failed),
            (Never, vec![(Kind::Main, waiting())], Phase::Failed),
            (OnFailure, vec![(Kind::Init, ended(143)), (Kind::Main, waiting())], Phase::Failed),
            (Never, vec![(Kind::Sidecar, waiting()), (Kind::Main, waiting())], Phase::Failed),
        ] {
            assert_eq!(phase(policy, &containers, true), want, "{policy:?} {containers:?}");
        }
    }

    #[test]
    fn a_deleted_pod_goes_with_the_phase_it_had_only_when_both_gates_are_off() {
        let gates = |conditions, replacement| Gates {
            pod_disruption_conditions: conditions,
            job_pod_replacement_policy: replacement,
            ..Gates::default()
        };
        let (stopped, never_started) = (vec![(Kind::Main, ended(143))], vec![(Kind::Main, waiting())]);
        let (done, failed) =
            (vec![(Kind::Main, ended(0))], vec![(Kind::Init, ended(1)), (Kind::Main, waiting())]);
        let cases = [
            // With one of them on, every deleted pod ends.
            (gates(true, true), Cause::Deleted, Never, &never_started, Phase::Failed),
            (gates(true, false), Cause::Deleted, Never, &never_started, Phase::Failed),
            (gates(false, true), Cause::Deleted, Never, &never_started, Phase::Failed),
            (gates(false, true), Cause::Deleted, OnFailure, &stopped, Phase::Failed),
            // Without, only those that had ended anyway.
            (gates(false, false), Cause::Deleted, Never, &never_started, Phase::Pending),
            (gates(false, false), Cause::Deleted, OnFailure, &stopped, Phase::Running),
            (gates(false, false), Cause::Deleted, Always, &done, Phase::Running),
            (gates(false, false), Cause::Deleted, Never, &stopped, Phase::Failed),
            (gates(false, false), Cause::Deleted, OnFailure, &done, Phase::Succeeded),
            (gates(false, false), Cause::Deleted, Never, &failed, Phase::Failed),
            // Whom the node itself ends has failed, whatever the gates.
            (gates(false, false), Cause::Node, OnFailure, &stopped, Phase::Failed),
            (gates(false, false), Cause::DeadlineExceeded, OnFailure, &stopped, Phase::Failed),
        ];
        for (gates, cause, policy, containers, want) in cases {
            let found = phase(policy, containers, is_final(Some(cause), &gates));
            assert_eq!(found, want, "{gates} {cause:?} {policy:?} {containers:?}");
        }
        assert!(is_final(None, &gates(false, false)), "it ended by itself");
    }

    #[test]
    fn words_of_the_api_are_read_and_written() {
        for phase in [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed] {
            assert_eq!(Phase::parse(Some(phase.as_str())), Some(phase));
        }
        assert_eq!((Phase::parse(None), Phase::parse(Some("Unknown"))), (None, None));
    }
}
